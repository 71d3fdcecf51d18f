"""DescribeQuorum, API key 55."""

from uuid import UUID

from kafkapy.protocol.schema import (
    ZERO_UUID,
    Request,
    Response,
    Struct,
    array,
    int16,
    int32,
    int64,
    string,
    uint16,
    uuid,
)


class DescribeQuorumRequest(Request, key=55, versions="0-2", flexible="0+"):
    """Asks for the state of the KRaft quorum."""

    class Topic(Struct):
        class Partition(Struct):
            partition_index: int = int32()

        topic_name: str = string()
        partitions: list[Partition] = array(Partition)

    topics: list[Topic] = array(Topic)


class ReplicaState(Struct):
    """How far one member of the quorum is."""

    replica_id: int = int32()
    replica_directory_id: UUID = uuid("2+", default=ZERO_UUID)
    log_end_offset: int = int64()
    last_fetch_timestamp: int = int64("1+", default=-1, ignorable=True)
    last_caught_up_timestamp: int = int64("1+", default=-1, ignorable=True)


class DescribeQuorumResponse(Response, key=55, versions="0-2", flexible="0+"):
    """The leader of the quorum and how far its voters and observers are."""

    class Topic(Struct):
        class Partition(Struct):
            partition_index: int = int32()
            error_code: int = int16(default=0)
            error_message: str | None = string("2+", nullable="2+", default=None, ignorable=True)
            leader_id: int = int32()
            leader_epoch: int = int32()
            high_watermark: int = int64()
            current_voters: list[ReplicaState] = array(ReplicaState)
            observers: list[ReplicaState] = array(ReplicaState)

        topic_name: str = string()
        partitions: list[Partition] = array(Partition)

    class Node(Struct):
        class Listener(Struct):
            name: str = string()
            host: str = string()
            port: int = uint16()

        node_id: int = int32()
        listeners: list[Listener] = array(Listener)

    error_code: int = int16(default=0)
    error_message: str | None = string("2+", nullable="2+", default=None, ignorable=True)
    topics: list[Topic] = array(Topic)
    nodes: list[Node] = array(Node, "2+", default=[])
