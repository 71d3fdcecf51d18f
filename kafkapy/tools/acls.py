"""`kafkapy acls`: list, add and remove access control lists.

Counterpart of kafka-acls.sh, with its options. Works with any Kafka broker that has an authorizer.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from kafkapy.config.suggestions import did_you_mean
from kafkapy.errors import KafkaError, error_for
from kafkapy.security.authorizer.bindings import SUPPORTED_OPERATIONS, WILDCARD_HOST
from kafkapy.security.authorizer.masks import pascal_name
from kafkapy.security.principal import KafkaPrincipal
from kafkapy.tools.lazy_group import CommandGroup
from kafkapy.tools.options import cluster_options, connected, json_option, yes_option
from kafkapy.tools.output import Column, Output
from kafkapy.types import AclOperation, AclPermissionType, PatternType, ResourceType

if TYPE_CHECKING:
    from kafkapy.clients.admin.acls import ACL, ACLFilter, ResourcePatternFilter
    from kafkapy.clients.admin.kafka_admin_client import KafkaAdminClient

__all__ = ["acls"]

F = TypeVar("F", bound=Callable[..., Any])

CLUSTER_NAME = "kafka-cluster"
COLUMNS = (
    Column("resource"),
    Column("name"),
    Column("pattern"),
    Column("principal"),
    Column("host"),
    Column("operation"),
    Column("permission"),
)
PRODUCER = {
    ResourceType.TOPIC: (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE),
    ResourceType.TRANSACTIONAL_ID: (AclOperation.WRITE, AclOperation.DESCRIBE),
}
CONSUMER = {ResourceType.TOPIC: (AclOperation.READ, AclOperation.DESCRIBE), ResourceType.GROUP: (AclOperation.READ,)}
"""The operations that --producer and --consumer stand for, as in kafka-acls.sh."""


class _Word(click.ParamType[IntEnum]):
    """A value of an enum, in any case, with or without underscores; a misspelt one gets a suggestion."""

    def __init__(self, name: str, values: Iterable[IntEnum]) -> None:
        self.name = name
        self._values = {pascal_name(value): value for value in values}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> IntEnum:
        """The value. click.BadParameter."""
        if isinstance(value, IntEnum):
            return value
        plain = str(value).strip().replace("_", "").replace("-", "").lower()
        for name, each in self._values.items():
            if name.lower() == plain:
                return each
        question = did_you_mean(plain, self._values) or f"one of {', '.join(self._values)}"
        return self.fail(f"{value!r} is no {self.name}; {question}", param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        """The names."""
        from click.shell_completion import CompletionItem

        return [CompletionItem(name) for name in self._values if name.lower().startswith(incomplete.lower())]


class _Principal(click.ParamType[str]):
    """A principal: Type:name."""

    name = "principal"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The principal's text. click.BadParameter."""
        try:
            return str(KafkaPrincipal.parse(str(value).strip()))
        except ValueError:
            return self.fail(f"{value!r} is not of the form Type:name, such as User:{value}", param, ctx)


OPERATION = _Word("operation", (each for each in AclOperation if each > AclOperation.ANY))
PATTERN = _Word("pattern type", (PatternType.LITERAL, PatternType.PREFIXED, PatternType.ANY, PatternType.MATCH))
PRINCIPAL = _Principal()


class Resources(NamedTuple):
    """The resources that the options name."""

    topics: tuple[str, ...]
    groups: tuple[str, ...]
    transactional_ids: tuple[str, ...]
    tokens: tuple[str, ...]
    users: tuple[str, ...]
    cluster: bool
    pattern_type: PatternType

    def named(self) -> list[tuple[ResourceType, str]]:
        """Type and name of each."""
        by_type = {
            ResourceType.TOPIC: self.topics,
            ResourceType.GROUP: self.groups,
            ResourceType.TRANSACTIONAL_ID: self.transactional_ids,
            ResourceType.DELEGATION_TOKEN: self.tokens,
            ResourceType.USER: self.users,
            ResourceType.CLUSTER: (CLUSTER_NAME,) if self.cluster else (),
        }
        return [(kind, name.strip()) for kind, names in by_type.items() for name in dict.fromkeys(names)]

    def filters(self) -> list[ResourcePatternFilter]:
        """A filter for each; one for every resource when none is named."""
        from kafkapy.clients.admin.acls import ResourcePatternFilter

        named = self.named()
        if not named:
            return [ResourcePatternFilter(ResourceType.ANY, None, PatternType.ANY)]
        return [ResourcePatternFilter(kind, name, self._pattern_of(kind)) for kind, name in named]

    def _pattern_of(self, kind: ResourceType) -> PatternType:
        return PatternType.LITERAL if kind is ResourceType.CLUSTER else self.pattern_type


