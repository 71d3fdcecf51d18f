"""The start offsets of share groups: describe, alter, delete; and the deletion of groups with states."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
from coordinator.group.share_client import GROUP, Member, beat, group_of, key, settle, topic_id

from kafkapy.coordinator.group.share.offsets import ShareOffset
from kafkapy.coordinator.share.state import ShareSummary
from kafkapy.errors import ErrorCode, KafkaError, error_for
from kafkapy.testing.coordinator import snapshot_of
from kafkapy.types import ZERO_UUID, TopicPartition

T = TypeVar("T")
NONE = ErrorCode.NONE


def done(bench: Any, work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine, while the bench's clock runs."""

    async def both() -> T:
        task = asyncio.ensure_future(work)
        while not task.done():
            bench.clock.run()
            await asyncio.sleep(0)
        return task.result()

    return asyncio.run(both())


def describe(bench: Any, topics: Any = None, group: str = GROUP) -> dict[str, dict[int, ShareOffset]]:
    found = done(bench, bench.coordinator.share.describe_offsets(group, topics))
    return {each.name: each.offsets for each in found}


def alter(bench: Any, topics: Any, group: str = GROUP) -> dict[str, dict[int, ErrorCode]]:
    found = done(bench, bench.coordinator.share.alter_offsets(group, topics))
    return {each.name: each.errors for each in found}


def delete(bench: Any, *names: str, group: str = GROUP) -> dict[str, ErrorCode]:
    found = done(bench, bench.coordinator.share.delete_offsets(group, names))
    return {name: outcome.error for name, outcome in found.items()}


def delete_groups(bench: Any, *groups: str) -> dict[str, ErrorCode]:
    errors: dict[str, ErrorCode] = done(bench, bench.coordinator.delete_groups(groups))
    return errors


@pytest.fixture
def empty(bench: Any) -> Any:
    """A bench with a group that has states and no members."""
    member = Member(bench, "a")
    settle(member)
    member.leave()
    return bench


# --- describe ---------------------------------------------------------------------------------------------------------


def test_offsets_are_described_with_their_lag(empty: Any) -> None:
    empty.persister.states[key(empty, 0)] = ShareSummary(2, 4, 10, 3)
    empty.persister.states[key(empty, 1)] = ShareSummary(2, 4, 10, -1)
    empty.ends.update({TopicPartition("topic", 0): 20, TopicPartition("topic", 1): 20})
    found = describe(empty)["topic"]
    assert found[0] == ShareOffset(10, 4, 7)
    assert found[1] == ShareOffset(10, 4, -1)
    assert found[2] == ShareOffset(-1, 0, -1)
    assert found.keys() == set(range(6))
    assert describe(empty, {"topic": [1, 9]})["topic"].keys() == {1, 9}


def test_what_has_no_offset_is_no_error(empty: Any) -> None:
    assert describe(empty, {"nowhere": [0]}) == {"nowhere": {0: ShareOffset()}}
    assert describe(empty, group="nobody") == {}
    empty.persister.failures[key(empty, 0)] = error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert describe(empty, {"topic": [0]})["topic"][0] == ShareOffset()


def test_what_cannot_be_asked_for_has_its_error(empty: Any) -> None:
    empty.persister.failures[key(empty, 0)] = error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    empty.persister.states[key(empty, 1)] = ShareSummary(2, 4, 10, 0)
    found = describe(empty)["topic"]
    assert found[0].error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert found[1].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "its end is not known"
    assert found[2].error is NONE


# --- alter ------------------------------------------------------------------------------------------------------------


def test_offsets_are_altered_in_the_epoch_of_the_group(empty: Any) -> None:
    heard: list[Any] = []
    empty.coordinator.share_listeners.add(Listener(heard))
    epoch = group_of(empty).epoch
    assert alter(empty, {"topic": {0: 7, 5: 8, 6: 9, -1: 1}, "nowhere": {0: 1}}) == {
        "topic": {0: NONE, 5: NONE, 6: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION},
        "nowhere": {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION},
    }
    assert empty.persister.states[key(empty, 0)] == ShareSummary(epoch, 0, 7, 0)
    assert empty.persister.states[key(empty, 5)] == ShareSummary(epoch, 0, 8, 0)
    assert heard == [(GROUP, topic_id(empty), frozenset({0, 5}))]
    assert group_of(empty).state_partitions.initializing == {}
    assert group_of(empty).state_partitions.initialized[topic_id(empty)].partitions == set(range(6))


