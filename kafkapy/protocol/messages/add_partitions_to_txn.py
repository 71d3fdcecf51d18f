"""AddPartitionsToTxn, API key 24."""

from kafkapy.protocol.schema import Request, Response, Struct, array, boolean, int16, int32, int64, string


class AddPartitionsToTxnTopic(Struct):
    """Partitions of one topic."""

    name: str = string()
    partitions: list[int] = array(int32)


class AddPartitionsToTxnRequest(Request, key=24, versions="0-5", flexible="3+"):
    """Adds partitions to a transaction.

    Since version 4 to several transactions, or only asks whether the partitions belong to them.
    """

    class Transaction(Struct):
        transactional_id: str = string()
        producer_id: int = int64()
        producer_epoch: int = int16()
        verify_only: bool = boolean(default=False)
        topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic)

    transactions: list[Transaction] = array(Transaction, "4+", default=[])
    v3_and_below_transactional_id: str = string("0-3", default="")
    v3_and_below_producer_id: int = int64("0-3", default=0)
    v3_and_below_producer_epoch: int = int16("0-3", default=0)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, "0-3", default=[])


class AddPartitionsToTxnTopicResult(Struct):
    """The outcome for the partitions of one topic."""

    class PartitionResult(Struct):
        partition_index: int = int32()
        partition_error_code: int = int16(default=0)

    name: str = string()
    results_by_partition: list[PartitionResult] = array(PartitionResult)


class AddPartitionsToTxnResponse(Response, key=24, versions="0-5", flexible="3+"):
    """The outcome for every partition."""

    class TransactionResult(Struct):
        transactional_id: str = string()
        topic_results: list[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult)

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16("4+", default=0, ignorable=True)
    results_by_transaction: list[TransactionResult] = array(TransactionResult, "4+", default=[])
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = array(
        AddPartitionsToTxnTopicResult, "0-3", default=[]
    )
