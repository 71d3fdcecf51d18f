"""The record of a classic group in __consumer_offsets.

Source: org.apache.kafka.coordinator.group.GroupCoordinatorRecordHelpers.newGroupMetadataRecord.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kafkapy.coordinator.group.records import GROUP_METADATA_KEY, GROUP_METADATA_VALUE
from kafkapy.coordinator.records import CoordinatorRecord
from kafkapy.protocol.messages.group_metadata_records import GroupMetadataKey, GroupMetadataValue

if TYPE_CHECKING:
    from kafkapy.coordinator.group.classic.group import ClassicGroup


def group_metadata(group: ClassicGroup, assignment: Mapping[str, bytes]) -> CoordinatorRecord:
    """The record of a classic group, with an assignment for each member."""
    name = group.protocol_name
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation_id,
        protocol=name,
        leader=group.leader_id,
        current_state_timestamp=group.state_timestamp_ms,
        members=[
            GroupMetadataValue.Member(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(name) if name is not None else b"",
                assignment=assignment.get(member.member_id, b""),
            )
            for member in group.members.values()
        ],
    )
    return CoordinatorRecord(GroupMetadataKey(group=group.group_id), GROUP_METADATA_KEY, value, GROUP_METADATA_VALUE)
