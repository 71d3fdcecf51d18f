"""The content of log directories at the broker's start, and interrupted moves.

A crash can cut a move between directories short; this finishes it.

orders-0                                    the partition's log
orders-0.<32 hex digits>-future             its future log: a copy on its way into this directory
orders-0.<32 hex digits>-stray              not known to the metadata store, and set aside (stray_logs.py)
orders-0.<32 hex digits>-delete             deleted; for good when every log directory could be read
__cluster_metadata-0                        of Apache Kafka with KRaft; left alone

A move ends with two renames: the old log to `orders-0.<id>-delete`, then the future log of the same id to `orders-0`.
The first one decides: from there the future log is the log, whatever happens to the broker. Apache Kafka renames in the
other order and finds two logs after a crash in between; it has to be told which one to keep.
"""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kafkapy.log.backends.base import StorageBackend
from kafkapy.log.log_dir import LogDir, LogDirError
from kafkapy.types import TopicPartition

__all__ = [
    "DirScan",
    "FoundLog",
    "Place",
    "check_unique",
    "deleted_name",
    "drop_unused",
    "finish_swaps",
    "future_name",
    "parse_directory_name",
    "scan_directory",
    "swapped_name",
]

logger = logging.getLogger("kafka.log.LogManager")

DELETE_SUFFIX = "-delete"
FUTURE_SUFFIX = "-future"
METADATA_TOPIC = "__cluster_metadata"
"""The log of Apache Kafka's KRaft controllers, which is no partition of a topic."""
MAX_PARTITION = (1 << 31) - 1
MAX_NAME = 255
"""Bytes a file name may have."""


class Place(NamedTuple):
    """The place of a log: log directory, directory name and backend.

    The name is that of the log's directory within the log directory.
    """

    log_dir: LogDir
    name: str
    backend: StorageBackend


class FoundLog(NamedTuple):
    """A directory that a partition's log was found in."""

    backend: StorageBackend
    name: str
    tp: TopicPartition


@dataclass(slots=True)
class DirScan:
    """The content of one directory.

    Made by `scan_directory`, changed by `finish_swaps`. Offsets: recovery points, log starts, high watermarks.
    """

    log_dir: LogDir
    clean: bool
    offsets: tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, int], Mapping[TopicPartition, int]]
    logs: list[FoundLog] = field(default_factory=list)
    futures: list[FoundLog] = field(default_factory=list)
    deleted: list[tuple[StorageBackend, str]] = field(default_factory=list)


def parse_directory_name(name: str) -> TopicPartition | None:
    """The partition of a directory name such as "orders-0"; None for others."""
    topic, dash, number = name.rpartition("-")
    if not dash or not topic or not number.isascii() or not number.isdigit() or int(number) > MAX_PARTITION:
        return None
    return TopicPartition(topic, int(number))


def future_name(tp: TopicPartition) -> str:
    """A new name for a future log of the partition (UnifiedLog.logFutureDirName).

    It may be too long for a file system.
    """
    return f"{tp}.{uuid.uuid4().hex}{FUTURE_SUFFIX}"


def swapped_name(future: str) -> str:
    """The old log's name once the future log of that name replaced it."""
    return future.removesuffix(FUTURE_SUFFIX) + DELETE_SUFFIX


def deleted_name(tp: TopicPartition) -> str:
    """A new name for a deleted log (UnifiedLog.logDeleteDirName).

    It is cut so that a long topic name still fits.
    """
    suffix = f".{uuid.uuid4().hex}{DELETE_SUFFIX}"
    return f"{str(tp)[: MAX_NAME - len(suffix)]}{suffix}"


def future_of(name: str) -> TopicPartition | None:
    """The partition of a future log's directory, None for any other name."""
    stem, _, _ = name.removesuffix(FUTURE_SUFFIX).rpartition(".")
    return parse_directory_name(stem) if name.endswith(FUTURE_SUFFIX) else None


