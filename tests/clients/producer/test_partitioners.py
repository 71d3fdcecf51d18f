"""Partitioners without a broker: names, shapes, and which records go where."""

from __future__ import annotations

from typing import Any

import pytest

from kafkapy._speedups.base.murmur2 import partition_for_key
from kafkapy._speedups.clients.producer.record_accumulator import RecordAccumulator
from kafkapy.clients.producer.kafka_python_partitioners import DefaultPartitioner, StickyPartitioner
from kafkapy.clients.producer.partitioners import (
    BuiltInPartitioner,
    RoundRobinPartitioner,
    bound,
    partitioner_for,
    register_partitioners,
)
from kafkapy.config.producer import PRODUCER, ProducerConfig
from kafkapy.errors import ConfigError

SERVERS = {"bootstrap.servers": "localhost:9092"}


class Cluster:
    """A topic of five partitions, of which some have a leader."""

    def __init__(self, *leaders: int, partitions: int = 5) -> None:
        self.leaders: set[int] | None = set(leaders)
        self.partitions = partitions

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return set(range(self.partitions)) if topic == "t" else None

    def available_partitions_for_topic(self, topic: str) -> set[int] | None:
        return self.leaders if topic == "t" else None


def config(**values: Any) -> ProducerConfig:
    return ProducerConfig(PRODUCER, {**SERVERS, **{name.replace("_", "."): value for name, value in values.items()}})


def accumulator() -> RecordAccumulator:
    made = RecordAccumulator(1 << 20, 1000, 5, 1 << 20, [100])
    made.topic("t").update([(1, 0)] * 5)
    return made


# --- names --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ignored", [True, False])
def test_without_a_partitioner_the_configuration_says_whether_keys_count(ignored: bool) -> None:
    chosen = partitioner_for(config(partitioner_ignore_keys=ignored))
    assert isinstance(chosen, BuiltInPartitioner)
    assert chosen.ignore_keys is ignored


@pytest.mark.parametrize(
    ("name", "kind", "ignored"),
    [
        ("default", BuiltInPartitioner, False),
        ("uniform_sticky", BuiltInPartitioner, True),
        ("round_robin", RoundRobinPartitioner, None),
        ("org.apache.kafka.clients.producer.RoundRobinPartitioner", RoundRobinPartitioner, None),
        ("org.apache.kafka.clients.producer.UniformStickyPartitioner", BuiltInPartitioner, True),
        ("org.apache.kafka.clients.producer.internals.DefaultPartitioner", BuiltInPartitioner, False),
    ],
)
def test_partitioners_have_names(name: str, kind: type, ignored: bool | None) -> None:
    chosen = partitioner_for(config(partitioner_class=name))
    assert type(chosen) is kind
    assert getattr(chosen, "ignore_keys", None) is ignored


def test_what_is_no_partitioner_is_refused() -> None:
    with pytest.raises(ConfigError, match="must be one of default, round_robin, uniform_sticky"):
        partitioner_for(config(partitioner_class="nonsense"))
    for wrong in (5, object()):
        with pytest.raises(ConfigError, match="must be a name, a callable, or an object with partition"):
            partitioner_for({"partitioner.class": wrong})  # type: ignore[arg-type]
    assert set(register_partitioners()) == {"default", "round_robin", "uniform_sticky"}


def test_objects_classes_and_callables_are_taken_as_they_are() -> None:
    class OfAnObject:
        def partition(self, topic: str, key: Any, value: Any, partitions: int) -> int:
            return 0

    def of_a_callable(key: Any, all_partitions: list[int], available: list[int]) -> int:
        return 0

    given = OfAnObject()
    assert partitioner_for({"partitioner.class": given}) is given  # type: ignore[arg-type]
    assert partitioner_for({"partitioner.class": of_a_callable}) is of_a_callable  # type: ignore[arg-type]
    assert isinstance(partitioner_for({"partitioner.class": OfAnObject}), OfAnObject)  # type: ignore[arg-type]


# --- which partition ----------------------------------------------------------------------------------------------


def test_the_built_in_partitioner_goes_by_the_key() -> None:
    assert BuiltInPartitioner().ignore_keys is False
    built_in = BuiltInPartitioner()
    assert [built_in.partition("t", key, b"v", 5) for key in (b"a", b"bc", b"")] == [
        partition_for_key(key, 5) for key in (b"a", b"bc", b"")
    ]
    assert [built_in.partition("t", None, b"v", 3) for _ in range(5)] == [0, 1, 2, 0, 1]
    ignoring = BuiltInPartitioner(ignore_keys=True)
    assert [ignoring.partition("t", b"same", b"v", 3) for _ in range(5)] == [0, 1, 2, 0, 1]


def test_each_topic_has_its_own_turn() -> None:
    partitioner = RoundRobinPartitioner()
    assert [partitioner.partition("t", b"same", b"v", 2) for _ in range(3)] == [0, 1, 0]
    assert [partitioner.partition("other", None, None, 3) for _ in range(4)] == [0, 1, 2, 0]


