"""Server-side assignors: balance, stickiness, and each partition for one subscriber of its topic."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from types import SimpleNamespace
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkapy.config.broker import BrokerConfig
from kafkapy.coordinator.group.assignors.api import (
    AssignorError,
    GroupAssignor,
    GroupSpec,
    MemberSubscription,
    Partitions,
)
from kafkapy.coordinator.group.assignors.balancing import TopicBalancer
from kafkapy.coordinator.group.assignors.range import RangeAssignor
from kafkapy.coordinator.group.assignors.uniform import UniformAssignor
from kafkapy.errors import ConfigError, PluginError
from kafkapy.plugins import PluginManager, hookimpl

A, B, C, D = TOPICS = [UUID(int=number) for number in (1, 2, 3, 4)]
ALL = [UniformAssignor(), RangeAssignor()]
quickly = settings(max_examples=50, deadline=None)


class Topics(dict[UUID, int]):
    """Partitions by topic."""

    def num_partitions(self, topic_id: UUID) -> int:
        return self.get(topic_id, -1)

    def racks(self, topic_id: UUID, partition: int) -> frozenset[str]:
        return frozenset()


Members = dict[str, MemberSubscription]


def member(*topic_ids: UUID, instance: str | None = None, assigned: Partitions | None = None) -> MemberSubscription:
    return MemberSubscription(instance, None, frozenset(topic_ids), assigned or {})


def spec(members: Members) -> GroupSpec:
    return GroupSpec(members, len({each.topic_ids for each in members.values()}) <= 1)


def assign(assignor: GroupAssignor, members: Members, topics: Topics) -> dict[str, dict[UUID, list[int]]]:
    assignment = assignor.assign(spec(members), topics)
    return {
        member_id: {topic_id: sorted(numbers) for topic_id, numbers in partitions.items()}
        for member_id, partitions in sorted(assignment.items())
    }


def with_assignment(members: Members, assignment: Mapping[str, Partitions]) -> Members:
    return {each: what._replace(assigned=assignment.get(each, {})) for each, what in members.items()}


def pairs(partitions: Partitions) -> set[tuple[UUID, int]]:
    return {(topic_id, number) for topic_id, numbers in partitions.items() for number in numbers}


def kept(members: Members, assignment: Mapping[str, Partitions]) -> int:
    """Partitions that stay where they are."""
    return sum(len(pairs(what.assigned) & pairs(assignment[each])) for each, what in members.items())


def sizes(assignment: Mapping[str, Partitions]) -> dict[str, int]:
    return {each: len(pairs(partitions)) for each, partitions in assignment.items()}


# --- random groups ------------------------------------------------------------------------------------------------

counts = st.builds(Topics, st.fixed_dictionaries({topic_id: st.integers(0, 9) for topic_id in TOPICS}))
subscriptions = st.frozensets(st.sampled_from(TOPICS))


@st.composite
def groups(draw: st.DrawFn, *, homogeneous: bool | None = None) -> tuple[Members, Topics]:
    """A group in any state, also one in which members have what is gone, not theirs, or another's too."""
    topics = draw(counts)
    same = draw(subscriptions) if homogeneous or (homogeneous is None and draw(st.booleans())) else None
    owned = st.dictionaries(
        st.sampled_from([*TOPICS, UUID(int=9)]), st.frozensets(st.integers(0, 11), max_size=4), max_size=3
    )
    members = {}
    for member_id in draw(st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=7)):
        instance = draw(st.sampled_from([None, f"i{member_id}"]))
        members[member_id] = MemberSubscription(
            instance, None, draw(subscriptions) if same is None else same, draw(owned)
        )
    return members, topics


@st.composite
def living_groups(draw: st.DrawFn, *, homogeneous: bool) -> tuple[Members, Topics]:
    """A group with an assignment of the uniform assignor, in which something has changed since."""
    members, topics = draw(groups(homogeneous=homogeneous))
    living = with_assignment(members, UniformAssignor().assign(spec(members), topics))
    for member_id in draw(st.sets(st.sampled_from("abcdefgh"), max_size=2)):
        if living.pop(member_id, None) is None and living:
            living[member_id] = next(iter(living.values()))._replace(assigned={})
    grown = draw(st.sampled_from(TOPICS))
    topics[grown] += draw(st.integers(0, 3))
    if homogeneous and draw(st.booleans()):
        topic_ids = draw(subscriptions)
        living = {each: what._replace(topic_ids=topic_ids) for each, what in living.items()}
    return living, topics


