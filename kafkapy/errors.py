"""The table of Kafka's error codes, and the exceptions.

`ErrorCode` is the table: every code on the wire with its name, whether a client may retry, and a default message. The
exception of a code is named after it (``UNKNOWN_TOPIC_OR_PARTITION`` gives ``UnknownTopicOrPartitionError``), exists
from its first use, and derives from `RetriableError` or from `KafkaError`:

    from kafkapy.errors import ErrorCode, UnknownTopicOrPartitionError, code_of, error_for

    raise UnknownTopicOrPartitionError("topic 'orders' has no partition 7")
    raise error_for(response.error_code)

`code_of` is the only place that maps an arbitrary exception to the wire. The module also has kafka-python's names of
these classes (``KafkaConfigurationError``, ``NotLeaderForPartitionError``, ``NoBrokersAvailable``), and the exceptions
that only clients raise. Source: org.apache.kafka.common.protocol.Errors, org.apache.kafka.common.errors.
"""

from __future__ import annotations

import errno
from enum import IntEnum
from typing import Any, ClassVar

__all__ = [
    "AuthenticationError",
    "AuthorizationError",
    "BufferExhaustedError",
    "CommitFailedError",
    "ConfigError",
    "ErrorCode",
    "IllegalArgumentError",
    "IllegalStateError",
    "InvalidMetadataError",
    "InvalidOffsetError",
    "KafkaConnectionError",
    "KafkaError",
    "KafkaProtocolError",
    "KafkaTimeoutError",
    "LogTruncationError",
    "NoBrokersAvailableError",
    "NoError",
    "NoOffsetForPartitionError",
    "NodeNotReadyError",
    "PluginError",
    "RecordDeserializationError",
    "RetriableCommitFailedError",
    "RetriableError",
    "SerializationError",
    "StaleMetadataError",
    "TransactionAbortedError",
    "UnsupportedCodecError",
    "WakeupError",
    "code_of",
    "error_class",
    "error_for",
    "for_code",
]


