"""kafkapy-spark lag: what is left to read, by a query's checkpoint."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from kafkapy_spark.checkpoint import done_offsets
from kafkapy_spark.cli import main

from kafkapy.errors import IllegalArgumentError
from kafkapy.types import TopicPartition

METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":1700000000000,"conf":{}}'


def write(checkpoint: Path, batch: int, *sources: str, done: bool = True, version: str = "v1") -> None:
    """A batch as Spark writes it."""
    for name, lines in {"offsets": (version, METADATA, *sources), "commits": ("v1", "{}")}.items():
        (checkpoint / name).mkdir(exist_ok=True)
        if name == "offsets" or done:
            (checkpoint / name / str(batch)).write_text("\n".join(lines))
            (checkpoint / name / f".{batch}.crc").write_bytes(b"crc")


def lag(checkpoint: Path, broker: Any, *options: str) -> Result:
    return CliRunner().invoke(main, ["lag", str(checkpoint), "-b", broker.bootstrap_servers, *options])


def test_offsets_of_the_last_batch_that_is_done(tmp_path: Path) -> None:
    """By number, not by name; other sources' offsets are left out."""
    write(tmp_path, 9, '{"t":{"0":1}}', "5")
    write(tmp_path, 10, '{"t":{"0":2,"1":7}}', '{"logOffset":3}', "-", '{"s": {"0": 4}}')
    write(tmp_path, 11, '{"t":{"0":3}}', "6", done=False)
    t0, t1, s0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("s", 0)
    assert done_offsets(tmp_path) == (10, [{t0: 2, t1: 7}, {s0: 4}])


def test_what_is_no_checkpoint(tmp_path: Path, broker: Any) -> None:
    with pytest.raises(IllegalArgumentError, match="no checkpoint of a streaming query that has finished a batch"):
        done_offsets(tmp_path)
    write(tmp_path, 0, '{"t":{"0":1}}', done=False)
    result = lag(tmp_path, broker)
    assert result.exit_code == 1 and "is no checkpoint of a streaming query" in result.output
    write(tmp_path, 0, '{"t":{"0":1}}', version="v2")
    with pytest.raises(IllegalArgumentError, match="offsets of version v2"):
        done_offsets(tmp_path)


def test_lag(tmp_path: Path, topic: Callable[..., str], send: Callable[..., None], broker: Any) -> None:
    name = topic(2)
    send(name, ["x"] * 5, 0)
    send(name, ["x"] * 2, 1)
    write(tmp_path, 0, json.dumps({name: {"0": 3, "1": 2}}))
    result = lag(tmp_path, broker, "--json")
    assert result.exit_code == 0, result.output
    assert [
        (row["topic"], row["partition"], row["current_offset"], row["log_end_offset"], row["lag"])
        for row in json.loads(result.output)
    ] == [(name, 0, 3, 5, 2), (name, 1, 2, 2, 0)]
    assert lag(tmp_path, broker).output.splitlines()[1] == f"{name}\t0\t3\t5\t2"


def test_topics_that_are_gone(tmp_path: Path, broker: Any) -> None:
    write(tmp_path, 0, '{"nowhere":{"0":3}}')
    result = lag(tmp_path, broker)
    assert result.exit_code == 1 and result.output.startswith("Error: "), result.output
