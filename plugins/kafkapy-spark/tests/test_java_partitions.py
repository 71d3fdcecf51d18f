"""Rows with keys go to the partitions that Java's own producer chooses."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa
from kafkapy_spark.record_writer import RecordWriter
from kafkapy_spark.sink_options import SinkOptions
from peers.apache_kafka import PeerMissingError, jars

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(
        not os.environ.get("KAFKAPY_INTEROP_JAVA"), reason="Apache Kafka's jars run with: make interop-spark"
    ),
]

SOURCE = Path(__file__).parent / "java" / "Partitions.java"
VERSION = "4.4.0"


@pytest.mark.parametrize("partitions", [1, 7, 64])
def test_ten_thousand_keys(partitions: int, broker: Any, topic: Any, records: Any) -> None:
    try:
        libs = jars(VERSION)
    except PeerMissingError as missing:
        pytest.skip(str(missing))
    chosen = random.Random(partitions)
    keys = [chosen.randbytes(chosen.choice((*range(1, 40), 255, 1000))) for _ in range(10_000)]
    command = ["java", "-cp", f"{libs}/*", str(SOURCE), str(partitions)]
    lines = "\n".join(key.hex() for key in keys)
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=120, check=True)
    expected = sorted(zip(keys, map(int, done.stdout.split()), strict=True))
    name = topic(partitions)
    options = SinkOptions.parse({"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": name}, streaming=False)
    rows = pa.RecordBatch.from_pydict({"key": keys, "value": [b""] * len(keys)})
    with RecordWriter(options, rows.schema) as writer:
        writer.write([rows])
    assert sorted((row[1], row[0]) for row in records(name)) == expected
