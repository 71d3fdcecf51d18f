"""The table of APIs: key, name, request, response and versions.

A new API is one line here and one module in `messages`. Importing this module imports no message module:
`ApiKeys.METADATA.request` imports `messages/metadata.py` on first use.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cache
from importlib import import_module
from typing import NamedTuple

from kafkapy.protocol.schema import NEWEST, Request, Response, VersionRange


class Api(NamedTuple):
    """An API: key, name, request, response and versions.

    `flexible` are the versions with flexible bodies and flexible headers.
    """

    key: int
    name: str
    request: type[Request]
    response: type[Response]
    versions: VersionRange
    flexible: VersionRange
    first_flexible: int
    """The first flexible version; above all versions when there is none."""


class ApiKeys(IntEnum):
    """Kafka's API keys (the Java class of the same name).

    `ApiKeys(3)` by key, `ApiKeys["METADATA"]` by name. The member's name gives the module (`METADATA`:
    `messages/metadata.py`) and the classes (`MetadataRequest`). Keys of the KRaft quorum and of KRaft broker
    registration have no messages here and are not members.
    """

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92

    @property
    def module(self) -> str:
        """Name of the module that declares the messages, without the package."""
        return self.name.lower()

    @property
    def title(self) -> str:
        """The API's name in prose and in metrics: "ListOffsets"."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def api(self) -> Api:
        """Everything about the API; imports its messages on first use."""
        return api(self.value)

    @property
    def request(self) -> type[Request]:
        """The request class."""
        return self.api.request

    @property
    def response(self) -> type[Response]:
        """The response class."""
        return self.api.response

    @property
    def versions(self) -> VersionRange:
        """The declared versions; a handler may serve fewer."""
        return self.api.versions

    @property
    def flexible(self) -> VersionRange:
        """Versions with flexible bodies and headers."""
        return self.api.flexible


@cache
def api(key: int) -> Api:
    """The API with that key.

    ValueError for a key that is not in the table.
    """
    member = ApiKeys(key)
    module = import_module(f"kafkapy.protocol.messages.{member.module}")
    request: type[Request] = getattr(module, f"{member.title}Request")
    response: type[Response] = getattr(module, f"{member.title}Response")
    flexible = request.FLEXIBLE
    first_flexible = flexible.low if flexible.low <= flexible.high else NEWEST + 1
    return Api(key, member.title, request, response, request.VERSIONS, flexible, first_flexible)
