"""configure, read, alias_kafka and foreach_batch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

PLUGIN = Path(__file__).parents[1]


class Noted:
    """Stands for a reader or a micro-batch and its writer, and notes what it is told."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.write = self

    def __getattr__(self, name: str) -> Any:
        def call(*values: Any, **options: Any) -> Noted:
            self.calls.append((name, *values, options) if options else (name, *values))
            return self

        return call


@pytest.mark.parametrize(
    ("given", "options"),
    [
        ({"topic": "t", "n": 1}, {"topic": "t", "n": "1"}),
        ({"txnAppId": "a"}, {"txnAppId": "a", "txnVersion": "7", "ignoreSinkState": "false"}),
        ({"txnappid": "a", "TXNVERSION": 3}, {"txnappid": "a", "TXNVERSION": "3"}),
    ],
)
def test_a_micro_batch_is_written_with_its_number(given: dict[str, Any], options: dict[str, str]) -> None:
    pytest.importorskip("pyspark")
    from kafkapy_spark import foreach_batch

    batch = Noted()
    foreach_batch(given)(batch, 7)  # type: ignore[arg-type]
    assert batch.calls == [("format", "kafkapy"), ("mode", "append"), ("options", options), ("save",)]


def test_settings_come_before_the_users_own() -> None:
    sql = pytest.importorskip("pyspark.sql")
    from kafkapy_spark import configure

    builder = configure(sql.SparkSession.Builder()).config("spark.sql.python.filterPushdown.enabled", "false")
    assert builder._options["spark.python.unix.domain.socket.enabled"] == "true"
    assert builder._options["spark.sql.python.filterPushdown.enabled"] == "false"


def test_the_size_of_arrow_batches_is_left_alone_unless_rows_are_small() -> None:
    sql = pytest.importorskip("pyspark.sql")
    from kafkapy_spark import configure

    key = "spark.sql.execution.arrow.maxBytesPerBatch"
    assert key not in configure(sql.SparkSession.Builder())._options
    small = configure(sql.SparkSession.Builder(), small_rows=True)._options
    assert int(small[key]) == 2**31 - 1
    assert small["spark.python.unix.domain.socket.enabled"] == "true"


@pytest.mark.spark
def test_small_rows_are_all_written(spark: Any, broker: Any, topic: Any) -> None:
    from kafkapy_spark import read
    from kafkapy_spark.session import SMALL_ROWS

    before = {key: spark.conf.get(key) for key in SMALL_ROWS}
    try:
        for key, value in SMALL_ROWS.items():
            spark.conf.set(key, value)
        rows = spark.range(25_000).selectExpr("cast(id as string) as value")
        name, servers = topic(2), broker.bootstrap_servers
        options = {"kafka.bootstrap.servers": servers, "topic": name}
        rows.write.format("kafkapy").mode("append").options(**options).save()
        found = read(spark, servers, name, schema="value string").selectExpr("cast(value as long) as id")
        assert found.selectExpr("count(id)", "count(distinct id)", "max(id)").first()[:] == (25_000, 25_000, 24_999)
    finally:
        for key, value in before.items():
            spark.conf.set(key, value)


@pytest.mark.parametrize("streaming", [False, True])
def test_a_read_has_as_many_tasks_as_run_at_a_time(streaming: bool) -> None:
    pytest.importorskip("pyspark")
    from kafkapy_spark import read, read_stream

    start = read_stream if streaming else read
    spark, reader = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=12)), Noted()
    spark.read = spark.readStream = reader
    start(spark, "h:1", ["a", "b"], schema="value string", options={"failOnDataLoss": False})  # type: ignore[arg-type]
    options = {"kafka.bootstrap.servers": "h:1", "subscribe": "a,b", "failOnDataLoss": False, "maxTasks": 12}
    assert reader.calls == [("schema", "value string"), ("format", "kafkapy"), ("options", options), ("load",)]
    reader.calls.clear()
    start(spark, "h:1", "a", options={"maxtasks": 3})  # type: ignore[arg-type]
    options = {"kafka.bootstrap.servers": "h:1", "subscribe": "a", "maxtasks": 3}
    assert reader.calls == [("format", "kafkapy"), ("options", options), ("load",)]


@pytest.mark.spark
def test_read(spark: Any, broker: Any, topic: Any, send: Any) -> None:
    from kafkapy_spark import read

    one, other = topic(2), topic(1)
    send(one, [b"1"], 1)
    send(other, [b"x"])
    frame = read(spark, broker.bootstrap_servers, [one, other], schema="value string, topic string")
    assert sorted(row.value for row in frame.collect()) == ["1", "x"]