class ErrorCode(IntEnum):
    """An error code of the Kafka protocol (int16 on the wire).

    `retriable` tells whether a client may send the same request again; `message` is the default text. Immutable; used
    on every thread.
    """

    retriable: bool
    message: str

    def __new__(cls, code: int, retriable: bool = False, message: str = "") -> ErrorCode:
        member = int.__new__(cls, code)
        member._value_ = code
        member.retriable = retriable
        member.message = message
        return member

    @classmethod
    def of(cls, code: int) -> ErrorCode:
        """The member for a code.

        Unknown codes give UNKNOWN_SERVER_ERROR, as in Kafka's clients.
        """
        try:
            return cls(code)
        except ValueError:
            return cls.UNKNOWN_SERVER_ERROR

    # fmt: off
    UNKNOWN_SERVER_ERROR = -1, False, "The broker met an unexpected error while serving the request."
    NONE = 0, False, ""
    OFFSET_OUT_OF_RANGE = 1, False, "The offset lies outside the range this replica holds."
    CORRUPT_MESSAGE = 2, True, "The message is corrupt: bad CRC or size, a null key where one is needed, or bad magic."
    UNKNOWN_TOPIC_OR_PARTITION = 3, True, "This broker does not host that topic-partition."
    INVALID_FETCH_SIZE = 4, False, "The fetch size is not valid."
    LEADER_NOT_AVAILABLE = 5, True, "The partition has no leader right now; an election is under way."
    NOT_LEADER_OR_FOLLOWER = 6, True, "This broker is neither the leader nor a usable replica of the partition."
    REQUEST_TIMED_OUT = 7, True, "The request was not finished within its timeout."
    BROKER_NOT_AVAILABLE = 8, False, "The broker is not available."
    REPLICA_NOT_AVAILABLE = 9, True, "The replica is not available for the topic-partition asked for."
    MESSAGE_TOO_LARGE = 10, False, "The batch is larger than max.message.bytes allows."
    STALE_CONTROLLER_EPOCH = 11, False, "The controller has moved to another broker."
    OFFSET_METADATA_TOO_LARGE = 12, False, "The metadata string of the committed offset is too long."
    NETWORK_EXCEPTION = 13, True, "The connection was lost before a response arrived."
    COORDINATOR_LOAD_IN_PROGRESS = 14, True, "The coordinator is still loading its state."
    COORDINATOR_NOT_AVAILABLE = 15, True, "The coordinator is not available."
    NOT_COORDINATOR = 16, True, "This broker is not the coordinator asked for."
    INVALID_TOPIC_EXCEPTION = 17, False, "The topic name, or the operation on that topic, is not valid."
    RECORD_LIST_TOO_LARGE = 18, False, "The batch is larger than a segment of the log may be."
    NOT_ENOUGH_REPLICAS = 19, True, "Fewer replicas are in sync than min.insync.replicas asks for; nothing was written."
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, True, "Written, but to fewer in-sync replicas than required."
    INVALID_REQUIRED_ACKS = 21, False, "acks must be 0, 1 or -1 (all)."
    ILLEGAL_GENERATION = 22, False, "The generation id is not the group's current one."
    INCONSISTENT_GROUP_PROTOCOL = 23, False, "The member shares no protocol type or protocol name with the group."
    INVALID_GROUP_ID = 24, False, "The group id is not valid."
    UNKNOWN_MEMBER_ID = 25, False, "The coordinator does not know this member."
    INVALID_SESSION_TIMEOUT = 26, False, (
        "The session timeout is outside group.min.session.timeout.ms to group.max.session.timeout.ms.")
    REBALANCE_IN_PROGRESS = 27, False, "The group is rebalancing; rejoin it."
    INVALID_COMMIT_OFFSET_SIZE = 28, False, "The committed offset data is too large."
    TOPIC_AUTHORIZATION_FAILED = 29, False, "Not authorized for the topic."
    GROUP_AUTHORIZATION_FAILED = 30, False, "Not authorized for the group."
    CLUSTER_AUTHORIZATION_FAILED = 31, False, "Not authorized for the cluster."
    INVALID_TIMESTAMP = 32, False, "The timestamp of the message is out of the accepted range."
    UNSUPPORTED_SASL_MECHANISM = 33, False, "The broker does not offer that SASL mechanism."
    ILLEGAL_SASL_STATE = 34, False, "The request is not valid in the current state of the SASL exchange."
    UNSUPPORTED_VERSION = 35, False, "The broker does not serve that version of the API."
    TOPIC_ALREADY_EXISTS = 36, False, "A topic of that name already exists."
    INVALID_PARTITIONS = 37, False, "The number of partitions is not valid."
    INVALID_REPLICATION_FACTOR = 38, False, "The replication factor is below 1 or above the number of brokers."
    INVALID_REPLICA_ASSIGNMENT = 39, False, "The replica assignment is not valid."
    INVALID_CONFIG = 40, False, "The configuration is not valid."
    NOT_CONTROLLER = 41, True, "This broker is not the controller."
    INVALID_REQUEST = 42, False, "The request is malformed or contradicts itself."
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, False, "The message format of the broker does not support the request."
    POLICY_VIOLATION = 44, False, "The request violates the configured policy."
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, False, "The sequence number does not follow the producer's last one."
    DUPLICATE_SEQUENCE_NUMBER = 46, False, "The sequence number was seen before."
    INVALID_PRODUCER_EPOCH = 47, False, "The producer used an epoch older than the one the broker knows."
    INVALID_TXN_STATE = 48, False, "The transaction is not in a state that allows this."
    INVALID_PRODUCER_ID_MAPPING = 49, False, "The producer id does not belong to that transactional id."
    INVALID_TRANSACTION_TIMEOUT = 50, False, "The transaction timeout is above transaction.max.timeout.ms."
    CONCURRENT_TRANSACTIONS = 51, True, "An earlier operation on this transaction has not finished yet."
    TRANSACTION_COORDINATOR_FENCED = 52, False, "The transaction coordinator that sent this was replaced."
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, False, "Not authorized for the transactional id."
    SECURITY_DISABLED = 54, False, "Security features are disabled on this broker."
    OPERATION_NOT_ATTEMPTED = 55, False, "Not attempted, because another part of the same request failed."
    KAFKA_STORAGE_ERROR = 56, True, "The log directory met a disk error."
    LOG_DIR_NOT_FOUND = 57, False, "The broker has no such log directory."
    SASL_AUTHENTICATION_FAILED = 58, False, "SASL authentication failed."
    UNKNOWN_PRODUCER_ID = 59, False, "The broker holds no state for that producer id (its records may have expired)."
    REASSIGNMENT_IN_PROGRESS = 60, False, "A partition reassignment is in progress."
    DELEGATION_TOKEN_AUTH_DISABLED = 61, False, "Delegation tokens are not enabled."
    DELEGATION_TOKEN_NOT_FOUND = 62, False, "The broker has no such delegation token."
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, False, "The principal is neither owner nor renewer of the token."
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, False, "Token requests need an authenticated connection without a token."
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, False, "Not authorized for the delegation token."
    DELEGATION_TOKEN_EXPIRED = 66, False, "The delegation token has expired."
    INVALID_PRINCIPAL_TYPE = 67, False, "That principal type is not supported."
    NON_EMPTY_GROUP = 68, False, "The group still has members."
    GROUP_ID_NOT_FOUND = 69, False, "There is no such group."
    FETCH_SESSION_ID_NOT_FOUND = 70, True, "There is no such fetch session."
    INVALID_FETCH_SESSION_EPOCH = 71, True, "The epoch is not the fetch session's current one."
    LISTENER_NOT_FOUND = 72, True, "The leader has no listener of the name this request came in on."
    TOPIC_DELETION_DISABLED = 73, False, "Deleting topics is disabled (delete.topic.enable)."
    FENCED_LEADER_EPOCH = 74, True, "The leader epoch of the request is older than the broker's."
    UNKNOWN_LEADER_EPOCH = 75, True, "The leader epoch of the request is newer than the broker's."
    UNSUPPORTED_COMPRESSION_TYPE = 76, False, "The client does not support the compression type of the partition."
    STALE_BROKER_EPOCH = 77, False, "The broker epoch has changed."
    OFFSET_NOT_AVAILABLE = 78, True, "The new leader's high watermark has not caught up with its epoch yet."
    MEMBER_ID_REQUIRED = 79, False, "Join again with the member id given in this response."
    PREFERRED_LEADER_NOT_AVAILABLE = 80, True, "The preferred leader is not available."
    GROUP_MAX_SIZE_REACHED = 81, False, "The group has as many members as group.max.size allows."
    FENCED_INSTANCE_ID = 82, False, "Another member has joined with the same group.instance.id."
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, True, "No replica that may become leader is available."
    ELECTION_NOT_NEEDED = 84, True, "The partition does not need a leader election."
    NO_REASSIGNMENT_IN_PROGRESS = 85, False, "No partition reassignment is in progress."
    GROUP_SUBSCRIBED_TO_TOPIC = 86, False, "The group is subscribed to the topic, so its offsets cannot be deleted."
    INVALID_RECORD = 87, False, "The broker rejected a record of the batch."
    UNSTABLE_OFFSET_COMMIT = 88, True, "Offset commits of a transaction on these partitions are still pending."
    THROTTLING_QUOTA_EXCEEDED = 89, True, "The quota is exhausted; wait for the throttle time."
    PRODUCER_FENCED = 90, False, "A newer producer uses the same transactional id."
    RESOURCE_NOT_FOUND = 91, False, "The resource named in the request was not found."
    DUPLICATE_RESOURCE = 92, False, "The request names the same resource twice."
    UNACCEPTABLE_CREDENTIAL = 93, False, "The credential does not meet what the broker requires."
    INCONSISTENT_VOTER_SET = 94, False, "Sender or receiver is not in the voter set the other one expects."
    INVALID_UPDATE_VERSION = 95, False, "The version of the update is not valid."
    FEATURE_UPDATE_FAILED = 96, False, "The finalized features could not be updated."
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, False, "The forwarded principal could not be decoded."
    SNAPSHOT_NOT_FOUND = 98, False, "The snapshot was not found."
    POSITION_OUT_OF_RANGE = 99, False, "The position is outside the snapshot."
    UNKNOWN_TOPIC_ID = 100, True, "This broker does not host a topic with that id."
    DUPLICATE_BROKER_REGISTRATION = 101, False, "The broker id is registered already."
    BROKER_ID_NOT_REGISTERED = 102, False, "The broker id is not registered."
    INCONSISTENT_TOPIC_ID = 103, True, "The topic id of the log differs from the one in the request."
    INCONSISTENT_CLUSTER_ID = 104, False, "The cluster id of the request is not this cluster's."
    TRANSACTIONAL_ID_NOT_FOUND = 105, False, "There is no such transactional id."
    FETCH_SESSION_TOPIC_ID_ERROR = 106, True, "The session mixes topic names and topic ids, or an id changed."
    INELIGIBLE_REPLICA = 107, False, "The replica may not join the in-sync set."
    NEW_LEADER_ELECTED = 108, False, "The leader changed with this very partition update."
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, False, "The offset has moved to tiered storage."
    FENCED_MEMBER_EPOCH = 110, False, "The member epoch is fenced; abandon all partitions and rejoin."
    UNRELEASED_INSTANCE_ID = 111, False, "The instance id still belongs to another member of the group."
    UNSUPPORTED_ASSIGNOR = 112, False, "The group does not support that assignor, or any of those offered."
    STALE_MEMBER_EPOCH = 113, False, "The member epoch is stale; take it from the next heartbeat and retry."
    MISMATCHED_ENDPOINT_TYPE = 114, False, "The request went to the wrong kind of endpoint (broker or controller)."
    UNSUPPORTED_ENDPOINT_TYPE = 115, False, "That endpoint type is not supported."
    UNKNOWN_CONTROLLER_ID = 116, False, "The controller id is not known."
    UNKNOWN_SUBSCRIPTION_ID = 117, False, "The subscription id of the client's telemetry is not the current one."
    TELEMETRY_TOO_LARGE = 118, False, "The telemetry payload is larger than the broker accepts."
    INVALID_REGISTRATION = 119, False, "The controller considers the broker registration invalid."
    TRANSACTION_ABORTABLE = 120, False, "The transaction met an error and has to be aborted."
    INVALID_RECORD_STATE = 121, False, "The record's state does not allow that acknowledgement."
    SHARE_SESSION_NOT_FOUND = 122, True, "There is no such share session."
    INVALID_SHARE_SESSION_EPOCH = 123, True, "The epoch is not the share session's current one."
    FENCED_STATE_EPOCH = 124, False, "The state epoch is older than the share coordinator's."
    INVALID_VOTER_KEY = 125, False, "The voter key does not match the receiver's."
    DUPLICATE_VOTER = 126, False, "The voter is in the voter set already."
    VOTER_NOT_FOUND = 127, False, "The voter is not in the voter set."
    INVALID_REGULAR_EXPRESSION = 128, False, "The regular expression is not valid."
    REBOOTSTRAP_REQUIRED = 129, False, "The client's metadata is too old; it has to bootstrap again."
    STREAMS_INVALID_TOPOLOGY = 130, False, "The streams topology is not valid."
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, False, "The streams topology epoch is not valid."
    STREAMS_TOPOLOGY_FENCED = 132, False, "The streams topology epoch is older than the group's."
    SHARE_SESSION_LIMIT_REACHED = 133, True, "The broker holds as many share sessions as it may."
    GROUP_DELETION_FAILED = 134, False, "The group could not be deleted."
    STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED = 135, False, "The description of the streams topology was not stored."
    CONTROLLER_ID_NOT_REGISTERED = 136, False, "No controller with that id is registered."
    # fmt: on


