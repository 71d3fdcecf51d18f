"""Client instances and their subscriptions, on a clock of the test."""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID

import pytest

from kafkapy.broker.client_telemetry.instances import Client, ClientInstances, Instance
from kafkapy.config.client_metrics import DEFAULT_INTERVAL_MS, ClientMetricsSubscription
from kafkapy.errors import ErrorCode, KafkaError
from kafkapy.types import CompressionType


class World:
    """Instances on a clock."""

    def __init__(self, most: int = 100) -> None:
        self.now_ms = 1_000_000
        self.gone: list[UUID] = []
        self.instances = ClientInstances(lambda: 1000, self.gone.append, clock_ms=lambda: self.now_ms, most=most)

    def get(self, number: int = 100, **others: Any) -> Instance:
        return self.instances.get(client(number, **others))

    def push(self, instance: Instance, subscription_id: int | None = None, **others: Any) -> ErrorCode:
        chosen = {"terminating": False, "compression": int(CompressionType.ZSTD), "size": 10} | others
        wanted = instance.subscription_id if subscription_id is None else subscription_id
        try:
            self.instances.push(instance.client, wanted, **chosen)
        except KafkaError as error:
            return ErrorCode(error.code)
        return ErrorCode.NONE

    def subscribe(self, name: str, *metrics: str, interval_ms: int = 1000, **match: str) -> None:
        patterns = {key: re.compile(text) for key, text in match.items()}
        self.instances.subscribe(name, ClientMetricsSubscription(metrics, interval_ms, patterns))


def client(number: int = 100, **others: Any) -> Client:
    chosen = {
        "client_id": "c", "software_name": "s", "software_version": "1", "source_address": "10.0.0.1",
        "source_port": 5000,
    }  # fmt: skip
    return Client(UUID(int=number), **(chosen | others))


def test_without_a_subscription_a_client_pushes_nothing_and_asks_again_after_the_default() -> None:
    instance = World().get()
    assert (instance.metrics, instance.interval_ms) == ((), DEFAULT_INTERVAL_MS)


def test_matching_subscriptions_are_joined_with_the_smallest_interval() -> None:
    world = World()
    world.subscribe("a", "x.", interval_ms=5000)
    world.subscribe("b", "y.", "x.", interval_ms=3000, client_id="c.*")
    world.subscribe("c", "z.", interval_ms=100, client_id="other")
    world.subscribe("d", "w.", interval_ms=100, client_source_port="5000", client_source_address=r"11\..*")
    instance = world.get()
    assert (instance.metrics, instance.interval_ms) == (("x.", "y."), 3000)
    world.subscribe("e", "*", interval_ms=9000)
    assert world.get(101).metrics == ("*",)


def test_subscription_ids_differ_by_content_and_by_client_and_come_back() -> None:
    world = World()
    world.subscribe("a", "x.")
    first = world.get().subscription_id
    assert world.get(101).subscription_id != first
    world.subscribe("a", "y.")
    assert world.get().subscription_id != first
    world.subscribe("a", "x.")
    assert world.get().subscription_id == first
    assert -(2**31) <= first < 2**31


def test_a_get_before_the_next_push_is_throttled_unless_the_subscription_changed() -> None:
    world = World()
    world.subscribe("a", "x.")
    world.get()
    with pytest.raises(KafkaError) as caught:
        world.get()
    assert caught.value.code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    world.now_ms += 999
    with pytest.raises(KafkaError):
        world.get()
    world.now_ms += 1
    instance = world.get()
    world.subscribe("a", "y.")
    assert world.push(instance) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert world.get().metrics == ("y.",)


def test_one_push_right_after_a_get_is_free_and_the_next_one_waits() -> None:
    world = World()
    world.subscribe("a", "x.")
    instance = world.get()
    assert world.push(instance) is ErrorCode.NONE
    assert world.push(instance) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    world.now_ms += 1000
    assert world.push(instance) is ErrorCode.NONE
    assert world.instances.throttled == 1


def test_the_last_push_is_free_and_nothing_follows_it() -> None:
    world = World()
    world.subscribe("a", "x.")
    instance = world.get()
    assert world.push(instance) is ErrorCode.NONE
    assert world.push(instance, terminating=True) is ErrorCode.NONE
    world.now_ms += 5000
    assert world.push(instance) is ErrorCode.INVALID_REQUEST
    assert world.push(instance, terminating=True) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"subscription_id": 1}, ErrorCode.UNKNOWN_SUBSCRIPTION_ID),
        ({"compression": 9}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"size": 1001}, ErrorCode.TELEMETRY_TOO_LARGE),
    ],
)
def test_a_wrong_push_is_refused_and_uses_up_the_free_one(wrong: dict[str, int], error: ErrorCode) -> None:
    world = World()
    world.subscribe("a", "x.")
    instance = world.get()
    assert world.push(instance, **wrong) is error
    assert world.push(instance) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    world.now_ms += 1000
    assert world.push(instance, compression=0, size=1000) is ErrorCode.NONE


@pytest.mark.parametrize("number", [0, 1, 0xF8 << 120])
def test_reserved_ids_are_refused(number: int) -> None:
    world = World()
    with pytest.raises(KafkaError) as caught:
        world.instances.push(client(number), 5, False, 0, 1)
    assert caught.value.code == ErrorCode.INVALID_REQUEST
    assert len(world.instances) == 0


def test_the_least_recently_seen_instance_makes_room() -> None:
    world = World(most=3)
    for number in (100, 101, 102):
        world.get(number)
    world.now_ms += DEFAULT_INTERVAL_MS
    world.get(100)
    world.get(103)
    assert (len(world.instances), world.gone) == (3, [UUID(int=101)])


def test_instances_expire_after_three_intervals_and_a_minute_at_least() -> None:
    world = World()
    world.subscribe("a", "x.", interval_ms=1000)
    world.get(100)
    world.now_ms += 59_999
    world.get(101)
    assert world.gone == []
    world.now_ms += 1
    world.get(102)
    assert world.gone == [UUID(int=100)]
    world.subscribe("a", "x.", interval_ms=100_000)
    world.now_ms += 60_000
    world.get(103)
    world.get(104)
    assert set(world.gone) == {UUID(int=number) for number in (100, 101, 102)}
    world.now_ms += 299_999
    world.get(105)
    assert len(world.gone) == 3
