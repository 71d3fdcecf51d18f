"""Records of share-partitions (KIP-932) in __share_group_state."""

from uuid import UUID

from kafkapy.protocol.schema import Record, Struct, array, int8, int16, int32, int64, string, uuid


class ShareSnapshotKey(Record, versions="0"):
    """Key of the whole state of a share-partition."""

    group_id: str = string()
    topic_id: UUID = uuid()
    partition: int = int32()


class ShareSnapshotValue(Record, versions="0", flexible="0+"):
    """The whole state of a share-partition. Times are ms since the epoch."""

    class StateBatch(Struct):
        first_offset: int = int64()
        last_offset: int = int64()
        delivery_state: int = int8()
        delivery_count: int = int16()

    snapshot_epoch: int = int32()
    state_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    create_timestamp: int = int64()
    write_timestamp: int = int64()
    state_batches: list[StateBatch] = array(StateBatch)
    delivery_complete_count: int = int32("0+", default=-1, tag=0)


class ShareUpdateKey(Record, versions="1"):
    """Key of a change to the state of a share-partition."""

    group_id: str = string()
    topic_id: UUID = uuid()
    partition: int = int32()


class ShareUpdateValue(Record, versions="0", flexible="0+"):
    """A change to the state of a share-partition since its last snapshot."""

    class StateBatch(Struct):
        first_offset: int = int64()
        last_offset: int = int64()
        delivery_state: int = int8()
        delivery_count: int = int16()

    snapshot_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    state_batches: list[StateBatch] = array(StateBatch)
    delivery_complete_count: int = int32("0+", default=-1, tag=0)
