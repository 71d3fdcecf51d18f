"""Assignors of consumers: each partition for one subscriber of its topic, balance, stickiness, racks, cooperation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkapy.clients.consumer.membership.assignors import BUILTIN, create_assignors, rebalance_protocol
from kafkapy.clients.consumer.membership.assignors.api import PartitionAssignor, RebalanceProtocol, topics_of
from kafkapy.clients.consumer.membership.assignors.balancing import MemberData
from kafkapy.clients.consumer.membership.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafkapy.clients.consumer.membership.assignors.range import RangeAssignor
from kafkapy.clients.consumer.membership.assignors.roundrobin import RoundRobinAssignor
from kafkapy.clients.consumer.membership.assignors.sticky import StickyAssignor, decode_user_data, encode_user_data
from kafkapy.clients.consumer.membership.protocol import Assignment, ConsumerGroupMetadata, Subscription
from kafkapy.errors import ConfigError
from kafkapy.plugins import PluginManager, hookimpl
from kafkapy.types import TopicPartition

quickly = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])

ALL = [RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor]
STICKY = [StickyAssignor, CooperativeStickyAssignor]
NO_RACK: frozenset[str] = frozenset()
Members = dict[str, Subscription]
Topics = dict[str, list[frozenset[str]]]
Owned = Mapping[str, Sequence[TopicPartition]]


def plain(**counts: int) -> Topics:
    """Topics whose partitions are in no rack."""
    return {topic: [NO_RACK] * count for topic, count in counts.items()}


def member(*topics: str, **fields: Any) -> Subscription:
    return Subscription(topics, **fields)


def tps(text: str) -> list[TopicPartition]:
    """Partitions of "a0 a1 b0"."""
    return [TopicPartition(each[0], int(each[1:])) for each in text.split()]


def shown(assigned: Mapping[str, Sequence[TopicPartition]]) -> dict[str, str]:
    return {
        member_id: " ".join(f"{each.topic}{each.partition}" for each in sorted(partitions))
        for member_id, partitions in assigned.items()
    }


def owning(members: Members, owned: Owned, generation_id: int = 5) -> Members:
    """The members as they join again: sticky ones say it in user data, cooperative ones in the subscription."""
    return {
        member_id: each._replace(
            owned_partitions=tuple(owned.get(member_id, ())),
            generation_id=generation_id,
            user_data=encode_user_data(MemberData(tuple(owned.get(member_id, ())), generation_id)),
        )
        for member_id, each in members.items()
    }


def rounds(
    assignor: PartitionAssignor, topics: Topics, members: Members, owned: Owned
) -> dict[str, list[TopicPartition]]:
    """The assignment once nothing is to be given up any more: one rebalance, or with a cooperative assignor several."""
    assigned = assignor.assign_partitions(topics, owning(members, owned))
    if not isinstance(assignor, CooperativeStickyAssignor):
        return assigned
    for generation_id in range(6, 10):
        keeps = {
            member_id: [each for each in owned.get(member_id, ()) if each in assigned[member_id]]
            for member_id in members
        }
        given_up = any(len(keeps[member_id]) < len(owned.get(member_id, ())) for member_id in members)
        taken = {each for member_id in members for each in owned.get(member_id, ())}
        for member_id, partitions in assigned.items():
            new = set(partitions) - set(owned.get(member_id, ()))
            assert not new & taken, "a partition is given away that a member still owns"
        if not given_up:
            return assigned
        owned = assigned
        assigned = assignor.assign_partitions(topics, owning(members, owned, generation_id))
    raise AssertionError("the group does not settle")


@st.composite
def groups(draw: st.DrawFn, same: bool = False, racks: bool = False) -> tuple[Members, Topics]:
    names = "abcd"
    rack = st.sampled_from(["r1", "r2", "r3"])
    replicas = st.frozensets(rack, min_size=1, max_size=2) if racks else st.just(NO_RACK)
    topics = {name: draw(st.lists(replicas, min_size=1, max_size=6)) for name in names}
    subscribed = st.sets(st.sampled_from(names), min_size=1)
    everybodys = draw(subscribed)
    members = {}
    for number in range(draw(st.integers(1, 6))):
        mine = everybodys if same else draw(subscribed)
        where = draw(st.one_of(st.none(), rack)) if racks else None
        instance_id = draw(st.sampled_from([None, f"i{9 - number}"]))
        members[f"m{number}"] = Subscription(tuple(sorted(mine)), rack_id=where, group_instance_id=instance_id)
    subscribed_to = {topic for each in members.values() for topic in each.topics}
    return members, {topic: racks_of for topic, racks_of in topics.items() if topic in subscribed_to}


def check_complete(members: Members, topics: Topics, assigned: Mapping[str, Sequence[TopicPartition]]) -> None:
    assert set(assigned) == set(members)
    handed_out = [partition for partitions in assigned.values() for partition in partitions]
    assert sorted(handed_out) == [
        TopicPartition(topic, no) for topic in sorted(topics) for no in range(len(topics[topic]))
    ]
    for member_id, partitions in assigned.items():
        assert {partition.topic for partition in partitions} <= set(members[member_id].topics)


# --- properties ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("assignor", ALL, ids=lambda each: each.name)
@pytest.mark.parametrize("racks", [False, True])
@quickly
@given(data=st.data())
def test_each_partition_goes_to_one_subscriber_of_its_topic(
    assignor: type[PartitionAssignor], racks: bool, data: st.DataObject
) -> None:
    members, topics = data.draw(groups(racks=racks))
    check_complete(members, topics, assignor().assign_partitions(topics, members))


@pytest.mark.parametrize("assignor", STICKY, ids=lambda each: each.name)
@pytest.mark.parametrize("same", [False, True])
@pytest.mark.parametrize("racks", [False, True])
@quickly
@given(data=st.data())
def test_sticky_assignments_stay_complete_over_changes(
    assignor: type[PartitionAssignor], same: bool, racks: bool, data: st.DataObject
) -> None:
    members, topics = data.draw(groups(same=same, racks=racks))
    before = rounds(assignor(), topics, members, {})
    gone = data.draw(st.sets(st.sampled_from(sorted(members)), max_size=len(members) - 1))
    stay = {member_id: each for member_id, each in members.items() if member_id not in gone}
    if data.draw(st.booleans()):
        stay["m9"] = data.draw(st.sampled_from(list(stay.values())))._replace(group_instance_id=None)
    subscribed = {topic for each in stay.values() for topic in each.topics}
    now = {topic: where for topic, where in topics.items() if topic in subscribed}
    after = rounds(assignor(), now, stay, before)
    check_complete(stay, now, after)
    sizes = [len(partitions) for partitions in after.values()]
    if same:
        assert max(sizes) - min(sizes) <= 1
    for member_id, partitions in after.items():
        # Nobody has two more than a member that could have one of them.
        for partition in partitions:
            for other, each in stay.items():
                if partition.topic in each.topics:
                    assert len(partitions) <= len(after[other]) + 1, (member_id, other)


def test_a_group_in_racks_settles_when_a_member_of_another_rack_has_a_partition_for_balance() -> None:
    one, two = frozenset({"r1"}), frozenset({"r2"})
    both = frozenset({"r1", "r3"})
    topics = {
        "a": [one, one, one, both, two, frozenset({"r3"})],
        "b": [two, *[one] * 5],
        "c": [*[one] * 5, two],
        "d": [one, one, both, both],
    }
    members = {
        "m0": member("a", "b", "c"),
        "m1": member("a", "b", "c", "d"),
        "m2": member("a", "b", "c", "d", rack_id="r1"),
        "m3": member("a", "d", rack_id="r3"),
    }
    assignor = CooperativeStickyAssignor()
    before = rounds(assignor, topics, members, {})
    more = members | {"m9": member("a", "d", rack_id="r3")}
    after = rounds(assignor, topics, more, before)
    check_complete(more, topics, after)
    assert shown(rounds(assignor, topics, more, after)) == shown(after)


@pytest.mark.parametrize("assignor", STICKY, ids=lambda each: each.name)
@quickly
@given(data=st.data())
def test_sticky_assignors_move_as_little_as_balance_allows(
    assignor: type[PartitionAssignor], data: st.DataObject
) -> None:
    members, topics = data.draw(groups(same=True))
    before = rounds(assignor(), topics, members, {})
    assert shown(rounds(assignor(), topics, members, before)) == shown(before)
    gone = data.draw(st.sampled_from(sorted(members)))
    if len(members) > 1:
        stay = {member_id: each for member_id, each in members.items() if member_id != gone}
        after = rounds(assignor(), topics, stay, before)
        assert all(set(before[member_id]) <= set(partitions) for member_id, partitions in after.items())
    come = members | {"m9": next(iter(members.values()))._replace(group_instance_id=None)}
    after = rounds(assignor(), topics, come, before)
    assert all(set(after[member_id]) <= set(before[member_id]) for member_id in members)


@pytest.mark.parametrize("assignor", ALL, ids=lambda each: each.name)
@quickly
@given(group=groups(racks=True), order=st.randoms(use_true_random=False))
def test_an_assignment_does_not_depend_on_the_order_of_members(
    assignor: type[PartitionAssignor], group: tuple[Members, Topics], order: Any
) -> None:
    members, topics = group
    names = list(members)
    order.shuffle(names)
    shuffled = assignor().assign_partitions(topics, {name: members[name] for name in names})
    assert shown(shuffled) == shown(assignor().assign_partitions(topics, members))


# --- single cases -------------------------------------------------------------------------------------------------


def test_range_gives_ranges_of_each_topic_to_the_members_in_order() -> None:
    members = {"c": member("a", "b"), "b": member("a", "b"), "a": member("b")}
    assigned = RangeAssignor().assign_partitions(plain(a=3, b=4), members)
    assert shown(assigned) == {"a": "b0 b1", "b": "a0 a1 b2", "c": "a2 b3"}


@pytest.mark.parametrize("assignor", [RangeAssignor, RoundRobinAssignor])
def test_static_members_come_first_and_keep_their_place(assignor: type[PartitionAssignor]) -> None:
    before = {"x": member("a", group_instance_id="i1"), "y": member("a", group_instance_id="i2"), "a": member("a")}
    after = {"z": member("a", group_instance_id="i1"), "b": member("a", group_instance_id="i2"), "a": member("a")}
    assert shown(assignor().assign_partitions(plain(a=3), before)) == {"x": "a0", "y": "a1", "a": "a2"}
    assert shown(assignor().assign_partitions(plain(a=3), after)) == {"z": "a0", "b": "a1", "a": "a2"}


def test_round_robin_deals_out_over_topics_and_skips_who_is_not_subscribed() -> None:
    members = {"a": member("a"), "b": member("a", "b"), "c": member("a", "b", "c")}
    assigned = RoundRobinAssignor().assign_partitions(plain(a=1, b=2, c=3), members)
    assert shown(assigned) == {"a": "a0", "b": "b0", "c": "b1 c0 c1 c2"}


def test_range_prefers_consumers_near_a_partition_within_the_balance() -> None:
    topics = {"a": [frozenset({"r2"}), frozenset({"r1"}), frozenset({"r1"}), frozenset({"r2"})]}
    members = {"m1": member("a", rack_id="r1"), "m2": member("a", rack_id="r2")}
    assert shown(RangeAssignor().assign_partitions(topics, members)) == {"m1": "a1 a2", "m2": "a0 a3"}
    far = {"a": [frozenset({"r2"})] * 3 + [frozenset({"r3"})]}
    assert shown(RangeAssignor().assign_partitions(far, members)) == {"m1": "a2 a3", "m2": "a0 a1"}


def test_range_counts_what_is_near_where_it_deals_out_the_rest() -> None:
    members = {f"m{number}": member("a", rack_id=f"r{number}") for number in (1, 2)}
    near, far = frozenset({"r1"}), frozenset({"r3"})
    assert shown(RangeAssignor().assign_partitions({"a": [near, far, far, far]}, members)) == {
        "m1": "a0 a1",
        "m2": "a2 a3",
    }
    assert shown(RangeAssignor().assign_partitions({"a": [far, far, far, near, near]}, members)) == {
        "m1": "a0 a3 a4",
        "m2": "a1 a2",
    }
    assert shown(RangeAssignor().assign_partitions({"a": [near] * 3 + [far]}, members)) == {
        "m1": "a0 a1",
        "m2": "a2 a3",
    }


def test_range_keeps_topics_together_that_have_as_many_partitions_in_the_same_racks() -> None:
    racks = [frozenset({"r2"}), frozenset({"r1"}), frozenset({"r2"}), frozenset({"r1"})]
    members = {"m1": member("a", "b", rack_id="r1"), "m2": member("a", "b", rack_id="r2")}
    assigned = RangeAssignor().assign_partitions({"a": racks, "b": racks}, members)
    assert shown(assigned) == {"m1": "a1 a3 b1 b3", "m2": "a0 a2 b0 b2"}
    # Where no consumer is near both topics' partition, they are shared out as without racks.
    assigned = RangeAssignor().assign_partitions({"a": racks, "b": racks[1:] + racks[:1]}, members)
    assert shown(assigned) == {"m1": "a0 a1 b0 b1", "m2": "a2 a3 b2 b3"}


def test_racks_do_not_matter_where_every_partition_is_everywhere() -> None:
    members = {"m1": member("a", rack_id="r1"), "m2": member("a", rack_id="r2")}
    everywhere = {"a": [frozenset({"r1", "r2"})] * 4}
    assert shown(RangeAssignor().assign_partitions(everywhere, members)) == {"m1": "a0 a1", "m2": "a2 a3"}


@pytest.mark.parametrize("other", [(), ("b",)])
def test_sticky_moves_partitions_to_where_they_are_near(other: tuple[str, ...]) -> None:
    topics = {"a": [frozenset({"r1"}), frozenset({"r2"})]} | ({"b": [frozenset({"r1", "r2"})] * 2} if other else {})
    members = {"m1": member("a", rack_id="r1"), "m2": member("a", *other, rack_id="r2")}
    assigned = rounds(StickyAssignor(), topics, members, {"m1": tps("a1"), "m2": tps("a0")})
    assert set(tps("a0")) <= set(assigned["m1"])
    if not other:
        assert shown(assigned) == {"m1": "a0", "m2": "a1"}


def test_a_partition_that_moves_is_first_given_up() -> None:
    members = {"m1": member("a"), "m2": member("a")}
    first = CooperativeStickyAssignor().assign_partitions(plain(a=4), owning(members, {"m1": tps("a0 a1 a2 a3")}))
    assert shown(first) == {"m1": "a0 a1", "m2": ""}
    second = CooperativeStickyAssignor().assign_partitions(plain(a=4), owning(members, first))
    assert shown(second) == {"m1": "a0 a1", "m2": "a2 a3"}


def test_a_partition_that_moves_between_members_with_different_topics_is_first_given_up() -> None:
    members = {"m1": member("a"), "m2": member("a", "b")}
    first = CooperativeStickyAssignor().assign_partitions(plain(a=4, b=1), owning(members, {"m1": tps("a0 a1 a2 a3")}))
    assert "a" not in shown(first)["m2"]
    assert len(first["m1"]) < 4


def test_the_newer_generation_keeps_what_two_members_claim() -> None:
    members = {"m1": member("a"), "m2": member("a")}
    claims = owning(members, {"m1": tps("a0 a1")}, 4) | {
        "m2": owning(members, {"m2": tps("a1")}, 5)["m2"],
    }
    assert shown(StickyAssignor().assign_partitions(plain(a=2), claims)) == {"m1": "a0", "m2": "a1"}


def test_nobody_keeps_what_two_members_of_one_generation_claim() -> None:
    members = {"m1": member("a"), "m2": member("a")}
    claims = owning(members, {"m1": tps("a0 a1"), "m2": tps("a1 a2")})
    assert shown(CooperativeStickyAssignor().assign_partitions(plain(a=3), claims)) == {"m1": "a0", "m2": "a2"}


def test_sticky_remembers_the_assignment_and_cooperative_sticky_its_generation() -> None:
    assignment, metadata = Assignment(tuple(tps("a0 b1 a2"))), ConsumerGroupMetadata("g", 7, "m")
    sticky, cooperative = StickyAssignor(), CooperativeStickyAssignor()
    assert sticky.subscription_user_data(frozenset({"a"})) is None
    assert cooperative.subscription_user_data(frozenset({"a"})) == b"\xff\xff\xff\xff"
    sticky.on_assignment(assignment, metadata)
    cooperative.on_assignment(assignment, metadata)
    # What Java's StickyAssignor writes: topics with their partitions, then the generation.
    said = b"\0\0\0\2" + b"\0\1a" + b"\0\0\0\2\0\0\0\0\0\0\0\2" + b"\0\1b" + b"\0\0\0\1\0\0\0\1" + b"\0\0\0\7"
    assert sticky.subscription_user_data(frozenset({"a"})) == said
    assert decode_user_data(said) == MemberData(tuple(tps("a0 a2 b1")), 7)
    assert decode_user_data(said[:-4]) == MemberData(tuple(tps("a0 a2 b1")), -1)
    assert cooperative.subscription_user_data(frozenset({"a"})) == b"\0\0\0\7"


@quickly
@given(st.binary(max_size=40))
def test_user_data_that_cannot_be_read_is_no_past(data: bytes) -> None:
    assert decode_user_data(data).generation_id >= -1
    assigned = StickyAssignor().assign_partitions(plain(a=2), {"m1": member("a", user_data=data)})
    assert shown(assigned) == {"m1": "a0 a1"}


def test_the_generation_of_an_old_cooperative_member_is_in_its_user_data() -> None:
    members = {
        "m1": member("a", owned_partitions=tuple(tps("a0 a1")), user_data=b"\0\0\0\4"),
        "m2": member("a", owned_partitions=tuple(tps("a1")), user_data=b"\0\0\0\5"),
        "m3": member("a", owned_partitions=tuple(tps("a1")), user_data=b"\0"),
    }
    assert shown(CooperativeStickyAssignor().assign_partitions(plain(a=3), members)) == {
        "m1": "a0",
        "m2": "a1",
        "m3": "a2",
    }


# --- by configuration ---------------------------------------------------------------------------------------------


def cluster(topics: Topics) -> Any:
    """What an assignor looks at of a ClusterMetadata; broker n is in rack rn."""
    brokers = {number: SimpleNamespace(rack=f"r{number}") for number in range(1, 4)}
    described = {
        topic: SimpleNamespace(
            is_internal=False,
            partitions={
                number: SimpleNamespace(replicas=[int(rack[1:]) for rack in racks]) for number, racks in enumerate(each)
            },
        )
        for topic, each in topics.items()
    }
    return SimpleNamespace(
        brokers=lambda: brokers,
        topics=described,
        topic_names=lambda exclude_internal_topics: set(described),
        partitions_for_topic=lambda topic: set(range(len(topics[topic]))),
    )


def test_an_assignor_is_given_the_topics_that_exist() -> None:
    known = {"a": [frozenset({"r1", "r3"}), frozenset({"r2"})], "z": [NO_RACK]}
    assert topics_of(cluster(known), {"a", "b"}) == {"a": known["a"]}
    assigned = RangeAssignor().assign(cluster(known), {"m1": member("a", "b")})
    assert assigned == {"m1": Assignment(tuple(tps("a0 a1")))}


def test_assignors_are_found_by_name_class_and_object() -> None:
    mine = RoundRobinAssignor()
    found = create_assignors(["org.apache.kafka.clients.consumer.RangeAssignor", StickyAssignor, mine])
    assert [type(each) for each in found] == [RangeAssignor, StickyAssignor, RoundRobinAssignor]
    assert found[2] is mine
    assert [each.name for each in create_assignors("range, cooperative-sticky")] == ["range", "cooperative-sticky"]
    assert {name: factory().name for name, factory in BUILTIN.items()} == {name: name for name in BUILTIN}


@pytest.mark.parametrize("strategy", [[], ["range", RangeAssignor], ["no.such.Assignor"], [object], [7]])
def test_other_strategies_are_refused(strategy: list[Any]) -> None:
    with pytest.raises(ConfigError, match=r"partition\.assignment\.strategy"):
        create_assignors(strategy)


def test_assignors_of_plugins_are_found_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    class Mine(PartitionAssignor):
        name = "mine"

    class Plugin:
        @hookimpl
        def register_partition_assignors(self) -> Mapping[str, type[PartitionAssignor]]:
            return {"mine": Mine}

    load = PluginManager.load

    def with_mine(**options: Any) -> PluginManager:
        manager = load(**options)
        manager.register(Plugin(), "mine")
        return manager

    monkeypatch.setattr(PluginManager, "load", with_mine)
    assert [type(each) for each in create_assignors(["mine", "range"])] == [Mine, RangeAssignor]
    with pytest.raises(ConfigError, match="must be one of cooperative-sticky, mine, range, roundrobin, sticky"):
        create_assignors("yours")


def test_members_cooperate_where_all_their_assignors_can() -> None:
    assert rebalance_protocol(create_assignors("range")) is RebalanceProtocol.EAGER
    assert rebalance_protocol(create_assignors("range,cooperative-sticky")) is RebalanceProtocol.EAGER
    assert rebalance_protocol(create_assignors("cooperative-sticky")) is RebalanceProtocol.COOPERATIVE

    class OnlyCooperative(RangeAssignor):
        name = "only"

        def supported_protocols(self) -> Sequence[RebalanceProtocol]:
            return (RebalanceProtocol.COOPERATIVE,)

    with pytest.raises(ConfigError, match="in common"):
        rebalance_protocol([RangeAssignor(), OnlyCooperative()])


# --- kafka-python's -----------------------------------------------------------------------------------------------


def test_assignors_of_kafka_python_work_as_they_are() -> None:
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

    found = create_assignors([RangePartitionAssignor, RoundRobinPartitionAssignor])
    assert rebalance_protocol(found) is RebalanceProtocol.EAGER
    members = {"m1": member("a", "b"), "m2": member("a", "b")}
    for theirs, ours in zip(found, (RangeAssignor(), RoundRobinAssignor()), strict=True):
        assert theirs.name == ours.name
        topics = plain(a=3, b=3)
        assigned = theirs.assign(cluster(topics), members)
        assert shown({name: each.partitions for name, each in assigned.items()}) == shown(
            ours.assign_partitions(topics, members)
        )


@pytest.mark.parametrize("cooperative", [False, True])
def test_sticky_assignors_of_kafka_python_remember(cooperative: bool) -> None:
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor as Cooperative
    from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor as Sticky

    [assignor] = create_assignors([Cooperative if cooperative else Sticky])
    assert rebalance_protocol([assignor]) is RebalanceProtocol(cooperative)
    owned = tuple(tps("a0 a1 a2"))
    assignor.on_assignment(Assignment(owned), ConsumerGroupMetadata("g", 3, "m1"))
    data = assignor.subscription_user_data(frozenset("a"))
    members = {
        "m1": member("a", owned_partitions=owned, generation_id=3, user_data=data),
        "m2": member("a", user_data=b""),
    }
    assigned = assignor.assign(cluster(plain(a=3)), members)
    kept = {each for each in assigned["m1"].partitions if each in owned}
    assert len(kept) == 2
    assert len(assigned["m2"].partitions) == (0 if cooperative else 1)
