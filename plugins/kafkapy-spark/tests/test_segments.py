"""readFrom=segments: the rows of a broker's segment files are those that it sends, whatever happens to files."""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa
from kafkapy_spark import executor_reader, segments
from kafkapy_spark.executor_reader import ReadPlan, read_task
from kafkapy_spark.planning import OffsetRange
from kafkapy_spark.segments import SegmentSource, segment_batches_of
from kafkapy_spark.spark_batches import SparkBatches

from kafkapy import KafkaAdminClient, KafkaProducer, testing
from kafkapy.errors import ClusterAuthorizationFailedError, IllegalArgumentError
from kafkapy.records.batches import Record, RecordBatchBuilder, decode_records, iter_batches, iter_records
from kafkapy.records.legacy import build_message_set
from kafkapy.types import TopicPartition, uuid_from_string, uuid_to_string

COLUMNS = {"key": "binary", "value": "binary", "partition": "integer", "offset": "long", "timestamp": "timestamp"}
SCHEMA = json.dumps(
    {"fields": [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in COLUMNS.items()]}
)
KAFKA_FILES = Path(__file__).parents[3] / "tests" / "reference" / "kafka_files"


class Disk:
    """A broker whose files are on this disk, and reads of both kinds."""

    def __init__(self, broker: testing.Broker, directory: Path) -> None:
        self.broker, self.directory = broker, directory
        self.ids: dict[str, UUID] = {}
        self.asked: list[tuple[OffsetRange, ...]] = []
        """What was read from the broker where files were to be."""

    def create(self, partitions: int = 1, **configs: object) -> str:
        name = f"t-{uuid4().hex[:8]}"
        configs = {"segment_bytes": 20_000, "index_interval_bytes": 500} | configs
        self.ids[name] = self.broker.create_topic(
            name, partitions, {key.replace("_", "."): value for key, value in configs.items()}
        )
        return name

    def producer(self, **configs: Any) -> KafkaProducer:
        return KafkaProducer(bootstrap_servers=self.broker.bootstrap_servers, batch_size=2000, **configs)

    def of(self, topic: str) -> Path:
        return self.directory / f"{topic}-0"

    def source(self, *paths: Path, required: bool = True, **fields: Any) -> SegmentSource:
        return SegmentSource(tuple(map(str, paths or (self.directory,))), required, self.ids, **fields)

    def read(self, topic: str, start: int, end: int, source: SegmentSource | None, committed: bool = False) -> pa.Table:
        if source is not None:
            source = replace(source, read_committed=committed)
        kafka = {"bootstrap.servers": self.broker.bootstrap_servers}
        if committed:
            kafka["isolation.level"] = "read_committed"
        plan = ReadPlan(kafka, SCHEMA, True, 20_000, source)
        batches = list(read_task(plan, (OffsetRange(TopicPartition(topic, 0), start, end),)))
        for batch in batches:
            batch.validate(full=True)
        return pa.Table.from_batches(batches, schema=SparkBatches(SCHEMA).schema)

    def same(
        self, topic: str, start: int, end: int, source: SegmentSource | None = None, committed: bool = False
    ) -> pa.Table:
        """Reads files and broker, which have the same rows; these."""
        self.asked.clear()
        files = self.read(topic, start, end, source or self.source(), committed)
        asked = list(self.asked)
        expected = self.read(topic, start, end, None, committed)
        self.asked[:] = asked
        assert files.to_pylist() == expected.to_pylist()
        return files

    def end(self, topic: str, committed: bool = False) -> int:
        log = self.broker.server.context.log_manager.get(TopicPartition(topic, 0))
        return int(log.last_stable_offset if committed else log.high_watermark)

    def wait_for_markers(self, topic: str) -> None:
        """Wait until the log decides every transaction that ended: the broker replies before it writes markers."""
        wait_for(lambda: self.end(topic, committed=True) == self.end(topic))


