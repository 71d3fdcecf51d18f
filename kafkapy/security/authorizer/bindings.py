"""ACLs as values: resource patterns, entries, bindings and filters.

Sources: org.apache.kafka.common.acl.AclBinding, AccessControlEntry, AclBindingFilter and
org.apache.kafka.common.resource.ResourcePatternFilter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from kafkapy.errors import KafkaError
from kafkapy.types import AclOperation, AclPermissionType, PatternType, ResourceType

__all__ = [
    "SUPPORTED_OPERATIONS",
    "WILDCARD_HOST",
    "WILDCARD_PRINCIPAL",
    "WILDCARD_RESOURCE",
    "AccessControlEntry",
    "AclBinding",
    "AclBindingFilter",
    "AclDeleteResult",
    "ResourcePattern",
]

WILDCARD_RESOURCE: Final = "*"
"""The name of a literal pattern that covers all resources of its type."""
WILDCARD_HOST: Final = "*"
"""The host of an ACL that applies to every address."""
WILDCARD_PRINCIPAL: Final = "User:*"
"""The principal of an ACL that applies to everyone."""


SUPPORTED_OPERATIONS: Final[Mapping[ResourceType, tuple[AclOperation, ...]]] = {
    ResourceType.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DESCRIBE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        AclOperation.READ,
        AclOperation.DESCRIBE,
        AclOperation.DELETE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
    ),
    ResourceType.TRANSACTIONAL_ID: (AclOperation.DESCRIBE, AclOperation.WRITE, AclOperation.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: (AclOperation.DESCRIBE,),
    ResourceType.USER: (AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS),
}
"""The operations of each resource type (org.apache.kafka.security.authorizer.AclEntry); ALL is one of every type."""


class ResourcePattern(NamedTuple):
    """The resources of an ACL: one name, or all names with a prefix.

    The literal name ``*`` covers all resources of the type.
    """

    resource_type: ResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL

    def __str__(self) -> str:
        return f"{self.resource_type.name}:{self.pattern_type.name}:{self.name}"


class AccessControlEntry(NamedTuple):
    """A rule for one principal ("User:alice"), host, and operation."""

    principal: str
    host: str
    operation: AclOperation
    permission_type: AclPermissionType


class AclBinding(NamedTuple):
    """One ACL: resource pattern, principal, host, operation, and permission.

    `host` is an address, or ``*`` for all addresses.
    """

    resource_type: ResourceType
    resource_name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: AclOperation
    permission_type: AclPermissionType

    @property
    def pattern(self) -> ResourcePattern:
        """The resources of the ACL."""
        return ResourcePattern(self.resource_type, self.resource_name, self.pattern_type)

    @property
    def entry(self) -> AccessControlEntry:
        """The rule of the ACL."""
        return AccessControlEntry(*self[3:])


class AclBindingFilter(NamedTuple):
    """A filter for ACLs.

    None and ANY match every value. The pattern type MATCH with a name matches all patterns that cover this name.
    """

    resource_type: ResourceType = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission_type: AclPermissionType = AclPermissionType.ANY

    def matches_pattern(self, pattern: ResourcePattern) -> bool:
        """Whether ACLs of the pattern may match."""
        if self.resource_type not in (ResourceType.ANY, pattern.resource_type):
            return False
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, pattern.pattern_type):
            return False
        name = self.resource_name
        if name is None or name == pattern.name:
            return True
        if self.pattern_type is not PatternType.MATCH:
            return False
        if pattern.pattern_type is PatternType.PREFIXED:
            return name.startswith(pattern.name)
        return pattern.name == WILDCARD_RESOURCE

    def matches_entry(self, entry: AccessControlEntry) -> bool:
        """Whether an ACL with this rule matches."""
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (AclOperation.ANY, entry.operation)
            and self.permission_type in (AclPermissionType.ANY, entry.permission_type)
        )


class AclDeleteResult(NamedTuple):
    """The ACLs that one filter deleted, or the error that prevented it.

    `failed` has the ACLs that match and could not be deleted, each with its error.
    """

    deleted: tuple[AclBinding, ...] = ()
    error: KafkaError | None = None
    failed: tuple[tuple[AclBinding, KafkaError], ...] = ()
