"""The scenario of a LogManager for fault_scenarios.py: making and deleting partitions, checkpoints, restarts."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import UUID

from conftest import make_batch
from fault_scenarios import Context, Scenario
from log_oracle import read_all

from kafkapy._speedups.log.partition_log import PartitionLog
from kafkapy.config.broker import BrokerConfig
from kafkapy.errors import KafkaStorageError
from kafkapy.log.backends.local import LocalBackend
from kafkapy.log.log_dir import LogDirError
from kafkapy.log.log_manager import LogManager
from kafkapy.types import TopicPartition

PARTITIONS = tuple(TopicPartition("orders", number) for number in range(2))
CONFIGS: dict[tuple[Path, ...], BrokerConfig] = {}


def config_of(*directories: Path) -> BrokerConfig:
    if directories not in CONFIGS:
        with tempfile.NamedTemporaryFile("w", suffix=".properties") as file:
            file.write(f"broker.id=1\nlog.dirs={','.join(map(str, directories))}\nlog.segment.bytes=1000\n")
            file.write("log.index.interval.bytes=100\nlog.index.size.max.bytes=400\n")
            file.write("num.recovery.threads.per.data.dir=1\nlog.segment.delete.delay.ms=0\n")
            file.flush()
            CONFIGS[directories] = BrokerConfig.load(file.name)
    return CONFIGS[directories]


@dataclass(frozen=True, slots=True)
class Ledger:
    """What was acknowledged, at one moment: the values of each partition."""

    values: dict[TopicPartition, tuple[bytes, ...]] = field(default_factory=dict)
    synced: dict[TopicPartition, int] = field(default_factory=dict)
    """How many of them."""
    gone: frozenset[bytes] = frozenset()
    """Of a partition whose deletion was acknowledged."""
    deleting: frozenset[TopicPartition] = frozenset()
    started: dict[TopicPartition, int] = field(default_factory=dict)
    """How many of the first ones were given up by DeleteRecords."""
    topics: dict[TopicPartition, int] = field(default_factory=dict)
    """How many of that name there were before."""
    clean = False


class ManagerContext(Context):
    """One run with a LogManager in place of a log. Each batch holds one value, at the offset of its number."""

    directories: tuple[str, ...] = ("logs",)

    def __init__(self, root: Path, faults: Any) -> None:
        super().__init__(root, faults)
        self.ledgers = [Ledger()]  # type: ignore[list-item]
        self.manager: LogManager
        self.running = False

    def new_manager(self) -> LogManager:
        directories = [self.root / name for name in self.directories]
        return LogManager(config_of(*directories), backends={"local": LocalBackend()})

    def start(self) -> bool:
        """Whether there is a directory to work with."""
        self.manager = self.new_manager()
        try:
            self.manager.acquire()
            self.manager.load()
        except (LogDirError, OSError):
            return False
        self.running = bool(self.manager.live_dirs)
        return self.running

    def stop(self) -> None:
        """A clean stop."""
        self.running = False
        self.manager.shutdown()
        if not self.manager.offline_dirs:
            self.note(synced={tp: len(values) for tp, values in self.now.values.items()})  # type: ignore[attr-defined]

    def release(self) -> None:
        """As the end of the process does."""
        for log_dir in self.manager.dirs:
            log_dir.release()

    def topic_id(self, tp: TopicPartition) -> UUID:
        earlier = self.now.topics.get(tp, 0)  # type: ignore[attr-defined]
        return UUID(int=1 + earlier)

    def write(self, tp: TopicPartition, count: int = 4) -> None:
        try:
            log = self.manager.get_or_create(tp, self.topic_id(tp))
            log.become_leader(1, log.leader_epochs()[-1][0] + 1 if log.leader_epochs() else 0, [1])
        except (KafkaStorageError, OSError):
            return
        for _ in range(count):
            self.number += 1
            value = b"<%04d>" % self.number
            self.attempts.add((0, value))
            self.note()
            try:
                log.append_as_leader(make_batch(value=value, timestamp=self.clock), api_version=9)
            except (KafkaStorageError, OSError) as error:
                self.tell(log, error)
                return
            self.note(values=self.now.values | {tp: (*self.now.values.get(tp, ()), value)})

    def tell(self, log: Any, error: Exception) -> None:
        """As the data plane's event does."""
        path = self.manager.dir_of(TopicPartition(log.topic, log.partition))
        if log.offline_errno and path is not None:
            self.manager.fail_dir(path, OSError(log.offline_errno, str(error)))

    def flush(self) -> None:
        for tp, log in self.manager.logs().items():
            try:
                log.flush()
            except OSError as error:
                self.tell(log, error)
                continue
            self.note(synced=self.now.synced | {tp: len(self.now.values.get(tp, ()))})  # type: ignore[attr-defined]
        self.manager.checkpoint_recovery_points()

    def delete(self, tp: TopicPartition) -> None:
        self.note(deleting=frozenset({tp}), synced={**self.now.synced, tp: 0})  # type: ignore[attr-defined]
        place = self.manager.place(tp)
        if place is None or place.log_dir.failure is not None:
            return
        self.manager.delete(tp, delay_ms=0)
        if place.log_dir.failure is None:
            now: Any = self.now
            gone = now.gone | set(now.values.get(tp, ()))
            topics = {**now.topics, tp: now.topics.get(tp, 0) + 1}
            self.note(deleting=frozenset(), gone=gone, values={**now.values, tp: ()}, topics=topics)

    def note(self, **changes: Any) -> None:
        self.ledgers.append(replace(self.now, **changes))
        self.faults.mark(len(self.ledgers) - 1)

    # ---- looking ----

    @staticmethod
    def values_of(log: PartitionLog | None) -> list[bytes]:
        """What is in the log."""
        return [batch.data[61 + 7 : 61 + 13] for batch in read_all(log)] if log is not None else []

    def check_online(self) -> None:
        for tp, log in self.manager.logs().items() if self.running else ():
            if not log.offline_errno and tp not in self.now.deleting:  # type: ignore[attr-defined]
                expected = self.now.values.get(tp, ())[log.log_start_offset :]  # type: ignore[attr-defined]
                assert tuple(self.values_of(log)) == expected

    def check_opened(self, manager: LogManager, ledger: Any, *, killed: bool) -> None:
        """What is to be seen before the records are looked at."""

    def check(self, ledger: Any, *, killed: bool) -> None:
        manager = self.new_manager()
        manager.acquire()
        manager.load()
        assert not manager.offline_dirs, [each.failure for each in manager.offline_dirs]
        self.check_opened(manager, ledger, killed=killed)
        for tp in PARTITIONS:
            log = manager.get(tp)
            found = self.values_of(log)
            expected, sure = ledger.values.get(tp, ()), ledger.synced.get(tp, 0)
            assert all((0, value) in self.attempts for value in found), f"invented in {tp}: {found}"
            assert len(set(found)) == len(found), f"twice in {tp}: {found}"
            if tp in ledger.deleting:
                continue
            wanted = expected if killed else expected[:sure]
            first = log.log_start_offset if log is not None else 0
            assert first <= ledger.started.get(tp, 0)
            assert tuple(found)[: len(wanted) - first] == wanted[first:], f"missing in {tp}: {wanted} of {found}"
            if killed:
                assert not set(found) & ledger.gone, f"deleted and back again: {found}"
        left = [path.name for name in self.directories for path in (self.root / name).glob("*-delete")]
        assert not left, left
        if killed:
            manager = self.check_goes_on(manager)
        manager.shutdown()

    def check_goes_on(self, manager: LogManager) -> LogManager:
        """An append, and a restart."""
        again = manager.get_or_create(PARTITIONS[0])
        again.become_leader(1, 100, [1])
        end = again.log_end_offset
        again.append_as_leader(make_batch(value=b"<9999>", timestamp=self.clock), api_version=9)
        manager.shutdown()
        manager = self.new_manager()
        manager.acquire()
        manager.load()
        log = manager.get(PARTITIONS[0])
        assert log is not None
        assert log.log_end_offset == end + 1
        return manager


def log_directory(c: Context) -> None:
    (c.root / "logs").mkdir()


def partitions(c: Context) -> None:
    assert isinstance(c, ManagerContext)
    if not c.start():
        return
    for tp in PARTITIONS:
        c.write(tp)
    c.flush()
    c.write(PARTITIONS[0], 2)
    log = c.manager.get(PARTITIONS[0])
    if log is not None and not log.offline_errno:
        c.note(started={PARTITIONS[0]: 3})
        if log.high_watermark >= 3:
            c.attempt(log.delete_records, 3)
    c.manager.checkpoint_log_starts()
    c.manager.checkpoint_high_watermarks()
    c.delete(PARTITIONS[1])
    c.write(PARTITIONS[1], 2)
    c.stop()
    if c.start():
        c.write(PARTITIONS[1], 2)
        c.flush()


MANAGER_SCENARIOS = {"log manager": Scenario(log_directory, partitions, ManagerContext)}