class KafkaError(Exception):
    """Base of every error that has a code on the wire.

    The control plane and the clients raise it. `code` is the `ErrorCode`, `retriable` tells whether a client may send
    the same request again, and `str()` is the text for clients.
    """

    code: ClassVar[ErrorCode] = ErrorCode.UNKNOWN_SERVER_ERROR
    retriable: ClassVar[bool] = False
    invalid_metadata: ClassVar[bool] = False
    """Whether the client must refresh its metadata before a retry."""
    errno: ClassVar[int | None] = None
    """The code as a number, under kafka-python's name; None for errors of the client itself."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(self.code.message if message is None else message)

    @property
    def message(self) -> str:
        """The text for the error_message field of a response."""
        return str(self)


class RetriableError(KafkaError):
    """Base of errors after which a client may repeat the request."""

    retriable = True


class InvalidMetadataError(RetriableError):
    """Base of errors that reveal outdated cluster metadata of the client."""

    invalid_metadata = True


class AuthorizationError(KafkaError):
    """Base of errors about missing permissions of the client's principal."""


class AuthenticationError(KafkaError):
    """Base of errors about a failed authentication of the client."""


class InvalidOffsetError(KafkaError):
    """Base of errors about an unreadable position."""


class ConfigError(KafkaError, ValueError):
    """A configuration key is unknown, or its value is not allowed.

    The broker answers it as INVALID_CONFIG. `key`, `value` and `reason` (the allowed values) are separate; `line` is
    the 1-based line in `source`, a file. A secret value is `None`, and the text shows ``[hidden]``.
    """

    code = ErrorCode.INVALID_CONFIG

    def __init__(
        self, key: str, value: object, reason: str, line: int | None = None, source: str | None = None
    ) -> None:
        self.key = key
        self.value = value
        self.reason = reason
        self.line = line
        self.source = source
        where = "" if line is None else f" ({source + ', ' if source else ''}line {line})"
        shown = "[hidden]" if value is None else repr(value) if isinstance(value, str) else str(value)
        super().__init__(f"Invalid value {shown} for configuration {key}: {reason}{where}")

    def __reduce__(self) -> tuple[Any, ...]:
        return (ConfigError, (self.key, self.value, self.reason, self.line, self.source))


