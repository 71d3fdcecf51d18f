"""`kafkapy dump-log`: prints the files of a partition directory.

Counterpart of kafka-dump-log (DumpLogSegments).

    .log                        batches, with --deep-iteration their records; records of __consumer_offsets and
                                __transaction_state, and control records, are decoded
    .index .timeindex .txnindex entries
    .snapshot                   the producers known at that offset
    leader-epoch-checkpoint     and every *-offset-checkpoint

Names may end with .deleted, .cleaned or .swap. Each file gives rows (dicts) and problems (sentences). `--verify`
compares indexes with their data file. Exit code 1 after a problem.
"""

from __future__ import annotations

import json
import mmap
import struct
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kafkapy._speedups.log.producer_state import read_snapshot
from kafkapy._speedups.records.memory_records import BatchView, Record, iter_batches
from kafkapy._speedups.records.record_batch import check_crc
from kafkapy.errors import KafkaError
from kafkapy.protocol.messages import consumer_group_records as consumer_groups
from kafkapy.protocol.messages import group_metadata_records as groups
from kafkapy.protocol.messages import transaction_log_records as transactions
from kafkapy.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from kafkapy.records.batches import decode_records
from kafkapy.records.control import read_control_batch
from kafkapy.tools.terminal import printable
from kafkapy.types import CompressionType, TimestampType

__all__ = ["Dump", "dump_file", "dump_log"]

Row = dict[str, Any]
MOVED = (".deleted", ".cleaned", ".swap")
ROWS_PER_TABLE = 500
OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")
ABORTED_ENTRY = struct.Struct(">hqqqq")
LEGACY_HEADER = struct.Struct(">Ibbq")
"""A message of format v0 or v1, after offset and size: checksum, magic, attributes, and in v1 the timestamp."""
LEGACY_HEADER_AT = 12
LEGACY_MAGIC_AT = 16
"""The checksum covers the bytes from here on."""
TIMESTAMP_TYPES = {
    TimestampType.NO_TIMESTAMP_TYPE: "NoTimestampType",
    TimestampType.CREATE_TIME: "CreateTime",
    TimestampType.LOG_APPEND_TIME: "LogAppendTime",
}

GROUP_RECORDS: dict[int, tuple[Any, Any]] = {
    0: (groups.OffsetCommitKey, groups.OffsetCommitValue),
    1: (groups.OffsetCommitKey, groups.OffsetCommitValue),
    2: (groups.GroupMetadataKey, groups.GroupMetadataValue),
    3: (consumer_groups.ConsumerGroupMetadataKey, consumer_groups.ConsumerGroupMetadataValue),
    4: (consumer_groups.ConsumerGroupPartitionMetadataKey, consumer_groups.ConsumerGroupPartitionMetadataValue),
    5: (consumer_groups.ConsumerGroupMemberMetadataKey, consumer_groups.ConsumerGroupMemberMetadataValue),
    6: (
        consumer_groups.ConsumerGroupTargetAssignmentMetadataKey,
        consumer_groups.ConsumerGroupTargetAssignmentMetadataValue,
    ),
    7: (
        consumer_groups.ConsumerGroupTargetAssignmentMemberKey,
        consumer_groups.ConsumerGroupTargetAssignmentMemberValue,
    ),
    8: (
        consumer_groups.ConsumerGroupCurrentMemberAssignmentKey,
        consumer_groups.ConsumerGroupCurrentMemberAssignmentValue,
    ),
    16: (consumer_groups.ConsumerGroupRegularExpressionKey, consumer_groups.ConsumerGroupRegularExpressionValue),
}
TRANSACTION_RECORDS: dict[int, tuple[Any, Any]] = {
    0: (transactions.TransactionLogKey, transactions.TransactionLogValue)
}
DECODERS = {"__consumer_offsets": GROUP_RECORDS, "__transaction_state": TRANSACTION_RECORDS}