@pytest.mark.parametrize("assignor", ALL, ids=lambda each: each.name)
@quickly
@given(group=groups())
def test_each_partition_goes_to_one_subscriber_of_its_topic(
    assignor: GroupAssignor, group: tuple[Members, Topics]
) -> None:
    members, topics = group
    assignment = assignor.assign(spec(members), topics)
    assert set(assignment) == set(members)
    given_out = [pair for partitions in assignment.values() for pair in pairs(partitions)]
    read = frozenset().union(*(each.topic_ids for each in members.values())) if members else frozenset()
    assert sorted(given_out) == [(topic_id, number) for topic_id in sorted(read) for number in range(topics[topic_id])]
    for member_id, partitions in assignment.items():
        assert set(partitions) <= members[member_id].topic_ids
        assert all(partitions.values())


@quickly
@given(group=groups(homogeneous=True))
def test_uniform_balances_within_one(group: tuple[Members, Topics]) -> None:
    members, topics = group
    loads = sizes(UniformAssignor().assign(spec(members), topics)).values()
    assert max(loads, default=0) - min(loads, default=0) <= 1


@quickly
@given(group=living_groups(homogeneous=True))
def test_uniform_moves_as_little_as_balance_allows(group: tuple[Members, Topics]) -> None:
    members, topics = group
    assignment = UniformAssignor().assign(spec(members), topics)
    if members:
        there = {topic_id: frozenset(range(topics[topic_id])) for topic_id in next(iter(members.values())).topic_ids}
        share, extra = divmod(sum(map(len, there.values())), len(members))
        may_keep = [len(pairs(each.assigned) & pairs(there)) for each in members.values()]
        one_more = min(extra, sum(size > share for size in may_keep))
        assert kept(members, assignment) == sum(min(size, share) for size in may_keep) + one_more


@pytest.mark.parametrize("homogeneous", [True, False])
@quickly
@given(data=st.data())
def test_uniform_leaves_a_group_alone_that_has_not_changed(homogeneous: bool, data: st.DataObject) -> None:
    members, topics = data.draw(groups(homogeneous=homogeneous))
    settled = with_assignment(members, UniformAssignor().assign(spec(members), topics))
    assert UniformAssignor().assign(spec(settled), topics) == {each: what.assigned for each, what in settled.items()}


@quickly
@given(group=living_groups(homogeneous=False))
def test_uniform_leaves_no_move_that_balances_better(group: tuple[Members, Topics]) -> None:
    members, topics = group
    assignment = UniformAssignor().assign(spec(members), topics)
    load = sizes(assignment)
    for giver, partitions in assignment.items():
        for topic_id in partitions:
            assert all(load[giver] - load[each] <= 1 for each, what in members.items() if topic_id in what.topic_ids)


@quickly
@given(group=groups(), order=st.randoms(use_true_random=False))
def test_an_assignment_does_not_depend_on_the_order_of_members(
    group: tuple[Members, Topics], order: SimpleNamespace
) -> None:
    members, topics = group
    names = list(members)
    order.shuffle(names)
    for assignor in ALL:
        shuffled = assignor.assign(spec({name: members[name] for name in names}), topics)
        assert shuffled == assignor.assign(spec(members), topics)


@quickly
@given(group=groups())
def test_range_gives_contiguous_ranges_in_the_members_order(group: tuple[Members, Topics]) -> None:
    members, topics = group
    assignment = assign(RangeAssignor(), members, topics)
    ordered = sorted(members, key=lambda each: (members[each].instance_id is None, members[each].instance_id or each))
    for topic_id in TOPICS:
        subscribers = [each for each in ordered if topic_id in members[each].topic_ids]
        ranges = [assignment[each].get(topic_id, []) for each in subscribers]
        assert [number for numbers in ranges for number in numbers] == list(
            range(topics[topic_id] if subscribers else 0)
        )
        assert all(len(one) - len(next_one) in (0, 1) for one, next_one in pairwise(ranges))


# --- single cases -------------------------------------------------------------------------------------------------


def test_range_pairs_topics_that_have_as_many_partitions() -> None:
    topics = Topics({A: 3, B: 3})
    assert assign(RangeAssignor(), {"m1": member(A, B), "m0": member(A, B)}, topics) == {
        "m0": {A: [0, 1], B: [0, 1]},
        "m1": {A: [2], B: [2]},
    }


def test_range_keeps_a_static_members_partitions_when_its_member_id_changes() -> None:
    topics = Topics({A: 3})
    before = {"x": member(A, instance="i1"), "y": member(A, instance="i2"), "a": member(A)}
    after = {"z": member(A, instance="i1"), "b": member(A, instance="i2"), "a": member(A)}
    assert assign(RangeAssignor(), before, topics) == {"a": {A: [2]}, "x": {A: [0]}, "y": {A: [1]}}
    assert assign(RangeAssignor(), after, topics) == {"a": {A: [2]}, "z": {A: [0]}, "b": {A: [1]}}


def test_uniform_moves_one_partition_to_a_third_member() -> None:
    topics = Topics({A: 3, B: 3})
    two = {"m0": member(A, B), "m1": member(A, B)}
    three = with_assignment(two, UniformAssignor().assign(spec(two), topics)) | {"m2": member(A, B)}
    assignment = UniformAssignor().assign(spec(three), topics)
    assert sizes(assignment) == {"m0": 2, "m1": 2, "m2": 2}
    assert kept(three, assignment) == 4


