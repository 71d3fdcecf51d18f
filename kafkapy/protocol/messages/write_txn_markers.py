"""WriteTxnMarkers, API key 27."""

from kafkapy.protocol.schema import Request, Response, Struct, array, boolean, int8, int16, int32, int64, string


class WriteTxnMarkersRequest(Request, key=27, versions="0-2", flexible="1+"):
    """A transaction coordinator tells partition leaders to append commit or abort markers."""

    class Marker(Struct):
        class Topic(Struct):
            name: str = string()
            partition_indexes: list[int] = array(int32)

        producer_id: int = int64()
        producer_epoch: int = int16()
        transaction_result: bool = boolean()
        topics: list[Topic] = array(Topic)
        coordinator_epoch: int = int32()
        transaction_version: int = int8("2+", default=0, ignorable=True)

    markers: list[Marker] = array(Marker)


class WriteTxnMarkersResponse(Response, key=27, versions="0-2", flexible="1+"):
    """The outcome of appending each marker."""

    class Marker(Struct):
        class Topic(Struct):
            class Partition(Struct):
                partition_index: int = int32()
                error_code: int = int16(default=0)

            name: str = string()
            partitions: list[Partition] = array(Partition)

        producer_id: int = int64()
        topics: list[Topic] = array(Topic)

    markers: list[Marker] = array(Marker)
