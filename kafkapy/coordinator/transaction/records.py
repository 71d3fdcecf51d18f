"""The records of transactional ids in __transaction_state.

Source: kafka.coordinator.transaction.TransactionLog. Version 0 of the value is written, as by a broker of 3.9 without
KRaft; version 1 only where one of the fields that it alone has (KIP-890, a rotated producer id) says something. Beside
brokers of Apache Kafka that is only the producer id that takes over when the epochs are used up; Kafka 3.5 and later
read it.
"""

from __future__ import annotations

from typing import Final, cast

from kafkapy.coordinator.records import CoordinatorRecord, RecordTypes
from kafkapy.coordinator.transaction.metadata import NO_PRODUCER_ID, TransactionMetadata
from kafkapy.coordinator.transaction.state import TransactionState
from kafkapy.errors import CorruptMessageError
from kafkapy.protocol.messages.transaction_log_records import TransactionLogKey, TransactionLogValue
from kafkapy.types import TopicPartition

KEY_VERSION: Final = 0

TRANSACTION_RECORDS: Final = RecordTypes({KEY_VERSION: (TransactionLogKey, TransactionLogValue)})


def transaction_record(metadata: TransactionMetadata) -> CoordinatorRecord:
    """The record of a transactional id's new state."""
    key = TransactionLogKey(transactional_id=metadata.transactional_id)
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(metadata.partitions):
        topics.setdefault(topic, []).append(partition)
    value = TransactionLogValue(
        producer_id=metadata.producer_id,
        previous_producer_id=metadata.previous_producer_id,
        next_producer_id=metadata.next_producer_id,
        producer_epoch=metadata.producer_epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=metadata.state.value,
        transaction_partitions=None
        if metadata.state is TransactionState.EMPTY
        else [
            TransactionLogValue.TopicPartitions(topic=topic, partition_ids=partitions)
            for topic, partitions in topics.items()
        ],
        transaction_last_update_timestamp_ms=metadata.last_update_ms,
        transaction_start_timestamp_ms=metadata.start_ms,
        client_transaction_version=metadata.client_version,
        next_producer_epoch=metadata.next_producer_epoch,
        next_transaction_timeout_ms=metadata.next_timeout_ms,
    )
    says_more = (
        metadata.client_version > 0
        or metadata.next_producer_id != NO_PRODUCER_ID
        or metadata.previous_producer_id != NO_PRODUCER_ID
    )
    return CoordinatorRecord(key, KEY_VERSION, value, int(says_more))


def transaction_tombstone(transactional_id: str) -> CoordinatorRecord:
    """The tombstone of a transactional id."""
    return CoordinatorRecord(TransactionLogKey(transactional_id=transactional_id), KEY_VERSION, None)


def transactional_id_of(record: CoordinatorRecord) -> str:
    """The transactional id of a record."""
    return cast(TransactionLogKey, record.key).transactional_id


def metadata_of(record: CoordinatorRecord) -> TransactionMetadata | None:
    """The state in a record; None for a tombstone.

    CORRUPT_MESSAGE for a state that Kafka does not have.
    """
    if record.value is None:
        return None
    value = cast(TransactionLogValue, record.value)
    try:
        state = TransactionState(value.transaction_status)
    except ValueError:
        raise CorruptMessageError(f"There is no transaction state {value.transaction_status}") from None
    return TransactionMetadata(
        transactional_id=transactional_id_of(record),
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=state,
        partitions=frozenset(
            TopicPartition(each.topic, partition)
            for each in value.transaction_partitions or ()
            for partition in each.partition_ids
        ),
        start_ms=value.transaction_start_timestamp_ms,
        last_update_ms=value.transaction_last_update_timestamp_ms,
        # Kafka writes here the producer id from before the change, even an unchanged one.
        previous_producer_id=NO_PRODUCER_ID
        if value.previous_producer_id == value.producer_id
        else value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        client_version=value.client_transaction_version,
        next_producer_epoch=value.next_producer_epoch,
        next_timeout_ms=value.next_transaction_timeout_ms,
    )
