"""archive on a real broker, and on Spark where that matters: what is in the archive is what is in the topic, each
record once, whatever is killed."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

import archive_run
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
from click.testing import CliRunner
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ConfluentPartition
from kafkapy_spark.cli import main
from kafkapy_spark.data_loss import DataLossError
from kafkapy_spark.jobs.archive import archive
from kafkapy_spark.jobs.archive_delta import DeltaArchive
from kafkapy_spark.jobs.archive_destination import OtherRunError
from kafkapy_spark.jobs.archive_iceberg import IcebergArchive
from kafkapy_spark.schema import source_schema
from kafkapy_spark.spark_batches import SparkBatches

from kafkapy import KafkaAdminClient, KafkaProducer
from kafkapy.errors import IllegalArgumentError
from kafkapy.types import TopicPartition

pytestmark = pytest.mark.spark

START_MS = 1_793_534_400_000
"""2026-11-01T12:00Z"""
COLUMNS = ("partition", "offset", "key", "value", "timestamp", "headers")
Row = tuple[Any, ...]


@pytest.fixture
def fill(producer: KafkaProducer) -> Callable[..., None]:
    """Sends records of several hours: fill(topic, count, partitions)."""
    sent: dict[str, int] = {}

    def run(topic: str, count: int, partitions: int = 3) -> None:
        first = sent.get(topic, 0)
        futures = [
            producer.send(
                topic,
                b"value %d" % number if number % 7 else None,
                key=b"k%d" % (number % 11) if number % 5 else None,
                headers=[("h", b"%d" % number), ("none", None)] if number % 3 == 0 else None,
                partition=number % partitions,
                timestamp_ms=START_MS + number % 5 * 1_800_000,
            )
            for number in range(first, first + count)
        ]
        for future in futures:
            future.get(60)
        sent[topic] = first + count

    return run


@pytest.fixture
def catalog(tmp_path: Path) -> dict[str, str]:
    """Properties of an Iceberg catalog with the namespace ns."""
    pyiceberg = pytest.importorskip("pyiceberg.catalog")
    properties = {
        "name": "test", "type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/wh",
    }  # fmt: skip
    pyiceberg.load_catalog(**properties).create_namespace("ns")
    return properties


def in_topic(broker: Any, topic: str) -> list[Row]:
    """What another client reads."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "archive-test"})
    try:
        rows: list[Row] = []
        for number in consumer.list_topics(topic).topics[topic].partitions:
            first, last = consumer.get_watermark_offsets(ConfluentPartition(topic, number))
            consumer.assign([ConfluentPartition(topic, number, first)])
            position = first
            while position < last:
                for message in consumer.consume(last - position, timeout=10):
                    assert message.error() is None, message.error()
                    position = message.offset() + 1
                    rows.append(
                        (
                            number,
                            message.offset(),
                            message.key(),
                            message.value(),
                            message.timestamp()[1] * 1000,
                            message.headers(),
                        )
                    )
        return sorted(rows, key=lambda row: row[:2])
    finally:
        consumer.close()


def rows_of(table: pa.Table) -> list[Row]:
    """The same of an archive's table. No headers are null or, as pyiceberg reads them, an empty list."""
    table = table.set_column(
        table.schema.get_field_index("timestamp"), "timestamp", table["timestamp"].cast(pa.int64())
    )
    return sorted(
        (
            (*row[:5], [(each["key"], each["value"]) for each in row[5]] if row[5] else None)
            for row in zip(*(table[name].to_pylist() for name in COLUMNS), strict=True)
        ),
        key=lambda row: row[:2],
    )


class Place:
    """An archive in one format, and how others read it."""

    def __init__(self, form: str, directory: Path, catalog: dict[str, str] | None) -> None:
        self.format = form
        self.destination = "ns.archive" if form == "iceberg" else str(directory / "archive")
        self.options: dict[str, Any] = {"format": form} | ({"catalog": catalog} if form == "iceberg" else {})

    def table(self) -> pa.Table:
        if self.format == "delta":
            import deltalake

            if not deltalake.DeltaTable.is_deltatable(self.destination):
                return source_table()
            return deltalake.DeltaTable(self.destination).to_pyarrow_table()
        if self.format == "iceberg":
            from pyiceberg.catalog import load_catalog

            loaded = load_catalog(**self.options["catalog"])
            if not loaded.table_exists(self.destination):
                return source_table()
            return loaded.load_table(self.destination).scan().to_arrow()
        if not Path(self.destination).is_dir():
            return source_table()
        return pa.dataset.dataset(self.destination, source_table().schema, "parquet").to_table()

    def rows(self) -> list[Row]:
        return rows_of(self.table())


