"""Membership in a share group (KIP-932): several members may share a partition.

    UNSUBSCRIBED --start--> JOINING --first heartbeat--> STABLE
                               ^                            |
                               +-- FENCED (the broker does not know the member)
                               +-- STALE (left, as the user did not poll) --poll()

An assignment takes effect at once: a member gives up nothing before another member may have it, because the leader of a
partition gives each record to one member at a time. Source:
org.apache.kafka.clients.consumer.internals.ShareMembershipManager and ShareHeartbeatRequestManager (4.4).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from kafkapy import types
from kafkapy.clients.consumer.membership.heartbeat import HeartbeatTimer
from kafkapy.clients.consumer.membership.member import PolledMember
from kafkapy.errors import ErrorCode, KafkaError, UnsupportedVersionError, error_for
from kafkapy.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from kafkapy.types import TopicPartition, random_uuid, uuid_to_string

if TYPE_CHECKING:
    from kafkapy.clients.consumer.membership.group_coordinator import GroupCoordinator
    from kafkapy.clients.network_client import NetworkClient
    from kafkapy.config.clients import ClientConfig

__all__ = ["ShareCore", "ShareMembership"]

logger = logging.getLogger("kafkapy.clients.share.membership")

JOINING_EPOCH = 0
LEAVING_EPOCH = -1
FIRST_VERSION = 1
"""Kafka 4.1's version: the first that is stable."""
LEAVE_TIMEOUT_MS = 5_000
FIRST_INTERVAL_S = 5.0
"""Seconds between heartbeats, until the broker sets the interval."""
LEAST_INTERVAL_S = 0.01
"""Least seconds between heartbeats, whatever the broker sets."""

FENCED = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})


class MemberState(Enum):
    """The states of a member."""

    UNSUBSCRIBED = "unsubscribed"
    JOINING = "joining"
    STABLE = "stable"
    STALE = "stale"
    FATAL = "fatal"

    @property
    def shown(self) -> str:
        """The member's state in the texts for users."""
        if self is MemberState.STABLE:
            return types.MemberState.STABLE
        return types.MemberState.REBALANCING if self is MemberState.JOINING else types.MemberState.UNJOINED


class ShareCore(Protocol):
    """The part of a share consumer's core that belongs to its group."""

    @property
    def config(self) -> ClientConfig:
        """The consumer's configuration."""

    @property
    def network(self) -> NetworkClient:
        """The consumer's connections."""

    @property
    def coordinator(self) -> GroupCoordinator:
        """The group's coordinator."""

    @property
    def subscribed_topics(self) -> Iterable[str]:
        """The subscribed topics."""

    def assigned(self, partitions: set[TopicPartition]) -> None:
        """Takes over the assigned partitions, in place of the previous ones."""

    def report(self, error: Exception) -> None:
        """Makes the next poll raise this error."""

    def need_poll(self) -> None:
        """Makes the user's thread enter poll() after a change."""


