"""Replays records of consumer groups: at the load, and after each write.

Source: GroupMetadataManager.replay for keys 3 to 8 and 16. Kafka refuses to load a log in which a tombstone comes
before the tombstones it should follow; here the tombstone of a group or member ends it, whatever compaction left of the
rest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafkapy.coordinator.group.consumer import records as keys
from kafkapy.coordinator.group.consumer.group import ConsumerGroup
from kafkapy.coordinator.group.consumer.member import (
    ClassicMetadata,
    ConsumerGroupMember,
    MemberState,
)
from kafkapy.coordinator.group.consumer.subscriptions import ResolvedRegex
from kafkapy.coordinator.group.group import Group
from kafkapy.coordinator.group.modern.partitions import NO_PARTITIONS, partitions_of
from kafkapy.coordinator.group.modern.requests import LEAVE_GROUP_EPOCH
from kafkapy.coordinator.records import CoordinatorRecord
from kafkapy.protocol.messages.consumer_group_records import ConsumerGroupMemberMetadataValue


class ConsumerReplay:
    """Changes the consumer groups among `groups`.

    Owned by a GroupShard; used on the control loop's thread.
    """

    def __init__(self, groups: dict[str, Group]) -> None:
        self._groups = groups
        self._appliers: dict[int, Callable[[Any, Any], None]] = {
            keys.EPOCH_KEY: self._epoch,
            keys.SUBSCRIPTION_METADATA_KEY: self._subscription_metadata,
            keys.MEMBER_KEY: self._member,
            keys.TARGET_EPOCH_KEY: self._target_epoch,
            keys.TARGET_MEMBER_KEY: self._target,
            keys.CURRENT_ASSIGNMENT_KEY: self._current_assignment,
            keys.REGULAR_EXPRESSION_KEY: self._regular_expression,
        }

    def apply(self, record: CoordinatorRecord) -> None:
        """Apply a record whose key version is one of CONSUMER_GROUP_KEYS."""
        self._appliers[record.key_version](record.key, record.value)

    def _find(self, group_id: str) -> ConsumerGroup | None:
        group = self._groups.get(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    def _get(self, group_id: str) -> ConsumerGroup:
        """The group, created if it is new.

        A classic group in its place held offsets only, or is replaced.
        """
        group = self._find(group_id)
        if group is None:
            group = self._groups[group_id] = ConsumerGroup(group_id)
        return group

    def _epoch(self, key: Any, value: Any) -> None:
        if value is not None:
            group = self._get(key.group_id)
            group.epoch = value.epoch
            group.metadata_hash = value.metadata_hash
        elif self._find(key.group_id) is not None:
            del self._groups[key.group_id]

    def _subscription_metadata(self, key: Any, value: Any) -> None:
        if value is not None:
            self._get(key.group_id).has_subscription_metadata = True
        else:
            group = self._find(key.group_id)
            if group is not None:
                group.has_subscription_metadata = False

    def _member(self, key: Any, value: ConsumerGroupMemberMetadataValue | None) -> None:
        if value is None:
            group = self._find(key.group_id)
            if group is not None:
                group.remove(key.member_id)
            return
        group = self._get(key.group_id)
        member = group.members.get(key.member_id) or ConsumerGroupMember(key.member_id)
        # Before there were such members, nothing was written where null is now.
        classic = value.classic_member_metadata
        if classic is not None and not classic.supported_protocols:
            classic = None
        group.put(
            member._replace(
                instance_id=value.instance_id,
                rack_id=value.rack_id,
                client_id=value.client_id,
                client_host=value.client_host,
                topic_names=frozenset(value.subscribed_topic_names),
                topic_regex=value.subscribed_topic_regex or "",
                rebalance_timeout_ms=value.rebalance_timeout_ms,
                server_assignor=value.server_assignor,
                classic=None
                if classic is None
                else ClassicMetadata(
                    classic.session_timeout_ms,
                    tuple((each.name, each.metadata) for each in classic.supported_protocols),
                ),
            )
        )

    def _target_epoch(self, key: Any, value: Any) -> None:
        if value is not None:
            self._get(key.group_id).assignment_epoch = value.assignment_epoch
        else:
            group = self._find(key.group_id)
            if group is not None:
                group.assignment_epoch = -1

    def _target(self, key: Any, value: Any) -> None:
        if value is not None:
            self._get(key.group_id).target[key.member_id] = partitions_of(value.topic_partitions)
        else:
            group = self._find(key.group_id)
            if group is not None:
                group.target.pop(key.member_id, None)

    def _current_assignment(self, key: Any, value: Any) -> None:
        if value is not None:
            group = self._get(key.group_id)
            member = group.members.get(key.member_id) or ConsumerGroupMember(key.member_id)
            group.put(
                member.stepped(
                    value.member_epoch,
                    value.previous_member_epoch,
                    MemberState.of(value.state),
                    partitions_of(value.assigned_partitions),
                    partitions_of(value.partitions_pending_revocation),
                )
            )
            return
        found = self._find(key.group_id)
        known = None if found is None else found.members.get(key.member_id)
        if found is not None and known is not None:
            found.put(
                known._replace(
                    member_epoch=LEAVE_GROUP_EPOCH,
                    previous_member_epoch=LEAVE_GROUP_EPOCH,
                    assigned=NO_PARTITIONS,
                    pending_revocation=NO_PARTITIONS,
                )
            )

    def _regular_expression(self, key: Any, value: Any) -> None:
        if value is not None:
            resolved = ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)
            self._get(key.group_id).resolved[key.regular_expression] = resolved
        else:
            group = self._find(key.group_id)
            if group is not None:
                group.resolved.pop(key.regular_expression, None)
