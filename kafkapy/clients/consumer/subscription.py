"""What a consumer reads: its subscription or assignment, and the state of each assigned partition.

    INITIALIZING --committed offset--> AWAIT_VALIDATION --epoch still there--> FETCHING
         |                                   |   ^                               |
         +---no committed offset---> AWAIT_RESET |---new leader or epoch---------+
                                         +-------offset by auto.offset.reset---> FETCHING

Used on the loop's thread only (the user's thread comes through `call`); the position itself is in the partition's
buffer, where the user's thread moves it. Source: org.apache.kafka.clients.consumer.internals.SubscriptionState (4.1),
KIP-320.
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
from kafkapy.config.consumer import BY_DURATION, duration_ms
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
    """The partition is not assigned to this consumer; a ValueError too, as kafka-python has it."""


class ConsumerRebalanceListener(ABC):
    """Told on the user's thread, within poll(), iteration, unsubscribe() or close(), when partitions come and go."""

    @abstractmethod
    def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        """These are about to be given up; their offsets may still be committed."""

    @abstractmethod
    def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        """These have been assigned; no record of them has been returned yet, and seek() is allowed."""

    def on_partitions_lost(self, lost: list[TopicPartition]) -> None:
        """These belong to another member already; committing is too late (KIP-429). As revoked where not overridden."""
        self.on_partitions_revoked(lost)


class AsyncConsumerRebalanceListener(ABC):
    """A listener with coroutines, as in kafka-python. They run on the consumer's loop, on its thread, while the user's
    thread waits in poll(): heartbeats go on, and a blocking call of the same consumer is an IllegalStateError."""

    @abstractmethod
    async def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        """These are about to be given up."""

    @abstractmethod
    async def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        """These have been assigned; no record of them has been returned yet."""

    async def on_partitions_lost(self, lost: list[TopicPartition]) -> None:
        """These belong to another member already (KIP-429). As revoked where not overridden."""
        await self.on_partitions_revoked(lost)


class SubscriptionPattern(NamedTuple):
    """An RE2 expression that the broker matches against topic names (KIP-848); group.protocol=consumer only."""

    pattern: str


class SubscriptionType(Enum):
    """How partitions come to be assigned."""

    NONE = "none"
    TOPICS = "topics"
    PATTERN = "pattern"
    SERVER_PATTERN = "pattern of the broker"
    ASSIGNED = "assigned by the user"


class FetchState(Enum):
    """Where a partition is on its way to a position that can be fetched from."""

    INITIALIZING = "initializing"
    AWAIT_RESET = "awaiting reset"
    AWAIT_VALIDATION = "awaiting validation"
    FETCHING = "fetching"


class LeaderAndEpoch(NamedTuple):
    """Who leads a partition, as far as is known; -1 for what is not."""

    node_id: int = -1
    epoch: int = -1


NO_LEADER: Final = LeaderAndEpoch()


@dataclass(frozen=True, slots=True)
class OffsetReset:
    """Where a partition without a usable offset begins: `timestamp` -1 latest, -2 earliest, None: nowhere (an error).

    With `duration_ms` the timestamp is that long before now (KIP-1106).
    """

    name: str
    special: int | None = None
    duration_ms: int | None = None

    @classmethod
    def of(cls, text: str) -> OffsetReset:
        """From a value of auto.offset.reset, validated by the configuration."""
        if text.startswith(BY_DURATION):
            return cls(text, None, duration_ms(text.removeprefix(BY_DURATION)))
        return {"latest": LATEST, "earliest": EARLIEST, "none": NO_RESET}[text]

    @property
    def defined(self) -> bool:
        """Whether it names a place at all."""
        return self.special is not None or self.duration_ms is not None

    def timestamp(self, now_ms: int) -> int:
        """What ListOffsets is asked."""
        if self.duration_ms is not None:
            return max(now_ms - self.duration_ms, 0)
        return int(ListOffsetsTimestamp.LATEST) if self.special is None else self.special


LATEST: Final = OffsetReset("latest", int(ListOffsetsTimestamp.LATEST))
EARLIEST: Final = OffsetReset("earliest", int(ListOffsetsTimestamp.EARLIEST))
NO_RESET: Final = OffsetReset("none")