class PluginError(KafkaError):
    """A plugin did not load, or two plugins register the same name.

    The message names the plugin and the reason.
    """


def class_name(code: ErrorCode) -> str:
    """The exception's name for a code: UNKNOWN_TOPIC_ID gives UnknownTopicIdError."""
    stem = code.name.removesuffix("_EXCEPTION").removesuffix("_ERROR")
    return "".join(word.capitalize() for word in stem.split("_")) + "Error"


_CODE_BY_CLASS_NAME: dict[str, ErrorCode] = {class_name(code): code for code in ErrorCode if code}
_CLASSES: dict[ErrorCode, type[KafkaError]] = {}
_BASES: dict[ErrorCode, type[KafkaError]] = {
    **dict.fromkeys(
        (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.LEADER_NOT_AVAILABLE,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.REPLICA_NOT_AVAILABLE,
            ErrorCode.NETWORK_EXCEPTION,
            ErrorCode.KAFKA_STORAGE_ERROR,
            ErrorCode.LISTENER_NOT_FOUND,
            ErrorCode.FENCED_LEADER_EPOCH,
            ErrorCode.UNKNOWN_LEADER_EPOCH,
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            ErrorCode.ELECTION_NOT_NEEDED,
            ErrorCode.UNKNOWN_TOPIC_ID,
            ErrorCode.INCONSISTENT_TOPIC_ID,
        ),
        InvalidMetadataError,
    ),
    **dict.fromkeys(
        (
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            ErrorCode.GROUP_AUTHORIZATION_FAILED,
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
        ),
        AuthorizationError,
    ),
    **dict.fromkeys(
        (
            ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            ErrorCode.ILLEGAL_SASL_STATE,
            ErrorCode.SASL_AUTHENTICATION_FAILED,
        ),
        AuthenticationError,
    ),
    ErrorCode.OFFSET_OUT_OF_RANGE: InvalidOffsetError,
}
"""The base classes of families of errors. All other errors are RetriableError or KafkaError."""