def test_uniform_with_different_subscriptions_fills_those_who_read_less_first() -> None:
    topics = Topics({A: 4, B: 2})
    assignment = assign(UniformAssignor(), {"m0": member(A), "m1": member(A, B), "m2": member(B)}, topics)
    assert {each: sum(map(len, partitions.values())) for each, partitions in assignment.items()} == {
        "m0": 2,
        "m1": 2,
        "m2": 2,
    }
    assert len(assignment["m2"][B]) == 2


def test_uniform_takes_from_a_member_that_reads_more_topics_than_the_others() -> None:
    topics = Topics({A: 6, B: 4})
    everything = {A: frozenset(range(6)), B: frozenset(range(4))}
    members = {"m0": member(A, B, assigned=everything), "m1": member(A)}
    assert assign(UniformAssignor(), members, topics) == {
        "m0": {A: [0], B: [0, 1, 2, 3]},
        "m1": {A: [1, 2, 3, 4, 5]},
    }


def test_balancing_ends_also_where_every_round_leaves_something() -> None:
    # A chain: each topic is read by two neighbours, and all partitions are with the first.
    size = 40
    chain = [UUID(int=number + 1) for number in range(size)]
    subscribers = {topic_id: [f"m{index:02}", f"m{index + 1:02}"] for index, topic_id in enumerate(chain)}
    owned = {f"m{index:02}": {chain[index]: frozenset(range(100))} for index in range(size)} | {f"m{size:02}": {}}
    balancer = TopicBalancer(owned, subscribers, dict.fromkeys(chain, 100))
    balancer.balance()
    assignment = balancer.assignment()
    assert sum(sizes(assignment).values()) == 100 * size
    assert max(sizes(assignment).values()) < 101 and min(sizes(assignment).values()) > 50


@pytest.mark.parametrize("assignor", ALL, ids=lambda each: each.name)
@pytest.mark.parametrize("other", [(A,), (A, B)])
def test_a_topic_that_is_not_known_is_an_error(assignor: GroupAssignor, other: tuple[UUID, ...]) -> None:
    with pytest.raises(AssignorError, match=r"non-existent topic|AAAAAAAAAAAAAAAAAAAAAg which doesn't exist"):
        assignor.assign(spec({"m0": member(A, B), "m1": member(*other)}), Topics({A: 1}))


@pytest.mark.parametrize("assignor", ALL, ids=lambda each: each.name)
def test_a_group_without_members_or_topics_gets_nothing(assignor: GroupAssignor) -> None:
    assert assignor.assign(spec({}), Topics()) == {}
    assert assignor.assign(spec({"m0": member(assigned={A: frozenset({0})})}), Topics({A: 1})) == {"m0": {}}


# --- configuration ------------------------------------------------------------------------------------------------


class Everything:
    """Gives all partitions to the first member."""

    name = "everything"

    def assign(self, spec: GroupSpec, topics: Topics) -> Mapping[str, Partitions]:
        first = min(spec.members)
        return {first: {each: frozenset(range(topics.num_partitions(each))) for each in spec.members[first].topic_ids}}


class Plugin:
    @hookimpl
    def register_group_assignors(self) -> Mapping[str, Callable[[], object]]:
        return {"everything": Everything, "misnamed": Everything, "classic": lambda: SimpleNamespace(name="classic")}


def configured(names: str | None) -> list[str]:
    manager = PluginManager.load()
    manager.register(Plugin(), "mine")
    given = {} if names is None else {"group.consumer.assignors": names}
    return [assignor.name for assignor in manager.create_group_assignors(BrokerConfig(given))]


def test_the_built_in_assignors_are_the_default() -> None:
    assert configured(None) == ["uniform", "range"]


def test_assignors_are_named_as_in_kafka_and_may_come_from_a_plugin() -> None:
    package = "org.apache.kafka.coordinator.group.assignor"
    assert configured(f"{package}.RangeAssignor,{package}.UniformAssignor") == ["range", "uniform"]
    assert configured("everything,uniform") == ["everything", "uniform"]


@pytest.mark.parametrize("names", ["", "uniform,uniform", "no.such.Assignor"])
def test_other_names_stop_the_start(names: str) -> None:
    with pytest.raises(ConfigError, match=r"group\.consumer\.assignors"):
        configured(names)


@pytest.mark.parametrize(
    ("name", "why"), [("misnamed", "both names have to be the same"), ("classic", "which has no assign")]
)
def test_an_assignor_that_breaks_its_contract_is_named(name: str, why: str) -> None:
    with pytest.raises(PluginError, match=f"plugin mine: '{name}' of register_group_assignors .*{why}"):
        configured(name)
