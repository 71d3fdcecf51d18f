"""Access control lists: describe, create, delete.

Served by: DescribeAcls, CreateAcls, DeleteAcls (any broker). SecurityDisabledError when the cluster has no authorizer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeVar

from kafkapy.clients.admin.routing import AdminRouting
from kafkapy.clients.admin.shapes import checked, error_of, error_type
from kafkapy.errors import IllegalArgumentError, KafkaError, NoError
from kafkapy.protocol.messages.create_acls import CreateAclsRequest
from kafkapy.protocol.messages.delete_acls import DeleteAclsRequest
from kafkapy.protocol.messages.describe_acls import DescribeAclsRequest
from kafkapy.protocol.schema import Request
from kafkapy.types import AclOperation, AclPermissionType, PatternType, ResourceType

__all__ = ["ACL", "ACLFilter", "AclAdmin", "ResourcePattern", "ResourcePatternFilter"]

E = TypeVar("E", bound=IntEnum)

OLDEST_WITH_USERS = 3
OLDEST_WITH_PATTERNS = 1


@dataclass(frozen=True)
class ResourcePatternFilter:
    """A filter for resources: type, name, and comparison of the name.

    ANY matches all types, None all names; the comparison is ANY, MATCH, LITERAL or PREFIXED.
    """

    resource_type: ResourceType
    resource_name: str | None
    pattern_type: PatternType

    def __post_init__(self) -> None:
        self.validate()

    def validate(self) -> None:
        """IllegalArgumentError for arguments of the wrong type."""
        if not isinstance(self.resource_type, ResourceType):
            raise IllegalArgumentError("resource_type must be a ResourceType")
        if not isinstance(self.pattern_type, PatternType):
            raise IllegalArgumentError("pattern_type must be an ACLResourcePatternType")


@dataclass(frozen=True)
class ResourcePattern(ResourcePatternFilter):
    """The resources of an ACL: a name, or a prefix of names."""

    pattern_type: PatternType = PatternType.LITERAL

    def validate(self) -> None:
        super().validate()
        if self.resource_type is ResourceType.ANY:
            raise IllegalArgumentError("the resource_type of an ACL cannot be ANY")
        if self.pattern_type in (PatternType.ANY, PatternType.MATCH):
            raise IllegalArgumentError(f"the pattern_type of an ACL cannot be {self.pattern_type.name}")


@dataclass(frozen=True)
class ACLFilter:
    """A filter for ACLs: None and ANY match everything."""

    principal: str | None
    host: str | None
    operation: AclOperation
    permission_type: AclPermissionType
    resource_pattern: ResourcePatternFilter

    def __post_init__(self) -> None:
        self.validate()

    def validate(self) -> None:
        """IllegalArgumentError for arguments of the wrong type."""
        if not isinstance(self.operation, AclOperation):
            raise IllegalArgumentError("operation must be an ACLOperation")
        if not isinstance(self.permission_type, AclPermissionType):
            raise IllegalArgumentError("permission_type must be an ACLPermissionType")
        if not isinstance(self.resource_pattern, ResourcePatternFilter):
            raise IllegalArgumentError("resource_pattern must be a ResourcePatternFilter")


@dataclass(frozen=True)
class ACL(ACLFilter):
    """A rule that allows or denies an operation on resources.

    It applies to a principal ("User:alice") from a host ("*" for all).
    """

    def validate(self) -> None:
        super().validate()
        if self.operation is AclOperation.ANY:
            raise IllegalArgumentError("the operation of an ACL cannot be ANY")
        if self.permission_type is AclPermissionType.ANY:
            raise IllegalArgumentError("the permission_type of an ACL cannot be ANY")
        if not isinstance(self.resource_pattern, ResourcePattern):
            raise IllegalArgumentError("the resource_pattern of an ACL must be a ResourcePattern")


class AclAdmin(AdminRouting):
    """The admin client's calls for ACLs."""

    async def describe_acls(self, acl_filter: ACLFilter) -> tuple[list[ACL], type[KafkaError]]:
        """(matching ACLs, NoError). Raises an error such as SecurityDisabledError."""
        pattern = acl_filter.resource_pattern
        request = DescribeAclsRequest(
            resource_type_filter=pattern.resource_type,
            resource_name_filter=pattern.resource_name,
            pattern_type_filter=pattern.pattern_type,
            principal_filter=acl_filter.principal,
            host_filter=acl_filter.host,
            operation=acl_filter.operation,
            permission_type=acl_filter.permission_type,
        )
        response = checked(await self._ask_about(request, [acl_filter]))
        return [
            _acl(each, resource.resource_type, resource.resource_name, resource.pattern_type)
            for resource in response.resources
            for each in resource.acls
        ], NoError

    async def create_acls(self, acls: Iterable[ACL]) -> dict[str, list[Any]]:
        """{'succeeded': [ACL], 'failed': [error class of each other ACL]}."""
        wanted = list(acls)
        results: dict[str, list[Any]] = {"succeeded": [], "failed": []}
        for acl, error in zip(wanted, await self.add_acls(wanted), strict=True):
            if error is None:
                results["succeeded"].append(acl)
            else:
                results["failed"].append(type(error))
        return results

    async def add_acls(self, acls: Iterable[ACL]) -> list[KafkaError | None]:
        """Create ACLs; the error of each with the broker's message, or None."""
        wanted = list(acls)
        if not all(isinstance(each, ACL) for each in wanted):
            raise IllegalArgumentError("acls must be ACL objects")
        request = CreateAclsRequest(
            creations=[
                CreateAclsRequest.Creation(
                    resource_type=each.resource_pattern.resource_type,
                    resource_name=each.resource_pattern.resource_name or "",
                    resource_pattern_type=each.resource_pattern.pattern_type,
                    principal=each.principal or "",
                    host=each.host or "",
                    operation=each.operation,
                    permission_type=each.permission_type,
                )
                for each in wanted
            ]
        )
        response = await self._ask_about(request, wanted)
        return [error_of(each.error_code, each.error_message) for each in response.results]

    async def delete_acls(
        self, acl_filters: Iterable[ACLFilter]
    ) -> list[tuple[ACLFilter, list[ACL], type[KafkaError]]]:
        """[(filter, deleted ACLs, NoError or the error's class)], one per filter."""
        wanted = list(acl_filters)
        if not all(isinstance(each, ACLFilter) for each in wanted):
            raise IllegalArgumentError("acl_filters must be ACLFilter objects")
        request = DeleteAclsRequest(
            filters=[
                DeleteAclsRequest.Filter(
                    resource_type_filter=each.resource_pattern.resource_type,
                    resource_name_filter=each.resource_pattern.resource_name,
                    pattern_type_filter=each.resource_pattern.pattern_type,
                    principal_filter=each.principal,
                    host_filter=each.host,
                    operation=each.operation,
                    permission_type=each.permission_type,
                )
                for each in wanted
            ]
        )
        response = await self._ask_about(request, wanted)
        return [
            (
                acl_filter,
                [
                    _acl(each, each.resource_type, each.resource_name, each.pattern_type)
                    for each in result.matching_acls
                    if error_of(each.error_code) is None
                ],
                error_type(result.error_code),
            )
            for acl_filter, result in zip(wanted, response.filter_results, strict=True)
        ]

    async def _ask_about(self, request: Request, acls: Iterable[ACLFilter]) -> Any:
        patterns = [acl.resource_pattern for acl in acls]
        users = any(pattern.resource_type is ResourceType.USER for pattern in patterns)
        prefixed = any(pattern.pattern_type is not PatternType.LITERAL for pattern in patterns)
        low = OLDEST_WITH_USERS if users else OLDEST_WITH_PATTERNS if prefixed else 0
        deadline = self.deadline()
        return await self.one(self.anywhere, lambda node: self.send(node, request, deadline, low=low), deadline)


def _acl(acl: Any, resource_type: int, resource_name: str, pattern_type: int) -> ACL:
    pattern = ResourcePattern(_known(ResourceType, resource_type), resource_name, _known(PatternType, pattern_type))
    return ACL(
        principal=acl.principal,
        host=acl.host,
        operation=_known(AclOperation, acl.operation),
        permission_type=_known(AclPermissionType, acl.permission_type),
        resource_pattern=pattern,
    )


def _known(kind: type[E], code: int) -> E:
    """The value of a code, UNKNOWN for one of a newer broker."""
    try:
        return kind(code)
    except ValueError:
        return kind(0)