def error_class(code: int) -> type[KafkaError]:
    """The exception class of a code.

    Codes outside the table give UnknownServerError. ValueError for NONE.
    """
    member = ErrorCode.of(code)
    if not member:
        raise ValueError("error code 0 (NONE) is not an error")
    cls = _CLASSES.get(member)
    if cls is None:
        base = _BASES.get(member, RetriableError if member.retriable else KafkaError)
        body = {
            "__module__": __name__,
            "__doc__": f"{member.name} ({member.value}): {member.message}",
            "code": member,
            "errno": member.value,
        }
        # setdefault: two threads that both get here agree on one class.
        cls = _CLASSES.setdefault(member, type(class_name(member), (base,), body))
        globals()[cls.__name__] = cls
    return cls


def error_for(code: int, message: str | None = None) -> KafkaError:
    """A new exception for a code, by default with the table's message."""
    return error_class(code)(message)


def for_code(error_code: int) -> type[KafkaError]:
    """The class of a code, NoError for 0; kafka-python's and aiokafka's name."""
    return NoError if error_code == 0 else error_class(error_code)


def code_of(error: BaseException) -> ErrorCode:
    """The code on the wire for any exception.

    This is its `code` when that is an ErrorCode, as every KafkaError has. This function is the only such mapping in the
    project.
    """
    code = getattr(error, "code", None)
    if isinstance(code, ErrorCode):
        return code
    if isinstance(error, TimeoutError):
        return ErrorCode.REQUEST_TIMED_OUT
    if isinstance(error, ConnectionError):
        return ErrorCode.NETWORK_EXCEPTION
    if isinstance(error, OSError) and error.errno in _STORAGE_ERRNOS:
        return ErrorCode.KAFKA_STORAGE_ERROR
    return ErrorCode.UNKNOWN_SERVER_ERROR