def source_table() -> pa.Table:
    """No rows of the columns that an archive has."""
    return SparkBatches(source_schema(True).json()).schema.empty_table()


@pytest.fixture(params=["parquet", "delta", "iceberg"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "delta":
        pytest.importorskip("deltalake")
    return Place(request.param, tmp_path, request.getfixturevalue("catalog") if request.param == "iceberg" else None)


@pytest.fixture(scope="module")
def processes() -> Any:
    """Processes that start fast: they are forked from one that has imported what they need."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pyarrow.dataset", "pyspark.sql.types", "kafkapy_spark.jobs.archive_arrow"])
    return context


@pytest.fixture
def run(broker: Any, tmp_path: Path, processes: Any) -> Callable[..., dict[str, Any] | None]:
    """archive_run in a process: run(topic, place, kill=..., ...). The summary, or None when it has killed itself."""

    def start(topic: str, place: Place, **arguments: Any) -> dict[str, Any] | None:
        given = {
            "topics": topic, "destination": place.destination, "kafka": {"bootstrap.servers": broker.bootstrap_servers},
            "spark": False, "kill": None, **place.options, **arguments,
        }  # fmt: skip
        summary = tmp_path / "summary.json"
        child = processes.Process(target=archive_run.run, args=(given, summary))
        child.start()
        child.join(240)
        if child.exitcode == -signal.SIGKILL:
            return None
        assert child.exitcode == 0
        found: dict[str, Any] = json.loads(summary.read_text())
        return found

    return start


def kafka(broker: Any) -> dict[str, str]:
    return {"bootstrap.servers": broker.bootstrap_servers}


# --- on Spark ---------------------------------------------------------------------------------------------------------


def test_each_run_goes_on_where_the_last_one_ended(
    spark: Any, broker: Any, topic: Callable[..., str], fill: Callable[..., None], place: Place
) -> None:
    """All columns, in all formats, as others read them; tasks on Spark's executors."""
    name = topic(3)
    fill(name, 500)
    first = archive(
        spark, name, place.destination, kafka=kafka(broker), target_file_bytes=10_000, rows_per_commit=200,
        **place.options,
    )  # fmt: skip
    assert place.rows() == in_topic(broker, name)
    assert (first.rows, first.commits) == (500, 3) and first.files and first.files >= 6
    assert first.bytes == sum(len(row[2] or b"") + len(row[3] or b"") for row in place.rows())
    assert first.offsets == {name: {"0": 167, "1": 167, "2": 166}}
    nothing = archive(spark, name, place.destination, kafka=kafka(broker), **place.options)
    assert (nothing.rows, nothing.commits, nothing.files, nothing.offsets) == (0, 0, 0, first.offsets)
    fill(name, 70)
    more = archive(spark, name, place.destination, kafka=kafka(broker), layout="hourly", **place.options)
    assert more.rows == 70 and place.rows() == in_topic(broker, name)


def test_spark_reads_the_directory_by_period(
    spark: Any, broker: Any, topic: Callable[..., str], fill: Callable[..., None], tmp_path: Path
) -> None:
    name = topic(3)
    fill(name, 100)
    archive(spark, name, str(tmp_path / "a"), kafka=kafka(broker))
    frame = spark.read.parquet(str(tmp_path / "a"))
    assert dict(frame.dtypes)["date"] == "date" and dict(frame.dtypes)["hour"] == "int"
    assert frame.where("hour <> hour(timestamp) or date <> to_date(timestamp)").count() == 0
    assert [row.hour for row in frame.select("hour").distinct().orderBy("hour").collect()] == [12, 13, 14]
    assert frame.where("date = '2026-11-01' and hour = 13").count() == 40
    assert frame.count() == 100


@pytest.mark.parametrize("layout", ["hourly", "none"])
def test_the_engine_of_spark(
    spark: Any, broker: Any, topic: Callable[..., str], fill: Callable[..., None], tmp_path: Path, layout: str
) -> None:
    """A streaming query with AvailableNow; its tasks' rows are exchanged, so that there is a file for a period."""
    name = topic(3)
    fill(name, 300)
    before = spark.conf.get("spark.sql.parquet.outputTimestampType")
    path = str(tmp_path / "a")
    options: dict[str, Any] = {"kafka": kafka(broker), "engine": "spark", "layout": layout}
    summary = archive(spark, name, path, **options)
    table = pa.dataset.dataset(path, source_table().schema, "parquet").to_table()
    assert rows_of(table) == in_topic(broker, name)
    assert (summary.rows, summary.commits, summary.engine) == (300, 1, "spark")
    assert summary.bytes == sum(len(row[2] or b"") + len(row[3] or b"") for row in rows_of(table))
    # The first batch pins the start: where there are no periods, Spark writes a file without rows for it.
    filled = [each for each in Path(path).rglob("*.parquet") if pyarrow.parquet.read_metadata(each).num_rows]
    assert len(filled) == (3 if layout == "hourly" else 1)
    assert spark.conf.get("spark.sql.parquet.outputTimestampType") == before
    fill(name, 30)
    assert archive(spark, name, path, **options).rows == 30
    assert spark.read.parquet(path).select("partition", "offset").distinct().count() == 330
    with pytest.raises(IllegalArgumentError, match="Spark's own file sink"):
        archive(spark, name, path, kafka=kafka(broker))


def test_formats_that_the_session_has_not(spark: Any, broker: Any, topic: Callable[..., str], tmp_path: Path) -> None:
    given = {"kafka": kafka(broker), "engine": "spark", "checkpoint": str(tmp_path / "c")}
    version = ".".join(spark.version.split(".")[:2])
    jars = {
        "delta": f"io.delta:delta-spark_{version}_2.13",
        "iceberg": f"org.apache.iceberg:iceberg-spark-runtime-{version}_2.13",
    }
    for name, jar in jars.items():
        expected = f"The session has no {name}: start Spark with spark.jars.packages={jar}:RELEASE and "
        with pytest.raises(IllegalArgumentError, match=re.escape(expected)):
            archive(spark, topic(), str(tmp_path / "a"), format=name, **given)


def test_the_command(
    spark: Any, broker: Any, topic: Callable[..., str], fill: Callable[..., None], tmp_path: Path
) -> None:
    name = topic(3)
    fill(name, 50)
    result = CliRunner().invoke(
        main,
        ["archive", name, str(tmp_path / "a"), "-b", broker.bootstrap_servers, "--json", "--layout", "daily",
         "--schema", "value string, offset bigint, timestamp timestamp", "--file-size", "1MB"],
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    assert (summary["job"], summary["rows"], summary["files"]) == ("archive", 50, 1)
    ((path,),) = [[*(tmp_path / "a" / "date=2026-11-01").iterdir()]]
    assert pa.parquet.read_schema(path).names == ["value", "offset", "timestamp"]
    again = CliRunner().invoke(main, ["archive", name, str(tmp_path / "a"), "-b", broker.bootstrap_servers])
    assert again.exit_code == 0 and "files" in again.output, again.output
    wrong = CliRunner().invoke(
        main, ["archive", name, str(tmp_path / "b"), "-b", broker.bootstrap_servers, "--schema", "value string"]
    )
    assert wrong.exit_code == 1 and "needs the column timestamp" in wrong.output, wrong.output


# --- kills ------------------------------------------------------------------------------------------------------------


def test_kills_at_every_step(
    broker: Any,
    topic: Callable[..., str],
    fill: Callable[..., None],
    place: Place,
    run: Callable[..., dict[str, Any] | None],
) -> None:
    """One archive, whose runs are killed one after the other, each in another step. At any time it has some of the
    topic's records, none twice and none that was not sent; in the end it has all."""
    name = topic(3)
    fill(name, 900)
    expected = in_topic(broker, name)
    steps = [("task", 2), ("decide", 2), ("committed", 2), ("task", 1), ("committed", 1), ("decide", 1)]
    if place.format == "parquet":
        # The first commit of each run fences others and has no files; that of a first run has its start.
        steps += [("decided", 1), ("decided", 2), ("moved", 1), ("moved", 3)]
    seen = 0
    for step in steps:
        assert run(name, place, kill=step, rows_per_commit=90, target_file_bytes=2000) is None, step
        found = place.rows()
        keys = [row[:2] for row in found]
        assert len(set(keys)) == len(keys), step
        assert set(keys) <= {row[:2] for row in expected}, step
        assert len(found) >= seen or place.format == "parquet", step
        seen = len(found)
    assert 0 < seen < 900
    done = run(name, place, rows_per_commit=90)
    assert place.rows() == expected
    assert done is not None and done["rows"] <= 900 - seen
    if place.format == "parquet":
        assert not [*Path(place.destination, "_kafkapy", "staging").iterdir()]


def test_a_driver_with_spark_is_killed(
    spark: Any,
    broker: Any,
    topic: Callable[..., str],
    fill: Callable[..., None],
    tmp_path: Path,
    run: Callable[..., dict[str, Any] | None],
) -> None:
    """The engine arrow, tasks on executors; the run that goes on is another session's."""
    name = topic(3)
    fill(name, 600)
    place = Place("parquet", tmp_path, None)
    assert run(name, place, spark=True, kill=("decided", 4), rows_per_commit=200, target_file_bytes=5000) is None
    first = len(place.rows())
    assert 190 <= first <= 200  # the second round's commit was decided, and is not in place yet
    done = archive(spark, name, place.destination, kafka=kafka(broker))
    assert done.rows == 600 - 2 * first and place.rows() == in_topic(broker, name)


@pytest.mark.soak
def test_a_query_of_sparks_is_killed(
    spark: Any, broker: Any, topic: Callable[..., str], fill: Callable[..., None], tmp_path: Path
) -> None:
    """The engine spark: killed as soon as there is a file."""
    name = topic(3)
    fill(name, 3000)
    path = tmp_path / "archive"
    options = {"kafka": kafka(broker), "engine": "spark", "rows_per_commit": 300}
    given = {"topics": name, "destination": str(path), "spark": True, "kill": None, **options}
    script = Path(__file__).with_name("archive_run.py")
    child = subprocess.Popen(
        [sys.executable, str(script), json.dumps(given)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 270
        while not (files := [*path.rglob("*.parquet")]) and time.monotonic() < deadline and child.poll() is None:
            time.sleep(0.01)
        assert child.poll() is None and files
        # The driver's JVM, which runs the query, is a child of the driver.
        virtual_machines = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
        for pid in (child.pid, *map(int, virtual_machines)):
            os.kill(pid, signal.SIGKILL)
    finally:
        child.kill()
        child.wait()
    summary = archive(spark, name, str(path), **options)
    assert 0 < summary.rows <= 3000
    rows = spark.read.parquet(str(path)).select("partition", "offset").collect()
    assert sorted(map(tuple, rows)) == [row[:2] for row in in_topic(broker, name)]


# --- what goes wrong --------------------------------------------------------------------------------------------------


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks run in this process, without a session."""
    from kafkapy_spark.jobs import archive_arrow
    from kafkapy_spark.jobs.archive_writer import write_task

    monkeypatch.setattr(
        archive_arrow,
        "_run",
        lambda _, plan, tasks: [write_task(plan, number, task) for number, task in enumerate(tasks)],
    )


@pytest.mark.usefixtures("here")
def test_the_start_of_the_first_run_stays(
    broker: Any, topic: Callable[..., str], fill: Callable[..., None], place: Place
) -> None:
    """A first run that starts at the end finds nothing, and the next one what has come since."""
    name = topic(3)
    fill(name, 90)
    options = {"kafka": kafka(broker), **place.options, "options": {"startingTimestamp": str(START_MS + 10_000_000),
               "startingOffsetsByTimestampStrategy": "latest"}}  # fmt: skip
    assert archive(None, name, place.destination, **options).rows == 0
    assert place.rows() == []
    fill(name, 30)
    assert archive(None, name, place.destination, **options).rows == 30
    assert [row[:2] for row in place.rows()] == [(number, 30 + each) for number in range(3) for each in range(10)]


@pytest.mark.usefixtures("here")
def test_records_that_are_gone(
    broker: Any, topic: Callable[..., str], fill: Callable[..., None], tmp_path: Path
) -> None:
    """Deleted before they were archived, or with their topic: an error, or with failOnDataLoss=false a warning."""
    name = topic(1)
    fill(name, 50, 1)
    path, options = str(tmp_path / "a"), {"kafka": kafka(broker)}
    assert archive(None, name, path, **options).rows == 50
    fill(name, 50, 1)
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.delete_records({TopicPartition(name, 0): 70})
    with pytest.raises(DataLossError, match="archived up to offset 50, and starts at 70"):
        archive(None, name, path, **options)
    assert archive(None, name, path, **options, options={"failOnDataLoss": "false"}).rows == 30
    broker.delete_topic(name)
    broker.create_topic(name, 1, {})
    fill(name, 150, 1)
    with pytest.raises(DataLossError, match="deleted and created again"):
        archive(None, name, path, **options)
    assert archive(None, name, path, **options, options={"failOnDataLoss": "false"}).rows == 150
    assert archive(None, name, path, **options).rows == 0


@pytest.mark.usefixtures("here")
def test_topics_and_partitions_that_are_added(
    broker: Any, topic: Callable[..., str], fill: Callable[..., None], place: Place
) -> None:
    """They are archived from their first record on."""
    one, other = topic(1), topic(1)
    fill(one, 40, 1)
    fill(other, 20, 1)
    assert archive(None, one, place.destination, kafka=kafka(broker), **place.options).rows == 40
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_partitions({one: 3})
    fill(one, 30, 3)
    both = archive(None, f"{one},{other}", place.destination, kafka=kafka(broker), **place.options)
    assert both.rows == 50 and both.offsets[one].keys() == {"0", "1", "2"}
    assert sorted(place.table()["topic"].to_pylist()) == sorted([one] * 70 + [other] * 20)


@pytest.mark.usefixtures("here")
def test_of_two_runs_at_a_time_one_commits(
    broker: Any, topic: Callable[..., str], fill: Callable[..., None], place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One begins while the other has written its files."""
    from kafkapy_spark.jobs import archive_arrow

    name = topic(3)
    fill(name, 60)
    run_tasks = archive_arrow._run
    inner: list[int] = []

    def with_another(*arguments: Any) -> Any:
        files = run_tasks(*arguments)
        if not inner:
            inner.append(0)
            inner[0] = archive(None, name, place.destination, kafka=kafka(broker), **place.options).rows
        return files

    monkeypatch.setattr(archive_arrow, "_run", with_another)
    with pytest.raises(OtherRunError):
        archive(None, name, place.destination, kafka=kafka(broker), **place.options)
    assert inner == [60] and place.rows() == in_topic(broker, name)


@pytest.mark.parametrize("place", ["delta", "iceberg"], indirect=True)
@pytest.mark.usefixtures("here")
def test_others_may_change_the_table(
    broker: Any, topic: Callable[..., str], fill: Callable[..., None], place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit of somebody else's between two of ours, and at the same time as one, is no other run."""
    name = topic(3)
    fill(name, 60)
    options: dict[str, Any] = {"kafka": kafka(broker), "layout": "none", **place.options}
    archive(None, name, place.destination, **options)

    def write_once(commit: Any) -> Any:
        def run(self: Any, *arguments: Any) -> Any:
            if not done:
                done.append(True)
                append(place, 1)
            return commit(self, *arguments)

        return run

    done: list[bool] = []
    if place.format == "delta":
        monkeypatch.setattr(DeltaArchive, "_add", write_once(DeltaArchive._add))
    else:
        monkeypatch.setattr(IcebergArchive, "_commit_on", write_once(IcebergArchive._commit_on))
    fill(name, 30)
    assert archive(None, name, place.destination, **options).rows == 30
    append(place, 2)
    fill(name, 30)
    assert archive(None, name, place.destination, **options).rows == 30
    assert done and len(place.rows()) == 122


def append(place: Place, offset: int) -> None:
    """A row that is not ours."""
    row = dict.fromkeys(source_table().schema.names) | {"topic": "x", "partition": 0, "offset": offset}
    table = pa.Table.from_pylist([row], source_table().schema)
    if place.format == "delta":
        import deltalake

        deltalake.write_deltalake(place.destination, table, mode="append")
    else:
        from pyiceberg.catalog import load_catalog

        load_catalog(**place.options["catalog"]).load_table(place.destination).append(table)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "flink"}, "The engine is flink; it can be arrow, spark"),
        ({"format": "csv"}, "The format is csv"),
        ({"layout": "weekly"}, "The layout is weekly"),
        ({"schema": "value string"}, "The layout hourly needs the column timestamp"),
        ({"schema": "valeu string"}, "valeu"),
        ({"checkpoint": "/c"}, "takes no checkpoint"),
        ({"engine": "spark", "format": "iceberg"}, "needs a checkpoint"),
    ],
)
def test_what_is_refused(spark: Any, broker: Any, tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(IllegalArgumentError, match=message):
        archive(spark, "t", str(tmp_path / "a"), kafka=kafka(broker), **options)
    assert not (tmp_path / "a").exists()
