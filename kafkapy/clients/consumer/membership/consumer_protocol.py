"""Membership by the consumer protocol (KIP-848): the broker assigns the partitions.

    UNSUBSCRIBED --start--> JOINING --assignment--> RECONCILING --taken over--> ACKNOWLEDGING --heartbeat--> STABLE
                               ^                        ^                                                      |
                               |                        +------------------- another assignment ---------------+
                               +-- partitions lost -- FENCED (the broker does not know the member or its epoch)
                               +-- partitions lost -- STALE (left, as the user did not poll) --poll()

Heartbeats carry everything: the member sends its subscription and its partitions, the broker sends the target
assignment. The member gives up the partitions that are not in the target, reports this, and gets the others once their
owners have given them up. Heartbeats continue meanwhile; the user's callbacks run while the user is in poll(). Source:
org.apache.kafka.clients.consumer.internals.AbstractMembershipManager, ConsumerMembershipManager and
ConsumerHeartbeatRequestManager (4.1).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple
from uuid import UUID

from kafkapy import types
from kafkapy.clients.consumer.membership.api import GroupCore
from kafkapy.clients.consumer.membership.heartbeat import HeartbeatTimer
from kafkapy.clients.consumer.membership.member import GroupMember
from kafkapy.clients.consumer.membership.protocol import ConsumerGroupMetadata
from kafkapy.clients.network_client import RequestOf
from kafkapy.errors import (
    CommitFailedError,
    ErrorCode,
    KafkaError,
    StaleMemberEpochError,
    UnsupportedVersionError,
    error_for,
)
from kafkapy.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kafkapy.types import OffsetAndMetadata, TopicPartition, random_uuid, uuid_to_string

__all__ = ["ConsumerProtocolMembership"]

logger = logging.getLogger("kafkapy.clients.consumer.membership")

JOINING_EPOCH = 0
LEAVING_EPOCH = -1
LEAVING_STATIC_EPOCH = -2
"""A static member leaves temporarily: the broker keeps its partitions until its session ends."""
REGEX_SINCE = 1
"""The first ConsumerGroupHeartbeat version with expressions."""
LEAVE_TIMEOUT_MS = 5_000
FIRST_INTERVAL_S = 5.0
"""Seconds between heartbeats, until the broker sets the interval."""
LEAST_INTERVAL_S = 0.01
"""Least seconds between heartbeats, whatever the broker sets."""

Assignment = Mapping[UUID, frozenset[int]]

FENCED = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})


class MemberState(Enum):
    """The states of a member."""

    UNSUBSCRIBED = "unsubscribed"
    JOINING = "joining"
    RECONCILING = "reconciling"
    ACKNOWLEDGING = "acknowledging"
    STABLE = "stable"
    FENCED = "fenced"
    STALE = "stale"
    FATAL = "fatal"

    @property
    def shown(self) -> str:
        """The member's state in the texts for users."""
        if self is MemberState.STABLE:
            return types.MemberState.STABLE
        return types.MemberState.UNJOINED if self in OUTSIDE else types.MemberState.REBALANCING


OUTSIDE = frozenset({MemberState.UNSUBSCRIBED, MemberState.FENCED, MemberState.STALE, MemberState.FATAL})


class Reported(NamedTuple):
    """The last reported values; a heartbeat carries only changes."""

    rebalance_timeout_ms: int | None = None
    topics: frozenset[str] | None = None
    pattern: str = ""
    assignor: str | None = None
    owned: Assignment | None = None


NOTHING_REPORTED = Reported()
NO_PARTITIONS: Assignment = {}


