"""profile and latest on a real Spark, against what was sent; and how a command gets its session and tells of errors."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import spark_jvm
from click.testing import CliRunner, Result
from kafkapy_spark.cli import main
from kafkapy_spark.jobs.profile import profile

from kafkapy import KafkaConsumer, KafkaProducer

pytestmark = pytest.mark.spark

START_MS = 1_700_000_000_000


@pytest.fixture
def kafka(broker: Any) -> dict[str, str]:
    return {"bootstrap.servers": broker.bootstrap_servers}


def run(broker: Any, *arguments: object) -> Result:
    return CliRunner().invoke(main, [*map(str, arguments), "-b", broker.bootstrap_servers])


def write(producer: KafkaProducer, topic: str, records: list[tuple[int, bytes | None, bytes | None, int]]) -> None:
    """(partition, key, value, ms after START_MS)."""
    for partition, key, value, at in records:
        producer.send(topic, value, key, partition=partition, timestamp_ms=START_MS + at)
    producer.flush()


def test_profile(
    spark: Any,
    topic: Callable[..., str],
    producer: KafkaProducer,
    broker: Any,
    kafka: dict[str, str],
    wait_for_markers: Callable[[str, int], None],
) -> None:
    """A topic with a hot key, null keys, tombstones, silences and a transaction, and one without records; partitions in
    several tasks."""
    name, empty = topic(3, retention_ms=-1), topic()
    chance = random.Random(7)
    sent = [
        (
            chance.choice([0, 0, 1]),
            chance.choice([None, b"hot", b"hot", b"hot", str(chance.randint(0, 40)).encode()]),
            chance.choice([None, b"x" * chance.randint(0, 50), b"y" * 10]),
            number * 10 + (500_000 if number >= 300 else 0),
        )
        for number in range(500)
    ]
    write(producer, name, sent)
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id=name) as transactional:
        transactional.init_transactions()
        transactional.begin_transaction()
        transactional.send(name, b"value", b"hot", partition=1, timestamp_ms=START_MS)
        transactional.commit_transaction()
    wait_for_markers(name, 1)
    sent.append((1, b"hot", b"value", 0))
    options = {"maxTasks": "7", "rowsPerTask": "30"}
    found = profile(spark, [name, empty], kafka=kafka, options=options, top=3, gap_ms=60_000)
    assert [each.topic for each in found.topics] == [name, empty]
    one, none = found.topics
    keys = [key for _, key, _, _ in sent if key is not None]
    values = [value for _, _, value, _ in sent if value is not None]
    assert (found.rows, found.bytes) == (501, sum(map(len, keys + values))) == (one.rows, one.bytes)
    assert (one.null_keys, one.tombstones) == (501 - len(keys), 501 - len(values))
    assert (one.first_time, one.last_time) == (START_MS, START_MS + 499 * 10 + 500_000)
    counts = Counter(keys)
    top = sorted(counts.items(), key=lambda each: (-each[1], each[0]))[:3]
    assert one.distinct_keys == len(counts) and one.top_keys is not None
    assert [(each.key, each.rows, each.share) for each in one.top_keys] == [
        (key, rows, rows / len(keys)) for key, rows in top
    ]
    for sizes, items in ((one.keys, keys), (one.values, values)):
        ordered = sorted(map(len, items))
        assert (sizes.count, sizes.bytes, sizes.min, sizes.max) == (len(items), sum(ordered), ordered[0], ordered[-1])
        assert sizes.avg == pytest.approx(sum(ordered) / len(items))
        assert sizes.percentiles == {
            f"p{percent:g}": next(size for at, size in enumerate(ordered, 1) if at * 100 >= percent * len(ordered))
            for percent in (50, 90, 99, 99.9)
        }
    for number, part in enumerate(one.partitions):
        own = [each for each in sent if each[0] == number]
        assert (part.partition, part.rows, part.share) == (number, len(own), len(own) / 501)
        assert part.null_keys == sum(each[1] is None for each in own)
        assert part.tombstones == sum(each[2] is None for each in own)
    zero, first, second = one.partitions
    assert (first.missing_offsets, first.offset_gaps, first.largest_offset_gap) == (1, 1, 1)  # the transaction's marker
    assert (zero.missing_offsets, zero.offset_gaps, zero.out_of_order, first.out_of_order) == (0, 0, 0, 1)
    for part in (zero, first):
        own = [at for partition, _, _, at in sent if partition == part.partition]
        last = max(at for at in own if at < 500_000)
        assert (part.time_gaps, part.longest_time_gap_from) == (1, START_MS + last)
        assert part.longest_time_gap_ms == min(at for at in own if at > 500_000) - last
    assert (second.rows, second.start, second.end, second.first_time, second.time_gaps) == (0, 0, 0, None, 0)
    assert (none.rows, none.distinct_keys, none.top_keys, none.values.percentiles) == (0, 0, [], {})


def test_the_profile_command(
    spark: Any, topic: Callable[..., str], producer: KafkaProducer, broker: Any
) -> None:
    name = topic(retention_ms=-1)
    write(producer, name, [(0, b"a", b"1", 0), (0, b"a", b"22", 1000), (0, b"\xff\x00", None, 4_000)])
    since, until = (datetime.fromtimestamp(START_MS / 1000 + more, UTC).isoformat() for more in (1, 3))
    result = run(broker, "profile", name, "--json", "--since", since, "--until", until, "--no-keys", "--gap", "500ms")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["rows"], found["bytes"], found["topics"][0]["distinct_keys"]) == (1, 3, None)
    assert found["topics"][0]["partitions"][0]["start"] == 1
    result = run(broker, "profile", name, "--gap", "2s")
    assert result.exit_code == 0, result.output
    rows = [line.split("\t") for line in result.stdout.splitlines()]
    assert ["a", "2", "66.67%"] in rows and ["ff 00", "1", "33.33%"] in rows
    assert ["value", "2", "3 B", "1", "1.5", "1", "2", "2", "2", "2"] in rows
    assert any(row[1:5] == ["0 to 3", "3", "7 B", "100.0%"] and row[12:14] == ["1", "3.0 s"] for row in rows)


def truth(topic: str, broker: Any) -> dict[bytes, bytes | None]:
    """What a consumer makes of a topic whose keys are each in one partition."""
    found: dict[bytes, bytes | None] = {}
    consumer = KafkaConsumer(
        topic, bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest", consumer_timeout_ms=2000
    )
    with consumer:
        for record in consumer:
            if record.key is not None:
                found[record.key] = record.value
    return found


@pytest.mark.parametrize("partitions", [1, 3])
def test_latest(
    partitions: int,
    spark: Any,
    topic: Callable[..., str],
    producer: KafkaProducer,
    broker: Any,
    kafka: dict[str, str],
    tmp_path: Path,
) -> None:
    """As a consumer of a compacted topic sees it: values of the highest offsets, whatever their times are."""
    from kafkapy_spark.jobs.latest import latest

    name = topic(partitions, cleanup_policy="compact")
    chance = random.Random(partitions)
    for number in range(600):
        key, value = str(chance.randint(0, 60)).encode(), chance.choice([None, b"", str(number).encode()])
        producer.send(name, value, key, timestamp_ms=START_MS + chance.randint(0, 1000))
    producer.flush()
    expected = truth(name, broker)
    path = str(tmp_path / "table")
    found = latest(spark, name, kafka=kafka, path=path, key="string", options={"maxTasks": "5", "rowsPerTask": "50"})
    rows = spark.read.parquet(path).collect()
    assert {row.key.encode(): bytes(row.value) for row in rows} == {
        key: value for key, value in expected.items() if value is not None
    }
    assert len(rows) == len({row.key for row in rows}) == found.keys
    assert (found.rows, found.without_key, found.destination) == (600, 0, path)
    assert found.deleted_keys == sum(value is None for value in expected.values()) > 0


def test_latest_over_partitions_and_transactions(
    spark: Any, topic: Callable[..., str], producer: KafkaProducer, broker: Any, tmp_path: Path
) -> None:
    """A key in two partitions has the later value, aborted records and those without a key are none."""
    name, path = topic(2, retention_ms=-1), tmp_path / "table"
    records = [(0, b"a", b"old", 1), (1, b"a", b"new", 2), (1, b"b", None, 5), (0, b"b", b"back", 9)]
    records += [(0, None, b"-", 3), (0, b"c", b"kept", 1), (1, b"d", b"x", 1), (0, b"d", None, 2)]
    write(producer, name, records)
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id=name) as transactional:
        transactional.init_transactions()
        transactional.begin_transaction()
        transactional.send(name, b"aborted", b"c", partition=0)
        transactional.flush()
        transactional.abort_transaction()
    arguments = ("latest", name, path, "--key", "string", "--value", "string", "--format", "json")
    result = run(broker, *arguments, "--json")
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    assert [summary[each] for each in ("rows", "without_key", "keys", "deleted_keys")] == [8, 1, 3, 1]
    rows = spark.read.json(str(path)).orderBy("key").collect()
    assert [(row.key, row.value, row.partition, row.offset) for row in rows] == [
        ("a", "new", 1, 0), ("b", "back", 0, 1), ("c", "kept", 0, 3)
    ]  # fmt: skip
    again = run(broker, *arguments)
    assert again.exit_code == 1 and "already exists" in again.output and again.output.count("\n") == 1
    assert run(broker, *arguments, "--mode", "overwrite").exit_code == 0


def test_latest_of_nothing(
    spark: Any, topic: Callable[..., str], producer: KafkaProducer, broker: Any, tmp_path: Path
) -> None:
    name = topic(retention_ms=-1)
    result = run(broker, "latest", name, tmp_path / "one", "--json")
    assert result.exit_code == 0 and json.loads(result.stdout)["keys"] == 0, result.output
    write(producer, name, [(0, b"a", None, 1)])
    result = run(broker, "latest", name, tmp_path / "two", "--json")
    summary = json.loads(result.stdout)
    assert (summary["rows"], summary["keys"], summary["deleted_keys"]) == (1, 0, 1)
    assert spark.read.parquet(str(tmp_path / "two")).count() == 0


def test_a_job_under_spark_submit(
    topic: Callable[..., str], producer: KafkaProducer, broker: Any, tmp_path: Path
) -> None:
    """A session of the command's own, with spark-submit's settings. Lines of progress may come before the summary, as
    spark-submit puts stderr and stdout together."""
    pytest.importorskip("pyspark")
    name, script = topic(retention_ms=-1), tmp_path / "job.py"
    write(producer, name, [(0, b"a", b"1", 0), (0, b"a", b"22", 1)])
    script.write_text("from kafkapy_spark.cli import main\n\nmain()\n")
    submit = [Path(sys.executable).with_name("spark-submit"), *spark_jvm.confs()]
    job = [script, "latest", name, tmp_path / "table", "-b", broker.bootstrap_servers, "--json"]
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    done = subprocess.run(
        [*map(str, submit + job)], env=environment, capture_output=True, text=True, check=False, timeout=250
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    assert (summary["rows"], summary["keys"], summary["deleted_keys"]) == (2, 1, 0)
    assert pq.read_table(tmp_path / "table").column("value").to_pylist() == [b"22"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("profile", "nowhere", "-X", "bootstrap.timeout.ms=1000"), "does not host topic nowhere"),
        (("profile", "t", "--gap", "soon"), "--gap must be a time such as 500ms"),
        (("profile", "t", "--since", "noon"), "'noon' is not a time"),
        (("profile", "t", "--master", "local[1]"), "--master cannot be given where a Spark session is there already"),
        (("profile", "t", "--kafka", "auto.offset.reset=latest"), "'auto.offset.reset' is not supported"),
        (("latest", "t", "/nowhere", "--option", "maxTasks=0"), "maxTasks must be positive"),
    ],
)
def test_bad_input_is_one_sentence(spark: Any, arguments: tuple[str, ...], message: str, broker: Any) -> None:
    result = run(broker, *arguments)
    assert result.exit_code == 1, result.output
    assert message in result.output and result.output.count("\n") == 1 and result.output.startswith("Error: ")
