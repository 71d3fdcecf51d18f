"""readFrom=segments: tasks read the brokers' segment files themselves, on a shared file system or the broker's host.

    <log directory>/<topic>-<partition>/
        partition.metadata      version: 0, topic_id: <id>
        <base offset>.log       batches; .index where they are; .txnindex which transactions were aborted

The broker still says what is to be read: the start and the end (high watermark, or last stable offset for
read_committed), and the topic's id. Files are only read, without locks, while the broker appends to them, cleans,
deletes: a directory is listed again for each segment, and believed when two listings in a row say the same and no
cleaned segment is half way in (.swap). What files do not have goes back to the broker, which decides whether it is
lost: offsets before the first segment (retention, tiered storage), another topic's id, message formats v0 and v1, bytes
that are not there yet, and the gap between two segments where the first does not reach the second: compaction makes
such gaps, and so does a network file system that shows a file's end late.

Nobody checks who reads, or how much: ACLs and quotas do not count here.
"""

from __future__ import annotations

import errno
import logging
import os
import time
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

import pyarrow as pa

from kafkapy import connector
from kafkapy.connector import FetchedPartition, SegmentBatches
from kafkapy.errors import CorruptMessageError, IllegalArgumentError, KafkaError, UnsupportedCodecError
from kafkapy.types import TopicPartition, uuid_from_string
from kafkapy_spark.planning import OffsetRange, Task
from kafkapy_spark.spark_batches import SparkBatches

logger = logging.getLogger("kafkapy.spark")

READ_BYTES: Final = 1 << 20
"""Of a segment at a time: what stays in a processor's cache until it is decoded."""
INDEX_ENTRY: Final = 8
"""Big-endian: offset less the segment's base int32, position int32."""
LISTINGS: Final = 20
"""Tries to see a directory that does not change, so far apart:"""
LISTING_WAIT_S: Final = 0.05


@dataclass(frozen=True)
class SegmentSource:
    """Where a read looks for segment files. `required` (readFrom=segments): a partition without files, or with files
    that cannot be read, is an error; else it is read from its broker."""

    paths: tuple[str, ...]
    required: bool
    topic_ids: Mapping[str, UUID] = field(default_factory=dict)
    read_committed: bool = False
    check_crcs: bool = True


class UseBrokerError(KafkaError):
    """The files do not have what is to be read. `broken`: not because it has gone, or is not there yet."""

    def __init__(self, message: str, broken: bool = False) -> None:
        super().__init__(message)
        self.broken = broken


class TransactionIndexLateError(KafkaError):
    """What was read has records of a transaction that was aborted: the task has to be run again."""


class _Segment(NamedTuple):
    base: int
    next_base: int | None
    """Of the segment behind it."""


def segment_batches_of(
    source: SegmentSource, task: Task, into: SparkBatches, rows: int, size: int
) -> Iterator[pa.RecordBatch | Task]:
    """The records of the task's ranges, in batches of at most so many rows and about so many bytes; and in between
    the ranges that have to be read from brokers at this point. IllegalArgumentError for files that cannot be read
    where they are required; TransactionIndexLateError."""
    found: list[tuple[OffsetRange, _PartitionFiles]] = []
    elsewhere: list[OffsetRange] = []
    for each in task:
        try:
            found.append((each, _PartitionFiles(source, each.partition)))
        except (UseBrokerError, OSError) as error:
            _fall_back(source, each, error)
            elsewhere.append(each)
    if elsewhere:
        yield tuple(elsewhere)
    for each, files in found:
        yield from _read(source, files, each, into, rows, size)


def _fall_back(source: SegmentSource, rest: OffsetRange, error: Exception) -> None:
    """Raises the error where files are required and the broker would not have deleted them."""
    if isinstance(error, UseBrokerError):
        broken = error.broken
    else:
        broken = not isinstance(error, OSError) or error.errno not in (errno.ENOENT, errno.ESTALE)
    if source.required and broken:
        raise IllegalArgumentError(
            f"The segment files of {rest.partition} cannot be read (readFrom=segments): {error}. Option readFrom=auto "
            "reads from the broker then"
        ) from error
    logger.log(
        logging.WARNING if source.required else logging.INFO,
        "Offsets %d to %d of %s are read from the broker: %s",
        rest.start,
        rest.end,
        rest.partition,
        error,
    )


