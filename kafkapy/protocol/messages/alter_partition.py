"""AlterPartition, API key 56."""

from uuid import UUID

from kafkapy.protocol.schema import ZERO_UUID, Request, Response, Struct, array, int8, int16, int32, int64, string, uuid


class AlterPartitionRequest(Request, key=56, versions="0-3", flexible="0+"):
    """A partition leader asks the controller to shrink or grow the in-sync replicas (KIP-497)."""

    class Topic(Struct):
        class Partition(Struct):
            class BrokerState(Struct):
                """A broker that is to be in sync, with its epoch."""

                broker_id: int = int32()
                broker_epoch: int = int64(default=-1)

            partition_index: int = int32()
            leader_epoch: int = int32()
            new_isr: list[int] = array(int32, "0-2", default=[])
            new_isr_with_epochs: list[BrokerState] = array(BrokerState, "3+", default=[])
            leader_recovery_state: int = int8("1+", default=0)
            partition_epoch: int = int32()

        topic_name: str = string("0-1", default="", ignorable=True)
        topic_id: UUID = uuid("2+", default=ZERO_UUID, ignorable=True)
        partitions: list[Partition] = array(Partition)

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    topics: list[Topic] = array(Topic)


class AlterPartitionResponse(Response, key=56, versions="0-3", flexible="0+"):
    """The state of each partition after the change."""

    class Topic(Struct):
        class Partition(Struct):
            partition_index: int = int32()
            error_code: int = int16(default=0)
            leader_id: int = int32()
            leader_epoch: int = int32()
            isr: list[int] = array(int32)
            leader_recovery_state: int = int8("1+", default=0, ignorable=True)
            partition_epoch: int = int32()

        topic_name: str = string("0-1", default="", ignorable=True)
        topic_id: UUID = uuid("2+", default=ZERO_UUID, ignorable=True)
        partitions: list[Partition] = array(Partition)

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    topics: list[Topic] = array(Topic)
