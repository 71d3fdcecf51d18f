"""Membership by the classic protocol: the leader assigns the partitions.

    UNJOINED --JoinGroup--> PREPARING_REBALANCE --response--> COMPLETING_REBALANCE --SyncGroup's response--> STABLE
       ^                          ^                                   |                                      |  |
       +-- member unknown, left --+--------- rejoin: another member, other topics, other partitions ---------+--+

An eager member gives up all its partitions before it joins. A cooperative member (KIP-429) keeps them, gives up those
that the new assignment omits, and joins again, so that another member gets them. The user's callbacks run while the
user is in poll(); requests and heartbeats continue in between. Source:
org.apache.kafka.clients.consumer.internals.AbstractCoordinator and ConsumerCoordinator (4.1).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from kafkapy.clients.consumer.membership.api import GroupCore
from kafkapy.clients.consumer.membership.assignors import create_assignors, rebalance_protocol
from kafkapy.clients.consumer.membership.assignors.api import ConsumerPartitionAssignor, RebalanceProtocol
from kafkapy.clients.consumer.membership.classic_requests import LONGEST_REASON, join_protocols, leave_request
from kafkapy.clients.consumer.membership.generation import NO_GENERATION, Generation, MemberState
from kafkapy.clients.consumer.membership.heartbeat import HeartbeatTimer
from kafkapy.clients.consumer.membership.leader import TopicsSnapshot, assign, snapshot, subscriptions_of
from kafkapy.clients.consumer.membership.member import GroupMember
from kafkapy.clients.consumer.membership.protocol import (
    NO_GENERATION_ID,
    PROTOCOL_TYPE,
    Assignment,
    ConsumerGroupMetadata,
    decode_assignment,
    encode_assignment,
)
from kafkapy.errors import (
    CommitFailedError,
    ErrorCode,
    FencedInstanceIdError,
    IllegalGenerationError,
    IllegalStateError,
    KafkaError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    UnknownMemberIdError,
    error_for,
)
from kafkapy.protocol.messages.heartbeat import HeartbeatRequest
from kafkapy.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kafkapy.protocol.messages.sync_group import SyncGroupRequest
from kafkapy.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kafkapy.clients.cluster import ClusterMetadata

__all__ = ["ClassicMembership"]

logger = logging.getLogger("kafkapy.clients.consumer.membership")

JOIN_LAPSE_MS = 5_000
"""Milliseconds that a JoinGroup response may take beyond the rebalance timeout."""
REJOIN_AT_ONCE = (UnknownMemberIdError, IllegalGenerationError, RebalanceInProgressError, MemberIdRequiredError)


class ClassicMembership(GroupMember):
    """A member of the consumer's group. On the loop's thread.

    A member has three tasks: rebalances, heartbeats, and a watch on the user's polls.
    """

    def __init__(self, core: GroupCore) -> None:
        """ConfigError for partition.assignment.strategy."""
        super().__init__(core)
        config = core.config
        self._session_timeout_ms: int = config["session.timeout.ms"]
        self._backoff_s: float = config["retry.backoff.ms"] / 1000
        self._assignors = create_assignors(config["partition.assignment.strategy"])
        self._protocol = rebalance_protocol(self._assignors)
        self._heartbeat = HeartbeatTimer(
            config["heartbeat.interval.ms"] / 1000,
            self._session_timeout_ms / 1000,
            self._backoff_s,
            config["retry.backoff.max.ms"] / 1000,
        )
        self._state = MemberState.UNJOINED
        self._generation = NO_GENERATION
        self._metadata = ConsumerGroupMetadata(self._group_id, group_instance_id=self._instance_id)
        self._rejoin_needed = True
        self._rejoin_reason = ""
        self._needs_prepare = True
        self._changed = asyncio.Event()
        """Set when there may be a reason to rejoin."""
        self._joined = asyncio.Event()
        """Set when heartbeats are due."""
        self._joined_topics: frozenset[str] | None = None
        self._watched: frozenset[str] = frozenset()
        """The topics of the group, while this member leads it."""
        self._watched_were: TopicsSnapshot = {}
        """The state of these topics at the last assignment."""
        self._is_leader = False
        self.ready = False

    # --- interface of the core ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """See Membership."""
        if self._tasks:
            return
        self._begin(map(self._guarded, (self._rebalances(), self._heartbeats(), self._watch_polls())))

    async def leave(self, reason: str) -> None:
        """See Membership."""
        if not self._tasks:
            return
        await self.stop()
        self.ready = False
        owned = self._core.subscription.assigned
        if self._core.subscription.auto_assigned and owned:
            if self._out_of_group or self._rebalancing:
                await self._core.run_listener("lost", owned)
            else:
                await self._commit(await self._core.prepare_revocation(owned), self._request_timeout_ms)
                await self._core.run_listener("revoked", owned)
            self._core.subscription.assign_from_subscribed(())
        await self._leave_group(reason)
        self._joined_topics = None
        self._watched = frozenset()

    def subscription_changed(self) -> None:
        """See Membership."""
        self._changed.set()

    def group_metadata(self) -> ConsumerGroupMetadata:
        """See Membership."""
        return self._metadata._replace(state=self._state.shown)

    def fetch_identity(self) -> ConsumerGroupMetadata | None:
        """See Membership."""
        return None

    def commit_identity(self) -> ConsumerGroupMetadata:
        """See Membership."""
        if self._rebalancing:
            raise RebalanceInProgressError(
                "The consumer cannot commit offsets during a rebalance; call poll() to complete the rebalance"
            )
        if self._state is not MemberState.STABLE:
            raise CommitFailedError(
                "The consumer cannot commit offsets: it is not in the group, which has probably removed it"
            )
        return self._me(self._generation)

    def commit_refused(self, code: ErrorCode, sent: ConsumerGroupMetadata) -> KafkaError:
        """See Membership."""
        unchanged = sent == self._me(self._generation)
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            self._request_rejoin("offset commit failed since group is already rebalancing")
            return RebalanceInProgressError("The group is rebalancing; call poll() before the commit")
        if code is ErrorCode.FENCED_INSTANCE_ID and unchanged:
            return error_for(code)
        if not unchanged and self._state is MemberState.PREPARING_REBALANCE:
            return RebalanceInProgressError(
                "The member of the previous generation cannot commit offsets; call poll() first"
            )
        if unchanged and code is not ErrorCode.FENCED_INSTANCE_ID:
            # The member id may be valid with a newer generation.
            self._reset(f"the response to OffsetCommit was {code.name}", code is not ErrorCode.ILLEGAL_GENERATION)
        return CommitFailedError()

    # --- reasons to rejoin ----------------------------------------------------------------------------------------

    @property
    def _out_of_group(self) -> bool:
        return self._generation.generation_id == NO_GENERATION_ID or not self._generation.member_id

    @property
    def _rebalancing(self) -> bool:
        return self._state in (MemberState.PREPARING_REBALANCE, MemberState.COMPLETING_REBALANCE)

    def _me(self, generation: Generation) -> ConsumerGroupMetadata:
        return ConsumerGroupMetadata(self._group_id, generation.generation_id, generation.member_id, self._instance_id)

    def _request_rejoin(self, reason: str) -> None:
        logger.info("Group %s needs a rebalance: %s", self._group_id, reason)
        self._rejoin_needed = True
        self._rejoin_reason = reason
        self.ready = False
        self._changed.set()

    def _reset(self, reason: str, member_id_too: bool) -> None:
        """Leaves the group: partitions are lost, and the member joins again."""
        logger.info("Member %s of group %s must join again: %s", self._generation.member_id, self._group_id, reason)
        self._state = MemberState.UNJOINED
        self._generation = NO_GENERATION if member_id_too else Generation(member_id=self._generation.member_id)
        self._needs_prepare = True
        self._request_rejoin(reason)

    def _metadata_changed(self, _cluster: ClusterMetadata) -> None:
        self._changed.set()

    def _should_rejoin(self) -> bool:
        subscription = self._core.subscription
        if not subscription.auto_assigned:
            return False
        if not self._rejoin_needed:
            if self._watched and self._watched_were != self._snapshot(self._watched):
                self._request_rejoin("cached metadata has changed")
            elif self._joined_topics is not None and self._joined_topics != subscription.topics:
                self._request_rejoin("subscription has changed")
        return self._rejoin_needed

    def _snapshot(self, topics: frozenset[str]) -> TopicsSnapshot:
        return snapshot(self._core.network.cluster, topics, self._rack is not None)

    # --- rebalances -----------------------------------------------------------------------------------------------

    async def _rebalances(self) -> None:
        while self.error is None:
            while not self._should_rejoin():
                self._changed.clear()
                await self._changed.wait()
            try:
                await self._rejoin()
            except Exception as error:
                # An assignor is the user's code: the user gets its errors.
                if isinstance(error, FencedInstanceIdError):
                    self._fail(error)
                    return
                logger.info("The join of group %s failed: %s", self._group_id, error)
                self._rejoin_needed = True
                self._core.report(error)
                await self._next_poll()

    async def _guarded(self, loop: Coroutine[Any, Any, None]) -> None:
        try:
            await loop
        except Exception as error:
            # Without heartbeats, or without rebalances, it would soon not be a member.
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """Ends the membership with a fatal error."""
        logger.error("The membership in group %s failed: %s", self._group_id, error)
        self.error = error
        self.ready = False
        self._core.need_poll()

    async def _rejoin(self) -> None:
        if self._core.subscription.pattern is not None and self._needs_prepare:
            # Members that learn of a new topic late would rebalance once each.
            await self._refresh()
        while self._should_rejoin():
            if self._needs_prepare:
                self._needs_prepare = False
                await self._prepare()
            try:
                assignment = await self._join_and_sync()
            except KafkaError as error:
                if not isinstance(error, MemberIdRequiredError):
                    self._committer.metrics.rebalance_fails()
                    self._request_rejoin(f"rebalance failed due to {type(error).__name__}")
                if not isinstance(error, REJOIN_AT_ONCE):
                    if not error.retriable:
                        raise
                    await asyncio.sleep(self._backoff_s)
                continue
            self._needs_prepare = True
            await self._complete(assignment)

    async def _refresh(self) -> None:
        """Refreshes the metadata, as soon as a broker responds."""
        while True:
            try:
                await self._core.network.cluster.refresh()
                return
            except KafkaError as error:
                if not error.retriable:
                    raise
                await asyncio.sleep(self._backoff_s)

    async def _prepare(self) -> None:
        """Gives up partitions before joining."""
        subscription = self._core.subscription
        self.ready = False
        owned = subscription.assigned
        revoked = owned
        if self._protocol is RebalanceProtocol.COOPERATIVE:
            revoked = {partition for partition in owned if partition.topic not in subscription.topics}
        await self._core.prepare_revocation(owned if self._out_of_group else revoked)
        if not self._out_of_group:
            await self._commit(self._core.positions_to_commit(), self._rebalance_timeout_ms)
        # The group may have removed the member while it committed.
        if self._out_of_group:
            if owned:
                logger.info("Partitions of group %s are lost: %s", self._group_id, sorted(owned))
                await self._core.run_listener("lost", owned)
                subscription.assign_from_subscribed(())
            elif self._core.tells_every_rebalance:
                await self._core.run_listener("revoked", set())
        elif self._protocol is RebalanceProtocol.EAGER or revoked or self._core.tells_every_rebalance:
            await self._core.run_listener("revoked", revoked)
            subscription.assign_from_subscribed(owned - revoked)
        self._is_leader = False
        self._core.group_topics_changed(())

    async def _commit(self, positions: Mapping[TopicPartition, OffsetAndMetadata], timeout_ms: int) -> None:
        if self._core.auto_commit:
            await self._committer.commit_before_rebalance(positions, timeout_ms)

    async def _join_and_sync(self) -> bytes:
        """Joins and syncs; returns the assignment of the new generation."""
        self._state = MemberState.PREPARING_REBALANCE
        self._committer.metrics.rebalance_begins()
        sent = self._generation
        timeout_ms = max(self._request_timeout_ms, self._rebalance_timeout_ms + JOIN_LAPSE_MS)
        response: JoinGroupResponse = await self._coordinator.send(self._join_request(), timeout_ms=timeout_ms)
        code = ErrorCode.of(response.error_code)
        if code:
            self._join_refused(code, response, sent)
            raise error_for(code)
        if response.protocol_type not in (None, PROTOCOL_TYPE):
            raise error_for(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        self._state = MemberState.COMPLETING_REBALANCE
        self._generation = Generation(response.generation_id, response.member_id, response.protocol_name)
        self._heartbeat.reset()
        self._joined.set()
        logger.info("Joined group %s as %s", self._group_id, self._generation)
        assignments: Mapping[str, Assignment] = {}
        self._is_leader = response.leader == response.member_id
        if self._is_leader:
            assignments = await self._lead(response)
        return await self._sync(assignments)

    def _join_request(self) -> JoinGroupRequest:
        subscription = self._core.subscription
        self._joined_topics = frozenset(subscription.topics)
        owned = tuple(sorted(subscription.assigned))
        return JoinGroupRequest(
            group_id=self._group_id,
            session_timeout_ms=self._session_timeout_ms,
            rebalance_timeout_ms=self._rebalance_timeout_ms,
            member_id=self._generation.member_id,
            group_instance_id=self._instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=join_protocols(
                self._assignors, self._joined_topics, self._me(self._generation), owned, self._rack
            ),
            reason=self._rejoin_reason[:LONGEST_REASON],
        )

    def _join_refused(self, code: ErrorCode, response: JoinGroupResponse, sent: Generation) -> None:
        self._coordinator.answered(code)
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self._generation = Generation(member_id=response.member_id)
            self._rejoin_reason = f"need to re-join with the given member-id: {response.member_id}"
        elif code is ErrorCode.UNKNOWN_MEMBER_ID and sent == self._generation:
            self._reset("the response to JoinGroup was UNKNOWN_MEMBER_ID", member_id_too=True)
        else:
            logger.info("The response to JoinGroup of group %s was %s", self._group_id, code.name)

    async def _lead(self, response: JoinGroupResponse) -> Mapping[str, Assignment]:
        subscriptions = subscriptions_of(response.members)
        topics = frozenset(topic for each in subscriptions.values() for topic in each.topics)
        cluster = self._core.network.cluster
        self._core.group_topics_changed(topics)
        await self._refresh()
        if response.skip_assignment:
            # A returning static leader continues with the current assignment.
            self._watch(topics)
            return {}
        assignments = assign(self._assignor(), self._protocol, cluster, subscriptions)
        unasked = {each.topic for one in assignments.values() for each in one.partitions} - topics
        if unasked:
            topics |= unasked
            self._core.group_topics_changed(topics)
            await self._refresh()
        self._watch(topics)
        logger.info("Assignment of group %s in generation %d: %s", self._group_id, response.generation_id, assignments)
        return assignments

    def _watch(self, topics: frozenset[str]) -> None:
        self._watched = topics
        self._watched_were = self._snapshot(topics)

    def _assignor(self) -> ConsumerPartitionAssignor:
        for assignor in self._assignors:
            if assignor.name == self._generation.assignor:
                return assignor
        raise IllegalStateError(f"The coordinator chose the unknown assignor {self._generation.assignor!r}")

    async def _sync(self, assignments: Mapping[str, Assignment]) -> bytes:
        sent = self._generation
        response = await self._coordinator.send(
            SyncGroupRequest(
                group_id=self._group_id,
                generation_id=sent.generation_id,
                member_id=sent.member_id,
                group_instance_id=self._instance_id,
                protocol_type=PROTOCOL_TYPE,
                protocol_name=sent.assignor,
                assignments=[
                    SyncGroupRequest.Assignment(member_id=member_id, assignment=encode_assignment(assignment))
                    for member_id, assignment in assignments.items()
                ],
            )
        )
        code = ErrorCode.of(response.error_code)
        if code:
            logger.info("The response to SyncGroup of group %s was %s", self._group_id, code.name)
            self._coordinator.answered(code)
            if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION) and sent == self._generation:
                self._reset(f"the response to SyncGroup was {code.name}", code is ErrorCode.UNKNOWN_MEMBER_ID)
            raise error_for(code)
        if self._generation != sent or self._state is not MemberState.COMPLETING_REBALANCE:
            # A heartbeat has shown that the member is out of the group.
            raise IllegalGenerationError()
        if response.protocol_type not in (None, PROTOCOL_TYPE) or response.protocol_name not in (None, sent.assignor):
            raise error_for(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        self._state = MemberState.STABLE
        self._committer.metrics.rebalance_ends()
        self._rejoin_needed = False
        self._rejoin_reason = ""
        assignment: bytes = response.assignment
        return assignment

    async def _complete(self, encoded: bytes) -> None:
        """Adopts the assignment of the generation."""
        generation = self._generation
        if not self._is_leader:
            self._watched = frozenset()
        if len(encoded) < 2:
            raise IllegalStateError(
                f"The assignment of {generation.member_id} has {len(encoded)} bytes: the leader omitted it"
            )
        assignment = decode_assignment(encoded)
        self._metadata = self._me(generation)
        subscription = self._core.subscription
        assigned = set(assignment.partitions)
        if not subscription.matches_subscription(assigned):
            self._request_rejoin("received assignment does not match the current subscription")
            return
        owned = subscription.assigned
        revoked = owned - assigned
        if self._protocol is RebalanceProtocol.COOPERATIVE and revoked:
            logger.info("Group %s revokes partitions %s", self._group_id, sorted(revoked))
            await self._commit(await self._core.prepare_revocation(revoked), self._rebalance_timeout_ms)
            if self._generation != generation:
                return  # all partitions are lost, and the rejoin reports it
            await self._core.run_listener("revoked", revoked)
            self._request_rejoin("need to revoke partitions and re-join")
        if self._joined_topics is not None and subscription.pattern is not None:
            # The leader knew a topic of the pattern before this member did.
            topics = {partition.topic for partition in assigned}
            self._joined_topics |= topics
            subscription.subscribe_matching(subscription.topics | topics)
        self._assignor().on_assignment(assignment, self._metadata)
        added = assigned - owned
        subscription.assign_from_subscribed(sorted(assigned))
        self._committer.assigned(added)
        logger.info("Group %s assigns partitions %s, new: %s", self._group_id, sorted(assigned), sorted(added))
        await self._core.run_listener("assigned", added)
        self.ready = not self._rejoin_needed
        self._core.need_poll()  # wakes waits for an assignment
        self._core.wake_fetcher()

    # --- heartbeats -----------------------------------------------------------------------------------------------

    async def _heartbeats(self) -> None:
        while self.error is None:
            if self._state in (MemberState.UNJOINED, MemberState.PREPARING_REBALANCE):
                # The coordinator expects only JoinGroup and SyncGroup from a joining member.
                await self._next_join()
            elif self._heartbeat.due_in_s > 0:
                await asyncio.sleep(self._heartbeat.due_in_s)
            else:
                await self._beat()

    async def _beat(self) -> None:
        self._heartbeat.sent()
        sent = self._generation
        request = HeartbeatRequest(
            group_id=self._group_id,
            generation_id=sent.generation_id,
            member_id=sent.member_id,
            group_instance_id=self._instance_id,
        )
        try:
            # After a session without a response, there may be another coordinator.
            left_ms = int(self._heartbeat.session_left_s * 1000)
            timeout_ms = min(self._request_timeout_ms, left_ms if left_ms > 0 else self._session_timeout_ms)
            response = await self._coordinator.send(request, timeout_ms=timeout_ms)
        except KafkaError as error:
            if error.retriable:
                self._heartbeat.failed()
                return
            self._core.report(error)
            await self._next_poll()
            return
        code = ErrorCode.of(response.error_code)
        if not code or code is ErrorCode.REBALANCE_IN_PROGRESS:
            self._heartbeat.received()
            if code and self._state is MemberState.STABLE and sent == self._generation and not self._rejoin_needed:
                self._request_rejoin("group is already rebalancing")
            return
        logger.info("Heartbeat of member %s in group %s failed: %s", sent.member_id, self._group_id, code.name)
        self._coordinator.answered(code)
        if code in (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            if sent != self._generation:
                return
            if code is ErrorCode.FENCED_INSTANCE_ID:
                self._fail(error_for(code))
            else:
                self._reset(f"the response to Heartbeat was {code.name}", code is ErrorCode.UNKNOWN_MEMBER_ID)
            return
        self._heartbeat.failed()
        if not error_for(code).retriable:
            self._core.report(error_for(code))
            await self._next_poll()

    async def _next_join(self) -> None:
        self._joined.clear()
        await self._joined.wait()

    async def _next_poll(self) -> None:
        self._polled.clear()
        await self._polled.wait()

    # --- polls ----------------------------------------------------------------------------------------------------

    async def _watch_polls(self) -> None:
        while True:
            left_s = self._polls.left_s
            if left_s > 0:
                await asyncio.sleep(left_s)
            elif self._state in (MemberState.UNJOINED, MemberState.PREPARING_REBALANCE):
                await self._next_join()
            else:
                logger.warning(
                    "poll() was not called for max.poll.interval.ms=%d: the consumer leaves group %s. Raise it, or "
                    "lower max.poll.records", self._rebalance_timeout_ms, self._group_id,
                )  # fmt: skip
                await self._leave_group("consumer poll timeout has expired.")

    async def _leave_group(self, reason: str) -> None:
        """Leaves the group, and joins again later.

        A static member does not tell the coordinator, because it may return.
        """
        left, was_in = self._generation, self._state is not MemberState.UNJOINED
        self._reset("consumer pro-actively leaving the group", member_id_too=True)
        if not (self._coordinator.known and was_in and left.member_id and self._instance_id is None):
            return
        logger.info("Member %s leaves group %s: %s", left.member_id, self._group_id, reason)
        try:
            response = await self._coordinator.send(leave_request(self._me(left), reason))
        except KafkaError as error:
            logger.info("Could not send LeaveGroup to group %s: %s", self._group_id, error)
        else:
            code = ErrorCode.of(response.error_code or next((each.error_code for each in response.members), 0))
            if code:
                logger.info("The response to LeaveGroup of group %s was %s", self._group_id, code.name)
