"""What a broker does to a partition's files, operation by operation, with what it has acknowledged at each moment."""

from __future__ import annotations

import errno
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from conftest import TP, config, make_batch, make_marker
from file_faults import Faults
from log_oracle import Batch, check_derived, check_time, parse_batches, read_all

from kafkapy._speedups.log.cleaner import CleaningStopped
from kafkapy._speedups.log.partition_log import PartitionLog
from kafkapy._speedups.records.reservation import set_reservation
from kafkapy._speedups.testing.group_append import append_group
from kafkapy.controller.leader_epochs import LogAtStart, next_epoch
from kafkapy.errors import KafkaStorageError
from kafkapy.log.backends.local import LocalBackend
from kafkapy.log.cleaner import Cleaner
from kafkapy.log.cleaner_manager import log_to_clean
from kafkapy.log.loader import load_log
from kafkapy.log.retention import apply_retention
from kafkapy.records.batches import RecordBatchBuilder, iter_records

NOW = time.time_ns() // 1_000_000
SMALL = config(segment_bytes=700, index_interval_bytes=100, segment_index_bytes=400, file_delete_delay_ms=0)
COMPACT = config(
    segment_bytes=700, index_interval_bytes=100, segment_index_bytes=400, file_delete_delay_ms=0, delete_retention_ms=0,
    cleanup_policy="compact",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Ledger:
    """What was acknowledged, at one moment. Batches as they stand in the log."""

    history: tuple[Batch, ...] = ()
    """All that are in the log or were below its start."""
    gone: frozenset[tuple[int, bytes]] = frozenset()
    """(base offset, content) of those that a finished truncation took out."""
    synced: int = 0
    """Below this offset a flush was acknowledged."""
    start: int = 0
    start_in_doubt: int = 0
    """Where the log begins; where it may begin."""
    end_in_doubt: int | None = None
    """A truncation to there is under way."""
    checkpoint: int = 0
    start_checkpoint: int = 0
    """What the checkpoint files say."""
    clean: bool = False
    """The marker of a clean stop is there."""
    epoch: int = -1
    """The leader epoch in the metadata store, which loses nothing."""

    @property
    def end(self) -> int:
        return self.history[-1].last + 1 if self.history else self.start


class Context:
    """One run of a scenario: the log, and a ledger after each step. `attempts` are all batches that were ever sent."""

    def __init__(self, root: Path, faults: Faults) -> None:
        self.root = root
        self.faults = faults
        self.directory = root / str(TP)
        self.ledgers = [Ledger()]
        self.attempts: set[tuple[int, bytes]] = set()
        self.log: PartitionLog
        self.config = SMALL
        self.number = 0
        self.clock = NOW
        self.stopping = False

    @property
    def now(self) -> Ledger:
        return self.ledgers[-1]

    def note(self, **changes: Any) -> None:
        """From here on this holds."""
        self.ledgers.append(replace(self.now, **changes))
        self.faults.mark(len(self.ledgers) - 1)

    def attempt(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> bool:
        """Does a thing that a disk error may stop; whether it was done."""
        try:
            function(*arguments, **named)
        except (OSError, KafkaStorageError) as error:
            if isinstance(error, OSError) and error.errno not in (errno.EIO, errno.ENOSPC):
                raise
            return False
        return True

    def release(self) -> None:
        """The end of the process, without a clean stop."""
        self.log = None  # type: ignore[assignment]

    # ---- steps ----

    def open(self, *, create: bool = True, **how: Any) -> PartitionLog:
        now = self.now
        how = {"clean": now.clean, "recovery_point": now.checkpoint, "log_start_offset": now.start_checkpoint} | how
        self.log, _ = load_log(LocalBackend().open_log(self.root, str(TP), create=create), TP, self.config, **how)
        self.lead()
        return self.log

    def lead(self) -> None:
        self.note(epoch=max(self.now.epoch, latest_epoch(self.log)) + 1)
        self.log.become_leader(1, self.now.epoch, [1])

    def append(self, data: bytes | None = None, *, marker: bool = False, **how: Any) -> None:
        """One batch, of its own value each."""
        self.number += 1
        self.clock += 10
        if data is None:
            data = make_batch(
                how.pop("count", 2), value=b"%06d" % self.number * how.pop("size", 3), timestamp=self.clock, **how
            )
        base = self.log.log_end_offset
        for batch in parse_batches(data):
            self.attempts.add((base, batch.data[21:]))
            base += batch.last - batch.base + 1
        self.note()
        try:
            self.log.append_as_leader(data, api_version=-1 if marker else 9, validated=True)
        except (KafkaStorageError, OSError):
            return
        # As the log's tail is a reader's, too, this is what it was given.
        base = self.now.end
        stamped = [replace(batch, base=batch.base + base, last=batch.last + base, leader_epoch=self.log.leader_epoch,
                           data=(batch.base + base).to_bytes(8, "big") + batch.data[8:12]
                           + self.log.leader_epoch.to_bytes(4, "big") + batch.data[16:])
                   for batch in parse_batches(data)]  # fmt: skip
        self.note(history=self.now.history + tuple(stamped))

    def append_group(self, count: int, **how: Any) -> None:
        """So many batches with one write. What that leaves to single appends follows."""
        batches = []
        for _ in range(count):
            self.number += 1
            self.clock += 10
            batches.append(make_batch(2, value=b"%06d" % self.number * 3, timestamp=self.clock, **how))
        end = self.log.log_end_offset
        self.attempts |= {(end + 2 * k, data[21:]) for data in batches for k in range(count)}
        self.note()
        answers = append_group(self.log, batches)
        epoch = self.log.leader_epoch.to_bytes(4, "big")
        written = [
            data for (decided, error, _), data in zip(answers, batches, strict=True) if decided and error == 0
        ]
        for base, data in enumerate(written):
            [batch] = parse_batches((end + 2 * base).to_bytes(8, "big") + data[8:12] + epoch + data[16:])
            self.note(history=(*self.now.history, batch))
        for (decided, _, _), data in zip(answers, batches, strict=True):
            if not decided:
                self.append(data)

    def roll(self) -> None:
        self.attempt(self.log.roll)

    def after_roll(self) -> None:
        self.attempt(self.log.seal_segments)

    def flush(self) -> None:
        end = self.now.end
        if self.attempt(self.log.flush):
            assert self.log.recovery_point >= end
            self.note(synced=end)
            self.note(checkpoint=end)

    def truncate(self, offset: int) -> None:
        offset = next((batch.base for batch in self.now.history if batch.last >= offset), self.now.end)
        self.log.become_follower(2, self.log.leader_epoch)
        checkpoint = min(self.now.checkpoint, offset)
        doubt = offset if self.now.end_in_doubt is None else min(offset, self.now.end_in_doubt)
        self.note(end_in_doubt=doubt, synced=min(self.now.synced, offset), checkpoint=checkpoint)
        if self.attempt(self.log.truncate_to, offset):
            dropped = [batch for batch in self.now.history if batch.base >= offset]
            self.note(
                end_in_doubt=None,
                history=tuple(batch for batch in self.now.history if batch.base < offset),
                gone=self.now.gone | {(batch.base, batch.content) for batch in dropped},
            )
            self.attempt(self.lead)

    def delete_records(self, offset: int) -> None:
        self.note(start_in_doubt=max(self.now.start_in_doubt, offset))
        if self.attempt(self.log.delete_records, offset):
            self.note(start=offset)
            self.note(start_checkpoint=offset)
            self.attempt(self.log.delete_segments_below, offset)

    def retain(self, now_ms: int) -> None:
        self.note(start_in_doubt=self.now.end)
        if self.attempt(apply_retention, self.log, now_ms):
            self.note(start=self.log.log_start_offset, start_in_doubt=self.log.log_start_offset)

    def stop(self) -> None:
        """A clean stop, as LogManager does it; the marker comes last."""
        if self.log.offline_errno:
            return
        self.stopping = True

        def close() -> None:
            self.log.close()
            self.log.flush()
            self.log.take_producer_snapshot()

        if self.attempt(close):
            self.note(synced=self.now.end, checkpoint=self.now.end)
            self.note(clean=True)

    # ---- looking ----

    def check_online(self) -> None:
        """After a fault: a log that is still online has everything, and a clean stop keeps it so."""
        if getattr(self, "log", None) is None or self.log.offline_errno or self.stopping:
            return
        found = read_all(self.log)
        self.check_records(self.log, found, self.now, killed=True)
        for batch in found:
            check_time(self.log, [one for one in found if one.last >= self.log.log_start_offset], batch.max_timestamp)
        self.check_derived_online(found)
        self.stop()
        assert self.now.clean

    def check_derived_online(self, found: list[Batch]) -> None:
        check_derived(self.log, found, [one for one in self.now.history if one.base < found[0].base] if found else ())

    def check(self, ledger: Ledger, *, killed: bool) -> None:
        """The log is opened again, holds what it has to, and can go on."""
        clean = ledger.clean
        log, _ = load_log(
            LocalBackend().open_log(self.root, str(TP), create=True), TP, self.config, clean=clean,
            recovery_point=ledger.checkpoint, log_start_offset=ledger.start_checkpoint,
        )  # fmt: skip
        log.become_leader(1, max(0, next_epoch(ledger.epoch, LogAtStart(clean, latest_epoch(log)))), [1])
        found = read_all(log)
        self.check_records(log, found, ledger, killed=killed)
        first = found[0].base if found else log.log_start_offset
        before = [batch for batch in ledger.history if batch.base < first]
        check_derived(log, found, before, whole=killed)
        for batch in found[:: max(1, len(found) // 3)]:
            check_time(log, [one for one in found if one.last >= log.log_start_offset], batch.max_timestamp)
        self.check_files(log)
        self.check_goes_on(log, found, before, whole=killed)
        self.check_consumers_notice(log, found, ledger)

    def check_consumers_notice(self, log: PartitionLog, found: list[Batch], ledger: Ledger) -> None:
        """Whoever has read a batch that was lost learns it from the end of its leader epoch, also now that the log has
        gone on beyond it (KIP-320)."""
        kept = {(batch.base, batch.content) for batch in found}
        for batch in ledger.history:
            if batch.base >= log.log_start_offset and (batch.base, batch.content) not in kept:
                epoch, end = log.offset_for_leader_epoch(batch.leader_epoch)
                # What a fetch that names the last epoch is answered with a diverging epoch for.
                noticed = epoch < batch.leader_epoch or end <= batch.last
                assert noticed, f"unnoticed: [{batch.base}, {batch.last}] of epoch {batch.leader_epoch}"

    def check_records(self, log: PartitionLog, found: list[Batch], ledger: Ledger, *, killed: bool) -> None:
        assert log.log_start_offset <= ledger.start_in_doubt, "records are missing at the start"
        for batch in found:
            assert (batch.base, batch.data[21:]) in self.attempts, f"invented: [{batch.base}, {batch.last}]"
        end = log.log_end_offset
        assert end == (found[-1].last + 1 if found else end)
        by_base = {batch.base: batch.content for batch in found}
        limit = ledger.synced
        if killed:
            limit = ledger.end if ledger.end_in_doubt is None else ledger.end_in_doubt
        start = max(ledger.start, log.log_start_offset, ledger.start_in_doubt)
        for batch in ledger.history:
            if batch.last >= start and batch.last < limit:
                assert by_base.get(batch.base) == batch.content, f"missing: {batch.base} of {sorted(by_base)}"
        assert end >= min(limit, ledger.end) or not ledger.history
        if killed:
            assert not {(batch.base, batch.content) for batch in found} & ledger.gone, "truncated and back again"
        if self.config is SMALL:
            for low, high in pairwise(found):
                assert high.base == low.last + 1, f"a hole between {low.last} and {high.base}"
            if found:
                assert found[0].base <= log.log_start_offset

    def check_files(self, log: PartitionLog) -> None:
        """Nothing lies about that belongs to no segment."""
        bases = {f"{segment[0]:020d}" for segment in log.segments()}
        for path in self.directory.iterdir():
            stem, _, suffix = path.name.partition(".")
            if suffix in ("log", "index", "timeindex", "txnindex"):
                assert stem in bases, path.name
            else:
                assert suffix == "snapshot" or not suffix or "next-segment" in suffix or suffix == "metadata", path.name

    def check_goes_on(self, log: PartitionLog, found: list[Batch], before: list[Batch], *, whole: bool) -> None:
        """Appends, an aborted transaction, a roll and a clean stop: no file left behind gets in the way."""
        for number in range(3):
            log.append_as_leader(make_batch(2, timestamp=self.clock + 1000 + number, value=b"after"), api_version=9)
        log.append_as_leader(
            make_batch(1, producer_id=900, epoch=0, sequence=0, attributes=0x10, timestamp=self.clock + 2000),
            api_version=9,
        )
        log.append_as_leader(make_marker(900, 0, commit=False, timestamp=self.clock + 2000))
        log.roll()
        log.append_as_leader(make_batch(2, timestamp=self.clock + 3000, value=b"after" * 20), api_version=9)
        log.seal_segments()
        expected = read_all(log)
        assert [one.data for one in expected[: len(found)]] == [one.data for one in found]
        log.close()
        log.flush()
        log.take_producer_snapshot()
        aborted = log.aborted_transactions()
        log, report = load_log(LocalBackend().open_log(self.root, str(TP), create=False), TP, self.config,
                               recovery_point=log.log_end_offset, log_start_offset=log.log_start_offset)  # fmt: skip
        log.become_leader(1, log.leader_epochs()[-1][0], [1])
        assert report.recovered_segments == 0
        assert read_all(log) == expected
        assert log.aborted_transactions() == aborted
        if whole:
            check_derived(log, expected, before)


def latest_epoch(log: PartitionLog) -> int:
    """The newest leader epoch that the log knows, -1 without any."""
    epochs = log.leader_epochs()
    return epochs[-1][0] if epochs else -1


class CompactedContext(Context):
    """Records of a compacted log may go, but never the newest one of a key."""

    def check_derived_online(self, found: list[Batch]) -> None:
        """Cannot be told from the batches that are left."""

    def check_records(self, log: PartitionLog, found: list[Batch], ledger: Ledger, *, killed: bool) -> None:
        end = log.log_end_offset
        assert end >= (ledger.end if killed else ledger.synced)
        # Of unsynced segments a power failure may take whole ones: compaction leaves offsets out, so nobody can tell.
        end = ledger.end if killed else ledger.synced
        sent = [record for batch in ledger.history for record in records_of(batch)]
        seen = [record for batch in found for record in records_of(batch)]
        extra = set(seen) - set(sent)
        assert all(offset >= ledger.end for offset, _, _ in extra), f"invented: {extra}"
        assert [record[0] for record in seen] == sorted({record[0] for record in seen}), "duplicated"
        newest, kept = (
            {key: (offset, value) for offset, key, value in sent if offset < end},
            {key: (o, v) for o, key, v in seen},
        )
        for key, (offset, value) in newest.items():
            if value is not None:
                assert kept.get(key, (-1, b""))[0] >= offset, (
                    f"the newest value of {key!r} is lost: {offset}, found {kept.get(key)}"
                )
            elif key in kept:
                assert kept[key][0] >= offset, f"the deleted {key!r} is back"

    def check_goes_on(self, log: PartitionLog, found: list[Batch], before: list[Batch], *, whole: bool) -> None:
        log.append_as_leader(keyed([(b"after", b"1")], self.clock), api_version=9)
        log.roll()
        self.clean(log)
        assert any(record[1] == b"after" for batch in read_all(log) for record in records_of(batch))

    def check(self, ledger: Ledger, *, killed: bool) -> None:
        clean = ledger.clean
        log, _ = load_log(LocalBackend().open_log(self.root, str(TP), create=False), TP, self.config, clean=clean,
                          recovery_point=ledger.checkpoint)  # fmt: skip
        log.become_leader(1, (log.leader_epochs() or [(0, 0)])[-1][0] + 1, [1])
        found = read_all(log)
        self.check_records(log, found, ledger, killed=killed)
        self.check_files(log)
        self.check_goes_on(log, found, [], whole=killed)

    def clean(self, log: PartitionLog) -> None:
        """One run of the cleaner."""
        try:
            Cleaner(1 << 12).clean(log_to_clean(TP, log, None, self.clock), self.clock)
        except CleaningStopped:
            assert log.offline_errno


def keyed(records: list[tuple[bytes, bytes | None]], timestamp: int) -> bytes:
    builder = RecordBatchBuilder()
    for key, value in records:
        builder.append(timestamp, key, value)
    return builder.build()


def records_of(batch: Batch) -> list[tuple[int, bytes, bytes | None]]:
    if batch.attributes & 0x20:
        return []
    return [(record.offset, record.key, record.value) for record in iter_records(batch.data)]


# ---- the scenarios: what was there before (not spoiled), and what is done ----


def nothing(c: Context) -> None:
    pass


def some_segments(c: Context) -> None:
    """Four segments, of which the first two are synced."""
    c.open()
    for number in range(14):
        c.append(size=2 + number % 5)
        if number == 6:
            c.after_roll()
            c.flush()


def stopped_cleanly(c: Context) -> None:
    some_segments(c)
    c.append(producer_id=1, epoch=0, sequence=0, attributes=0x10)
    c.append(producer_id=2, epoch=0, sequence=0)
    c.stop()
    assert c.now.clean


def append_roll_flush(c: Context) -> None:
    if not c.attempt(c.open):
        return
    for number in range(13):
        c.append(size=1 + number % 7)
        if number == 3:
            c.flush()
        if number in (5, 9):
            c.roll()
            c.after_roll()
        if number == 6:
            c.flush()
    c.roll()
    c.flush()
    c.after_roll()
    c.append()
    c.flush()


def group_append(c: Context) -> None:
    if not c.attempt(c.open):
        return
    for number in range(5):
        c.append_group(1 + number % 4)
        c.append()
        if number == 1:
            c.flush()
        if number == 3:
            c.roll()
            c.after_roll()
    c.flush()
    c.append_group(3)
    c.truncate(c.now.end - 3)
    c.append_group(2)
    c.stop()


class AheadContext(Context):
    """Segments reserve disk space from 100 bytes on."""

    def open(self, *, create: bool = True, **how: Any) -> PartitionLog:
        set_reservation(300, start=100, least_free=0, anywhere=True)
        return super().open(create=create, **how)


def space_ahead(c: Context) -> None:
    """Space is reserved, and given back when idle, at a roll, a flush, a truncation, and a stop."""
    if not c.attempt(c.open):
        return
    for number in range(6):
        c.append(size=1 + number % 7)
    for _ in range(2):
        c.attempt(c.log.release_idle_space)
    c.append(size=20)
    c.roll()
    c.after_roll()
    for number in range(8):
        c.append(size=2 + number)
    c.truncate(c.now.end - 5)
    for _ in range(3):
        c.append(size=9)
        c.attempt(c.log.release_idle_space)
    c.roll()
    c.append(size=30)
    c.flush()
    c.append(size=3)
    c.stop()


TRANSACTION_STEPS = "1 2 3 1a 2 r 2c 1 f 3 1a r s 2 2a f 1 r 1a 2 s"
"""A producer's number: it writes; with c or a: its transaction is committed or aborted. Roll, seal, flush."""


def transactions(c: Context) -> None:
    sequences = {1: 0, 2: 0, 3: 0}
    if not c.attempt(c.open):
        return
    for step in TRANSACTION_STEPS.split():
        if step == "r":
            c.roll()
        elif step == "s":
            c.after_roll()
        elif step == "f":
            c.flush()
        elif len(step) == 2:
            c.append(make_marker(int(step[0]), 0, commit=step[1] == "c", timestamp=NOW), marker=True)
        else:
            producer = int(step)
            c.append(
                producer_id=producer, epoch=0, sequence=sequences[producer], attributes=0 if producer == 3 else 0x10
            )
            sequences[producer] += 2


def truncate(c: Context) -> None:
    if not c.attempt(c.open):
        return
    c.append(producer_id=1, epoch=0, sequence=0, attributes=0x10)
    c.append(make_marker(1, 0, commit=False, timestamp=NOW), marker=True)
    c.truncate(c.now.end - 7)
    for _ in range(4):
        c.append(size=6)
    c.append(producer_id=1, epoch=1, sequence=0, attributes=0x10)
    c.append(make_marker(1, 1, commit=False, timestamp=NOW), marker=True)
    c.roll()
    c.append()
    c.truncate(c.now.end - 4)
    c.append()
    c.flush()


def delete(c: Context) -> None:
    if not c.attempt(c.open):
        return
    c.delete_records(11)
    c.append(producer_id=1, epoch=0, sequence=0, attributes=0x10)
    c.append(make_marker(1, 0, commit=False, timestamp=NOW), marker=True)
    c.roll()
    c.delete_records(21)
    c.append()
    c.flush()
    c.retain(c.clock + 7 * 86_400_000 - 1000)
    c.append()
    c.retain(c.clock + 8 * 86_400_000)
    c.append()


def restart(c: Context) -> None:
    """From a clean stop, work, and a clean stop."""
    if c.attempt(c.open):
        c.note(clean=False)
        c.append(producer_id=1, epoch=0, sequence=2, attributes=0x10)
        c.append(make_marker(1, 0, commit=True, timestamp=NOW), marker=True)
        c.stop()


def spoiled(c: Context) -> None:
    """As a power failure leaves it: a hole in the third segment, and a torn end."""
    some_segments(c)
    c.append(producer_id=1, epoch=0, sequence=0, attributes=0x10)
    c.append(make_marker(1, 0, commit=False, timestamp=NOW), marker=True)
    c.append()
    paths = sorted(c.directory.glob("*.log"))
    data = bytearray(paths[-2].read_bytes())
    lost = parse_batches(bytes(data))[1]
    data[-20:] = bytes(20)
    paths[-2].write_bytes(data)
    kept = parse_batches(bytes(data))[:-1]
    assert len(paths) >= 4 and lost
    with paths[-1].open("ab") as file:
        file.write(make_batch(3)[:-7])
    end = kept[-1].last + 1
    assert c.now.synced <= end
    c.note(history=tuple(batch for batch in c.now.history if batch.last < end),
           gone=frozenset((batch.base, batch.content) for batch in c.now.history if batch.last >= end))  # fmt: skip


def recover(c: Context) -> None:
    """The start after a power failure is itself spoiled."""
    if c.attempt(c.open):
        c.append()
        c.flush()


def keys(c: Context) -> None:
    c.open()
    for number in range(24):
        records = [
            (b"k%d" % ((number * 3 + n) % 7), None if number % 5 == 4 and n == 0 else b"%04d.%d" % (number, n))
            for n in range(3)
        ]
        c.append(keyed(records, c.clock))
    c.flush()
    c.append(keyed([(b"once", b"x")], c.clock))
    c.roll()


def compact(c: Context) -> None:
    assert isinstance(c, CompactedContext)
    if not c.attempt(c.open):
        return
    # Not synced yet, when the cleaner takes the older values out.
    for number in range(4):
        c.append(keyed([(b"k%d" % n, b"again%d" % number) for n in range(7)], c.clock))
    c.roll()
    c.attempt(c.clean, c.log)
    c.append(keyed([(b"k1", b"new"), (b"k2", None)], c.clock))
    c.roll()
    c.attempt(c.clean, c.log)
    c.append(keyed([(b"k3", b"new")], c.clock))
    c.flush()


def swapping(c: Context) -> None:
    """A kill in the midst of a swap: what the cleaner wrote stands beside its sources."""
    keys(c)
    sources = c.root / "sources"
    shutil.copytree(c.directory, sources)
    c.clean(c.log)
    base = f"{0:020d}"
    cleaned = {suffix: (c.directory / (base + suffix)).read_bytes() for suffix in (".log", ".index", ".timeindex")}
    shutil.rmtree(c.directory)
    sources.rename(c.directory)
    for suffix, data in cleaned.items():
        (c.directory / f"{base}{suffix}.swap").write_bytes(data)
    (c.directory / f"{7:020d}.log.deleted").write_bytes(b"x")


@dataclass(frozen=True)
class Scenario:
    before: Callable[[Context], None]
    run: Callable[[Context], None]
    context: type[Context] = Context
    compacted: bool = False
    disks: tuple[str, ...] = ()


SCENARIOS = {
    "append, roll, flush": Scenario(nothing, append_roll_flush),
    "group append": Scenario(nothing, group_append),
    "space ahead": Scenario(nothing, space_ahead, AheadContext),
    "transactions": Scenario(nothing, transactions),
    "truncation": Scenario(some_segments, truncate),
    "deletion": Scenario(some_segments, delete),
    "restart": Scenario(stopped_cleanly, restart),
    "recovery": Scenario(spoiled, recover),
    "compaction": Scenario(keys, compact, CompactedContext, True),
    "recovery of a swap": Scenario(swapping, recover, CompactedContext, True),
}