class Rules(NamedTuple):
    """The rules that the options give: operations by resource type, principals, hosts."""

    operations: Mapping[ResourceType, Sequence[AclOperation]]
    sides: Sequence[tuple[AclPermissionType, Sequence[str], Sequence[str]]]
    """Permission type, principals and hosts."""
    given: Sequence[AclOperation]
    """The operations of --operation."""

    def entries(self, kind: ResourceType) -> list[tuple[str, str, AclOperation, AclPermissionType]]:
        """Principal, host, operation and permission of each rule for a resource type."""
        return [
            (principal, host, operation, permission)
            for permission, principals, hosts in self.sides
            for principal in principals
            for host in hosts
            for operation in self.operations.get(kind, ())
        ]


def resource_options(command: F) -> F:
    """Add the options that name resources; the command gets `resources`."""
    from functools import wraps

    @click.option("--topic", "topics", multiple=True, metavar="NAME", help="A topic; * is every topic.")
    @click.option("--group", "groups", multiple=True, metavar="NAME", help="A group; * is every group.")
    @click.option("--transactional-id", "transactional_ids", multiple=True, metavar="ID", help="A transactional id.")
    @click.option("--delegation-token", "tokens", multiple=True, metavar="ID", help="A delegation token.")
    @click.option("--user-principal", "users", multiple=True, metavar="TYPE:NAME", help="A user, for tokens of others.")
    @click.option("--cluster", is_flag=True, help="The cluster.")
    @click.option(
        "--pattern-type",
        "--resource-pattern-type",
        "pattern_type",
        type=PATTERN,
        default="literal",
        show_default=True,
        metavar="TYPE",
        help="Names are literal or prefixed; list and remove also take any and match.",
    )
    @wraps(command)
    def run(
        topics: tuple[str, ...],
        groups: tuple[str, ...],
        transactional_ids: tuple[str, ...],
        tokens: tuple[str, ...],
        users: tuple[str, ...],
        cluster: bool,
        pattern_type: PatternType,
        **arguments: Any,
    ) -> None:
        command(
            resources=Resources(topics, groups, transactional_ids, tokens, users, cluster, pattern_type), **arguments
        )

    return run  # type: ignore[return-value]


def rule_options(command: F) -> F:
    """Add the options that give rules; the command gets `rules`."""
    from functools import wraps

    @click.option(
        "--allow-principal",
        "allowed",
        multiple=True,
        type=PRINCIPAL,
        metavar="TYPE:NAME",
        help="A principal that is allowed.",
    )
    @click.option(
        "--deny-principal",
        "denied",
        multiple=True,
        type=PRINCIPAL,
        metavar="TYPE:NAME",
        help="A principal that is denied.",
    )
    @click.option("--allow-host", "allow_hosts", multiple=True, metavar="ADDRESS", help="Default: every host.")
    @click.option("--deny-host", "deny_hosts", multiple=True, metavar="ADDRESS", help="Default: every host.")
    @click.option(
        "--operation", "operations", multiple=True, type=OPERATION, metavar="NAME", help="Default: all operations."
    )
    @click.option("--producer", is_flag=True, help="All operations of a producer on the topics and transactional ids.")
    @click.option("--consumer", is_flag=True, help="All operations of a consumer on the topics and groups.")
    @click.option("--idempotent", is_flag=True, help="With --producer: IdempotentWrite on the cluster.")
    @wraps(command)
    def run(
        allowed: tuple[str, ...],
        denied: tuple[str, ...],
        allow_hosts: tuple[str, ...],
        deny_hosts: tuple[str, ...],
        operations: tuple[AclOperation, ...],
        producer: bool,
        consumer: bool,
        idempotent: bool,
        resources: Resources,
        **arguments: Any,
    ) -> None:
        if idempotent:
            resources = resources._replace(cluster=True)
        _check_roles(resources, operations, denied, deny_hosts, producer, consumer, idempotent)
        for given, principals, option in ((allow_hosts, allowed, "allow"), (deny_hosts, denied, "deny")):
            if given and not principals:
                raise click.UsageError(f"--{option}-host needs --{option}-principal.")
        sides = [
            (permission, dict.fromkeys(principals), dict.fromkeys(host.strip() for host in hosts or (WILDCARD_HOST,)))
            for permission, principals, hosts in (
                (AclPermissionType.ALLOW, allowed, allow_hosts),
                (AclPermissionType.DENY, denied, deny_hosts),
            )
            if principals
        ]
        rules = Rules(
            _operations(operations, producer, consumer, idempotent),
            [(permission, list(principals), list(hosts)) for permission, principals, hosts in sides],
            operations,
        )
        _check_operations(resources, rules)
        command(resources=resources, rules=rules, **arguments)

    return run  # type: ignore[return-value]


