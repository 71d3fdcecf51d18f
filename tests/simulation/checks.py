"""The rules that hold at every moment of a simulation, and those that hold at its end.

- One leader at most in each leader epoch of a partition.
- The high watermark of a leader never passes the log end of a member of the ISR of its epoch.
- A record below some leader's high watermark never vanishes or changes.
- An acknowledged record stays where it was acknowledged.
- In the end all replicas have the same bytes.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from kafkapy._speedups.log.partition_log import PartitionLog
from kafkapy.metadata.znodes import partition_state_path
from kafkapy.types import TopicPartition

if TYPE_CHECKING:
    from simulation.cluster import SimulatedCluster


LOG_END: Final = 2
"""The isolation of a read up to the log end."""
MAGIC_AT: Final = 16
NEW: Final = 2
"""The format of record batches; older messages have one offset each."""
OLD_HEAD: Final = 27
"""No message is shorter, and no batch."""


class RuleBrokenError(AssertionError):
    """A rule of replication does not hold."""


class Committed:
    """What consumers of a partition may have seen: batches by base offset, as they were when they were committed."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, int, bytes]] = []
        """Base offset, next offset, bytes."""
        self.epochs: list[int] = []
        """For each batch, the leader epoch in which it was committed."""
        self.end = 0


class Checks:
    """Looks at every broker of a cluster, after each change of anything."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self.partitions: list[TopicPartition] = []
        self.leaders: dict[tuple[TopicPartition, int], int] = {}
        self.committed: dict[TopicPartition, Committed] = {}
        self.looks = 0
        self.allows_loss = False
        """An unclean election, or the loss of too many disks: committed records may vanish."""
        self._seen: dict[tuple[TopicPartition, int], tuple[int, int, int, int]] = {}

    def fail(self, text: str) -> None:
        """A broken rule."""
        raise RuleBrokenError(f"{text}\n{self._cluster.describe()}")

    def look(self) -> None:
        """Check the rules of every moment."""
        for broker in self._cluster.brokers.values():
            if not broker.life.alive or broker.loaded is not broker.life:
                continue
            assert broker.log_manager is not None
            logs = broker.log_manager.table.get
            for partition in self.partitions:
                log = logs(partition)
                if log is None or not log.is_leader or log.offline_errno:
                    continue
                node = self._cluster.ensemble.tree._tree.nodes.get(partition_state_path(partition))
                version = -1 if node is None else node[1].version
                now = (log.leader_epoch, log.high_watermark, broker.lives, version)
                if self._seen.get((partition, broker.id)) == now:
                    continue
                before = self._seen.get((partition, broker.id))
                self._seen[partition, broker.id] = now
                self.looks += 1
                if self.leaders.setdefault((partition, log.leader_epoch), broker.id) != broker.id:
                    self.fail(f"{partition} has two leaders in epoch {log.leader_epoch}")
                if not self.allows_loss:
                    self._check_isr(partition, log, broker.id)
                    same = before is not None and (before[0], before[2]) == (now[0], now[2])
                    self._check_committed(partition, log, before[1] if same else -1)

    def _check_isr(self, partition: TopicPartition, log: PartitionLog, leader: int) -> None:
        state = self._cluster.state(*partition)
        if state is None or state.leader_epoch != log.leader_epoch or state.leader != leader:
            return
        if leader not in state.isr:
            self.fail(f"{partition}: the leader {leader} is not in sync")
        for member in state.isr:
            theirs = self._cluster[member].log(*partition)
            end = 0 if theirs is None else theirs.log_end_offset
            if end < log.high_watermark and not self._cluster[member].lost_disk:
                self.fail(f"{partition}: the high watermark {log.high_watermark} is above the end {end} of {member}")

    def _check_committed(self, partition: TopicPartition, log: PartitionLog, before: int) -> None:
        """`before`: the high watermark at the last look; -1 for a new leader."""
        known = self.committed.setdefault(partition, Committed())
        if before < 0 or before < known.end:
            # A late leader need not have what later leaders have committed, as long as it does not claim that it has.
            found = {base: (end, data) for base, end, data in batches(log, max(before, 0), log.log_end_offset)}
            for (base, end, data), epoch in zip(known.batches, known.epochs, strict=True):
                expected = (before < 0 and epoch < log.leader_epoch) or before <= base < log.high_watermark
                if expected and base >= log.log_start_offset and found.get(base) != (end, data):
                    self.fail(f"{partition}: the committed batch at offset {base} is gone from leader {log.leader_id}")
        if log.high_watermark > known.end:
            for each in batches(log, known.end, log.high_watermark):
                if each[0] < known.end:
                    self.fail(f"{partition}: another batch is committed below offset {known.end}")
                known.batches.append(each)
                known.epochs.append(log.leader_epoch)
            known.end = log.high_watermark

    def compare(self) -> None:
        """Check the rules of the end."""
        cluster = self._cluster
        for partition in self.partitions:
            logs = {replica: cluster[replica].log(*partition) for replica in cluster.replicas(*partition)}
            whole = {}
            # A log start that no checkpoint has is lost with the process; those of the replicas may differ.
            start = max((log.log_start_offset for log in logs.values() if log is not None), default=0)
            for replica, log in logs.items():
                if log is None:
                    self.fail(f"{partition}: replica {replica} has no log")
                    return
                whole[replica] = raw(log, start, log.log_end_offset)
            if len(set(whole.values())) > 1:
                self.fail(f"{partition}: the replicas differ")
            # The epoch file may know of a log start that a crash took back, as in Kafka.
            firsts = [log.leader_epochs()[0][1] for log in logs.values() if log is not None and log.leader_epochs()]
            start = max([start, *firsts])
            epochs = {replica: epochs_of(log, start) for replica, log in logs.items() if log is not None}
            if len(set(epochs.values())) > 1:
                self.fail(f"{partition}: the leader epochs of the records differ: {epochs}")
            if not self.allows_loss:
                self._compare_acknowledged(partition, next(iter(logs.values())))

    def _compare_acknowledged(self, partition: TopicPartition, log: PartitionLog | None) -> None:
        assert log is not None
        found = {base: data for base, _, data in batches(log, 0, log.log_end_offset)}
        for each in self._cluster.acknowledged:
            if each.partition == partition and each.offset >= log.log_start_offset:
                data = found.get(each.offset)
                if data is None or each.value not in data:
                    self.fail(f"{partition}: the acknowledged record {each.value!r} at {each.offset} is lost")


def epochs_of(log: PartitionLog, log_start: int) -> tuple[tuple[int, int], ...]:
    """Epochs and where they begin, of the records from `log_start` on."""
    known = log.leader_epochs()
    if not known:
        return ()
    ends = [start for _, start in known[1:]] + [log.log_end_offset]
    return tuple(
        (epoch, max(start, log_start))
        for (epoch, start), end in zip(known, ends, strict=True)
        if end > max(start, log_start)
    )


def raw(log: PartitionLog, start: int, end: int) -> bytes:
    """All bytes of a log between two offsets."""
    return b"".join(data for _, _, data in _read(log, start, end))


def batches(log: PartitionLog, start: int, end: int) -> list[tuple[int, int, bytes]]:
    """Base offset, next offset and bytes of each batch. The batches keep their leader epoch."""
    return _read(log, start, end)


def _read(log: PartitionLog, start: int, end: int) -> list[tuple[int, int, bytes]]:
    found = []
    offset = max(start, log.log_start_offset)
    while offset < end:
        data = log.read(offset, 1 << 20, isolation=LOG_END, leader_only=False)[0]
        if not data:
            break
        at = 0
        while at + OLD_HEAD <= len(data) and offset < end:
            base, length = struct.unpack_from(">qi", data, at)
            delta = struct.unpack_from(">i", data, at + 23)[0] if data[at + MAGIC_AT] == NEW else 0
            offset = base + delta + 1
            found.append((base, offset, data[at : at + 12 + length]))
            at += 12 + length
    return found
