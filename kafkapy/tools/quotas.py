"""`kafkapy quotas`: quotas of users, client ids and addresses.

Counterpart of `kafka-configs.sh --entity-type users|clients|ips`. Works with any Kafka broker that has the quota APIs
(2.6 and newer).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import click

from kafkapy.errors import KafkaError
from kafkapy.metadata.quota_entities import CLIENT_ID, IP, QUOTA_KEYS, USER
from kafkapy.tools.lazy_group import CommandGroup
from kafkapy.tools.options import cluster_options, connected, json_option, key_values
from kafkapy.tools.output import Column, Output

if TYPE_CHECKING:
    from kafkapy.clients.admin.kafka_admin_client import KafkaAdminClient
    from kafkapy.clients.admin.users import ClientQuota

__all__ = ["quotas"]

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_TEXT: Final = "<default>"
COLUMNS = (
    Column("user"), Column("client_id"), Column("ip"), Column("quota"), Column("value", right=True),
)  # fmt: skip
SIZES: Final[Mapping[str, int]] = {"K": 1000, "M": 1000**2, "G": 1000**3, "Ki": 1024, "Mi": 1024**2, "Gi": 1024**3}


class Entity(NamedTuple):
    """The entity that the options name."""

    parts: Mapping[str, str | None]

    def __str__(self) -> str:
        return ", ".join(f"{kind} {DEFAULT_TEXT if name is None else name}" for kind, name in self.parts.items())


def entity_options(command: F) -> F:
    """Add the options that name an entity."""
    texts = {
        USER: ("--user", "A user, as its principal's name says it."),
        CLIENT_ID: ("--client-id", "A client id."),
        IP: ("--ip", "An address, or a host that every broker can resolve."),
    }
    for kind, (option, text) in reversed(texts.items()):
        name = kind.replace("-", "_")
        command = click.option(f"{option}-default", f"{name}_default", is_flag=True, help=f"All others of {option}.")(
            command
        )
        command = click.option(option, name, metavar="NAME", help=text)(command)
    return command


def _entity(given: Mapping[str, Any]) -> Entity:
    parts: dict[str, str | None] = {}
    for kind in (USER, CLIENT_ID, IP):
        name, is_default = given[kind.replace("-", "_")], given[f"{kind.replace('-', '_')}_default"]
        if name is not None and is_default:
            raise click.UsageError(f"--{kind} and --{kind}-default exclude each other.")
        if name is not None or is_default:
            parts[kind] = name
    if IP in parts and len(parts) > 1:
        raise click.UsageError("An address has no user and no client id beside it.")
    return Entity(parts)


def _named_entity(given: Mapping[str, Any]) -> Entity:
    entity = _entity(given)
    if not entity.parts:
        raise click.UsageError("Name an entity with --user, --client-id or --ip, or their defaults.")
    return entity


@click.group("quotas", cls=CommandGroup)
def quotas() -> None:
    """List, describe, set and remove quotas of clients."""


@quotas.command("list")
@entity_options
@json_option
@cluster_options
def list_(settings: dict[str, object], as_json: bool, **given: Any) -> None:
    """List quotas: all, or those of entities with these names among others.

    Example: kafkapy quotas list --user alice
    """
    entity = _entity(given)
    with connected(settings) as admin:
        found = _found(admin, entity, strict=False)
    Output(as_json).rows(_rows(found), COLUMNS, "No quota matches. kafkapy quotas set makes one.")


@quotas.command("describe")
@entity_options
@json_option
@cluster_options
def describe(settings: dict[str, object], as_json: bool, **given: Any) -> None:
    """Show the quotas of exactly one entity, which must have some.

    Example: kafkapy quotas describe --user alice --client-id billing
    """
    entity = _named_entity(given)
    with connected(settings) as admin:
        found = _found(admin, entity, strict=True)
    if not found:
        raise KafkaError(f"There is no quota of {entity}; kafkapy quotas list shows all.")
    Output(as_json).rows(_rows(found), COLUMNS)


@quotas.command("set")
@click.argument("values", nargs=-1, required=True, metavar="KEY=VALUE...")
@entity_options
@click.option("--dry-run", is_flag=True, help="Let the broker check the change without making it.")
@json_option
@cluster_options
def set_(settings: dict[str, object], values: tuple[str, ...], dry_run: bool, as_json: bool, **given: Any) -> None:
    """Set quotas of one entity, and print them.

    Keys: producer_byte_rate, consumer_byte_rate (bytes per second), request_percentage (of one thread),
    controller_mutation_rate (partitions per second), and for addresses connection_creation_rate (per second). A value
    may end in K, M, G, Ki, Mi or Gi. Example: kafkapy quotas set --user alice producer_byte_rate=10Mi
    """
    entity = _named_entity(given)
    wanted = {key: _number(key, text) for key, text in key_values(values).items()}
    with connected(settings) as admin:
        admin.alter_client_quotas([(entity.parts, wanted)], validate_only=dry_run)
    Output(as_json).rows(_rows([(entity.parts, wanted)]), COLUMNS)


@quotas.command("remove")
@click.argument("keys", nargs=-1, metavar="[KEY...]")
@entity_options
@click.option("--dry-run", is_flag=True, help="Let the broker check the change without making it.")
@json_option
@cluster_options
def remove(settings: dict[str, object], keys: tuple[str, ...], dry_run: bool, as_json: bool, **given: Any) -> None:
    """Remove quotas of one entity, and print them.

    The default is to remove all its keys. Example: kafkapy quotas remove --user alice
    """
    entity = _named_entity(given)
    with connected(settings) as admin:
        found = _found(admin, entity, strict=True)
        present = dict(found[0][1]) if found else {}
        missing = [key for key in keys if key not in present]
        if missing or not present:
            raise KafkaError(f"{entity} has no quota{f' {missing[0]}' if missing else ''}.")
        removed = {key: present[key] for key in (keys or present)}
        admin.alter_client_quotas([(entity.parts, dict.fromkeys(removed))], validate_only=dry_run)
    Output(as_json).rows(_rows([(entity.parts, removed)]), COLUMNS)


# --- inside -------------------------------------------------------------------------------------------------------


def _found(admin: KafkaAdminClient, entity: Entity, strict: bool) -> Sequence[ClientQuota]:
    from kafkapy.clients.admin.users import DEFAULT_ENTITY

    wanted = {kind: DEFAULT_ENTITY if name is None else name for kind, name in entity.parts.items()}
    found = admin.describe_client_quotas(wanted, strict=strict)
    return sorted(found, key=lambda each: [each[0].get(kind, "") or "" for kind in (USER, CLIENT_ID, IP)])


def _rows(found: Iterable[tuple[Mapping[str, str | None], Mapping[str, float]]]) -> list[dict[str, Any]]:
    return [
        {
            "user": _name(parts, USER),
            "client_id": _name(parts, CLIENT_ID),
            "ip": _name(parts, IP),
            "quota": key,
            "value": int(value) if float(value).is_integer() else value,
        }
        for parts, values in found
        for key, value in sorted(values.items())
    ]


def _name(parts: Mapping[str, str | None], kind: str) -> str | None:
    if kind not in parts:
        return None
    name = parts[kind]
    return DEFAULT_TEXT if name is None else name


def _number(key: str, text: str) -> float:
    if key not in QUOTA_KEYS:
        raise click.UsageError(f"There is no quota {key}; the quotas are {', '.join(QUOTA_KEYS)}.")
    unit = next((unit for unit in sorted(SIZES, key=len, reverse=True) if text.endswith(unit)), "")
    try:
        value = float(text.removesuffix(unit)) * SIZES.get(unit, 1)
    except ValueError:
        raise click.UsageError(f"{key}={text}: the value must be a number, such as 1000 or 10Mi.") from None
    if not 0 < value < float("inf"):
        raise click.UsageError(f"{key}={text}: the value must be greater than 0.")
    return value
