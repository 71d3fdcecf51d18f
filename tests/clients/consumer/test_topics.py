"""The topics whose metadata a consumer wants, and what it finds there."""

from __future__ import annotations

import asyncio
import re
from types import SimpleNamespace
from typing import Any

import pytest

from kafkapy._speedups.clients.consumer.record_iterator import FetchBuffer
from kafkapy.clients.consumer.subscription import EARLIEST, SubscriptionState
from kafkapy.clients.consumer.topics import Topics
from kafkapy.errors import ErrorCode, InvalidTopicError, KafkaTimeoutError, TopicAuthorizationFailedError
from kafkapy.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kafkapy.types import TopicPartition


class Network:
    """The metadata, which keeps what is wanted of it."""

    def __init__(self) -> None:
        self.cluster = self
        self.topics: dict[str, Any] = {}
        self.wanted: list[Any] = []
        self.later: dict[str, Any] = {}
        self.hangs = False

    def add(self, name: str, partitions: int = 1, *, error: int = 0, internal: bool = False) -> Any:
        found = SimpleNamespace(error=error, is_internal=internal, partitions=dict.fromkeys(range(partitions)))
        self.topics[name] = found
        return found

    def want_all(self, wants: bool) -> None:
        self.wanted.append(wants)

    def want_only(self, topics: set[str]) -> None:
        self.wanted.append(set(topics))

    def partitions_for_topic(self, name: str) -> set[int] | None:
        topic = self.topics.get(name)
        return None if topic is None else set(topic.partitions)

    async def refresh(self) -> None:
        if self.hangs:
            await asyncio.Event().wait()
        self.topics |= self.later

    async def send_any(self, request: Any, *, timeout_ms: int) -> Any:
        assert (request, timeout_ms) == (MetadataRequest(topics=None), 77)
        topic = MetadataResponse.Topic
        return MetadataResponse(topics=[topic(name="a"), topic(name="b", error_code=3), topic(name="c")])


def made(exclude_internal: bool = True) -> tuple[Network, SubscriptionState, Topics]:
    network: Any = Network()
    subscription = SubscriptionState(EARLIEST, FetchBuffer(lambda: None, lambda: None).partition)
    return network, subscription, Topics(network, subscription, exclude_internal)


def test_topics_of_questions_are_wanted_while_they_run() -> None:
    network, subscription, topics = made()
    subscription.subscribe(["t"], None)
    subscription.group_topics = frozenset({"g"})
    topics.want()
    with topics.wanting(["q", "q"]), topics.wanting(iter(["q", "t"])):
        pass
    with pytest.raises(ValueError, match="x"), topics.wanting(["q"]):
        raise ValueError("x")
    own = {"t", "g"}
    assert network.wanted == [own, *[own | {"q"}] * 3, own, own | {"q"}, own]


@pytest.mark.parametrize("by", ["pattern", "server pattern"])
def test_a_pattern_wants_all_topics(by: str) -> None:
    network, subscription, topics = made()
    if by == "pattern":
        subscription.subscribe_pattern(re.compile("t"), None)
    else:
        subscription.subscribe_server_pattern("t", None)
    topics.want()
    assert network.wanted == [True]


def test_errors_that_do_not_pass_are_for_the_user() -> None:
    network, subscription, topics = made()
    subscription.subscribe(["a", "b", "c", "d", "e"], None)
    network.add("a", error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    network.add("b", error=ErrorCode.INVALID_TOPIC_EXCEPTION)
    network.add("c", error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    network.add("d")
    network.add("other", error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    errors = sorted(topics.errors(), key=str)
    assert {type(each) for each in errors} == {TopicAuthorizationFailedError, InvalidTopicError}
    assert sorted(str(each)[-len("Topic: a") :] for each in errors) == ["Topic: a", "Topic: b"]


@pytest.mark.parametrize("exclude_internal", [True, False])
def test_a_pattern_selects_topics_without_errors(exclude_internal: bool) -> None:
    network, subscription, topics = made(exclude_internal)
    network.add("ta")
    network.add("tb", error=ErrorCode.LEADER_NOT_AVAILABLE)
    network.add("ti", internal=True)
    network.add("other")
    assert not topics.match_pattern()
    subscription.subscribe_pattern(re.compile("t"), None)
    assert topics.match_pattern()
    assert not topics.match_pattern()
    assert subscription.topics == ({"ta"} if exclude_internal else {"ta", "ti"})
    del network.topics["ta"]
    assert topics.match_pattern()


def test_partitions_of_what_is_known() -> None:
    network, subscription, topics = made()
    subscription.subscribe(["a", "b"], None)
    network.add("a", 2)
    network.add("other")
    assert topics.all_partitions() == {TopicPartition("a", 0), TopicPartition("a", 1)}
    assert asyncio.run(topics.names(77)) == {"a", "c"}


def test_a_topic_that_is_not_known_is_asked_about() -> None:
    network, _, topics = made()
    network.add("a", 2)
    network.later = {"b": SimpleNamespace(partitions={0: None})}
    assert asyncio.run(topics.partitions_of("a", 60_000)) == {0, 1}
    assert network.wanted == []
    assert asyncio.run(topics.partitions_of("b", 60_000)) == {0}
    assert asyncio.run(topics.partitions_of("c", 60_000)) == set()
    assert network.wanted == [{"b"}, set(), {"c"}, set()]
    network.hangs = True
    with pytest.raises(KafkaTimeoutError, match="Metadata was not available within 1 ms"):
        asyncio.run(topics.partitions_of("d", 1))
    assert network.wanted[-1] == set()
