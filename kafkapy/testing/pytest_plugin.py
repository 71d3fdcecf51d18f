"""Fixtures for pytest: a broker for the session, and a topic and clients for each test.

    def test_an_order_arrives(kafka_topic, kafka_producer, kafka_consumer): ...

Loaded by pytest in every project where kafkapy is installed, so it imports nothing of the broker until a test asks for
one. Settings (pytest.ini, pyproject.toml):

    kafkapy_broker =                broker keys, one key=value a line
        num.partitions=3
        auto.create.topics.enable=false
    kafkapy_record_timeout = 10     seconds that kafka_consumer waits for a record before the test fails
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from kafkapy.clients.consumer.consumer import KafkaConsumer
    from kafkapy.clients.producer.producer import KafkaProducer
    from kafkapy.testing.broker import Broker

INI: Final = "kafkapy_broker"
TIMEOUT: Final = "kafkapy_record_timeout"
MARKER: Final = "kafka_topic"
MAX_STEM: Final = 200
"""Characters of a test's name in the name of its topic; a name may have 249."""

_numbers = itertools.count(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    """The ini options: the broker's keys, and how long a consumer waits."""
    parser.addini(TIMEOUT, "Seconds that kafka_consumer waits for a record before the test fails.", default="10")
    parser.addini(INI, "Keys of the broker that kafka_broker starts, one key=value a line.", type="linelist")


def pytest_configure(config: pytest.Config) -> None:
    """The marker that describes a test's topic."""
    text = f"{MARKER}(partitions=None, configs=None): how the topic of the fixture kafka_topic is made (kafkapy)"
    config.addinivalue_line("markers", text)


def broker_overrides(config: pytest.Config) -> dict[str, str]:
    """What the ini option says. pytest.UsageError for a line that is no key=value."""
    overrides: dict[str, str] = {}
    for line in config.getini(INI):
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise pytest.UsageError(f"{INI}: {line!r} is not key=value")
        overrides[name.strip()] = value.strip()
    return overrides


def record_timeout_s(config: pytest.Config) -> float:
    """What the ini option says. pytest.UsageError for what is no number of seconds above 0."""
    text = config.getini(TIMEOUT)
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < math.inf:
        raise pytest.UsageError(f"{TIMEOUT}: {text!r} is not a number of seconds")
    return seconds


@pytest.fixture(scope="session")
def kafka_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker in this process, for all tests of the session (kafkapy.testing.Broker)."""
    from kafkapy.testing.broker import Broker

    with Broker(**broker_overrides(request.config)) as broker:
        yield broker


@pytest.fixture
def kafka_topic(request: pytest.FixtureRequest, kafka_broker: Broker) -> Iterator[str]:
    """The name of a topic that is the test's own; it is deleted after the test. `@pytest.mark.kafka_topic(partitions=3,
    configs={"cleanup.policy": "compact"})` says what it is like."""
    from kafkapy.errors import UnknownTopicOrPartitionError

    marker = request.node.get_closest_marker(MARKER)
    stem = re.sub(r"[^a-zA-Z0-9._-]+", "-", request.node.name)[:MAX_STEM].strip("-")
    name = f"{stem}-{next(_numbers)}"
    kafka_broker.create_topic(name, *(marker.args if marker else ()), **(marker.kwargs if marker else {}))
    yield name
    try:
        kafka_broker.delete_topic(name)
    except UnknownTopicOrPartitionError:
        pass  # by the test itself


@pytest.fixture
def kafka_producer(kafka_broker: Broker) -> Iterator[KafkaProducer]:
    """A producer on the broker, with the defaults of its class."""
    from kafkapy.clients.producer.producer import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=kafka_broker.bootstrap_servers)
    yield producer
    producer.close()


@pytest.fixture
def kafka_consumer(request: pytest.FixtureRequest, kafka_broker: Broker, kafka_topic: str) -> Iterator[KafkaConsumer]:
    """A consumer that reads the test's topic from its beginning, without a group. Where its iteration waits for a
    record for kafkapy_record_timeout seconds, the test fails."""
    from kafkapy.testing.impatient_consumer import ImpatientConsumer

    seconds = record_timeout_s(request.config)
    with ImpatientConsumer(kafka_topic, kafka_broker.bootstrap_servers, seconds) as consumer:
        yield consumer
