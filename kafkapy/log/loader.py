"""Loading one partition's log from its directory.

Leftovers of a crash, recovery, leader epochs, producer state.

Source: org.apache.kafka.storage.internals.log.LogLoader. The bytes are looked at by kafkapy/_speedups/log/loading.pyx
without the GIL; Python only lists
files and decides. Runs on the recovery threads of LogManager; the log is known to nobody else until `load_log` returns.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from kafkapy._speedups.base.event_queue import EventQueue
from kafkapy._speedups.log.loading import load, load_aborted, rebuild_producers
from kafkapy._speedups.log.partition_log import PartitionLog
from kafkapy._speedups.records.file_records import walk_batches
from kafkapy.log.backends.base import LogStorage
from kafkapy.log.epochs import LEADER_EPOCH_FILE, parse_leader_epochs
from kafkapy.types import ZERO_UUID, TopicPartition, uuid_from_string, uuid_to_string

if TYPE_CHECKING:
    from kafkapy.config.topic import LogConfig

__all__ = ["LoadReport", "finish_interrupted_work", "load_log", "read_topic_id", "write_topic_id"]

logger = logging.getLogger("kafka.log.LogLoader")

PARTITION_METADATA_FILE = "partition.metadata"
INDEX_SUFFIXES = (".index", ".timeindex", ".txnindex")
LEFTOVER_SUFFIXES = (".deleted", ".tmp", ".cleaned", ".swap")


@dataclass(slots=True)
class LoadReport:
    """The findings and actions of loading; for the log and for tests.

    Immutable once returned.
    """

    recovered_segments: int = 0
    cut_bytes: int = 0
    deleted_segments: list[int] = field(default_factory=list)
    snapshot_offset: int = -1
    """Of the producer snapshot that was used, -1 when the state was built from batches alone."""


def read_topic_id(storage: LogStorage) -> UUID:
    """The id in partition.metadata, or the zero id. ValueError when the file is malformed."""
    data = storage.read_file(PARTITION_METADATA_FILE)
    if data is None or not data.strip(b"\0"):
        # Empty, or zeros, is what a power failure leaves of a file that was not synced yet.
        return ZERO_UUID
    fields = dict(line.split(": ", 1) for line in data.decode().splitlines() if ": " in line)
    if fields.get("version") != "0" or "topic_id" not in fields:
        raise ValueError(f"{PARTITION_METADATA_FILE} is malformed")
    return uuid_from_string(fields["topic_id"])


def write_topic_id(storage: LogStorage, topic_id: UUID) -> None:
    """Writes partition.metadata; the first flush syncs it. OSError.

    A broker that loses it to a power failure before has no synced batch either, and learns the id again from the
    controller."""
    content = f"version: 0\ntopic_id: {uuid_to_string(topic_id)}\n"
    storage.write_file(PARTITION_METADATA_FILE, content.encode(), sync=False)


def list_files(storage: LogStorage) -> list[str]:
    """The names of a partition's files, after interrupted work was ended. OSError."""
    names = storage.names()
    if storage.directory and any(name.endswith(LEFTOVER_SUFFIXES) for name in names):
        finish_interrupted_work(Path(storage.directory))
        names = storage.names()
    return names


def finish_interrupted_work(directory: Path) -> None:
    """Ends work on files that a crash left half done.

    `.deleted` and `.cleaned` files go; a complete `.swap` takes the place of the segments it was made from.

    A `.cleaned` file at offset N means that a split or a cleaning was not finished, so `.swap` files at or above N go
    too: their sources are still there.
    """
    names = sorted(path.name for path in directory.iterdir())
    cleaned: list[int] = []
    for name in names:
        path = directory / name
        if name.endswith((".deleted", ".tmp")):
            path.unlink(missing_ok=True)
        elif name.endswith(".cleaned"):
            stem = name.split(".", 1)[0]
            if stem.isdigit():
                cleaned.append(int(stem))
            path.unlink(missing_ok=True)
    oldest_cleaned = min(cleaned, default=None)
    swaps = [name for name in names if name.endswith(".swap") and name.split(".", 1)[0].isdigit()]
    for name in swaps:
        if oldest_cleaned is not None and int(name.split(".", 1)[0]) >= oldest_cleaned:
            (directory / name).unlink(missing_ok=True)
    for name in swaps:
        path = directory / name
        if not path.exists() or not name.endswith(".log.swap"):
            continue
        base = int(name.split(".", 1)[0])
        with path.open("rb") as file:
            batches, _ = walk_batches(file.fileno(), 0, path.stat().st_size)
        last = batches[-1][1] if batches else base
        for other in directory.iterdir():
            stem, _, suffix = other.name.partition(".")
            if stem.isdigit() and base <= int(stem) <= last and f".{suffix}" in (".log", *INDEX_SUFFIXES):
                other.unlink()
        for suffix in INDEX_SUFFIXES:
            index = directory / f"{base:020d}{suffix}.swap"
            if index.exists():
                index.replace(directory / f"{base:020d}{suffix}")
        path.replace(directory / f"{base:020d}.log")
    for name in swaps:
        (directory / name).unlink(missing_ok=True)


