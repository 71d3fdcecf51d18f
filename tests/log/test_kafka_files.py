"""Files that Apache Kafka 3.9.1 wrote (tests/reference/kafka_files): shown as its kafka-dump-log shows them, loaded,
recovered, appended to and cleaned."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
from reference.kafka_dump_log import Facts, complaints, from_kafka, from_kafkapy

from kafkapy._speedups.log.partition_log import PartitionLog
from kafkapy.config.broker import BrokerConfig
from kafkapy.config.topic import LogConfig
from kafkapy.log.backends.local import LocalBackend
from kafkapy.log.cleaner import Cleaner
from kafkapy.log.cleaner_manager import log_to_clean
from kafkapy.log.loader import LoadReport, load_log, read_topic_id
from kafkapy.log.log_manager import LogManager
from kafkapy.log.timestamps import offset_for_timestamp
from kafkapy.records.batches import Record, RecordBatchBuilder, decode_records, iter_batches
from kafkapy.types import ZERO_UUID, TopicPartition

KAFKA_FILES = Path(__file__).parents[1] / "reference" / "kafka_files"
NAMES = sorted(path.name for path in KAFKA_FILES.iterdir() if path.is_dir())
LOG_END = 2
COMMITTED = 1
LATER = 1_900_000_000_000


@pytest.fixture(scope="module")
def said() -> Facts:
    """What kafka-dump-log says, by file."""
    output = (KAFKA_FILES / "dump.txt").read_text()
    assert not complaints(output)
    return from_kafka(output)


def facts_of(said: Facts, name: str, suffix: str, kind: str) -> list[tuple[Any, ...]]:
    paths = sorted(path for path in said if path.startswith(f"{name}/") and path.endswith(suffix))
    return [row for path in paths for row in said[path] if row[0] == kind]


def opened(tmp_path: Path, name: str, *, clean: bool = True, **keys: str) -> tuple[PartitionLog, LoadReport]:
    """The log in a copy of a directory that Apache Kafka wrote."""
    directory = tmp_path / name
    if not directory.exists():
        shutil.copytree(KAFKA_FILES / name, directory)
    overrides = {"segment.bytes": "700", "index.interval.bytes": "100"} | {
        key.replace("_", "."): value for key, value in keys.items()
    }
    topic, _, number = name.rpartition("-")
    storage = LocalBackend().open_log(tmp_path, name, create=False)
    assert read_topic_id(storage) != ZERO_UUID
    config = LogConfig.create(overrides=overrides)
    tp = TopicPartition(topic, int(number))
    return load_log(storage, tp, config, clean=clean, producer_id_expiration_ms=1 << 60)


def records_of(log: PartitionLog) -> list[Record]:
    found: list[Record] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, 1, isolation=LOG_END, min_one_batch=True)[0]
        [batch] = iter_batches(data)
        if not batch.is_control:
            found += decode_records(batch)
        offset = batch.next_offset
    return found


def size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def test_dump_log_says_what_kafka_dump_log_says(said: Facts) -> None:
    shown, problems = from_kafkapy(KAFKA_FILES / path for path in said)
    assert not problems
    for path, facts in said.items():
        assert shown[str(KAFKA_FILES / path)] == facts, path
    kinds = {row[0] for rows in said.values() for row in rows}
    assert kinds == {"batch", "record", "marker", "entry", "producer", "aborted"}


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_a_log_of_apache_kafka_loads(tmp_path: Path, said: Facts, name: str, clean: bool) -> None:
    log, report = opened(tmp_path, name, clean=clean)
    assert (report.cut_bytes, report.deleted_segments) == (0, [])
    batches = facts_of(said, name, ".log", "batch")
    assert log.log_end_offset == 1 + max(row[2] if len(row) > 12 else row[1] for row in batches)
    found = [(r.offset, r.timestamp, size(r.key), size(r.value)) for r in records_of(log)]
    assert found == [(row[1], row[2], row[4], row[5]) for row in facts_of(said, name, ".log", "record")]
    aborted = [row[1:] for row in facts_of(said, name, ".txnindex", "aborted")]
    assert log.aborted_transactions() == aborted
    newest = max(path for path in said if path.startswith(name) and not path.endswith("index"))
    if newest.endswith(".snapshot"):
        known = [(p["producer_id"], p["epoch"], p["last_sequence"], p["last_offset"]) for p in log.producers()]
        assert sorted(known) == [(row[2], row[3], row[6], row[7]) for row in said[newest]]
        open_since = [p["current_transaction_first_offset"] for p in log.producers()]
        assert sorted(open_since) == sorted(row[1] for row in said[newest])
    log.close()


@pytest.mark.parametrize("name", NAMES)
def test_indexes_made_anew_say_what_those_of_apache_kafka_said(tmp_path: Path, said: Facts, name: str) -> None:
    shutil.copytree(KAFKA_FILES / name, tmp_path / name)
    for path in (tmp_path / name).iterdir():
        if path.suffix in (".index", ".timeindex", ".txnindex", ".snapshot"):
            path.unlink()
    log, report = opened(tmp_path, name, clean=False)
    assert report.recovered_segments == len(log.segments())
    log.close()
    made = sorted((tmp_path / name).glob("*.txnindex"))
    shown, problems = from_kafkapy([*made, *sorted((tmp_path / name).glob("*.*index"))])
    assert not problems
    aborted = [row for path in made for row in shown[str(path)]]
    assert aborted == facts_of(said, name, ".txnindex", "aborted")
    log, _ = opened(tmp_path, name)
    records = facts_of(said, name, ".log", "record")
    for timestamp in {record[2] for record in records if record[2] >= 0}:
        at = offset_for_timestamp(log, timestamp)
        first = next(record for record in records if record[2] >= timestamp)
        assert at is not None and (at.offset, at.timestamp) == (first[1], first[2])
    log.close()


def test_consumers_of_committed_records_are_told_of_the_aborted_ones(tmp_path: Path, said: Facts) -> None:
    log, _ = opened(tmp_path, "transactions-0")
    log.become_leader(1, 1, (1,))
    first_open = min(p for p in (row["current_transaction_first_offset"] for row in log.producers()) if p >= 0)
    assert log.last_stable_offset == first_open
    aborted = facts_of(said, "transactions-0", ".txnindex", "aborted")
    offset = 0
    while data := (answer := log.read(offset, 1 << 20, isolation=COMMITTED))[0]:
        following = list(iter_batches(data))[-1].next_offset
        assert answer[4] == [(row[1], row[2]) for row in aborted if row[3] >= offset and row[2] < following]
        offset = following
    assert offset == first_open
    log.close()


@pytest.mark.parametrize("name", NAMES)
def test_a_log_of_apache_kafka_goes_on(tmp_path: Path, said: Facts, name: str) -> None:
    log, _ = opened(tmp_path, name)
    before = records_of(log)
    log.become_leader(1, 7, (1,))
    end = log.log_end_offset
    for number in range(30):
        builder = RecordBatchBuilder()
        builder.append(1_800_000_000_000 + number, b"new", b"x" * 50)
        log.append_as_leader(builder.build())
    log.flush()
    log.close()
    for clean in (True, False):
        log, report = opened(tmp_path, name, clean=clean)
        assert report.cut_bytes == 0
        after = records_of(log)
        assert after[: len(before)] == before
        assert [record.offset for record in after[len(before) :]] == list(range(end, end + 30))
        assert log.leader_epochs()[-1] == (7, end)
        log.close()
    _, problems = from_kafkapy(path for path in (tmp_path / name).iterdir() if path.suffix != ".metadata")
    assert not problems


def test_a_log_from_a_cluster_with_newer_leader_epochs_goes_on(tmp_path: Path) -> None:
    log, _ = opened(tmp_path, "segments-0")
    for epoch, end in ((3, 24), (5, 26)):
        log.become_leader(1, epoch, (1,))
        for _ in range(2):
            builder = RecordBatchBuilder()
            builder.append(1_800_000_000_000, b"k", b"v")
            log.append_as_leader(builder.build())
        assert log.leader_epochs()[-1] == (epoch, end)
    log.become_leader(1, 3, (1,))
    builder = RecordBatchBuilder()
    builder.append(1_800_000_000_000, b"k", b"v")
    log.append_as_leader(builder.build())
    log.close()
    log.flush()
    # A recovery takes epochs from the batches, and the first batch of epoch 3 stands at 24.
    for clean, start in ((True, 28), (False, 24)):
        log, _ = opened(tmp_path, "segments-0", clean=clean)
        assert log.leader_epochs() == [(0, 0), (3, start)]
        # What was written last is of an epoch that ends at the end of the log.
        assert log.offset_for_leader_epoch(3) == (3, 29)
        assert log.offset_for_leader_epoch(2) == (0, start)
        assert log.offset_for_leader_epoch(5) == (-1, -1)
        log.become_leader(1, 4, (1,))
        assert log.offset_for_leader_epoch(3) == (3, 29)
        log.truncate_to(29)
        log.close()


def test_a_compacted_log_of_apache_kafka_is_compacted_on(tmp_path: Path) -> None:
    log, _ = opened(tmp_path, "compacted-0", cleanup_policy="compact")
    newest = {record.key: record for record in records_of(log)}
    log.become_leader(1, 1, (1,))
    log.roll()
    Cleaner(1 << 20).clean(log_to_clean(TopicPartition("compacted", 0), log, None, LATER), LATER)
    assert {record.key: record for record in records_of(log)} == newest
    assert len(records_of(log)) == len(newest)
    log.close()


def plain(record: Record) -> tuple[int, int, bytes | None]:
    """Without the type of the timestamp, which format v0 does not have and v2 always has."""
    return record.offset, record.timestamp, record.value


@pytest.mark.parametrize("name", ["v0-none-0", "v0-gzip-0", "v1-none-0", "v1-snappy-0"])
def test_messages_of_old_formats_are_compacted(tmp_path: Path, name: str) -> None:
    log, _ = opened(tmp_path, name, cleanup_policy="compact")
    newest = {record.key: plain(record) for record in records_of(log) if record.key is not None}
    assert len(newest) < len(records_of(log))
    log.become_leader(1, 1, (1,))
    log.roll()
    Cleaner(1 << 20).clean(log_to_clean(TopicPartition("old", 0), log, None, LATER), LATER)
    assert {record.key: plain(record) for record in records_of(log)} == newest
    assert len(records_of(log)) == len(newest)
    log.close()


@pytest.mark.parametrize("name", ["v0-none-0", "v0-gzip-0", "v1-lz4-0"])
def test_damage_to_an_old_message_is_found(tmp_path: Path, name: str) -> None:
    path = tmp_path / name / f"{0:020d}.log"
    shutil.copytree(KAFKA_FILES / name, tmp_path / name)
    sound = path.read_bytes()
    first = 12 + struct.unpack_from(">i", sound, 8)[0]
    for at in range(17, first):
        spoiled = bytearray(sound)
        spoiled[at] ^= 0x10
        path.write_bytes(spoiled)
        _, problems = from_kafkapy([path])
        assert f"{path}: position 0: the checksum of the batch does not match" in problems


def test_a_log_directory_of_a_kraft_broker_is_taken_over(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    shutil.copytree(KAFKA_FILES, logs, ignore=shutil.ignore_patterns("dump.txt"))
    controller = {f"{0:020d}.log": b"records of a controller", f"{7:020d}-{1:010d}.checkpoint": b"a snapshot"}
    (logs / "__cluster_metadata-0").mkdir()
    for name, data in controller.items():
        (logs / "__cluster_metadata-0" / name).write_bytes(data)
    (logs / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":77}')
    (tmp_path / "copy").mkdir()
    ends = {name: opened(tmp_path / "copy", name)[0].log_end_offset for name in NAMES}
    manager = LogManager(BrokerConfig({"log.dirs": str(logs), "broker.id": "1"}))
    manager.acquire()
    manager.load()
    assert {str(tp): log.log_end_offset for tp, log in manager.logs().items()} == ends
    manager.shutdown()
    assert {path.name: path.read_bytes() for path in (logs / "__cluster_metadata-0").iterdir()} == controller
