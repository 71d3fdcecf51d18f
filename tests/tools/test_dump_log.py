"""kafkapy dump-log on files we wrote: what it shows, and what it finds when bytes are wrong."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kafkapy.config.topic import LogConfig
from kafkapy.log.backends.local import LocalBackend
from kafkapy.log.cleaner import Cleaner
from kafkapy.log.cleaner_manager import log_to_clean
from kafkapy.log.loader import load_log
from kafkapy.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from kafkapy.protocol.messages.group_metadata_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from kafkapy.protocol.messages.transaction_log_records import TransactionLogKey, TransactionLogValue
from kafkapy.records.batches import RecordBatchBuilder
from kafkapy.records.control import build_end_transaction_marker
from kafkapy.tools.cli import main
from kafkapy.types import TopicPartition

NOW = 1_600_000_000_000
SEGMENT = f"{0:020d}"


def write(directory: Path, batches: list[bytes], topic: str = "orders", *, compact: bool = False) -> Path:
    """A partition directory with one closed segment of these batches (compacted if asked), cleanly stopped."""
    tp = TopicPartition(topic, 0)
    keys = {
        "index.interval.bytes": "1",
        "delete.retention.ms": "0",
        "cleanup.policy": "compact" if compact else "delete",
    }
    log, _ = load_log(LocalBackend().open_log(directory, str(tp), create=True), tp, LogConfig.create(overrides=keys))
    log.become_leader(1, 5, (1,))
    for batch in batches:
        log.append_as_leader(batch)
    log.roll()
    log.seal_segments()
    if compact:
        Cleaner(1 << 20).clean(log_to_clean(tp, log, None, NOW), NOW)
    log.close()
    log.flush()
    log.take_producer_snapshot()
    return directory / str(tp)


def keyed(*records: tuple[bytes | None, bytes | None], codec: int = 0, **how: Any) -> bytes:
    builder = RecordBatchBuilder()
    for number, (key, value) in enumerate(records):
        builder.append(NOW + number, key, value, [("h", b"\xff")])
    return builder.build(codec, **how)


def some_batches() -> list[bytes]:
    how: dict[str, Any] = {"producer_id": 9, "producer_epoch": 1, "transactional": True}
    batches = [keyed((b"k%d" % (n % 7), b"v%d" % n), (b"other", None), codec=n % 5) for n in range(30)]
    batches.append(keyed((b"t", b"aborted"), base_sequence=0, **how))
    batches.append(build_end_transaction_marker(9, 1, committed=False, coordinator_epoch=3, timestamp_ms=NOW))
    return [*batches, keyed((b"last", b"z" * 40))]


def run(*arguments: str) -> tuple[int, list[dict[str, Any]]]:
    result = CliRunner().invoke(main, ["dump-log", "--json", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, [json.loads(line) for line in result.stdout.splitlines()]


@pytest.mark.parametrize("compact", [False, True])
def test_sound_files_have_no_problems(tmp_path: Path, compact: bool) -> None:
    directory = write(tmp_path, some_batches(), compact=compact)
    code, rows = run("--verify", str(directory))
    assert (code, rows) == (0, [])
    code, rows = run(str(directory))
    assert code == 0
    assert {Path(row["file"]).suffix for row in rows} >= {".log", ".index", ".timeindex", ".snapshot", ""}


def test_batches_and_records_are_shown(tmp_path: Path) -> None:
    directory = write(tmp_path, some_batches())
    code, rows = run("--deep-iteration", str(directory / f"{SEGMENT}.log"))
    assert code == 0
    batches = [row for row in rows if "base_offset" in row]
    records = [row for row in rows if "key" in row]
    assert [batch["codec"] for batch in batches[:5]] == ["none", "gzip", "snappy", "lz4", "zstd"]
    assert (batches[0]["base_offset"], batches[0]["last_offset"], batches[0]["leader_epoch"]) == (0, 1, 5)
    assert (records[0]["key"], records[0]["value"], records[0]["headers"]) == ("k0", "v0", [["h", "0xff"]])
    assert records[1]["value"] is None
    [marker] = [row for row in rows if "marker" in row]
    assert (marker["offset"], marker["marker"], marker["coordinator_epoch"]) == (61, "abort", 3)
    code, rows = run(str(directory / f"{SEGMENT}.txnindex"))
    assert [(row["producer_id"], row["first_offset"], row["last_offset"]) for row in rows] == [(9, 60, 61)]
    code, rows = run(str(directory / f"{63:020d}.snapshot"))
    assert [(row["producer_id"], row["epoch"]) for row in rows] == [(9, 1)]
    code, rows = run(str(directory / "leader-epoch-checkpoint"))
    assert [(row["epoch"], row["start_offset"]) for row in rows] == [(5, 0)]


def test_every_damage_to_a_segment_or_index_is_found(tmp_path: Path) -> None:
    directory = write(tmp_path, some_batches())
    log = directory / f"{SEGMENT}.log"
    data = log.read_bytes()
    for at in (30, 70, len(data) - 3):
        spoiled = bytearray(data)
        spoiled[at] ^= 4
        log.write_bytes(spoiled)
        code, rows = run("--verify", str(log))
        assert code == 1 and "problem" in rows[0]
    log.write_bytes(data[:-5])
    assert run("--verify", str(log))[0] == 1
    log.write_bytes(data)
    for suffix, entry, position in (("index", 8, 4), ("index", 8, 0), ("timeindex", 12, 4)):
        path = directory / f"{SEGMENT}.{suffix}"
        sound = path.read_bytes()
        spoiled = bytearray(sound)
        spoiled[position + 3] ^= 0x11
        path.write_bytes(spoiled)
        assert run("--verify", str(path))[0] == 1, suffix
        path.write_bytes(sound + b"\1" * (entry - 1))
        assert run("--verify", str(path))[0] == 1, suffix
        path.write_bytes(sound + bytes(5 * entry))  # not cut to size yet
        assert run("--verify", str(path))[0] == 0, suffix
        path.write_bytes(sound)
    snapshot = directory / f"{63:020d}.snapshot"
    snapshot.write_bytes(snapshot.read_bytes()[:-1])
    assert run(str(snapshot))[0] == 1


def test_group_and_transaction_records_are_decoded(tmp_path: Path) -> None:
    subscription = ConsumerProtocolSubscription(topics=["orders"]).encode_versioned(0)
    member = GroupMetadataValue.Member(
        member_id="m",
        client_id="c",
        client_host="/h",
        rebalance_timeout=1,
        session_timeout=2,
        subscription=subscription,
    )
    group = GroupMetadataValue(protocol_type="consumer", generation=4, protocol="range", leader="m", members=[member])
    offset = OffsetCommitValue(offset=77, metadata="note", commit_timestamp=NOW)
    records = [
        (OffsetCommitKey(group="g", topic="orders", partition=3).encode_versioned(1), offset.encode_versioned(3)),
        (GroupMetadataKey(group="g").encode_versioned(2), group.encode_versioned(3)),
        (GroupMetadataKey(group="gone").encode_versioned(2), None),
        (b"\x7f\xff??", b"unknown"),
    ]
    directory = write(tmp_path, [keyed(*records)], "__consumer_offsets")
    code, rows = run(str(directory / f"{SEGMENT}.log"))
    assert code == 0
    commit, state, gone, unknown = (row for row in rows if "key" in row)
    assert commit["key"] == {"group": "g", "topic": "orders", "partition": 3}
    assert (commit["record"], commit["value"]["offset"]) == ("OffsetCommit", 77)
    assert state["value"]["members"][0]["subscription"]["topics"] == ["orders"]
    assert gone["value"] is None
    assert unknown["value"] == "unknown"
    key = TransactionLogKey(transactional_id="tx").encode_versioned(0)
    value = TransactionLogValue(producer_id=8, producer_epoch=2, transaction_timeout_ms=60_000, transaction_status=4)
    directory = write(tmp_path, [keyed((key, value.encode_versioned(0)))], "__transaction_state")
    code, rows = run(str(directory / f"{SEGMENT}.log"))
    assert (rows[1]["key"], rows[1]["value"]["producer_id"]) == ({"transactional_id": "tx"}, 8)


def test_without_json_it_writes_lines(tmp_path: Path) -> None:
    directory = write(tmp_path, [keyed((b"k", b"v"))])
    result = CliRunner().invoke(main, ["dump-log", "--deep-iteration", str(directory)])
    assert result.exit_code == 0
    assert "offset=0" in result.stdout and 'key="k"' in result.stdout
    assert CliRunner().invoke(main, ["dump-log", str(tmp_path / "nothing")]).exit_code == 2
    strange = tmp_path / "strange.log"
    strange.write_bytes(struct.pack(">qi", 0, -5) + bytes(80))
    assert CliRunner().invoke(main, ["dump-log", str(strange)]).exit_code == 1


@pytest.mark.java
@pytest.mark.skipif(
    not os.environ.get("KAFKAPY_INTEROP_JAVA"), reason="Apache Kafka's jars run with: make interop-java"
)
def test_apache_kafka_reads_our_files(tmp_path: Path) -> None:
    from peers.apache_kafka import PeerMissingError, java

    for compact in (False, True):
        directory = write(tmp_path, some_batches(), compact=compact)
        files = [
            path
            for path in directory.iterdir()
            if path.suffix in (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
        ]
        names = ",".join(str(path) for path in sorted(files) if path.stat().st_size)
        try:
            command = java(
                "3.9", "kafka.tools.DumpLogSegments", "--deep-iteration", "--print-data-log", "--files", names
            )
        except PeerMissingError as missing:
            pytest.skip(str(missing))
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        output = done.stdout + done.stderr
        assert done.returncode == 0, output
        for word in ("Exception", "ound timestamp mismatch", "Mismatches in", "isvalid: false", "out of order"):
            assert word not in output, output
        assert compact or "Non-consecutive" not in output, output  # compaction leaves holes
        assert "isvalid: true" in output
        assert "producerId: 9" in output
        assert "payload: " + "z" * 40 in output
        shutil.rmtree(directory)