class ShareMembership(PolledMember):
    """A member of the consumer's share group. On the loop's thread.

    A member has one task: heartbeats, with the watch on the user's polls.
    """

    def __init__(self, core: ShareCore) -> None:
        config = core.config
        super().__init__(config, core.network, core.coordinator)
        self._core = core
        backoffs_s = config["retry.backoff.ms"] / 1000, config["retry.backoff.max.ms"] / 1000
        self._heartbeat = HeartbeatTimer(FIRST_INTERVAL_S, self._rebalance_timeout_ms / 1000, *backoffs_s)
        self._due = asyncio.Event()
        """Whether a heartbeat is due now, whatever the timer says."""
        self.member_id = uuid_to_string(random_uuid())
        """The member id for the consumer's whole life."""
        self._epoch = JOINING_EPOCH
        self._state = MemberState.UNSUBSCRIBED
        self._reported: frozenset[str] | None = None
        """The topics that the broker knows; None: it must get them."""
        self._target: Mapping[UUID, Iterable[int]] = {}
        self._names: dict[UUID, str] = {}

    @property
    def state(self) -> MemberState:
        """The member's state."""
        return self._state

    @property
    def ready(self) -> bool:
        """Whether the member has an assignment."""
        return self._state is MemberState.STABLE

    # --- interface of the core ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Joins with the current subscription, and stays."""
        if self._tasks or self.error is not None:
            return
        self._join()
        self._begin([self._heartbeats()])

    async def leave(self, reason: str) -> None:
        """Leaves the group; waits for the broker."""
        if not self._tasks:
            return
        await self.stop()
        if self._state in (MemberState.STABLE, MemberState.JOINING) and self._coordinator.known:
            await self._say_goodbye(reason)
        self._enter(MemberState.UNSUBSCRIBED)
        self._lose_all()

    def subscription_changed(self) -> None:
        """Tells the broker of other topics."""
        self._due.set()

    def _metadata_changed(self, _cluster: object) -> None:
        if self._state is MemberState.STABLE:
            self._resolve()

    # --- states ---------------------------------------------------------------------------------------------------

    def _enter(self, state: MemberState) -> None:
        if state is not self._state:
            logger.info(
                "Member %s of share group %s with epoch %d: %s",
                self.member_id, self._group_id, self._epoch, state.value,
            )  # fmt: skip
        self._state = state

    def _join(self) -> None:
        self._epoch = JOINING_EPOCH
        self._reported = None
        self._enter(MemberState.JOINING)
        self._due.set()

    def _lose_all(self) -> None:
        self._epoch = JOINING_EPOCH
        self._target = {}
        self._core.assigned(set())

    def _fail(self, error: Exception) -> None:
        """Ends the membership with a fatal error."""
        logger.error("The membership in share group %s failed: %s", self._group_id, error)
        self._enter(MemberState.FATAL)
        self.error = error
        self._core.need_poll()

    # --- heartbeats -----------------------------------------------------------------------------------------------

    async def _heartbeats(self) -> None:
        while self.error is None:
            try:
                if self._polls.left_s <= 0:
                    await self._leave_until_polled()
                elif self._due.is_set() or self._heartbeat.due_in_s <= 0:
                    await self._beat()
                else:
                    await self._wait_for_due()
            except Exception as error:
                self._fail(error)
        self._lose_all()

    async def _wait_for_due(self) -> None:
        try:
            async with asyncio.timeout(min(self._heartbeat.due_in_s, self._polls.left_s)):
                await self._due.wait()
        except TimeoutError:
            pass

    async def _beat(self) -> None:
        self._due.clear()
        self._heartbeat.sent()
        topics = frozenset(self._core.subscribed_topics)
        joining = self._state is MemberState.JOINING
        request = ShareGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=self.member_id,
            member_epoch=self._epoch,
            rack_id=self._rack if joining else None,
            subscribed_topic_names=sorted(topics) if topics != self._reported else None,
        )
        try:
            response: ShareGroupHeartbeatResponse = await self._coordinator.send(request, min_version=FIRST_VERSION)
        except UnsupportedVersionError as error:
            self._fail(UnsupportedVersionError(f"Share groups are not available: {error}"))
            return
        except KafkaError as error:
            self._reported = None
            self._heartbeat.failed()
            if not error.retriable:
                self._fail(error)
            return
        code = ErrorCode.of(response.error_code)
        if code:
            self._reported = None
            self._refused(code, response.error_message)
            return
        self._reported = topics
        if response.heartbeat_interval_ms > 0:  # 0 keeps the interval: heartbeats without a pause are useless
            self._heartbeat.interval_s = max(response.heartbeat_interval_ms / 1000, LEAST_INTERVAL_S)
        self._heartbeat.received()
        self._heard(response)

    def _heard(self, response: ShareGroupHeartbeatResponse) -> None:
        if response.member_epoch < 0 or self._state is MemberState.STALE:
            return
        self._epoch = response.member_epoch
        if response.assignment is not None:
            self._target = {each.topic_id: each.partitions for each in response.assignment.topic_partitions}
        if self._state is MemberState.JOINING:
            self._enter(MemberState.STABLE)
            self._core.need_poll()
        if response.assignment is not None:
            self._resolve()

    def _refused(self, code: ErrorCode, message: str | None) -> None:
        logger.info(
            "The response to the heartbeat of member %s of share group %s was %s",
            self.member_id, self._group_id, code.name,
        )  # fmt: skip
        self._coordinator.answered(code)
        error = error_for(code, message or None)
        if code in FENCED:
            self._lose_all()
            self._join()
        elif code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            # The member stays, and continues when it gets the permission.
            self._heartbeat.failed()
            self._core.report(error)
        elif code is ErrorCode.UNSUPPORTED_VERSION:
            self._fail(error_for(code, f"Share groups are not enabled in this cluster: {error}"))
        elif error.retriable:
            self._heartbeat.failed()
        else:
            self._fail(error)

    def _resolve(self) -> None:
        """Takes over the part of the assignment whose topic names are known.

        It requests metadata for unknown ones.
        """
        cluster = self._network.cluster
        self._names = {
            topic_id: name
            for topic_id in self._target
            if (name := cluster.topic_name(topic_id) or self._names.get(topic_id)) is not None
        }
        if len(self._names) < len(self._target):
            cluster.invalidate()
        self._core.assigned(
            {
                TopicPartition(self._names[topic_id], number)
                for topic_id, numbers in self._target.items()
                if topic_id in self._names
                for number in numbers
            }
        )

    # --- users that do not poll -----------------------------------------------------------------------------------

    async def _leave_until_polled(self) -> None:
        if self._state in (MemberState.STABLE, MemberState.JOINING):
            logger.warning(
                "poll() was not called for max.poll.interval.ms=%d: the consumer leaves share group %s. Raise it, or "
                "lower max.poll.records", self._rebalance_timeout_ms, self._group_id,
            )  # fmt: skip
            await self._say_goodbye("consumer poll timeout has expired")
            self._enter(MemberState.STALE)
            self._lose_all()
        while self._polls.left_s <= 0:
            self._polled.clear()
            await self._polled.wait()
        self._join()

    async def _say_goodbye(self, reason: str) -> None:
        request = ShareGroupHeartbeatRequest(
            group_id=self._group_id, member_id=self.member_id, member_epoch=LEAVING_EPOCH
        )
        logger.info("Member %s leaves share group %s: %s", self.member_id, self._group_id, reason)
        try:
            response = await self._coordinator.send(
                request, timeout_ms=min(self._request_timeout_ms, LEAVE_TIMEOUT_MS), min_version=FIRST_VERSION
            )
        except KafkaError as error:
            logger.info("Could not send the last heartbeat of share group %s: %s", self._group_id, error)
        else:
            if response.error_code:
                code = ErrorCode.of(response.error_code)
                logger.info("The response to the last heartbeat of share group %s was %s", self._group_id, code.name)