def _check_roles(
    resources: Resources,
    operations: Sequence[AclOperation],
    denied: Sequence[str],
    deny_hosts: Sequence[str],
    producer: bool,
    consumer: bool,
    idempotent: bool,
) -> None:
    role = "--producer" if producer else "--consumer"
    if (producer or consumer) and (operations or denied or deny_hosts):
        raise click.UsageError(f"{role} stands for allowed operations; it takes no --operation and no --deny-... .")
    if producer and not resources.topics:
        raise click.UsageError("--producer needs --topic.")
    if consumer and not (resources.topics and resources.groups):
        raise click.UsageError("--consumer needs --topic and --group.")
    if idempotent and not producer:
        raise click.UsageError("--idempotent needs --producer.")


def _operations(
    given: Sequence[AclOperation], producer: bool, consumer: bool, idempotent: bool
) -> Mapping[ResourceType, Sequence[AclOperation]]:
    if not (producer or consumer):
        return dict.fromkeys(SUPPORTED_OPERATIONS, tuple(dict.fromkeys(given)) or (AclOperation.ALL,))
    roles = [table for table, wanted in ((PRODUCER, producer), (CONSUMER, consumer)) if wanted]
    found: dict[ResourceType, dict[AclOperation, None]] = {}
    for table in roles:
        for kind, operations in table.items():
            found.setdefault(kind, {}).update(dict.fromkeys(operations))
    if idempotent:
        found[ResourceType.CLUSTER] = {AclOperation.IDEMPOTENT_WRITE: None}
    return {kind: list(operations) for kind, operations in found.items()}


def _check_operations(resources: Resources, rules: Rules) -> None:
    for kind, _ in resources.named():
        known = (*SUPPORTED_OPERATIONS[kind], AclOperation.ALL)
        for operation in rules.operations.get(kind, ()):
            if operation not in known:
                names = ", ".join(pascal_name(each) for each in known)
                raise click.UsageError(f"{pascal_name(kind)} has no operation {pascal_name(operation)}, only {names}.")


@click.group("acls", cls=CommandGroup)
def acls() -> None:
    """List, add and remove access control lists."""


@acls.command("list")
@resource_options
@click.option("--principal", "principals", multiple=True, type=PRINCIPAL, metavar="TYPE:NAME", help="Only of these.")
@json_option
@cluster_options
def list_(settings: dict[str, object], resources: Resources, principals: tuple[str, ...], as_json: bool) -> None:
    """List ACLs: all, or those of the named resources.

    --pattern-type match lists what affects a resource: kafkapy acls list --topic orders --pattern-type match
    """
    with connected(settings) as admin:
        found = _found(admin, [_filter(each) for each in resources.filters()])
    if principals:
        found = [each for each in found if each.principal in principals]
    Output(as_json).rows([_row(each) for each in found], COLUMNS, "No ACL matches. kafkapy acls add makes one.")


@acls.command("add")
@resource_options
@rule_options
@click.option("--dry-run", is_flag=True, help="Show the ACLs without adding them.")
@json_option
@cluster_options
def add(settings: dict[str, object], resources: Resources, rules: Rules, dry_run: bool, as_json: bool) -> None:
    """Add ACLs, and print them.

    Example: kafkapy acls add --allow-principal User:alice --consumer --topic orders --group billing
    """
    wanted = _acls(resources, rules)
    if not dry_run:
        with connected(settings) as admin:
            errors = admin.add_acls(wanted)
        failed = [f"{_sentence(acl)}: {error}" for acl, error in zip(wanted, errors, strict=True) if error is not None]
        if failed:
            raise KafkaError("; ".join(failed))
    Output(as_json).rows([_row(each) for each in wanted], COLUMNS)


