"""The routing and the retries of an admin client's requests.

A call has keys: topics, groups, partitions, or just one. `drive` asks a locator for the broker of each key, sends one
request per broker, and repeats this for keys whose response was "not here" or "not now", until each key has an outcome
or the call's time (default.api.timeout.ms) is over. Source: AdminApiDriver and the NodeProviders of KafkaAdminClient.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from kafkapy.clients.backoff import Backoff
from kafkapy.clients.coordinator_lookup import CoordinatorLookup
from kafkapy.clients.network_client import NetworkClient, RequestOf
from kafkapy.config.clients import ClientConfig
from kafkapy.errors import (
    ErrorCode,
    IllegalStateError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    NoBrokersAvailableError,
    NodeNotReadyError,
    RequestTimedOutError,
    StaleMetadataError,
    error_for,
)
from kafkapy.protocol.messages.metadata import MetadataRequest
from kafkapy.protocol.schema import Request
from kafkapy.types import CoordinatorType, TopicPartition

__all__ = ["WRONG_COORDINATOR", "AdminRouting", "Ask", "Deadline", "Locate", "raise_first"]

K = TypeVar("K")
V = TypeVar("V")

Locate = Callable[[Sequence[K], bool], Awaitable[Mapping[K, int | KafkaError]]]
"""(keys, whether an earlier location was wrong) -> the broker of each key, or its error."""
Ask = Callable[[int, list[K]], Awaitable[Mapping[K, V | KafkaError]]]
"""(broker, its keys) -> the outcome of each key."""

TRANSPORT: Final = (
    KafkaConnectionError,
    KafkaTimeoutError,
    NoBrokersAvailableError,
    NodeNotReadyError,
    RequestTimedOutError,
    StaleMetadataError,
)
"""Errors of requests that reached no broker."""

RETRIED: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    }
)
"""The errors of a wrong broker or a too early request. Other retriable errors, such as an unknown topic, go to the
caller at once."""


WRONG_COORDINATOR: Final = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)
"""The retried errors of coordinators: look up the coordinator again, or wait."""


class Deadline:
    """The deadline of a call, in ms."""

    __slots__ = ("_at",)

    def __init__(self, timeout_ms: float) -> None:
        self._at = time.monotonic() + timeout_ms / 1000

    @property
    def left_ms(self) -> int:
        """Milliseconds left, not below 0."""
        return max(0, int((self._at - time.monotonic()) * 1000))


class AdminRouting:
    """Owns the network of one admin client.

    Used on the loop's thread only.
    """

    network: NetworkClient
    lookup: CoordinatorLookup

    def __init__(self, config: ClientConfig) -> None:
        self.config = config
        self._started = False

    async def start(self) -> None:
        """Connects to the cluster. NoBrokersAvailableError when no bootstrap server responds in time."""
        self.network = NetworkClient(self.config)
        self.lookup = CoordinatorLookup(self.network, own_connections=False)
        self._started = True
        try:
            await self.network.start()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Closes the connections. A second call does nothing."""
        if self._started:
            self._started = False
            self.lookup.close()
            await self.network.close()

    # --- time -----------------------------------------------------------------------------------------------------

    def deadline(self, timeout_ms: float | None = None) -> Deadline:
        """The deadline of a call; the default is default.api.timeout.ms.

        IllegalStateError when the client is closed.
        """
        if not self._started:
            raise IllegalStateError("The admin client is closed.")
        return Deadline(self.config["default.api.timeout.ms"] if timeout_ms is None else timeout_ms)

    def request_ms(self, deadline: Deadline) -> int:
        """The timeout of one request in ms."""
        limit_ms: int = self.config["request.timeout.ms"]
        return max(1, min(limit_ms, deadline.left_ms))

    # --- requests -------------------------------------------------------------------------------------------------

    async def send(
        self, node: int, request: Request, deadline: Deadline, *, low: int = 0, high: int | None = None
    ) -> Any:
        """The response of one broker. `low` and `high` limit the version."""
        return await self.send_built(node, type(request), lambda _: request, deadline, low=low, high=high)

    async def send_built(
        self,
        node: int,
        api: type[Request],
        build: Callable[[int], Request],
        deadline: Deadline,
        *,
        low: int = 0,
        high: int | None = None,
    ) -> Any:
        """As `send`, for a request whose fields depend on the version. UnsupportedVersionError."""
        return await self.network.send(
            node,
            RequestOf(api, build),
            timeout_ms=self.request_ms(deadline),
            min_version=max(low, api.VERSIONS.low),
            max_version=api.VERSIONS.high if high is None else high,
        )

    async def drive(
        self, keys: Iterable[K], locate: Locate[K], ask: Ask[K, V], deadline: Deadline
    ) -> dict[K, V | KafkaError]:
        """The outcome of each key, in the order of the keys.

        It never raises a key's KafkaError.
        """
        wanted = list(dict.fromkeys(keys))
        outcomes: dict[K, V | KafkaError] = {}
        backoff = Backoff(self.config["retry.backoff.ms"], self.config["retry.backoff.max.ms"])
        pending, attempts = wanted, 0
        while pending:
            outcomes |= await self._round(pending, locate, ask, again=attempts > 0)
            pending = [key for key in pending if _is_retried(outcomes[key])]
            delay_s = backoff.delay_s(attempts)
            if not pending or attempts >= self.config["retries"] or deadline.left_ms <= delay_s * 1000:
                break
            await asyncio.sleep(delay_s)
            attempts += 1
        return {key: outcomes[key] for key in wanted}

    async def one(self, locate: Locate[None], ask: Callable[[int], Awaitable[V]], deadline: Deadline) -> V:
        """The outcome of a call to one broker. KafkaError."""

        async def ask_it(node: int, _: list[None]) -> dict[None, V | KafkaError]:
            return {None: await ask(node)}

        outcome = (await self.drive([None], locate, ask_it, deadline))[None]
        if isinstance(outcome, KafkaError):
            raise outcome
        return outcome

    async def _round(
        self, keys: Sequence[K], locate: Locate[K], ask: Ask[K, V], again: bool
    ) -> dict[K, V | KafkaError]:
        try:
            places = await locate(keys, again)
        except KafkaError as error:
            return dict.fromkeys(keys, error)
        outcomes: dict[K, V | KafkaError] = {}
        by_node: dict[int, list[K]] = {}
        for key, place in places.items():
            if isinstance(place, KafkaError):
                outcomes[key] = place
            else:
                by_node.setdefault(place, []).append(key)

        async def ask_node(node: int, served: list[K]) -> None:
            try:
                answers = await ask(node, served)
            except KafkaError as error:
                outcomes.update(dict.fromkeys(served, error))
                return
            for key in served:
                if key in answers:
                    outcomes[key] = answers[key]
                else:
                    text = f"Broker {node} returned no result for {key}."
                    outcomes[key] = error_for(ErrorCode.UNKNOWN_SERVER_ERROR, text)

        await asyncio.gather(*(ask_node(node, served) for node, served in by_node.items()))
        return outcomes

    # --- locators -------------------------------------------------------------------------------------------------

    async def anywhere(self, keys: Sequence[K], _again: bool) -> dict[K, int | KafkaError]:
        """Any broker."""
        return dict.fromkeys(keys, self.network.least_loaded_node())

    async def at_controller(self, keys: Sequence[K], again: bool) -> dict[K, int | KafkaError]:
        """The controller; with KRaft, the broker that forwards to it."""
        cluster = self.network.cluster
        if again or cluster.controller_id < 0:
            await cluster.refresh()
        if cluster.controller_id < 0:
            raise error_for(ErrorCode.NOT_CONTROLLER, "The cluster has no controller now.")
        return dict.fromkeys(keys, cluster.controller_id)

    def at_node(self, node: int) -> Locate[Any]:
        """One broker; its keys fail when the cluster does not have it."""

        async def locate(keys: Sequence[K], again: bool) -> dict[K, int | KafkaError]:
            known = self.network.cluster.brokers()
            if again or node not in known:
                known = await self.brokers()
            if node not in known:
                listed = ", ".join(str(each) for each in sorted(known))
                raise error_for(ErrorCode.BROKER_NOT_AVAILABLE, f"The cluster has no broker {node}; it has {listed}.")
            return dict.fromkeys(keys, node)

        return locate

    def at_coordinators(self, kind: CoordinatorType, deadline: Deadline) -> Locate[str]:
        """The coordinator of each group or transactional id."""

        async def find(key: str) -> int | KafkaError:
            try:
                return await self.lookup.find(key, kind, deadline.left_ms)
            except KafkaError as error:
                return error

        async def locate(keys: Sequence[str], again: bool) -> dict[str, int | KafkaError]:
            if again:
                for key in keys:
                    self.lookup.invalidate(key, kind)
            return dict(zip(keys, await asyncio.gather(*map(find, keys)), strict=True))

        return locate

    def at_group(self, coordinator: int | None, deadline: Deadline) -> Locate[str]:
        """The given broker, or the coordinator of each group."""
        if coordinator is not None:
            return self.at_node(coordinator)
        return self.at_coordinators(CoordinatorType.GROUP, deadline)

    def at_leaders(self, deadline: Deadline) -> Locate[TopicPartition]:
        """The leader of each partition.

        An unknown partition is looked up a second time, because it may be new.
        """

        async def locate(keys: Sequence[TopicPartition], again: bool) -> dict[TopicPartition, int | KafkaError]:
            partitions: dict[TopicPartition, int | KafkaError] = {}
            topics = await self.topic_metadata({key.topic for key in keys}, deadline)
            if any(leader not in self.network.cluster.brokers() for leader in _leaders(topics.values())):
                await self.network.cluster.refresh()
            for key in keys:
                leader = _leader_of(key, topics.get(key.topic))
                unknown = isinstance(leader, KafkaError) and leader.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                partitions[key] = StaleMetadataError(str(leader)) if unknown and not again else leader
            return partitions

        return locate

    async def topic_metadata(self, topics: Collection[str], deadline: Deadline) -> dict[str, Any]:
        """MetadataResponse.Topic by name, from any broker; creates no topics. KafkaError."""
        request = MetadataRequest(
            topics=[MetadataRequest.Topic(name=topic) for topic in sorted(topics)], allow_auto_topic_creation=False
        )
        response = await self.one(self.anywhere, lambda node: self.send(node, request, deadline, low=4), deadline)
        return {topic.name: topic for topic in response.topics}

    async def brokers(self) -> dict[int, Any]:
        """The live brokers, from new metadata. KafkaError."""
        await self.network.cluster.refresh()
        return self.network.cluster.brokers()


def raise_first(outcomes: Mapping[K, V | KafkaError]) -> dict[K, V]:
    """The outcomes without errors; raises the first error."""
    for outcome in outcomes.values():
        if isinstance(outcome, KafkaError):
            raise outcome
    return outcomes  # type: ignore[return-value]


def _is_retried(outcome: object) -> bool:
    return isinstance(outcome, KafkaError) and (isinstance(outcome, TRANSPORT) or outcome.code in RETRIED)


def _leaders(topics: Iterable[Any]) -> set[int]:
    return {partition.leader_id for topic in topics for partition in topic.partitions if partition.leader_id >= 0}


def _leader_of(key: TopicPartition, topic: Any) -> int | KafkaError:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if topic is None or topic.error_code == unknown:
        return error_for(unknown, f"The cluster has no topic {key.topic}.")
    if topic.error_code:
        return error_for(topic.error_code)
    for partition in topic.partitions:
        if partition.partition_index == key.partition:
            if partition.leader_id < 0:
                return error_for(ErrorCode.LEADER_NOT_AVAILABLE, f"Partition {key} has no leader now.")
            return int(partition.leader_id)
    return error_for(unknown, f"Topic {key.topic} has {len(topic.partitions)} partitions, but no {key.partition}.")
