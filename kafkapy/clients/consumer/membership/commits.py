"""Committed offsets of a group: OffsetCommit and OffsetFetch with retries.

Commits keep their order. A commit carries the member's identity, so that a fenced member commits nothing. Brokers with
version 10 get topic ids, so that an offset does not outlive its topic; older ones get names. Source:
org.apache.kafka.clients.consumer.internals.ConsumerCoordinator and CommitRequestManager (4.1).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TypeVar
from uuid import UUID

from kafkapy.clients.backoff import Backoff
from kafkapy.clients.consumer.membership.api import GroupCore
from kafkapy.clients.consumer.membership.group_coordinator import GroupCoordinator
from kafkapy.clients.consumer.membership.metrics import CoordinatorMetrics
from kafkapy.clients.consumer.membership.protocol import NO_GENERATION_ID, ConsumerGroupMetadata, group_by_topic
from kafkapy.clients.network_client import RequestOf
from kafkapy.errors import (
    CommitFailedError,
    ErrorCode,
    IllegalArgumentError,
    KafkaError,
    KafkaTimeoutError,
    StaleMemberEpochError,
    TopicAuthorizationFailedError,
    UnstableOffsetCommitError,
    error_for,
)
from kafkapy.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kafkapy.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from kafkapy.types import ZERO_UUID, OffsetAndMetadata, TopicPartition

__all__ = ["OffsetCommitter"]

logger = logging.getLogger("kafkapy.clients.consumer.membership")

T = TypeVar("T")

FIRST_COMMIT_VERSION = 2
FIRST_FETCH_VERSION = 1
TOPIC_IDS_SINCE = 10
"""The first version of both APIs with topic ids."""
GROUPS_SINCE = 8
"""The first OffsetFetch version with several groups."""
STABLE_SINCE = 7
"""The first OffsetFetch version that waits for the offsets of pending transactions."""

OF_THE_MEMBER = frozenset(
    {
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.UNKNOWN_MEMBER_ID,
    }
)
"""Errors of a commit by a member that is not in the group's current generation."""
REFRESHING = frozenset({ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
"""Errors of a commit that may succeed with newer metadata."""


class OffsetCommitter:
    """Commits and reads the offsets of the consumer's group.

    On the loop's thread. Commits are sent in the order of the calls, each after the end of the previous one including
    its retries. An unsent commit fails when its partitions are taken from this member, so that no committed offset
    moves back.
    """

    def __init__(self, core: GroupCore) -> None:
        config = core.config
        self.group_id: str = config["group.id"]
        self.metrics = CoordinatorMetrics()
        self.coordinator = GroupCoordinator(core.network, self.group_id, self.metrics)
        self._core = core
        self._timeout_ms: int = config["default.api.timeout.ms"]
        self._backoff = Backoff(config["retry.backoff.ms"], config["retry.backoff.max.ms"])
        self._in_order = asyncio.Lock()
        self._last: dict[TopicPartition, OffsetAndMetadata] = {}
        """The last commit of this consumer per owned partition."""

    # --- commit ---------------------------------------------------------------------------------------------------

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_ms: int | None = None) -> None:
        """Commits, and retries for `timeout_ms` (default.api.timeout.ms).

        CommitFailedError or FencedInstanceIdError when this member is no longer in the group, RebalanceInProgressError
        when it must rejoin first, KafkaTimeoutError, IllegalArgumentError for a negative offset, and the broker's
        errors.
        """
        for partition, offset in offsets.items():
            if offset.offset < 0:
                raise IllegalArgumentError(f"Offset {offset.offset} of {partition} cannot be committed")
        await self._commit_in_order("The commit", offsets, timeout_ms, lambda error: error.retriable)

    async def commit_before_rebalance(
        self, positions: Mapping[TopicPartition, OffsetAndMetadata], timeout_ms: int
    ) -> None:
        """Commits changed positions before partitions are revoked.

        A failure is only logged, because the revocation does not wait.
        """
        offsets = {partition: offset for partition, offset in positions.items() if self._last.get(partition) != offset}
        if not offsets:
            return
        try:
            await self._commit_in_order("The commit before a rebalance", offsets, timeout_ms, _retried_before_rebalance)
        except KafkaError as error:
            logger.warning("The commit before a rebalance of group %s failed: %s", self.group_id, error)

    def assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """Forgets the last commits of newly assigned partitions, which other members owned."""
        for partition in partitions:
            self._last.pop(partition, None)

    async def _commit_in_order(
        self,
        what: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        timeout_ms: int | None,
        retried: Callable[[KafkaError], bool],
    ) -> None:
        subscription = self._core.subscription
        held = {partition: subscription.get(partition) for partition in offsets}

        async def attempt() -> None:
            if any(subscription.get(partition) is not state for partition, state in held.items()):
                # Taken from this member since the call: the new owner may have committed more.
                raise CommitFailedError()
            await self._commit(offsets)

        async with self._within(what, timeout_ms) as failures, self._in_order:
            if offsets:
                await self._retry(attempt, retried, failures)
                self._last.update(offsets)

    async def _commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        ids = self._topic_ids(offsets)
        sent = self._identity()

        def build(version: int) -> OffsetCommitRequest:
            nonlocal sent
            # A rebalance may have happened during the coordinator lookup.
            sent = self._identity()
            return self._commit_request(offsets, sent, ids if version >= TOPIC_IDS_SINCE else {})

        response: OffsetCommitResponse = await self.coordinator.send(
            RequestOf(OffsetCommitRequest, build),
            min_version=FIRST_COMMIT_VERSION,
            max_version=None if ids else TOPIC_IDS_SINCE - 1,
        )
        self._check_commit(response, {topic_id: topic for topic, topic_id in ids.items()}, sent)

    def _commit_request(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        identity: ConsumerGroupMetadata,
        ids: Mapping[str, UUID],
    ) -> OffsetCommitRequest:
        return OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=identity.generation_id,
            member_id=identity.member_id,
            group_instance_id=identity.group_instance_id,
            topics=[
                OffsetCommitRequest.Topic(
                    name="" if ids else topic,
                    topic_id=ids.get(topic, ZERO_UUID),
                    partitions=[
                        OffsetCommitRequest.Topic.Partition(
                            partition_index=number,
                            committed_offset=offset.offset,
                            committed_leader_epoch=offset.leader_epoch,
                            committed_metadata=offset.metadata,
                        )
                        for number in numbers
                        for offset in (offsets[TopicPartition(topic, number)],)
                    ],
                )
                for topic, numbers in group_by_topic(sorted(offsets)).items()
            ],
        )

    def _check_commit(
        self, response: OffsetCommitResponse, names: Mapping[UUID, str], identity: ConsumerGroupMetadata
    ) -> None:
        unauthorized = set()
        for topic in response.topics:
            name = names.get(topic.topic_id, topic.name)
            for partition in topic.partitions:
                code = ErrorCode.of(partition.error_code)
                if not code:
                    continue
                logger.info("The commit of the offset of %s-%d failed: %s", name, partition.partition_index, code.name)
                if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    unauthorized.add(name)
                    continue
                self.coordinator.answered(code)
                if code is ErrorCode.REQUEST_TIMED_OUT:
                    self.coordinator.lost(code.name)
                if code in REFRESHING:
                    self._core.network.cluster.invalidate()
                if (
                    code in OF_THE_MEMBER
                    and self._core.membership is not None
                    and self._core.subscription.auto_assigned
                ):
                    raise self._core.membership.commit_refused(code, identity)
                raise error_for(code)
        if unauthorized:
            raise _unauthorized(unauthorized)

    def _identity(self) -> ConsumerGroupMetadata:
        """The identity for a commit.

        A consumer with manually assigned partitions is no member.
        """
        if self._core.membership is None or not self._core.subscription.auto_assigned:
            return ConsumerGroupMetadata(self.group_id)
        return self._core.membership.commit_identity()

    def _topic_ids(self, partitions: Iterable[TopicPartition]) -> dict[str, UUID]:
        """The ids of the topics; empty when one is unknown."""
        cluster = self._core.network.cluster
        ids: dict[str, UUID] = {}
        for topic in {partition.topic for partition in partitions}:
            topic_id = cluster.topic_id(topic)
            if topic_id is None:
                return {}
            ids[topic] = topic_id
        return ids

    # --- fetch ----------------------------------------------------------------------------------------------------

    async def committed(
        self, partitions: Iterable[TopicPartition], require_stable: bool = True, timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The committed offsets, None for partitions without one.

        With `require_stable` it waits for the offsets of pending transactions (KIP-447). KafkaTimeoutError after
        `timeout_ms` (default.api.timeout.ms), and the broker's errors.
        """
        wanted = sorted(set(partitions))
        if not wanted:
            return {}
        async with self._within("The query for committed offsets", timeout_ms) as failures:
            return await self._retry(lambda: self._committed(wanted, require_stable), _retried_fetch, failures)

    async def _committed(
        self, partitions: list[TopicPartition], require_stable: bool
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        ids = self._topic_ids(partitions)

        def build(version: int) -> OffsetFetchRequest:
            return self._fetch_request(partitions, ids if version >= TOPIC_IDS_SINCE else {}, version, require_stable)

        response: OffsetFetchResponse = await self.coordinator.send(
            RequestOf(OffsetFetchRequest, build),
            min_version=FIRST_FETCH_VERSION,
            max_version=None if ids else TOPIC_IDS_SINCE - 1,
        )
        answer = response.groups[0] if response.groups else response
        code = ErrorCode.of(answer.error_code)
        if code:
            self.coordinator.answered(code)
            raise error_for(code)
        return self._read_committed(partitions, answer, {topic_id: topic for topic, topic_id in ids.items()})

    def _fetch_request(
        self, partitions: list[TopicPartition], ids: Mapping[str, UUID], version: int, require_stable: bool
    ) -> OffsetFetchRequest:
        grouped = group_by_topic(partitions)
        stable = require_stable and version >= STABLE_SINCE
        if version < GROUPS_SINCE:
            topics = [OffsetFetchRequest.Topic(name=topic, partition_indexes=each) for topic, each in grouped.items()]
            return OffsetFetchRequest(group_id=self.group_id, topics=topics, require_stable=stable)
        member = self._fetching_member()
        group = OffsetFetchRequest.Group(
            group_id=self.group_id,
            member_id=None if member is None else member.member_id,
            member_epoch=NO_GENERATION_ID if member is None else member.generation_id,
            topics=[
                OffsetFetchRequest.Group.Topic(
                    name="" if ids else topic, topic_id=ids.get(topic, ZERO_UUID), partition_indexes=each
                )
                for topic, each in grouped.items()
            ],
        )
        return OffsetFetchRequest(groups=[group], require_stable=stable)

    def _fetching_member(self) -> ConsumerGroupMetadata | None:
        """The identity for OffsetFetch; only members of the consumer protocol send it."""
        membership = self._core.membership
        return membership.fetch_identity() if membership is not None and self._core.subscription.auto_assigned else None

    @staticmethod
    def _read_committed(
        partitions: list[TopicPartition],
        answer: OffsetFetchResponse | OffsetFetchResponse.Group,
        names: Mapping[UUID, str],
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        found: dict[TopicPartition, OffsetAndMetadata | None] = dict.fromkeys(partitions)
        unauthorized, unstable = set(), set()
        for topic in answer.topics:
            name = names.get(getattr(topic, "topic_id", ZERO_UUID), topic.name)
            for partition in topic.partitions:
                place = TopicPartition(name, partition.partition_index)
                code = ErrorCode.of(partition.error_code)
                if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    unauthorized.add(name)
                elif code is ErrorCode.UNSTABLE_OFFSET_COMMIT:
                    unstable.add(place)
                elif code:
                    raise error_for(code, f"The committed offset of {place} cannot be read: {code.message}")
                elif partition.committed_offset >= 0:
                    found[place] = OffsetAndMetadata(
                        partition.committed_offset, partition.metadata or "", partition.committed_leader_epoch
                    )
        if unauthorized:
            raise _unauthorized(unauthorized)
        if unstable:
            raise UnstableOffsetCommitError(f"Transactions on {', '.join(map(str, sorted(unstable)))} are pending")
        return found

    # --- internals ------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _within(self, what: str, timeout_ms: int | None) -> AsyncIterator[list[KafkaError]]:
        """KafkaTimeoutError after the timeout, with the last error of the list."""
        timeout_s = (self._timeout_ms if timeout_ms is None else timeout_ms) / 1000
        failures: list[KafkaError] = []
        limit = asyncio.timeout(timeout_s)
        try:
            async with limit:
                yield failures
        except TimeoutError:
            if not limit.expired():
                raise
            reason = f": {failures[-1]}" if failures else ""
            raise KafkaTimeoutError(
                f"{what} of group {self.group_id} took longer than {timeout_s:g} s{reason}"
            ) from None

    async def _retry(
        self, attempt: Callable[[], Awaitable[T]], retried: Callable[[KafkaError], bool], failures: list[KafkaError]
    ) -> T:
        """The result of the first successful attempt."""
        attempts = 0
        while True:
            try:
                return await attempt()
            except KafkaError as error:
                if not retried(error):
                    raise
                failures[:] = [error]
            attempts += 1
            await asyncio.sleep(self._backoff.delay_s(attempts))


def _retried_before_rebalance(error: KafkaError) -> bool:
    """Whether a commit before a rebalance is retried.

    Not for deleted topics. After a change of the member epoch, the next heartbeat brings the new epoch.
    """
    return isinstance(error.__cause__, StaleMemberEpochError) or (
        error.retriable and error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )


def _retried_fetch(error: KafkaError) -> bool:
    """Whether an OffsetFetch is retried.

    The next attempt has the member's new identity, or none.
    """
    return error.retriable or error.code in (
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.UNKNOWN_MEMBER_ID,
    )


def _unauthorized(topics: set[str]) -> KafkaError:
    return TopicAuthorizationFailedError(f"Not authorized for the topics {', '.join(sorted(topics))}")