def _read(
    source: SegmentSource, files: _PartitionFiles, whole: OffsetRange, into: SparkBatches, rows: int, size: int
) -> Iterator[pa.RecordBatch | Task]:
    partition, offset, end = whole
    chunk: FetchedPartition | None = None
    fd = -1
    aborted: bytes | None = None
    try:
        if source.read_committed:
            aborted = files.aborted(offset)
        try:
            batches = SegmentBatches(partition.topic, partition.partition, end, aborted or b"", source.check_crcs)
        except ValueError as error:
            raise UseBrokerError(str(error), broken=True) from error
        while offset < end:
            segment, fd = files.open_segment(offset)
            position = (
                batches.find(fd, files.position_of(fd, segment.base, offset), offset) if offset > segment.base else 0
            )
            status = connector.MORE
            while status == connector.MORE and offset < end:
                chunk = None  # its memory is for what is read now
                chunk, position, status = batches.read(fd, position, READ_BYTES, offset)
                while chunk is not None and not chunk.exhausted and chunk.next_offset < end:
                    into.columns.append(chunk, rows - into.rows, True, end, size)
                    if into.rows >= rows or into.bytes >= size:
                        yield from into.batches()
                if chunk is not None:
                    offset = max(offset, chunk.next_offset)
            os.close(fd)
            fd = -1
            if status == connector.DONE:
                offset = end
            elif offset < end:
                following = files.behind(segment, position, status)
                if following > offset:
                    yield from into.batches()
                    yield (OffsetRange(partition, offset, min(following, end)),)
                    offset = following
    except (UseBrokerError, OSError, CorruptMessageError, UnsupportedCodecError) as error:
        if chunk is not None:
            offset = max(offset, chunk.next_offset)
        rest = OffsetRange(partition, offset, end)
        yield from into.batches()
        _fall_back(source, rest, error)
        yield (rest,)
    finally:
        if fd >= 0:
            os.close(fd)
    yield from into.batches()
    if aborted is not None:
        _check_aborted(files, whole, aborted)


def _check_aborted(files: _PartitionFiles, whole: OffsetRange, known: bytes) -> None:
    """A broker may let readers see the end of a transaction a moment before the index file has that it was aborted.
    When an entry has come meanwhile that counts here, the task's rows are wrong: it fails, and Spark runs it again."""
    try:
        now = files.aborted(whole.start)
    except (UseBrokerError, OSError):
        return  # deleted since: nothing is added to it any more
    before = {each[1:4] for each in _ABORTED.iter_unpack(known)}
    if any(each[2] < whole.end and each[1:4] not in before for each in _ABORTED.iter_unpack(now)):
        raise TransactionIndexLateError(
            f"A transaction in offsets {whole.start} to {whole.end} of {whole.partition} was aborted while its segment "
            "files were read; the task has to be run again"
        )


