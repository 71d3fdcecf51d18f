"""ControlledShutdown, API key 7."""

from kafkapy.protocol.schema import Request, Response, Struct, array, int16, int32, int64, string


class ControlledShutdownRequest(Request, key=7, versions="0-3", flexible="3+"):
    """A broker asks the controller to move its leaderships away before it stops."""

    broker_id: int = int32()
    broker_epoch: int = int64("2+", default=-1, ignorable=True)


class ControlledShutdownResponse(Response, key=7, versions="0-3", flexible="3+"):
    """Partitions that the stopping broker still leads."""

    class RemainingPartition(Struct):
        topic_name: str = string()
        partition_index: int = int32()

    error_code: int = int16(default=0)
    remaining_partitions: list[RemainingPartition] = array(RemainingPartition)
