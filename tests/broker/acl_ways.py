"""The ways to give a client a permission, or to seem to: the second side of the matrix of ACLs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from broker.acl_matrix import Case, Permission, World
from broker.acting import DENY, ActingClient, binding
from waiting import wait_until

from kafkapy.security.authorizer.base import AclBinding
from kafkapy.types import AclOperation, PatternType, ResourceType

USER, ALICE, HOST, OTHER_HOST = "alice", "User:alice", "127.0.0.2", "127.0.0.3"
PREFIXED = PatternType.PREFIXED
CLUSTER = ResourceType.CLUSTER


class Way(NamedTuple):
    """ACLs that give a permission (`gives`), or seem to."""

    label: str
    gives: bool
    acls: Callable[[ResourceType, str, AclOperation], list[AclBinding]]


def wildcard(kind: ResourceType, name: str) -> str:
    """The cluster has one name only."""
    return name if kind is CLUSTER else "*"


def prefix(kind: ResourceType, name: str) -> str:
    return name if kind is CLUSTER else name[:-2]


def allowed(kind: ResourceType, name: str, operation: AclOperation, **fields: Any) -> AclBinding:
    return binding(kind, name, operation, fields.pop("principal", ALICE), **fields)


WAYS = [
    Way("none", False, lambda kind, name, op: []),
    Way("allow", True, lambda kind, name, op: [allowed(kind, name, op)]),
    Way("deny", False, lambda kind, name, op: [allowed(kind, name, op), allowed(kind, name, op, permission=DENY)]),
    Way("prefixed", True, lambda kind, name, op: [allowed(kind, prefix(kind, name), op, pattern=PREFIXED)]),
    Way("wildcard", True, lambda kind, name, op: [allowed(kind, wildcard(kind, name), op)]),
    Way("all operations", True, lambda kind, name, op: [allowed(kind, name, AclOperation.ALL)]),
    Way("everybody", True, lambda kind, name, op: [allowed(kind, name, op, principal="User:*")]),
    Way("this host", True, lambda kind, name, op: [allowed(kind, name, op, host=HOST)]),
    Way("other host", False, lambda kind, name, op: [allowed(kind, name, op, host=OTHER_HOST)]),
    Way("other principal", False, lambda kind, name, op: [allowed(kind, name, op, principal="User:bob")]),
    Way("other principal type", False, lambda kind, name, op: [allowed(kind, name, op, principal="Group:alice")]),
    Way(
        "other resource",
        False,
        lambda kind, name, op: [] if kind is CLUSTER else [allowed(kind, f"{name}-not", op)],
    ),
    Way(
        "prefixed deny",
        False,
        lambda kind, name, op: [
            allowed(kind, name, op),
            allowed(kind, prefix(kind, name), op, pattern=PREFIXED, permission=DENY),
        ],
    ),
    Way(
        "wildcard deny of everything",
        False,
        lambda kind, name, op: [
            allowed(kind, name, op),
            allowed(kind, wildcard(kind, name), AclOperation.ALL, permission=DENY, principal="User:*"),
        ],
    ),
    Way(
        "deny of another host",
        True,
        lambda kind, name, op: [allowed(kind, name, op), allowed(kind, name, op, permission=DENY, host=OTHER_HOST)],
    ),
]
EVERY_VERSION = ("none", "allow")
"""These are tried with all versions, the others with the newest."""
IMPLYING = {
    AclOperation.DESCRIBE: (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER),
    AclOperation.DESCRIBE_CONFIGS: (AclOperation.ALTER_CONFIGS,),
}


def given(world: World, permission: Permission, way: Way) -> list[AclBinding]:
    return way.acls(permission.resource_type, world.name(permission.resource), permission.operation)


def outright(world: World, case: Case, but: int) -> list[AclBinding]:
    """All needs of a case, except one."""
    return [
        allowed(each.resource_type, world.name(each.resource), each.operation)
        for index, entries in enumerate(case.needs)
        if index != but
        for each in entries[:1]
    ]


def only_a_deny_takes(case: Case, at: int) -> bool:
    """Whether another need of the case includes the one at `at`."""
    [mine, *_] = case.needs[at]
    return any(
        (other.resource_type, other.resource) == (mine.resource_type, mine.resource)
        and other.operation in IMPLYING.get(mine.operation, ())
        for index, entries in enumerate(case.needs)
        if index != at
        for other in entries
    )


def first_denied(case: Case, at: int, way: Way) -> int:
    """The need whose error the client gets: a deny of all operations takes all needs on that type of resource."""
    if "everything" not in way.label:
        return at
    kinds = [entries[0].resource_type for entries in case.needs]
    return kinds.index(kinds[at])


ANY_RESOURCE = (("INIT_PRODUCER_ID: idempotent", "topic"),)
"""Cases that a permission on any resource of the type satisfies."""


def gives(way: Way, case: Case, permission: Permission) -> bool:
    return way.gives or (way.label == "other resource" and (case.label, permission.resource) in ANY_RESOURCE)


def versions(case: Case, way: Way) -> Sequence[int]:
    return case.versions if way.label in EVERY_VERSION else case.versions[-1:]


def ask(case: Case, admin: ActingClient, world: World, version: int, acls: Sequence[AclBinding]) -> Any:
    """The answer to a client with these ACLs and no others."""
    admin.remove_all()
    if acls:
        admin.add(*acls)
    wait_until(lambda: admin.acls() == set(acls), "the ACLs are in force")
    client = admin.again(USER, HOST)
    answer = case.ask(client, world, version)
    client.close()
    return answer


def told(case: Case, permission: Permission, way: Way, version: int) -> str:
    return f"{case.label} v{version}, {permission.operation.name} by {way.label}"