@dataclass(slots=True)
class Dump:
    """The rows and problems of one file. One thread uses it.

    `rows` may be iterated once, and `problems` is complete afterwards. dump_file creates it.
    """

    path: Path
    kind: str
    rows: Iterator[Row] = field(default_factory=lambda: iter(()))
    problems: list[str] = field(default_factory=list)


def dump_file(path: Path, *, deep: bool = False, verify: bool = False, topic: str | None = None) -> Dump:
    """The content of a file. OSError.

    `topic` selects the decoder of records; the default is the topic in the directory's name.
    """
    name = path.name
    for suffix in MOVED:
        name = name.removesuffix(suffix)
    stem, _, suffix = name.rpartition(".")
    if topic is None:
        topic = path.absolute().parent.name.rpartition("-")[0]
    dump = Dump(path, suffix if stem else name)
    if suffix == "log":
        dump.rows = _batches(dump, deep=deep or topic in DECODERS, records=DECODERS.get(topic, {}), show=deep)
    elif suffix == "index":
        dump.rows = _offset_index(dump, int(stem), verify)
    elif suffix == "timeindex":
        dump.rows = _time_index(dump, int(stem), verify)
    elif suffix == "txnindex":
        dump.rows = _transaction_index(dump)
    elif suffix == "snapshot":
        dump.rows = _snapshot(dump)
    elif name == "leader-epoch-checkpoint":
        dump.rows = _checkpoint(dump, ("epoch", "start_offset"))
    elif name.endswith("-checkpoint"):
        dump.rows = _checkpoint(dump, ("topic", "partition", "offset"))
    else:
        dump.problems.append("is not a readable file of a log")
    return dump


