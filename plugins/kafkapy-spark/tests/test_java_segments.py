"""Segment files of a running Apache Kafka, read beside it."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from peers.apache_kafka import VERSIONS, ApacheKafka, PeerMissingError

pytest.importorskip("pyspark")

from kafkapy_spark import executor_reader
from kafkapy_spark.options import SourceOptions
from kafkapy_spark.reader import KafkapyReader
from kafkapy_spark.schema import SCHEMA

from kafkapy import KafkaAdminClient, KafkaProducer
from kafkapy.admin import NewTopic

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(not os.environ.get("KAFKAPY_INTEROP_JAVA"), reason="Apache Kafka runs with: make interop-spark"),
    pytest.mark.timeout(300),
]

OVERRIDES = {
    "log.cleaner.backoff.ms": "100",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
SMALL = {"segment.bytes": "1048576", "index.interval.bytes": "4096"}
COMPACTED = SMALL | {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.ms": "500",
    "max.compaction.lag.ms": "1000",
}


@pytest.fixture(scope="module", params=sorted(VERSIONS))
def java(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    try:
        with ApacheKafka(request.param, tmp_path_factory.mktemp("kafka"), OVERRIDES) as running:
            yield running
    except PeerMissingError as error:
        pytest.skip(str(error))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was read from the broker."""
    out: list[Any] = []
    read = executor_reader._read_from_brokers
    monkeypatch.setattr(
        executor_reader, "_read_from_brokers", lambda plan, task: (out.append(task), read(plan, task))[1]
    )
    return out


def rows(java: ApacheKafka, topic: str, **more: str) -> list[Any]:
    given = {"kafka.bootstrap.servers": java.bootstrap, "subscribe": topic, "rowsPerTask": "700", "maxTasks": "4"}
    reader = KafkapyReader(SourceOptions.parse(given | more, streaming=False), SCHEMA)
    found = [row for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()]
    return sorted(found, key=lambda row: (row["partition"], row["offset"]))


def log_directory(java: ApacheKafka, topic: str) -> Path:
    (found, *_) = java.data_dir.rglob(f"{topic}-0")
    return found.parent


def same_rows(java: ApacheKafka, topic: str, asked: list[Any], level: str) -> list[Any]:
    isolation = {"kafka.isolation.level": level}
    files = {"readFrom": "segments", "segments.path": str(log_directory(java, topic))}
    asked.clear()
    by_files = rows(java, topic, **isolation, **files)
    from_broker = list(asked)
    assert by_files == rows(java, topic, **isolation)
    asked[:] = from_broker
    return by_files


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_transactions_and_codecs(java: ApacheKafka, asked: list[Any], level: str) -> None:
    topic = f"transactions-{level}"
    rng = random.Random(4)
    with KafkaAdminClient(bootstrap_servers=java.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, 2, 1, topic_configs=SMALL)])
    for codec in (None, "gzip", "snappy", "lz4", "zstd"):
        with KafkaProducer(
            bootstrap_servers=java.bootstrap, transactional_id=f"{topic}-{codec}", compression_type=codec
        ) as producer:
            producer.init_transactions()
            for turn in range(3):
                producer.begin_transaction()
                for number in range(100):
                    producer.send(topic, rng.randbytes(rng.randrange(6000)), key=b"%d" % number)
                producer.flush()  # what is aborted before it was sent is in no file
                (producer.abort_transaction if turn == 1 else producer.commit_transaction)()
    found = same_rows(java, topic, asked, level)
    assert len(found) == 5 * 100 * (2 if level == "read_committed" else 3)
    assert asked == []
    assert len(list(log_directory(java, topic).glob(f"{topic}-*/*.log"))) > 3


def test_compaction(java: ApacheKafka, asked: list[Any]) -> None:
    with KafkaAdminClient(bootstrap_servers=java.bootstrap) as admin:
        admin.create_topics([NewTopic("compacted", 1, 1, topic_configs=COMPACTED)])
    deadline = time.monotonic() + 60
    sent = 0
    with KafkaProducer(bootstrap_servers=java.bootstrap) as producer:
        while True:
            for number in range(500):
                producer.send("compacted", json.dumps([sent, number]).encode(), key=b"%d" % (number % 50))
            producer.flush()
            sent += 500
            before = offsets(rows(java, "compacted"))
            files = {"readFrom": "segments", "segments.path": str(log_directory(java, "compacted"))}
            asked.clear()
            found = rows(java, "compacted", **files)
            by_files = asked == []
            # The cleaner is at work meanwhile.
            assert before >= offsets(found) >= offsets(rows(java, "compacted"))
            assert {row["key"] for row in found} == {b"%d" % number for number in range(50)}
            if len(found) < sent // 2 and by_files:
                break
            assert time.monotonic() < deadline, "nothing was cleaned, or nothing read from files"
            time.sleep(0.5)


def offsets(found: list[Any]) -> set[int]:
    return {row["offset"] for row in found}
