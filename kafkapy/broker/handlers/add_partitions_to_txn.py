"""AddPartitionsToTxn, API key 24: versions 0 to 5.

Partitions join the transaction of the producer. Brokers ask for several transactions at once, or only whether the
partitions belong to them. One partition that does not exist, or may not be written, keeps all others of its
transaction out (OPERATION_NOT_ATTEMPTED).

Versions:
0: the API (KIP-98).
1: the response leaves before the pause of a throttled client (KIP-219).
2: PRODUCER_FENCED tells producers apart from a wrong epoch (KIP-588).
3: flexible encoding with tagged fields (KIP-482).
4: several transactions, and verification only, for brokers (KIP-890).
5: TRANSACTION_ABORTABLE tells producers to abort (KIP-890).

Known gaps: none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from kafkapy.broker.context import RequestContext
from kafkapy.coordinator.transaction.metadata import (
    TRANSACTION_VERSION_0,
    TRANSACTION_VERSION_2,
    ProducerIdAndEpoch,
)
from kafkapy.errors import ErrorCode, KafkaError, code_of
from kafkapy.metadata.topic_names import is_internal
from kafkapy.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from kafkapy.slices import filled, in_slices
from kafkapy.types import AclOperation, ResourceType, TopicPartition

REQUEST = AddPartitionsToTxnRequest
RESPONSE = AddPartitionsToTxnResponse

FIRST_WITH_PRODUCER_FENCED: Final = 2
FIRST_BETWEEN_BROKERS: Final = 4

Transaction = AddPartitionsToTxnRequest.Transaction
Errors = dict[TopicPartition, ErrorCode]


async def handle(context: RequestContext, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
    """An error for each partition of each transaction."""
    if context.api_version < FIRST_BETWEEN_BROKERS:
        transaction = _of_client(request)
        errors = await _errors_for_client(context, transaction)
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=await _results_in_slices(transaction, errors))
    context.authorize_cluster(AclOperation.CLUSTER_ACTION)
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResponse.TransactionResult(
                transactional_id=each.transactional_id,
                topic_results=await _results_in_slices(each, await _errors(context, each, set())),
            )
            async for each in in_slices(request.transactions)
        ]
    )


def error_response(request: AddPartitionsToTxnRequest, error: ErrorCode, message: str) -> AddPartitionsToTxnResponse:
    """The error for every partition; from version 4 on, once for all."""
    del message
    if request.transactions:
        return AddPartitionsToTxnResponse(error_code=error)
    transaction = _of_client(request)
    response = AddPartitionsToTxnResponse(error_code=error, results_by_topic_v3_and_below=[])
    errors = dict.fromkeys(_partitions(transaction), error)
    deque(_fill(response.results_by_topic_v3_and_below, transaction, errors), maxlen=0)
    return response


def _of_client(request: AddPartitionsToTxnRequest) -> Transaction:
    return Transaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        verify_only=False,
        topics=request.v3_and_below_topics,
    )


async def _errors_for_client(context: RequestContext, transaction: Transaction) -> Errors:
    if not context.authorize(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transaction.transactional_id):
        return await filled(_partitions(transaction), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    names = {topic.name async for topic in in_slices(transaction.topics)}
    ordinary = [name async for name in in_slices(names) if not is_internal(name)]
    allowed = await context.authorized_names_in_slices(AclOperation.WRITE, ResourceType.TOPIC, ordinary)
    context.leave(names)
    errors = await _errors(context, transaction, names - allowed)
    if context.api_version < FIRST_WITH_PRODUCER_FENCED:
        async for partition, error in in_slices(errors.items()):
            if error is ErrorCode.PRODUCER_FENCED:
                errors[partition] = ErrorCode.INVALID_PRODUCER_EPOCH
    return errors


async def _errors(context: RequestContext, transaction: Transaction, denied: set[str]) -> Errors:
    partitions = [each async for each in in_slices(_partitions(transaction))]
    refused: Errors = {}
    context.leave(partitions, refused)
    async for partition in in_slices(partitions):
        if partition.topic in denied:
            refused[partition] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif not context.broker.metadata_cache.contains(partition):
            refused[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if refused:
        errors = await filled(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED)
        context.leave(errors)
        async for partition, error in in_slices(refused.items()):
            errors[partition] = error
        return errors
    coordinator = context.broker.coordinators.transaction
    producer = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
    try:
        if transaction.verify_only:
            return await coordinator.verify_partitions(transaction.transactional_id, producer, partitions).wait()
        between_brokers = context.api_version >= FIRST_BETWEEN_BROKERS
        client_version = TRANSACTION_VERSION_2 if between_brokers else TRANSACTION_VERSION_0
        await coordinator.add_partitions(transaction.transactional_id, producer, partitions, client_version).wait()
    except KafkaError as failure:
        return await filled(partitions, code_of(failure))
    return await filled(partitions, ErrorCode.NONE)


def _partitions(transaction: Transaction) -> Iterator[TopicPartition]:
    return (TopicPartition(topic.name, number) for topic in transaction.topics for number in topic.partitions)


def _fill(results: list[AddPartitionsToTxnTopicResult], transaction: Transaction, errors: Errors) -> Iterator[None]:
    """Add the results to an empty list; a step for each topic and each partition."""
    for topic in transaction.topics:
        result = AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=[])
        results.append(result)
        yield
        for number in topic.partitions:
            error = errors[TopicPartition(topic.name, number)]
            result.results_by_partition.append(
                AddPartitionsToTxnTopicResult.PartitionResult(partition_index=number, partition_error_code=error)
            )
            yield


async def _results_in_slices(transaction: Transaction, errors: Errors) -> list[AddPartitionsToTxnTopicResult]:
    results: list[AddPartitionsToTxnTopicResult] = []
    async for _ in in_slices(_fill(results, transaction, errors)):
        pass
    return results