class ConsumerProtocolMembership(GroupMember):
    """A member of the consumer's group. On the loop's thread.

    A member has two tasks: heartbeats, with the watch on the user's polls, and the reconciliation of its partitions
    with the target.
    """

    def __init__(self, core: GroupCore) -> None:
        super().__init__(core)
        config = core.config
        self._assignor: str | None = config["group.remote.assignor"]
        backoffs_s = config["retry.backoff.ms"] / 1000, config["retry.backoff.max.ms"] / 1000
        self._heartbeat = HeartbeatTimer(FIRST_INTERVAL_S, self._rebalance_timeout_ms / 1000, *backoffs_s)
        self._due = asyncio.Event()
        """Whether a heartbeat is due now, whatever the timer says."""
        self._to_reconcile = asyncio.Event()
        self._member_id = uuid_to_string(random_uuid())
        """The member id for the consumer's whole life."""
        self._epoch = JOINING_EPOCH
        self._state = MemberState.UNSUBSCRIBED
        self._joins = 0
        """The number of joins: work from an earlier join stops."""
        self._target = NO_PARTITIONS
        self._current: Assignment | None = None
        """The adopted partitions; None: none since the join."""
        self._acknowledged: Assignment | None = None
        """The target that the broker knows the member has received."""
        self._names: dict[UUID, str] = {}
        """The names of assigned topics by id, kept even when the metadata drops them."""
        self._reported = NOTHING_REPORTED

    # --- interface of the core ------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """See Membership."""
        return self._state is MemberState.STABLE

    async def start(self) -> None:
        """See Membership."""
        if self._tasks or self.error is not None:
            return
        self._join()
        self._begin((self._heartbeats(), self._reconciliations()))

    async def leave(self, reason: str) -> None:
        """See Membership."""
        if not self._tasks:
            return
        await self.stop()
        inside = self._state not in OUTSIDE
        owned = self._core.subscription.assigned
        if owned and self._core.subscription.auto_assigned:
            if inside and self._epoch > 0:
                await self._commit(await self._core.prepare_revocation(owned), self._request_timeout_ms)
                await self._core.run_listener("revoked", owned)
            else:
                await self._core.run_listener("lost", owned)
            self._core.subscription.assign_from_subscribed(())
        if inside and self._coordinator.known:
            await self._say_goodbye(reason)
        self._state = MemberState.UNSUBSCRIBED
        self._epoch = JOINING_EPOCH

    def subscription_changed(self) -> None:
        """See Membership."""
        self._due.set()

    def group_metadata(self) -> ConsumerGroupMetadata:
        """See Membership."""
        return self._me()._replace(state=self._state.shown)

    def fetch_identity(self) -> ConsumerGroupMetadata | None:
        """See Membership."""
        return self._me() if self._epoch > 0 else None

    def commit_identity(self) -> ConsumerGroupMetadata:
        """See Membership.

        Outside of the group the epoch is -1; the broker then refuses the commit if the group has members.
        """
        return self._me()

    def commit_refused(self, code: ErrorCode, sent: ConsumerGroupMetadata) -> KafkaError:
        """See Membership. The next heartbeat finds the cause."""
        error = CommitFailedError(f"The commit of member {sent.member_id} failed: {code.message}")
        if code is ErrorCode.STALE_MEMBER_EPOCH:
            error.__cause__ = StaleMemberEpochError()
        return error

    def _me(self) -> ConsumerGroupMetadata:
        epoch = self._epoch if self._epoch > 0 else -1
        return ConsumerGroupMetadata(self._group_id, epoch, self._member_id, self._instance_id)

    def _metadata_changed(self, _cluster: object) -> None:
        self._to_reconcile.set()

    # --- states ---------------------------------------------------------------------------------------------------

    def _enter(self, state: MemberState) -> None:
        if state is not self._state:
            logger.info(
                "Member %s of group %s with epoch %d: %s", self._member_id, self._group_id, self._epoch, state.value
            )
        if state is MemberState.RECONCILING:
            self._committer.metrics.rebalance_begins()
        elif state is MemberState.ACKNOWLEDGING:
            self._committer.metrics.rebalance_ends()
        elif self._state is MemberState.RECONCILING and state in OUTSIDE:
            self._committer.metrics.rebalance_fails()
        self._state = state

    def _join(self) -> None:
        self._epoch = JOINING_EPOCH
        self._joins += 1
        self._target, self._current, self._acknowledged = NO_PARTITIONS, None, None
        self._reported = NOTHING_REPORTED
        self._enter(MemberState.JOINING)
        self._due.set()

    async def _lose_all(self) -> None:
        """Loses all partitions: the broker has reassigned them, or will."""
        self._epoch = JOINING_EPOCH
        self._joins += 1
        owned = self._core.subscription.assigned
        if owned:
            logger.info("Partitions of group %s are lost: %s", self._group_id, sorted(owned))
            await self._core.prepare_revocation(owned)
            await self._core.run_listener("lost", owned)
            self._core.subscription.assign_from_subscribed(())

    def _fail(self, error: Exception) -> None:
        """Ends the membership with a fatal error."""
        logger.error("The membership in group %s failed: %s", self._group_id, error)
        self._enter(MemberState.FATAL)
        self.error = error
        self._core.need_poll()

    async def _commit(self, positions: dict[TopicPartition, OffsetAndMetadata], timeout_ms: int) -> None:
        if self._core.auto_commit:
            await self._committer.commit_before_rebalance(self._core.positions_to_commit() | positions, timeout_ms)

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
        await self._lose_all()

    async def _wait_for_due(self) -> None:
        try:
            async with asyncio.timeout(min(self._heartbeat.due_in_s, self._polls.left_s)):
                await self._due.wait()
        except TimeoutError:
            pass

    async def _beat(self) -> None:
        self._due.clear()
        self._heartbeat.sent()
        if self._state is MemberState.ACKNOWLEDGING:
            self._settle()
        request, reported = self._request()
        before = self._joins

        def checked(version: int) -> ConsumerGroupHeartbeatRequest:
            if request.subscribed_topic_regex is not None and version < REGEX_SINCE:
                raise UnsupportedVersionError("The broker does not support subscription patterns")
            return request

        try:
            response: ConsumerGroupHeartbeatResponse = await self._coordinator.send(
                RequestOf(ConsumerGroupHeartbeatRequest, checked)
            )
        except UnsupportedVersionError as error:
            self._fail(UnsupportedVersionError(f"group.protocol=consumer is not available: {error}"))
            return
        except KafkaError as error:
            self._reported = NOTHING_REPORTED
            self._heartbeat.failed()
            if not error.retriable:
                self._fail(error)
            return
        code = ErrorCode.of(response.error_code)
        if self._joins != before:
            return
        if code:
            self._reported = NOTHING_REPORTED
            await self._refused(code, response.error_message)
        else:
            self._reported = reported
            if response.heartbeat_interval_ms > 0:  # 0 keeps the interval: heartbeats without a pause are useless
                self._heartbeat.interval_s = max(response.heartbeat_interval_ms / 1000, LEAST_INTERVAL_S)
            self._heartbeat.received()
            self._heard(response)

    def _request(self) -> tuple[ConsumerGroupHeartbeatRequest, Reported]:
        subscription = self._core.subscription
        reported = Reported(
            self._rebalance_timeout_ms,
            frozenset(subscription.topics),
            subscription.server_pattern or "",
            self._assignor,
            NO_PARTITIONS if self._current is None else self._current,
        )
        before = self._reported
        joining = self._state is MemberState.JOINING
        topics, pattern, owned = reported.topics or (), reported.pattern, reported.owned or NO_PARTITIONS
        return ConsumerGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            member_epoch=self._epoch,
            instance_id=self._instance_id,
            rack_id=self._rack if joining else None,
            rebalance_timeout_ms=self._rebalance_timeout_ms if before.rebalance_timeout_ms is None else -1,
            subscribed_topic_names=sorted(topics) if reported.topics != before.topics else None,
            subscribed_topic_regex=pattern if pattern != before.pattern or (joining and pattern) else None,
            server_assignor=self._assignor if before.assignor is None else None,
            topic_partitions=[
                ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=topic_id, partitions=sorted(numbers))
                for topic_id, numbers in owned.items()
            ]
            if joining or reported.owned is not before.owned
            else None,
        ), reported

    def _heard(self, response: ConsumerGroupHeartbeatResponse) -> None:
        if response.member_epoch < 0 or self._state in OUTSIDE:
            return
        self._epoch = response.member_epoch
        if response.member_id:
            self._member_id = response.member_id
        if response.assignment is None:
            return
        self._target = {
            each.topic_id: frozenset(each.partitions)
            for each in response.assignment.topic_partitions
            if each.partitions
        }
        if self._target != (self._current or {}):
            self._enter(MemberState.RECONCILING)
            self._to_reconcile.set()
        elif self._state in (MemberState.RECONCILING, MemberState.JOINING):
            self._enter(MemberState.STABLE)
            self._core.need_poll()

    async def _refused(self, code: ErrorCode, message: str | None) -> None:
        logger.info(
            "The response to the heartbeat of member %s of group %s was %s", self._member_id, self._group_id, code.name
        )
        self._coordinator.answered(code)
        error = error_for(code, message)
        if code in FENCED:
            self._enter(MemberState.FENCED)
            await self._lose_all()
            self._join()
        elif code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            # The member stays, and continues when it gets the permission.
            self._heartbeat.failed()
            self._core.report(error)
        elif error.retriable:
            self._heartbeat.failed()
        else:
            self._fail(error)

    # --- users that do not poll -----------------------------------------------------------------------------------

    async def _leave_until_polled(self) -> None:
        if self._state not in OUTSIDE:
            logger.warning(
                "poll() was not called for max.poll.interval.ms=%d: the consumer leaves group %s. Raise it, or lower "
                "max.poll.records", self._rebalance_timeout_ms, self._group_id,
            )  # fmt: skip
            self._enter(MemberState.STALE)
            await self._say_goodbye("consumer poll timeout has expired")
            await self._lose_all()
        while self._polls.left_s <= 0:
            self._polled.clear()
            await self._polled.wait()
        self._join()

    async def _say_goodbye(self, reason: str) -> None:
        epoch = LEAVING_EPOCH if self._instance_id is None else LEAVING_STATIC_EPOCH
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group_id, member_id=self._member_id, member_epoch=epoch, instance_id=self._instance_id
        )
        logger.info("Member %s leaves group %s: %s", self._member_id, self._group_id, reason)
        try:
            response = await self._coordinator.send(request, timeout_ms=min(self._request_timeout_ms, LEAVE_TIMEOUT_MS))
        except KafkaError as error:
            logger.info("Could not send the last heartbeat of group %s: %s", self._group_id, error)
        else:
            if response.error_code:
                code = ErrorCode.of(response.error_code)
                logger.info("The response to the last heartbeat of group %s was %s", self._group_id, code.name)

    # --- reconciliation -------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Enters STABLE or RECONCILING once a heartbeat carries the member's partitions."""
        self._enter(MemberState.STABLE if self._current == self._target else MemberState.RECONCILING)
        self._to_reconcile.set()
        self._core.need_poll()

    async def _reconciliations(self) -> None:
        while True:
            self._to_reconcile.clear()
            if self._state is MemberState.RECONCILING and self._current != self._target:
                try:
                    await self._reconcile()
                except Exception as error:
                    self._fail(error)
                    self._due.set()
                    return
            await self._to_reconcile.wait()

    async def _reconcile(self) -> None:
        join, target = self._joins, self._target
        resolved = self._resolve(target)
        if self._current is not None and resolved == self._current:
            # Only topics with unknown names are missing; the next metadata contains them.
            if self._acknowledged is not target:
                self._take_over(target, resolved)
            return
        subscription = self._core.subscription
        assigned = {
            TopicPartition(self._names[topic_id], number)
            for topic_id, numbers in resolved.items()
            for number in numbers
        }
        owned = subscription.assigned
        added, revoked = assigned - owned, owned - assigned
        logger.info(
            "Group %s assigns partitions %s, new: %s, revoked: %s",
            self._group_id, sorted(assigned), sorted(added), sorted(revoked),
        )  # fmt: skip
        if revoked or self._core.auto_commit:
            await self._commit(await self._core.prepare_revocation(revoked), self._rebalance_timeout_ms)
        if not self._goes_on(join):
            return
        if revoked or self._core.tells_every_rebalance:
            await self._core.run_listener("revoked", revoked)
            if not self._goes_on(join):
                return
        subscription.assign_from_subscribed(sorted(assigned))
        self._committer.assigned(added)
        await self._core.run_listener("assigned", added)
        self._names = {topic_id: self._names[topic_id] for topic_id in resolved}
        if self._goes_on(join):
            self._take_over(target, resolved)
            self._core.wake_fetcher()

    def _goes_on(self, join: int) -> bool:
        return self._state is MemberState.RECONCILING and self._joins == join

    def _take_over(self, target: Assignment, resolved: Assignment) -> None:
        """Adopts a target and reports it.

        It is a new object even if it is equal, because a heartbeat reports changed objects.
        """
        self._acknowledged, self._current = target, dict(resolved)
        self._enter(MemberState.ACKNOWLEDGING)
        self._due.set()

    def _resolve(self, target: Assignment) -> Assignment:
        """The part of the target whose topic names are known.

        It requests metadata for unknown ones.
        """
        cluster = self._core.network.cluster
        for topic_id in target:
            name = cluster.topic_name(topic_id)
            if name is not None:
                self._names[topic_id] = name
        if any(topic_id not in self._names for topic_id in target):
            cluster.invalidate()
        return {topic_id: numbers for topic_id, numbers in target.items() if topic_id in self._names}
