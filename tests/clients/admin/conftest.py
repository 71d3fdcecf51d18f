"""One broker process for all tests here, one admin client, and names that nobody else uses."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from kafkapy.admin import KafkaAdminClient
from kafkapy.testing.broker_process import BrokerProcess


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    root = tmp_path_factory.mktemp("admin")
    overrides = {"log.dirs": f"{root / 'one'},{root / 'two'}", "log.segment.delete.delay.ms": "0"}
    with BrokerProcess(root, overrides) as made:
        yield made


@pytest.fixture(scope="session")
def admin(broker: BrokerProcess) -> Iterator[KafkaAdminClient]:
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap, client_id="admin-tests") as client:
        yield client


_numbers = itertools.count()


@pytest.fixture
def name() -> Callable[[], str]:
    """A new name for a topic, a group or a transactional id."""
    return lambda: f"name-{next(_numbers)}"


@pytest.fixture
def topic(admin: KafkaAdminClient, name: Callable[[], str]) -> Iterator[str]:
    """A topic of two partitions."""
    made = name()
    admin.create_topics({made: {"num_partitions": 2}})
    yield made
    if made in admin.list_topics():
        admin.delete_topics([made])
