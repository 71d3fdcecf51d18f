"""A consumer's subscription or assignment, and the state of each assigned partition.

    INITIALIZING --committed offset--> AWAIT_VALIDATION --epoch still there--> FETCHING
         |                                   |   ^                               |
         +---no committed offset---> AWAIT_RESET |---new leader or epoch---------+
                                         +-------offset by auto.offset.reset---> FETCHING

Only the loop's thread uses it (the user's thread comes through `call`). The position itself is in the partition's
buffer, where the user's thread advances it. Source: org.apache.kafka.clients.consumer.internals.SubscriptionState
(4.1), KIP-320.
"""

from __future__ import annotations

import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkapy.clients.consumer.fetch_session import WantedPartition
from kafkapy.config.durations import BY_DURATION, duration_ms
from kafkapy.errors import IllegalStateError, NoOffsetForPartitionError
from kafkapy.types import ListOffsetsTimestamp, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kafkapy._speedups.clients.consumer.record_iterator import PartitionBuffer

__all__ = [
    "AsyncConsumerRebalanceListener",
    "ConsumerRebalanceListener",
    "FetchState",
    "LeaderAndEpoch",
    "LogTruncation",
    "NotAssignedError",
    "OffsetReset",
    "PartitionState",
    "SubscriptionPattern",
    "SubscriptionState",
    "SubscriptionType",
]

logger = logging.getLogger("kafka.consumer.subscription")

MUTUALLY_EXCLUSIVE: Final = "Subscription to topics, partitions and pattern are mutually exclusive"


class NotAssignedError(IllegalStateError, ValueError):
    """The partition is not assigned to this consumer.

    Also a ValueError, as in kafka-python.
    """


class ConsumerRebalanceListener(ABC):
    """A listener for assigned and revoked partitions.

    It runs on the user's thread, within poll(), iteration, unsubscribe() or close().
    """

    @abstractmethod
    def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        """Called before partitions are revoked; their offsets may still be committed."""

    @abstractmethod
    def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        """Called with newly assigned partitions, before their first record; seek() is allowed."""

    def on_partitions_lost(self, lost: list[TopicPartition]) -> None:
        """Called with partitions that another member already owns (KIP-429).

        A commit is too late. By default it calls on_partitions_revoked.
        """
        self.on_partitions_revoked(lost)


class AsyncConsumerRebalanceListener(ABC):
    """A listener with coroutines, as in kafka-python.

    They run on the consumer's loop and thread while the user's thread waits in poll(). Heartbeats continue; a blocking
    call of the same consumer is an IllegalStateError.
    """

    @abstractmethod
    async def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        """Called before partitions are revoked."""

    @abstractmethod
    async def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        """Called with newly assigned partitions, before their first record."""

    async def on_partitions_lost(self, lost: list[TopicPartition]) -> None:
        """Called with partitions that another member already owns (KIP-429).

        By default it calls on_partitions_revoked.
        """
        await self.on_partitions_revoked(lost)


class SubscriptionPattern(NamedTuple):
    """An RE2 expression that the broker matches against topic names (KIP-848).

    Only with group.protocol=consumer.
    """

    pattern: str


class SubscriptionType(Enum):
    """The source of a consumer's assigned partitions."""

    NONE = "none"
    TOPICS = "topics"
    PATTERN = "pattern"
    SERVER_PATTERN = "pattern of the broker"
    ASSIGNED = "assigned by the user"


class FetchState(Enum):
    """The state of a partition's position."""

    INITIALIZING = "initializing"
    AWAIT_RESET = "awaiting reset"
    AWAIT_VALIDATION = "awaiting validation"
    FETCHING = "fetching"


class LeaderAndEpoch(NamedTuple):
    """The leader of a partition and its epoch; -1 for unknown."""

    node_id: int = -1
    epoch: int = -1


NO_LEADER: Final = LeaderAndEpoch()


@dataclass(frozen=True, slots=True)
class OffsetReset:
    """The start of a partition without a usable offset.

    `timestamp` is -1 for latest, -2 for earliest; NO_RESET is an error for the user. With `duration_ms` the timestamp
    is that long before now (KIP-1106).
    """

    name: str
    special: int | None = None
    duration_ms: int | None = None

    @classmethod
    def of(cls, text: str) -> OffsetReset:
        """The policy for a validated value of auto.offset.reset."""
        if text.startswith(BY_DURATION):
            return cls(text, None, duration_ms(text.removeprefix(BY_DURATION)))
        return {"latest": LATEST, "earliest": EARLIEST, "none": NO_RESET}[text]

    @property
    def defined(self) -> bool:
        """Whether the policy has a target at all."""
        return self.special is not None or self.duration_ms is not None

    def timestamp(self, now_ms: int) -> int:
        """The timestamp for ListOffsets."""
        if self.duration_ms is not None:
            return max(now_ms - self.duration_ms, 0)
        return int(ListOffsetsTimestamp.LATEST) if self.special is None else self.special


