"""The migration of groups with members: classic to consumer and back (KIP-848).

Source: the conversions in GroupMetadataManager, ConsumerGroup.fromClassicGroup and ClassicGroup.fromConsumerGroup.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from kafkapy.coordinator.group.assignors.api import Partitions
from kafkapy.coordinator.group.classic.group import (
    CONSUMER_PROTOCOL_TYPE,
    ClassicGroup,
    ClassicGroupMember,
)
from kafkapy.coordinator.group.classic.rebalance import ClassicRebalance
from kafkapy.coordinator.group.classic.records import group_metadata
from kafkapy.coordinator.group.consumer import records as records_of
from kafkapy.coordinator.group.consumer.group import ConsumerGroup
from kafkapy.coordinator.group.consumer.member import ClassicMetadata, ConsumerGroupMember
from kafkapy.coordinator.group.consumer.protocol import (
    DecodeError,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    partitions_by_id,
    version_of,
)
from kafkapy.coordinator.group.modern.partitions import NO_PARTITIONS
from kafkapy.coordinator.group.modern.topics import GroupTopics
from kafkapy.coordinator.records import CoordinatorRecord
from kafkapy.errors import ErrorCode, KafkaError, error_for
from kafkapy.metadata.cache import MetadataSnapshot
from kafkapy.protocol.messages.group_metadata_records import GroupMetadataValue

if TYPE_CHECKING:
    from kafkapy.coordinator.clock import Clock
    from kafkapy.coordinator.group.config import GroupConfig

logger = logging.getLogger("kafka.coordinator.group.GroupCoordinator")

Records = list[CoordinatorRecord]


class ConsumerMigration:
    """Converts groups in one shard.

    Owned by a GroupShard; used on the control loop's thread.
    """

    def __init__(
        self,
        rebalance: ClassicRebalance,
        clock: Clock,
        config: GroupConfig,
        metadata: Callable[[], MetadataSnapshot],
    ) -> None:
        self._rebalance = rebalance
        self._clock = clock
        self._config = config
        self._metadata = metadata
        self._converted: tuple[GroupMetadataValue, ClassicGroup] | None = None

    def take_converted(self, value: GroupMetadataValue) -> ClassicGroup | None:
        """The classic group that a downgrade has just made, for its record.

        It has more data than the record, such as all protocols of its members.
        """
        converted, self._converted = self._converted, None
        return converted[1] if converted is not None and converted[0] is value else None

    # --- classic to consumer ----------------------------------------------------------------------------------------

    def upgrade(self, classic: ClassicGroup, records: Records) -> ConsumerGroup:
        """A consumer group for a classic group with members.

        Its records are added to `records`. GROUP_ID_NOT_FOUND when the upgrade is not allowed, or not possible.
        """
        self._check_upgrade(classic)
        try:
            members = [self._upgraded(classic, each) for each in classic.members.values()]
        except DecodeError as error:
            raise _no_upgrade(classic, "the embedded consumer protocol is malformed") from error
        group = ConsumerGroup(classic.group_id)
        group.epoch = group.assignment_epoch = classic.generation_id
        for member in members:
            group.put(member)
            group.target[member.member_id] = member.assigned
        group.metadata_hash = GroupTopics(self._metadata()).hash_of(group.subscriptions().topics)
        records += classic.tombstones()
        records += [records_of.member(group.group_id, each) for each in members]
        records.append(records_of.epoch(group.group_id, group.epoch, group.metadata_hash))
        records += [records_of.target(group.group_id, each.member_id, each.assigned) for each in members]
        records.append(records_of.target_epoch(group.group_id, group.epoch))
        records += [records_of.current_assignment(group.group_id, each) for each in members]
        logger.info("Classic group %s becomes a consumer group", group.group_id)
        return group

    def _check_upgrade(self, classic: ClassicGroup) -> None:
        if not self._config.migration_policy.may_upgrade:
            raise _no_upgrade(classic, "online upgrade is disabled")
        if classic.protocol_type != CONSUMER_PROTOCOL_TYPE:
            raise _no_upgrade(classic, "the group does not use the consumer embedded protocol")
        if len(classic.members) > self._config.consumer_max_size:
            raise _no_upgrade(classic, "the group size exceeds the consumer group maximum size")

    def _upgraded(self, classic: ClassicGroup, member: ClassicGroupMember) -> ConsumerGroupMember:
        snapshot = self._metadata()
        assigned: Partitions = NO_PARTITIONS
        if member.assignment:
            assignment = decode_assignment(member.assignment)
            if assignment.user_data:
                raise error_for(
                    ErrorCode.GROUP_ID_NOT_FOUND,
                    f"Cannot upgrade classic group {classic.group_id} to consumer group because an unsupported custom "
                    "assignor is in use. Please refer to the documentation or switch to a default assignor before "
                    "re-attempting the upgrade.",
                )
            assigned = partitions_by_id(assignment.assigned_partitions, snapshot)
        # In the first rebalance of a group no protocol has been chosen yet.
        protocol = classic.protocol_name or classic.select_protocol()
        subscription = decode_subscription(member.metadata(protocol))
        return ConsumerGroupMember(
            member.member_id,
            member_epoch=classic.generation_id,
            previous_member_epoch=classic.generation_id,
            instance_id=member.group_instance_id,
            rack_id=subscription.rack_id or None,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            client_id=member.client_id,
            client_host=member.client_host,
            topic_names=frozenset(subscription.topics),
            assigned=assigned,
            classic=ClassicMetadata(member.session_timeout_ms, member.protocols),
        )

    # --- consumer to classic ----------------------------------------------------------------------------------------

    def may_downgrade_without(self, group: ConsumerGroup, gone: Collection[ConsumerGroupMember]) -> bool:
        """Whether the group becomes classic without some members."""
        left = len(group.members) - len(gone)
        return left > 0 and group.all_classic_without(gone) and self._may_downgrade(group, left)

    def may_downgrade_by_replacing(self, group: ConsumerGroup, replaced: ConsumerGroupMember) -> bool:
        """Whether the group becomes classic when a classic member replaces one."""
        last_one = replaced.classic is None and group.all_classic_without([replaced])
        return last_one and self._may_downgrade(group, len(group.members))

    def _may_downgrade(self, group: ConsumerGroup, size: int) -> bool:
        if not self._config.migration_policy.may_downgrade:
            reason = "the online downgrade is disabled"
        elif size > self._config.max_size:
            reason = "its group size is greater than classic group max size"
        else:
            return True
        logger.info("Consumer group %s cannot become a classic group because %s", group.group_id, reason)
        return False

    def downgrade(
        self,
        group: ConsumerGroup,
        gone: Collection[ConsumerGroupMember],
        joining: ConsumerGroupMember | None,
        *,
        rebalance: bool,
        records: Records,
    ) -> None:
        """Make the group classic.

        It loses the members that are `gone`, or `joining` replaces the static member of its instance id, whose
        replacement is in the records already.

        With `rebalance`, or when the members have not reached the target assignment, they have to join again.
        GROUP_ID_NOT_FOUND when a member's classic metadata cannot be decoded.
        """
        replaced = None if joining is None else group.static_member(joining.instance_id)
        ids = list(group.members)
        if joining is not None and replaced is not None:
            ids[ids.index(replaced.member_id)] = joining.member_id
        records += records_of.group_tombstones(group.group_id, ids, group.resolved)
        left = [each for each in group.members.values() if each not in gone and each is not replaced]
        assigned = {each.member_id: group.target.get(each.member_id, NO_PARTITIONS) for each in left}
        if joining is not None:
            left.append(joining)
            assigned[joining.member_id] = group.target_of(joining)
        # Members that are on their way to the target have to join again, or two of them could have the same partition.
        rebalance = rebalance or any(
            each.assigned != assigned[each.member_id] or each.pending_revocation for each in left
        )
        if rebalance:
            # They keep these partitions until then: the group may become a consumer group again before they have
            # joined.
            assigned = {each.member_id: _held(each) for each in left}
        try:
            classic = self._downgraded(group, left, assigned)
        except (DecodeError, ValueError) as error:
            raise error_for(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Cannot downgrade the consumer group {group.group_id}: {error}."
            ) from error
        record = group_metadata(classic, classic.assignments())
        records.append(record)
        assert isinstance(record.value, GroupMetadataValue)
        self._converted = record.value, classic
        for member in classic.members.values():
            self._rebalance.schedule_heartbeat(classic, member)
        if rebalance:
            self._rebalance.prepare(classic, "downgrade from consumer to classic")
        logger.info("Consumer group %s became a classic group", group.group_id)

    def _downgraded(
        self, group: ConsumerGroup, members: list[ConsumerGroupMember], assigned: dict[str, Partitions]
    ) -> ClassicGroup:
        snapshot = self._metadata()
        classic = ClassicGroup.stable(group.group_id, group.epoch, self._clock.time_ms())
        for each in members:
            if each.classic is None:
                raise ValueError(f"member {each.member_id} does not speak the classic protocol")
            classic.add(
                ClassicGroupMember(
                    each.member_id,
                    each.instance_id,
                    each.client_id,
                    each.client_host,
                    each.rebalance_timeout_ms,
                    each.classic.session_timeout_ms,
                    CONSUMER_PROTOCOL_TYPE,
                    each.classic.protocols,
                    encode_assignment(assigned[each.member_id], snapshot, version_of(each.classic.protocols)),
                )
            )
        classic.choose_protocol()
        return classic


def _held(member: ConsumerGroupMember) -> Partitions:
    held = dict(member.assigned)
    for topic_id, numbers in member.pending_revocation.items():
        held[topic_id] = held.get(topic_id, frozenset()) | numbers
    return held


def replacement_of(member: ConsumerGroupMember, member_id: str) -> ConsumerGroupMember:
    """A static member under a new id.

    It keeps its partitions, in an epoch from which it moves to the group's.
    """
    return member._replace(member_id=member_id, member_epoch=0, previous_member_epoch=0)


def _no_upgrade(classic: ClassicGroup, reason: str) -> KafkaError:
    logger.info("Classic group %s cannot become a consumer group because %s", classic.group_id, reason)
    return error_for(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {classic.group_id} to consumer group because {reason}.",
    )