def _walk(dump: Dump, path: Path) -> Iterator[BatchView]:
    """The batches of a data file; a broken batch becomes a problem."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        if size == 0:
            return
        data = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
        end = 0
        try:
            for batch in iter_batches(data):
                yield batch
                end = batch.position + batch.size
        except KafkaError as error:
            dump.problems.append(f"position {end}: {error}")
            return
        if end < size:
            dump.problems.append(f"{size - end} bytes behind position {end} are not a whole batch")


def _batches(dump: Dump, *, deep: bool, records: dict[int, tuple[Any, Any]], show: bool) -> Iterator[Row]:
    expected = -1
    for batch in _walk(dump, dump.path):
        valid = _is_valid(batch)
        if not valid:
            dump.problems.append(f"position {batch.position}: the checksum of the batch does not match")
        if batch.base_offset < expected:
            dump.problems.append(f"position {batch.position}: offset {batch.base_offset} is below {expected}")
        expected = batch.last_offset + 1
        row = {
            "base_offset": batch.base_offset, "last_offset": batch.last_offset, "count": batch.record_count,
            "position": batch.position, "size": batch.size, "magic": batch.magic,
            "codec": CompressionType(batch.codec).name.lower(), "max_timestamp": batch.max_timestamp,
            "timestamp_type": TIMESTAMP_TYPES[TimestampType(batch.timestamp_type)],
            "producer_id": batch.producer_id, "producer_epoch": batch.producer_epoch,
            "base_sequence": batch.base_sequence, "last_sequence": batch.last_sequence,
            "transactional": batch.is_transactional,
            "control": batch.is_control, "delete_horizon_ms": batch.delete_horizon_ms,
            "leader_epoch": batch.leader_epoch, "crc": batch.crc, "valid": valid,
        }  # fmt: skip
        yield row if batch.magic == 2 else row | _legacy(batch)
        if not deep or not valid:
            continue
        try:
            if batch.is_control:
                marker = read_control_batch(batch)
                if marker is not None:
                    yield {
                        "offset": batch.base_offset,
                        "timestamp": batch.max_timestamp,
                        "marker": marker.type.name.lower(),
                        "coordinator_epoch": marker.coordinator_epoch,
                    }
                continue
            for record in decode_records(batch):
                if records:
                    yield _internal(record, records)
                elif show:
                    yield _record(batch, record)
        except KafkaError as error:
            dump.problems.append(f"position {batch.position}: {error}")


def _is_valid(batch: BatchView) -> bool:
    if batch.magic == 2:
        return check_crc(batch.to_bytes())
    data = batch.to_bytes()
    checksum: int = LEGACY_HEADER.unpack_from(data, LEGACY_HEADER_AT)[0]
    return zlib.crc32(data[LEGACY_MAGIC_AT:]) == checksum


def _legacy(batch: BatchView) -> Row:
    """The fields of a message of format v0 or v1.

    Missing fields are -1. The offset is the last one inside.
    """
    checksum, magic, attributes, timestamp = LEGACY_HEADER.unpack_from(batch.to_bytes(), LEGACY_HEADER_AT)
    kind = TimestampType.NO_TIMESTAMP_TYPE if magic == 0 else TimestampType(attributes >> 3 & 1)
    return {
        "count": -1, "codec": CompressionType(attributes & 7).name.lower(), "crc": checksum,
        "max_timestamp": -1 if magic == 0 else timestamp, "timestamp_type": TIMESTAMP_TYPES[kind],
        "producer_id": -1, "producer_epoch": -1, "base_sequence": -1, "last_sequence": -1, "leader_epoch": -1,
    }  # fmt: skip


def _newest(batch: BatchView) -> int:
    """The timestamp in ms of the newest record inside, or -1."""
    return batch.max_timestamp if batch.magic == 2 else int(_legacy(batch)["max_timestamp"])


def _record(batch: BatchView, record: Record) -> Row:
    """A record with fields of its batch.

    Sizes are in bytes, -1 for null; a header's name may repeat.
    """
    sequence = batch.base_sequence if batch.magic == 2 else -1
    if sequence >= 0:
        sequence = (sequence + record.offset - batch.base_offset) % (1 << 31)
    return {
        "offset": record.offset, "timestamp": record.timestamp, "sequence": sequence,
        "key_size": -1 if record.key is None else len(record.key),
        "value_size": -1 if record.value is None else len(record.value),
        "key": _text(record.key), "value": _text(record.value),
        "headers": [[name, _text(value)] for name, value in record.headers],
    }  # fmt: skip


def _internal(record: Record, kinds: dict[int, tuple[Any, Any]]) -> Row:
    """A record of __consumer_offsets or __transaction_state."""
    key = record.key or b""
    kind = int.from_bytes(key[:2], "big", signed=True) if len(key) >= 2 else -1
    row: Row = {"offset": record.offset, "timestamp": record.timestamp}
    if kind not in kinds:
        return row | {"key": _text(record.key), "value": _text(record.value)}
    key_type, value_type = kinds[kind]
    try:
        row |= {"record": key_type.__name__.removesuffix("Key"), "key": _plain(key_type.decode_versioned(key)[1])}
        row["value"] = None if record.value is None else _plain(value_type.decode_versioned(record.value)[1])
    except KafkaError as error:
        row |= {"key": _text(record.key), "value": _text(record.value), "problem": str(error)}
    if isinstance(row.get("value"), dict) and row["value"].get("protocol_type") == "consumer":
        _open_members(row["value"])
    return row


def _open_members(value: Row) -> None:
    """The decoded metadata of a classic group's members."""
    for member in value["members"]:
        for name, kind in (("subscription", ConsumerProtocolSubscription), ("assignment", ConsumerProtocolAssignment)):
            raw = bytes.fromhex(member[name].removeprefix("0x")) if member[name].startswith("0x") else b""
            try:
                if raw:
                    member[name] = _plain(kind.decode_versioned(raw, newer_as_newest=True)[1])
            except KafkaError:
                continue  # bytes of a client with a protocol of its own stay as they are


