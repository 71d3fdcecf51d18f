"""The controller's requests on the wire, in each version, and the channel that carries them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kafkapy import errors
from kafkapy._speedups.protocol.codec import decode_request
from kafkapy._speedups.protocol.encoder import encode_message
from kafkapy.controller import broker_channel, remote_channel
from kafkapy.controller.context import ControllerContext
from kafkapy.controller.control_requests import request_of, response_of, version_of
from kafkapy.controller.remote_channel import RemoteBrokerChannel
from kafkapy.errors import ErrorCode
from kafkapy.metadata.broker_requests import (
    BrokerResponse,
    LeaderAndIsr,
    LeaderAndIsrPartition,
    MetadataPartitions,
    StopReplica,
    StopReplicaPartition,
    UpdateMetadata,
    UpdateMetadataPartition,
)
from kafkapy.metadata.metadata_version import LATEST, MetadataVersion
from kafkapy.metadata.znodes import BrokerRegistration, PartitionState, ReplicaAssignment, TopicAssignment
from kafkapy.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
)
from kafkapy.protocol.messages.stop_replica import StopReplicaResponse
from kafkapy.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from kafkapy.types import Endpoint, SecurityProtocol, TopicPartition, random_uuid

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
IDS = {"t": random_uuid(), "u": random_uuid()}
INSIDE = Endpoint("INSIDE", "in", 1, SecurityProtocol.SASL_SSL)
OUTSIDE = Endpoint("OUTSIDE", "out", 2, SecurityProtocol.PLAINTEXT)
BROKER = BrokerRegistration(5, (OUTSIDE, INSIDE), "rack")
STATE = PartitionState(5, 7, (5, 6), 3, recovering=True, version=9)
ROLES = LeaderAndIsr(
    1,
    4,
    77,
    IDS,
    {
        T0: LeaderAndIsrPartition(STATE, (5, 6, 8), (8,), (6,), is_new=True),
        T1: LeaderAndIsrPartition(STATE._replace(leader=6, recovering=False), (5, 6)),
        U0: LeaderAndIsrPartition(STATE, (5,)),
    },
    {5: BROKER},
)
METADATA = UpdateMetadata(1, 4, 77, IDS, {T0: UpdateMetadataPartition(STATE, (5, 6), (6,))}, {5: BROKER})
STOPS = StopReplica(
    1,
    4,
    77,
    {T0: StopReplicaPartition(3, True), T1: StopReplicaPartition(-2, False), U0: StopReplicaPartition(3, True)},
)


def on_the_wire(request: Any, version: int) -> list[Any]:
    """The requests as a broker decodes them."""
    return [
        decode_request(type(each), memoryview(encode_message(each, version)), version, True)[0]
        for each in asyncio.run(request_of(request, version, "INSIDE"))
    ]


@pytest.mark.parametrize("version", range(8))
def test_leader_and_isr(version: int) -> None:
    (sent,) = on_the_wire(ROLES, version)
    assert (sent.controller_id, sent.controller_epoch) == (1, 4)
    assert sent.broker_epoch == (77 if version >= 2 else -1)
    assert (sent.is_kraft_controller, sent.type) == (False, 0)
    states = sent.ungrouped_partition_states or [each for topic in sent.topic_states for each in topic.partition_states]
    names = [each.topic_name for each in states] if version < 2 else ["t", "t", "u"]
    assert [(name, each.partition_index, each.leader) for name, each in zip(names, states, strict=True)] == [
        ("t", 0, 5),
        ("t", 1, 6),
        ("u", 0, 5),
    ]
    first = states[0]
    assert (first.controller_epoch, first.leader_epoch, first.isr, first.partition_epoch) == (3, 7, [5, 6], 9)
    assert first.replicas == [5, 6, 8]
    assert (first.adding_replicas, first.removing_replicas) == (([8], [6]) if version >= 3 else ([], []))
    assert first.is_new == (version >= 1)
    assert [each.leader_recovery_state for each in states] == ([1, 0, 1] if version >= 6 else [0, 0, 0])
    if version >= 2:
        assert [topic.topic_name for topic in sent.topic_states] == ["t", "u"]
    if version >= 5:
        assert {topic.topic_name: topic.topic_id for topic in sent.topic_states} == IDS
    assert [(each.broker_id, each.host_name, each.port) for each in sent.live_leaders] == [(5, "in", 1)]


@pytest.mark.parametrize("version", range(9))
def test_update_metadata(version: int) -> None:
    (sent,) = on_the_wire(METADATA, version)
    states = sent.ungrouped_partition_states or [each for topic in sent.topic_states for each in topic.partition_states]
    (state,) = states
    assert (state.partition_index, state.leader, state.leader_epoch, state.isr) == (0, 5, 7, [5, 6])
    assert (state.controller_epoch, state.zk_version, state.replicas) == (3, 9, [5, 6])
    assert state.offline_replicas == ([6] if version >= 4 else [])
    assert sent.broker_epoch == (77 if version >= 5 else -1)
    if version >= 7:
        assert sent.topic_states[0].topic_id == IDS["t"]
    (broker,) = sent.live_brokers
    assert broker.id == 5
    if version == 0:
        assert (broker.v0_host, broker.v0_port) == ("in", 1)
        return
    assert [(each.host, each.port, each.security_protocol) for each in broker.endpoints] == [
        ("out", 2, 0),
        ("in", 1, 3),
    ]
    if version >= 2:
        assert broker.rack == "rack"
    if version >= 3:
        assert [each.listener for each in broker.endpoints] == ["OUTSIDE", "INSIDE"]


def test_old_versions_name_each_protocol_once() -> None:
    more = BROKER._replace(endpoints=(OUTSIDE, INSIDE, Endpoint("THIRD", "third", 3, SecurityProtocol.PLAINTEXT)))
    request = METADATA._replace(live_brokers={5: more})
    for version, count in ((1, 2), (2, 2), (3, 3), (8, 3)):
        assert len(on_the_wire(request, version)[0].live_brokers[0].endpoints) == count


@pytest.mark.parametrize("version", range(5))
def test_stop_replica(version: int) -> None:
    sent = on_the_wire(STOPS, version)
    stopped = {}
    for each in sent:
        assert (each.controller_id, each.controller_epoch) == (1, 4)
        assert each.broker_epoch == (77 if version >= 1 else -1)
        plain = (None, each.delete_partitions)
        stopped |= {(one.topic_name, one.partition_index): plain for one in each.ungrouped_partitions}
        stopped |= {(topic.name, number): plain for topic in each.topics for number in topic.partition_indexes}
        stopped |= {
            (topic.topic_name, one.partition_index): (one.leader_epoch, one.delete_partition)
            for topic in each.topic_states
            for one in topic.partition_states
        }
    assert len(sent) == (1 if version >= 3 else 2)
    assert {TopicPartition(*key): delete for key, (_, delete) in stopped.items()} == {T0: True, T1: False, U0: True}
    if version >= 3:
        assert {TopicPartition(*key): epoch for key, (epoch, _) in stopped.items()} == {T0: 3, T1: -2, U0: 3}


def test_versions_follow_the_inter_broker_protocol() -> None:
    assert [version_of(each, LATEST) for each in (ROLES, METADATA, STOPS)] == [7, 8, 4]
    old = MetadataVersion.parse("2.8")
    assert [version_of(each, old) for each in (ROLES, METADATA, STOPS)] == [5, 7, 3]


def test_answers() -> None:
    failed = LeaderAndIsrPartitionError(topic_name="t", partition_index=1, error_code=ErrorCode.KAFKA_STORAGE_ERROR)
    fine = LeaderAndIsrPartitionError(topic_name="t", partition_index=0)
    expected = BrokerResponse(ErrorCode.NONE, {T1: ErrorCode.KAFKA_STORAGE_ERROR})
    assert response_of(ROLES, 4, [LeaderAndIsrResponse(partition_errors=[fine, failed])]) == expected
    topics = [LeaderAndIsrResponse.Topic(topic_id=each, partition_errors=[]) for each in (random_uuid(), IDS["t"])]
    topics[0].partition_errors = topics[1].partition_errors = [fine, failed]
    assert response_of(ROLES, 5, [LeaderAndIsrResponse(topics=topics)]) == expected
    whole = LeaderAndIsrResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    assert response_of(ROLES, 7, [whole]) == BrokerResponse(ErrorCode.STALE_BROKER_EPOCH)
    assert response_of(METADATA, 8, [UpdateMetadataResponse()]) == BrokerResponse()
    stops = [
        StopReplicaResponse(partition_errors=[]),
        StopReplicaResponse(
            partition_errors=[
                StopReplicaResponse.PartitionError(
                    topic_name="t", partition_index=1, error_code=ErrorCode.FENCED_LEADER_EPOCH
                )
            ]
        ),
    ]
    assert response_of(STOPS, 2, stops) == BrokerResponse(ErrorCode.NONE, {T1: ErrorCode.FENCED_LEADER_EPOCH})


class Sender:
    """Fails as often as it is told, then answers."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.sent: list[tuple[int, Any, int | None]] = []
        self.disconnected: list[int] = []

    async def send(
        self, broker_id: int, request: Any, *, timeout_ms: int | None = None, version: int | None = None
    ) -> Any:
        self.sent.append((broker_id, request, version))
        if len(self.sent) <= self.failures:
            raise errors.KafkaConnectionError("the broker is not there")
        return LeaderAndIsrResponse()

    def disconnect(self, broker_id: int) -> None:
        self.disconnected.append(broker_id)

    async def close(self) -> None:
        return


