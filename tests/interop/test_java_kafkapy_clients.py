"""Our clients against Apache Kafka 3.9 and 4.x: the matrix of test_clients, transactions, and a broker that is killed
(make interop-java).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clients import test_chaos
from clients.producer.cutting_proxy import CuttingProxy
from interop import clients
from interop.conftest import JAVA
from interop.test_clients import (
    test_each_client_reads_what_the_others_wrote,
    test_every_record_comes_back_as_sent,
    test_fetch_from_a_timestamp,
    test_fetch_from_the_middle_and_across_segment_rolls,
    test_idempotent_producer,
    test_many_partitions_are_kept_apart,
    test_record_sizes_from_one_byte_to_a_megabyte,
)
from interop.test_kafkapy_transactions import (
    test_records_are_consumed_transformed_and_produced_once,
    test_transactions_on_asyncio,
)
from peers.apache_kafka import ApacheKafka

from kafkapy import KafkaAdminClient
from kafkapy.admin import NewTopic

__all__ = [
    "test_each_client_reads_what_the_others_wrote",
    "test_every_record_comes_back_as_sent",
    "test_fetch_from_a_timestamp",
    "test_fetch_from_the_middle_and_across_segment_rolls",
    "test_idempotent_producer",
    "test_many_partitions_are_kept_apart",
    "test_record_sizes_from_one_byte_to_a_megabyte",
    "test_records_are_consumed_transformed_and_produced_once",
    "test_transactions_on_asyncio",
]
"""They are collected here once more, with this module's broker and clients."""

pytestmark = [*JAVA, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def broker(version: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    with ApacheKafka(version, tmp_path_factory.mktemp("kafka")) as running:
        yield running


@pytest.fixture(params=clients.OURS, ids=lambda kind: kind.name)
def client(request: pytest.FixtureRequest, broker: ApacheKafka) -> clients.Client:
    """Each of our clients in turn."""
    made: clients.Client = request.param(broker.bootstrap)
    return made


def test_connections_are_cut_and_the_broker_is_killed(version: str, tmp_path: Path) -> None:
    with CuttingProxy() as proxy:
        running = ApacheKafka(version, tmp_path, test_chaos.OVERRIDES)
        running.overrides["advertised.listeners"] = f"PLAINTEXT://127.0.0.1:{proxy.port}"
        with running:
            proxy.target_port = running.port
            with KafkaAdminClient(bootstrap_servers=f"127.0.0.1:{proxy.port}") as admin:
                admin.create_topics([NewTopic(test_chaos.TOPIC, test_chaos.PARTITIONS, 1)])
            broker: Any = running
            test_chaos.through_trouble(proxy, broker, 30_000, kills=1, cut_every=200_000)
