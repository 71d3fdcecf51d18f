"""Parts of the assignors by themselves: racks, claims, ranges, and who comes next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from kafkapy.clients.consumer.membership.assignors.api import members_in_order, partitions_of
from kafkapy.clients.consumer.membership.assignors.balancing import MemberData, Owned, assign_sticky
from kafkapy.clients.consumer.membership.assignors.constrained import ConstrainedAssignment
from kafkapy.clients.consumer.membership.assignors.cooperative_sticky import (
    CooperativeStickyAssignor,
    _member_data,
    _transferred,
)
from kafkapy.clients.consumer.membership.assignors.general import GeneralAssignment, _imbalance, _Movements
from kafkapy.clients.consumer.membership.assignors.kafka_python import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    KafkaPythonAssignor,
)
from kafkapy.clients.consumer.membership.assignors.racks import NO_RACKS, Racks, racks_matter
from kafkapy.clients.consumer.membership.assignors.range import _TopicState
from kafkapy.clients.consumer.membership.assignors.roundrobin import RoundRobinAssignor
from kafkapy.clients.consumer.membership.assignors.sticky import decode_user_data
from kafkapy.clients.consumer.membership.protocol import Assignment, ConsumerGroupMetadata, Subscription
from kafkapy.types import TopicPartition

NO_RACK: frozenset[str] = frozenset()
R1, R2, BOTH = frozenset({"r1"}), frozenset({"r2"}), frozenset({"r1", "r2"})


def plain(**counts: int) -> dict[str, list[frozenset[str]]]:
    return {topic: [NO_RACK] * count for topic, count in counts.items()}


def tps(text: str) -> list[TopicPartition]:
    """Partitions of "a0 a1 b0"."""
    return [TopicPartition(each[0], int(each[1:])) for each in text.split()]


def shown(assigned: Mapping[str, Sequence[TopicPartition]]) -> dict[str, str]:
    """In the order of the assignment."""
    return {
        member_id: " ".join(f"{each.topic}{each.partition}" for each in partitions)
        for member_id, partitions in assigned.items()
    }


def member(*topics: str, **fields: Any) -> Subscription:
    return Subscription(topics, **fields)


# --- racks --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("consumers", "partitions", "matter"),
    [
        (["r1"], [R1, R2], True),
        (["r3", "r1"], [R1, BOTH], True),
        (["r3"], [R1, R2], False),  # no consumer is near
        (["r1"], [R1, R1], False),  # everywhere
        (["r1"], [BOTH, BOTH], False),
        ([], [R1, R2], False),
        (["r1"], [NO_RACK], False),
        (["r1"], [NO_RACK, R1], True),
        (["r1"], [], False),
    ],
)
def test_racks_matter_where_some_partitions_are_near(
    consumers: list[str], partitions: list[frozenset[str]], matter: bool
) -> None:
    assert racks_matter(consumers, partitions) is matter
    members = {f"m{number}": member("a", rack_id=rack) for number, rack in enumerate(consumers)}
    assert bool(Racks({"a": partitions}, members)) is matter


def test_racks_of_partitions_and_of_members() -> None:
    members = {"m1": member("a", rack_id="r1"), "m2": member("a", rack_id="r2"), "m0": member("a")}
    racks = Racks({"a": [R1, R2, BOTH, NO_RACK]}, members)
    a0, a1, a2, a3, a4, b0 = tps("a0 a1 a2 a3 a4 b0")
    assert [racks.of_partition(each) for each in (a0, a1, a2, a3, a4, b0)] == [R1, R2, BOTH, NO_RACK, NO_RACK, NO_RACK]
    mismatches = {name: [racks.mismatch(name, each) for each in (a0, a1, a2, a3, b0)] for name in ("m0", "m1", "m2")}
    assert mismatches == {
        "m0": [False] * 5,
        "m1": [False, True, False, True, True],
        "m2": [True, False, False, True, True],
    }
    assert not NO_RACKS.mismatch("m1", a0)
    assert NO_RACKS.fewest_consumers_first([a2, a0]) == [a2, a0]


def test_partitions_with_few_consumers_near_come_first() -> None:
    members = {f"m{number}": member("a", rack_id=rack) for number, rack in enumerate(["r1", "r1", "r2"])}
    racks = Racks({"a": [BOTH, R1, R2, NO_RACK, R1, frozenset({"r9", "r2"})]}, members)
    first = racks.fewest_consumers_first(tps("a0 a1 a2 a3 a4 a5"))
    assert first == tps("a3 a2 a5 a1 a4 a0")


@pytest.mark.parametrize(("first", "index"), [(0, 1), (1, 1), (2, 3), (3, 3), (4, 1), (5, 1)])
def test_the_next_consumer_near_is_found_all_around(first: int, index: int) -> None:
    racks = Racks({"a": [R1, R2]}, {"x": member("a", rack_id="r1"), "y": member("a", rack_id="r2"), "z": member("a")})
    assert racks.next_near(TopicPartition("a", 0), ["y", "x", "y", "x"], first) == index
    assert racks.next_near(TopicPartition("a", 0), ["y", "z"], first) == -1
    assert racks.next_near(TopicPartition("a", 0), [], first) == -1
    assert racks.next_near(TopicPartition("a", 0), ["x"], first) == 0


# --- claims -------------------------------------------------------------------------------------------------------


def claims(topics: Any, **members: tuple[str, int]) -> tuple[dict[str, str], set[TopicPartition]]:
    owned = Owned(topics, {name: MemberData(tuple(tps(text)), number) for name, (text, number) in members.items()})
    return shown(owned.partitions), owned.disputed


def test_only_partitions_that_exist_are_owned() -> None:
    assert claims(plain(a=2), m1=("a0 a1 a2 b0", 5), m2=("", 5)) == ({"m1": "a0 a1", "m2": ""}, set())


@pytest.mark.parametrize(
    ("generations", "owners", "disputed"),
    [
        ((4, 5, -1), {"m1": "a1", "m2": "a0", "m3": ""}, ""),
        ((5, 4, -1), {"m1": "a1 a0", "m2": "", "m3": ""}, ""),
        ((4, 4, -1), {"m1": "a1", "m2": "", "m3": ""}, "a0"),
        ((4, 4, 4), {"m1": "a1", "m2": "", "m3": ""}, "a0"),
        ((4, 4, 5), {"m1": "a1", "m2": "", "m3": "a0"}, ""),
        ((5, 4, 5), {"m1": "a1", "m2": "", "m3": ""}, "a0"),
        ((-1, -1, 0), {"m1": "a1", "m2": "", "m3": "a0"}, ""),
    ],
)
def test_the_newest_claim_wins(generations: tuple[int, int, int], owners: dict[str, str], disputed: str) -> None:
    one, two, three = generations
    found = claims(plain(a=2), m1=("a1 a0", one), m2=("a0", two), m3=("a0", three))
    assert found == (owners, set(tps(disputed)))


def test_partitions_of_older_generations_go_back_to_their_members() -> None:
    topics = plain(a=3, b=3)
    subscriptions = {"m1": member("a"), "m2": member("a", "b"), "m3": member("a", "b")}
    members = {
        "m1": MemberData((), 5),
        "m2": MemberData(tuple(tps("b0 b1 b2")), 5),
        "m3": MemberData(tuple(tps("a0 b0")), 4),
    }
    assigned, transferred = assign_sticky(topics, subscriptions, members)
    assert transferred is None
    assert {name: sorted(each) for name, each in assigned.items()} == {
        "m1": tps("a1 a2"),
        "m2": tps("b1 b2"),
        "m3": tps("a0 b0"),
    }


def test_nobody_gets_nothing() -> None:
    for members in ({}, {"m1": MemberData(())}):
        subscriptions = {name: member("a") for name in members}
        assert assign_sticky({}, subscriptions, members) == ({name: [] for name in members}, {})


# --- the constrained assignment -----------------------------------------------------------------------------------


def constrained(
    topics: Any, racks: Racks = NO_RACKS, disputed: str = "", **owned: str
) -> tuple[dict[str, str], dict[str, str]]:
    builder = ConstrainedAssignment(
        topics, racks, {name: tps(text) for name, text in owned.items()}, frozenset(tps(disputed))
    )
    assigned = shown(builder.build())
    return assigned, {f"{each.topic}{each.partition}": name for each, name in builder.transferred.items()}


@pytest.mark.parametrize(
    ("count", "owned", "assigned", "transferred"),
    [
        (4, {"m1": "", "m2": ""}, {"m1": "a0 a2", "m2": "a1 a3"}, {}),
        (5, {"m1": "", "m2": ""}, {"m1": "a0 a2 a4", "m2": "a1 a3"}, {}),
        (5, {"m2": "", "m1": ""}, {"m1": "a0 a2 a4", "m2": "a1 a3"}, {}),
        (5, {"m1": "a0 a1", "m2": "a2 a3 a4"}, {"m1": "a0 a1", "m2": "a2 a3 a4"}, {}),
        (5, {"m1": "a0 a1 a2 a3 a4", "m2": ""}, {"m1": "a0 a1 a2", "m2": "a3 a4"}, {"a3": "m2", "a4": "m2"}),
        (6, {"m1": "a0 a1 a2 a3", "m2": "a4"}, {"m1": "a0 a1 a2", "m2": "a4 a3 a5"}, {"a3": "m2"}),
        (1, {"m1": "", "m2": "a0"}, {"m1": "", "m2": "a0"}, {}),
        (1, {"m2": "", "m1": ""}, {"m1": "a0", "m2": ""}, {}),
        (0, {"m1": "", "m2": ""}, {"m1": "", "m2": ""}, {}),
        (
            7,
            {"m1": "a0 a1", "m2": "a2 a3", "m3": ""},
            {"m1": "a0 a1 a6", "m2": "a2 a3", "m3": "a4 a5"},
            {},
        ),
        (
            8,
            {"m1": "a0 a1 a2 a3", "m2": "a4 a5 a6", "m3": "a7"},
            {"m1": "a0 a1 a2", "m2": "a4 a5 a6", "m3": "a7 a3"},
            {"a3": "m3"},
        ),
        (
            7,
            {"m1": "a0 a1 a2", "m2": "a3 a4 a5", "m3": "a6"},
            {"m1": "a0 a1 a2", "m2": "a3 a4", "m3": "a6 a5"},
            {"a5": "m3"},
        ),
    ],
)
def test_members_keep_what_balance_allows(
    count: int, owned: dict[str, str], assigned: dict[str, str], transferred: dict[str, str]
) -> None:
    assert constrained(plain(a=count), **owned) == (assigned, transferred)


def test_what_was_disputed_is_transferred() -> None:
    assert constrained(plain(a=2), disputed="a1", m1="a0", m2="") == ({"m1": "a0", "m2": "a1"}, {"a1": "m2"})


@pytest.mark.parametrize(
    ("places", "rack_ids", "owned", "assigned", "transferred"),
    [
        # Each gets what is near.
        ([R1, R2, R1, R2], ("r1", "r2"), ("", ""), ("a0 a2", "a1 a3"), {}),
        # What is not near is given up, and comes back where nobody is near.
        ([R1, R2, R1, R2], ("r1", "r2"), ("a0 a1", "a2 a3"), ("a0 a2", "a3 a1"), {"a2": "m1", "a1": "m2"}),
        ([R1, R1, R1, R2], ("r1", "r2"), ("", ""), ("a0 a1", "a3 a2"), {}),
        # One may have one more.
        ([R1, R1, R2], ("r1", "r2"), ("", ""), ("a0 a1", "a2"), {}),
        ([R1, R2, R2], ("r1", "r2"), ("", ""), ("a0", "a1 a2"), {}),
        ([R1, R1, R1, R2, R2], ("r1", "r2"), ("", ""), ("a0 a1 a2", "a3 a4"), {}),
        # Turns among those that are near.
        ([R1, R1, R1, R1, R2, R2], ("r1", "r1", "r2"), ("", "", ""), ("a0 a2", "a1 a3", "a4 a5"), {}),
    ],
)
def test_members_get_what_is_near_them(
    places: list[frozenset[str]],
    rack_ids: tuple[str, ...],
    owned: tuple[str, ...],
    assigned: tuple[str, ...],
    transferred: dict[str, str],
) -> None:
    names = [f"m{number}" for number in range(1, 4)]
    members = {name: member("a", rack_id=rack_id) for name, rack_id in zip(names, rack_ids, strict=False)}
    found = constrained({"a": places}, Racks({"a": places}, members), **dict(zip(members, owned, strict=True)))
    assert found == (dict(zip(members, assigned, strict=True)), transferred)


# --- the general assignment ---------------------------------------------------------------------------------------


def builder_of(
    topics: Any,
    subscribed: dict[str, str],
    owned: dict[str, str],
    previous: dict[str, str] | None = None,
    racks: Racks = NO_RACKS,
    keeps_racks: bool = False,
) -> Any:
    return GeneralAssignment(
        topics,
        racks,
        {name: member(*names) for name, names in subscribed.items()},
        {name: tps(owned.get(name, "")) for name in subscribed},
        {tps(each)[0]: name for each, name in (previous or {}).items()},
        keeps_racks=keeps_racks,
    )


def general(*given: Any) -> dict[str, str]:
    return shown({name: sorted(each) for name, each in builder_of(*given).build().items()})


def test_the_least_subscribed_topics_are_given_out_first() -> None:
    assert general(plain(a=2, b=1), {"m1": "a", "m2": "ab"}, {}) == {"m1": "a0 a1", "m2": "b0"}
    assert general(plain(a=1, b=2, c=1), {"m1": "abc", "m2": "b", "m3": "ab"}, {}) == {
        "m1": "b1 c0",
        "m2": "b0",
        "m3": "a0",
    }


@pytest.mark.parametrize("owned", ["a0 a1 a2 a3", "a0 a1 a2", "a0 a1"])
def test_no_more_moves_than_balance_needs(owned: str) -> None:
    found = general(plain(a=4, c=0), {"m1": "a", "m2": "ac"}, {"m1": owned})
    assert [len(each.split()) for each in found.values()] == [2, 2]
    assert set(found["m1"].split()) <= set(owned.split())


def test_a_partition_goes_back_to_its_member_of_an_older_generation() -> None:
    subscribed = {"m1": "a", "m2": "ab", "m3": "ab"}
    owned = {"m1": "a0 a1 a2 a3 a4 a5"}
    for previous, expected in (
        ({}, {"m1": "a4 a5", "m2": "a0 a2", "m3": "a1 a3"}),
        ({"a0": "m3", "a1": "m3", "a2": "m2", "a3": "m2"}, {"m1": "a4 a5", "m2": "a2 a3", "m3": "a0 a1"}),
    ):
        assert general(plain(a=6, b=0), subscribed, owned, previous) == expected


def test_a_move_may_make_another_one_possible() -> None:
    owned = {"m1": "a0 a1 a2 a3", "m2": "b0 b1 b2 b3"}
    assert general(plain(a=4, b=4), {"m1": "a", "m2": "ab", "m3": "b"}, owned) == {
        "m1": "a1 a2 a3",
        "m2": "a0 b2 b3",
        "m3": "b0 b1",
    }


@pytest.mark.parametrize(
    ("owned", "revoked"),
    [
        ({"m1": "a0", "m2": "b0"}, False),
        ({"m1": "a0 b0", "m2": "a1"}, True),
        ({"m1": "a0", "m2": "a1 c0"}, True),
        ({}, False),
    ],
)
def test_a_member_gives_up_what_it_is_not_subscribed_to(owned: dict[str, str], revoked: bool) -> None:
    builder = builder_of(plain(a=2, b=1, c=1), {"m1": "ac", "m2": "ab"}, owned)
    assert builder._revoked is revoked
    kept = {
        name: [each for each in tps(owned.get(name, "")) if each.topic in topics]
        for name, topics in (("m1", "ac"), ("m2", "ab"))
    }
    assert builder._assigned == kept
    assert builder._owner == {each: name for name, partitions in kept.items() for each in partitions}
    assert builder._most == {"m1": 3, "m2": 3}
    assert builder._subscribers == {"a": {"m1", "m2"}, "b": {"m2"}, "c": {"m1"}}


@pytest.mark.parametrize("keeps_racks", [True, False])
def test_a_member_may_keep_what_is_in_another_rack(keeps_racks: bool) -> None:
    places = {"a": [R1, R2]}
    racks = Racks(places, {"m1": member("a", rack_id="r1"), "m2": member("a", rack_id="r2")})
    builder = builder_of(places, {"m1": "a", "m2": "a"}, {"m1": "a0 a1"}, None, racks, keeps_racks)
    assert builder._assigned["m1"] == tps("a0 a1" if keeps_racks else "a0")
    assert builder._revoked is not keeps_racks


@pytest.mark.parametrize("owned", [{"m1": "a0 a1", "m2": "a2"}, {}])
@pytest.mark.parametrize("moved", [True, False])
def test_moves_that_do_not_help_are_undone(owned: dict[str, str], moved: bool) -> None:
    builder = builder_of(plain(a=3, b=0), {"m1": "a", "m2": "ab"}, owned)
    calls: list[list[TopicPartition]] = []

    def swap(partitions: list[TopicPartition]) -> bool:
        calls.append(partitions)
        if len(calls) == 2:
            assigned = builder._assigned
            assigned["m1"], assigned["m2"] = assigned["m2"], assigned["m1"]
        return moved

    builder._move = swap
    found = shown(builder.build())
    before = {"m1": "a0 a1", "m2": "a2"} if owned else {"m1": "a0 a2", "m2": "a1"}
    undone = moved and bool(owned)
    assert found == (before if undone else {"m1": before["m2"], "m2": before["m1"]})
    assert calls == [[] if owned else tps("a0 a1 a2"), tps("a0 a1 a2")]


def test_partitions_go_to_near_members_first_and_then_to_small_ones() -> None:
    places: dict[str, list[frozenset[str]]] = {"a": [R2, R1, frozenset({"r3"})], "b": []}
    racks = Racks(places, {"m1": member("a", rack_id="r1"), "m2": member("a", "b", rack_id="r2")})
    subscribed = {"m1": "a", "m2": "ab"}
    assert general(places, subscribed, {}, None, racks) == {"m1": "a1 a2", "m2": "a0"}
    assert general(places, subscribed, {}) == {"m1": "a0 a2", "m2": "a1"}


def test_only_members_that_may_change_take_part() -> None:
    builder = builder_of(plain(a=1, b=2), {"m1": "a", "m2": "b", "m3": "b"}, {"m1": "a0", "m2": "b0 b1"})
    assert [builder._takes_part(each) for each in ("m1", "m2", "m3")] == [False, True, True]
    assert shown(builder.build()) == {"m2": "b1", "m3": "b0", "m1": "a0"}


@pytest.mark.parametrize(
    ("owned", "balanced"),
    [
        ({"m1": "a0 a1", "m2": "a2"}, True),
        ({"m1": "a0 a1 a2"}, False),
        ({"m1": "a0 a1", "m2": ""}, False),
        ({"m1": "a0", "m2": "a1 a2 b0"}, False),
        ({"m2": "b0 b1 b2"}, True),  # of which the other may have none
        ({}, True),
    ],
)
def test_what_is_balanced(owned: dict[str, str], balanced: bool) -> None:
    builder = builder_of(plain(a=3, b=3), {"m1": "a", "m2": "ab"}, owned)
    builder._by_size = sorted((len(each), name) for name, each in builder._assigned.items())
    assert builder._balanced() is balanced
    builder._by_size = []
    assert builder._balanced()


def test_imbalance_is_the_sum_of_all_differences() -> None:
    for sizes, total in (((), 0), ((3,), 0), ((2, 2), 0), ((0, 3), 3), ((3, 1, 0), 6), ((1, 2, 4), 6), ((5, 5, 1), 8)):
        assert _imbalance({f"m{number}": tps("a0 " * size) for number, size in enumerate(sizes)}) == total


def test_a_move_back_is_no_move() -> None:
    a0, a1, b0 = tps("a0 a1 b0")
    moves = _Movements()
    moves.add(a0, "m1", "m2")
    assert moves.better(a1, "m2", "m1") == a0  # it goes back instead
    assert moves.better(b0, "m2", "m1") == b0  # of another topic
    assert moves.better(a1, "m1", "m2") == a1
    moves.add(a0, "m2", "m3")
    assert moves._moved == {a0: ("m1", "m3")}
    assert moves.better(a1, "m3", "m1") == a0
    assert moves.better(a1, "m2", "m1") == a1
    assert moves.better(a0, "m3", "m1") == a0
    moves.add(a0, "m3", "m1")
    assert (moves._moved, moves._by_topic) == ({}, {})
    moves.add(a0, "m1", "m2")
    moves.add(a1, "m1", "m2")
    moves.add(a0, "m2", "m3")
    assert moves._by_topic == {("a", "m1", "m2"): {a1: None}, ("a", "m1", "m3"): {a0: None}}


# --- ranges -------------------------------------------------------------------------------------------------------


def test_room_counts_down_with_the_members_that_get_one_more() -> None:
    state = _TopicState("a", [R1, R2, NO_RACK, R1, R2], {"m1": "r1", "m2": None})
    assigned: dict[str, list[TopicPartition]] = {"m1": [], "m2": []}
    assert [state.room(each) for each in ("m1", "m2")] == [3, 3]
    assert [state.near("m1", number) for number in range(5)] == [True, False, False, True, False]
    assert all(state.near("m2", number) for number in range(5))
    state.assign("m1", [0, 3], assigned)
    assert [state.room(each) for each in ("m1", "m2")] == [1, 3]
    state.assign("m1", [4], assigned)
    assert [state.room(each) for each in ("m1", "m2")] == [0, 2]
    state.assign_ranges(assigned, lambda _consumer, _number: True)
    assert shown(assigned) == {"m1": "a0 a3 a4", "m2": "a1 a2"}
    assert [state.room(each) for each in ("m1", "m2")] == [0, 0]
    state.assign_ranges(assigned, lambda _consumer, _number: True)
    assert shown(assigned) == {"m1": "a0 a3 a4", "m2": "a1 a2"}


def test_topics_go_together_with_as_many_partitions_and_the_same_members() -> None:
    racks = [R1, R2]
    one = _TopicState("a", racks, {"m1": "r1"})
    assert one.group == ((("m1", "r1"),), 2)
    assert one.racks_matter
    without = _TopicState("a", racks, {"m1": None})
    assert (without.group, without.racks_matter) == (((("m1", None),), 0), False)


# --- the rest -----------------------------------------------------------------------------------------------------


def test_members_have_an_order() -> None:
    members = {"z": member("a"), "y": member("a", group_instance_id="i2"), "b": member("a"), "x": member("a")}
    members["q"] = member("a", group_instance_id="i1")
    assert members_in_order(members) == ["q", "y", "b", "x", "z"]
    assert partitions_of(plain(a=2, b=1), ["b", "a"]) == tps("b0 a0 a1")


def test_round_robin_skips_topics_without_partitions() -> None:
    members = {"m1": member("a", "b"), "m2": member("a", "b")}
    assert shown(RoundRobinAssignor().assign_partitions(plain(a=3, b=2), members)) == {"m1": "a0 a2 b1", "m2": "a1 b0"}


@pytest.mark.parametrize(
    ("generation_id", "data", "expected"),
    [
        (-1, b"\0\0\0\4", 4),
        (-1, b"\0\0\0\4\7", 4),
        (-1, b"\0\0\4", -1),
        (-1, None, -1),
        (-1, b"\xff\xff\xff\xfe", -1),
        (0, b"\0\0\0\4", 0),
        (7, b"\0\0\0\4", 7),
    ],
)
def test_the_generation_of_a_cooperative_member(generation_id: int, data: bytes | None, expected: int) -> None:
    each = member("a", generation_id=generation_id, user_data=data, owned_partitions=tuple(tps("a0")))
    assert _member_data(each) == MemberData(tuple(tps("a0")), expected)


def test_only_what_another_member_owns_is_transferred() -> None:
    owned = {"m1": "a0 a1", "m2": "a2", "m3": ""}
    members = {name: member("a", owned_partitions=tuple(tps(text))) for name, text in owned.items()}
    assigned = {"m1": tps("a0"), "m2": tps("a2 a1"), "m3": tps("a3")}
    assert _transferred(members, assigned) == {tps("a1")[0]: "m2"}
    assert CooperativeStickyAssignor().supported_protocols() == (1, 0)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (None, MemberData((), -1)),
        (b"", MemberData((), -1)),
        (b"\0\0\0\1\0\1a\0\0\0\1\0\0\0\2", MemberData(tuple(tps("a2")), -1)),
        (b"\0\0\0\1\0\1a\0\0\0\1\0\0\0\2\0\0\0\0", MemberData(tuple(tps("a2")), 0)),
        (b"\0\0\0\1\0\1a\0\0\0\1\0\0\0\2\0\0\0\3\7", MemberData(tuple(tps("a2")), 3)),
        (b"\0\0\0\1\0\1a\0\0\0\1\0\0\0\2\xff\xff\xff\xfe", MemberData(tuple(tps("a2")), -1)),
        (b"\0\0\0\1\0\1a\0", MemberData((), -1)),
    ],
)
def test_user_data_of_sticky_members(data: bytes | None, expected: MemberData) -> None:
    assert decode_user_data(data) == expected


def test_what_assignors_of_kafka_python_are_given() -> None:
    seen: list[Any] = []

    class Theirs:
        name = "theirs"

        def metadata(self, topics: Any) -> Any:
            return ConsumerProtocolSubscription(0, sorted(topics), b"data")

        def assign(self, cluster: Any, members: Any) -> Any:
            seen.extend(members)
            return {
                "m1": ConsumerProtocolAssignment(0, [("a", [0, 1]), ("b", [2])], b"x"),
                "m2": ConsumerProtocolAssignment(0, [], None),
            }

        def on_assignment(self, assignment: Any, generation: int) -> None:
            seen.append((assignment, generation))

    assignor = KafkaPythonAssignor(Theirs())
    assert assignor.subscription_user_data(frozenset("a")) == b"data"
    members = {
        "m1": member("a", owned_partitions=tuple(tps("a0 b1 a2")), generation_id=4, rack_id="r", group_instance_id="i"),
        "m2": member("a", user_data=b"u"),
    }
    cluster: Any = None
    assigned = assignor.assign(cluster, members)
    assert assigned == {"m1": Assignment(tuple(tps("a0 a1 b2")), b"x"), "m2": Assignment((), None)}
    first, second = seen
    assert (first.member_id, first.group_instance_id, second.member_id, second.group_instance_id) == (
        "m1",
        "i",
        "m2",
        None,
    )
    view = first.metadata
    assert (view.version, view.topics, view.user_data, view.generation_id, view.rack_id) == (0, ["a"], b"", 4, "r")
    assert [(each.topic, each.partitions) for each in view.owned_partitions] == [("a", [0, 2]), ("b", [1])]
    view = second.metadata
    assert (view.user_data, view.owned_partitions, view.generation_id, view.rack_id) == (b"u", [], -1, None)
    seen.clear()
    for data, given in ((None, b""), (b"y", b"y")):
        assignor.on_assignment(Assignment(tuple(tps("a0 a1")), data), ConsumerGroupMetadata("g", 7, "m1"))
        assert seen.pop() == (ConsumerProtocolAssignment(0, [("a", [0, 1])], given), 7)
    assert ConsumerProtocolAssignment(0, [("a", [0, 1])]).partitions() == tps("a0 a1")
