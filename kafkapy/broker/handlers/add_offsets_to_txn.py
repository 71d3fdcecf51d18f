"""AddOffsetsToTxn, API key 25: versions 0 to 4.

The group's partition of `__consumer_offsets` joins the transaction of the producer.

Versions:
0: the API (KIP-98).
1: the response leaves before the pause of a throttled client (KIP-219).
2: PRODUCER_FENCED tells producers apart from a wrong epoch (KIP-588).
3: flexible encoding with tagged fields (KIP-482).
4: TRANSACTION_ABORTABLE tells producers to abort (KIP-890).

Known gaps: none.
"""

from __future__ import annotations

from kafkapy.broker.context import RequestContext
from kafkapy.coordinator.transaction.metadata import ProducerIdAndEpoch
from kafkapy.errors import ErrorCode, KafkaError, code_of
from kafkapy.metadata.topic_names import GROUP_METADATA_TOPIC
from kafkapy.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from kafkapy.types import AclOperation, ResourceType, TopicPartition

REQUEST = AddOffsetsToTxnRequest
RESPONSE = AddOffsetsToTxnResponse

FIRST_WITH_PRODUCER_FENCED = 2


async def handle(context: RequestContext, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    """Whether the group's offsets may be committed in the transaction."""
    transactional_id = request.transactional_id
    if not context.authorize(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        return AddOffsetsToTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not context.authorize(AclOperation.READ, ResourceType.GROUP, request.group_id):
        return AddOffsetsToTxnResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    coordinators = context.broker.coordinators
    await coordinators.look_for(GROUP_METADATA_TOPIC)
    partition = TopicPartition(GROUP_METADATA_TOPIC, coordinators.group.partition_for(request.group_id))
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    try:
        await coordinators.transaction.add_partitions(transactional_id, producer, [partition]).wait()
    except KafkaError as error:
        code = code_of(error)
        if code is ErrorCode.PRODUCER_FENCED and context.api_version < FIRST_WITH_PRODUCER_FENCED:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        return AddOffsetsToTxnResponse(error_code=code)
    return AddOffsetsToTxnResponse(error_code=ErrorCode.NONE)