LATEST: Final = OffsetReset("latest", int(ListOffsetsTimestamp.LATEST))
EARLIEST: Final = OffsetReset("earliest", int(ListOffsetsTimestamp.EARLIEST))
NO_RESET: Final = OffsetReset("none")


class LogTruncation(NamedTuple):
    """A position that the log no longer has.

    `divergent` is the offset from which it differs, None when unknown.
    """

    topic_partition: TopicPartition
    offset: int
    divergent: OffsetAndMetadata | None


class PartitionState:
    """One assigned partition.

    `leader` is the leader that validated its position; times are monotonic seconds.
    """

    __slots__ = (
        "_paused",
        "_pending_assigned",
        "_pending_revocation",
        "_state",
        "_subscribed",
        "buffer",
        "expire_replica_at",
        "failed",
        "fetch_when_drained",
        "fetchable",
        "fetched_at_ms",
        "high_watermark",
        "last_stable_offset",
        "leader",
        "log_start_offset",
        "preferred_read_replica",
        "reset",
        "retry_at",
        "topic_partition",
        "wanted",
    )

    def __init__(self, topic_partition: TopicPartition, buffer: PartitionBuffer) -> None:
        self.topic_partition = topic_partition
        self.buffer = buffer
        self.leader = NO_LEADER
        self.reset: OffsetReset | None = None
        """The target of the running reset."""
        self.retry_at = 0.0
        """The earliest time of the next attempt after a failure: reset, validation, fetch."""
        self.high_watermark: int | None = None
        self.last_stable_offset: int | None = None
        self.log_start_offset: int | None = None
        self.fetched_at_ms: int | None = None
        """The time of the last fetch response, in ms since the epoch."""
        self.preferred_read_replica = -1
        self.expire_replica_at = 0.0
        self.fetch_when_drained = False
        """Whether the last fetch met an error after the buffered records: the user gets it when the buffer is empty."""
        self.failed = False
        """Whether the last fetch met an error that the user has not seen."""
        self.fetchable = False
        """Whether its records may be fetched and returned to the user."""
        self.wanted: WantedPartition | None = None
        """The partition's last request; the same object as long as nothing changes."""
        self._paused = False
        self._pending_revocation = False
        self._pending_assigned = False
        self._subscribed = True
        self._state = FetchState.INITIALIZING

    def __repr__(self) -> str:
        return f"PartitionState({self.topic_partition}, {self._state.value}, position={self.buffer.position})"

    @property
    def state(self) -> FetchState:
        """The state of its position."""
        return self._state

    @property
    def has_valid_position(self) -> bool:
        """Whether the leader's log is known to have the position."""
        return self._state is FetchState.FETCHING

    def _settle(self) -> None:
        """Updates whether it is fetchable, and its buffer readable."""
        self.fetchable = (
            self._state is FetchState.FETCHING
            and not self._paused
            and not self._pending_revocation
            and not self._pending_assigned
            and self._subscribed
        )
        self.buffer.readable = self.fetchable

    @property
    def paused(self) -> bool:
        """Whether the user has paused it."""
        return self._paused

    @paused.setter
    def paused(self, paused: bool) -> None:
        self._paused = paused
        self._settle()

    @property
    def pending_revocation(self) -> bool:
        """Whether its revocation is pending: its records are not returned."""
        return self._pending_revocation

    @pending_revocation.setter
    def pending_revocation(self, pending: bool) -> None:
        self._pending_revocation = pending
        self._settle()

    @property
    def pending_assigned(self) -> bool:
        """Whether it is newly assigned and the listener was not called yet."""
        return self._pending_assigned

    @pending_assigned.setter
    def pending_assigned(self, pending: bool) -> None:
        self._pending_assigned = pending
        self._settle()

    @property
    def subscribed(self) -> bool:
        """Whether its topic is subscribed.

        A partition of another topic stays only until the group reassigns it.
        """
        return self._subscribed

    @subscribed.setter
    def subscribed(self, subscribed: bool) -> None:
        self._subscribed = subscribed
        self._settle()

    def enter(self, state: FetchState) -> None:
        """Changes the state."""
        self._state = state
        self._settle()

    def seek(self, offset: int, leader_epoch: int = -1, leader: LeaderAndEpoch = NO_LEADER) -> None:
        """Sets a position without validation, and drops the buffered records."""
        self.buffer.seek(offset, leader_epoch)
        self.leader = leader
        self.reset = None
        self.retry_at = 0.0
        self.fetch_when_drained = self.failed = False
        self.enter(FetchState.FETCHING)

    def seek_unvalidated(self, offset: int, leader_epoch: int, leader: LeaderAndEpoch) -> None:
        """Sets a position for the leader to validate, if both know epochs."""
        self.seek(offset, leader_epoch, leader)
        if leader_epoch >= 0 and leader.epoch >= 0:
            self.enter(FetchState.AWAIT_VALIDATION)

    def request_reset(self, reset: OffsetReset) -> None:
        """Requests a reset of the position by the leader."""
        self.buffer.seek(-1)
        self.leader = NO_LEADER
        self.reset = reset
        self.retry_at = 0.0
        self.fetch_when_drained = self.failed = False
        self.enter(FetchState.AWAIT_RESET)

    def leader_changed(self, leader: LeaderAndEpoch) -> bool:
        """Compares the metadata's leader with the position's.

        Returns whether the position needs a validation now.
        """
        if leader.node_id < 0 or self._state in (FetchState.AWAIT_RESET, FetchState.INITIALIZING):
            return False
        if leader != self.leader:
            self.leader = leader
            self.preferred_read_replica = -1
            self.retry_at = 0.0
            known = leader.epoch >= 0 and self.buffer.end_epoch >= 0
            self.enter(FetchState.AWAIT_VALIDATION if known else FetchState.FETCHING)
        return self._state is FetchState.AWAIT_VALIDATION

    def complete_validation(self) -> None:
        """Completes the validation: the leader has the position."""
        if self._state is FetchState.AWAIT_VALIDATION:
            self.retry_at = 0.0
            self.enter(FetchState.FETCHING)

    def read_replica(self, now: float) -> int:
        """The preferred read replica, -1 for none or after its expiry (KIP-392)."""
        if self.preferred_read_replica >= 0 and now >= self.expire_replica_at:
            self.preferred_read_replica = -1
        return self.preferred_read_replica

    def prefer_replica(self, node_id: int, expire_at: float) -> None:
        """Reads from a replica until a time."""
        if node_id != self.preferred_read_replica:
            self.preferred_read_replica = node_id
            self.expire_replica_at = expire_at

    def clear_replica(self) -> int:
        """Returns to the leader; gives the former read replica, -1 for none."""
        node_id, self.preferred_read_replica = self.preferred_read_replica, -1
        return node_id

    def lag(self, read_committed: bool) -> int | None:
        """Number of records between the position and the end of readable records.

        None when one of them is unknown.
        """
        end = self.last_stable_offset if read_committed else self.high_watermark
        position = self.buffer.position
        return None if end is None or position < 0 else max(end - position, 0)


