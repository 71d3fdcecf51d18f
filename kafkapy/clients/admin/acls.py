"""Access control lists: describe, create, delete.

Served by: DescribeAcls, CreateAcls, DeleteAcls (any broker). SecurityDisabledError where the cluster has no authorizer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kafkapy.clients.admin.routing import AdminRouting
from kafkapy.clients.admin.shapes import checked, error_of, error_type
from kafkapy.errors import IllegalArgumentError, KafkaError, NoError
from kafkapy.protocol.messages.create_acls import CreateAclsRequest
from kafkapy.protocol.messages.delete_acls import DeleteAclsRequest
from kafkapy.protocol.messages.describe_acls import DescribeAclsRequest
from kafkapy.protocol.schema import Request
from kafkapy.types import AclOperation, AclPermissionType, PatternType, ResourceType

__all__ = ["ACL", "ACLFilter", "AclAdmin", "ResourcePattern", "ResourcePatternFilter"]

OLDEST_WITH_USERS = 3
OLDEST_WITH_PATTERNS = 1


@dataclass(frozen=True)
class ResourcePatternFilter:
    """Which resources: a type (ANY for all), a name (None for all), and how the name is compared (ANY, MATCH, LITERAL,
    PREFIXED)."""

    resource_type: ResourceType
    resource_name: str | None
    pattern_type: PatternType

    def __post_init__(self) -> None:
        self.validate()

    def validate(self) -> None:
        """IllegalArgumentError."""
        if not isinstance(self.resource_type, ResourceType):
            raise IllegalArgumentError("resource_type is a ResourceType")
        if not isinstance(self.pattern_type, PatternType):
            raise IllegalArgumentError("pattern_type is an ACLResourcePatternType")


@dataclass(frozen=True)
class ResourcePattern(ResourcePatternFilter):
    """The resources that an ACL protects: all with that name, or all whose names begin with it."""

    pattern_type: PatternType = PatternType.LITERAL

    def validate(self) -> None:
        super().validate()
        if self.resource_type is ResourceType.ANY:
            raise IllegalArgumentError("the resource_type of an ACL cannot be ANY")
        if self.pattern_type in (PatternType.ANY, PatternType.MATCH):
            raise IllegalArgumentError(f"the pattern_type of an ACL cannot be {self.pattern_type.name}")


@dataclass(frozen=True)
class ACLFilter:
    """Which ACLs: None and ANY match everything."""

    principal: str | None
    host: str | None
    operation: AclOperation
    permission_type: AclPermissionType
    resource_pattern: ResourcePatternFilter

    def __post_init__(self) -> None:
        self.validate()

    def validate(self) -> None:
        """IllegalArgumentError."""
        if not isinstance(self.operation, AclOperation):
            raise IllegalArgumentError("operation is an ACLOperation")
        if not isinstance(self.permission_type, AclPermissionType):
            raise IllegalArgumentError("permission_type is an ACLPermissionType")
        if not isinstance(self.resource_pattern, ResourcePatternFilter):
            raise IllegalArgumentError("resource_pattern is a ResourcePatternFilter")


@dataclass(frozen=True)
class ACL(ACLFilter):
    """A rule: a principal ("User:alice") from a host ("*" for all) may or may not do something to resources."""

    def validate(self) -> None:
        super().validate()
        if self.operation is AclOperation.ANY:
            raise IllegalArgumentError("the operation of an ACL cannot be ANY")
        if self.permission_type is AclPermissionType.ANY:
            raise IllegalArgumentError("the permission_type of an ACL cannot be ANY")
        if not isinstance(self.resource_pattern, ResourcePattern):
            raise IllegalArgumentError("the resource_pattern of an ACL is a ResourcePattern")


class AclAdmin(AdminRouting):
    """The part of the admin client about ACLs."""

    async def describe_acls(self, acl_filter: ACLFilter) -> tuple[list[ACL], type[KafkaError]]:
        """(the ACLs that match, NoError); an error is raised (SecurityDisabledError)."""
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
        """{'succeeded': [ACL], 'failed': [the error's class of each other one]}."""
        wanted = list(acls)
        if not all(isinstance(each, ACL) for each in wanted):
            raise IllegalArgumentError("acls are ACL objects")
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
        results: dict[str, list[Any]] = {"succeeded": [], "failed": []}
        for acl, result in zip(wanted, response.results, strict=True):
            if result.error_code:
                results["failed"].append(error_type(result.error_code))
            else:
                results["succeeded"].append(acl)
        return results

    async def delete_acls(
        self, acl_filters: Iterable[ACLFilter]
    ) -> list[tuple[ACLFilter, list[ACL], type[KafkaError]]]:
        """[(filter, the ACLs that were deleted, NoError or the error's class)], one for each filter."""
        wanted = list(acl_filters)
        if not all(isinstance(each, ACLFilter) for each in wanted):
            raise IllegalArgumentError("acl_filters are ACLFilter objects")
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
    return ACL(
        principal=acl.principal,
        host=acl.host,
        operation=AclOperation(acl.operation),
        permission_type=AclPermissionType(acl.permission_type),
        resource_pattern=ResourcePattern(ResourceType(resource_type), resource_name, PatternType(pattern_type)),
    )
