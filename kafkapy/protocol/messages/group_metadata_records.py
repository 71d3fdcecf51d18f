"""Records of classic groups and of committed offsets in __consumer_offsets."""

from kafkapy.protocol.schema import Record, Struct, array, bytes_, int32, int64, string


class OffsetCommitKey(Record, versions="0-1"):
    """Key of a committed offset in __consumer_offsets; versions 0 and 1 are the same."""

    group: str = string()
    topic: str = string()
    partition: int = int32()


class OffsetCommitValue(Record, versions="0-4", flexible="4+"):
    """A committed offset in __consumer_offsets. Times are ms since the epoch."""

    offset: int = int64()
    leader_epoch: int = int32("3+", default=-1, ignorable=True)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64("1", default=-1, ignorable=True)


class GroupMetadataKey(Record, versions="2"):
    """Key of a classic group in __consumer_offsets."""

    group: str = string()


class GroupMetadataValue(Record, versions="0-4", flexible="4+"):
    """A classic group in __consumer_offsets: its generation, leader and members."""

    class Member(Struct):
        member_id: str = string()
        group_instance_id: str | None = string("3+", nullable="3+", default=None, ignorable=True)
        client_id: str = string()
        client_host: str = string()
        rebalance_timeout: int = int32("1+", default=-1, ignorable=True)
        session_timeout: int = int32()
        subscription: bytes = bytes_()
        assignment: bytes = bytes_()

    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(nullable="0+")
    leader: str | None = string(nullable="0+")
    current_state_timestamp: int = int64("2+", default=-1, ignorable=True)
    members: list[Member] = array(Member)