class SubscriptionState:
    """Subscribed topics and assigned partitions. On the loop's thread.

    `make_buffer` creates the buffer of a new partition. `version` increases with each change of the assignment.
    """

    def __init__(self, default_reset: OffsetReset, make_buffer: Callable[[TopicPartition], PartitionBuffer]) -> None:
        self.default_reset = default_reset
        self.type = SubscriptionType.NONE
        self.topics: frozenset[str] = frozenset()
        """Subscribed topics, by name or pattern; with manual assignment, the topics of assign()."""
        self.group_topics: frozenset[str] = frozenset()
        """Topics whose metadata the group needs, while this member leads it."""
        self.pattern: re.Pattern[str] | None = None
        self.server_pattern: str | None = None
        """The RE2 expression that the broker resolves, in the consumer protocol (KIP-848)."""
        self.listener: ConsumerRebalanceListener | None = None
        self.version = 0
        self._make_buffer = make_buffer
        self._assignment: dict[TopicPartition, PartitionState] = {}

    # --- subscription and assignment ------------------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str], listener: ConsumerRebalanceListener | None) -> bool:
        """Subscribes to topics by name; whether they differ from the previous ones.

        IllegalStateError.
        """
        self._become(SubscriptionType.TOPICS)
        self.listener = listener
        changed = self._change_topics(topics)
        for state in self._assignment.values():
            state.subscribed = state.topic_partition.topic in self.topics
        return changed

    def subscribe_pattern(self, pattern: re.Pattern[str], listener: ConsumerRebalanceListener | None) -> None:
        """Subscribes to all topics whose names start with a match. IllegalStateError."""
        self._become(SubscriptionType.PATTERN)
        self.listener = listener
        self.pattern = pattern

    def subscribe_server_pattern(self, pattern: str, listener: ConsumerRebalanceListener | None) -> None:
        """Subscribes to the topics that the broker matches. IllegalStateError."""
        self._become(SubscriptionType.SERVER_PATTERN)
        self.listener = listener
        self.server_pattern = pattern

    def subscribe_matching(self, topics: Iterable[str]) -> bool:
        """Selects the topics that match the pattern; whether the subscription changes."""
        if self.pattern is None:
            return False
        match = self.pattern.match
        return self._change_topics(topic for topic in topics if match(topic))

    def assign_by_user(self, partitions: Iterable[TopicPartition]) -> bool:
        """Assigns partitions manually; whether they differ from the previous ones. IllegalStateError."""
        self._become(SubscriptionType.ASSIGNED)
        wanted = dict.fromkeys(partitions)
        if wanted.keys() == self._assignment.keys():
            return False
        self._replace(wanted)
        self._change_topics(partition.topic for partition in wanted)
        return True

    def assign_from_subscribed(self, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Assigns partitions of the subscription; returns the new ones.

        They come from the group, or from a subscription without a group. New partitions give no records until
        `callback_done`.
        """
        if not self.auto_assigned:
            raise IllegalStateError("A group cannot assign partitions to a consumer after assign()")
        wanted = dict.fromkeys(partitions)
        added = set(wanted).difference(self._assignment)
        self._replace(wanted)
        for partition in added:
            self._assignment[partition].pending_assigned = True
        return added

    def callback_done(self, partitions: Iterable[TopicPartition]) -> None:
        """Releases partitions whose listener call is complete."""
        for state in self.states(partitions):
            state.pending_assigned = False

    def mark_pending_revocation(self, partitions: Iterable[TopicPartition]) -> None:
        """Stops the records of these partitions."""
        for state in self.states(partitions):
            state.pending_revocation = True

    def unsubscribe(self) -> None:
        """Removes subscription and assignment."""
        self._replace({})
        self.topics = self.group_topics = frozenset()
        self.pattern = self.server_pattern = None
        self.listener = None
        self.type = SubscriptionType.NONE

    def matches_subscription(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether the topics of all these partitions are subscribed."""
        if self.pattern is not None:
            return all(self.pattern.match(partition.topic) for partition in partitions)
        return all(partition.topic in self.topics for partition in partitions)

    @property
    def auto_assigned(self) -> bool:
        """Whether partitions follow from a subscription."""
        return self.type not in (SubscriptionType.NONE, SubscriptionType.ASSIGNED)

    @property
    def subscription(self) -> set[str]:
        """The subscribed topics; none with manually assigned partitions."""
        return set(self.topics) if self.auto_assigned else set()

    @property
    def metadata_topics(self) -> frozenset[str]:
        """The topics whose metadata is needed."""
        return self.topics | self.group_topics

    def _become(self, type_: SubscriptionType) -> None:
        if self.type is SubscriptionType.NONE:
            self.type = type_
        elif self.type is not type_:
            raise IllegalStateError(MUTUALLY_EXCLUSIVE)

    def _change_topics(self, topics: Iterable[str]) -> bool:
        chosen = frozenset(topics)
        changed = chosen != self.topics
        self.topics = chosen
        return changed

    def _replace(self, wanted: Iterable[TopicPartition]) -> None:
        """Keeps the states of remaining partitions, and drops the buffers of others."""
        before = self._assignment
        self._assignment = {
            partition: before.get(partition) or PartitionState(partition, self._make_buffer(partition))
            for partition in wanted
        }
        for partition, state in before.items():
            if partition not in self._assignment:
                state.buffer.readable = False
                state.buffer.seek(-1)
        self.version += 1

    # --- the partitions -------------------------------------------------------------------------------------------

    @property
    def assigned(self) -> set[TopicPartition]:
        """The assigned partitions."""
        return set(self._assignment)

    @property
    def all_states(self) -> list[PartitionState]:
        """The states of all assigned partitions, in fetch order."""
        return list(self._assignment.values())

    def is_assigned(self, partition: TopicPartition) -> bool:
        """Whether the partition is assigned."""
        return partition in self._assignment

    def get(self, partition: TopicPartition) -> PartitionState | None:
        """The state of a partition, None when it is not assigned."""
        return self._assignment.get(partition)

    def state_of(self, partition: TopicPartition) -> PartitionState:
        """The state of a partition. NotAssignedError."""
        state = self._assignment.get(partition)
        if state is None:
            raise NotAssignedError(f"No current assignment for partition {partition}")
        return state

    def states(self, partitions: Iterable[TopicPartition]) -> list[PartitionState]:
        """The states of the assigned ones of these partitions."""
        return [state for partition in partitions if (state := self._assignment.get(partition)) is not None]

    def in_state(self, wanted: FetchState, now: float | None = None) -> list[PartitionState]:
        """Partitions in a state. With `now`: whose next attempt is due."""
        return [
            state
            for state in self._assignment.values()
            if state.state is wanted and (now is None or now >= state.retry_at)
        ]

    def move_to_end(self, partition: TopicPartition) -> None:
        """Moves a partition to the end of the fetch order."""
        state = self._assignment.pop(partition, None)
        if state is not None:
            self._assignment[partition] = state

    def all_consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The valid positions, as offsets to commit."""
        return {
            state.topic_partition: OffsetAndMetadata(state.buffer.position, "", state.buffer.position_epoch)
            for state in self._assignment.values()
            if state.has_valid_position and state.buffer.position >= 0
        }

    # --- resets and validation ------------------------------------------------------------------------------------

    def reset_initializing(self, partitions: Iterable[TopicPartition]) -> None:
        """Resets partitions without a position by the policy. NoOffsetForPartitionError."""
        missing = [state for state in self.states(partitions) if state.state is FetchState.INITIALIZING]
        if not missing:
            return
        if not self.default_reset.defined:
            names = ", ".join(str(state.topic_partition) for state in missing)
            raise NoOffsetForPartitionError(
                f"No committed offset, and auto.offset.reset is none, for partitions {names}"
            )
        for state in missing:
            state.request_reset(self.default_reset)

    def complete_reset(
        self, partition: TopicPartition, reset: OffsetReset, offset: int, leader: LeaderAndEpoch
    ) -> None:
        """Sets the position of a completed reset, unless the state has changed."""
        state = self._assignment.get(partition)
        if state is None or state.state is not FetchState.AWAIT_RESET or state.reset != reset:
            return
        logger.info("Resetting offset of partition %s to %d (%s)", partition, offset, reset.name)
        # Without an epoch there is no validation: the leader has just returned the offset.
        state.seek_unvalidated(offset, -1, leader)

    def complete_validation(
        self, partition: TopicPartition, asked: tuple[int, int, LeaderAndEpoch], epoch: int, end_offset: int
    ) -> LogTruncation | None:
        """Handles the leader's response to a validation of the position `asked`.

        `asked` is (offset, epoch, leader). The log has `epoch` up to `end_offset`; both are -1 if the leader does not
        know the epoch. Returns a truncation for the user: a position that the log does not have, without a policy to
        choose another.
        """
        state = self._assignment.get(partition)
        if state is None or state.state is not FetchState.AWAIT_VALIDATION:
            return None
        buffer = state.buffer
        if (buffer.end_offset, buffer.end_epoch, state.leader) != asked:
            return None
        known = epoch >= 0 and end_offset >= 0
        if known and end_offset >= buffer.end_offset:
            state.complete_validation()
            return None
        if buffer.chunks:
            # The log no longer has the fetched records. The user has not seen them; the position is validated next.
            buffer.rewind()
            state.retry_at = 0.0
            if buffer.end_epoch < 0:
                state.complete_validation()
            return None
        if self.default_reset.defined:
            if not known:
                logger.info("Truncation detected for partition %s at offset %d, resetting offset", partition, asked[0])
                state.request_reset(self.default_reset)
            else:
                logger.info(
                    "Truncation detected for partition %s at offset %d, back to %d", partition, asked[0], end_offset
                )
                state.seek(end_offset, epoch, state.leader)
            return None
        logger.warning(
            "Truncation detected for partition %s at offset %d, but no reset policy is set", partition, asked[0]
        )
        return LogTruncation(partition, asked[0], OffsetAndMetadata(end_offset, "", epoch) if known else None)