def test_a_new_group_is_created_with_its_offsets_and_takes_members(bench: Any) -> None:
    assert alter(bench, {"topic": {0: 7}}) == {"topic": {0: NONE}}
    bench.restart()
    group = group_of(bench)
    assert (group.epoch, group.state_name) == (1, "Empty")
    assert group.state_partitions.initialized[topic_id(bench)].partitions == {0}
    member = Member(bench, "a")
    assert member.numbers == {0}, "its state is there already"
    settle(member)
    assert member.numbers == set(range(6))
    assert bench.persister.states[key(bench, 0)].start_offset == 7


def test_a_member_that_joins_meanwhile_does_not_undo_an_alteration(bench: Any) -> None:
    bench.persister.hold = True

    async def both() -> Member:
        task = asyncio.ensure_future(bench.coordinator.share.alter_offsets(GROUP, {"topic": {0: 7}}))
        while not bench.persister.calls:
            bench.clock.run()
            await asyncio.sleep(0)
        member = Member(bench, "a")
        assert [each.partition for _, each in bench.persister.calls] == [0, 1, 2, 3, 4, 5]
        bench.persister.release()
        while not task.done():
            bench.clock.run()
            await asyncio.sleep(0)
        task.result()
        return member

    member = asyncio.run(both())
    settle(member)
    assert bench.persister.states[key(bench, 0)].start_offset == 7
    assert member.numbers == set(range(6))


def test_a_state_that_cannot_be_altered_has_its_error(empty: Any) -> None:
    empty.persister.failures[key(empty, 1)] = error_for(ErrorCode.FENCED_STATE_EPOCH)
    assert alter(empty, {"topic": {0: 7, 1: 7}}) == {"topic": {0: NONE, 1: ErrorCode.FENCED_STATE_EPOCH}}
    assert group_of(empty).state_partitions.initializing == {}


@pytest.mark.parametrize("topics", [{"topic": {0: 7}}, {"nowhere": {0: 7}}, {}])
def test_offsets_of_a_group_with_members_or_of_another_protocol_stay(bench: Any, topics: Any) -> None:
    Member(bench, "a")
    bench.enter("c")
    for group, error in ((GROUP, ErrorCode.NON_EMPTY_GROUP), ("group", ErrorCode.GROUP_ID_NOT_FOUND)):
        with pytest.raises(KafkaError) as caught:
            alter(bench, topics, group)
        assert caught.value.code is error
    with pytest.raises(KafkaError) as caught:
        alter(bench, topics, "")
    assert caught.value.code is ErrorCode.INVALID_GROUP_ID


# --- delete -----------------------------------------------------------------------------------------------------------


def test_the_offsets_of_topics_are_deleted(empty: Any) -> None:
    empty.snapshot = snapshot_of({"topic": 6, "other": 1})
    found = done(empty, empty.coordinator.share.delete_offsets(GROUP, ["other", "topic", "nowhere"]))
    assert list(found) == ["other", "topic", "nowhere"]
    assert (found["topic"].error, found["topic"].topic_id) == (NONE, topic_id(empty))
    assert found["other"].message == "There is no offset information to delete."
    assert found["nowhere"].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert empty.persister.states == {}
    assert group_of(empty).state_partitions.topic_names == {}
    assert describe(empty) == {}


def test_a_deletion_that_failed_is_tried_again(empty: Any) -> None:
    empty.persister.failures[key(empty, 2)] = error_for(ErrorCode.NOT_COORDINATOR)
    assert delete(empty, "topic") == {"topic": ErrorCode.NOT_COORDINATOR}
    assert group_of(empty).state_partitions.deleting == {topic_id(empty): "topic"}
    empty.persister.failures.clear()
    assert delete(empty, "topic") == {"topic": NONE}
    assert empty.persister.states == {}
    assert group_of(empty).state_partitions.deleting == {}


def test_a_topic_that_is_read_again_is_not_deleted_any_more(empty: Any) -> None:
    empty.persister.failures[key(empty, 2)] = error_for(ErrorCode.NOT_COORDINATOR)
    delete(empty, "topic")
    empty.persister.failures.clear()
    member = Member(empty, "b")
    settle(member)
    assert member.numbers == set(range(6))
    assert group_of(empty).state_partitions.deleting == {}


