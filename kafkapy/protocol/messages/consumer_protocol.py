"""Messages between members of a classic group of type "consumer".

The group APIs carry them as opaque bytes.
"""

from kafkapy.protocol.schema import Record, Struct, array, bytes_, int32, string


class ConsumerProtocolSubscription(Record, versions="0-3"):
    """A consumer's subscription, for the group leader: topics, user data, owned partitions."""

    class TopicPartitions(Struct):
        topic: str = string()
        partitions: list[int] = array(int32)

    topics: list[str] = array(string)
    user_data: bytes | None = bytes_(nullable="0+", default=None)
    owned_partitions: list[TopicPartitions] = array(TopicPartitions, "1+", default=[], ignorable=True)
    generation_id: int = int32("2+", default=-1, ignorable=True)
    rack_id: str | None = string("3+", nullable="3+", default=None, ignorable=True)


class ConsumerProtocolAssignment(Record, versions="0-3"):
    """The partitions that the leader of a classic group assigns to a consumer."""

    class TopicPartitions(Struct):
        topic: str = string()
        partitions: list[int] = array(int32)

    assigned_partitions: list[TopicPartitions] = array(TopicPartitions)
    user_data: bytes | None = bytes_(nullable="0+", default=None)
