"""TxnOffsetCommit, API key 28: versions 0 to 6.

The group coordinator stores offsets that count when the producer's transaction commits. The group's partition of
`__consumer_offsets` must be part of that transaction (KIP-890).

Versions:
0: the API (KIP-98).
1: the response leaves before the pause of a throttled client (KIP-219).
2: leader epoch of each offset (KIP-320).
3: generation, member id and group.instance.id (KIP-447), flexible encoding.
4: TRANSACTION_ABORTABLE tells producers to abort (KIP-890).
5: the partition joins the transaction without an AddOffsetsToTxn (KIP-890).
6: topics by id.

Known gaps: none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final

from kafkapy.broker.context import RequestContext
from kafkapy.coordinator.group.classic.requests import ClientInfo
from kafkapy.coordinator.group.offset_requests import CommitErrors, NewOffset, OffsetCommit
from kafkapy.coordinator.group.shard import GroupShard
from kafkapy.coordinator.hosted import MarkerGuard
from kafkapy.coordinator.result import ProducerStamp, Result
from kafkapy.coordinator.transaction.metadata import ProducerIdAndEpoch
from kafkapy.coordinator.transaction.verification import Operation
from kafkapy.errors import ErrorCode, KafkaError, code_of, error_for
from kafkapy.metadata.cache import MetadataSnapshot
from kafkapy.metadata.topic_names import GROUP_METADATA_TOPIC
from kafkapy.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from kafkapy.slices import in_slices
from kafkapy.types import AclOperation, ResourceType, TopicPartition

REQUEST = TxnOffsetCommitRequest
RESPONSE = TxnOffsetCommitResponse

FIRST_WITH_LOAD_IN_PROGRESS: Final = 2
FIRST_WITH_ABORTABLE: Final = 4
FIRST_WITH_TOPIC_ID: Final = 6
VERIFICATIONS: Final = 3
"""Times that the coordinator is asked when the end of the transaction before comes in between."""

Topic = TxnOffsetCommitResponse.Topic


async def handle(context: RequestContext, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    """One outcome for each partition, in the order asked."""
    if not context.authorize(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return error_response(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "")
    if not context.authorize(AclOperation.READ, ResourceType.GROUP, request.group_id):
        return error_response(request, ErrorCode.GROUP_AUTHORIZATION_FAILED, "")
    snapshot = context.broker.metadata_cache.snapshot
    if context.api_version >= FIRST_WITH_TOPIC_ID:
        names = snapshot.topic_names
        async for topic in in_slices(request.topics):
            # Ids that nobody has stay without a name, so that they are unknown below.
            topic.name = names.get(topic.topic_id, "")
    allowed = await context.authorized_names_in_slices(
        AclOperation.READ, ResourceType.TOPIC, (topic.name for topic in request.topics if topic.name)
    )
    errors: CommitErrors = {}
    offsets: dict[TopicPartition, NewOffset] = {}
    context.leave(errors, offsets)
    async for topic in in_slices(request.topics):
        async for each in in_slices(topic.partitions):
            partition = TopicPartition(topic.name, each.partition_index)
            if not topic.name and context.api_version >= FIRST_WITH_TOPIC_ID:
                errors[partition] = ErrorCode.UNKNOWN_TOPIC_ID
            elif topic.name and topic.name not in allowed:
                errors[partition] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif snapshot.partition(*partition) is None:
                errors[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                offsets[partition] = NewOffset(
                    each.committed_offset, each.committed_leader_epoch, each.committed_metadata
                )
    if offsets:
        try:
            errors |= await _commit(context, request, offsets, snapshot)
        except KafkaError as error:
            errors |= dict.fromkeys(offsets, _shown(code_of(error), context.api_version))
    response = TxnOffsetCommitResponse(topics=[])
    async for _ in in_slices(_fill(response, request, errors)):
        pass
    return response


def error_response(request: TxnOffsetCommitRequest, error: ErrorCode, message: str) -> TxnOffsetCommitResponse:
    """The error for every partition."""
    del message
    partitions = [
        TopicPartition(topic.name, each.partition_index) for topic in request.topics for each in topic.partitions
    ]
    response = TxnOffsetCommitResponse(topics=[])
    deque(_fill(response, request, dict.fromkeys(partitions, error)), maxlen=0)
    return response


async def _commit(
    context: RequestContext,
    request: TxnOffsetCommitRequest,
    offsets: dict[TopicPartition, NewOffset],
    snapshot: MetadataSnapshot,
) -> CommitErrors:
    if not request.group_id:
        raise error_for(ErrorCode.INVALID_GROUP_ID)
    coordinators = context.broker.coordinators
    group = coordinators.group
    partition = TopicPartition(GROUP_METADATA_TOPIC, group.partition_for(request.group_id))
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    client = ClientInfo(context.client_id or "", f"/{context.client_address}", context.api_version)
    commit = OffsetCommit(
        request.group_id,
        offsets,
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        producer=ProducerStamp(*producer),
        looked_up=snapshot,
    )
    known = Operation.of_txn_offset_commit(context.api_version)
    if not (known is Operation.ADD_PARTITION or coordinators.verification.enabled):
        return await group.write(
            request.group_id, lambda shard, now_ms: shard.offsets.commit(client, commit, now_ms)
        ).wait()
    for _ in range(VERIFICATIONS):
        guard = group.guard(request.group_id, producer.producer_id)
        try:
            refused = await coordinators.verification.ask(request.transactional_id, producer, [partition], known).wait()
            if refused:
                raise error_for(refused[partition])
            answer = await group.write(request.group_id, _guarded(guard, client, commit)).wait()
        finally:
            guard.release()
        if answer is not None:
            return answer
    raise error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE)


def _guarded(
    guard: MarkerGuard, client: ClientInfo, commit: OffsetCommit
) -> Callable[[GroupShard, int], Result[CommitErrors | None]]:
    """Commit the offsets; None when a marker may have come since the coordinator was asked."""

    def operation(shard: GroupShard, now_ms: int) -> Result[CommitErrors | None]:
        if not guard.valid:
            return Result(None)
        committed: Result[Any] = shard.offsets.commit(client, commit, now_ms)
        return committed

    return operation


def _shown(error: ErrorCode, version: int) -> ErrorCode:
    """The error code as clients of that version know it."""
    if error in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and version < FIRST_WITH_ABORTABLE:
        return ErrorCode.INVALID_TXN_STATE
    if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < FIRST_WITH_LOAD_IN_PROGRESS:
        # Producers up to 1.1 do not expect the other one here (KAFKA-7296).
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return error


def _fill(response: TxnOffsetCommitResponse, request: TxnOffsetCommitRequest, errors: CommitErrors) -> Iterator[None]:
    """Add the results to an empty response; a step for each topic and each partition."""
    for topic in request.topics:
        result = Topic(name=topic.name, topic_id=topic.topic_id, partitions=[])
        response.topics.append(result)
        yield
        for each in topic.partitions:
            error = errors[TopicPartition(topic.name, each.partition_index)]
            result.partitions.append(Topic.Partition(partition_index=each.partition_index, error_code=error))
            yield