def test_offsets_are_deleted_only_without_members(bench: Any) -> None:
    Member(bench, "a")
    for group, error in ((GROUP, ErrorCode.NON_EMPTY_GROUP), ("nobody", ErrorCode.GROUP_ID_NOT_FOUND)):
        with pytest.raises(KafkaError) as caught:
            delete(bench, "topic", group=group)
        assert caught.value.code is error


# --- groups -----------------------------------------------------------------------------------------------------------


def test_a_group_is_deleted_with_its_states(empty: Any) -> None:
    heard: list[Any] = []
    empty.coordinator.share_listeners.add(Listener(heard))
    empty.commit({("topic", 0): 5}, group="classic")
    assert delete_groups(empty, GROUP, "classic", "nobody") == {
        GROUP: NONE,
        "classic": NONE,
        "nobody": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    assert empty.persister.states == {}
    assert empty.shard.groups == {}
    assert heard == [(GROUP, topic_id(empty), frozenset(range(6))), GROUP]


def test_a_group_with_members_stays(bench: Any) -> None:
    settle(Member(bench, "a"))
    assert delete_groups(bench, GROUP) == {GROUP: ErrorCode.NON_EMPTY_GROUP}
    assert len(bench.persister.states) == 6
    assert group_of(bench).state_partitions.deleting == {}


def test_a_group_whose_states_cannot_be_deleted_stays_until_they_can(empty: Any) -> None:
    empty.persister.failures[key(empty, 2)] = error_for(ErrorCode.NOT_COORDINATOR)
    assert delete_groups(empty, GROUP) == {GROUP: ErrorCode.NOT_COORDINATOR}
    assert group_of(empty).state_partitions.deleting == {topic_id(empty): "topic"}
    empty.persister.failures.clear()
    empty.restart()
    assert delete_groups(empty, GROUP) == {GROUP: NONE}
    assert empty.persister.states == {}


def test_states_of_a_topic_that_is_gone_do_not_keep_a_group(empty: Any) -> None:
    empty.snapshot = snapshot_of({"other": 1})
    empty.persister.failures[key_of_gone(empty)] = error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert delete_groups(empty, GROUP) == {GROUP: NONE}


def test_a_group_that_gets_a_member_while_it_is_deleted_stays(empty: Any) -> None:
    empty.persister.hold = True
    before = [kind for kind, *_ in empty.persister.calls if kind == "initialize"]

    async def both() -> dict[str, ErrorCode]:
        task = asyncio.ensure_future(empty.coordinator.delete_groups([GROUP]))
        while not empty.persister.calls or empty.persister.calls[-1][0] != "delete":
            empty.clock.run()
            await asyncio.sleep(0)
        assert beat(empty, "b", 0, subscribed_topic_names=["topic"]).error_code == NONE
        empty.persister.release()
        while not task.done():
            empty.clock.run()
            await asyncio.sleep(0)
        errors: dict[str, ErrorCode] = task.result()
        return errors

    assert asyncio.run(both()) == {GROUP: ErrorCode.NON_EMPTY_GROUP}
    assert group_of(empty).members.keys() == {"b"}
    # Its states are made when the deletion has ended, not before.
    assert [kind for kind, *_ in empty.persister.calls if kind == "initialize"] == before
    assert beat(empty, "b", group_of(empty).members["b"].member_epoch).error_code == NONE
    empty.persister.release()
    empty.clock.run()
    assert [kind for kind, *_ in empty.persister.calls if kind == "initialize"] != before
    assert group_of(empty).state_partitions.deleting == {}


def test_an_unknown_topic_has_no_id(empty: Any) -> None:
    (found,) = done(empty, empty.coordinator.share.describe_offsets(GROUP, {"nowhere": [0]}))
    assert found.topic_id == ZERO_UUID


class Listener:
    def __init__(self, heard: list[Any]) -> None:
        self.heard = heard

    def group_deleted(self, group_id: str) -> None:
        self.heard.append(group_id)

    def state_changed(self, group_id: str, topic: Any, partitions: frozenset[int]) -> None:
        self.heard.append((group_id, topic, partitions))

    def member_gone(self, group_id: str, member_id: str) -> None:
        raise AssertionError("no member left")


def key_of_gone(bench: Any) -> Any:
    (gone,) = group_of(bench).state_partitions.topic_names
    return key(bench, 0, "other")._replace(topic_id=gone)
