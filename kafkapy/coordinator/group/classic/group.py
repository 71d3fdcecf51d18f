"""One classic group: members, state and generation, and the rules between them.

The timing (rebalances, timeouts, answers) is in rebalance.py. Source:
org.apache.kafka.coordinator.group.classic.ClassicGroup, ClassicGroupMember and ClassicGroupState.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from kafkapy.coordinator.group.group import Group, GroupType, LeaseTerms
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
"""(name, metadata) of the protocols that a member supports, in order of preference."""


class ClassicGroupState(Enum):
    """The state of a classic group; the values are Kafka's names."""

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
    """One member of a classic group. Times in ms.

    Owned by its group; changed on the control loop's thread.
    """

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
    """The member has never got an answer, so it does not send heartbeats yet."""
    awaiting_join: Later[JoinGroupResponse] | None = field(default=None, repr=False)
    awaiting_sync: Later[SyncGroupResponse] | None = field(default=None, repr=False)
    committed_at_ms: int | None = None
    """The monotonic time of the last commit that a network thread has served."""

    @property
    def is_static(self) -> bool:
        """Whether the member has a group.instance.id (KIP-345)."""
        return self.group_instance_id is not None

    @property
    def is_alive_by_waiting(self) -> bool:
        """Whether an open request of the member counts as a heartbeat."""
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)

    def metadata(self, protocol: str) -> bytes:
        """The member's metadata for a protocol. ValueError for an unsupported one."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        raise ValueError(f"member {self.member_id} does not support protocol {protocol}")

    def vote(self, candidates: set[str]) -> str:
        """The candidate that the member prefers. ValueError when it supports none."""
        for name, _ in self.protocols:
            if name in candidates:
                return name
        raise ValueError(f"member {self.member_id} supports none of the candidates")


class ClassicGroup(Group):
    """One group of the classic protocol.

    Owned by a GroupShard; changed by ClassicRebalance and ClassicRequests, on the control loop's thread.
    """

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
        """Assigned member ids whose members have not joined yet (KIP-394)."""
        self.pending_sync: set[str] = set()
        """Members of this generation that have not sent SyncGroup yet."""
        self.awaiting_join_count = 0
        self.new_member_added = False
        """A member has joined since the last delay of the first rebalance."""
        self.subscribed_topics: frozenset[str] | None = None
        """Topics that members read; None when they are not known."""
        self.is_recorded = False
        """The log holds a record of the group or of its offsets, so that it needs a tombstone: a load reads either."""
        self._protocol_type: str | None = None
        self._supporters: dict[str, int] = {}

    @classmethod
    def from_record(cls, group_id: str, value: GroupMetadataValue) -> ClassicGroup:
        """The group of a record in the log."""
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
        """A consumer group that becomes classic.

        Its generation is the group's epoch; its members are not in it yet.
        """
        group = cls(group_id, now_ms)
        group.state = STABLE
        group.generation_id = generation_id
        group._protocol_type = CONSUMER_PROTOCOL_TYPE
        return group

    def choose_protocol(self) -> None:
        """Choose the protocol of a generation, and derive the subscribed topics."""
        self.protocol_name = self.select_protocol()
        self.subscribed_topics = self._compute_subscribed_topics()

    def take_over(self, value: GroupMetadataValue) -> None:
        """Apply a record of the group that this broker has just written.

        Only the assignments in it are new.
        """
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
        """The longest rebalance timeout of the members, in ms."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def has_all_members_joined(self) -> bool:
        """Whether every member has rejoined, and no assigned member id is pending."""
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
        """A new, unique member id."""
        return f"{client_id if group_instance_id is None else group_instance_id}-{uuid4()}"

    def add(self, member: ClassicGroupMember, awaiting_join: Later[JoinGroupResponse] | None = None) -> None:
        """Add a member, whose protocols the caller has checked."""
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
        """Remove a member, or a pending member id.

        The caller must have answered its open requests.
        """
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
        """Update a member that joins again, perhaps with other metadata."""
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
        """Replace the id of a static member that joins again.

        Requests that wait under the old id are fenced.
        """
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
        """Choose a leader among the joined members; False without any."""
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
        """The member of that id.

        UNKNOWN_MEMBER_ID; FENCED_INSTANCE_ID for a static member that was replaced.
        """
        refusal = self.refusal(member_id, group_instance_id)
        if refusal is not ErrorCode.NONE:
            raise error_for(refusal)
        return self.members[member_id]

    def refusal(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """Why there is no such member; NONE for a member."""
        if group_instance_id is not None:
            current = self.static_members.get(group_instance_id)
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    # --- answers ----------------------------------------------------------------------------------------------------

    def answer_join(self, member: ClassicGroupMember, response: JoinGroupResponse) -> bool:
        """Answer the member's open JoinGroup; False without one."""
        waiting = member.awaiting_join
        if waiting is None:
            return False
        member.awaiting_join = None
        self.awaiting_join_count -= 1
        waiting.set(response)
        return True

    def answer_sync(self, member: ClassicGroupMember, response: SyncGroupResponse) -> bool:
        """Answer the member's open SyncGroup; False without one."""
        waiting = member.awaiting_sync
        if waiting is None:
            return False
        member.awaiting_sync = None
        waiting.set(response)
        return True

    def joined(self, member_id: str, *, skip_assignment: bool = False) -> JoinGroupResponse:
        """The JoinGroup response for a member; the leader's lists all members."""
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
        """Change the state. RuntimeError for a transition that is not allowed."""
        if self.state not in _VALID_PREVIOUS[state]:
            raise RuntimeError(f"group {self.group_id} cannot go from {self.state.value} to {state.value}")
        self.previous_state = self.state
        self.state = state
        if now_ms is not None:
            self.state_timestamp_ms = now_ms

    def next_generation(self, now_ms: int) -> None:
        """Begin a generation with the present members.

        Without members the group becomes empty.
        """
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
        """Whether a member with these protocols may join.

        One of them must be common to all members.
        """
        if self.state is EMPTY:
            return bool(protocol_type) and any(True for _ in protocols)
        if protocol_type != self._protocol_type:
            return False
        return any(self._supporters.get(name, 0) == len(self.members) for name in protocols)

    def select_protocol(self) -> str:
        """The protocol that most members prefer, of those that all support.

        A tie goes to the preference of the first member.
        """
        everybody = len(self.members)
        candidates = {name for name, count in self._supporters.items() if count == everybody}
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = member.vote(candidates)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=lambda name: votes[name])

    def _count_protocols(self, member: ClassicGroupMember, change: int) -> None:
        supporters = self._supporters
        if not supporters and change > 0:
            supporters.update(dict.fromkeys([name for name, _ in member.protocols], change))
            return
        for name in {name for name, _ in member.protocols}:
            count = supporters.get(name, 0) + change
            if count:
                supporters[name] = count
            else:
                del supporters[name]

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
            # The member knows the new generation, but not yet its partitions in it.
            raise error_for(ErrorCode.REBALANCE_IN_PROGRESS)

    def lease_terms(self) -> LeaseTerms | None:
        """See Group. None while the group rebalances."""
        if self.state is EMPTY:
            return LeaseTerms(without_member=True)
        if self.state is not STABLE:
            return None
        generation = self.generation_id
        return LeaseTerms([(each.member_id, each.group_instance_id, generation) for each in self.members.values()])

    def committed(self, member_id: str, at_ms: int) -> None:
        """See Group. A commit counts as a heartbeat."""
        member = self.members.get(member_id)
        if member is not None:
            member.committed_at_ms = at_ms

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
    """A JoinGroup response that holds only an error."""
    return JoinGroupResponse(error_code=error, member_id=member_id, protocol_name=None, leader=NO_LEADER, members=[])