def test_each_shape_gets_its_own_arguments() -> None:
    seen: list[tuple[Any, ...]] = []
    cluster: Any = Cluster(4, 2)

    class Four:
        def partition(self, topic: str, raw_key: Any, raw_value: Any, partitions: int) -> int:
            seen.append((topic, raw_key, raw_value, partitions))
            return 4

    class Three:
        def partition(self, topic: str, raw_key: Any, of: Any) -> int:
            seen.append((topic, raw_key, of))
            return 3

    class Six:
        def partition(self, topic: str, key: Any, raw_key: Any, value: Any, raw_value: Any, of: Any) -> int:
            seen.append((topic, key, raw_key, value, raw_value, of.partitions_for_topic("t")))
            return 2

    def callable_(raw_key: Any, partitions: list[int], available: list[int]) -> int:
        seen.append((raw_key, partitions, available))
        return 1

    class NoSignature:
        partition = max
        """A function in C that says nothing of its parameters is called with four."""

    record = ("t", "key", b"raw key", "value", b"raw value")
    chosen = [bound(each, accumulator(), cluster)(*record) for each in (Four(), Three(), Six(), callable_)]
    assert chosen == [4, 3, 2, 1]
    assert seen == [
        ("t", b"raw key", b"raw value", 5),
        ("t", b"raw key", cluster),
        ("t", "key", b"raw key", "value", b"raw value", {0, 1, 2, 3, 4}),
        (b"raw key", [0, 1, 2, 3, 4], [2, 4]),
    ]
    choose = bound(NoSignature(), accumulator(), cluster)
    with pytest.raises(TypeError, match="not supported between"):
        choose(*record)
    # A topic that is not known has no partitions, as kafka-python says.
    bound(callable_, accumulator(), cluster)("other", None, None, None, None)
    assert seen[-1] == (None, [], [])


def test_a_sticky_partitioner_hears_of_each_new_batch() -> None:
    class Sticky:
        def __init__(self) -> None:
            self.chosen = 1
            self.left: list[tuple[str, int]] = []

        def partition(self, topic: str, key: Any, raw_key: Any, value: Any, raw_value: Any, of: Any) -> int:
            return self.chosen

        def on_new_batch(self, topic: str, of: Any, previous: int) -> None:
            assert of.partitions_for_topic("t") == {0, 1, 2, 3, 4}
            self.left.append((topic, previous))
            self.chosen += 1

    records, sticky, cluster = accumulator(), Sticky(), Cluster(0, 1, 2, 3, 4)
    choose = bound(sticky, records, cluster)  # type: ignore[arg-type]
    assert choose("t", "key", b"key", None, b"v") == 1
    assert sticky.left == []
    # The record begins a batch: it goes to the partition that is chosen then.
    assert choose("t", None, None, None, b"v") == 2
    records.append("t", 2, 1000, None, b"v")
    assert choose("t", None, None, None, b"v") == 2
    assert sticky.left == [("t", 1)]
    for _ in range(2):
        records.append("t", 2, 1000, None, bytes(900))
    assert len(records.queue("t", 2).batches) == 2
    records.drain(1, 1, 10**15)
    assert [each.full for each in records.queue("t", 2).batches] == [False]
    assert choose("t", None, None, None, b"v") == 2
    records.append("t", 3, 1000, None, bytes(2000))
    assert records.queue("t", 3).batches[-1].full
    sticky.chosen = 3
    assert choose("t", None, None, None, b"v") == 4
    assert sticky.left == [("t", 1), ("t", 3)]


# --- kafka-python's -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [DefaultPartitioner, StickyPartitioner])
def test_keys_choose_among_all_partitions(kind: type[DefaultPartitioner]) -> None:
    partitioner, cluster = kind(), Cluster(3)
    for key in (b"a", b"bc", b"def", b""):
        assert partitioner.partition("t", "key", key, None, b"v", cluster) == partition_for_key(key, 5)
        assert partitioner(key, [10, 11, 12, 13, 14], [13]) == 10 + partition_for_key(key, 5)
    assert {partitioner.partition("t", None, None, None, b"v", cluster) for _ in range(20)} == {3}
    assert {partitioner(None, [0, 1, 2], [2]) for _ in range(20)} == {2}
    assert {partitioner(None, [1], []) for _ in range(3)} == {1}
    with pytest.raises(ValueError, match="topic other is unknown"):
        partitioner.partition("other", None, None, None, b"v", cluster)


@pytest.mark.parametrize("leaders", [None, set()])
def test_without_a_leader_all_partitions_are_chosen_from(leaders: set[int] | None) -> None:
    cluster = Cluster(partitions=1)
    cluster.leaders = leaders
    for partitioner in (DefaultPartitioner(), StickyPartitioner()):
        assert partitioner.partition("t", None, None, None, b"v", cluster) == 0
    sticky = StickyPartitioner()
    sticky.partition("t", None, None, None, b"v", cluster)
    # There is no other one.
    sticky.on_new_batch("t", cluster, 0)
    assert sticky.partition("t", None, None, None, b"v", cluster) == 0
    cluster.partitions = 2
    sticky.on_new_batch("t", cluster, 0)
    assert {sticky.partition("t", None, None, None, b"v", cluster) for _ in range(20)} == {1}


def test_a_sticky_partition_is_left_with_its_batch_or_its_leader() -> None:
    cluster, sticky = Cluster(1, 2), StickyPartitioner()

    def chosen() -> int:
        (partition,) = {sticky.partition("t", None, None, None, b"v", cluster) for _ in range(20)}
        return partition

    first = chosen()
    sticky.on_new_batch("t", cluster, first)
    assert chosen() == 3 - first
    # A batch of a partition that was left before.
    sticky.on_new_batch("t", cluster, first)
    sticky.on_new_batch("t", cluster, 4)
    assert chosen() == 3 - first
    sticky.on_new_batch("other", cluster, 3 - first)
    assert chosen() == 3 - first
    cluster.leaders = {first, 4}
    assert chosen() in (first, 4)
