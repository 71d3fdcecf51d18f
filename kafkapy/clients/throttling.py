"""The responses whose throttle time the client must wait for (KIP-219).

In older versions the broker waits. Source: the `shouldClientThrottle` of every class in
org.apache.kafka.common.requests.
"""

from __future__ import annotations

from typing import Final

from kafkapy.protocol.registry import ApiKeys

__all__ = ["client_throttles"]

FIRST_VERSION: Final[dict[int, int]] = {
    ApiKeys.PRODUCE: 6,
    ApiKeys.FETCH: 8,
    ApiKeys.LIST_OFFSETS: 3,
    ApiKeys.METADATA: 6,
    ApiKeys.OFFSET_COMMIT: 4,
    ApiKeys.OFFSET_FETCH: 4,
    ApiKeys.FIND_COORDINATOR: 2,
    ApiKeys.JOIN_GROUP: 3,
    ApiKeys.HEARTBEAT: 2,
    ApiKeys.LEAVE_GROUP: 2,
    ApiKeys.SYNC_GROUP: 2,
    ApiKeys.DESCRIBE_GROUPS: 2,
    ApiKeys.LIST_GROUPS: 2,
    ApiKeys.API_VERSIONS: 2,
    ApiKeys.CREATE_TOPICS: 3,
    ApiKeys.DELETE_TOPICS: 2,
    ApiKeys.DELETE_RECORDS: 1,
    ApiKeys.INIT_PRODUCER_ID: 1,
    ApiKeys.ADD_PARTITIONS_TO_TXN: 1,
    ApiKeys.ADD_OFFSETS_TO_TXN: 1,
    ApiKeys.END_TXN: 1,
    ApiKeys.TXN_OFFSET_COMMIT: 1,
    ApiKeys.DESCRIBE_ACLS: 1,
    ApiKeys.CREATE_ACLS: 1,
    ApiKeys.DELETE_ACLS: 1,
    ApiKeys.DESCRIBE_CONFIGS: 2,
    ApiKeys.ALTER_CONFIGS: 1,
    ApiKeys.ALTER_REPLICA_LOG_DIRS: 1,
    ApiKeys.DESCRIBE_LOG_DIRS: 1,
    ApiKeys.CREATE_PARTITIONS: 1,
    ApiKeys.CREATE_DELEGATION_TOKEN: 1,
    ApiKeys.RENEW_DELEGATION_TOKEN: 1,
    ApiKeys.EXPIRE_DELEGATION_TOKEN: 1,
    ApiKeys.DESCRIBE_DELEGATION_TOKEN: 1,
    ApiKeys.DELETE_GROUPS: 1,
    ApiKeys.ELECT_LEADERS: 0,
    ApiKeys.INCREMENTAL_ALTER_CONFIGS: 0,
    ApiKeys.ALTER_PARTITION_REASSIGNMENTS: 0,
    ApiKeys.LIST_PARTITION_REASSIGNMENTS: 0,
    ApiKeys.OFFSET_DELETE: 0,
    ApiKeys.DESCRIBE_USER_SCRAM_CREDENTIALS: 0,
    ApiKeys.ALTER_USER_SCRAM_CREDENTIALS: 0,
    ApiKeys.UNREGISTER_BROKER: 0,
    ApiKeys.DESCRIBE_TOPIC_PARTITIONS: 0,
}


def client_throttles(api_key: int, version: int) -> bool:
    """Whether the client must wait for the throttle time in this response."""
    first = FIRST_VERSION.get(api_key)
    return first is not None and version >= first
