"""StopReplica, API key 5."""

from kafkapy.protocol.schema import Request, Response, Struct, array, boolean, int16, int32, int64, string


class StopReplicaRequest(Request, key=5, versions="0-4", flexible="2+"):
    """The controller tells a broker to stop replicas, and perhaps delete them."""

    class UngroupedPartition(Struct):
        topic_name: str = string()
        partition_index: int = int32()

    class Topic(Struct):
        name: str = string()
        partition_indexes: list[int] = array(int32)

    class TopicState(Struct):
        class PartitionState(Struct):
            partition_index: int = int32()
            leader_epoch: int = int32(default=-1)
            delete_partition: bool = boolean()

        topic_name: str = string()
        partition_states: list[PartitionState] = array(PartitionState)

    controller_id: int = int32()
    is_kraft_controller: bool = boolean("4+", default=False)
    controller_epoch: int = int32()
    broker_epoch: int = int64("1+", default=-1, ignorable=True)
    delete_partitions: bool = boolean("0-2", default=False)
    ungrouped_partitions: list[UngroupedPartition] = array(UngroupedPartition, "0", default=[])
    topics: list[Topic] = array(Topic, "1-2", default=[])
    topic_states: list[TopicState] = array(TopicState, "3+", default=[])


class StopReplicaResponse(Response, key=5, versions="0-4", flexible="2+"):
    """Which replicas a broker could not stop."""

    class PartitionError(Struct):
        topic_name: str = string()
        partition_index: int = int32()
        error_code: int = int16(default=0)

    error_code: int = int16(default=0)
    partition_errors: list[PartitionError] = array(PartitionError)
