"""DescribeProducers, API key 61."""

from kafkapy.protocol.schema import Request, Response, Struct, array, int16, int32, int64, string


class DescribeProducersRequest(Request, key=61, versions="0", flexible="0+"):
    """Asks partition leaders for the state of active producers (KIP-664)."""

    class Topic(Struct):
        name: str = string()
        partition_indexes: list[int] = array(int32)

    topics: list[Topic] = array(Topic)


class DescribeProducersResponse(Response, key=61, versions="0", flexible="0+"):
    """The producers with their last sequence and the start of their open transaction."""

    class Topic(Struct):
        class Partition(Struct):
            class ActiveProducer(Struct):
                producer_id: int = int64()
                producer_epoch: int = int32()
                last_sequence: int = int32(default=-1)
                last_timestamp: int = int64(default=-1)
                coordinator_epoch: int = int32()
                current_txn_start_offset: int = int64(default=-1)

            partition_index: int = int32()
            error_code: int = int16(default=0)
            error_message: str | None = string(nullable="0+", default=None)
            active_producers: list[ActiveProducer] = array(ActiveProducer)

        name: str = string()
        partitions: list[Partition] = array(Partition)

    throttle_time_ms: int = int32(default=0)
    topics: list[Topic] = array(Topic)
