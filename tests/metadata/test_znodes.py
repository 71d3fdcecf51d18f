"""The encodings of the metadata tree: what Kafka 3.9 writes is read, and what is written is what Kafka reads."""

from __future__ import annotations

import json
from typing import SupportsIndex

import pytest

from kafkapy.metadata import znodes
from kafkapy.metadata.topic_names import TopicNames, invalid_reason
from kafkapy.metadata.znodes import (
    BrokerRegistration,
    PartitionState,
    ProducerIdBlock,
    ReplicaAssignment,
    TopicAssignment,
)
from kafkapy.types import Endpoint, SecurityProtocol, TopicPartition, uuid_from_string

BROKER_V5 = (
    b'{"features":{},"listener_security_protocol_map":{"CLIENT":"SASL_SSL","REPLICATION":"PLAINTEXT"},'
    b'"endpoints":["CLIENT://[::1]:9092","REPLICATION://host1:9093"],"jmx_port":9999,"port":9093,"host":"host1",'
    b'"version":5,"rack":"dc1","timestamp":"2233345666"}'
)
TOPIC_V3 = (
    b'{"removing_replicas":{"1":[3]},"partitions":{"0":[1,2],"1":[2,3,4]},"topic_id":"dEWHfvGHS2uRp7JaJqr1Sg",'
    b'"adding_replicas":{"1":[4]},"version":3}'
)


def test_a_broker_registration_of_kafka_is_read_and_written() -> None:
    broker = znodes.decode_broker(7, BROKER_V5, epoch=42)
    assert broker == BrokerRegistration(
        7,
        (
            Endpoint("CLIENT", "::1", 9092, SecurityProtocol.SASL_SSL),
            Endpoint("REPLICATION", "host1", 9093, SecurityProtocol.PLAINTEXT),
        ),
        "dc1",
        9999,
        42,
    )
    assert json.loads(znodes.encode_broker(broker, 2233345666)) == json.loads(BROKER_V5)


@pytest.mark.parametrize(
    ("data", "endpoints"),
    [
        (b'{"version":1,"host":"h","port":9092,"jmx_port":-1}', (Endpoint("PLAINTEXT", "h", 9092),)),
        (
            b'{"version":3,"endpoints":["SSL://h:9093"],"jmx_port":-1,"rack":null}',
            (Endpoint("SSL", "h", 9093, SecurityProtocol.SSL),),
        ),
    ],
)
def test_registrations_of_old_brokers_are_read(data: bytes, endpoints: tuple[Endpoint, ...]) -> None:
    assert znodes.decode_broker(0, data).endpoints == endpoints


def test_a_topic_of_kafka_is_read_and_written_byte_for_byte() -> None:
    assignment = znodes.decode_topic("t", TOPIC_V3)
    assert assignment.topic_id == uuid_from_string("dEWHfvGHS2uRp7JaJqr1Sg")
    assert assignment.partitions == {
        0: ReplicaAssignment((1, 2)),
        1: ReplicaAssignment((2, 3, 4), (4,), (3,)),
    }
    assert assignment.partitions[1].is_being_reassigned
    assert znodes.encode_topic(assignment) == TOPIC_V3


def test_a_topic_without_an_id_is_read() -> None:
    assert znodes.decode_topic("t", b'{"version":1,"partitions":{"0":[1]}}') == TopicAssignment(
        None, {0: ReplicaAssignment((1,))}
    )


def test_a_partition_state_is_written_as_kafka_does() -> None:
    state = PartitionState(1, 3, (1, 2), 5, version=9)
    data = b'{"controller_epoch":5,"leader":1,"version":1,"leader_epoch":3,"isr":[1,2]}'
    assert znodes.encode_partition_state(state) == data
    assert znodes.decode_partition_state(TopicPartition("t", 0), data, 9) == state
    recovering = PartitionState(1, 3, (1,), 5, recovering=True)
    assert json.loads(znodes.encode_partition_state(recovering))["leader_recovery_state"] == 1
    assert (
        znodes.decode_partition_state(TopicPartition("t", 0), znodes.encode_partition_state(recovering), -1)
        == recovering
    )