def _plain(value: Any) -> Any:
    """A struct as dicts, lists and strings."""
    if hasattr(value, "_fields"):
        return {field.name: _plain(getattr(value, field.name)) for field in value._fields}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, (bytes, bytearray, memoryview)):
        return "0x" + bytes(value).hex()
    return value if isinstance(value, (int, float, str, bool, type(None))) else str(value)


def _text(data: bytes | None) -> str | None:
    """UTF-8 text, else 0x and hexadecimal digits."""
    if data is None:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return "0x" + data.hex()
    return text if text.isprintable() else "0x" + data.hex()


def _data_file(path: Path) -> Path:
    name = path.name
    tail = next((suffix for suffix in MOVED if name.endswith(suffix)), "")
    return path.with_name(name.removesuffix(tail).rpartition(".")[0] + ".log" + tail)


def _entries(dump: Dump, entry: struct.Struct, drop_zeros: bool) -> Iterator[tuple[int, tuple[int, ...]]]:
    data = dump.path.read_bytes()
    if drop_zeros:
        # An active segment's index is preallocated: what follows the last entry reads as zeros.
        used = len(data.rstrip(b"\0"))
        if used < len(data):
            data = data[: -(-used // entry.size) * entry.size]
    if len(data) % entry.size:
        dump.problems.append(f"{len(data)} bytes are not a whole number of entries of {entry.size} bytes")
    for number in range(len(data) // entry.size):
        yield number, entry.unpack_from(data, number * entry.size)


def _offset_index(dump: Dump, base: int, verify: bool) -> Iterator[Row]:
    batches = _beside(dump) if verify else {}
    previous = -1
    for number, (relative, position) in _entries(dump, OFFSET_ENTRY, True):
        offset = base + relative
        if offset <= previous:
            dump.problems.append(f"entry {number}: offset {offset} does not ascend")
        previous = offset
        if verify and position not in batches:
            dump.problems.append(f"entry {number}: no batch begins at position {position}")
        elif verify and not batches[position].base_offset <= offset <= batches[position].last_offset:
            dump.problems.append(f"entry {number}: the batch at position {position} does not hold offset {offset}")
        yield {"offset": offset, "position": position}


def _time_index(dump: Dump, base: int, verify: bool) -> Iterator[Row]:
    newest = 0
    ordered = sorted(_beside(dump).values(), key=lambda batch: batch.base_offset) if verify else []
    at = 0
    previous = -1
    for number, (timestamp, relative) in _entries(dump, TIME_ENTRY, True):
        offset = base + relative
        if timestamp <= previous:
            dump.problems.append(f"entry {number}: timestamp {timestamp} does not ascend")
        previous = timestamp
        while at < len(ordered) and ordered[at].base_offset <= offset:
            newest = max(newest, _newest(ordered[at]))
            at += 1
        if verify and newest != timestamp:
            dump.problems.append(f"entry {number}: the newest record up to {offset} is of {newest}, not {timestamp}")
        yield {"timestamp": timestamp, "offset": offset}


def _beside(dump: Dump) -> dict[int, BatchView]:
    """The batches of an index's segment, by position."""
    path = _data_file(dump.path)
    if not path.exists():
        dump.problems.append(f"{path.name} is missing, so the index cannot be verified")
        return {}
    return {batch.position: batch for batch in _walk(dump, path)}


def _transaction_index(dump: Dump) -> Iterator[Row]:
    for number, (version, producer, first, last, stable) in _entries(dump, ABORTED_ENTRY, False):
        if version != 0 or first > last:
            dump.problems.append(f"entry {number} is malformed")
        yield {"producer_id": producer, "first_offset": first, "last_offset": last, "last_stable_offset": stable}


def _snapshot(dump: Dump) -> Iterator[Row]:
    producers = read_snapshot(dump.path.read_bytes())
    if producers is None:
        dump.problems.append("is not a valid snapshot")
    yield from producers or ()


def _checkpoint(dump: Dump, columns: tuple[str, ...]) -> Iterator[Row]:
    lines = dump.path.read_text(errors="replace").splitlines()
    if len(lines) < 2 or lines[0] != "0" or lines[1] != str(len(lines) - 2):
        dump.problems.append("has an unknown version or a wrong number of entries")
    for line in lines[2:]:
        values = line.split(" ")
        if len(values) != len(columns):
            dump.problems.append(f"{line!r} is not an entry")
            continue
        yield {name: value if name == "topic" else int(value) for name, value in zip(columns, values, strict=True)}


# --- the command ----------------------------------------------------------------------------------------------------


@click.command("dump-log")
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--verify", is_flag=True, help="Compare indexes with their data files; print only problems.")
@click.option("--deep-iteration", "deep", is_flag=True, help="Print each record, not only batches.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per row and per problem.")
@click.option("--topic", help="Decode records as this topic's; default: the topic in the directory's name.")
def dump_log(files: tuple[Path, ...], verify: bool, deep: bool, as_json: bool, topic: str | None) -> None:
    """Print log segments, indexes, snapshots and checkpoints.

    A directory stands for its files.
    """
    console = Console()
    problems = 0
    for path in _expanded(files):
        try:
            dump = dump_file(path, deep=deep, verify=verify, topic=topic)
            if as_json:
                _print_json(dump, rows=not verify)
            else:
                _print_tables(dump, console, rows=not verify)
        except (OSError, ValueError) as error:
            print(printable(f"kafkapy dump-log: {path}: {error}"), file=sys.stderr)
            problems += 1
            continue
        problems += len(dump.problems)
    sys.exit(1 if problems else 0)


def _expanded(paths: tuple[Path, ...]) -> Iterator[Path]:
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        for each in sorted(path.iterdir()):
            known = each.name.endswith("-checkpoint") or each.suffix in (".log", ".snapshot", *MOVED)
            if each.is_file() and (known or each.suffix.endswith("index")) and "next-segment" not in each.name:
                yield each


def _print_json(dump: Dump, *, rows: bool) -> None:
    for row in dump.rows:
        if rows:
            print(json.dumps({"file": str(dump.path)} | row))
    for problem in dump.problems:
        print(json.dumps({"file": str(dump.path), "problem": problem}))


def _print_tables(dump: Dump, console: Console, *, rows: bool) -> None:
    console.print(Text(printable(str(dump.path)), style="bold"), soft_wrap=True)
    waiting: list[Row] = []
    for row in dump.rows:
        if waiting and (row.keys() != waiting[0].keys() or len(waiting) >= ROWS_PER_TABLE):
            _print_table(waiting, console)
            waiting = []
        if rows:
            waiting.append(row)
    if waiting:
        _print_table(waiting, console)
    for problem in dump.problems:
        console.print(Text(printable(f"problem: {problem}"), style="red"), soft_wrap=True)
    if not rows and not dump.problems:
        console.print("sound")


def _print_table(rows: list[Row], console: Console) -> None:
    if not console.is_terminal:
        for row in rows:
            print(" ".join(f"{name}={_shown(name, value)}" for name, value in row.items()))
        return
    table = Table(show_edge=False)
    for name in rows[0]:
        numeric = isinstance(rows[0][name], int) and not isinstance(rows[0][name], bool)
        table.add_column(name.replace("_", " "), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(_readable(name, value), one_line=True)) for name, value in row.items()))
    console.print(table)


def _shown(name: str, value: Any) -> str:
    return json.dumps(value) if isinstance(value, (dict, list, str)) or value is None else str(value)


def _readable(name: str, value: Any) -> str:
    formats: dict[str, Callable[[Any], str]] = {"max_timestamp": _time, "timestamp": _time, "delete_horizon_ms": _time}
    if value is None:
        return "-"
    if name in formats:
        return formats[name](value)
    return json.dumps(value) if isinstance(value, (dict, list)) else str(value)


def _time(timestamp_ms: int) -> str:
    if timestamp_ms < 0:
        return "-"
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    except (OverflowError, ValueError):
        return str(timestamp_ms)
