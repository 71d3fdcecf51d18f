"""Records in __transaction_state.

The tags from 10,000 are kafkapy's: Kafka counts its own from 0, and passes over those that it does not know.
"""

from kafkapy.protocol.schema import Record, Struct, array, int8, int16, int32, int64, string


class TransactionLogKey(Record, versions="0"):
    """Key of a transactional id in __transaction_state."""

    transactional_id: str = string()


class TransactionLogValue(Record, versions="0-1", flexible="1+"):
    """The state of a transactional id in __transaction_state. Times are ms since the epoch."""

    class TopicPartitions(Struct):
        topic: str = string()
        partition_ids: list[int] = array(int32)

    producer_id: int = int64()
    previous_producer_id: int = int64("1+", default=-1, tag=0)
    next_producer_id: int = int64("1+", default=-1, tag=1)
    producer_epoch: int = int16()
    transaction_timeout_ms: int = int32()
    transaction_status: int = int8()
    transaction_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable="0+")
    transaction_last_update_timestamp_ms: int = int64()
    transaction_start_timestamp_ms: int = int64()
    client_transaction_version: int = int16("1+", default=0, tag=2)
    next_producer_epoch: int = int16("1+", default=-1, tag=3)
    next_transaction_timeout_ms: int = int32("1+", default=-1, tag=10_000)
