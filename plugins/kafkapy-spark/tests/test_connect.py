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


JOBS = """
import json, os, sys, warnings
warnings.simplefilter("ignore")
os.environ["PYSPARK_PYTHON"] = sys.executable
from pathlib import Path
from click.testing import CliRunner
from pyspark.sql import SparkSession
from kafkapy.errors import IllegalArgumentError
from kafkapy_spark.cli import main
from kafkapy_spark.jobs.archive import archive
from kafkapy_spark.jobs.latest import latest
from kafkapy_spark.jobs.mirror import mirror
from kafkapy_spark.jobs.replay import replay
bootstrap, source, copied, replayed, directory = sys.argv[1:]
os.chdir(directory)
spark = SparkSession.builder.remote("local[2]").config("spark.sql.shuffle.partitions", "2").getOrCreate()
kafka = {"bootstrap.servers": bootstrap}
found = {"session": type(spark).__module__}
done = CliRunner().invoke(main, ["profile", source, "-b", bootstrap, "--json"])
found["profile"] = json.loads(done.stdout)["rows"] if done.exit_code == 0 else done.output
table = directory + "/latest"
done = latest(spark, source, kafka=kafka, path=table, key="string", value="string")
rows = spark.read.parquet(table).select("key", "value").collect()
found["latest"] = [done.rows, done.keys, sorted(map(list, rows))]
done = mirror(spark, source, copied, kafka=kafka, sql="select * from records where offset > 0", checkpoint="c")
found["mirror"] = [done.rows, done.batches, spark.catalog.tableExists("records")]
done = mirror(spark, source, copied, kafka=kafka, sql="select * from records where offset > 0", mode="batch")
found["mirror of a batch"] = done.rows
archived = directory + "/archive"
done = archive(spark, source, archived, kafka=kafka, engine="spark")
found["archive"] = [done.rows, done.commits, spark.read.parquet(archived).count()]
done = replay(spark, archived, replayed, kafka=kafka, rows_per_second=1000)
found["replay"] = [done.rows, done.tasks]
for name, options in (("arrow", {}), ("delta", {"engine": "spark", "format": "delta"})):
    try:
        archive(spark, source, directory + "/none", kafka=kafka, **options)
    except IllegalArgumentError as error:
        found[name] = str(error)
found["none"] = Path(directory, "none").exists()
print(json.dumps(found))
spark.stop()
"""


def run(client: str, *arguments: str) -> dict[str, Any]:
    """What a client of Spark Connect has found."""
    for needed in ("grpc", "grpc_status", "pandas"):
        pytest.importorskip(needed, reason="Spark Connect needs it")
    done = subprocess.run([sys.executable, "-c", client, *arguments], capture_output=True, text=True, timeout=840)
    assert done.returncode == 0, done.stderr[:6000]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.soak
def test_jobs_run_by_spark_connect(
    topic: Callable[..., str], producer: Any, records: Callable[..., Any], broker: Any, tmp_path: Path
) -> None:
    """All but the archive's engine arrow, which says what it lacks."""
    source, copied, replayed = topic(2), topic(2), topic(2)
    for number in range(20):
        producer.send(source, b"v%d" % number, b"k%d" % (number % 4), partition=number % 2)
    producer.flush()
    found = run(JOBS, broker.bootstrap_servers, source, copied, replayed, str(tmp_path))
    arrow, delta = found.pop("arrow"), found.pop("delta")
    assert found == {
        "session": "pyspark.sql.connect.session",
        "profile": 20,
        "latest": [20, 4, [[f"k{number}", f"v{number + 16}"] for number in range(4)]],
        "mirror": [20, 1, False],
        "mirror of a batch": 18,
        "archive": [20, 1, 20],
        "replay": [20, 2],
        "none": False,
    }
    assert arrow.startswith("The engine arrow needs a SparkContext, which a session of Spark Connect has not; ")
    assert "spark.jars.packages=io.delta:delta-spark_" in delta
    sent = [each[:3] for each in records(source)]
    expected = [each for each in sent if each[2] not in (b"v0", b"v1")]
    assert sorted(each[:3] for each in records(copied)) == sorted(expected * 2)
    assert records(replayed) == records(source)


def test_the_format_is_found_by_spark_connect(
    topic: Callable[..., str], send: Callable[..., None], broker: Any, tmp_path: Path
) -> None:
    """Acceptance 1: batch, SQL and streaming, without register()."""
    name = topic(2)
    send(name, ["a", "b"], 0)
    send(name, ["c"], 1)
    assert run(CLIENT, broker.bootstrap_servers, name, str(tmp_path)) == {
        "session": "pyspark.sql.connect.session",
        "batch": ["a", "b", "c"],
        "schema": ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"],
        "sql": 3,
        "stream": ["a", "b", "c"],
    }
