"""Transactions of a principal that may not do what it asks for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from broker.handlers.transactions import Producer

from kafkapy.broker.server import KafkaServer
from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from kafkapy.protocol.messages.describe_transactions import DescribeTransactionsRequest
from kafkapy.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkapy.protocol.messages.list_transactions import ListTransactionsRequest
from kafkapy.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from kafkapy.security.authorizer.base import AuthorizationResult
from kafkapy.types import AclOperation, ResourceType

DENIED_ID = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
WRITES = (AclOperation.WRITE, AclOperation.READ)


class Refusing:
    """Denies the cluster; reading and writing where a name begins with "secret"; describing "hidden" ones."""

    decisions_epoch = 1

    def authorize(self, context: Any, actions: Any) -> list[AuthorizationResult]:
        def denied(action: Any) -> bool:
            name = action.resource_name
            if action.resource_type is ResourceType.CLUSTER:
                return True
            return name.startswith("hidden") if action.operation not in WRITES else name.startswith("secret")

        return [AuthorizationResult.DENIED if denied(each) else AuthorizationResult.ALLOWED for each in actions]

    def authorize_by_resource_type(self, context: Any, operation: Any, resource_type: Any) -> bool:
        return False


@pytest.fixture(scope="module")
def refusing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A broker of its own, so that all other tests may do what they like."""
    from kafkapy.config.broker import BrokerConfig
    from kafkapy.config.properties import Properties

    keys = [
        "broker.id=1",
        "listeners=PLAINTEXT://127.0.0.1:0",
        f"log.dirs={tmp_path_factory.mktemp('refusing')}",
        "offsets.topic.replication.factor=1",
        "transaction.state.log.replication.factor=1",
        "transaction.state.log.min.isr=1",
    ]
    with KafkaServer(BrokerConfig.from_properties(Properties().override(keys))) as server:
        yield server


@pytest.fixture
def client(refusing: Any, connect: Any) -> Any:
    made = connect(refusing)
    if not refusing.context.metadata_cache.contains("secret"):
        made.create_topic("secret")
        made.create_topic("hidden")
        made.create_topic("open")
        made.coordinate_transactions("anything")
        refusing.use_authorizer(Refusing())
    return made


def test_a_transactional_id_of_others_cannot_be_used(client: Any) -> None:
    asked = InitProducerIdRequest(transactional_id="secret", transaction_timeout_ms=1000)
    assert client(asked, 4).error_code == DENIED_ID
    producer = Producer(client, "mine")
    producer.name = "secret"
    assert set(producer.add(("open", [0])).values()) == {DENIED_ID}
    assert producer.add_offsets("group") == DENIED_ID
    assert producer.commit_offset("group", "open", 1) == DENIED_ID
    assert producer.end().error_code == DENIED_ID


def test_groups_and_topics_of_others_cannot_be_part_of_a_transaction(client: Any) -> None:
    producer = Producer(client, "parts")
    assert producer.add(("secret", [0]), ("open", [0])) == {
        ("secret", 0): ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ("open", 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
    }
    assert producer.describe().transaction_state == "Empty"
    assert producer.add_offsets("secret-group") == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert producer.commit_offset("secret-group", "open", 1) == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert producer.commit_offset("group", "secret", 1) == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_only_brokers_write_markers_and_ask_for_several_transactions(client: Any) -> None:
    transaction = AddPartitionsToTxnRequest.Transaction(
        transactional_id="mine", producer_id=1, producer_epoch=0, verify_only=True, topics=[]
    )
    asked = AddPartitionsToTxnRequest(transactions=[transaction])
    assert client(asked, 4).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    marker = WriteTxnMarkersRequest.Marker(
        producer_id=1,
        producer_epoch=0,
        transaction_result=True,
        topics=[WriteTxnMarkersRequest.Marker.Topic(name="open", partition_indexes=[0])],
        coordinator_epoch=0,
    )
    [answer] = client(WriteTxnMarkersRequest(markers=[marker]), 1).markers
    assert answer.topics[0].partitions[0].error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_ids_that_one_may_not_describe_are_not_shown(client: Any) -> None:
    # What may be written need not be described.
    begun = client(InitProducerIdRequest(transactional_id="hidden-id", transaction_timeout_ms=60_000), 4)
    assert begun.error_code == ErrorCode.NONE
    [hidden] = client(DescribeTransactionsRequest(transactional_ids=["hidden-id"]), 0).transaction_states
    assert (hidden.error_code, hidden.transaction_state) == (DENIED_ID, "")
    shown = Producer(client, "shown")
    shown.add(("open", [0]), ("hidden", [0]))
    assert [topic.topic for topic in shown.describe().topics] == ["open"]
    response = client(ListTransactionsRequest(state_filters=[], producer_id_filters=[]), 0)
    listed = {each.transactional_id for each in response.transaction_states}
    assert "shown" in listed
    assert "hidden-id" not in listed