class LogTruncation(NamedTuple):
    """A position that the log does not have any more; `divergent` is where it differs, None when that is not known."""

    topic_partition: TopicPartition
    offset: int
    divergent: OffsetAndMetadata | None


class PartitionState:
    """One assigned partition. `leader` is whom its position was validated against; times are monotonic seconds."""

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
        """What a reset under way goes to."""
        self.retry_at = 0.0
        """Before then nothing is asked again after a failure: reset, validation, fetch."""
        self.high_watermark: int | None = None
        self.last_stable_offset: int | None = None
        self.log_start_offset: int | None = None
        self.fetched_at_ms: int | None = None
        """When the last of these came, in ms since the epoch."""
        self.preferred_read_replica = -1
        self.expire_replica_at = 0.0
        self.fetch_when_drained = False
        """The last fetch met an error behind what is buffered: it is for the user when the buffer has been read."""
        self.failed = False
        """The last fetch met an error that the user has not heard of yet."""
        self.fetchable = False
        """Whether its records may be fetched, and given to the user."""
        self.wanted: WantedPartition | None = None
        """What the last request asked of it; the same object as long as nothing changes."""
        self._paused = False
        self._pending_revocation = False
        self._pending_assigned = False
        self._subscribed = True
        self._state = FetchState.INITIALIZING

    def __repr__(self) -> str:
        return f"PartitionState({self.topic_partition}, {self._state.value}, position={self.buffer.position})"

    @property
    def state(self) -> FetchState:
        """Where it is on its way to a position."""
        return self._state

    @property
    def has_valid_position(self) -> bool:
        """Whether there is a position that the leader's log is known to have."""
        return self._state is FetchState.FETCHING

    def _settle(self) -> None:
        """Says anew whether it is fetchable; the buffer is readable while its partition is."""
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
        """Paused by the user."""
        return self._paused

    @paused.setter
    def paused(self, paused: bool) -> None:
        self._paused = paused
        self._settle()

    @property
    def pending_revocation(self) -> bool:
        """About to be given up: its records are not given to the user any more."""
        return self._pending_revocation

    @pending_revocation.setter
    def pending_revocation(self, pending: bool) -> None:
        self._pending_revocation = pending
        self._settle()

    @property
    def pending_assigned(self) -> bool:
        """Newly assigned, and the listener has not been told yet."""
        return self._pending_assigned

    @pending_assigned.setter
    def pending_assigned(self, pending: bool) -> None:
        self._pending_assigned = pending
        self._settle()

    @property
    def subscribed(self) -> bool:
        """Its topic is subscribed to; else it is only here until the group has given it to nobody or somebody else."""
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
        """Takes a position as it is; what was buffered is dropped."""
        self.buffer.seek(offset, leader_epoch)
        self.leader = leader
        self.reset = None
        self.retry_at = 0.0
        self.fetch_when_drained = self.failed = False
        self.enter(FetchState.FETCHING)

    def seek_unvalidated(self, offset: int, leader_epoch: int, leader: LeaderAndEpoch) -> None:
        """Takes a position whose epoch the leader is to confirm, when both know one."""
        self.seek(offset, leader_epoch, leader)
        if leader_epoch >= 0 and leader.epoch >= 0:
            self.enter(FetchState.AWAIT_VALIDATION)

    def request_reset(self, reset: OffsetReset) -> None:
        """Gives up the position for another that is asked of the leader."""
        self.buffer.seek(-1)
        self.leader = NO_LEADER
        self.reset = reset
        self.retry_at = 0.0
        self.fetch_when_drained = self.failed = False
        self.enter(FetchState.AWAIT_RESET)

    def leader_changed(self, leader: LeaderAndEpoch) -> bool:
        """Compares what metadata says with the position's leader; true when the position is to be validated now."""
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
        """The leader has the position."""
        if self._state is FetchState.AWAIT_VALIDATION:
            self.retry_at = 0.0
            self.enter(FetchState.FETCHING)

    def read_replica(self, now: float) -> int:
        """The replica the leader has named to read from, -1 for none or when that was too long ago (KIP-392)."""
        if self.preferred_read_replica >= 0 and now >= self.expire_replica_at:
            self.preferred_read_replica = -1
        return self.preferred_read_replica

    def prefer_replica(self, node_id: int, expire_at: float) -> None:
        """Reads from that replica until then."""
        if node_id != self.preferred_read_replica:
            self.preferred_read_replica = node_id
            self.expire_replica_at = expire_at

    def clear_replica(self) -> int:
        """Back to the leader; returns the replica that was read from, -1 for none."""
        node_id, self.preferred_read_replica = self.preferred_read_replica, -1
        return node_id

    def lag(self, read_committed: bool) -> int | None:
        """Records between the position and the end of what may be read, None when one is not known."""
        end = self.last_stable_offset if read_committed else self.high_watermark
        position = self.buffer.position
        return None if end is None or position < 0 else max(end - position, 0)


