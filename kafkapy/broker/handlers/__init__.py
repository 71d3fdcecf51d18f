"""The served APIs, and one handler module per API key.

The data plane itself serves Produce and Fetch. `SERVED` has the versions of each API; the module has the API's name,
and is imported when the first such request comes. It declares:

    '''DescribeCluster, API key 60: versions 0 to 2.

    What the API does.

    Versions:
    0: the API (KIP-700).
    1: ...

    Known gaps: ...
    '''
    REQUEST = DescribeClusterRequest
    RESPONSE = DescribeClusterResponse

    async def handle(context: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse: ...
    def handle(context: RequestContext, request: ...) -> Later[...]: ...     # without a task, where that counts
    def error_response(request, error, message) -> Response          # where the error does not stand at the top level
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kafkapy.network.api_table import ServedApi
from kafkapy.protocol.registry import ApiKeys

SERVED: Final[Mapping[int, ServedApi]] = {
    ApiKeys.LIST_OFFSETS: ServedApi(0, 11, 6),
    ApiKeys.METADATA: ServedApi(0, 13, 9),
    ApiKeys.LEADER_AND_ISR: ServedApi(0, 7, 4),
    ApiKeys.STOP_REPLICA: ServedApi(0, 4, 2),
    ApiKeys.UPDATE_METADATA: ServedApi(0, 8, 6),
    ApiKeys.CONTROLLED_SHUTDOWN: ServedApi(0, 3, 3),
    ApiKeys.OFFSET_COMMIT: ServedApi(0, 10, 8),
    ApiKeys.OFFSET_FETCH: ServedApi(0, 10, 6),
    ApiKeys.FIND_COORDINATOR: ServedApi(0, 6, 3),
    ApiKeys.JOIN_GROUP: ServedApi(0, 9, 6),
    ApiKeys.HEARTBEAT: ServedApi(0, 4, 4),
    ApiKeys.LEAVE_GROUP: ServedApi(0, 5, 4),
    ApiKeys.SYNC_GROUP: ServedApi(0, 5, 4),
    ApiKeys.DESCRIBE_GROUPS: ServedApi(0, 6, 5),
    ApiKeys.LIST_GROUPS: ServedApi(0, 5, 3),
    ApiKeys.SASL_HANDSHAKE: ServedApi(0, 1, None),
    ApiKeys.API_VERSIONS: ServedApi(0, 5, 3),
    ApiKeys.CREATE_TOPICS: ServedApi(0, 7, 5),
    ApiKeys.DELETE_TOPICS: ServedApi(0, 6, 4),
    ApiKeys.DELETE_RECORDS: ServedApi(0, 2, 2),
    ApiKeys.INIT_PRODUCER_ID: ServedApi(0, 6, 2),
    ApiKeys.OFFSET_FOR_LEADER_EPOCH: ServedApi(0, 4, 4),
    ApiKeys.ADD_PARTITIONS_TO_TXN: ServedApi(0, 5, 3),
    ApiKeys.ADD_OFFSETS_TO_TXN: ServedApi(0, 4, 3),
    ApiKeys.END_TXN: ServedApi(0, 5, 3),
    ApiKeys.WRITE_TXN_MARKERS: ServedApi(0, 2, 1),
    ApiKeys.TXN_OFFSET_COMMIT: ServedApi(0, 6, 3),
    ApiKeys.DESCRIBE_ACLS: ServedApi(0, 3, 2),
    ApiKeys.CREATE_ACLS: ServedApi(0, 3, 2),
    ApiKeys.DELETE_ACLS: ServedApi(0, 3, 2),
    ApiKeys.DESCRIBE_CONFIGS: ServedApi(0, 4, 4),
    ApiKeys.ALTER_CONFIGS: ServedApi(0, 2, 2),
    ApiKeys.ALTER_REPLICA_LOG_DIRS: ServedApi(0, 2, 2),
    ApiKeys.DESCRIBE_LOG_DIRS: ServedApi(0, 5, 2),
    ApiKeys.SASL_AUTHENTICATE: ServedApi(0, 2, 2),
    ApiKeys.CREATE_PARTITIONS: ServedApi(0, 3, 2),
    ApiKeys.CREATE_DELEGATION_TOKEN: ServedApi(0, 3, 2),
    ApiKeys.RENEW_DELEGATION_TOKEN: ServedApi(0, 2, 2),
    ApiKeys.EXPIRE_DELEGATION_TOKEN: ServedApi(0, 2, 2),
    ApiKeys.DESCRIBE_DELEGATION_TOKEN: ServedApi(0, 3, 2),
    ApiKeys.DELETE_GROUPS: ServedApi(0, 3, 2),
    ApiKeys.ELECT_LEADERS: ServedApi(0, 2, 2),
    ApiKeys.INCREMENTAL_ALTER_CONFIGS: ServedApi(0, 1, 1),
    ApiKeys.ALTER_PARTITION_REASSIGNMENTS: ServedApi(0, 1, 0),
    ApiKeys.LIST_PARTITION_REASSIGNMENTS: ServedApi(0, 0, 0),
    ApiKeys.OFFSET_DELETE: ServedApi(0, 0, None),
    ApiKeys.DESCRIBE_CLIENT_QUOTAS: ServedApi(0, 1, 1),
    ApiKeys.ALTER_CLIENT_QUOTAS: ServedApi(0, 1, 1),
    ApiKeys.DESCRIBE_USER_SCRAM_CREDENTIALS: ServedApi(0, 0, 0),
    ApiKeys.ALTER_USER_SCRAM_CREDENTIALS: ServedApi(0, 0, 0),
    ApiKeys.DESCRIBE_QUORUM: ServedApi(0, 2, 0),
    ApiKeys.ALTER_PARTITION: ServedApi(0, 3, 0),
    ApiKeys.UPDATE_FEATURES: ServedApi(0, 2, 0),
    ApiKeys.DESCRIBE_CLUSTER: ServedApi(0, 2, 0),
    ApiKeys.DESCRIBE_PRODUCERS: ServedApi(0, 0, 0),
    ApiKeys.UNREGISTER_BROKER: ServedApi(0, 0, 0),
    ApiKeys.DESCRIBE_TRANSACTIONS: ServedApi(0, 0, 0),
    ApiKeys.LIST_TRANSACTIONS: ServedApi(0, 2, 0),
    ApiKeys.ALLOCATE_PRODUCER_IDS: ServedApi(0, 0, 0),
    ApiKeys.CONSUMER_GROUP_HEARTBEAT: ServedApi(0, 1, 0),
    ApiKeys.CONSUMER_GROUP_DESCRIBE: ServedApi(0, 1, 0),
    ApiKeys.GET_TELEMETRY_SUBSCRIPTIONS: ServedApi(0, 0, 0),
    ApiKeys.PUSH_TELEMETRY: ServedApi(0, 0, 0),
    ApiKeys.LIST_CONFIG_RESOURCES: ServedApi(0, 1, 0),
    ApiKeys.DESCRIBE_TOPIC_PARTITIONS: ServedApi(0, 0, 0),
    ApiKeys.SHARE_GROUP_HEARTBEAT: ServedApi(1, 1, 0),
    ApiKeys.SHARE_GROUP_DESCRIBE: ServedApi(1, 1, 0),
    ApiKeys.INITIALIZE_SHARE_GROUP_STATE: ServedApi(0, 0, 0),
    ApiKeys.READ_SHARE_GROUP_STATE: ServedApi(0, 0, 0),
    ApiKeys.WRITE_SHARE_GROUP_STATE: ServedApi(0, 1, 0),
    ApiKeys.DELETE_SHARE_GROUP_STATE: ServedApi(0, 0, 0),
    ApiKeys.READ_SHARE_GROUP_STATE_SUMMARY: ServedApi(0, 1, 0),
    ApiKeys.DESCRIBE_SHARE_GROUP_OFFSETS: ServedApi(0, 1, 0),
    ApiKeys.ALTER_SHARE_GROUP_OFFSETS: ServedApi(0, 0, 0),
    ApiKeys.DELETE_SHARE_GROUP_OFFSETS: ServedApi(0, 0, 0),
}
"""First and last version, and the first flexible one; they stand here so that a start needs none of the modules.
A test compares them with the headers of the modules."""

BETWEEN_BROKERS: Final = frozenset((
    ApiKeys.LEADER_AND_ISR, ApiKeys.STOP_REPLICA, ApiKeys.UPDATE_METADATA, ApiKeys.CONTROLLED_SHUTDOWN,
    ApiKeys.ALTER_PARTITION, ApiKeys.ALLOCATE_PRODUCER_IDS,
))  # fmt: skip
"""APIs for other brokers. A broker that can have no other serves none of them: one such request could stop it."""


SHARE_STATE: Final = frozenset((
    ApiKeys.INITIALIZE_SHARE_GROUP_STATE, ApiKeys.READ_SHARE_GROUP_STATE, ApiKeys.WRITE_SHARE_GROUP_STATE,
    ApiKeys.DELETE_SHARE_GROUP_STATE, ApiKeys.READ_SHARE_GROUP_STATE_SUMMARY,
))  # fmt: skip
"""APIs of the share coordinator, for brokers. A broker alone serves them as Kafka does: they need CLUSTER_ACTION."""

SHARE_GROUPS: Final = frozenset((
    ApiKeys.SHARE_GROUP_HEARTBEAT, ApiKeys.SHARE_GROUP_DESCRIBE, ApiKeys.SHARE_FETCH, ApiKeys.SHARE_ACKNOWLEDGE,
    ApiKeys.DESCRIBE_SHARE_GROUP_OFFSETS,
    ApiKeys.ALTER_SHARE_GROUP_OFFSETS, ApiKeys.DELETE_SHARE_GROUP_OFFSETS,
))  # fmt: skip
"""APIs of share groups at the group coordinator."""

UNTHROTTLED: Final = BETWEEN_BROKERS | SHARE_STATE | {
    ApiKeys.WRITE_TXN_MARKERS, ApiKeys.SASL_HANDSHAKE, ApiKeys.SASL_AUTHENTICATE,
}  # fmt: skip
"""APIs whose time is only counted: their responses have no throttle time, or come from other brokers."""


NOT_WITH_ZOOKEEPER: Final = SHARE_STATE | SHARE_GROUPS | {
    ApiKeys.DESCRIBE_QUORUM, ApiKeys.UNREGISTER_BROKER, ApiKeys.DESCRIBE_TOPIC_PARTITIONS,
}  # fmt: skip
"""APIs of KRaft clusters. Kafka's tools would show other things from this broker than from the Apache Kafka brokers
beside it."""

TELEMETRY: Final = frozenset((ApiKeys.GET_TELEMETRY_SUBSCRIPTIONS, ApiKeys.PUSH_TELEMETRY))
"""APIs for clients' metrics. Clients push where they are served, so they are served only where somebody reads."""


def served_apis(in_cluster: bool, with_zookeeper: bool, telemetry: bool) -> Mapping[int, ServedApi]:
    """The APIs that a broker serves.

    `telemetry`: whether clients' metrics have readers.
    """
    left_out: frozenset[ApiKeys] = frozenset()
    if not in_cluster:
        left_out |= BETWEEN_BROKERS
    if with_zookeeper:
        left_out |= NOT_WITH_ZOOKEEPER
    if not telemetry:
        left_out |= TELEMETRY
    return {key: served for key, served in SERVED.items() if key not in left_out}