def load_log(
    storage: LogStorage,
    tp: TopicPartition,
    config: LogConfig,
    *,
    events: EventQueue | None = None,
    topic_id: UUID = ZERO_UUID,
    clean: bool = True,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    high_watermark: int = 0,
    producer_id_expiration_ms: int = 86_400_000,
) -> tuple[PartitionLog, LoadReport]:
    """The log in a partition's storage, ready for use.

    Offsets come from the checkpoint files; `clean` says whether the broker was stopped cleanly.

    A new, empty directory gives an empty log that begins at `log_start_offset`. OSError when files cannot be read or
    written.
    """
    report = LoadReport()
    log = PartitionLog(
        tp.topic,
        tp.partition,
        storage,
        config,
        events=events,
        topic_id=topic_id.bytes,
        producer_id_expiration_ms=producer_id_expiration_ms,
    )
    names = list_files(storage)
    segments = storage.segments(names)
    if _remove_orphans(storage, names, {segment.base_offset for segment in segments}):
        names = storage.names()
    if not segments and log_start_offset == 0:
        log.roll()
        return log, report
    epochs: list[tuple[int, int]] = []
    data = storage.read_file(LEADER_EPOCH_FILE) if LEADER_EPOCH_FILE in names else None
    if data is not None:
        try:
            epochs = parse_leader_epochs(data)
        except ValueError as error:
            logger.warning(
                "Partition %s has a malformed leader epoch file: %s; recovery reads the epochs from the log", tp, error
            )
            clean, recovery_point, data = False, 0, None
    report.deleted_segments, first_recovered, report.recovered_segments, report.cut_bytes = load(
        log,
        [(segment.base_offset, segment.size, segment.created_ms) for segment in segments],
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        clean=clean,
        epochs=epochs,
    )
    if report.deleted_segments:
        logger.warning(
            "Recovery of %s removed the segments %s: they do not continue the log", tp, report.deleted_segments
        )
    if report.cut_bytes:
        logger.warning("Recovery of %s cut off %d bytes after the last whole batch", tp, report.cut_bytes)
    if report.deleted_segments or first_recovered >= 0:
        names = storage.names()
    _load_producers(log, storage, names, first_recovered, report)
    if log.log_end_offset == log.log_start_offset and not log.segments():
        log.roll()
    if first_recovered >= 0:
        log.rewrite_transaction_indexes(first_recovered)
        end = log.log_end_offset
        if data is not None and [each for each in epochs if each[1] < end] == log.leader_epochs():
            # The file already says so (epochs from the end on count for nothing), but may not be on disk.
            log.leave_leader_epochs()
        else:
            log.write_leader_epochs()
        log.seal_segments()
    if log.unflushed_messages >= config.flush_messages:
        # The broker may have ended between an append and its flush. What is visible now must survive a power failure.
        log.flush()
    log.set_high_watermark(high_watermark)
    return log, report


def _remove_orphans(storage: LogStorage, names: list[str], bases: set[int]) -> int:
    """Indexes whose segment a crash has half removed: a new segment may get the name, and their content with it. How
    many. Without any segment, snapshots speak of nothing as well."""
    suffixes = INDEX_SUFFIXES if bases else (*INDEX_SUFFIXES, ".snapshot")
    orphans = [
        name
        for name in names
        if name.endswith(suffixes) and name[: name.index(".")].isdigit() and int(name[: name.index(".")]) not in bases
    ]
    for name in orphans:
        logger.warning("File %s/%s belongs to no segment; the broker deletes it", storage.directory, name)
        storage.remove_file(name)
    return len(orphans)


def _load_producers(
    log: PartitionLog, storage: LogStorage, names: list[str], first_recovered: int, report: LoadReport
) -> None:
    """Aborted transactions from their files, and the producer state.

    The state comes from a snapshot; batches behind the snapshot add to both. `names` are the partition's files.

    Recovered segments were perhaps not synced, so nothing derived from them is taken from a file.
    """
    limit = log.log_end_offset if first_recovered < 0 else first_recovered
    malformed = -1
    snapshots: list[tuple[int, bytes]] = []
    stray = _remove_stray_snapshots(log, storage, names)
    for name in names:
        stem, _, suffix = name.partition(".")
        if not stem.isdigit() or name in stray:
            continue
        if suffix == "txnindex" and int(stem) < limit:
            data = storage.read_file(name)
            if data and load_aborted(log, data) < 0:
                logger.warning(
                    "The file of %s is malformed: %s; recovery reads aborted transactions from the log",
                    log,
                    name,
                )
                limit = malformed = int(stem)
        elif suffix == "snapshot":
            if int(stem) > log.log_end_offset:
                storage.remove_file(name)
            else:
                data = storage.read_file(name)
                if data is not None:
                    snapshots.append((int(stem), data))
    usable = [(offset, data) for offset, data in snapshots if offset <= limit]
    report.snapshot_offset = rebuild_producers(log, usable, time.time_ns() // 1_000_000)
    if malformed >= 0:
        log.rewrite_transaction_indexes(malformed)


def _remove_stray_snapshots(log: PartitionLog, storage: LogStorage, names: list[str]) -> set[str]:
    """Keeps the snapshots taken at rolls, and the newest one. Each clean stop leaves one at the log end of its time,
    and they would add up. The names of those removed. Source: ProducerStateManager.removeStraySnapshots."""
    stems = (name.partition(".") for name in names)
    offsets = sorted(int(stem) for stem, _, suffix in stems if suffix == "snapshot" and stem.isdigit())
    if not offsets:
        return set()
    bases = {segment[0] for segment in log.segments()}
    newest = max((offset for offset in offsets if offset <= log.log_end_offset), default=-1)
    stray = {f"{offset:020d}.snapshot" for offset in offsets if offset not in bases and offset != newest}
    for name in sorted(stray):
        storage.remove_file(name)
    return stray
