"""The pytest plugin, in test sessions of its own, and the examples of docs/testing.md."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkapy.testing.pytest_plugin import broker_overrides, record_timeout_s

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parent.parent.parent


def test_a_project_that_does_not_use_it_pays_nothing() -> None:
    program = (
        "import pytest, sys; before = set(sys.modules); import kafkapy.testing.pytest_plugin; "
        "print(*(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    loaded = set(done.stdout.split())
    assert "kafkapy.testing.pytest_plugin" in loaded
    assert {name for name in loaded if name.startswith("kafkapy")} <= {
        "kafkapy",
        "kafkapy.version",
        "kafkapy.testing",
        "kafkapy.testing.pytest_plugin",
    }
    assert not loaded & {"uvloop", "asyncio", "click", "rich", "sqlite3"}


def test_pytest_finds_it_by_its_entry_point() -> None:
    from importlib.metadata import entry_points

    found = [each for each in entry_points(group="pytest11") if each.name == "kafkapy"]
    assert [each.value for each in found] == ["kafkapy.testing.pytest_plugin"]


def test_the_ini_option_is_keys_and_values() -> None:
    def overrides(*lines: str) -> dict[str, str]:
        config: Any = SimpleNamespace(getini=lambda name: list(lines))
        return broker_overrides(config)

    assert overrides("num.partitions = 5", "log.dirs=/a=b") == {"num.partitions": "5", "log.dirs": "/a=b"}
    for wrong in ("num.partitions", "=5"):
        with pytest.raises(pytest.UsageError, match="is not key=value"):
            overrides(wrong)


def test_a_secured_broker_has_the_clients_of_its_fixtures(pytester: pytest.Pytester) -> None:
    pytester.makeini(
        """
        [pytest]
        kafkapy_broker_security = SASL_SSL
        kafkapy_broker_users =
            ann=secret=x
        """
    )
    pytester.makepyfile(
        """
        def test_a_record_comes_back(kafka_broker, kafka_topic, kafka_producer, kafka_consumer):
            assert kafka_broker.users == {"ann": "secret=x"}
            kafka_producer.send(kafka_topic, b"1")
            assert next(kafka_consumer).value == b"1"
        """
    )
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)


def blocks(language: str) -> list[str]:
    """The blocks of code that docs/testing.md has in a language."""
    page = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


SHARED = """
import pytest
from kafkapy.errors import IllegalStateError

seen = []
kept = []

@pytest.mark.parametrize("value", ["a b", "a/b", "x" * 300])
def test_topic(kafka_broker, kafka_topic, value):
    cache = kafka_broker.server.context.metadata_cache
    assert cache.topic(kafka_topic).partition_count == 1
    for broker, topic in seen:
        assert broker is kafka_broker
        assert topic != kafka_topic
        assert cache.topic(topic) is None
    seen.append((kafka_broker, kafka_topic))

@pytest.mark.kafka_topic(partitions=3, configs={"retention.ms": 5000})
def test_marked(kafka_broker, kafka_topic):
    assert kafka_broker.server.context.metadata_cache.topic(kafka_topic).partition_count == 3
    assert kafka_broker.server.context.dynamic_config.topic_keys(kafka_topic) == {"retention.ms": "5000"}

def test_that_deletes_its_topic(kafka_broker, kafka_topic):
    kafka_broker.delete_topic(kafka_topic)

def test_clients(kafka_topic, kafka_producer, kafka_consumer):
    kafka_producer.send(kafka_topic, b"v").get(10)
    assert kafka_consumer.poll(10_000)
    kept.extend([kafka_producer, kafka_consumer])

def test_clients_are_closed():
    with pytest.raises(IllegalStateError):
        kept[0].send("any", b"v")
    with pytest.raises(IllegalStateError):
        kept[1].poll()
"""


def test_the_broker_is_shared_and_topics_and_clients_are_not(pytester: pytest.Pytester) -> None:
    """The first example of the page is in the same session."""
    example = blocks("python")[0]
    assert len(example.splitlines()) <= 5
    pytester.makepyfile(test_shared=SHARED, test_example=example)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "--strict-markers", timeout=120)
    result.assert_outcomes(passed=8)


def test_the_pages_settings_and_marker_work(pytester: pytest.Pytester) -> None:
    (ini,) = blocks("ini")
    pytester.makeini(ini)
    keys = """
def test_keys(kafka_broker):
    assert not kafka_broker.server.config.get_bool("auto.create.topics.enable")
    assert kafka_broker.server.config.get_int("message.max.bytes") == 2_000_000
"""
    pytester.makepyfile(f"import pytest\n\n{blocks('python')[1]}\n{keys}")
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "--strict-markers", timeout=120)
    result.assert_outcomes(passed=2)


SILENCE = """
def test_that_waits_for_nothing(kafka_topic, kafka_producer, kafka_consumer):
    kafka_producer.send(kafka_topic, b"first").get(10)
    assert next(kafka_consumer).value == b"first"
    for record in kafka_consumer:
        print("a record", record)

def test_that_polls(kafka_consumer):
    assert kafka_consumer.poll(10) == {}

def test_that_closes(kafka_consumer):
    kafka_consumer.close()
    assert list(kafka_consumer) == []
"""


def test_a_consumer_that_gets_no_record_fails_the_test_and_says_so(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nkafkapy_record_timeout = 0.2\n")
    pytester.makepyfile(SILENCE)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", timeout=120)
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        ["*kafka_consumer got no record of topic test_that_waits_for_nothing-1 within 0.2 s (*-0 read up to 1 of 1)*"]
    )


def test_the_time_to_wait_is_seconds() -> None:
    def seconds(text: str) -> float:
        config: Any = SimpleNamespace(getini=lambda name: text)
        return record_timeout_s(config)

    assert seconds("2.5") == 2.5
    for wrong in ("soon", "", "0", "-1", "inf", "nan"):
        with pytest.raises(pytest.UsageError, match="seconds"):
            seconds(wrong)


@pytest.mark.parametrize("block", [2, 3, 4], ids=["open", "secured", "cluster"])
def test_the_pages_programs_run(tmp_path: Path, block: int) -> None:
    assert len(blocks("python")) == 5
    program = tmp_path / "program.py"
    program.write_text(blocks("python")[block], encoding="utf-8")
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    if block != 4:  # the brokers of a cluster warn while they end one after the other
        assert done.stderr == ""
