"""Requests of a principal that may not do what they ask for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kafkapy.broker.context import decide
from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.alter_configs import AlterConfigsRequest
from kafkapy.protocol.messages.create_partitions import CreatePartitionsRequest
from kafkapy.protocol.messages.create_topics import CreateTopicsRequest
from kafkapy.protocol.messages.delete_records import DeleteRecordsRequest
from kafkapy.protocol.messages.delete_topics import DeleteTopicsRequest
from kafkapy.protocol.messages.describe_configs import DescribeConfigsRequest
from kafkapy.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from kafkapy.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkapy.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkapy.protocol.messages.list_offsets import ListOffsetsRequest
from kafkapy.protocol.messages.metadata import MetadataRequest
from kafkapy.protocol.messages.produce import ProduceRequest
from kafkapy.records.batches import RecordBatchBuilder
from kafkapy.security.authorizer.base import ALLOW_ALL_EPOCH, AuthorizationResult
from kafkapy.types import AclOperation, ResourceType

DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class Refusing:
    """Denies everything on topics whose name begins with "secret", and everything on the cluster."""

    decisions_epoch = 1

    def authorize(self, context: Any, actions: Any) -> list[AuthorizationResult]:
        return [
            AuthorizationResult.DENIED
            if action.resource_type is ResourceType.CLUSTER or action.resource_name.startswith("secret")
            else AuthorizationResult.ALLOWED
            for action in actions
        ]

    def authorize_by_resource_type(self, context: Any, operation: Any, resource_type: Any) -> bool:
        return False


@pytest.fixture(scope="module")
def refusing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A broker with a topic "secret" that nobody may touch, and a topic "open"."""
    from kafkapy.broker.server import KafkaServer
    from kafkapy.config.broker import BrokerConfig
    from kafkapy.config.properties import Properties

    keys = ["broker.id=1", "listeners=PLAINTEXT://127.0.0.1:0", f"log.dirs={tmp_path_factory.mktemp('refusing')}"]
    with KafkaServer(BrokerConfig.from_properties(Properties().override(keys))) as server:
        yield server


@pytest.fixture
def client(refusing: Any, connect: Any) -> Any:
    made = connect(refusing)
    if not refusing.context.metadata_cache.contains("secret"):
        made.create_topic("secret")
        made.create_topic("open")
        refusing.use_authorizer(Refusing())
    return made


def test_metadata_does_not_tell_of_topics_one_may_not_describe(client: Any) -> None:
    asked = [MetadataRequest.Topic(name=name) for name in ("secret", "secret-unknown", "open")]
    found = {topic.name: topic for topic in client(MetadataRequest(topics=asked), 12).topics}
    assert {name: topic.error_code for name, topic in found.items()} == {
        "secret": DENIED,
        "secret-unknown": DENIED,
        "open": ErrorCode.NONE,
    }
    assert found["secret"].partitions == []
    assert [topic.name for topic in client(MetadataRequest(topics=None), 12).topics] == ["open"]


def test_topics_cannot_be_created_changed_or_deleted(client: Any) -> None:
    new = CreateTopicsRequest.Topic(
        name="secret-new", num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    assert client(CreateTopicsRequest(topics=[new]), 7).topics[0].error_code == DENIED
    more = CreatePartitionsRequest.Topic(name="secret", count=3, assignments=None)
    request = CreatePartitionsRequest(topics=[more], timeout_ms=1000, validate_only=False)
    assert client(request, 3).results[0].error_code == DENIED
    assert client(DeleteTopicsRequest(topic_names=["secret"], timeout_ms=1000), 5).responses[0].error_code == DENIED
    altered = AlterConfigsRequest.Resource(resource_type=2, resource_name="secret", configs=[])
    request = AlterConfigsRequest(resources=[altered], validate_only=False)
    assert client(request, 2).responses[0].error_code == DENIED


def test_records_cannot_be_looked_for_or_deleted(client: Any) -> None:
    offsets = ListOffsetsRequest.Topic.Partition(partition_index=0, timestamp=-1)
    topic = ListOffsetsRequest.Topic(name="secret", partitions=[offsets])
    answer = client(ListOffsetsRequest(replica_id=-1, topics=[topic]), 5).topics[0].partitions[0]
    assert answer.error_code == DENIED
    deleted = DeleteRecordsRequest.Topic.Partition(partition_index=0, offset=-1)
    topic = DeleteRecordsRequest.Topic(name="secret", partitions=[deleted])
    answer = client(DeleteRecordsRequest(topics=[topic], timeout_ms=1000), 2).topics[0].partitions[0]
    assert answer.error_code == DENIED


def test_the_data_plane_asks_before_it_appends(client: Any) -> None:
    builder = RecordBatchBuilder()
    builder.append(1, None, b"x")
    data = ProduceRequest.Topic.Partition(index=0, records=builder.build())
    topics = [ProduceRequest.Topic(name=name, partition_data=[data]) for name in ("secret", "open")]
    for _ in range(2):  # the second time the decision comes from the connection's cache
        response = client(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics), 9)
        codes = {each.name: each.partition_responses[0].error_code for each in response.responses}
        assert codes == {"secret": DENIED, "open": ErrorCode.NONE}


def test_the_cluster_cannot_be_looked_into(client: Any) -> None:
    denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert client(DescribeLogDirsRequest(topics=None), 4).error_code == denied
    described = DescribeConfigsRequest.Resource(resource_type=4, resource_name="1", configuration_keys=None)
    assert client(DescribeConfigsRequest(resources=[described]), 4).results[0].error_code == denied
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    assert client(request, 4).error_code == denied


def test_groups_and_transactional_ids_have_errors_of_their_own(client: Any) -> None:
    groups = client(FindCoordinatorRequest(coordinator_keys=["secret-group"], key_type=0), 4).coordinators
    assert groups[0].error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    ids = client(FindCoordinatorRequest(coordinator_keys=["secret-id"], key_type=1), 4).coordinators
    assert ids[0].error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    request = InitProducerIdRequest(transactional_id="secret-id", transaction_timeout_ms=1000)
    assert client(request, 4).error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


@pytest.mark.parametrize(("epoch", "answers"), [(1, [False, True]), (ALLOW_ALL_EPOCH, [True, True])])
def test_an_authorizer_that_says_it_never_denies_is_not_asked(epoch: int, answers: list[bool]):
    authorizer: Any = Refusing()
    authorizer.decisions_epoch = epoch
    context: Any = None
    questions = [(AclOperation.READ, ResourceType.TOPIC, name) for name in ("secret", "open")]
    assert decide(authorizer, context, questions, True) == answers
