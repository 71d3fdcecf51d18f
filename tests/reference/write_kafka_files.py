"""Writes tests/reference/kafka_files anew: small partition directories as Apache Kafka 3.9.1 leaves them, and dump.txt,
what its kafka-dump-log says of them. Needs Java, Maven Central (or the cache of perf/peers) and Debian's zookeeper:

    PYTHONPATH=tests:perf .venv/bin/python tests/reference/write_kafka_files.py

The broker runs with inter.broker.protocol.version=2.8, the last one that writes message formats v0 and v1.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic
from peers.apache_kafka import ApacheKafka, java
from peers.zookeeper import ZooKeeper
from reference.kafka_dump_log import log_files

KAFKA_FILES = Path(__file__).parent / "kafka_files"
NOW = 1_700_000_000_000
TIMEOUT_S = 60.0
SMALL = {"segment.bytes": "700", "index.interval.bytes": "100", "retention.ms": "-1"}
OLD = {"retention.ms": "-1", "index.interval.bytes": "100"}
TOPICS: dict[str, tuple[str, dict[str, str]]] = {
    "v0-none": ("none", OLD | {"message.format.version": "0.9.0"}),
    "v0-gzip": ("gzip", OLD | {"message.format.version": "0.9.0"}),
    "v1-none": ("none", OLD | {"message.format.version": "0.10.0"}),
    "v1-snappy": ("snappy", OLD | {"message.format.version": "0.10.0"}),
    "v1-lz4": ("lz4", OLD | {"message.format.version": "0.10.0"}),
    "v1-append-time": ("gzip", OLD | {"message.format.version": "0.10.0", "message.timestamp.type": "LogAppendTime"}),
    **{f"v2-{codec}": (codec, OLD) for codec in ("none", "gzip", "snappy", "lz4", "zstd")},
    "segments": ("none", SMALL),
    "transactions": ("lz4", SMALL),
    "compacted": ("none", SMALL | {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}),
}


def _write(bootstrap: str, topic: str, codec: str) -> None:
    config: dict[str, Any] = {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 10}
    old = topic.startswith(("v0", "v1"))
    producer = confluent_kafka.Producer(config | {"enable.idempotence": not old})
    for number in range(24):
        producer.produce(
            topic,
            key=None if number % 7 == 3 and topic != "compacted" else b"key-%d" % (number % 6),
            value=None if number % 5 == 4 else b"%s %d " % (topic.encode(), number) * (number % 4),
            headers=[] if old else [("h", b"%d" % number), ("h", None)][: number % 3],
            timestamp=NOW + number * 10 - (number % 3) * 25,
        )
        if number % 4 == 3:
            assert producer.flush(TIMEOUT_S) == 0
    assert producer.flush(TIMEOUT_S) == 0


def _write_transactions(bootstrap: str, topic: str, codec: str) -> None:
    for transactional_id in ("first", "second"):
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "compression.type": codec, "transactional.id": transactional_id}
        )
        producer.init_transactions(TIMEOUT_S)
        for round_ in range(5):
            producer.begin_transaction()
            for number in range(3):
                producer.produce(topic, key=b"%d" % number, value=b"%d" % round_ * 40, timestamp=NOW + round_)
            assert producer.flush(TIMEOUT_S) == 0
            if round_ % 2:
                producer.abort_transaction(TIMEOUT_S)
            elif round_ < 4 or transactional_id == "first":
                producer.commit_transaction(TIMEOUT_S)


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        with ZooKeeper(root / "zookeeper") as zookeeper:
            keys = {"inter.broker.protocol.version": "2.8", "log.cleaner.backoff.ms": "300"}
            with ApacheKafka("3.9", root / "kafka", keys, zookeeper=f"{zookeeper.connect}/kafka") as broker:
                admin = AdminClient({"bootstrap.servers": broker.bootstrap})
                new = [NewTopic(topic, 1, 1, config=config) for topic, (_, config) in TOPICS.items()]
                for future in admin.create_topics(new).values():
                    future.result(TIMEOUT_S)
                for topic, (codec, _) in TOPICS.items():
                    (_write_transactions if topic == "transactions" else _write)(broker.bootstrap, topic, codec)
                compacted = root / "kafka" / "logs" / "compacted-0"
                while not any(path.name.endswith(".deleted") for path in compacted.iterdir()):
                    time.sleep(0.1)
                broker.stop()
            shutil.rmtree(KAFKA_FILES, ignore_errors=True)
            for topic in TOPICS:
                source = root / "kafka" / "logs" / f"{topic}-0"
                shutil.copytree(source, KAFKA_FILES / source.name, ignore=shutil.ignore_patterns("*.deleted"))
    files = [str(path.relative_to(KAFKA_FILES)) for topic in TOPICS for path in log_files(KAFKA_FILES / f"{topic}-0")]
    command = java("3.9", "kafka.tools.DumpLogSegments", "--deep-iteration", "--files", ",".join(files))
    done = subprocess.run(command, cwd=KAFKA_FILES, capture_output=True, text=True, check=True)
    (KAFKA_FILES / "dump.txt").write_text(done.stdout)


if __name__ == "__main__":
    main()
