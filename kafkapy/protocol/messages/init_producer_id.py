"""InitProducerId, API key 22."""

from kafkapy.protocol.schema import Request, Response, boolean, int16, int32, int64, string


class InitProducerIdRequest(Request, key=22, versions="0-6", flexible="2+"):
    """Asks for a producer id.

    With a transactional id, a new epoch fences other producers of that id.
    """

    transactional_id: str | None = string(nullable="0+")
    transaction_timeout_ms: int = int32()
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)
    enable2_pc: bool = boolean("6+", default=False)
    keep_prepared_txn: bool = boolean("6+", default=False)


class InitProducerIdResponse(Response, key=22, versions="0-6", flexible="2+"):
    """The producer id and epoch to use."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
    ongoing_txn_producer_id: int = int64("6+", default=-1)
    ongoing_txn_producer_epoch: int = int16("6+", default=-1)