def test_a_request_is_repeated_until_the_broker_answers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(remote_channel, "RETRY_S", 0.001)

    async def run() -> None:
        sender = Sender(5)
        channel = RemoteBrokerChannel(5, sender, LATEST, "INSIDE")
        assert await channel.send(ROLES) == BrokerResponse()
        assert len(sender.sent) == 6
        assert {(broker, type(request), version) for broker, request, version in sender.sent} == {
            (5, LeaderAndIsrRequest, 7)
        }
        await channel.close()
        assert sender.disconnected == [5]

    asyncio.run(run())
    assert len([each for each in caplog.records if "sends it again" in each.getMessage()]) == 1


def test_a_channel_that_is_closed_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_channel, "RETRY_S", 0.001)

    async def run() -> None:
        sender = Sender(10**9)
        sending = asyncio.create_task(RemoteBrokerChannel(5, sender, LATEST, "INSIDE").send(ROLES))
        while len(sender.sent) < 3:
            await asyncio.sleep(0.001)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending

    asyncio.run(run())


@pytest.mark.parametrize("version", range(9))
def test_brokers_share_the_encoded_metadata_and_have_epochs_of_their_own(
    monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    partitions = MetadataPartitions()
    partitions.update(METADATA.partitions)

    async def run() -> list[Any]:
        senders = {broker: Sender(0) for broker in (5, 6, 7)}
        monkeypatch.setattr(remote_channel, "version_of", lambda _request, _level: version)
        for broker, sender in senders.items():
            request = METADATA._replace(broker_epoch=1000 + broker, partitions=partitions)
            await RemoteBrokerChannel(broker, sender, LATEST, "INSIDE").send(request)
        assert partitions.encoded.result() == senders[5].sent[0][1].body
        return [sender.sent[0][1] for sender in senders.values()]

    (plain,) = on_the_wire(METADATA, version)
    for broker, sent in zip((5, 6, 7), asyncio.run(run()), strict=True):
        assert sent.NAME == "UpdateMetadataRequest"
        decoded, _ = decode_request(UpdateMetadataRequest, memoryview(sent.body), version, True)
        assert decoded.broker_epoch == (1000 + broker if version >= 5 else -1)
        decoded.broker_epoch = plain.broker_epoch
        assert decoded == plain


def test_a_step_with_many_partitions_becomes_several_requests_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_channel, "MAX_PARTITIONS", 3)
    context = ControllerContext()
    context.epoch, topic_id = 4, random_uuid()
    context.live_brokers = {broker: BROKER._replace(id=broker, epoch=70 + broker) for broker in (5, 6)}
    context.put_topic("t", topic_id, TopicAssignment(topic_id, {n: ReplicaAssignment((5, 6)) for n in range(8)}))
    sent: dict[int, list[Any]] = {5: [], 6: []}

    class Channels:
        def send(self, broker_id: int, request: Any) -> None:
            sent[broker_id].append(request)

    async def run() -> None:
        channels: Any = Channels()
        batch = broker_channel.BrokerRequestBatch(1, context, channels)
        for number in range(8):
            partition = TopicPartition("t", number)
            context.leadership[partition] = STATE
            batch.add_leader_and_isr([5, 6], partition, STATE)
            batch.add_stop_replica(6, partition, 7, delete=False)
        await batch.send()

    asyncio.run(run())
    kinds = [LeaderAndIsr] * 3 + [UpdateMetadata] * 3
    assert [type(each) for each in sent[5]] == kinds
    assert [type(each) for each in sent[6]] == kinds + [StopReplica] * 3
    for broker, requests in sent.items():
        assert {each.broker_epoch for each in requests} == {70 + broker}
        for kind in (LeaderAndIsr, UpdateMetadata):
            parts = [list(each.partitions) for each in requests if isinstance(each, kind)]
            assert [len(part) for part in parts] == [3, 3, 2]
            assert [number for part in parts for _, number in part] == list(range(8))
            assert all(each.topic_ids == {"t": topic_id} for each in requests if isinstance(each, kind))
    assert all(one.partitions is other.partitions for one, other in zip(sent[5][3:], sent[6][3:6], strict=True))
