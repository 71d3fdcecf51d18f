"""The same facts of a partition's files as kafka-dump-log prints them and as `kafkapy dump-log` gives them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kafkapy.tools.dump_log import dump_file

DUMPED = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
"""The files that kafka-dump-log knows."""
_FIELD = re.compile(r"(\w+): (OptionalLong\[\d+\]|OptionalLong\.empty|\[[^]]*\]|[^\s}]+)")
_COMPLAINTS = ("Exception", "mismatch", "Mismatch", "isvalid: false", "isValid: false", "invalid bytes", "not found in")
_COMPLAINTS_OF_ORDER = ("out of order", "Non-consecutive")

Facts = dict[str, list[tuple[Any, ...]]]
"""By file: what each of its lines says."""


def log_files(directory: Path) -> list[Path]:
    """The files of a partition that kafka-dump-log can show. An index that is empty says nothing and is left out."""
    return [
        path
        for path in sorted(directory.iterdir())
        if path.suffix in DUMPED and (path.suffix == ".log" or path.stat().st_size)
    ]


def complaints(output: str, *, compacted: bool = False) -> list[str]:
    """The lines in which kafka-dump-log finds fault. A compacted log has holes."""
    words = _COMPLAINTS if compacted else (*_COMPLAINTS, *_COMPLAINTS_OF_ORDER)
    return [line for line in output.splitlines() if any(word in line for word in words)]


def from_kafka(output: str) -> Facts:
    """What kafka-dump-log --deep-iteration printed."""
    found: Facts = {}
    rows: list[tuple[Any, ...]] = []
    for line in output.splitlines():
        if line.startswith("Dumping "):
            rows = found.setdefault(line.removeprefix("Dumping "), [])
            continue
        said = dict(_FIELD.findall(line))
        if line.startswith("|"):
            rows.append(_kafka_record(said))
        elif "compresscodec" in said:
            rows.append(_kafka_batch(said))
        elif "producerEpoch" in said:
            first = said["currentTxnFirstOffset"]
            names = ("producerId", "producerEpoch", "coordinatorEpoch", "lastTimestamp", "lastSequence", "lastOffset")
            open_since = int(re.sub(r"\D", "", first)) if first not in ("None", "OptionalLong.empty") else -1
            rows.append(("producer", open_since, *(int(said.get(name, -1)) for name in names)))
        elif "lastStableOffset" in said:
            names = ("producerId", "firstOffset", "lastOffset", "lastStableOffset")
            rows.append(("aborted", *(int(said[name]) for name in names)))
        elif {"offset", "position"} == said.keys() or {"timestamp", "offset"} == said.keys():
            rows.append(("entry", *(int(value) for value in said.values())))
    for path, each in found.items():
        if path.endswith(".snapshot"):
            each.sort()
    return found


def _time(said: dict[str, str]) -> tuple[str, int]:
    return next((name, int(said[name])) for name in ("CreateTime", "LogAppendTime", "NoTimestampType") if name in said)


def _kafka_batch(said: dict[str, str]) -> tuple[Any, ...]:
    names = (
        "baseOffset", "lastOffset", "count", "baseSequence", "lastSequence", "producerId", "producerEpoch",
        "partitionLeaderEpoch",
    )  # fmt: skip
    if said["magic"] == "2":
        horizon = re.sub(r"\D", "", said["deleteHorizonMs"])
        of_v2 = (*(int(said[name]) for name in names), said["isTransactional"], said["isControl"], horizon)
    else:
        of_v2 = (int(said["offset"]),)
    numbers = tuple(int(said[name]) for name in ("position", "size", "magic", "crc"))
    return ("batch", *of_v2, *_time(said), *numbers, said["compresscodec"], said["isvalid"])


def _kafka_record(said: dict[str, str]) -> tuple[Any, ...]:
    if "endTxnMarker" in said:
        kind, epoch = said["endTxnMarker"].lower(), int(said["coordinatorEpoch"])
        return ("marker", int(said["offset"]), _time(said)[1], kind, epoch)
    headers = said.get("headerKeys", "[]")
    return (
        "record", int(said["offset"]), _time(said)[1], int(said.get("sequence", -1)),
        int(said["keySize"]), int(said["valueSize"]), headers,
    )  # fmt: skip


def from_kafkapy(paths: Iterable[Path]) -> tuple[Facts, list[str]]:
    """What `kafkapy dump-log --deep-iteration --verify` finds in the same files, and its complaints."""
    found: Facts = {}
    problems: list[str] = []
    for path in paths:
        dump = dump_file(path, deep=True, verify=True, topic="any")
        rows = [_row(row) for row in dump.rows]
        found[str(path)] = sorted(rows) if path.suffix == ".snapshot" else rows
        problems += [f"{path}: {problem}" for problem in dump.problems]
    return found, problems


def _row(row: dict[str, Any]) -> tuple[Any, ...]:
    if "base_offset" in row:
        names = (
            "base_offset", "last_offset", "count", "base_sequence", "last_sequence", "producer_id", "producer_epoch",
            "leader_epoch",
        )  # fmt: skip
        if row["magic"] == 2:
            horizon = "" if row["delete_horizon_ms"] is None else str(row["delete_horizon_ms"])
            flags = (str(row["transactional"]).lower(), str(row["control"]).lower())
            of_v2: tuple[Any, ...] = (*(row[name] for name in names), *flags, horizon)
        else:
            of_v2 = (row["last_offset"],)
        numbers = tuple(row[name] for name in ("position", "size", "magic", "crc"))
        time = (row["timestamp_type"], row["max_timestamp"])
        return ("batch", *of_v2, *time, *numbers, row["codec"], str(row["valid"]).lower())
    if "marker" in row:
        return ("marker", row["offset"], row["timestamp"], row["marker"], row["coordinator_epoch"])
    if "key_size" in row:
        headers = "[" + ",".join(name for name, _ in row["headers"]) + "]"
        sizes = (row["key_size"], row["value_size"])
        return ("record", row["offset"], row["timestamp"], row["sequence"], *sizes, headers)
    if "last_stable_offset" in row:
        return ("aborted", *row.values())
    if "coordinator_epoch" in row:
        names = ("producer_id", "epoch", "coordinator_epoch", "last_timestamp", "last_sequence", "last_offset")
        return ("producer", row["current_transaction_first_offset"], *(row[name] for name in names))
    return ("entry", *row.values())
