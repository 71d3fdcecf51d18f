"""Plans of replicas: even, over racks, with the least data to move."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkapy.errors import KafkaError
from kafkapy.tools.replica_plan import Move, moves_of, spread, without
from kafkapy.types import TopicPartition

Placed = Mapping[TopicPartition, Sequence[int]]


def topic(*replicas: Sequence[int], name: str = "orders") -> dict[TopicPartition, list[int]]:
    """A topic from the replicas of its partitions."""
    return {TopicPartition(name, number): list(each) for number, each in enumerate(replicas)}


def no_racks(*brokers: int) -> dict[int, str | None]:
    return dict.fromkeys(brokers)


def per_broker(placed: Placed) -> list[int]:
    return sorted(Counter(broker for replicas in placed.values() for broker in replicas).values())


def copied(before: Placed, after: Placed) -> int:
    return sum(len(set(after[partition]) - set(before[partition])) for partition in after)


def test_a_balanced_topic_stays_as_it_is() -> None:
    orders = topic([1, 2, 3], [2, 3, 1], [3, 1, 2])
    assert spread(orders, no_racks(1, 2, 3)) == orders
    assert moves_of(orders, spread(orders, no_racks(1, 2, 3)), {}) == []


def test_new_brokers_get_their_share_and_nothing_else_moves() -> None:
    orders = topic(*[[1, 2]] * 6)
    after = spread(orders, no_racks(1, 2, 3, 4))
    assert per_broker(after) == [3, 3, 3, 3]
    assert copied(orders, after) == 6
    assert sorted(Counter(each[0] for each in after.values()).values()) == [1, 1, 2, 2]


def test_a_higher_replication_factor_copies_only_new_replicas() -> None:
    orders = topic([1], [2], [3])
    after = spread(orders, no_racks(1, 2, 3), 3)
    assert [replicas[0] for replicas in after.values()] == [1, 2, 3]
    assert [sorted(replicas) for replicas in after.values()] == [[1, 2, 3]] * 3


def test_a_lower_replication_factor_copies_nothing_and_keeps_the_leader() -> None:
    orders = topic([1, 2, 3], [2, 3, 1], [3, 1, 2])
    after = spread(orders, no_racks(1, 2, 3), 2)
    assert copied(orders, after) == 0
    assert [replicas[0] for replicas in after.values()] == [1, 2, 3]
    assert per_broker(after) == [2, 2, 2]


def test_replicas_of_a_partition_go_to_different_racks() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    after = spread(topic([1, 2], [2, 1], [3, 4], [4, 3]), racks)
    assert all({racks[broker] for broker in replicas} == {"a", "b"} for replicas in after.values())
    assert per_broker(after) == [2, 2, 2, 2]


def test_small_partitions_move_before_large_ones() -> None:
    orders = topic([1], [1], [1], [1])
    sizes = {partition: (4 - partition.partition) * 1000 for partition in orders}
    after = spread(orders, no_racks(1, 2), sizes=sizes)
    assert [after[partition] for partition in sorted(orders)] == [[1], [1], [2], [2]]


def test_leaders_move_over_a_third_broker() -> None:
    """No partition is on both the broker with most leaders and the one with none."""
    after = spread(topic([1, 2], [1, 2], [2, 3], [1, 2]), no_racks(1, 2, 3))
    assert sorted(Counter(each[0] for each in after.values()).values()) == [1, 1, 2]


def test_a_drained_broker_is_replaced_in_its_position() -> None:
    everything = topic([1, 2], [2, 3], [3, 1]) | topic([2, 3], name="payments")
    after = without(everything, 1, no_racks(1, 2, 3, 4))
    assert after == {TopicPartition("orders", 0): [4, 2], TopicPartition("orders", 2): [3, 4]}


def test_a_drained_broker_is_replaced_by_the_one_with_fewest_replicas_in_another_rack() -> None:
    everything = topic([1], name="b") | topic([2], [2], [3], name="a")
    assert without(everything, 1, no_racks(2, 3)) == {TopicPartition("b", 0): [3]}
    racks = {1: "x", 2: "y", 3: "z", 4: "y"}
    assert without(topic([1, 2], [3, 4], [3, 2]), 1, racks) == {TopicPartition("orders", 0): [3, 2]}


def test_a_drain_keeps_replicas_on_dead_brokers_and_on_those_that_get_none() -> None:
    orders = topic([1, 8], [2, 1])
    assert list(without(orders, 1, no_racks(1, 2, 3, 4), to=[4]).values()) == [[4, 8], [2, 4]]


def test_too_few_brokers_are_an_error_with_a_sentence() -> None:
    with pytest.raises(
        KafkaError, match=r"Partition orders-0 needs 3 replicas, but only 2 brokers are available: 1, 2"
    ):
        spread(topic([1]), no_racks(1, 2), 3)
    with pytest.raises(KafkaError, match=r"no place for its replica of broker 1: broker 2 has one already\. Add a br"):
        without(topic([1, 2]), 1, no_racks(1, 2))


def test_a_move_knows_its_bytes() -> None:
    partition = TopicPartition("orders", 0)
    move = Move(partition, (1, 2), (3, 4, 2), 1000)
    assert (move.adding, move.removing, move.bytes) == ((3, 4), (1,), 2000)
    assert Move(partition, (1, 2), (2, 1)).bytes == 0
    assert Move(partition, (1,), (2,)).bytes is None


@st.composite
def clusters(draw: st.DrawFn) -> tuple[Placed, dict[int, str | None], int]:
    """Replicas on up to eight brokers, some of which are gone; and a replication factor."""
    count = draw(st.integers(1, 8))
    racks = {broker: draw(st.sampled_from([None, "a", "b", "c"])) for broker in range(count)}
    everywhere = list(range(count + 2))
    replicas = st.lists(st.sampled_from(everywhere), min_size=1, max_size=count, unique=True)
    placed = topic(*draw(st.lists(replicas, min_size=1, max_size=30)))
    return placed, racks, draw(st.integers(1, count))


def most_racks(racks: Mapping[int, str | None], factor: int) -> int:
    named = {rack for rack in racks.values() if rack is not None}
    return min(factor, len(named) + sum(rack is None for rack in racks.values()))


def racks_of(replicas: Sequence[int], racks: Mapping[int, str | None]) -> int:
    return len({racks[broker] or broker for broker in replicas})


@given(clusters())
def test_a_plan_is_valid_even_and_over_racks(cluster: tuple[Placed, dict[int, str | None], int]) -> None:
    before, racks, factor = cluster
    after = spread(before, racks, factor)
    assert after.keys() == before.keys()
    for replicas in after.values():
        assert len(replicas) == len(set(replicas)) == factor
        assert set(replicas) <= set(racks)
        assert racks_of(replicas, racks) == most_racks(racks, factor)
    if set(racks.values()) == {None}:
        counts = [sum(broker in replicas for replicas in after.values()) for broker in racks]
        assert max(counts) - min(counts) <= 1
        leaders = [sum(replicas[0] == broker for replicas in after.values()) for broker in racks]
        assert max(leaders) - min(leaders) <= 1
    assert spread(after, racks, factor) == after


@given(clusters())
def test_a_drain_touches_only_the_partitions_of_the_broker(
    cluster: tuple[Placed, dict[int, str | None], int],
) -> None:
    before, racks, _ = cluster
    if any(len(replicas) >= len(racks) for replicas in before.values()):
        return
    after = without(before, 0, racks)
    assert after.keys() == {partition for partition, replicas in before.items() if 0 in replicas}
    for partition, replicas in after.items():
        assert 0 not in replicas
        assert len(set(replicas)) == len(before[partition])
        assert set(before[partition]) - {0} <= set(replicas)
