"""ConsumerCore: a consumer without an interface, as coroutines on one loop.

`KafkaConsumer` and `AIOKafkaConsumer` are interfaces to it.

    user's thread                                    loop
      poll(): takes records from FetchBuffer
        `attention`? ---- enter_poll() ------------>   positions, membership, auto commit
        next_work(), next_error()  <--------------     listeners, commit callbacks; an error to raise
      chunk done: tell_hungry ---------------------->  Fetcher: the next request
        nothing to read: waits    <---- tell_ready --  Fetcher: a new chunk

The effects of a rebalance on the user (the listener, no more records of some partitions, the positions to commit)
happen only within poll(), so that only records of earlier polls count as processed. The loop sets `attention` to bring
the user's thread into poll(), and continues afterwards: `prepare_revocation`, `run_listener`. Source:
org.apache.kafka.clients.consumer.internals.ClassicKafkaConsumer and ConsumerCoordinator (4.1).
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from kafkapy._speedups.clients.consumer.record_iterator import FetchBuffer
from kafkapy.clients.consumer.attendance import Attendance, ListenerKind
from kafkapy.clients.consumer.auto_commit import AutoCommit
from kafkapy.clients.consumer.fetcher import FetchConfig, Fetcher
from kafkapy.clients.consumer.interceptors import ConsumerInterceptors
from kafkapy.clients.consumer.membership import make_membership
from kafkapy.clients.consumer.membership.commits import OffsetCommitter
from kafkapy.clients.consumer.membership.protocol import ConsumerGroupMetadata
from kafkapy.clients.consumer.metrics import FetchMetrics, PollMetrics
from kafkapy.clients.consumer.offsets import ListedOffset, Offsets
from kafkapy.clients.consumer.subscription import (
    ConsumerRebalanceListener,
    FetchState,
    OffsetReset,
    PartitionState,
    SubscriptionPattern,
    SubscriptionState,
)
from kafkapy.clients.consumer.topics import Topics
from kafkapy.clients.network_client import NetworkClient
from kafkapy.clients.telemetry import CLOSE_S, TelemetryReporter
from kafkapy.errors import IllegalStateError, KafkaTimeoutError
from kafkapy.types import IsolationLevel, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kafkapy.clients.cluster import ClusterMetadata
    from kafkapy.clients.consumer.membership.api import Membership
    from kafkapy.config.clients import ClientConfig

__all__ = ["ConsumerCore"]

logger = logging.getLogger("kafka.consumer")

POLL_CHECK_S: Final = 1.0
"""Seconds between checks whether the user's thread takes records; reading counts as polling."""


_numbers = itertools.count(1)


def _with_room_for_fetches(config: ClientConfig) -> ClientConfig:
    """The configuration with a receive.message.max.bytes that fits a full Fetch response.

    It also fits a batch larger than a partition's share.
    """
    least = config["fetch.max.bytes"] + config["max.partition.fetch.bytes"]
    if config["receive.message.max.bytes"] >= least or "receive.message.max.bytes" in config.given:
        return config
    return config.replaced(receive_message_max_bytes=least)


def _next_client_id(group_id: str | None) -> str:
    """Kafka's client id for consumers without client.id."""
    return f"consumer-{group_id or 'kafkapy'}-{next(_numbers)}"


