"""Fixtures for pytest: a broker per session, topic and clients per test.

    def test_an_order_arrives(kafka_topic, kafka_producer, kafka_consumer): ...

Pytest loads this module in every project where kafkapy is installed, so it imports the broker only when a test uses it.
Settings (pytest.ini, pyproject.toml):

    kafkapy_broker =                broker keys, one key=value per line
        num.partitions=3
        auto.create.topics.enable=false
    kafkapy_broker_security = SASL_SSL      security protocol of that broker; the fixtures' clients use it
    kafkapy_broker_users =          users that may log in, one name=password per line
        ann=secret
    kafkapy_record_timeout = 10     seconds that kafka_consumer waits for a record before the test fails
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from kafkapy.clients.consumer.consumer import KafkaConsumer
    from kafkapy.clients.producer.producer import KafkaProducer
    from kafkapy.testing.broker import Broker

INI: Final = "kafkapy_broker"
SECURITY: Final = "kafkapy_broker_security"
USERS: Final = "kafkapy_broker_users"
TIMEOUT: Final = "kafkapy_record_timeout"
MARKER: Final = "kafka_topic"
MAX_STEM: Final = 200
"""Largest number of characters of a test's name in its topic's name; a topic name may have 249."""

_numbers = itertools.count(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    """The ini options: broker keys, and the consumer's timeout."""
    parser.addini(TIMEOUT, "Seconds that kafka_consumer waits for a record before the test fails.", default="10")
    parser.addini(SECURITY, "Security protocol of the broker that kafka_broker starts.", default="PLAINTEXT")
    parser.addini(USERS, "Users of the broker that kafka_broker starts, one name=password per line.", type="linelist")
    parser.addini(INI, "Keys of the broker that kafka_broker starts, one key=value per line.", type="linelist")


def pytest_configure(config: pytest.Config) -> None:
    """The marker for the partitions and configuration of a test's topic."""
    text = f"{MARKER}(partitions=None, configs=None): partitions and configuration of the fixture kafka_topic (kafkapy)"
    config.addinivalue_line("markers", text)


def broker_overrides(config: pytest.Config) -> dict[str, str]:
    """The broker keys of the ini option.

    pytest.UsageError for a line that is not key=value.
    """
    return _lines(config, INI, "key=value")


def _lines(config: pytest.Config, option: str, form: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in config.getini(option):
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise pytest.UsageError(f"{option}: {line!r} is not {form}")
        found[name.strip()] = value.strip()
    return found


def record_timeout_s(config: pytest.Config) -> float:
    """The timeout of the ini option in seconds.

    pytest.UsageError unless it is above 0.
    """
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
    """A broker in this process for the whole session (kafkapy.testing.Broker)."""
    from kafkapy.testing.broker import Broker

    overrides: dict[str, Any] = dict(broker_overrides(request.config))
    users = _lines(request.config, USERS, "name=password") or None
    with Broker(security=request.config.getini(SECURITY), users=users, **overrides) as broker:
        yield broker


@pytest.fixture
def kafka_topic(request: pytest.FixtureRequest, kafka_broker: Broker) -> Iterator[str]:
    """The name of a topic for this test, deleted after it.

    `@pytest.mark.kafka_topic(partitions=3, configs={"cleanup.policy": "compact"})` sets its partitions and
    configuration.
    """
    from kafkapy.errors import UnknownTopicOrPartitionError

    marker = request.node.get_closest_marker(MARKER)
    stem = re.sub(r"[^a-zA-Z0-9._-]+", "-", request.node.name)[:MAX_STEM].strip("-")
    name = f"{stem}-{next(_numbers)}"
    kafka_broker.create_topic(name, *(marker.args if marker else ()), **(marker.kwargs if marker else {}))
    yield name
    try:
        kafka_broker.delete_topic(name)
    except UnknownTopicOrPartitionError:
        pass  # the test deleted it


@pytest.fixture
def kafka_producer(kafka_broker: Broker) -> Iterator[KafkaProducer]:
    """A producer for the broker, with its security and otherwise default configuration."""
    from kafkapy.clients.producer.producer import KafkaProducer

    producer = KafkaProducer(kafka_broker.client_config())
    yield producer
    producer.close()


@pytest.fixture
def kafka_consumer(request: pytest.FixtureRequest, kafka_broker: Broker, kafka_topic: str) -> Iterator[KafkaConsumer]:
    """A consumer without a group that reads the whole test topic.

    The test fails when the iteration gets no record for kafkapy_record_timeout seconds.
    """
    from kafkapy.testing.impatient_consumer import ImpatientConsumer

    seconds = record_timeout_s(request.config)
    with ImpatientConsumer(kafka_topic, kafka_broker.client_config(), seconds) as consumer:
        yield consumer