def scan_directory(log_dir: LogDir, backends: Iterable[StorageBackend]) -> DirScan:
    """Lists a directory and reads its checkpoints. OSError.

    The directory's mark of a clean stop is taken away.
    """
    scan = DirScan(log_dir, log_dir.take_clean_shutdown_marker(), log_dir.read_offsets())
    for backend in backends:
        for name in backend.list_logs(log_dir.path):
            if name.endswith(DELETE_SUFFIX):
                scan.deleted.append((backend, name))
                continue
            if name.endswith("-stray"):
                logger.info("Stray log %s in %s was set aside by an earlier start", name, log_dir.path)
                continue
            is_future = name.endswith(FUTURE_SUFFIX)
            tp = future_of(name) if is_future else parse_directory_name(name)
            if tp is None:
                logger.warning("Directory %s in %s is not a partition; the broker ignores it", name, log_dir.path)
            elif tp.topic == METADATA_TOPIC:
                logger.info(
                    "Directory %s in %s belongs to a KRaft controller; the broker ignores it", name, log_dir.path
                )
            elif is_future:
                scan.futures.append(FoundLog(backend, name, tp))
            else:
                scan.logs.append(FoundLog(backend, name, tp))
    return scan


def finish_swaps(scans: Sequence[DirScan]) -> list[tuple[LogDir, OSError]]:
    """Turns future logs whose old log a move renamed away into logs.

    A crash came between the two renames. Returns the directories in which that failed.
    """
    current = {found.tp for scan in scans for found in scan.logs}
    swapped = {name for scan in scans for _, name in scan.deleted}
    failures: list[tuple[LogDir, OSError]] = []
    for scan in scans:
        for found in list(scan.futures):
            if found.tp in current or swapped_name(found.name) not in swapped:
                continue
            scan.futures.remove(found)
            try:
                found.backend.rename_log(scan.log_dir.path, found.name, str(found.tp))
            except OSError as error:
                failures.append((scan.log_dir, error))
                continue
            logger.info("The move of %s to %s, interrupted by the last stop, is complete", found.tp, scan.log_dir.path)
            scan.logs.append(FoundLog(found.backend, str(found.tp), found.tp))
            current.add(found.tp)
    return failures


def drop_unused(scans: Sequence[DirScan]) -> list[tuple[LogDir, OSError]]:
    """Counts logs without any record as deleted, if another directory has the partition.

    The disk failed while such a log was made, and so it was made on another one. Returns the directories in which that
    failed.
    """
    failures: list[tuple[LogDir, OSError]] = []
    found = Counter(each.tp for scan in scans for each in scan.logs)
    for scan in scans:
        for each in list(scan.logs):
            renamed = deleted_name(each.tp)
            try:
                if found[each.tp] < 2 or not _is_unused(scan.log_dir, each):
                    continue
                each.backend.rename_log(scan.log_dir.path, each.name, renamed)
            except OSError as error:
                failures.append((scan.log_dir, error))
                continue
            logger.warning("Log %s in %s is an empty duplicate; the broker deletes it", each.name, scan.log_dir.path)
            scan.logs.remove(each)
            scan.deleted.append((each.backend, renamed))
            found[each.tp] -= 1
    return failures


def _is_unused(log_dir: LogDir, found: FoundLog) -> bool:
    segments = found.backend.open_log(log_dir.path, found.name, create=False).segments()
    return all(segment.size == 0 and segment.base_offset == 0 for segment in segments)


def check_unique(scans: Sequence[DirScan]) -> None:
    """LogDirError when a partition has two logs, or two future logs.

    Only the operator can say which is the right one.

    Apache Kafka leaves that behind when it is killed between the two renames of a move. Logs that never held a record
    have been sorted out before (drop_unused).
    """
    for kind, lists in (("log", [scan.logs for scan in scans]), ("future log", [scan.futures for scan in scans])):
        seen: dict[TopicPartition, LogDir] = {}
        for scan, found in zip(scans, lists, strict=True):
            for each in found:
                other = seen.setdefault(each.tp, scan.log_dir)
                if other is not scan.log_dir:
                    raise LogDirError(
                        f"Partition {each.tp} has a {kind} in {other.path} and another one in {scan.log_dir.path}: "
                        "remove one of them, that in the directory which has failed lately."
                    )