class ConsumerCore:
    """Owns one consumer's connections, subscription, fetcher and membership.

    All methods belong to the loop's thread. `post` schedules a function on the loop's thread, from any thread; `ring`
    wakes threads that wait for records or work. `attended`: callbacks wait for the user's thread to call `enter_poll`;
    otherwise they run on the loop at once, and listeners and headers have aiokafka's form.
    """

    def __init__(
        self,
        config: ClientConfig,
        *,
        post: Callable[[Callable[[], object]], None],
        ring: Callable[[], None],
        attended: bool = True,
    ) -> None:
        config = self.config = _with_room_for_fetches(config)
        self.network = NetworkClient(config, client_id=config["client.id"] or _next_client_id(config["group.id"]))
        self.buffer = FetchBuffer(lambda: post(self.wake_fetcher), ring)
        self.subscription = SubscriptionState(OffsetReset.of(config["auto.offset.reset"]), self.buffer.partition)
        self.topics = Topics(self.network, self.subscription, config["exclude.internal.topics"])
        self.attendance = Attendance(self.buffer, self.subscription, ring, attended)
        self.interceptors = ConsumerInterceptors(config["interceptor.classes"])
        self.isolation = IsolationLevel[config["isolation.level"].upper()]
        self.metrics = FetchMetrics(self.buffer, self.subscription, self.isolation is IsolationLevel.READ_COMMITTED)
        self.offsets = Offsets(
            self.network,
            self.subscription,
            self.isolation,
            retry_backoff_ms=config["retry.backoff.ms"],
            request_timeout_ms=config["request.timeout.ms"],
            waits=lambda node_id: self.fetcher.waits(node_id),
            on_error=self.report,
            on_positions=self._positions_changed,
        )
        self.fetcher = Fetcher(
            self.network,
            self.subscription,
            self.buffer,
            self._fetch_config(config, tuple_headers=not attended),
            self.metrics,
            on_error=self.report,
            on_reset=self.offsets.wake,
        )
        self.group_id: str | None = config["group.id"]
        self.committer: OffsetCommitter | None = None
        self.membership: Membership | None = None
        if self.group_id is not None:
            self.committer = OffsetCommitter(self)
            self.membership = make_membership(self)
        self._auto_committer = AutoCommit(
            self.group_id is not None and bool(config["enable.auto.commit"]),
            config["auto.commit.interval.ms"],
            config["retry.backoff.ms"],
            lambda positions: self.commit(positions, config["default.api.timeout.ms"]),
            self._auto_committed,
        )
        self.polls = PollMetrics()
        self.telemetry = TelemetryReporter(self.network, self.all_metrics, self._telemetry_resource)
        self.closed = False
        self.user_waits = False
        """Whether the user's thread waits inside poll(): such a member counts as polling."""
        self._consumed: dict[TopicPartition, OffsetAndMetadata] = {}
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._commits: set[asyncio.Task[Any]] = set()
        self._initializer: asyncio.Task[Any] | None = None
        self._assigner: asyncio.Task[Any] | None = None
        self._member_started = False
        self._timer: asyncio.TimerHandle | None = None
        self._calls_seen = 0

    @staticmethod
    def _fetch_config(config: ClientConfig, tuple_headers: bool) -> FetchConfig:
        return FetchConfig(
            max_wait_ms=config["fetch.max.wait.ms"],
            min_bytes=config["fetch.min.bytes"],
            max_bytes=config["fetch.max.bytes"],
            max_partition_bytes=config["max.partition.fetch.bytes"],
            isolation=IsolationLevel[config["isolation.level"].upper()],
            check_crcs=config["check.crcs"],
            rack=config["client.rack"],
            sessions=config["enable.incremental.fetch.sessions"],
            request_timeout_ms=config["request.timeout.ms"],
            retry_backoff_s=config["retry.backoff.ms"] / 1000,
            metadata_max_age_s=config["metadata.max.age.ms"] / 1000,
            tuple_headers=tuple_headers,
            key_deserializer=config["key.deserializer"],
            value_deserializer=config["value.deserializer"],
        )

    async def start(self) -> None:
        """Connects to the cluster. NoBrokersAvailableError."""
        self.network.cluster.add_listener(self._metadata_changed)
        await self.network.start()
        self.telemetry.start()
        if self.membership is not None:
            self._arm()

    @property
    def auto_commit(self) -> bool:
        """Whether positions are committed automatically."""
        return self._auto_committer.enabled

    @property
    def tells_every_rebalance(self) -> bool:
        """Whether a rebalance that revokes nothing calls listeners, as in aiokafka."""
        return not self.attendance.attended

    # --- subscription and assignment ------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Iterable[str],
        pattern: re.Pattern[str] | SubscriptionPattern | None,
        listener: ConsumerRebalanceListener | None,
    ) -> None:
        """Subscribes by name or by pattern. IllegalStateError with manually assigned partitions."""
        if isinstance(pattern, SubscriptionPattern):
            if self.membership is None or self.config["group.protocol"].lower() != "consumer":
                raise IllegalStateError("A SubscriptionPattern needs a group with group.protocol=consumer")
            self.subscription.subscribe_server_pattern(pattern.pattern, listener)
            self.topics.want()
        elif pattern is not None:
            self.subscription.subscribe_pattern(pattern, listener)
            self.topics.want()
            self.topics.match_pattern()
        else:
            self.subscription.subscribe(topics, listener)
            self.topics.want()
        if self.membership is not None:
            if self._member_started:
                self.membership.subscription_changed()
        else:
            self._assign_all()
        self.attendance.need_poll()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Assigns partitions manually. IllegalStateError with a subscription."""
        if self.subscription.assign_by_user(partitions):
            self.topics.want()
            self._leaders_known()
            self.wake_fetcher()
        self.attendance.need_poll()

    async def unsubscribe(self, reason: str = "the consumer unsubscribed from all topics") -> None:
        """Leaves the group and forgets all partitions."""
        if self.membership is not None and self._member_started:
            self._member_started = False
            await self.membership.leave(reason)
        elif self.subscription.auto_assigned:
            if self._assigner is not None:
                # Its revocations could concern manually assigned partitions when they are served.
                self._assigner.cancel()
                self._assigner = None
            await self.run_listener("revoked", self.subscription.assigned)
        self.subscription.unsubscribe()
        self.topics.want()

    def group_topics_changed(self, topics: Iterable[str]) -> None:
        """Sets the topics of the whole group for its leader.

        The leader needs the metadata of all of them.
        """
        self.subscription.group_topics = frozenset(topics)
        self.topics.want()

    def _metadata_changed(self, cluster: ClusterMetadata) -> None:
        for error in self.topics.errors():
            self.report(error)
        if self.topics.match_pattern() and self.membership is not None and self._member_started:
            self.membership.subscription_changed()
        if self.membership is None:
            self._assign_all()
        self._leaders_known()
        self.offsets.wake()
        self.wake_fetcher()

    def _leaders_known(self) -> None:
        """Completes positions whose leader was unknown when they were set."""
        for state in self.subscription.in_state(FetchState.FETCHING):
            if state.leader.node_id < 0:
                state.leader_changed(self.offsets.leader_of(state.topic_partition))

    def _assign_all(self) -> None:
        """Assigns all partitions of the subscription, for consumers without a group."""
        if not self.subscription.auto_assigned:
            return
        wanted = self.topics.all_partitions()
        if wanted != self.subscription.assigned and (self._assigner is None or self._assigner.done()):
            self._assigner = self._spawn(self._assign_all_now(wanted))

    async def _assign_all_now(self, wanted: set[TopicPartition]) -> None:
        gone = self.subscription.assigned - wanted
        if gone:
            await self.prepare_revocation(gone)
            await self.run_listener("revoked", gone)
        added = self.subscription.assign_from_subscribed(sorted(wanted))
        if added:
            await self.run_listener("assigned", added)
        self._assigner = None
        self._assign_all()

    # --- the user's thread in poll() ------------------------------------------------------------------------------

    def need_poll(self) -> None:
        """Makes the user's thread enter poll() after a change."""
        self.attendance.need_poll()

    def report(self, error: Exception) -> None:
        """Makes the next poll raise this error."""
        self.attendance.report(error)
        self._changed.set()

    def enter_poll(self) -> None:
        """Enters poll(): all records of earlier polls are processed.

        The user's thread then does the `attendance`'s work, and raises its next error.
        """
        self.buffer.attention = False
        self._calls_seen = self.buffer.calls
        if self.membership is not None and self.subscription.auto_assigned:
            if not self._member_started:
                self._member_started = True
                self._spawn(self.membership.start())
            self.membership.poll_called()
            if self.membership.error is not None:
                self.report(self.membership.error)
        if self.committer is not None:
            self._consumed = self.subscription.all_consumed()
            self._auto_committer.begin(self._consumed)
        self.attendance.serve()
        self.initialize_positions()
        if self.attendance.has_errors:
            # A poll after an error continues where possible.
            self.buffer.attention = True
        else:
            self.offsets.resume()
            self.fetcher.resume()

    async def prepare_revocation(self, partitions: set[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """Stops the records of these partitions while the user is in poll().

        Returns the positions to commit for them.
        """
        return await self.attendance.revoke(partitions)

    async def run_listener(self, kind: ListenerKind, partitions: set[TopicPartition]) -> None:
        """Calls the listener within poll(), and waits for it.

        It runs on the user's thread. poll() raises its errors. Revoked or lost partitions give no records from the call
        on, newly assigned ones give records after the return.
        """
        if kind != "assigned":
            self.subscription.mark_pending_revocation(partitions)
        await self.attendance.tell_listener(kind, partitions)
        if kind == "assigned":
            self.subscription.callback_done(partitions)
            self.initialize_positions()
            self.wake_fetcher()

    def _arm(self) -> None:
        if not self.closed:
            self._timer = asyncio.get_running_loop().call_later(
                min(POLL_CHECK_S, self.config["max.poll.interval.ms"] / 4000), self._check_polls
            )

    def _check_polls(self) -> None:
        calls = self.buffer.calls
        if (calls != self._calls_seen or self.user_waits) and self.membership is not None and self._member_started:
            self._calls_seen = calls
            self.membership.poll_called()
        if self._auto_committer.due and not self.attendance.attended:
            self._auto_committer.begin(self.positions_to_commit())
        if self._auto_committer.due or (self.membership is not None and self.membership.error is not None):
            self.attendance.need_poll()
        self._arm()

    # --- positions ------------------------------------------------------------------------------------------------

    def initialize_positions(self, asked: TopicPartition | None = None) -> None:
        """Finds positions for partitions without one, from committed offsets or auto.offset.reset.

        Newly assigned partitions, except `asked`, wait until the listener has returned, because it may seek.
        """
        if self._initializer is not None or self.closed:
            return
        states = [
            state
            for state in self.subscription.in_state(FetchState.INITIALIZING)
            if not state.pending_assigned or state.topic_partition == asked
        ]
        if states:
            self._initializer = self._spawn(self._initialize(states))

    async def _initialize(self, states: list[PartitionState]) -> None:
        try:
            if self.committer is not None:
                committed = await self.committer.committed([state.topic_partition for state in states])
                for state in states:
                    found = committed.get(state.topic_partition)
                    if found is not None and self._waits_for_offset(state):
                        leader = self.offsets.leader_of(state.topic_partition)
                        state.seek_unvalidated(found.offset, found.leader_epoch, leader)
            self.subscription.reset_initializing(
                state.topic_partition for state in states if self._waits_for_offset(state)
            )
        except Exception as error:
            self.report(error)
            self._initializer = None
            return
        self._initializer = None
        self.offsets.wake()
        self._positions_changed()
        self.initialize_positions()

    def _waits_for_offset(self, state: PartitionState) -> bool:
        return state.state is FetchState.INITIALIZING and self.subscription.get(state.topic_partition) is state

    def _positions_changed(self) -> None:
        self._changed.set()
        self.wake_fetcher()

    def wake_fetcher(self) -> None:
        """Wakes the fetcher after a change."""
        self.fetcher.wake()

    def seek(self, partition: TopicPartition, offset: int, leader_epoch: int = -1) -> None:
        """Sets a position. IllegalStateError for an unassigned partition."""
        state = self.subscription.state_of(partition)
        state.seek_unvalidated(offset, leader_epoch, self.offsets.leader_of(partition))
        self.offsets.wake()
        self.wake_fetcher()

    def reset(self, partitions: Iterable[TopicPartition], reset: OffsetReset) -> None:
        """Resets positions to the beginning or the end.

        IllegalStateError for an unassigned partition.
        """
        for state in [self.subscription.state_of(partition) for partition in partitions]:
            state.request_reset(reset)
        self.offsets.wake()

    async def position(self, partition: TopicPartition, timeout_ms: int) -> int:
        """The position, once it is valid.

        IllegalStateError, KafkaTimeoutError, or the error of the position.
        """
        self.subscription.state_of(partition)
        self.offsets.resume()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while True:
                    state = self.subscription.state_of(partition)
                    if state.has_valid_position:
                        return state.buffer.position
                    error = self.attendance.next_error()
                    if error is not None:
                        raise error
                    self.initialize_positions(asked=partition)
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise KafkaTimeoutError(f"The position of {partition} was not available within {timeout_ms} ms") from None

    async def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: int
    ) -> dict[TopicPartition, ListedOffset]:
        """As `Offsets.list_offsets`, for any partitions."""
        with self.topics.wanting(partition.topic for partition in timestamps):
            return await self.offsets.list_offsets(timestamps, timeout_ms)

    # --- commits --------------------------------------------------------------------------------------------------

    def _require_group(self) -> OffsetCommitter:
        if self.committer is None:
            raise IllegalStateError("Committing needs a group: group_id is not set")
        return self.committer

    def positions_to_commit(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The positions that earlier polls returned, at the last poll.

        Without polls, the current positions.
        """
        assigned = self.subscription.assigned
        positions = self._consumed if self.attendance.attended and not self.closed else self.subscription.all_consumed()
        return {partition: offset for partition, offset in positions.items() if partition in assigned}

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None, timeout_ms: int) -> None:
        """Commits offsets, or all positions, and waits. CommitFailedError, KafkaTimeoutError."""
        committer = self._require_group()
        chosen = self.subscription.all_consumed() if offsets is None else dict(offsets)
        if chosen:
            await committer.commit(chosen, timeout_ms)
            self.interceptors.on_commit(chosen)

    def commit_soon(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None,
        done: Callable[[Mapping[TopicPartition, OffsetAndMetadata], Exception | None], None],
    ) -> None:
        """Commits offsets, or all positions, without waiting.

        A later poll calls `done` on the user's thread.
        """
        committer = self._require_group()
        chosen = self.subscription.all_consumed() if offsets is None else dict(offsets)

        async def commit() -> None:
            error: Exception | None = None
            try:
                if chosen:
                    await committer.commit(chosen, self.config["default.api.timeout.ms"])
                    self.interceptors.on_commit(chosen)
            except Exception as raised:
                error = raised
            self.attendance.callback(lambda: done(chosen, error))

        task = self._spawn(commit())
        self._commits.add(task)
        task.add_done_callback(self._commits.discard)

    def _auto_committed(self, positions: dict[TopicPartition, OffsetAndMetadata], error: Exception | None) -> None:
        callback = self.config["default.offset.commit.callback"]
        if callback is not None:
            self.attendance.callback(lambda: callback(positions, error))

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: int
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The committed offsets. IllegalStateError without a group, KafkaTimeoutError."""
        committer = self._require_group()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await committer.committed(partitions)
        except TimeoutError:
            raise KafkaTimeoutError(f"The committed offsets were not available within {timeout_ms} ms") from None

    # --- information ----------------------------------------------------------------------------------------------

    def group_metadata(self) -> ConsumerGroupMetadata:
        """The member and its group; without a group, an empty id."""
        if self.membership is None:
            return ConsumerGroupMetadata("")
        return self.membership.group_metadata()

    def lag(self, partition: TopicPartition) -> int | None:
        """As `PartitionState.lag`. IllegalStateError for an unassigned partition."""
        return self.subscription.state_of(partition).lag(self.isolation is IsolationLevel.READ_COMMITTED)

    def all_metrics(self) -> dict[str, dict[str, Any]]:
        """The metrics by group and name."""
        counted = self.network.metrics_snapshot("consumer") | self.metrics.read()
        counted["consumer-metrics"].update(self.polls.read())
        if self.committer is not None:
            counted |= self.committer.metrics.read(len(self.subscription.assigned))
        return counted

    def _telemetry_resource(self) -> dict[str, str | None]:
        return {
            "client_rack": self.config["client.rack"],
            "group_id": self.group_id,
            "group_instance_id": self.config["group.instance.id"],
            "group_member_id": None if self.membership is None else self.membership.group_metadata().member_id,
        }

    # --- the end --------------------------------------------------------------------------------------------------

    async def close(self, autocommit: bool, timeout_ms: int) -> None:
        """Commits positions (with auto commit), leaves the group, and closes everything.

        It takes about `timeout_ms`.
        """
        if self.closed:
            return
        if not autocommit:
            self._auto_committer.enabled = False
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        try:
            async with asyncio.timeout_at(deadline):
                if self._commits:
                    await asyncio.wait(self._commits)
                if self.auto_commit:
                    await self._auto_committer.finish(self.subscription.all_consumed())
                if self.subscription.auto_assigned:
                    await self._leave()
                await self.fetcher.close()
        except TimeoutError:
            logger.warning("The consumer closed with unfinished work after %d ms", timeout_ms)
        finally:
            await self.telemetry.close(min(CLOSE_S, timeout_ms / 1000))
            self.closed = True
            self.offsets.close()
            if self._timer is not None:
                self._timer.cancel()
            for task in self._tasks:
                task.cancel()
            if self.membership is not None:
                await self.membership.stop()
            self.subscription.unsubscribe()
            await self.network.close()

    async def _leave(self) -> None:
        if self.config["internal.leave.group.on.close"]:
            await self.unsubscribe("the consumer is being closed")
        else:
            await self.run_listener("revoked", self.subscription.assigned)

    def _spawn(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self.report(error)
