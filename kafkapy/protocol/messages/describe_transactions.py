"""DescribeTransactions, API key 65."""

from kafkapy.protocol.schema import Request, Response, Struct, array, int16, int32, int64, string


class DescribeTransactionsRequest(Request, key=65, versions="0", flexible="0+"):
    """Asks a transaction coordinator for the state of transactional ids (KIP-664)."""

    transactional_ids: list[str] = array(string)


class DescribeTransactionsResponse(Response, key=65, versions="0", flexible="0+"):
    """The state, timeout, producer and partitions of every transaction."""

    class TransactionState(Struct):
        class Topic(Struct):
            topic: str = string()
            partitions: list[int] = array(int32)

        error_code: int = int16(default=0)
        transactional_id: str = string()
        transaction_state: str = string()
        transaction_timeout_ms: int = int32()
        transaction_start_time_ms: int = int64()
        producer_id: int = int64()
        producer_epoch: int = int16()
        topics: list[Topic] = array(Topic)

    throttle_time_ms: int = int32(default=0)
    transaction_states: list[TransactionState] = array(TransactionState)