class _PartitionFiles:
    """The directory of one partition. UseBrokerError, OSError."""

    def __init__(self, source: SegmentSource, partition: TopicPartition) -> None:
        wanted = source.topic_ids.get(partition.topic)
        if wanted is None:
            raise UseBrokerError("the cluster gives its topic no id to know the files by")
        found: list[UUID | None] = []
        for path in source.paths:
            directory = Path(path, f"{partition.topic}-{partition.partition}")
            if directory.is_dir():
                found.append(_topic_id(directory))
                if found[-1] == wanted:
                    self._directory = directory
                    return
        if found:
            raise UseBrokerError(f"its directory belongs to a topic with the id {found[0]} instead of {wanted}")
        raise UseBrokerError(f"there is no directory of it in {', '.join(source.paths)}", broken=True)

    def open_segment(self, offset: int) -> tuple[_Segment, int]:
        """The segment that begins last at or below the offset, and a descriptor of its data."""
        for _ in range(LISTINGS):
            bases = _bases_of(self._stable_names())
            at = bisect_right(bases, offset)
            if at == 0:
                raise UseBrokerError(
                    f"its first segment begins at {bases[0] if bases else 'no offset'}, behind {offset}"
                )
            try:
                fd = self._open(bases[at - 1], ".log")
            except FileNotFoundError:
                continue  # cleaned, deleted
            return _Segment(bases[at - 1], bases[at] if at < len(bases) else None), fd
        raise UseBrokerError(_RESTLESS)

    def behind(self, segment: _Segment, position: int, status: int) -> int:
        """Where to read on, once all that can be read of a segment was."""
        where = f"{segment.base:020d}.log ends at byte {position}"
        if status == connector.OLD:
            raise UseBrokerError(f"{where} in messages of an old format")
        if status == connector.BAD:
            raise UseBrokerError(f"{where} in bytes that are no record batch", broken=True)
        if segment.next_base is None:
            raise UseBrokerError(f"{where}, and there is no segment behind it")
        return segment.next_base

    def aborted(self, start: int) -> bytes:
        """The transaction indexes of all segments from the one of `start` on: that of a transaction is in the segment
        of its marker, which may be behind the end."""
        for _ in range(LISTINGS):
            before = self._stable_names()
            base = max((each for each in _bases_of(before) if each <= start), default=0)
            try:
                found = [
                    (self._directory / name).read_bytes()
                    for name in sorted(before)
                    if name.endswith(".txnindex") and name >= f"{base:020d}"
                ]
            except FileNotFoundError:
                continue
            if self._names() == before:
                # An entry that is being written is of a transaction that was open when the end was looked up.
                return b"".join(each[: len(each) - len(each) % _ABORTED.size] for each in found)
        raise UseBrokerError(_RESTLESS)

    def _open(self, base: int, suffix: str) -> int:
        """A descriptor."""
        return os.open(self._directory / f"{base:020d}{suffix}", os.O_RDONLY | os.O_CLOEXEC)

    def position_of(self, data: int, base: int, offset: int) -> int:
        """Where in a segment (its data file is `data`) a batch stands that begins at or below the offset: by the index,
        which is not written yet where the segment is appended to, or has room for more entries, filled with zeros. 0
        where it does not fit the data."""
        try:
            index = self._open(base, ".index")
        except OSError:
            return 0
        try:
            low, high = 0, os.fstat(index).st_size // INDEX_ENTRY
            found = 0
            while low < high:
                middle = (low + high) // 2
                entry = os.pread(index, INDEX_ENTRY, middle * INDEX_ENTRY)
                position = int.from_bytes(entry[4:], "big")
                if len(entry) == INDEX_ENTRY and position > 0 and base + int.from_bytes(entry[:4], "big") <= offset:
                    low, found = middle + 1, position
                else:
                    high = middle
        finally:
            os.close(index)
        header = os.pread(data, _HEADER_BYTES, found)
        begins = int.from_bytes(header[:8], "big")
        fits = len(header) == _HEADER_BYTES and header[_MAGIC_AT] == _MAGIC_V2 and base <= begins <= offset
        return found if fits else 0

    def _stable_names(self) -> dict[str, int]:
        """The directory's files with their numbers (inodes), while no segments are being replaced."""
        before = self._names()
        for _ in range(LISTINGS):
            now = self._names()
            if now == before and not any(name.endswith(".swap") for name in now):
                return now
            before = now
            time.sleep(LISTING_WAIT_S)
        raise UseBrokerError(_RESTLESS)

    def _names(self) -> dict[str, int]:
        """Those that come and go with offsets and retention stay out."""
        with os.scandir(self._directory) as entries:
            return {each.name: each.inode() for each in entries if each.name.endswith((".log", ".txnindex", ".swap"))}


_RESTLESS: Final = "its directory changes all the time"
_ABORTED: Final = Struct(">hqqqq")
"""Of a .txnindex: version, producer id, first, last and last stable offset."""
_HEADER_BYTES: Final = 61
_MAGIC_AT: Final = 16
_MAGIC_V2: Final = 2


def _bases_of(names: Mapping[str, int]) -> list[int]:
    return sorted(int(name[:-4]) for name in names if name.endswith(".log") and name[:-4].isdecimal())


def _topic_id(directory: Path) -> UUID | None:
    """By partition.metadata; None where there is no such file, or nothing in it."""
    try:
        lines = (directory / "partition.metadata").read_text().splitlines()
    except FileNotFoundError:
        return None
    fields = dict(line.split(": ", 1) for line in lines if ": " in line)
    try:
        return uuid_from_string(fields["topic_id"]) if "topic_id" in fields else None
    except ValueError as error:
        raise UseBrokerError(f"{directory / 'partition.metadata'} is malformed: {error}", broken=True) from error
