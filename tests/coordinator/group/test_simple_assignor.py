"""The assignor of share groups: equal shares of partitions that several members may have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from uuid import UUID

import pytest
from coordinator.group.test_assignors import (
    TOPICS,
    A,
    B,
    Members,
    Topics,
    groups,
    kept,
    member,
    pairs,
    quickly,
    sizes,
    spec,
    with_assignment,
)
from hypothesis import given
from hypothesis import strategies as st

from kafkapy.config.broker import BrokerConfig
from kafkapy.coordinator.group.assignors.api import AssignorError, Partitions
from kafkapy.coordinator.group.assignors.simple import SimpleAssignor
from kafkapy.errors import ConfigError
from kafkapy.plugins import PluginManager, hookimpl


def assign(members: Members, topics: Topics, assignable: Partitions | None = None) -> Mapping[str, Partitions]:
    return SimpleAssignor().assign(spec(members)._replace(assignable=assignable), topics)


def members_of(assignment: Mapping[str, Partitions]) -> Counter[tuple[UUID, int]]:
    """The number of members of each partition."""
    return Counter(pair for partitions in assignment.values() for pair in pairs(partitions))


def numbered(count: int, *topic_ids: UUID) -> Members:
    return {f"m{number}": member(*topic_ids) for number in range(count)}


@quickly
@given(group=groups())
def test_members_get_partitions_of_their_topics_only(group: tuple[Members, Topics]) -> None:
    members, topics = group
    assignment = assign(members, topics)
    assert set(assignment) == set(members)
    for member_id, partitions in assignment.items():
        assert set(partitions) <= members[member_id].topic_ids
        assert all(partitions.values())
        assert all(number < topics[topic_id] for topic_id, number in pairs(partitions))


@quickly
@given(group=groups(homogeneous=True))
def test_all_partitions_have_as_many_members_and_all_members_equal_shares(group: tuple[Members, Topics]) -> None:
    members, topics = group
    assignment = assign(members, topics)
    slots = [(each, number) for each in TOPICS if topics[each] for number in range(topics[each])]
    subscribed = next(iter(members.values())).topic_ids if members else frozenset()
    slots = [slot for slot in slots if slot[0] in subscribed]
    if not members or not slots:
        assert not members_of(assignment)
        return
    takers = -(-len(members) // len(slots))
    assert members_of(assignment) == dict.fromkeys(slots, takers)
    loads = sizes(assignment).values()
    assert min(loads) > 0
    assert max(loads) - min(loads) <= 1


@quickly
@given(group=groups(homogeneous=False))
def test_members_with_different_topics_share_each_topic_by_itself(group: tuple[Members, Topics]) -> None:
    members, topics = group
    assignment = assign(members, topics)
    if spec(members).homogeneous:
        return
    for topic_id in TOPICS:
        subscribers = [each for each, what in members.items() if topic_id in what.topic_ids]
        loads = [len(assignment[each].get(topic_id, ())) for each in subscribers]
        if topics[topic_id] and subscribers:
            assert min(loads) > 0
            assert max(loads) - min(loads) <= 1
        else:
            assert not any(loads)


@quickly
@given(data=st.data())
def test_a_group_that_has_not_changed_keeps_its_assignment(data: st.DataObject) -> None:
    members, topics = data.draw(groups())
    settled = with_assignment(members, assign(members, topics))
    assert assign(settled, topics) == {each: what.assigned for each, what in settled.items()}


@quickly
@given(group=groups(), order=st.randoms(use_true_random=False))
def test_an_assignment_does_not_depend_on_the_order_of_members(group: tuple[Members, Topics], order: object) -> None:
    members, topics = group
    names = list(members)
    order.shuffle(names)  # type: ignore[attr-defined]
    assert assign({name: members[name] for name in names}, topics) == assign(members, topics)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8])
def test_more_members_than_partitions_share_them(count: int) -> None:
    assignment = assign(numbered(count, A), Topics({A: 2}))
    assert set(members_of(assignment).values()) == {-(-count // 2)}


def test_a_new_member_takes_no_more_than_its_share() -> None:
    topics = Topics({A: 4, B: 2})
    two = with_assignment(numbered(2, A, B), assign(numbered(2, A, B), topics))
    three = two | {"m2": member(A, B)}
    assignment = assign(three, topics)
    assert sizes(assignment) == {"m0": 2, "m1": 2, "m2": 2}
    assert kept(three, assignment) == 4


def test_partitions_of_a_member_that_left_go_to_those_with_the_fewest() -> None:
    topics = Topics({A: 6})
    three = with_assignment(numbered(3, A), assign(numbered(3, A), topics))
    gone = pairs(three.pop("m1").assigned)
    assignment = assign(three, topics)
    assert sizes(assignment) == {"m0": 3, "m2": 3}
    assert kept(three, assignment) == 4
    assert gone <= members_of(assignment).keys()


def test_only_what_may_be_assigned_is_assigned() -> None:
    assignment = assign(numbered(2, A, B), Topics({A: 3, B: 2}), {A: frozenset({1, 7})})
    assert assignment == {"m0": {A: frozenset({1})}, "m1": {A: frozenset({1})}}
    assert assign(numbered(1, A), Topics({A: 3}), {}) == {"m0": {}}


def test_a_topic_that_is_not_known_is_an_error() -> None:
    with pytest.raises(AssignorError, match=r"non-existent topic|AAAAAAAAAAAAAAAAAAAAAg which doesn't exist"):
        assign(numbered(2, A, B), Topics({A: 1}))


# --- configuration ------------------------------------------------------------------------------------------------


class OnlyForConsumers:
    """Has no attribute `shares`."""

    name = "alone"

    def assign(self, spec: object, topics: object) -> dict[str, Partitions]:
        return {}


class Sharing(OnlyForConsumers):
    """Gives nothing, but to several."""

    name = "sharing"
    shares = True


class Plugin:
    @hookimpl
    def register_group_assignors(self) -> Mapping[str, Callable[[], object]]:
        return {"alone": OnlyForConsumers, "sharing": Sharing}


def configured(names: str | None) -> str:
    manager = PluginManager.load()
    manager.register(Plugin(), "mine")
    given = {} if names is None else {"group.share.assignors": names}
    return manager.create_share_assignor(BrokerConfig(given)).name


def test_the_built_in_assignor_is_the_default() -> None:
    assert configured(None) == "simple"
    assert configured("org.apache.kafka.coordinator.group.assignor.SimpleAssignor") == "simple"
    assert configured("sharing") == "sharing"


@pytest.mark.parametrize("names", ["", "simple,sharing", "no.such.Assignor"])
def test_other_names_stop_the_start(names: str) -> None:
    with pytest.raises(ConfigError, match=r"group\.share\.assignors"):
        configured(names)


def test_consumer_groups_take_no_assignor_that_gives_a_partition_to_several() -> None:
    manager = PluginManager.load()
    with pytest.raises(ConfigError, match=r"group\.consumer\.assignors"):
        manager.create_group_assignors(BrokerConfig({"group.consumer.assignors": "simple"}))
