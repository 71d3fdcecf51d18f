"""A cluster's transaction.version decides how our producer and the coordinator work (KIP-890)."""

from __future__ import annotations

import pytest

from kafkapy import KafkaAdminClient, KafkaProducer
from kafkapy.testing import Broker


def epochs(broker: Broker, name: str) -> list[int]:
    """The producer's epochs before and after two transactions."""
    found: list[int] = []
    with (
        KafkaProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id=name) as producer,
        KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin,
    ):
        producer.init_transactions()
        for _ in range(2):
            found.append(admin.describe_transactions([name])[name].producer_epoch)
            producer.begin_transaction()
            producer.send("topic", b"value")
            producer.commit_transaction()
        found.append(admin.describe_transactions([name])[name].producer_epoch)
    return found


@pytest.mark.parametrize("level", [0, 1])
def test_a_downgrade_turns_the_epochs_of_transactions_off(level: int) -> None:
    with Broker() as broker:
        assert epochs(broker, "a") == [0, 1, 2]
        with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.update_features({"transaction.version": ("safe_downgrade", level)})
        assert epochs(broker, "b") == [0, 0, 0]
        # An id that has had them goes on without.
        assert epochs(broker, "a") == [3, 3, 3]
        with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.update_features({"transaction.version": 2})
        assert epochs(broker, "b") == [1, 2, 3]
