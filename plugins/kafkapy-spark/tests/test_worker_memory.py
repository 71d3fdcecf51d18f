"""Acceptance 34: what a worker takes of memory while it reads large partitions, with the settings as they come."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from kafkapy import KafkaAdminClient, KafkaProducer
from kafkapy.admin import NewTopic
from kafkapy.testing.broker_process import BrokerProcess

PARTITIONS = 8
RECORDS = 160
RECORD_BYTES = 600_000
MAX_RSS_MB = 300

WORKER = """
import json, sys, time
import pyspark.worker
from kafkapy_spark.executor_reader import ReadPlan, read_task
from kafkapy_spark.planning import OffsetRange
from kafkapy.types import TopicPartition

columns = {"key": "binary", "value": "binary", "topic": "string", "partition": "integer", "offset": "long"}
fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns.items()]
plan = ReadPlan({"bootstrap.servers": sys.argv[1]}, json.dumps({"fields": fields}), True, 60_000)
task = tuple(OffsetRange(TopicPartition("large", number), 0, int(sys.argv[3])) for number in range(int(sys.argv[2])))
rows = 0
for batch in read_task(plan, task):
    rows += batch.num_rows
    time.sleep(0.01)  # Spark takes it: meanwhile as much is fetched ahead as may be
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(rows, int(status["VmHWM"].split()[0]) // 1024)
"""


@pytest.fixture
def bootstrap() -> Iterator[str]:
    keys = {"kafkapy.storage.backend": "memory", "kafkapy.metadata.store": "memory", "log.dirs": "/memory"}
    with BrokerProcess(overrides=keys) as broker:
        with KafkaAdminClient(bootstrap_servers=broker.bootstrap) as admin:
            admin.create_topics([NewTopic("large", PARTITIONS, 1)])
        with KafkaProducer(bootstrap_servers=broker.bootstrap, max_request_size=1 << 20) as producer:
            for number in range(RECORDS):
                producer.send("large", bytes([number]) * RECORD_BYTES, partition=number % PARTITIONS)
        yield broker.bootstrap


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_worker_that_reads_large_partitions_stays_small(bootstrap: str) -> None:
    per_partition = RECORDS // PARTITIONS
    command = [sys.executable, "-c", WORKER, bootstrap, str(PARTITIONS), str(per_partition)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    rows, peak_mb = map(int, done.stdout.split())
    assert rows == RECORDS
    assert peak_mb < MAX_RSS_MB