_STORAGE_ERRNOS = frozenset(
    {errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.ENOENT, errno.EMFILE, errno.ENFILE}
)


# --- errors that only clients raise -------------------------------------------------------------------------------


class SslAuthenticationError(AuthenticationError):
    """The TLS handshake failed: client and broker do not accept each other.

    The reason is, for example, an untrusted or expired certificate, or one for another host name. Java's
    SslAuthenticationException.
    """


class KafkaTimeoutError(RetriableError):
    """A result, metadata or buffer space did not arrive in time."""

    code = ErrorCode.REQUEST_TIMED_OUT


class BufferExhaustedError(KafkaTimeoutError):
    """A record found no room within max.block.ms.

    The producer's memory (buffer.memory) is full of unsent records.
    """


class KafkaConnectionError(InvalidMetadataError):
    """The connection to a broker failed, or was lost before the response."""

    code = ErrorCode.NETWORK_EXCEPTION


class NoBrokersAvailableError(KafkaConnectionError):
    """No bootstrap server answered in time.

    It is a KafkaConnectionError, because aiokafka raises that.
    """

    code = ErrorCode.BROKER_NOT_AVAILABLE


class NodeNotReadyError(RetriableError):
    """The broker has no connection, and reconnect.backoff.ms is not over yet."""

    code = ErrorCode.NETWORK_EXCEPTION


class NoError(KafkaError):
    """No error, for results by partition, as in kafka-python. Never raised."""

    code = ErrorCode.NONE
    errno = 0


class StaleMetadataError(InvalidMetadataError):
    """The client's metadata lacks the needed broker or leader."""


class KafkaProtocolError(KafkaError):
    """A broker sent a response that does not match its request."""


