"""The pytest plugin, in test sessions of its own, and the examples of docs/testing.md."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

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


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """A session of its own, in a process of its own."""
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", *arguments, timeout=120)


def test_the_broker_is_shared_and_topics_are_not(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        seen = []

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
        """
    )
    run(pytester, "--strict-markers").assert_outcomes(passed=5)


def test_the_brokers_keys_are_in_the_ini_file(pytester: pytest.Pytester) -> None:
    pytester.makeini(
        """
        [pytest]
        kafkapy_broker =
            num.partitions = 5
            auto.create.topics.enable=false
        """
    )
    pytester.makepyfile(
        """
        def test_keys(kafka_broker, kafka_topic):
            assert not kafka_broker.server.config.get_bool("auto.create.topics.enable")
            assert kafka_broker.server.context.metadata_cache.topic(kafka_topic).partition_count == 5
        """
    )
    run(pytester).assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("line", "says"), [("num.partitions", "is not key=value"), ("num.partition=1", "num.partition")]
)
def test_a_wrong_key_is_said(pytester: pytest.Pytester, line: str, says: str) -> None:
    pytester.makeini(f"[pytest]\nkafkapy_broker =\n    {line}\n")
    pytester.makepyfile("def test_broker(kafka_broker): ...")
    result = run(pytester)
    result.assert_outcomes(errors=1)
    assert says in result.stdout.str()


def test_fixtures_are_listed_with_what_they_are(pytester: pytest.Pytester) -> None:
    text = run(pytester, "--fixtures").stdout.str()
    assert re.search(r"kafka_broker \[session scope\]", text)
    assert "kafka_topic" in text


def examples() -> list[str]:
    """The Python blocks of the page."""
    page = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
