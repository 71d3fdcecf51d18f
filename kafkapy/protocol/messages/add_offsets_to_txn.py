"""AddOffsetsToTxn, API key 25."""

from kafkapy.protocol.schema import Request, Response, int16, int32, int64, string


class AddOffsetsToTxnRequest(Request, key=25, versions="0-4", flexible="3+"):
    """Adds the commit of a group's offsets to a transaction."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


class AddOffsetsToTxnResponse(Response, key=25, versions="0-4", flexible="3+"):
    """Whether the group became a part of the transaction."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
