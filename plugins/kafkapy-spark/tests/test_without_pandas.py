"""What pip installs with pyspark is enough: pandas, which some functions of pyspark ask for, is not there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkapy import KafkaProducer

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

JOBS = """
import importlib.util, sys
from pyspark.sql import SparkSession
import kafkapy_spark
from kafkapy_spark.jobs.archive import archive
from kafkapy_spark.jobs.latest import latest
from kafkapy_spark.jobs.mirror import mirror
from kafkapy_spark.jobs.profile import profile
from kafkapy_spark.jobs.replay import replay

servers, topic, other, directory = sys.argv[1:]
kafka = {"bootstrap.servers": servers}
try:
    import pandas
except ImportError:
    pass
else:
    sys.exit("pandas is there")
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
spark = kafkapy_spark.configure(builder.config("spark.sql.shuffle.partitions", "1")).getOrCreate()
print("profile", profile(spark, [topic], kafka=kafka).topics[0].rows)
latest(spark, topic, kafka=kafka, path=f"{directory}/latest")
print("latest", spark.read.parquet(f"{directory}/latest").count())
latest(spark, other, kafka=kafka, path=f"{directory}/none")
print("none", spark.read.parquet(f"{directory}/none").count())
archive(spark, topic, f"{directory}/archive", kafka=kafka)
print("archive", spark.read.parquet(f"{directory}/archive").count())
replay(spark, f"{directory}/archive", other, kafka=kafka)
mirror(spark, topic, other, kafka=kafka, sql="select * from records", checkpoint=f"{directory}/checkpoint")
print("other", kafkapy_spark.read(spark, servers, other).count())
"""


def test_jobs(broker: Any, producer: KafkaProducer, topic: Callable[..., str], tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "pandas.py").write_text("raise ModuleNotFoundError(\"No module named 'pandas'\", name='pandas')\n")
    name, other = topic(2), topic(2)
    for number in range(60):
        producer.send(name, b"value", b"%d" % (number % 7))
    producer.flush()
    paths = [str(hidden), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-c", JOBS, broker.bootstrap_servers, name, other, str(tmp_path)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": os.pathsep.join(paths)},
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    said = dict(line.split() for line in done.stdout.splitlines())
    assert said == {"profile": "60", "latest": "7", "none": "0", "archive": "60", "other": "120"}