@pytest.mark.spark
def test_programs_for_format_kafka_run_as_they_are(
    spark: Any, broker: Any, topic: Any, records: Any, tmp_path: Path
) -> None:
    from kafkapy_spark import alias_kafka
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    name, copy = topic(1), topic(1)
    rows = spark.range(3).selectExpr("CAST(id AS STRING) AS value", "TIMESTAMP '2001-01-01' AS timestamp")
    servers = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    methods = [(type(each), "format") for each in (spark.read, rows.write, spark.readStream)]
    methods += [(DataStreamWriter, "format"), (type(rows.write), "mode")]
    originals = [getattr(kind, method) for kind, method in methods]
    with alias_kafka(spark) as alias:
        assert all(getattr(kind, method) not in originals for kind, method in methods)
        assert alias_kafka(spark) is alias
        rows.write.format("kafka").options(topic=name, **servers).save()
        rows.write.mode("error").format("KAFKA").options(topic=name, **servers).mode("errorifexists").save()
        rows.write.save(format="kafka", topic=name, **servers)
        rows.drop("timestamp").write.options(topic=name, **servers).format("kafkapy").save()
        with pytest.raises(Exception, match="Save mode Overwrite not allowed for Kafka"):
            rows.write.mode("overwrite").format("kafka").options(topic=name, **servers).save()
        found = spark.read.format("kafka").option("subscribe", name).options(**servers).load()
        assert sorted(row.value for row in found.collect()) == sorted([b"0", b"1", b"2"] * 4)
        assert all(row[4] > 1_500_000_000_000 for row in records(name)), "a column timestamp is not looked at"
        stream = spark.readStream.format("kafka").options(subscribe=name, startingOffsets="earliest", **servers).load()
        writer = stream.writeStream.format("kafka").options(topic=copy, checkpointLocation=str(tmp_path), **servers)
        writer.trigger(availableNow=True).start().awaitTermination()
        assert len(records(copy)) == 12
        # What is written elsewhere is written as ever.
        path = str(tmp_path / "parquet")
        rows.write.format("parquet").save(path)
        for writer in (rows.write.format("parquet"), rows.write.format("kafka").format("parquet")):
            with pytest.raises(Exception, match="PATH_ALREADY_EXISTS"):
                writer.save(path)
    assert [getattr(kind, method) for kind, method in methods] == originals
    with pytest.raises(Exception, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
        rows.write.format("kafkapy").options(topic=name, **servers).save()
    with alias_kafka(spark):
        rows.write.format("kafka").options(topic=copy, **servers).save()
    assert len(records(copy)) == 15


LOCAL_SESSION = """
import sys
from pyspark.sql import SparkSession
import kafkapy_spark

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = kafkapy_spark.configure(builder).getOrCreate()
reader = spark.read.format("kafkapy").schema("value binary")
reader.option("kafka.bootstrap.servers", "127.0.0.1:1").option("subscribe", "t").load()
workers = spark.sparkContext.parallelize([0], 1).map(lambda _: __import__("sys").executable).collect()
print(workers == [sys.executable])
"""


def test_a_local_session_runs_this_python_where_the_path_has_another(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    other = tmp_path / "python3"
    other.write_text("#!/bin/sh\nexit 1\n")
    other.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    environment |= {"PATH": f"{tmp_path}:{environment['PATH']}", "PYTHONPATH": f"{PLUGIN}:{PLUGIN.parents[1]}"}
    done = subprocess.run(
        [sys.executable, "-c", LOCAL_SESSION], env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.stdout.strip() == "True", done.stderr


def test_a_session_elsewhere_keeps_its_python(monkeypatch: pytest.MonkeyPatch) -> None:
    sql = pytest.importorskip("pyspark.sql")
    from kafkapy_spark import configure

    monkeypatch.setenv("PYSPARK_PYTHON", "")
    monkeypatch.delenv("PYSPARK_PYTHON")
    configure(sql.SparkSession.Builder().master("spark://there:7077"))
    assert "PYSPARK_PYTHON" not in os.environ
    monkeypatch.setenv("PYSPARK_PYTHON", "mine")
    configure(sql.SparkSession.Builder().master("local"))
    assert os.environ["PYSPARK_PYTHON"] == "mine"
