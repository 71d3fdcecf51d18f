"""kafka-python's `kafka.admin`: `KafkaAdminClient` and its types.

Also types of kafkapy that kafka-python does not have.
"""

from kafkapy.clients.admin.acls import ACL, ACLFilter, ResourcePattern, ResourcePatternFilter
from kafkapy.clients.admin.configs import AlterConfigOp, ConfigFilterType, ConfigResource
from kafkapy.clients.admin.delegation_tokens import DelegationToken
from kafkapy.clients.admin.groups import (
    ConsumerGroupDescription,
    GroupState,
    GroupType,
    MemberDescription,
    MemberToRemove,
)
from kafkapy.clients.admin.kafka_admin_client import KafkaAdminClient
from kafkapy.clients.admin.partitions import ElectionType, OffsetTimestamp
from kafkapy.clients.admin.share_groups import SharePartitionOffset
from kafkapy.clients.admin.topics import NewPartitions, NewTopic
from kafkapy.clients.admin.transactions import (
    AbortTransactionSpec,
    HangingTransaction,
    PartitionProducerState,
    ProducerState,
    TransactionDescription,
    TransactionListing,
    TransactionState,
)
from kafkapy.clients.admin.users import (
    DEFAULT_ENTITY,
    ClientQuota,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafkapy.types import AclOperation as ACLOperation
from kafkapy.types import AclPermissionType as ACLPermissionType
from kafkapy.types import ConfigResourceType, ConfigType, IsolationLevel, ResourceType, UpdateFeatureType
from kafkapy.types import ConfigSource as ConfigSourceType
from kafkapy.types import ListOffsetsTimestamp as OffsetSpec
from kafkapy.types import PatternType as ACLResourcePatternType

__all__ = [
    "ACL",
    "DEFAULT_ENTITY",
    "ACLFilter",
    "ACLOperation",
    "ACLPermissionType",
    "ACLResourcePatternType",
    "AbortTransactionSpec",
    "AlterConfigOp",
    "ClientQuota",
    "ConfigFilterType",
    "ConfigResource",
    "ConfigResourceType",
    "ConfigSourceType",
    "ConfigType",
    "ConsumerGroupDescription",
    "DelegationToken",
    "ElectionType",
    "GroupState",
    "GroupType",
    "HangingTransaction",
    "IsolationLevel",
    "KafkaAdminClient",
    "MemberDescription",
    "MemberToRemove",
    "NewPartitions",
    "NewTopic",
    "OffsetSpec",
    "OffsetTimestamp",
    "PartitionProducerState",
    "ProducerState",
    "ResourcePattern",
    "ResourcePatternFilter",
    "ResourceType",
    "ScramMechanism",
    "SharePartitionOffset",
    "TransactionDescription",
    "TransactionListing",
    "TransactionState",
    "UpdateFeatureType",
    "UserScramCredentialDeletion",
    "UserScramCredentialUpsertion",
]
