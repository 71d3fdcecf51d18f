"""Groups of both protocols through KafkaAdminClient, against a broker with foreign members."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from clients.admin.members import eventually, member

from kafkapy.admin import ConsumerGroupDescription, GroupState, GroupType, KafkaAdminClient, MemberToRemove, OffsetSpec
from kafkapy.errors import (
    GroupIdNotFoundError,
    GroupSubscribedToTopicError,
    NoError,
    NonEmptyGroupError,
    UnknownMemberIdError,
)
from kafkapy.structs import OffsetAndMetadata, TopicPartition
from kafkapy.testing.broker_process import BrokerProcess

Name = Callable[[], str]
CLASSIC = {"group.protocol": "classic"}
CONSUMER = {"group.protocol": "consumer"}


def state_of(admin: KafkaAdminClient, group: str) -> str | None:
    return {each["group_id"]: each["group_state"] for each in admin.list_groups()}.get(group)


@pytest.mark.parametrize(("configs", "kind"), [(CLASSIC, GroupType.CLASSIC), (CONSUMER, GroupType.CONSUMER)])
def test_groups_with_members_are_listed_and_described(
    admin: KafkaAdminClient, broker: BrokerProcess, topic: str, name: Name, configs: dict[str, str], kind: GroupType
) -> None:
    group = name()
    with member(broker.bootstrap, group, topic, **configs, **{"client.id": "worker", "group.instance.id": "seat-1"}):
        eventually(lambda: state_of(admin, group) == "Stable")
        listed = {each["group_id"]: each for each in admin.list_groups(types_filter=[kind], states_filter=["stable"])}
        assert listed[group]["group_type"] == kind.value
        assert group not in {each["group_id"] for each in admin.list_groups(states_filter=[GroupState.EMPTY])}
        described = admin.describe_consumer_groups([group], include_authorized_operations=True)[group]
        assert isinstance(described, ConsumerGroupDescription)
        assert (described.group_type, described.state, described.coordinator) == (kind, "Stable", 1)
        assert "READ" in (described.authorized_operations or ())
        (one,) = described.members
        assert (one.client_id, one.group_instance_id, one.subscribed_topics) == ("worker", "seat-1", (topic,))
        assert one.assignment == (TopicPartition(topic, 0), TopicPartition(topic, 1))
        assert one.target_assignment == (one.assignment if kind is GroupType.CONSUMER else None)
        assert admin.delete_groups([group]) == {group: "NonEmptyGroupError"}


def test_classic_groups_are_shown_as_kafka_python_does(
    admin: KafkaAdminClient, broker: BrokerProcess, topic: str, name: Name
) -> None:
    group = name()
    with member(broker.bootstrap, group, topic, **CLASSIC):
        eventually(lambda: state_of(admin, group) == "Stable")
        shown = admin.describe_groups([group])[group]
        assert (shown["error"], shown["group_state"], shown["protocol_type"]) == (None, "Stable", "consumer")
        (one,) = shown["members"]
        assert one["member_metadata"]["topics"] == [topic]
        assert one["member_assignment"]["assigned_partitions"] == [{"topic": topic, "partitions": [0, 1]}]
    missing = name()
    assert admin.describe_groups([missing])[missing]["error"].startswith("GroupIdNotFoundError: ")


def test_groups_that_are_not_there(admin: KafkaAdminClient, name: Name) -> None:
    missing = name()
    assert isinstance(admin.describe_consumer_groups([missing])[missing], GroupIdNotFoundError)
    assert admin.delete_groups([missing]) == {missing: "GroupIdNotFoundError"}
    assert admin.list_group_offsets([missing]) == {missing: {}}


@pytest.mark.parametrize("configs", [CLASSIC, CONSUMER])
def test_members_are_removed(
    admin: KafkaAdminClient, broker: BrokerProcess, topic: str, name: Name, configs: dict[str, str]
) -> None:
    group = name()
    with member(broker.bootstrap, group, topic, **configs):
        described = admin.describe_consumer_groups([group])[group]
        assert isinstance(described, ConsumerGroupDescription)
        first = described.members[0].member_id
        if configs is CONSUMER:
            # As in Apache Kafka, LeaveGroup takes only static members of the consumer protocol out.
            return
        assert admin.remove_group_members(group, [MemberToRemove(first, reason="a test")]) == {first: NoError}
        assert admin.remove_group_members(group, [MemberToRemove("nobody")]) == {"nobody": UnknownMemberIdError}
    assert admin.remove_group_members(group, []) == {}


def test_static_members_are_removed_by_their_instance_id(
    admin: KafkaAdminClient, broker: BrokerProcess, topic: str, name: Name
) -> None:
    group = name()
    with member(broker.bootstrap, group, topic, **CLASSIC, **{"group.instance.id": "seat"}):
        pass
    # A static member stays when its consumer closes.
    removed = admin.remove_group_members(group, [MemberToRemove(group_instance_id="seat")])
    assert list(removed.values()) == [NoError]
    eventually(lambda: state_of(admin, group) in ("Empty", None))


def test_offsets_are_committed_listed_reset_and_deleted(admin: KafkaAdminClient, topic: str, name: Name) -> None:
    group = name()
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    committed = {first: OffsetAndMetadata(7, "a note"), second: OffsetAndMetadata(8, "", 3)}
    assert admin.alter_group_offsets(group, committed) == {first: NoError, second: NoError}
    assert admin.alter_group_offsets(group, {}) == {}
    assert admin.list_group_offsets(group)[group] == committed
    assert admin.list_group_offsets({group: [second]}) == {group: {second: committed[second]}}
    other = name()
    several = admin.list_group_offsets({group: None, other: [first]})
    assert several[group] == committed
    assert several[other] == {first: OffsetAndMetadata(-1, "", -1)}
    # The log is empty, so that every target is taken to 0.
    reset = admin.reset_group_offsets(group, {first: OffsetSpec.LATEST, second: 5})
    assert reset == {first: {"error": NoError, "offset": 0}, second: {"error": NoError, "offset": 0}}
    assert admin.list_group_offsets(group)[group][first] == OffsetAndMetadata(0, "a note")
    assert admin.reset_group_offsets(group, {}) == {}
    with pytest.raises(TypeError, match="expected an OffsetSpec"):
        admin.reset_group_offsets(group, {first: "earliest"})  # type: ignore[dict-item]
    assert admin.delete_group_offsets(group, [first]) == {first: NoError}
    assert set(admin.list_group_offsets(group)[group]) == {second}
    assert admin.delete_groups([group]) == {group: "OK"}
    assert group not in {each["group_id"] for each in admin.list_groups()}


def test_offsets_of_a_group_at_work_are_not_altered(
    admin: KafkaAdminClient, broker: BrokerProcess, topic: str, name: Name
) -> None:
    group = name()
    first = TopicPartition(topic, 0)
    with member(broker.bootstrap, group, topic, **CLASSIC):
        assert admin.alter_group_offsets(group, {first: OffsetAndMetadata(1)}) == {first: UnknownMemberIdError}
        assert admin.delete_group_offsets(group, [first]) == {first: GroupSubscribedToTopicError}
    with pytest.raises(GroupIdNotFoundError):
        admin.delete_group_offsets(name(), [first])


def test_the_named_coordinator_is_asked(admin: KafkaAdminClient, name: Name) -> None:
    assert admin.delete_groups([name()], group_coordinator_id=1)
    with pytest.raises(Exception, match="has no broker 8"):
        admin.describe_groups([name()], group_coordinator_id=8)


def test_errors_are_classes_with_kafkas_names() -> None:
    assert (NoError.errno, NonEmptyGroupError.errno, NonEmptyGroupError.retriable) == (0, 68, False)