class SubscriptionState:
    """Topics subscribed to and partitions assigned. On the loop's thread.

    `make_buffer` gives a new partition its buffer. `version` grows with every change of the assignment.
    """

    def __init__(self, default_reset: OffsetReset, make_buffer: Callable[[TopicPartition], PartitionBuffer]) -> None:
        self.default_reset = default_reset
        self.type = SubscriptionType.NONE
        self.topics: frozenset[str] = frozenset()
        """Topics subscribed to, by name or because they match the pattern; those of assign() when assigned by hand."""
        self.group_topics: frozenset[str] = frozenset()
        """Topics the whole group needs metadata of, while this member is its leader."""
        self.pattern: re.Pattern[str] | None = None
        self.server_pattern: str | None = None
        """An expression (RE2) that the broker resolves, in the consumer protocol (KIP-848)."""
        self.listener: ConsumerRebalanceListener | None = None
        self.version = 0
        self._make_buffer = make_buffer
        self._assignment: dict[TopicPartition, PartitionState] = {}

    # --- what is read ---------------------------------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str], listener: ConsumerRebalanceListener | None) -> bool:
        """Subscribes to topics by name instead of those before; whether they differ. IllegalStateError."""
        self._become(SubscriptionType.TOPICS)
        self.listener = listener
        changed = self._change_topics(topics)
        for state in self._assignment.values():
            state.subscribed = state.topic_partition.topic in self.topics
        return changed

    def subscribe_pattern(self, pattern: re.Pattern[str], listener: ConsumerRebalanceListener | None) -> None:
        """Subscribes to all topics whose names the pattern matches at their beginning. IllegalStateError."""
        self._become(SubscriptionType.PATTERN)
        self.listener = listener
        self.pattern = pattern

    def subscribe_server_pattern(self, pattern: str, listener: ConsumerRebalanceListener | None) -> None:
        """Subscribes to what the broker says that the expression matches. IllegalStateError."""
        self._become(SubscriptionType.SERVER_PATTERN)
        self.listener = listener
        self.server_pattern = pattern

    def subscribe_matching(self, topics: Iterable[str]) -> bool:
        """Chooses those of the topics that the pattern matches; whether that changes the subscription."""
        if self.pattern is None:
            return False
        match = self.pattern.match
        return self._change_topics(topic for topic in topics if match(topic))

    def assign_by_user(self, partitions: Iterable[TopicPartition]) -> bool:
        """Assigns partitions by hand instead of those before; whether they differ. IllegalStateError."""
        self._become(SubscriptionType.ASSIGNED)
        wanted = dict.fromkeys(partitions)
        if wanted.keys() == self._assignment.keys():
            return False
        self._replace(wanted)
        self._change_topics(partition.topic for partition in wanted)
        return True

    def assign_from_subscribed(self, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Takes what the group (or a subscription without one) gives; returns what is new.

        New partitions give no records until `callback_done`.
        """
        if not self.auto_assigned:
            raise IllegalStateError("Partitions cannot be assigned by the group while they are assigned by hand")
        wanted = dict.fromkeys(partitions)
        added = set(wanted).difference(self._assignment)
        self._replace(wanted)
        for partition in added:
            self._assignment[partition].pending_assigned = True
        return added

    def callback_done(self, partitions: Iterable[TopicPartition]) -> None:
        """The listener knows of these now."""
        for state in self.states(partitions):
            state.pending_assigned = False

    def mark_pending_revocation(self, partitions: Iterable[TopicPartition]) -> None:
        """No record of these is given to the user any more."""
        for state in self.states(partitions):
            state.pending_revocation = True

    def unsubscribe(self) -> None:
        """Back to nothing."""
        self._replace({})
        self.topics = self.group_topics = frozenset()
        self.pattern = self.server_pattern = None
        self.listener = None
        self.type = SubscriptionType.NONE

    def matches_subscription(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether all of these are of topics that are subscribed to."""
        if self.pattern is not None:
            return all(self.pattern.match(partition.topic) for partition in partitions)
        return all(partition.topic in self.topics for partition in partitions)

    @property
    def auto_assigned(self) -> bool:
        """Whether partitions follow from a subscription."""
        return self.type not in (SubscriptionType.NONE, SubscriptionType.ASSIGNED)

    @property
    def subscription(self) -> set[str]:
        """The topics subscribed to; none while partitions are assigned by hand."""
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
        """Keeps the states of partitions that stay, drops the buffers of those that go."""
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
        """The states of all assigned partitions, in the order in which they are to be fetched."""
        return list(self._assignment.values())

    def is_assigned(self, partition: TopicPartition) -> bool:
        """Whether the partition is assigned."""
        return partition in self._assignment

    def get(self, partition: TopicPartition) -> PartitionState | None:
        """The state of a partition, None when it is not assigned (any more)."""
        return self._assignment.get(partition)

    def state_of(self, partition: TopicPartition) -> PartitionState:
        """The state of a partition. NotAssignedError."""
        state = self._assignment.get(partition)
        if state is None:
            raise NotAssignedError(f"No current assignment for partition {partition}")
        return state

    def states(self, partitions: Iterable[TopicPartition]) -> list[PartitionState]:
        """The states of those partitions that are assigned."""
        return [state for partition in partitions if (state := self._assignment.get(partition)) is not None]

    def in_state(self, wanted: FetchState, now: float | None = None) -> list[PartitionState]:
        """Partitions in a state; with `now`, those whose next attempt is due."""
        return [
            state
            for state in self._assignment.values()
            if state.state is wanted and (now is None or now >= state.retry_at)
        ]

    def move_to_end(self, partition: TopicPartition) -> None:
        """Others come first in the next request."""
        state = self._assignment.pop(partition, None)
        if state is not None:
            self._assignment[partition] = state

    @property
    def has_all_positions(self) -> bool:
        """Whether every partition has a valid position."""
        return all(state.has_valid_position for state in self._assignment.values())

    def all_consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The valid positions, as offsets to commit."""
        return {
            state.topic_partition: OffsetAndMetadata(state.buffer.position, "", state.buffer.position_epoch)
            for state in self._assignment.values()
            if state.has_valid_position and state.buffer.position >= 0
        }

    # --- resets and validation ------------------------------------------------------------------------------------

    def reset_initializing(self, partitions: Iterable[TopicPartition]) -> None:
        """Resets those of the partitions that still have no position by the policy. NoOffsetForPartitionError."""
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
        """A reset found its offset; ignored when the partition has gone another way meanwhile."""
        state = self._assignment.get(partition)
        if state is None or state.state is not FetchState.AWAIT_RESET or state.reset != reset:
            return
        logger.info("Resetting offset of partition %s to %d (%s)", partition, offset, reset.name)
        # Without an epoch nothing is validated: the leader has just named the offset.
        state.seek_unvalidated(offset, -1, leader)

    def complete_validation(
        self, partition: TopicPartition, asked: tuple[int, int, LeaderAndEpoch], epoch: int, end_offset: int
    ) -> LogTruncation | None:
        """The leader's answer for the position `asked` (offset, epoch, leader): up to which `end_offset` the log has
        `epoch`.

        -1 and -1 when it knows no such epoch. Returns what the user has to hear of: a position that the log does not
        have, without a policy to choose another.
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
            # What was fetched ahead is not in the log any more. The user has not seen it; the position is asked about
            # next.
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