@pytest.fixture(scope="module")
def on_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Disk]:
    directory = tmp_path_factory.mktemp("logs")
    keys: dict[str, object] = {
        "kafkapy_storage_backend": "local",
        "kafkapy_metadata_store": "embedded",
        "log_dirs": directory,
        "log_cleaner_backoff_ms": 20,
        "log_initial_task_delay_ms": 0,
        "log_retention_check_interval_ms": 50,
        "auto_create_topics_enable": False,
        "log_retention_ms": -1,
    }
    with testing.Broker(**keys) as broker:
        yield Disk(broker, directory)


@pytest.fixture
def disk(on_disk: Disk, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    read = executor_reader._read_from_brokers

    def counted(plan: ReadPlan, task: Any) -> Any:
        on_disk.asked.append(task)
        return read(plan, task)

    monkeypatch.setattr(executor_reader, "_read_from_brokers", counted)
    yield on_disk
    for readers in executor_reader._idle.values():
        for reader in readers:
            reader.close()
    executor_reader._idle.clear()


def fill(disk: Disk, topic: str, count: int = 1500, **configs: Any) -> None:
    rng = random.Random(count)
    with disk.producer(**configs) as producer:
        for number in range(count):
            value = rng.randbytes(rng.randrange(60)) if number % 10 else None
            producer.send(topic, value, key=b"k%d" % (number % 20), timestamp_ms=1_000_000 + number)


def copied(directory: Path, root: Path) -> Path:
    """A copy of a partition's directory, without the snapshots that the broker is just making or removing."""
    return shutil.copytree(directory, root / directory.name, ignore=shutil.ignore_patterns("*.snapshot*"))


def wait_for(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


# --- the same rows ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_every_range_is_that_of_the_broker(disk: Disk, codec: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Acceptance 9. Of many small segments, by reads that end within batches."""
    monkeypatch.setattr(segments, "READ_BYTES", 3000)
    topic = disk.create()
    fill(disk, topic, compression_type=codec)
    assert len(list(disk.of(topic).glob("*.log"))) > 2
    whole = disk.same(topic, 0, 1500)
    assert whole["offset"].to_pylist() == list(range(1500))
    assert disk.asked == []
    rng = random.Random(3)
    for _ in range(15):
        start = rng.randrange(1500)
        end = rng.randrange(start, 1501)
        found = disk.read(topic, start, end, disk.source())
        assert found.to_pylist() == whole.slice(start, end - start).to_pylist()
    assert disk.asked == []


def test_batches_larger_than_a_read_are_read(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "READ_BYTES", 100)
    topic = disk.create()
    with disk.producer() as producer:
        for size in (10, 15_000, 3, 100, 9000):
            producer.send(topic, bytes(size)).get(10)
    assert disk.same(topic, 0, 5).num_rows == 5
    assert disk.asked == []


@pytest.mark.parametrize("committed", [False, True])
def test_transactions(disk: Disk, committed: bool) -> None:
    """Acceptance 10: decided, undecided and interleaved ones, over many segments, from any start."""
    topic = disk.create(segment_bytes=3000)
    rng = random.Random(8)
    producers = [disk.producer(transactional_id=f"{topic}-{number}", linger_ms=0) for number in range(3)]
    with disk.producer() as plain:
        for producer in producers:
            producer.init_transactions()
            producer.begin_transaction()
        for turn in range(120):
            producer = rng.choice(producers)
            for _ in range(rng.randrange(4)):
                producer.send(topic, b"%d" % turn + bytes(rng.randrange(80)), partition=0).get(10)
            if turn % 5 == 0:
                plain.send(topic, b"plain", partition=0).get(10)
            if turn % 3 == 0:
                (producer.abort_transaction if rng.random() < 0.5 else producer.commit_transaction)()
                producer.begin_transaction()
        end = disk.end(topic, committed)
        assert list(disk.of(topic).glob("*.txnindex"))
        assert len(list(disk.of(topic).glob("*.log"))) > 3
        everything = disk.same(topic, 0, end, committed=committed)
        for _ in range(15):
            start = rng.randrange(end)
            disk.same(topic, start, rng.randrange(start, end + 1), committed=committed)
        assert disk.asked == []
        assert everything.num_rows > 50
        for producer in producers:
            producer.abort_transaction()
            producer.close()


def test_an_abort_that_the_index_has_late_fails_the_task(disk: Disk, tmp_path: Path) -> None:
    """The rows are wrong then, and Spark runs the task again."""
    topic = disk.create(segment_bytes=1 << 20)
    with disk.producer(transactional_id=topic, linger_ms=0) as producer:
        producer.init_transactions()
        for commit in (True, False):
            producer.begin_transaction()
            producer.send(topic, b"x", partition=0).get(10)
            (producer.commit_transaction if commit else producer.abort_transaction)()
    disk.wait_for_markers(topic)
    copy = copied(disk.of(topic), tmp_path)
    (index,) = copy.glob("*.txnindex")
    entry = index.read_bytes()
    index.write_bytes(entry[:20])
    source = disk.source(tmp_path, read_committed=True)

    def parts(end: int) -> Any:
        task = (OffsetRange(TopicPartition(topic, 0), 0, end),)
        return segment_batches_of(source, task, SparkBatches(SCHEMA), 1, 1 << 20)

    reading = parts(4)
    assert next(reading)["offset"].to_pylist() == [0]
    index.write_bytes(entry)
    with pytest.raises(segments.TransactionIndexLateError):
        list(reading)
    assert [row for each in parts(4) for row in each["offset"].to_pylist()] == [0]
    assert [row for each in parts(2) for row in each["offset"].to_pylist()] == [0]


def compacted(disk: Disk) -> str:
    topic = disk.create(
        cleanup_policy="compact", min_cleanable_dirty_ratio=0.01, segment_bytes=5000, delete_retention_ms=0
    )
    fill(disk, topic)
    log = disk.broker.server.context.log_manager.get(TopicPartition(topic, 0))
    wait_for(lambda: log.size < 15_000)
    return topic


@pytest.mark.parametrize("committed", [False, True])
def test_compacted_topics(disk: Disk, committed: bool) -> None:
    """Gaps within segments are as they are; those between two are asked of the broker, which knows that they are."""
    topic = compacted(disk)
    rows = disk.same(topic, 0, 1500, committed=committed)
    assert 20 <= rows.num_rows < 500
    assert all(each[0].size < 1500 for each in disk.asked)
    for start in range(0, 1500, 150):
        disk.same(topic, start, 1500, committed=committed)


# --- files that change ------------------------------------------------------------------------------------------------


def test_cleaning_during_a_read(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments are replaced by smaller ones between two reads of a task: each key's last value is there."""
    monkeypatch.setattr(segments, "READ_BYTES", 600)
    topic = disk.create(cleanup_policy="compact", min_cleanable_dirty_ratio=0.01, segment_bytes=4000)
    last: dict[bytes, int] = {}
    with disk.producer() as producer:
        for number in range(3000):
            key = b"k%d" % (number % 30)
            producer.send(topic, b"%d" % number, key=key)
            last[key] = number
            if number % 1000 == 999:
                producer.flush()
                start = number - 900
                found = disk.read(topic, start, number + 1, disk.source()).to_pylist()
                offsets = [row["offset"] for row in found]
                assert offsets == sorted(set(offsets)) and start <= offsets[0] and offsets[-1] == number
                assert {key for key, at in last.items() if at >= start} <= {row["key"] for row in found}


def test_retention_during_a_read(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Acceptance 15. Files that go while they are open are read to their end; the broker says what is lost."""
    monkeypatch.setattr(segments, "READ_BYTES", 1000)
    topic = disk.create()
    fill(disk, topic)
    into = SparkBatches(SCHEMA)
    at = TopicPartition(topic, 0)
    parts = segment_batches_of(disk.source(), (OffsetRange(at, 0, 1500),), into, 50, 1 << 20)
    first = next(parts)
    assert isinstance(first, pa.RecordBatch)
    with KafkaAdminClient(bootstrap_servers=disk.broker.bootstrap_servers) as admin:
        admin.delete_records({at: 1400})
    log = disk.broker.server.context.log_manager.get(at)
    wait_for(lambda: log.segments()[0][0] > 600 and not (disk.of(topic) / f"{0:020d}.log").exists())
    rest = list(parts)
    # The files go one by one: what was still there when it was opened is read.
    asked = rest.pop()[0] if isinstance(rest[-1], tuple) else OffsetRange(at, 1500, 1500)
    rows = [*first["offset"].to_pylist(), *(row for each in rest for row in each["offset"].to_pylist())]
    assert rows == list(range(asked.start))
    assert asked.end == 1500


def test_offsets_before_the_first_segment_are_the_broker_s(disk: Disk, tmp_path: Path) -> None:
    topic = disk.create()
    fill(disk, topic)
    copy = copied(disk.of(topic), tmp_path)
    first, *_ = sorted(copy.glob("*.log"))
    first.unlink()
    disk.same(topic, 0, 1500, disk.source(tmp_path))
    assert disk.asked == [(OffsetRange(TopicPartition(topic, 0), 0, 1500),)]


def test_a_topic_that_is_made_again_is_not_taken_for_the_old_one(disk: Disk) -> None:
    topic = disk.create()
    fill(disk, topic, 100)
    old = disk.ids[topic]
    disk.broker.delete_topic(topic)
    wait_for(lambda: not disk.of(topic).exists())
    disk.ids[topic] = disk.broker.create_topic(topic, 1)
    fill(disk, topic, 80)
    disk.same(topic, 0, 80)
    assert disk.asked == []
    disk.ids[topic] = old
    disk.same(topic, 0, 80)
    assert len(disk.asked) == 1


def test_a_file_that_ends_early_is_read_on_by_the_broker(disk: Disk, tmp_path: Path) -> None:
    """Truncated anywhere, in the last segment or in one before it, as a network file system may show files."""
    topic = disk.create()
    fill(disk, topic)
    rng = random.Random(5)
    names = sorted(path.name for path in disk.of(topic).glob("*.log"))
    for turn in range(12):
        root = tmp_path / str(turn)
        copy = copied(disk.of(topic), root)
        path = copy / names[turn % len(names)]
        with path.open("r+b") as file:
            file.truncate(rng.randrange(path.stat().st_size))
        disk.same(topic, rng.choice((0, 700)), 1500, disk.source(root))
    assert disk.asked


def test_other_bytes_in_a_file(disk: Disk, tmp_path: Path) -> None:
    topic = disk.create()
    fill(disk, topic, 300)
    copy = copied(disk.of(topic), tmp_path)
    path = copy / f"{0:020d}.log"
    whole = path.read_bytes()
    for at, byte in ((16, 7), (len(whole) // 2, whole[len(whole) // 2] ^ 1)):
        path.write_bytes(whole[:at] + bytes([byte]) + whole[at + 1 :])
        disk.same(topic, 0, 300, disk.source(tmp_path, required=False))
        assert disk.asked
        with pytest.raises(IllegalArgumentError, match="readFrom=segments"):
            disk.read(topic, 0, 300, disk.source(tmp_path))


def test_without_a_directory(disk: Disk, tmp_path: Path) -> None:
    topic = disk.create()
    fill(disk, topic, 50)
    with pytest.raises(IllegalArgumentError, match="there is no directory of it in"):
        disk.read(topic, 0, 50, disk.source(tmp_path))
    disk.same(topic, 0, 50, disk.source(tmp_path, required=False))
    assert len(disk.asked) == 1
    # Directories of several brokers: the one that has the partition counts.
    disk.same(topic, 0, 50, disk.source(tmp_path, disk.directory))
    assert disk.asked == []


def test_a_directory_is_believed_when_it_does_not_change(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as a cleaned segment is being put in, segments may be missing."""
    monkeypatch.setattr(segments, "LISTING_WAIT_S", 0.001)
    topic = disk.create()
    fill(disk, topic, 100)
    swap = disk.of(topic) / f"{0:020d}.log.swap"
    swap.touch()
    disk.same(topic, 0, 100)
    assert len(disk.asked) == 1
    swap.unlink()
    disk.same(topic, 0, 100)
    assert disk.asked == []


def test_an_index_that_does_not_fit_costs_time_only(disk: Disk, tmp_path: Path) -> None:
    topic = disk.create(segment_bytes=45_000)
    fill(disk, topic)
    expected = disk.read(topic, 1100, 1200, None).to_pylist()
    copy = copied(disk.of(topic), tmp_path)
    index = copy / f"{0:020d}.index"
    whole = index.read_bytes()
    assert len(whole) > 80
    rng = random.Random(1)
    contents = [whole + bytes(800), whole[:-3], b"", rng.randbytes(len(whole)), whole[8:], bytes(len(whole))]
    contents += [bytes(byte ^ (rng.random() < 0.02) for byte in whole) for _ in range(20)]
    disk.asked.clear()
    for content in contents:
        index.write_bytes(content)
        assert disk.read(topic, 1100, 1200, disk.source(tmp_path)).to_pylist() == expected
    index.unlink()
    assert disk.read(topic, 1100, 1200, disk.source(tmp_path)).to_pylist() == expected
    assert disk.asked == []


# --- files of others --------------------------------------------------------------------------------------------------


def partition_files(directory: Path, topic: str, data: bytes, topic_id: UUID) -> None:
    path = directory / f"{topic}-0"
    path.mkdir()
    (path / f"{0:020d}.log").write_bytes(data)
    (path / "partition.metadata").write_text(f"version: 0\ntopic_id: {uuid_to_string(topic_id)}\n")


def test_old_message_formats_are_the_broker_s(tmp_path: Path) -> None:
    builder = RecordBatchBuilder(base_offset=0)
    builder.append(5, None, b"new")
    topic_id = uuid4()
    old = build_message_set([Record(1, 7, 0, None, b"old")], 1, 0)
    partition_files(tmp_path, "t", builder.build() + old, topic_id)
    source = SegmentSource((str(tmp_path),), True, {"t": topic_id})
    whole = OffsetRange(TopicPartition("t", 0), 0, 2)
    batch, asked = segment_batches_of(source, (whole,), SparkBatches(SCHEMA), 100, 1 << 20)
    assert isinstance(batch, pa.RecordBatch)
    assert batch["value"].to_pylist() == [b"new"]
    assert asked == (OffsetRange(whole.partition, 1, 2),)


@pytest.mark.parametrize("name", sorted(path.name for path in KAFKA_FILES.iterdir() if path.is_dir()))
def test_files_of_apache_kafka(name: str) -> None:
    """Written by Apache Kafka 3.9.1: codecs, transactions, compaction, old formats."""
    topic, _, number = name.rpartition("-")
    metadata = (KAFKA_FILES / name / "partition.metadata").read_text()
    source = SegmentSource(
        (str(KAFKA_FILES),), True, {topic: uuid_from_string(metadata.split("topic_id: ")[1].strip())}
    )
    data = b"".join(path.read_bytes() for path in sorted((KAFKA_FILES / name).glob("*.log")))
    records = {record.offset: record.value for record in iter_records(data)}
    end = max(records) + 1
    whole = OffsetRange(TopicPartition(topic, int(number)), min(records), end)
    found: dict[int, bytes | None] = {}
    left: list[OffsetRange] = []
    for part in segment_batches_of(source, (whole,), SparkBatches(SCHEMA), 100, 1 << 20):
        if isinstance(part, pa.RecordBatch):
            found |= dict(zip(part["offset"].to_pylist(), part["value"].to_pylist(), strict=True))
        else:
            left += part
    for each in left:
        found |= {at: value for at, value in records.items() if each.start <= at < each.end}
    assert found == records
    if "old" not in name and "v0" not in name and "v1" not in name:
        assert sum(each.size for each in left) < end / 2


def test_transactions_in_files_of_apache_kafka() -> None:
    """By its transaction indexes, against what the markers in its log say; up to the first one that is not decided."""
    directory = KAFKA_FILES / "transactions-0"
    metadata = (directory / "partition.metadata").read_text()
    ids = {"transactions": uuid_from_string(metadata.split("topic_id: ")[1].strip())}
    data = b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))
    committed: list[int] = []
    open_now: dict[int, list[int]] = {}
    aborted = 0
    for batch in iter_batches(data):
        offsets = [record.offset for record in decode_records(batch)]
        if batch.is_control:
            (marker,) = decode_records(batch)
            decided = open_now.pop(batch.producer_id, [])
            assert marker.key is not None
            if marker.key[3] == 1:
                committed += decided
            else:
                aborted += len(decided)
        elif batch.is_transactional:
            open_now.setdefault(batch.producer_id, []).extend(offsets)
        else:
            committed += offsets
        end = batch.last_offset + 1
    end = min((min(offsets) for offsets in open_now.values()), default=end)
    expected = sorted(at for at in committed if at < end)
    assert expected and aborted
    source = SegmentSource((str(KAFKA_FILES),), True, ids, read_committed=True)
    at = TopicPartition("transactions", 0)
    for start in range(end):
        parts = segment_batches_of(source, (OffsetRange(at, start, end),), SparkBatches(SCHEMA), 100, 1 << 20)
        found = [row for each in parts if isinstance(each, pa.RecordBatch) for row in each["offset"].to_pylist()]
        assert found == [at for at in expected if at >= start]


# --- from options to rows ---------------------------------------------------------------------------------------------


def options(disk: Disk, topic: str, **more: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": disk.broker.bootstrap_servers,
        "subscribe": topic,
        "readFrom": "segments",
        "segments.path": f"/nowhere, {disk.directory}",
    } | {name.replace("__", "."): value for name, value in more.items()}


def columns(*names: str) -> Any:
    from kafkapy_spark.schema import SCHEMA
    from pyspark.sql.types import StructType

    return StructType([SCHEMA[name] for name in names])


def test_a_batch_read_plans_and_reads_files(disk: Disk) -> None:
    pytest.importorskip("pyspark")
    from kafkapy_spark.options import SourceOptions
    from kafkapy_spark.reader import KafkapyReader

    topic = disk.create(2)
    fill(disk, topic)
    parsed = SourceOptions.parse(options(disk, topic, maxTasks="3", rowsPerTask="100"), streaming=False)
    reader = KafkapyReader(parsed, columns("partition", "offset"))
    tasks = reader.partitions()
    assert len(tasks) == 3
    rows = [row for task in tasks for batch in reader.read(task) for row in batch.to_pylist()]
    by_partition = [[row["offset"] for row in rows if row["partition"] == number] for number in (0, 1)]
    assert [len(each) for each in by_partition] == [each[-1] + 1 for each in by_partition]
    assert len(rows) == 1500
    assert disk.asked == []


def test_what_is_undecided_is_read_from_the_broker(disk: Disk) -> None:
    """A batch of a checkpoint may have been planned for read_uncommitted: its end is then one to wait for."""
    pytest.importorskip("pyspark")
    from kafkapy_spark.options import SourceOptions
    from kafkapy_spark.stream_reader import KafkapyStreamReader

    topic = disk.create()
    fill(disk, topic, 10)
    given = options(disk, topic, kafka__isolation__level="read_committed")
    reader = KafkapyStreamReader(SourceOptions.parse(given, streaming=True), columns("offset"))
    with disk.producer(transactional_id=topic, linger_ms=0) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"open").get(10)
        (decided,) = reader.partitions({topic: {"0": 0}}, {topic: {"0": 10}})
        assert decided.topic_ids == {topic: disk.ids[topic]}
        (undecided,) = reader.partitions({topic: {"0": 0}}, {topic: {"0": 11}})
        assert undecided.topic_ids == {}
        producer.abort_transaction()
    disk.wait_for_markers(topic)
    (decided,) = reader.partitions({topic: {"0": 0}}, {topic: {"0": 11}})
    assert [row for batch in reader.read(decided) for row in batch["offset"].to_pylist()] == list(range(10))
    assert disk.asked == []
    reader.stop()


def test_large_records_are_shared_among_more_tasks(disk: Disk) -> None:
    """By what the broker says of its logs, once a minute."""
    pytest.importorskip("pyspark")
    from kafkapy_spark.options import SourceOptions
    from kafkapy_spark.stream_reader import KafkapyStreamReader

    small, large = disk.create(), disk.create(segment_bytes=10 << 20)
    fill(disk, small, 300)
    with disk.producer(max_request_size=10 << 20) as producer:
        for _ in range(100):
            producer.send(large, bytes(20_000))
    given = options(disk, f"{small},{large}", bytesPerTask=str(500_000), maxTasks="20")
    reader = KafkapyStreamReader(SourceOptions.parse(given, streaming=True), columns("offset"))
    end = {small: {"0": 300}, large: {"0": 100}}
    tasks = reader.partitions({small: {"0": 0}, large: {"0": 0}}, end)
    assert 4 <= len(tasks) <= 6
    sizes = [sum(each.size for each in task.task if each.partition.topic == large) for task in tasks]
    assert sum(sizes) == 100 and max(sizes) <= 26
    reader.stop()


def test_where_sizes_are_not_told_offsets_count(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """To users without the right to describe the cluster; the question is not put again for a while."""
    pytest.importorskip("pyspark")
    from kafkapy_spark import offset_reader
    from kafkapy_spark.options import SourceOptions
    from kafkapy_spark.stream_reader import KafkapyStreamReader

    topic = disk.create()
    fill(disk, topic, 100)
    refused = []

    def refuse(self: Any, partitions: Any) -> Any:
        refused.append(partitions)
        raise ClusterAuthorizationFailedError("no")

    monkeypatch.setattr(offset_reader._Lister, "log_bytes", refuse)
    given = options(disk, topic, bytesPerTask="100", maxTasks="20", rowsPerTask="50")
    reader = KafkapyStreamReader(SourceOptions.parse(given, streaming=True), columns("offset"))
    for _ in range(3):
        assert len(reader.partitions({topic: {"0": 0}}, {topic: {"0": 100}})) == 2
    assert len(refused) == 1
    reader.stop()


@pytest.mark.spark
def test_spark_reads_files_in_batches_and_streams(disk: Disk, spark: Any, tmp_path: Path) -> None:
    topic = disk.create(3)
    fill(disk, topic)
    given = options(disk, topic, startingOffsets="earliest")
    frame = spark.read.format("kafkapy").options(**given).load()
    broker = spark.read.format("kafkapy").options(**given | {"readFrom": "broker"}).load()
    names = ["partition", "offset", "key", "value", "timestamp", "timestampType", "topic"]
    assert sorted(frame.select(names).collect()) == sorted(broker.select(names).collect())
    assert frame.count() == 1500
    query = (
        spark.readStream.format("kafkapy")
        .options(**given | {"maxOffsetsPerTrigger": "400"})
        .load()
        .writeStream.format("parquet")
        .option("path", str(tmp_path / "out"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert query.exception() is None
    assert spark.read.parquet(str(tmp_path / "out")).select("partition", "offset").distinct().count() == 1500
