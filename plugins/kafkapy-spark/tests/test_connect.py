"""The format under Spark Connect, whose client has no SparkContext. In a process of its own: one process has one of the
two kinds of session."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

CLIENT = """
import json, os, sys, warnings
warnings.simplefilter("ignore")
os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession
bootstrap, topic, directory = sys.argv[1:]
os.chdir(directory)
spark = SparkSession.builder.remote("local[2]").getOrCreate()
options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
found = {"session": type(spark).__module__}
batch = spark.read.format("kafkapy").options(**options)
found["batch"] = sorted(row.value for row in batch.schema("value string").load().collect())
found["schema"] = spark.read.format("kafkapy").options(**options).load().schema.fieldNames()
spark.sql(
    "CREATE TEMPORARY VIEW records USING kafkapy OPTIONS "
    f"(`kafka.bootstrap.servers` '{bootstrap}', subscribe '{topic}')"
)
found["sql"] = spark.sql("SELECT count(*) AS n FROM records").collect()[0].n
stream = spark.readStream.format("kafkapy").options(**options).load().selectExpr("CAST(value AS STRING) AS value")
query = (
    stream.writeStream.format("memory").queryName("seen").option("checkpointLocation", directory + "/checkpoint")
    .trigger(availableNow=True).start()
)
query.awaitTermination()
found["stream"] = sorted(row.value for row in spark.table("seen").collect())
print(json.dumps(found))
spark.stop()
"""


def test_the_format_is_found_by_spark_connect(
    topic: Callable[..., str], send: Callable[..., None], broker: Any, tmp_path: Path
) -> None:
    """Acceptance 1: batch, SQL and streaming, without register()."""
    for needed in ("grpc", "grpc_status", "pandas"):
        pytest.importorskip(needed, reason="Spark Connect needs it")
    name = topic(2)
    send(name, ["a", "b"], 0)
    send(name, ["c"], 1)
    done = subprocess.run(
        [sys.executable, "-c", CLIENT, broker.bootstrap_servers, name, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=840,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "session": "pyspark.sql.connect.session",
        "batch": ["a", "b", "c"],
        "schema": ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"],
        "sql": 3,
        "stream": ["a", "b", "c"],
    }
