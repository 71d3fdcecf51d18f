"""One group of the classic protocol: its members, state and generation, and the rules between them.

Source: org.apache.kafka.coordinator.group.classic.ClassicGroup, ClassicGroupMember and ClassicGroupState. What happens
when (rebalances, timeouts, answers) is in rebalance.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from kafkapy.coordinator.group.group import Group, GroupType
from kafkapy.coordinator.group.records import group_metadata_tombstone
from kafkapy.errors import ErrorCode, KafkaError, error_for
from kafkapy.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from kafkapy.protocol.messages.join_group import JoinGroupResponse
from kafkapy.protocol.messages.sync_group import SyncGroupResponse
from kafkapy.protocol.schema import DecodeError

if TYPE_CHECKING:
    from kafkapy.coordinator.group.offsets import CommittedOffset
    from kafkapy.coordinator.records import CoordinatorRecord
    from kafkapy.coordinator.result import Later
    from kafkapy.protocol.messages.group_metadata_records import GroupMetadataValue

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
NO_MEMBER: Final = ""
NO_LEADER: Final = ""

Protocols = tuple[tuple[str, bytes], ...]
"""(name, metadata) of what a member supports, what it likes best first."""


class ClassicGroupState(Enum):
    """The values are Kafka's names."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


EMPTY, PREPARING_REBALANCE, COMPLETING_REBALANCE, STABLE, DEAD = ClassicGroupState

_VALID_PREVIOUS: Final = {
    EMPTY: {PREPARING_REBALANCE},
    PREPARING_REBALANCE: {STABLE, COMPLETING_REBALANCE, EMPTY},
    COMPLETING_REBALANCE: {PREPARING_REBALANCE},
    STABLE: {COMPLETING_REBALANCE},
    DEAD: set(ClassicGroupState),
}


@dataclass(slots=True, eq=False)
class ClassicGroupMember:
    """One member. Owned by its group; changed on the control loop's thread. Times in ms."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False
    """It has never got an answer, so it does not send heartbeats yet."""
    awaiting_join: Later[JoinGroupResponse] | None = field(default=None, repr=False)
    awaiting_sync: Later[SyncGroupResponse] | None = field(default=None, repr=False)

    @property
    def is_static(self) -> bool:
        """Whether it has a group.instance.id (KIP-345)."""
        return self.group_instance_id is not None

    @property
    def is_alive_by_waiting(self) -> bool:
        """Whether its waiting for an answer counts as a heartbeat."""
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)

    def metadata(self, protocol: str) -> bytes:
        """What it says through a protocol. ValueError for one that it does not support."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        raise ValueError(f"member {self.member_id} does not support protocol {protocol}")

    def vote(self, candidates: set[str]) -> str:
        """The candidate it likes best. ValueError when it supports none."""
        for name, _ in self.protocols:
            if name in candidates:
                return name
        raise ValueError(f"member {self.member_id} supports none of the candidates")


