"""UpdateMetadata, API key 6."""

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


class UpdateMetadataPartitionState(Struct):
    """The state of one partition for metadata caches."""

    topic_name: str = string("0-4", default="", ignorable=True)
    partition_index: int = int32()
    controller_epoch: int = int32()
    leader: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = array(int32)
    zk_version: int = int32()
    replicas: list[int] = array(int32)
    offline_replicas: list[int] = array(int32, "4+", default=[], ignorable=True)


class UpdateMetadataRequest(Request, key=6, versions="0-8", flexible="6+"):
    """The controller tells a broker the state of the cluster, for its metadata cache."""

    class TopicState(Struct):
        topic_name: str = string()
        topic_id: UUID = uuid("7+", default=ZERO_UUID, ignorable=True)
        partition_states: list[UpdateMetadataPartitionState] = array(UpdateMetadataPartitionState)

    class LiveBroker(Struct):
        class Endpoint(Struct):
            port: int = int32()
            host: str = string()
            listener: str = string("3+", default="", ignorable=True)
            security_protocol: int = int16()

        id: int = int32()
        v0_host: str = string("0", default="", ignorable=True)
        v0_port: int = int32("0", default=0, ignorable=True)
        endpoints: list[Endpoint] = array(Endpoint, "1+", default=[], ignorable=True)
        rack: str | None = string("2+", nullable="2+", default="", ignorable=True)

    controller_id: int = int32()
    is_kraft_controller: bool = boolean("8+", default=False)
    type: int = int8("8+", default=0, tag=0)
    controller_epoch: int = int32()
    broker_epoch: int = int64("5+", default=-1, ignorable=True)
    ungrouped_partition_states: list[UpdateMetadataPartitionState] = array(
        UpdateMetadataPartitionState, "0-4", default=[]
    )
    topic_states: list[TopicState] = array(TopicState, "5+", default=[])
    live_brokers: list[LiveBroker] = array(LiveBroker)


class UpdateMetadataResponse(Response, key=6, versions="0-8", flexible="6+"):
    """Says whether the broker took the new metadata."""

    error_code: int = int16(default=0)
