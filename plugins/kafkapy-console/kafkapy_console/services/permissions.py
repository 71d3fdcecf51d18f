"""What a principal may do, by the rules of Kafka's authorizer: a deny wins, some operations imply others.

Source: org.apache.kafka.metadata.authorizer.StandardAuthorizer. Groups of principals of other authorizers are not seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kafkapy.admin import ACL, ACLOperation, ACLPermissionType, ACLResourcePatternType, ResourceType

__all__ = ["IMPLIED", "Decision", "Right", "decided", "rights"]

IMPLIED = {
    ACLOperation.DESCRIBE: (ACLOperation.READ, ACLOperation.WRITE, ACLOperation.DELETE, ACLOperation.ALTER),
    ACLOperation.DESCRIBE_CONFIGS: (ACLOperation.ALTER_CONFIGS,),
}
"""An allowed operation of the tuple allows the key, too."""
ANYBODY = "User:*"


@dataclass(frozen=True)
class Right:
    """The rules for one pattern of resources."""

    resource_type: str
    name: str
    prefixed: bool
    allowed: Sequence[str]
    denied: Sequence[str]
    hosts: Sequence[str]


@dataclass(frozen=True)
class Decision:
    """Whether an operation is allowed, and the rule that says so."""

    allowed: bool
    reason: str
    rule: ACL | None = None


def _of(acls: Iterable[ACL], principal: str) -> list[ACL]:
    return [acl for acl in acls if acl.principal in (principal, ANYBODY)]


def rights(acls: Iterable[ACL], principal: str) -> list[Right]:
    """The rules that concern a principal, by pattern."""
    grouped: dict[tuple[str, str, bool], list[ACL]] = {}
    for acl in _of(acls, principal):
        pattern = acl.resource_pattern
        key = (
            pattern.resource_type.name,
            pattern.resource_name or "",
            pattern.pattern_type is ACLResourcePatternType.PREFIXED,
        )
        grouped.setdefault(key, []).append(acl)
    found = []
    for (kind, name, prefixed), rules in sorted(grouped.items()):
        allowed = {each.operation for each in rules if each.permission_type is ACLPermissionType.ALLOW}
        denied = {each.operation for each in rules if each.permission_type is ACLPermissionType.DENY}
        implied = {each for each, by in IMPLIED.items() if allowed.intersection(by)}
        found.append(
            Right(
                kind,
                name,
                prefixed,
                sorted(each.name for each in allowed)
                + sorted(f"{each.name} (implied)" for each in implied - allowed if ACLOperation.ALL not in allowed),
                sorted(each.name for each in denied),
                sorted({each.host or "*" for each in rules}),
            )
        )
    return found


def decided(
    acls: Iterable[ACL],
    principal: str,
    host: str,
    operation: ACLOperation,
    resource_type: ResourceType,
    name: str,
    *,
    super_users: Sequence[str] = (),
    allow_without_acl: bool = False,
) -> Decision:
    """The authorizer's answer for one request."""
    if principal in super_users:
        return Decision(True, "The principal is one of super.users.")
    on_resource = [acl for acl in acls if _covers(acl, resource_type, name)]
    if not on_resource:
        if allow_without_acl:
            return Decision(True, "No rule covers the resource, and allow.everyone.if.no.acl.found is true.")
        return Decision(False, "No rule covers the resource.")
    mine = [acl for acl in _of(on_resource, principal) if acl.host in ("*", host)]
    for acl in mine:
        if acl.permission_type is ACLPermissionType.DENY and acl.operation in (operation, ACLOperation.ALL):
            return Decision(False, "A rule denies it.", acl)
    wanted = (operation, ACLOperation.ALL, *IMPLIED.get(operation, ()))
    for acl in mine:
        if acl.permission_type is ACLPermissionType.ALLOW and acl.operation in wanted:
            implied = acl.operation not in (operation, ACLOperation.ALL)
            text = ", which implies it." if implied else "."
            return Decision(True, f"A rule allows {acl.operation.name}{text}", acl)
    return Decision(False, "Rules cover the resource, and none of them allows it to this principal from this host.")


def _covers(acl: ACL, resource_type: ResourceType, name: str) -> bool:
    pattern = acl.resource_pattern
    if pattern.resource_type is not resource_type:
        return False
    pattern_name = pattern.resource_name or ""
    if pattern.pattern_type is ACLResourcePatternType.PREFIXED:
        return name.startswith(pattern_name)
    return pattern_name in ("*", name)