class ClassicGroup(Group):
    """Owned by a GroupShard; changed by ClassicRebalance and ClassicRequests, on the control loop's thread."""

    type = GroupType.CLASSIC

    def __init__(self, group_id: str, now_ms: int) -> None:
        super().__init__(group_id)
        self.state = EMPTY
        self.previous_state = DEAD
        self.state_timestamp_ms = now_ms
        self.generation_id = 0
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, ClassicGroupMember] = {}
        self.static_members: dict[str, str] = {}
        """Member id by group.instance.id."""
        self.pending_join: set[str] = set()
        """Member ids that were given out and have not joined yet (KIP-394)."""
        self.pending_sync: set[str] = set()
        """Members of this generation that have not asked for their assignment yet."""
        self.awaiting_join_count = 0
        self.new_member_added = False
        """Somebody has joined since the first rebalance was last put off."""
        self.subscribed_topics: frozenset[str] | None = None
        """Topics that members read; None when that is not known."""
        self.is_recorded = False
        """Whether the log holds a record of it, so that it needs a tombstone."""
        self._protocol_type: str | None = None
        self._supporters: dict[str, int] = {}

    @classmethod
    def from_record(cls, group_id: str, value: GroupMetadataValue) -> ClassicGroup:
        """The group as it stands in the log."""
        group = cls(group_id, value.current_state_timestamp)
        group.state = STABLE if value.members else EMPTY
        group.generation_id = value.generation
        group._protocol_type = value.protocol_type or None
        group.protocol_name = value.protocol
        group.leader_id = value.leader
        group.is_recorded = True
        for each in value.members:
            timeout = each.session_timeout if each.rebalance_timeout == -1 else each.rebalance_timeout
            group.add(
                ClassicGroupMember(
                    each.member_id,
                    each.group_instance_id,
                    each.client_id,
                    each.client_host,
                    timeout,
                    each.session_timeout,
                    value.protocol_type,
                    ((value.protocol or "", each.subscription),),
                    each.assignment,
                )
            )
        group.subscribed_topics = group._compute_subscribed_topics()
        return group

    @classmethod
    def stable(cls, group_id: str, generation_id: int, now_ms: int) -> ClassicGroup:
        """A consumer group that becomes classic, in the generation of its epoch and without its members yet."""
        group = cls(group_id, now_ms)
        group.state = STABLE
        group.generation_id = generation_id
        group._protocol_type = CONSUMER_PROTOCOL_TYPE
        return group

    def choose_protocol(self) -> None:
        """Settle on the protocol of a generation, and on what its members read."""
        self.protocol_name = self.select_protocol()
        self.subscribed_topics = self._compute_subscribed_topics()

    def take_over(self, value: GroupMetadataValue) -> None:
        """A record of the group that was made here a moment ago: the assignments are what is new in it."""
        self.is_recorded = True
        for each in value.members:
            member = self.members.get(each.member_id)
            if member is not None:
                member.assignment = each.assignment

    # --- what it is -------------------------------------------------------------------------------------------------

    @property
    def state_name(self) -> str:
        """See Group."""
        return self.state.value

    @property
    def protocol_type(self) -> str | None:
        """See Group."""
        return self._protocol_type

    @property
    def is_empty(self) -> bool:
        """See Group."""
        return self.state in (EMPTY, DEAD)

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest that a member asks for."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def has_all_members_joined(self) -> bool:
        """Whether every member waits for the next generation, and nobody was told to come back."""
        return len(self.members) == self.awaiting_join_count and not self.pending_join

    @property
    def can_rebalance(self) -> bool:
        """Whether a rebalance may begin now."""
        return self.state in _VALID_PREVIOUS[PREPARING_REBALANCE]

    def is_leader(self, member_id: str) -> bool:
        """Whether the member leads the generation."""
        return self.leader_id == member_id

    def assignments(self) -> dict[str, bytes]:
        """Member id to assignment."""
        return {member.member_id: member.assignment for member in self.members.values()}

    # --- members ----------------------------------------------------------------------------------------------------

    def new_member_id(self, client_id: str, group_instance_id: str | None) -> str:
        """A member id that nobody has had."""
        return f"{client_id if group_instance_id is None else group_instance_id}-{uuid4()}"

    def add(self, member: ClassicGroupMember, awaiting_join: Later[JoinGroupResponse] | None = None) -> None:
        """Take in a member; its protocols must be checked before."""
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        if not self.members:
            self._protocol_type = member.protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._count_protocols(member, 1)
        member.awaiting_join = awaiting_join
        if awaiting_join is not None:
            self.awaiting_join_count += 1
        self.pending_join.discard(member.member_id)

    def remove(self, member_id: str) -> None:
        """Let a member go, or one that was to come back. What it waits for must be answered before."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count_protocols(member, -1)
            if member.awaiting_join is not None:
                self.awaiting_join_count -= 1
            if member.group_instance_id is not None and self.static_members.get(member.group_instance_id) == member_id:
                del self.static_members[member.group_instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_join.discard(member_id)
        self.pending_sync.discard(member_id)

    def update(
        self,
        member: ClassicGroupMember,
        protocols: Protocols,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        awaiting_join: Later[JoinGroupResponse] | None,
    ) -> None:
        """A member joins again, perhaps with other metadata."""
        self._count_protocols(member, -1)
        member.protocols = protocols
        self._count_protocols(member, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms
        before = member.awaiting_join
        self.awaiting_join_count += (awaiting_join is not None) - (before is not None)
        member.awaiting_join = awaiting_join
        if before is not None and before is not awaiting_join:
            # Kafka leaves the earlier request without any answer; its client has most likely given it up.
            before.set(join_error(member.member_id, ErrorCode.REBALANCE_IN_PROGRESS))

    def replace_static_member(self, group_instance_id: str, new_member_id: str) -> ClassicGroupMember:
        """A static member is back under a new id. Whoever waits under the old one is fenced."""
        old_id = self.static_members[group_instance_id]
        old = self.members.pop(old_id)
        self.answer_join(old, join_error(old_id, ErrorCode.FENCED_INSTANCE_ID))
        self.answer_sync(old, SyncGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID, assignment=b""))
        new = ClassicGroupMember(
            new_member_id,
            group_instance_id,
            old.client_id,
            old.client_host,
            old.rebalance_timeout_ms,
            old.session_timeout_ms,
            old.protocol_type,
            old.protocols,
            old.assignment,
        )
        self.members[new_member_id] = new
        if self.leader_id == old_id:
            self.leader_id = new_member_id
        if old_id in self.pending_sync:
            self.pending_sync.discard(old_id)
            self.pending_sync.add(new_member_id)
        self.static_members[group_instance_id] = new_member_id
        return new

    def elect_joined_leader(self) -> bool:
        """Make sure that the leader is one who has joined; False when nobody has."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].awaiting_join is not None:
            return True
        for member in self.members.values():
            if member.awaiting_join is not None:
                self.leader_id = member.member_id
                return True
        return False

    def validate_member(self, member_id: str, group_instance_id: str | None) -> ClassicGroupMember:
        """The member. UNKNOWN_MEMBER_ID; FENCED_INSTANCE_ID for a static member that was replaced."""
        if group_instance_id is not None:
            current = self.static_members.get(group_instance_id)
            if current is None:
                raise error_for(ErrorCode.UNKNOWN_MEMBER_ID)
            if current != member_id:
                raise error_for(ErrorCode.FENCED_INSTANCE_ID)
        member = self.members.get(member_id)
        if member is None:
            raise error_for(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    # --- answers ----------------------------------------------------------------------------------------------------

    def answer_join(self, member: ClassicGroupMember, response: JoinGroupResponse) -> bool:
        """Answer the JoinGroup that a member waits for; False when it does not."""
        waiting = member.awaiting_join
        if waiting is None:
            return False
        member.awaiting_join = None
        self.awaiting_join_count -= 1
        waiting.set(response)
        return True

    def answer_sync(self, member: ClassicGroupMember, response: SyncGroupResponse) -> bool:
        """Answer the SyncGroup that a member waits for; False when it does not."""
        waiting = member.awaiting_sync
        if waiting is None:
            return False
        member.awaiting_sync = None
        waiting.set(response)
        return True

    def joined(self, member_id: str, *, skip_assignment: bool = False) -> JoinGroupResponse:
        """The generation as it is told to a member: the leader gets all members with it."""
        return JoinGroupResponse(
            generation_id=self.generation_id,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=self.leader_id or NO_LEADER,
            skip_assignment=skip_assignment,
            member_id=member_id,
            members=self.joined_members() if self.is_leader(member_id) else [],
        )

    def joined_members(self) -> list[JoinGroupResponse.Member]:
        """All members with their metadata, for the leader."""
        name = self.protocol_name or ""
        return [
            JoinGroupResponse.Member(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.metadata(name),
            )
            for member in self.members.values()
        ]

    def unloaded(self, error: KafkaError) -> None:
        """See Group."""
        self.transition_to(DEAD)
        for member in self.members.values():
            self.answer_join(member, join_error(member.member_id, error.code))
            self.answer_sync(member, SyncGroupResponse(error_code=error.code, assignment=b""))

    # --- states and generations -------------------------------------------------------------------------------------

    def transition_to(self, state: ClassicGroupState, now_ms: int | None = None) -> None:
        """Go to another state. RuntimeError when there is no way from here."""
        if self.state not in _VALID_PREVIOUS[state]:
            raise RuntimeError(f"group {self.group_id} cannot go from {self.state.value} to {state.value}")
        self.previous_state = self.state
        self.state = state
        if now_ms is not None:
            self.state_timestamp_ms = now_ms

    def next_generation(self, now_ms: int) -> None:
        """Begin a generation with the members that there are; without any the group is empty."""
        self.generation_id += 1
        if self.members:
            self.protocol_name = self.select_protocol()
            self.transition_to(COMPLETING_REBALANCE, now_ms)
        else:
            self.protocol_name = None
            self.transition_to(EMPTY, now_ms)
        self.subscribed_topics = self._compute_subscribed_topics()
        self.pending_sync.clear()

    # --- protocols --------------------------------------------------------------------------------------------------

    def supports_protocols(self, protocol_type: str, protocols: Iterable[str]) -> bool:
        """Whether somebody with these protocols can be a member: one of them must be everybody's."""
        names = list(protocols)
        if self.state is EMPTY:
            return bool(protocol_type) and bool(names)
        if protocol_type != self._protocol_type:
            return False
        return any(self._supporters.get(name, 0) == len(self.members) for name in names)

    def select_protocol(self) -> str:
        """The protocol of all members that most of them like best; among equals what the first member prefers."""
        candidates = {name for name, count in self._supporters.items() if count == len(self.members)}
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = member.vote(candidates)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=lambda name: votes[name])

    def _count_protocols(self, member: ClassicGroupMember, change: int) -> None:
        for name in {name for name, _ in member.protocols}:
            self._supporters[name] = self._supporters.get(name, 0) + change
            if not self._supporters[name]:
                del self._supporters[name]

    def _compute_subscribed_topics(self) -> frozenset[str] | None:
        if self._protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            try:
                metadata = member.metadata(self.protocol_name)
                # Every version begins with what version 0 holds, whatever a future one may add.
                subscription, _ = ConsumerProtocolSubscription.decode_from(metadata, 2, 0)
            except (DecodeError, ValueError):
                return None
            topics.update(subscription.topics)
        return frozenset(topics)

    # --- offsets ----------------------------------------------------------------------------------------------------

    def validate_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_id: int,
        api_version: int,
        *,
        transactional: bool = False,
    ) -> None:
        """See Group."""
        if self.state is DEAD:
            raise error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if generation_id < 0 and self.state is EMPTY:
            return  # an administrator, or a consumer that assigns its partitions itself
        if generation_id >= 0 or member_id or group_instance_id is not None:
            self.validate_member(member_id, group_instance_id)
            if generation_id != self.generation_id:
                raise error_for(ErrorCode.ILLEGAL_GENERATION)
        elif not transactional:
            raise error_for(ErrorCode.UNKNOWN_MEMBER_ID)
        if not transactional and self.state is COMPLETING_REBALANCE:
            # The member knows the new generation, but not yet what it owns in it.
            raise error_for(ErrorCode.REBALANCE_IN_PROGRESS)

    def offset_commit_seen(self, member_id: str) -> bool:
        """See Group."""
        return member_id in self.members and self.state in (STABLE, PREPARING_REBALANCE)

    def validate_offset_delete(self) -> None:
        """See Group."""
        if self.state is DEAD:
            raise error_for(ErrorCode.GROUP_ID_NOT_FOUND)
        if self.state is not EMPTY and self._protocol_type != CONSUMER_PROTOCOL_TYPE:
            raise error_for(ErrorCode.NON_EMPTY_GROUP)

    def is_subscribed_to(self, topic: str) -> bool:
        """See Group."""
        if self.subscribed_topics is None:
            return self._protocol_type == CONSUMER_PROTOCOL_TYPE
        return topic in self.subscribed_topics

    def expires_since_ms(self, offset: CommittedOffset) -> int | None:
        """See Group."""
        if self._protocol_type is None:
            return offset.commit_timestamp_ms
        if self.state is EMPTY:
            return self.state_timestamp_ms if self.state_timestamp_ms >= 0 else offset.commit_timestamp_ms
        if (
            self.state is STABLE
            and self._protocol_type == CONSUMER_PROTOCOL_TYPE
            and self.subscribed_topics is not None
        ):
            return offset.commit_timestamp_ms
        return None

    def tombstones(self) -> list[CoordinatorRecord]:
        """See Group."""
        return [group_metadata_tombstone(self.group_id)]


def join_error(member_id: str, error: ErrorCode) -> JoinGroupResponse:
    """A JoinGroup response that says only what went wrong."""
    return JoinGroupResponse(error_code=error, member_id=member_id, protocol_name=None, leader=NO_LEADER, members=[])
