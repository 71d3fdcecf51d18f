"""Replays records of share groups: at the load, and after each write.

Source: GroupMetadataManager.replay for keys 10 to 15. As for consumer groups, the tombstone of a group or member ends
it, whatever compaction left of the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from kafkapy.coordinator.group.group import Group
from kafkapy.coordinator.group.modern.partitions import NO_PARTITIONS, partitions_of
from kafkapy.coordinator.group.modern.requests import LEAVE_GROUP_EPOCH
from kafkapy.coordinator.group.share import records as keys
from kafkapy.coordinator.group.share.group import ShareGroup
from kafkapy.coordinator.group.share.member import ShareGroupMember
from kafkapy.coordinator.group.share.state_partitions import StatePartitions, StateTopic, StateTopics
from kafkapy.coordinator.records import CoordinatorRecord


class ShareReplay:
    """Changes the share groups among `groups`.

    Owned by a GroupShard; used on the control loop's thread.
    """

    def __init__(self, groups: dict[str, Group]) -> None:
        self._groups = groups
        self._appliers: dict[int, Callable[[Any, Any], None]] = {
            keys.MEMBER_KEY: self._member,
            keys.EPOCH_KEY: self._epoch,
            keys.TARGET_EPOCH_KEY: self._target_epoch,
            keys.TARGET_MEMBER_KEY: self._target,
            keys.CURRENT_ASSIGNMENT_KEY: self._current_assignment,
            keys.STATE_PARTITIONS_KEY: self._state_partitions,
        }

    def apply(self, record: CoordinatorRecord) -> None:
        """Apply a record whose key version is one of SHARE_GROUP_KEYS."""
        self._appliers[record.key_version](record.key, record.value)

    def _find(self, group_id: str) -> ShareGroup | None:
        group = self._groups.get(group_id)
        return group if isinstance(group, ShareGroup) else None

    def _get(self, group_id: str) -> ShareGroup:
        """The group, created if it is new, or in the place of a classic group that only held offsets."""
        group = self._find(group_id)
        if group is None:
            group = self._groups[group_id] = ShareGroup(group_id)
        return group

    def _epoch(self, key: Any, value: Any) -> None:
        if value is not None:
            group = self._get(key.group_id)
            group.epoch = value.epoch
            group.metadata_hash = value.metadata_hash
        elif self._find(key.group_id) is not None:
            del self._groups[key.group_id]

    def _member(self, key: Any, value: Any) -> None:
        if value is None:
            group = self._find(key.group_id)
            if group is not None:
                group.remove(key.member_id)
            return
        group = self._get(key.group_id)
        member = group.members.get(key.member_id) or ShareGroupMember(key.member_id)
        group.put(
            replace(
                member,
                rack_id=value.rack_id,
                client_id=value.client_id,
                client_host=value.client_host,
                topic_names=frozenset(value.subscribed_topic_names),
            )
        )

    def _target_epoch(self, key: Any, value: Any) -> None:
        if value is not None:
            group = self._get(key.group_id)
            group.assignment_epoch = value.assignment_epoch
            if value.assignment_timestamp == 0:
                # The group has lost its last member: the next assignment need not wait.
                group.assigned_ms = None
        elif (found := self._find(key.group_id)) is not None:
            found.assignment_epoch = -1

    def _target(self, key: Any, value: Any) -> None:
        if value is not None:
            self._get(key.group_id).set_target(key.member_id, partitions_of(value.topic_partitions))
        else:
            group = self._find(key.group_id)
            if group is not None:
                group.set_target(key.member_id, None)

    def _current_assignment(self, key: Any, value: Any) -> None:
        if value is not None:
            group = self._get(key.group_id)
            member = group.members.get(key.member_id) or ShareGroupMember(key.member_id)
            group.put(
                replace(
                    member,
                    member_epoch=value.member_epoch,
                    previous_member_epoch=value.previous_member_epoch,
                    assigned=partitions_of(value.assigned_partitions),
                )
            )
            return
        found = self._find(key.group_id)
        known = None if found is None else found.members.get(key.member_id)
        if found is not None and known is not None:
            left = LEAVE_GROUP_EPOCH
            found.put(replace(known, member_epoch=left, previous_member_epoch=left, assigned=NO_PARTITIONS))

    def _state_partitions(self, key: Any, value: Any) -> None:
        if value is not None:
            self._get(key.group_id).state_partitions = StatePartitions(
                _topics(value.initializing_topics),
                _topics(value.initialized_topics),
                {each.topic_id: each.topic_name for each in value.deleting_topics},
            )
        else:
            group = self._find(key.group_id)
            if group is not None:
                group.state_partitions = StatePartitions()


def _topics(listed: Iterable[Any]) -> StateTopics:
    return {each.topic_id: StateTopic(each.topic_name, frozenset(each.partitions)) for each in listed}
