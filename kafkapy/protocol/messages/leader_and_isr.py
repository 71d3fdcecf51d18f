"""LeaderAndIsr, API key 4."""

from uuid import UUID

from kafkapy.protocol.schema import (
    ZERO_UUID,
    Request,
    Response,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    string,
    uuid,
)


class LeaderAndIsrPartitionState(Struct):
    """The state of one partition as the controller decided it."""

    topic_name: str = string("0-1", default="", ignorable=True)
    partition_index: int = int32()
    controller_epoch: int = int32()
    leader: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = array(int32)
    partition_epoch: int = int32()
    replicas: list[int] = array(int32)
    adding_replicas: list[int] = array(int32, "3+", default=[], ignorable=True)
    removing_replicas: list[int] = array(int32, "3+", default=[], ignorable=True)
    is_new: bool = boolean("1+", default=False, ignorable=True)
    leader_recovery_state: int = int8("6+", default=0)


class LeaderAndIsrRequest(Request, key=4, versions="0-7", flexible="4+"):
    """The controller tells a broker which partitions it leads or follows.

    With the in-sync replicas of each.
    """

    class TopicState(Struct):
        topic_name: str = string()
        topic_id: UUID = uuid("5+", default=ZERO_UUID, ignorable=True)
        partition_states: list[LeaderAndIsrPartitionState] = array(LeaderAndIsrPartitionState)

    class LiveLeader(Struct):
        broker_id: int = int32()
        host_name: str = string()
        port: int = int32()

    controller_id: int = int32()
    is_kraft_controller: bool = boolean("7+", default=False)
    controller_epoch: int = int32()
    broker_epoch: int = int64("2+", default=-1, ignorable=True)
    type: int = int8("5+", default=0)
    ungrouped_partition_states: list[LeaderAndIsrPartitionState] = array(LeaderAndIsrPartitionState, "0-1", default=[])
    topic_states: list[TopicState] = array(TopicState, "2+", default=[])
    live_leaders: list[LiveLeader] = array(LiveLeader)


class LeaderAndIsrPartitionError(Struct):
    """The outcome for one partition.

    Its topic is named here up to version 4 and around it later.
    """

    topic_name: str = string("0-4", default="", ignorable=True)
    partition_index: int = int32()
    error_code: int = int16(default=0)


class LeaderAndIsrResponse(Response, key=4, versions="0-7", flexible="4+"):
    """Which partitions a broker could not make leader or follower."""

    class Topic(Struct):
        topic_id: UUID = uuid()
        partition_errors: list[LeaderAndIsrPartitionError] = array(LeaderAndIsrPartitionError)

    error_code: int = int16(default=0)
    partition_errors: list[LeaderAndIsrPartitionError] = array(LeaderAndIsrPartitionError, "0-4", default=[])
    topics: list[Topic] = array(Topic, "5+", default=[])