def test_small_nodes_are_written_as_kafka_does() -> None:
    assert znodes.encode_controller(1, 99) == (b'{"version":2,"brokerid":1,"timestamp":"99","kraftControllerEpoch":-1}')
    assert znodes.decode_controller(b'{"version":1,"brokerid":3,"timestamp":"1"}') == 3
    assert znodes.encode_cluster_id("abc") == b'{"version":"1","id":"abc"}'
    assert znodes.encode_controller_epoch(12) == b"12"
    assert znodes.encode_config({"retention.ms": "1"}) == b'{"version":1,"config":{"retention.ms":"1"}}'
    assert znodes.decode_config(b"") == {}
    assert znodes.encode_config_change("topics/t") == b'{"version":2,"entity_path":"topics/t"}'
    assert znodes.decode_config_change(b'{"version":1,"entity_type":"topics","entity_name":"t"}') == "topics/t"
    block = ProducerIdBlock(1, 2000, 2999)
    assert znodes.encode_producer_id_block(block) == (
        b'{"version":1,"broker":1,"block_start":"2000","block_end":"2999"}'
    )
    assert znodes.decode_producer_id_block(znodes.encode_producer_id_block(block)) == block
    partitions = [TopicPartition("a", 0), TopicPartition("b", 7)]
    assert znodes.decode_isr_change(znodes.encode_isr_change(partitions)) == partitions
    assert znodes.encode_log_dir_event(4) == b'{"version":1,"broker":4,"event":1}'
    assert znodes.decode_feature(znodes.encode_feature(True, {"x": 2})) == (True, {"x": 2})


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"7", b'{"version":3}', b'{"partitions":{"x":[1]}}', b'{"partitions":{"0":1}}']
)
def test_what_is_not_a_topic_node_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"topic|invalid literal"):
        znodes.decode_topic("t", data)


@pytest.mark.parametrize(
    "data",
    [b"{", b'{"version":0}', b'{"version":5,"endpoints":["nonsense"]}', b'{"version":5,"endpoints":["X://h:1"]}'],
)
def test_what_is_not_a_broker_node_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="broker 1"):
        znodes.decode_broker(1, data)


def test_names_of_users_survive_as_names_of_nodes() -> None:
    for name in ("alice", "CN=a,O=b/c", "üser", "a b", "*"):
        assert "/" not in znodes.sanitize(name)
        assert znodes.desanitize(znodes.sanitize(name)) == name


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "..."])
def test_legal_topic_names(name: str) -> None:
    assert invalid_reason(name) is None


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "ä", "a\n", "a,b"])
def test_illegal_topic_names(name: str) -> None:
    assert invalid_reason(name) is not None


def test_names_that_differ_in_dots_and_underscores_only_collide() -> None:
    names = TopicNames()
    for name in ("a_b", "a.b", "ab", "a-b", "a.b"):
        names.add(name)
    assert names.colliding_with("a.b") == ["a_b"]
    assert names.colliding_with("ab") == []
    names.discard("a_b")
    names.discard("a_b")
    assert names.colliding_with("a.b") == []
    assert names.colliding_with("a_b") == ["a.b"]


def test_a_name_is_compared_with_those_alone_that_it_collides_with() -> None:
    looked_at = []

    class Name(str):
        __slots__ = ()

        def replace(self, old: str, new: str, count: SupportsIndex = -1) -> str:
            looked_at.append(self)
            return str(self).replace(old, new, count)

    names = TopicNames()
    for i in range(1000):
        names.add(Name(f"t.{i}"))
    looked_at.clear()
    assert names.colliding_with("t_7") == ["t.7"]
    assert not looked_at
