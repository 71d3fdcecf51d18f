"""EndTxn, API key 26."""

from kafkapy.protocol.schema import Request, Response, boolean, int16, int32, int64, string


class EndTxnRequest(Request, key=26, versions="0-5", flexible="3+"):
    """Commits or aborts a transaction."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


class EndTxnResponse(Response, key=26, versions="0-5", flexible="3+"):
    """The outcome; since version 5 also the next producer id and epoch.

    The producer goes on with that id and epoch (KIP-890).
    """

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    producer_id: int = int64("5+", default=-1, ignorable=True)
    producer_epoch: int = int16("5+", default=-1, ignorable=True)
