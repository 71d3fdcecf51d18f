"""Topics, partitions and records through KafkaAdminClient, against a broker."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from kafkapy.admin import (
    KafkaAdminClient,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    OffsetTimestamp,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafkapy.errors import (
    BrokerIdNotRegisteredError,
    ErrorCode,
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidUpdateVersionError,
    KafkaError,
    KafkaTimeoutError,
    NoReassignmentInProgressError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from kafkapy.structs import OffsetAndTimestamp, TopicPartition
from kafkapy.testing.broker_process import BrokerProcess

Name = Callable[[], str]


def produce(broker: BrokerProcess, topic: str, timestamps: list[int], partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    for timestamp in timestamps:
        producer.produce(topic, b"value", partition=partition, timestamp=timestamp)
    assert producer.flush(20) == 0


def test_topics_are_created_in_each_way_and_described(admin: KafkaAdminClient, name: Name) -> None:
    plain, detailed, classic, assigned = (name() for _ in range(4))
    answer = admin.create_topics([plain])
    assert [(topic["name"], topic["error_code"]) for topic in answer["topics"]] == [(plain, 0)]
    answer = admin.create_topics({detailed: {"num_partitions": 3, "configs": {"retention.ms": 5000}}})
    (created,) = answer["topics"]
    assert (created["num_partitions"], created["replication_factor"]) == (3, 1)
    assert created["configs"]["retention.ms"]["value"] == "5000"
    assert created["configs"]["retention.ms"]["config_source"] == "DYNAMIC_TOPIC_CONFIG"
    admin.create_topics([NewTopic(classic, 2, 1, topic_configs={"cleanup.policy": "compact"})])
    admin.create_topics({assigned: {"assignments": {0: [1], 1: [1]}}})
    described = {topic["name"]: topic for topic in admin.describe_topics([plain, detailed, classic, assigned])}
    assert {name: len(topic["partitions"]) for name, topic in described.items()} == {
        plain: 1,
        detailed: 3,
        classic: 2,
        assigned: 2,
    }
    assert described[detailed]["topic_id"] == created["topic_id"]
    assert all(each["leader_id"] == 1 and each["isr_nodes"] == [1] for each in described[detailed]["partitions"])
    assert "READ" in described[plain]["authorized_operations"]
    assert {plain, detailed, classic, assigned} <= set(admin.list_topics())
    admin.delete_topics([plain, detailed, classic, assigned])


def test_a_topic_that_could_be_created_is_not(admin: KafkaAdminClient, name: Name) -> None:
    topic = name()
    assert admin.create_topics({topic: {}}, validate_only=True)["topics"][0]["error_code"] == 0
    assert topic not in admin.list_topics()
    with pytest.raises(InvalidReplicationFactorError, match=f"^Topic {topic}: "):
        admin.create_topics({topic: {"replication_factor": 2}}, validate_only=True)
    with pytest.raises(ValueError, match="exclude"):
        admin.create_topics({topic: {}}, validate_only=True, wait_for_metadata=True)


@pytest.mark.parametrize("wrong", [[], {}, [3], {"t": {"partitions": 4}}])
def test_what_is_no_topic_is_said_before_it_is_sent(admin: KafkaAdminClient, wrong: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        admin.create_topics(wrong)  # type: ignore[arg-type]


def test_topics_that_exist_and_that_do_not(admin: KafkaAdminClient, topic: str, name: Name) -> None:
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([topic])
    other = name()
    answer = admin.create_topics([topic, other], raise_errors=False)
    assert {each["name"]: each["error_code"] for each in answer["topics"]} == {topic: 36, other: 0}
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics([name()])
    missing = name()
    answer = admin.delete_topics([other, missing], raise_errors=False)
    assert {each["name"]: each["error_code"] for each in answer["topics"]} == {other: 0, missing: 3}
    assert admin.describe_topics([missing])[0]["error_code"] == 3


def test_topics_are_described_and_deleted_by_id(admin: KafkaAdminClient, name: Name) -> None:
    topic = name()
    topic_id = uuid.UUID(admin.create_topics([topic])["topics"][0]["topic_id"])
    assert admin.describe_topics([topic_id])[0]["name"] == topic
    assert admin.delete_topics([topic_id])["topics"][0]["error_code"] == 0
    assert topic not in admin.list_topics()
    answer = admin.delete_topics([topic_id], raise_errors=False)["topics"]
    assert [each["error_code"] for each in answer] == [100]


def test_waiting_for_topics_ends_when_they_are_ready_or_in_time(admin: KafkaAdminClient, name: Name) -> None:
    topic = name()
    admin.create_topics([topic], wait_for_metadata=True)
    admin.wait_for_topics([topic])
    admin.delete_topics([topic])
    with pytest.raises(KafkaTimeoutError, match=topic):
        admin.wait_for_topics([topic], timeout_ms=50)


def test_pages_of_partitions(admin: KafkaAdminClient, name: Name) -> None:
    topic = name()
    admin.create_topics({topic: {"num_partitions": 5}})
    found, cursor = [], None
    for _ in range(5):
        page = admin.describe_topic_partitions([topic], response_partition_limit=2, cursor=cursor)
        found += [each["partition_index"] for each in page["topics"][0]["partitions"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert found == [0, 1, 2, 3, 4]
    admin.delete_topics([topic])


def test_topics_get_more_partitions(admin: KafkaAdminClient, topic: str) -> None:
    assert admin.create_partitions({topic: 3}, validate_only=True).results[0].error_code == 0
    assert len(admin.describe_topics([topic])[0]["partitions"]) == 2
    admin.create_partitions({topic: 3})
    admin.create_partitions({topic: NewPartitions(4, [[1]])})
    admin.create_partitions({topic: {"count": 5, "assignments": [[1]]}})
    assert len(admin.describe_topics([topic])[0]["partitions"]) == 5
    with pytest.raises(InvalidPartitionsError):
        admin.create_partitions({topic: 1})
    assert admin.create_partitions({topic: 1}, raise_errors=False).results[0].error_code == 37


def test_offsets_by_place_and_time(admin: KafkaAdminClient, broker: BrokerProcess, topic: str) -> None:
    first, empty = TopicPartition(topic, 0), TopicPartition(topic, 1)
    produce(broker, topic, [1000, 3000, 2000])
    latest = admin.list_partition_offsets({first: OffsetSpec.LATEST, empty: OffsetSpec.LATEST})
    assert latest == {first: OffsetAndTimestamp(3, -1, 0), empty: OffsetAndTimestamp(0, -1, 0)}
    assert admin.list_partition_offsets({first: OffsetSpec.EARLIEST})[first].offset == 0
    assert admin.list_partition_offsets({first: OffsetSpec.MAX_TIMESTAMP})[first][:2] == (1, 3000)
    assert admin.list_partition_offsets({first: 1500})[first][:2] == (1, 3000)
    assert admin.list_partition_offsets({first: OffsetTimestamp(9000)})[first].offset == -1
    assert admin.list_partition_offsets({first: -1}, isolation_level="read_committed")[first].offset == 3
    with pytest.raises(UnknownTopicOrPartitionError, match="2 partitions, but no 7"):
        admin.list_partition_offsets({TopicPartition(topic, 7): OffsetSpec.LATEST})
    with pytest.raises(TypeError):
        admin.list_partition_offsets({first: "latest"})  # type: ignore[dict-item]


def test_records_are_deleted_below_an_offset(admin: KafkaAdminClient, broker: BrokerProcess, topic: str) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    produce(broker, topic, [1, 2, 3, 4])
    deleted = admin.delete_records({first: 3, second: 0})
    assert deleted[first] == {"partition_index": 0, "low_watermark": 3, "error_code": 0}
    assert admin.list_partition_offsets({first: OffsetSpec.EARLIEST})[first].offset == 3
    assert admin.delete_records({first: -1}, partition_leader_id=1)[first]["low_watermark"] == 4
    with pytest.raises(OffsetOutOfRangeError, match=f"^Partition {topic}-0: "):
        admin.delete_records({first: 99})


def test_what_the_broker_does_not_serve_is_an_unsupported_version(admin: KafkaAdminClient) -> None:
    with pytest.raises(UnsupportedVersionError):
        admin.add_raft_voter(1, uuid.uuid4(), [])


def test_scram_users_come_and_go(admin: KafkaAdminClient) -> None:
    added = [UserScramCredentialUpsertion("alice", mechanism, "wonder", 5000) for mechanism in (1, 2)]
    assert admin.alter_user_scram_credentials(added) == {"alice": None}
    infos = [{"mechanism": ScramMechanism(mechanism), "iterations": 5000} for mechanism in (1, 2)]
    assert admin.describe_user_scram_credentials() == {"alice": {"error": None, "credential_infos": infos}}
    gone = [UserScramCredentialDeletion("alice", mechanism) for mechanism in (1, 2)]
    assert admin.alter_user_scram_credentials(gone) == {"alice": None}
    assert admin.describe_user_scram_credentials() == {}
    (refused,) = admin.alter_user_scram_credentials(gone[:1]).values()
    assert refused == "Attempt to delete a user credential that does not exist"


def test_an_anonymous_client_gets_no_token(admin: KafkaAdminClient) -> None:
    for call in (admin.create_delegation_token, admin.describe_delegation_token):
        with pytest.raises(KafkaError) as caught:
            call()
        assert caught.value.code is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def test_a_cluster_of_one_answers_what_is_about_several_brokers(admin: KafkaAdminClient, topic: str) -> None:
    first = TopicPartition(topic, 0)
    (elected,) = admin.elect_leaders("preferred", [topic]).replica_election_results
    assert {each.error_code for each in elected.partition_result} == {ErrorCode.ELECTION_NOT_NEEDED}
    assert admin.alter_partition_reassignments({first: [1]}) == {first: None}
    assert admin.alter_partition_reassignments({first: [2]}) == {first: InvalidReplicaAssignmentError}
    assert admin.alter_partition_reassignments({first: None}) == {first: NoReassignmentInProgressError}
    assert admin.list_partition_reassignments() == {}
    (partition,) = admin.describe_metadata_quorum()["topics"][0]["partitions"]
    assert [voter["replica_id"] for voter in partition["current_voters"]] == [partition["leader_id"]] == [1]
    assert admin.update_features({"group.version": 1}) == {"group.version": "OK"}
    with pytest.raises(InvalidUpdateVersionError, match="metadata.version"):
        admin.update_features({"metadata.version": 1})
    with pytest.raises(BrokerIdNotRegisteredError, match="7"):
        admin.unregister_broker(7)


def test_reassignments_are_checked_before_they_are_sent(admin: KafkaAdminClient) -> None:
    for replicas in ([], ["1"]):
        with pytest.raises(ValueError, match="broker ids"):
            admin.alter_partition_reassignments({TopicPartition("t", 0): replicas})  # type: ignore[dict-item]