@acls.command("remove")
@resource_options
@rule_options
@click.option("--dry-run", is_flag=True, help="Show the ACLs without removing them.")
@yes_option
@json_option
@cluster_options
def remove(
    settings: dict[str, object], resources: Resources, rules: Rules, dry_run: bool, yes: bool, as_json: bool
) -> None:
    """Remove ACLs, and print them.

    Without principals, the command removes the ACLs of every principal. It asks first on a terminal.
    """
    if not resources.named():
        raise click.UsageError("Name the resources with --topic, --group, --transactional-id or --cluster.")
    filters = [
        _filter(pattern, *entry) for pattern in resources.filters() for entry in _removed(rules, pattern.resource_type)
    ]
    with connected(settings) as admin:
        found = _found(admin, filters)
        if not found:
            raise _nothing(admin, resources)
        if not dry_run:
            if not yes and sys.stdin.isatty():
                click.confirm(f"Remove {len(found)} ACLs?", abort=True, err=True)
            for _, _, failure in admin.delete_acls(filters):
                if failure.code:
                    raise error_for(failure.code)
    Output(as_json).rows([_row(each) for each in found], COLUMNS)


# --- inside -------------------------------------------------------------------------------------------------------


def _acls(resources: Resources, rules: Rules) -> list[ACL]:
    from kafkapy.clients.admin.acls import ACL, ResourcePattern

    if resources.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise click.UsageError("A new ACL has the pattern type literal or prefixed.")
    if not resources.named():
        raise click.UsageError("Name the resources with --topic, --group, --transactional-id or --cluster.")
    if not rules.sides:
        raise click.UsageError("Say who: --allow-principal or --deny-principal.")
    return [
        ACL(*entry, ResourcePattern(each.resource_type, each.resource_name, each.pattern_type))
        for each in resources.filters()
        for entry in rules.entries(each.resource_type)
    ]


def _removed(rules: Rules, kind: ResourceType) -> Sequence[tuple[Any, ...]]:
    """Principal, host, operation and permission to remove; an empty tuple stands for all."""
    if rules.sides:
        return rules.entries(kind)
    return [(None, None, operation) for operation in rules.given] or [()]


def _filter(
    pattern: ResourcePatternFilter,
    principal: str | None = None,
    host: str | None = None,
    operation: AclOperation = AclOperation.ANY,
    permission_type: AclPermissionType = AclPermissionType.ANY,
) -> ACLFilter:
    from kafkapy.clients.admin.acls import ACLFilter

    return ACLFilter(principal, host, operation, permission_type, pattern)


def _found(admin: KafkaAdminClient, filters: Iterable[ACLFilter]) -> list[ACL]:
    """The ACLs that match any of the filters, each once, in order."""
    found = {acl: None for each in filters for acl in admin.describe_acls(each)[0]}
    return sorted(found, key=_order)


def _order(acl: ACL) -> tuple[Any, ...]:
    pattern = acl.resource_pattern
    return (
        pattern.resource_type,
        pattern.resource_name,
        pattern.pattern_type,
        acl.principal,
        acl.host,
        acl.permission_type,
        acl.operation,
    )


def _row(acl: ACL) -> dict[str, Any]:
    pattern = acl.resource_pattern
    return {
        "resource": pascal_name(pattern.resource_type),
        "name": pattern.resource_name,
        "pattern": pattern.pattern_type.name.lower(),
        "principal": acl.principal,
        "host": acl.host,
        "operation": pascal_name(acl.operation),
        "permission": pascal_name(acl.permission_type),
    }


def _sentence(acl: ACL) -> str:
    row = _row(acl)
    return "{permission} {operation} for {principal} on {resource} {name}".format_map(row)


def _nothing(admin: KafkaAdminClient, resources: Resources) -> KafkaError:
    """The error of a removal that matches nothing, with a resource that has ACLs and a similar name."""
    from kafkapy.clients.admin.acls import ResourcePatternFilter

    for kind, name in resources.named():
        every = _filter(ResourcePatternFilter(kind, None, PatternType.ANY))
        known = {acl.resource_pattern.resource_name or "" for acl in _found(admin, [every])}
        question = did_you_mean(name, known - {name})
        if question:
            return KafkaError(f"No ACL of {pascal_name(kind)} {name} matches; {question}")
    return KafkaError("No ACL matches. kafkapy acls list shows the ACLs.")
