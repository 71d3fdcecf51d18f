"""ElectLeaders, API key 43."""

from kafkapy.protocol.schema import Request, Response, Struct, array, int8, int16, int32, string


class ElectLeadersRequest(Request, key=43, versions="0-2", flexible="2+"):
    """Elects preferred (type 0) or unclean (1) leaders; null for all partitions."""

    class TopicPartitions(Struct):
        topic: str = string()
        partitions: list[int] = array(int32)

    election_type: int = int8("1+", default=0)
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable="0+")
    timeout_ms: int = int32(default=60000)


class ElectLeadersResponse(Response, key=43, versions="0-2", flexible="2+"):
    """The outcome of every election."""

    class ReplicaElectionResult(Struct):
        class PartitionResult(Struct):
            partition_id: int = int32()
            error_code: int = int16(default=0)
            error_message: str | None = string(nullable="0+", default=None)

        topic: str = string()
        partition_result: list[PartitionResult] = array(PartitionResult)

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16("1+", default=0)
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)