class IllegalStateError(KafkaError):
    """The object's state does not allow the call.

    For example, it is closed, belongs to another process, or has no assignment.
    """


class IllegalArgumentError(KafkaError, ValueError):
    """An argument has a value that is not allowed."""


class WakeupError(KafkaError):
    """wakeup() ended the consumer's wait."""


class SerializationError(KafkaError):
    """A key or a value does not convert to or from bytes."""


class RecordDeserializationError(SerializationError):
    """A deserializer failed on a fetched record.

    Seek past `offset` of the partition to continue.
    """

    def __init__(self, message: str | None = None, topic: str = "", partition: int = -1, offset: int = -1) -> None:
        super().__init__(message)
        self.topic = topic
        self.partition = partition
        self.offset = offset

    def __reduce__(self) -> tuple[Any, ...]:
        return (RecordDeserializationError, (str(self), self.topic, self.partition, self.offset))


class UnsupportedCodecError(KafkaError):
    """kafkapy does not know the codec."""

    code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


class CommitFailedError(KafkaError):
    """The group has removed this member, so the commit failed.

    Other members own its partitions.
    """

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or _COMMIT_FAILED)


class RetriableCommitFailedError(RetriableError):
    """The commit failed, but may succeed later."""


class NoOffsetForPartitionError(InvalidOffsetError):
    """A partition has no committed offset, and auto.offset.reset is none."""


class LogTruncationError(InvalidOffsetError):
    """The log lost records below the consumer's position.

    Raised when auto.offset.reset is none. `divergent_offsets` has, by topic-partition, the first offset that differs
    from the records already read.
    """

    def __init__(self, message: str | None = None, divergent_offsets: dict[Any, Any] | None = None) -> None:
        super().__init__(message)
        self.divergent_offsets = divergent_offsets or {}


class TransactionAbortedError(KafkaError):
    """The abort of its transaction discarded the record."""


_COMMIT_FAILED = (
    "The commit failed: the group has rebalanced and assigned the partitions to another member, because the time "
    "between two calls of poll() exceeded max.poll.interval.ms. Raise it, or lower max.poll.records."
)

_KAFKA_PYTHON_NAMES: dict[str, type[KafkaError] | ErrorCode] = {
    "BrokerResponseError": KafkaError,
    "CorruptRecordError": ErrorCode.CORRUPT_MESSAGE,
    "CorruptRecordException": ErrorCode.CORRUPT_MESSAGE,
    "IncompatibleBrokerVersion": ErrorCode.UNSUPPORTED_VERSION,
    "InvalidConfigurationError": ErrorCode.INVALID_CONFIG,
    "InvalidFetchRequestError": ErrorCode.INVALID_FETCH_SIZE,
    "InvalidReplicationAssignmentError": ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    "KafkaConfigurationError": ConfigError,
    "MessageSizeTooLargeError": ErrorCode.MESSAGE_TOO_LARGE,
    "NetworkExceptionError": ErrorCode.NETWORK_EXCEPTION,
    "NoBrokersAvailable": NoBrokersAvailableError,
    "NotLeaderForPartitionError": ErrorCode.NOT_LEADER_OR_FOLLOWER,
    "RecordTooLargeError": ErrorCode.MESSAGE_TOO_LARGE,
    "StaleMetadata": StaleMetadataError,
    "UnknownError": ErrorCode.UNKNOWN_SERVER_ERROR,
    "UnrecognizedBrokerVersion": ErrorCode.UNSUPPORTED_VERSION,
}
"""Names of kafka-python (and one of Java's) for classes with another name here."""


def __getattr__(name: str) -> type[KafkaError]:
    code = _CODE_BY_CLASS_NAME.get(name)
    if code is not None:
        return error_class(code)
    other = _KAFKA_PYTHON_NAMES.get(name)
    if other is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return error_class(other) if isinstance(other, ErrorCode) else other


def __dir__() -> list[str]:
    return sorted({*globals(), *_CODE_BY_CLASS_NAME, *_KAFKA_PYTHON_NAMES})
