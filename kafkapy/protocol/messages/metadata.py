"""Metadata, API key 3."""

from uuid import UUID

from kafkapy.protocol.schema import ZERO_UUID, Request, Response, Struct, array, boolean, int16, int32, string, uuid


class MetadataRequest(Request, key=3, versions="0-13", flexible="9+"):
    """Asks for the brokers, and for topics by name or by id.

    Null asks for all topics; in version 0 an empty list does.
    """

    class Topic(Struct):
        topic_id: UUID = uuid("10+", default=ZERO_UUID, ignorable=True)
        name: str | None = string(nullable="10+")

    topics: list[Topic] | None = array(Topic, nullable="1+")
    allow_auto_topic_creation: bool = boolean("4+", default=True)
    include_cluster_authorized_operations: bool = boolean("8-10", default=False)
    include_topic_authorized_operations: bool = boolean("8+", default=False)


class MetadataResponse(Response, key=3, versions="0-13", flexible="9+"):
    """The cluster's brokers, and the leaders and replicas of the requested topics' partitions."""

    class Broker(Struct):
        node_id: int = int32()
        host: str = string()
        port: int = int32()
        rack: str | None = string("1+", nullable="1+", default=None, ignorable=True)

    class Topic(Struct):
        class Partition(Struct):
            error_code: int = int16(default=0)
            partition_index: int = int32()
            leader_id: int = int32()
            leader_epoch: int = int32("7+", default=-1, ignorable=True)
            replica_nodes: list[int] = array(int32)
            isr_nodes: list[int] = array(int32)
            offline_replicas: list[int] = array(int32, "5+", default=[], ignorable=True)

        error_code: int = int16(default=0)
        name: str | None = string(nullable="12+")
        topic_id: UUID = uuid("10+", default=ZERO_UUID, ignorable=True)
        is_internal: bool = boolean("1+", default=False, ignorable=True)
        partitions: list[Partition] = array(Partition)
        topic_authorized_operations: int = int32("8+", default=-0x80000000)

    throttle_time_ms: int = int32("3+", default=0, ignorable=True)
    brokers: list[Broker] = array(Broker)
    cluster_id: str | None = string("2+", nullable="2+", default=None, ignorable=True)
    controller_id: int = int32("1+", default=-1, ignorable=True)
    topics: list[Topic] = array(Topic)
    cluster_authorized_operations: int = int32("8-10", default=-0x80000000)
    error_code: int = int16("13+", default=0, ignorable=True)
