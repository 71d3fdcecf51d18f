"""`archive` by the engine spark into a Delta table, with a Spark that Delta has a jar for (`make test-spark-tables`).

Iceberg has no runtime for a Spark that has what the connector needs: the newest is for Spark 4.1.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kafkapy_spark.jobs.archive import archive

from kafkapy import KafkaProducer, testing

DELTA = "io.delta:delta-spark_4.2_2.13:4.4.0"

pytestmark = [
    pytest.mark.skipif(not os.environ.get("KAFKAPY_SPARK_TABLES"), reason="run by make test-spark-tables"),
    pytest.mark.timeout(0),  # the first run downloads the jar
]


@pytest.fixture(scope="module")
def delta(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session with Delta's jar, from Maven Central."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .config("spark.jars.packages", DELTA)
        .config("spark.databricks.delta.snapshotPartitions", "1")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


def test_a_delta_table(
    delta: Any, broker: testing.Broker, producer: KafkaProducer, topic: Callable[..., str], tmp_path: Path
) -> None:
    """Read back by deltalake, which is not Spark: each record once, also after a second run."""
    from deltalake import DeltaTable

    name = topic(2)

    def fill(first: int, last: int) -> None:
        for number in range(first, last):
            producer.send(name, b"%d" % number, partition=number % 2)
        producer.flush()

    path = str(tmp_path / "orders")
    options: dict[str, Any] = {
        "kafka": {"bootstrap.servers": broker.bootstrap_servers},
        "engine": "spark",
        "format": "delta",
        "checkpoint": str(tmp_path / "checkpoint"),
    }

    def stored() -> list[int]:
        return sorted(int(row["value"]) for row in DeltaTable(path).to_pyarrow_table(columns=["value"]).to_pylist())

    fill(0, 200)
    assert archive(delta, name, path, **options).rows == 200
    assert stored() == list(range(200))
    fill(200, 230)
    assert archive(delta, name, path, **options).rows == 30
    assert stored() == list(range(230))
    assert delta.read.format("delta").load(path).count() == 230
