"""The requests about offsets: commit, fetch, delete; and the offsets' expiry.

Source: org.apache.kafka.coordinator.group.OffsetMetadataManager (its requests); KIP-211 (expiry), KIP-447 (stable
offsets). Requests come with topic names: handlers put names in place of topic ids, and check what clients may do.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import NamedTuple
from uuid import UUID

from kafkapy.coordinator.group.classic.requests import ClientInfo
from kafkapy.coordinator.group.config import GroupConfig
from kafkapy.coordinator.group.counters import GroupCounters
from kafkapy.coordinator.group.group import Group
from kafkapy.coordinator.group.offsets import CommittedOffset, OffsetStore
from kafkapy.coordinator.group.records import offset_commit, offset_tombstone
from kafkapy.coordinator.records import CoordinatorRecord
from kafkapy.coordinator.result import ProducerStamp, Result
from kafkapy.errors import ErrorCode, KafkaError, error_for
from kafkapy.metadata.cache import MetadataSnapshot
from kafkapy.types import TopicPartition

logger = logging.getLogger("kafka.coordinator.group.OffsetMetadataManager")

FIRST_WITH_GROUP_ID_NOT_FOUND = 9
"""OffsetCommit version whose error for an unknown group is GROUP_ID_NOT_FOUND.

Older versions get ILLEGAL_GENERATION.
"""


class NewOffset(NamedTuple):
    """One offset to commit. `timestamp_ms` -1: the present time."""

    offset: int
    leader_epoch: int = -1
    metadata: str | None = None
    timestamp_ms: int = -1


class OffsetCommit(NamedTuple):
    """An OffsetCommit of a member, or of a client outside of the group.

    The latter has generation -1 and no member id.
    """

    group_id: str
    offsets: dict[TopicPartition, NewOffset]
    member_id: str = ""
    group_instance_id: str | None = None
    generation_id: int = -1
    """The member epoch in the protocol of KIP-848."""
    retention_ms: int = -1
    producer: ProducerStamp | None = None
    """The transaction that the offsets belong to: they count when it has committed."""
    looked_up: MetadataSnapshot | None = None
    """The snapshot that named the request's topics.

    Topics that were deleted or replaced since are refused.
    """


class FetchedOffset(NamedTuple):
    """The answer for one partition; offset -1 when none is committed."""

    offset: int = -1
    leader_epoch: int = -1
    metadata: str = ""
    error: ErrorCode = ErrorCode.NONE


NO_OFFSET = FetchedOffset()
UNSTABLE = FetchedOffset(error=ErrorCode.UNSTABLE_OFFSET_COMMIT)

CommitErrors = dict[TopicPartition, ErrorCode]


class OffsetRequests:
    """The requests about offsets as operations of the runtime.

    Owned by a GroupShard; used on the control loop's thread.
    """

    def __init__(
        self,
        store: OffsetStore,
        find: Callable[[str], Group | None],
        heartbeat: Callable[[Group, str], None],
        config: GroupConfig,
        counters: GroupCounters,
        metadata: Callable[[], MetadataSnapshot],
        hear: Callable[[str], None],
    ) -> None:
        """`hear` puts offsets of a group that network threads have appended into the store."""
        self._store = store
        self._find = find
        self._heartbeat = heartbeat
        self._config = config
        self._counters = counters
        self._metadata = metadata
        self._hear = hear

    # --- commit -----------------------------------------------------------------------------------------------------

    def commit(self, client: ClientInfo, request: OffsetCommit, now_ms: int) -> Result[CommitErrors]:
        """Store offsets; an error for each partition.

        Raises the group's error for the member: UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, FENCED_INSTANCE_ID,
        REBALANCE_IN_PROGRESS, GROUP_ID_NOT_FOUND.
        """
        self._validate_commit(client, request)
        expires = None if request.retention_ms < 0 else now_ms + request.retention_ms
        errors: CommitErrors = {}
        records: list[CoordinatorRecord] = []
        limit = self._config.offset_metadata_max_bytes
        gone = self._gone(request)
        for partition, new in request.offsets.items():
            if partition.topic in gone:
                errors[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            metadata = new.metadata or ""
            if len(metadata) > limit or (4 * len(metadata) > limit and len(metadata.encode()) > limit):
                errors[partition] = ErrorCode.OFFSET_METADATA_TOO_LARGE
                continue
            errors[partition] = ErrorCode.NONE
            timestamp = now_ms if new.timestamp_ms < 0 else new.timestamp_ms
            committed = CommittedOffset(new.offset, new.leader_epoch, metadata, timestamp, expires)
            records.append(offset_commit(request.group_id, partition.topic, partition.partition, committed))
        self._counters.offset_commits += len(records)
        return Result(errors, records, producer=request.producer)

    def _gone(self, request: OffsetCommit) -> set[str]:
        """Topics that were deleted while the request waited.

        New topics of these names would inherit the offsets.
        """
        before, now = request.looked_up, self._metadata()
        if before is None or before is now or before.topics is now.topics:
            return set()
        topics = {partition.topic for partition in request.offsets}
        return {each for each in topics if _topic_id(before, each) != _topic_id(now, each)}

    def _validate_commit(self, client: ClientInfo, request: OffsetCommit) -> None:
        transactional = request.producer is not None
        group = self._find(request.group_id)
        if group is None:
            if request.generation_id >= 0:
                if not transactional and client.api_version >= FIRST_WITH_GROUP_ID_NOT_FOUND:
                    raise error_for(ErrorCode.GROUP_ID_NOT_FOUND)
                raise error_for(ErrorCode.ILLEGAL_GENERATION)
            return  # a consumer that assigns its partitions itself: the offsets make the group
        try:
            group.validate_offset_commit(
                request.member_id,
                request.group_instance_id,
                request.generation_id,
                client.api_version,
                transactional=transactional,
            )
        except KafkaError as error:
            if transactional and error.code is ErrorCode.STALE_MEMBER_EPOCH:
                raise error_for(ErrorCode.ILLEGAL_GENERATION) from error
            raise
        if not transactional and group.offset_commit_seen(request.member_id):
            self._heartbeat(group, request.member_id)

    # --- fetch ------------------------------------------------------------------------------------------------------

    def fetch(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None,
        *,
        require_stable: bool = False,
        member_id: str | None = None,
        member_epoch: int = -1,
    ) -> dict[TopicPartition, FetchedOffset]:
        """Committed offsets of some partitions, or (None) of all partitions.

        UNSTABLE_OFFSET_COMMIT with `require_stable` where a transaction is open. Raises the group's error for the
        member (UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH).
        """
        try:
            group = self._find(group_id)
            if group is None:
                raise error_for(ErrorCode.GROUP_ID_NOT_FOUND)
            group.validate_offset_fetch(member_id, member_epoch)
        except KafkaError as error:
            if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise
            if partitions is None:
                return {}
            if not require_stable or not self._store.has_open_transactions(group_id):
                return dict.fromkeys(partitions, NO_OFFSET)
        self._hear(group_id)
        known = self._store.of_group(group_id)
        unstable = require_stable and self._store.has_open_transactions(group_id)
        found: dict[TopicPartition, FetchedOffset] = {}
        for partition in known if partitions is None else partitions:
            committed = known.get(partition)
            if unstable and self._store.is_pending(group_id, partition):
                found[partition] = UNSTABLE
            elif committed is None:
                found[partition] = NO_OFFSET
            else:
                found[partition] = FetchedOffset(committed.offset, committed.leader_epoch, committed.metadata)
        return found

    # --- delete -----------------------------------------------------------------------------------------------------

    def delete(self, group_id: str, partitions: Iterable[TopicPartition]) -> Result[CommitErrors]:
        """Forget offsets of unsubscribed topics; an error for each partition.

        Raises GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
        """
        group = self._find(group_id)
        if group is None:
            raise error_for(ErrorCode.GROUP_ID_NOT_FOUND)
        group.validate_offset_delete()
        errors: CommitErrors = {}
        records: list[CoordinatorRecord] = []
        for partition in partitions:
            if group.is_subscribed_to(partition.topic):
                errors[partition] = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
                continue
            errors[partition] = ErrorCode.NONE
            if self._store.get(group_id, partition) is not None or self._store.is_pending(group_id, partition):
                records.append(offset_tombstone(group_id, *partition))
        self._counters.offset_deletions += len(records)
        return Result(errors, records)

    def tombstones_of_group(self, group_id: str) -> list[CoordinatorRecord]:
        """Tombstones for all offsets of a deleted group, also of open transactions."""
        partitions = dict.fromkeys([*self._store.of_group(group_id), *self._store.pending_of_group(group_id)])
        return [offset_tombstone(group_id, *partition) for partition in partitions]

    # --- expiry -----------------------------------------------------------------------------------------------------

    def expired(self, group: Group, now_ms: int, most: int) -> tuple[list[CoordinatorRecord], bool]:
        """Tombstones for a group's expired offsets, at most `most`.

        Returns also whether no expired offset is left.
        """
        offsets = self._store.of_group(group.group_id)
        records: list[CoordinatorRecord] = []
        for partition, offset in offsets.items():
            if group.is_subscribed_to(partition.topic) or self._store.is_pending(group.group_id, partition):
                continue
            since = group.expires_since_ms(offset)
            if since is None:
                continue
            if offset.expire_timestamp_ms is not None:
                due = now_ms >= offset.expire_timestamp_ms
            else:
                due = now_ms - since >= self._config.offsets_retention_ms
            if due and len(records) < most:
                records.append(offset_tombstone(group.group_id, *partition))
        self._counters.offset_expirations += len(records)
        if records:
            logger.info("The coordinator expires %d offsets of group %s", len(records), group.group_id)
        left = len(records) < len(offsets) or self._store.has_open_transactions(group.group_id)
        return records, not left


def _topic_id(snapshot: MetadataSnapshot, name: str) -> UUID | None:
    topic = snapshot.topics.get(name)
    return None if topic is None else topic.topic_id
