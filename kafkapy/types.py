"""Value types and the enums of codes on the wire.

Imports nothing of kafkapy. All of them are immutable: any thread may share them.
"""

from __future__ import annotations

import base64
import uuid as _uuid
from enum import Enum, IntEnum
from typing import Final, NamedTuple

__all__ = [
    "MAX_TOPIC_NAME_LENGTH",
    "ONE_UUID",
    "ZERO_UUID",
    "AclOperation",
    "AclPermissionType",
    "BulkMetadata",
    "CompressionType",
    "ConfigResourceType",
    "ConfigSource",
    "ConfigType",
    "CoordinatorType",
    "Endpoint",
    "IsolationLevel",
    "ListOffsetsTimestamp",
    "MemberState",
    "Node",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "PatternType",
    "RecordMetadata",
    "ResourceType",
    "SecurityProtocol",
    "SentRecords",
    "TimestampType",
    "TopicIdPartition",
    "TopicPartition",
    "TopicPartitionReplica",
    "UpdateFeatureType",
    "random_uuid",
    "uuid_from_string",
    "uuid_to_string",
]

MAX_TOPIC_NAME_LENGTH: Final = 249
"""Longest topic name in characters: a log directory's name with its partition and suffix must fit in 255."""


class TopicPartition(NamedTuple):
    """A topic name and a partition number.

    Ordered by topic, then by partition.
    """

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TopicIdPartition(NamedTuple):
    """A partition with its topic's id; a re-created topic has another id."""

    topic_id: _uuid.UUID
    topic: str
    partition: int

    @property
    def topic_partition(self) -> TopicPartition:
        """The same partition without the id."""
        return TopicPartition(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{uuid_to_string(self.topic_id)}:{self.topic}-{self.partition}"


class OffsetAndMetadata(NamedTuple):
    """A committed offset: the offset of the next record to read.

    `metadata` is the member's note, `leader_epoch` the leader epoch of the last record read (-1: unknown).
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class OffsetAndTimestamp(NamedTuple):
    """The result of a search by timestamp.

    An offset, the timestamp of its record in ms, and its leader epoch (None: unknown).
    """

    offset: int
    timestamp: int
    leader_epoch: int | None = None


class TopicPartitionReplica(NamedTuple):
    """The replica of a partition on one broker."""

    topic: str
    partition: int
    broker_id: int


class MemberState:
    """The state of a group member, in kafka-python's texts (group_metadata())."""

    UNJOINED = "<unjoined>"
    REBALANCING = "<rebalancing>"
    STABLE = "<stable>"


class RecordMetadata(NamedTuple):
    """The position of a sent record. Sizes are bytes after serialization.

    A size is -1 for null (headers: for none). `offset` is -1 without an offset from the broker (acks=0, or an old
    duplicate). `timestamp` in ms is the record's, or the broker's with LogAppendTime. `checksum` is always None:
    records have no checksum since 0.11.
    """

    topic: str
    partition: int
    topic_partition: TopicPartition
    offset: int
    timestamp: int
    checksum: int | None
    serialized_key_size: int
    serialized_value_size: int
    serialized_header_size: int


class SentRecords(NamedTuple):
    """Consecutive records in a partition: `records` of them, starting at `first_offset`.

    `first_offset` is -1 without offsets from the broker (acks=0).
    """

    topic_partition: TopicPartition
    first_offset: int
    records: int

    def __str__(self) -> str:
        if self.first_offset < 0:
            return f"{self.topic_partition} ({self.records} without offsets)"
        if self.records == 1:
            return f"{self.topic_partition} offset {self.first_offset}"
        return f"{self.topic_partition} offsets {self.first_offset} to {self.first_offset + self.records - 1}"


class BulkMetadata(list[SentRecords]):
    """The positions of one call's records, as SentRecords in sending order."""

    SHOWN: Final = 10
    """The number of runs that the repr lists."""

    def __repr__(self) -> str:
        total = sum(each.records for each in self)
        shown = ", ".join(map(str, self[: self.SHOWN]))
        more = f", and {len(self) - self.SHOWN} more runs" if len(self) > self.SHOWN else ""
        return f"<{total} {'record' if total == 1 else 'records'} sent{': ' if self else ''}{shown}{more}>"


class SecurityProtocol(IntEnum):
    """The security protocol of a listener. Source: org.apache.kafka.common.security.auth.SecurityProtocol."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3

    @property
    def tls(self) -> bool:
        """Whether the connection uses TLS."""
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def sasl(self) -> bool:
        """Whether a SASL exchange precedes all other requests."""
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


class Endpoint(NamedTuple):
    """A listener: its name (upper case), address and security protocol.

    An empty `host` means every interface; `port` 0 asks the kernel for a free port.
    """

    listener_name: str
    host: str
    port: int
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT

    def with_port(self, port: int) -> Endpoint:
        """The same endpoint with another port."""
        return Endpoint(self.listener_name, self.host, port, self.security_protocol)

    @property
    def connection_string(self) -> str:
        """NAME://host:port, as in the `listeners` key and the broker's znode.

        IPv6 hosts are in brackets.
        """
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener_name}://{host}:{self.port}"

    def __str__(self) -> str:
        return self.connection_string


class Node(NamedTuple):
    """A broker for clients: id, address of one listener, and rack."""

    id: int
    host: str
    port: int
    rack: str | None = None

    @property
    def is_empty(self) -> bool:
        """Whether the node stands for no broker (id -1)."""
        return self.id < 0


# --- topic ids ----------------------------------------------------------------------------------------------------

ZERO_UUID: Final = _uuid.UUID(int=0)
"""The topic id that means "none"."""
ONE_UUID: Final = _uuid.UUID(int=1)


def random_uuid() -> _uuid.UUID:
    """A random (version 4) topic or cluster id, never a reserved one.

    The text never starts with "-", so command lines do not take it for an option.
    """
    while True:
        value = _uuid.uuid4()
        # The first base64 character is the top six bits; "-" is 62 in the url-safe alphabet.
        if value.int >> 122 != 62 and value not in (ZERO_UUID, ONE_UUID):
            return value


def uuid_to_string(value: _uuid.UUID) -> str:
    """Kafka's text of an id: 22 characters of url-safe base64 without padding."""
    return base64.urlsafe_b64encode(value.bytes)[:22].decode("ascii")


def uuid_from_string(text: str) -> _uuid.UUID:
    """The id for a text of Kafka's.

    ValueError unless it is url-safe base64 of 16 bytes.
    """
    if len(text) > 24:
        raise ValueError(f"{text[:32]!r} is too long to be the base64 text of an id")
    if "+" in text or "/" in text:
        raise ValueError(f"{text!r} is base64, but not of the url-safe kind")
    try:
        raw = base64.b64decode(text.rstrip("=") + "==", altchars=b"-_", validate=True)
    except ValueError as error:
        raise ValueError(f"{text!r} is not url-safe base64") from error
    if len(raw) != 16:
        raise ValueError(f"{text!r} holds {len(raw)} bytes; an id has 16")
    return _uuid.UUID(bytes=raw)


# --- enums with codes on the wire ---------------------------------------------------------------------------------


class IsolationLevel(IntEnum):
    """The end of readable records: high watermark or last stable offset (KIP-98)."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class TimestampType(IntEnum):
    """The source of a record's timestamp: bit 3 of a batch's attributes.

    -1 is for magic 0, which has no timestamps.
    """

    NO_TIMESTAMP_TYPE = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1

    @property
    def config_name(self) -> str:
        """The value of message.timestamp.type."""
        return {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}[self.value]


class CompressionType(IntEnum):
    """The codec in bits 0 to 2 of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def config_name(self) -> str:
        """The lower-case name in configurations. Topics write "uncompressed" for NONE in compression.type."""
        return self.name.lower()

    @classmethod
    def config_names(cls) -> tuple[str, ...]:
        """All codec names of producers, in the order of their codes."""
        return tuple(codec.config_name for codec in cls)


class ListOffsetsTimestamp(IntEnum):
    """The negative timestamps of ListOffsets: positions instead of times."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


class CoordinatorType(IntEnum):
    """The key_type of FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


class ResourceType(IntEnum):
    """The resource types of ACLs. Source: org.apache.kafka.common.resource.ResourceType."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """The comparison of an ACL's resource name with a resource (KIP-290)."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """The operations of ACLs. Source: org.apache.kafka.common.acl.AclOperation."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermissionType(IntEnum):
    """Whether an ACL allows or denies."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class ConfigResourceType(IntEnum):
    """The resource_type of DescribeConfigs and AlterConfigs."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class UpdateFeatureType(IntEnum):
    """The allowed direction of a feature level's change (KIP-584)."""

    UNKNOWN = 0
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class ConfigSource(IntEnum):
    """The source of a configuration value: the config_source of DescribeConfigs.

    The strongest source has the highest rank.
    """

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


class ConfigType(Enum):
    """The type of a configuration value; `code` is the config_type of DescribeConfigs."""

    UNKNOWN = ("unknown", 0)
    BOOLEAN = ("boolean", 1)
    STRING = ("string", 2)
    INT = ("int", 3)
    SHORT = ("short", 4)
    LONG = ("long", 5)
    DOUBLE = ("double", 6)
    LIST = ("list", 7)
    CLASS = ("class", 8)
    PASSWORD = ("password", 9)

    @property
    def label(self) -> str:
        """The lower-case name used in the documentation."""
        return self.value[0]

    @property
    def code(self) -> int:
        """The code on the wire (int8)."""
        return self.value[1]
