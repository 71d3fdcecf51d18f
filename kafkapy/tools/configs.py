"""`kafkapy configs`: list, describe, set and delete configurations. Counterpart of kafka-configs.sh."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import click

from kafkapy.config.suggestions import did_you_mean
from kafkapy.errors import (
    InvalidRequestError,
    KafkaError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from kafkapy.metadata.quota_entities import CLIENT_ID, IP, USER
from kafkapy.tools.lazy_group import CommandGroup
from kafkapy.tools.missing_names import no_topic, topic_problem
from kafkapy.tools.options import cluster_options, connected, json_option
from kafkapy.tools.output import Column, Output
from kafkapy.types import ConfigResourceType

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from kafkapy.clients.admin.configs import ConfigResource
    from kafkapy.clients.admin.kafka_admin_client import KafkaAdminClient

__all__ = ["configs"]

TYPES = ("topic", "broker", "broker-logger", "group", "client-metrics")
OF_RESOURCES: Final = ("topic", "broker", "group", "client-metrics")
OF_CLIENTS: Final = (USER, CLIENT_ID, IP)
LISTED: Final = (*OF_RESOURCES, *OF_CLIENTS)
"""Types that `list` shows."""
DESCRIBED_AT_ONCE: Final = 500
"""Resources in one request."""
ALL_BROKERS = "default"
"""Name of the dynamic configuration of all brokers, in place of a broker's id."""
MISSING_NAMES = {
    "topic": "Give the name of a topic; kafkapy topics list shows them.",
    "broker": f"Give the id of a broker, or {ALL_BROKERS} for all; kafkapy cluster brokers shows them.",
    "broker-logger": "Give the id of a broker; kafkapy cluster brokers shows them.",
    "group": "Give the name of a group; kafkapy groups list shows them.",
    "client-metrics": "Give the name of a subscription.",
}
"""The error for a missing NAME, by TYPE."""
OPERATIONS = {"+=": "append", "-=": "subtract", "=": "set"}


class _Type(click.Choice[str]):
    """A type of resources, or more than one of them as kafka-configs.sh has it (topics, brokers, ...)."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """click.BadParameter with the closest type."""
        one = value.removesuffix("s") if value not in self.choices else value
        if one not in self.choices and (question := did_you_mean(one, self.choices)):
            self.fail(f"{value!r} is no type of resources; {question}", param, ctx)
        return super().convert(one, param, ctx)


class _ResourceName(click.ParamType[str]):
    """A resource's name, completed by the type before it."""

    name = "name"

    def get_missing_message(self, param: click.Parameter, ctx: click.Context | None) -> str:
        """The error for a missing name: it says which name follows the type."""
        kind = ctx.params.get("kind") if ctx else None
        return MISSING_NAMES.get(str(kind), "A name is expected after the type.")

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from kafkapy.tools.options import GROUP, TOPIC

        known = {"topic": TOPIC, "group": GROUP}.get(str(ctx.params.get("kind")))
        return known.shell_complete(ctx, param, incomplete) if known else []


type_argument = click.argument("kind", metavar="TYPE", type=_Type(TYPES))
name_argument = click.argument("name", metavar="NAME", type=_ResourceName())


@click.group("configs", cls=CommandGroup)
def configs() -> None:
    """List, describe, set and delete configurations.

    TYPE is topic, broker, broker-logger, group or client-metrics; NAME is the topic, the broker's id ("default" for
    the configuration of all brokers), the group, or the client-metrics subscription.
    """


@configs.command("list")
@click.argument("kinds", nargs=-1, metavar="[TYPE]...", type=_Type(LISTED))
@json_option
@cluster_options
def list_(settings: dict[str, object], kinds: tuple[str, ...], as_json: bool) -> None:
    """List everything with a dynamic configuration.

    TYPE is topic, broker, group, client-metrics, user, client-id or ip; the default is all types. The configuration of
    all brokers has the name "default". Users and client ids have quotas, users also SCRAM credentials.

    Example: kafkapy configs list topic broker
    """
    wanted = kinds or LISTED
    with connected(settings) as admin:
        found = _of_resources(admin, [kind for kind in OF_RESOURCES if kind in wanted])
        if set(wanted) & set(OF_CLIENTS):
            found |= {each: keys for each, keys in _of_clients(admin).items() if set(each[0].split(", ")) & set(wanted)}
    rows = [
        {"type": kind, "name": name, "configuration": keys if as_json else _shown(keys)}
        for (kind, name), keys in found.items()
    ]
    columns = (Column("type"), Column("name"), Column("configuration"))
    Output(as_json).rows(rows, columns, "Everything has its defaults. kafkapy configs set changes them.")


@configs.command("describe")
@type_argument
@name_argument
@click.argument("keys", nargs=-1, metavar="[KEY]...")
@click.option("--all", "everything", is_flag=True, help="Show all keys, including keys with default values.")
@click.option("--synonyms", is_flag=True, help="Show the other sources of each value.")
@click.option("--documentation", is_flag=True, help="Show the documentation of each key.")
@json_option
@cluster_options
def describe(
    settings: dict[str, object],
    kind: str,
    name: str,
    keys: tuple[str, ...],
    everything: bool,
    synonyms: bool,
    documentation: bool,
    as_json: bool,
) -> None:
    """Show the configuration of one resource.

    Without KEYs it shows the keys that were set; --all shows every key.
    """
    shown = "all" if everything or keys else "modified"
    with connected(settings) as admin, _topic_known(admin, kind, name):
        found = admin.describe_configs(
            [_resource(kind, name, list(keys) or None)],
            include_synonyms=synonyms,
            config_filter=shown,
            include_documentation=documentation,
        )
        rows = [{"key": key} | row for key, row in sorted(_only(found).items())]
        missing = sorted(set(keys) - {row["key"] for row in rows})
        if missing:
            known = _only(admin.describe_configs([_resource(kind, name, None)], config_filter="all"))
            question = did_you_mean(missing[0], known)
            raise KafkaError(
                f"{kind.capitalize()} {name} has no configuration {', '.join(missing)}"
                + (f"; {question}" if question else ". --all shows every key.")
            )
    columns = [Column("key"), Column("value"), Column("config_source", "source"), Column("read_only", "read-only")]
    if synonyms:
        columns.append(Column("synonyms"))
        for row in [] if as_json else rows:
            row["synonyms"] = [f"{each['source']}:{each['name']}={each['value']}" for each in row["synonyms"]]
    if documentation:
        columns.append(Column("documentation"))
    for row in rows:
        if row["is_sensitive"] and row["value"] is None and not as_json:
            row["value"] = "[hidden]"
    empty = f"{kind.capitalize()} {name} has only defaults. --all shows them, kafkapy configs set changes one."
    Output(as_json).rows(rows, columns, empty)


dry_run_option = click.option("--dry-run", is_flag=True, help="Check the change without making it.")


@configs.command("set")
@type_argument
@name_argument
@click.argument("changes", nargs=-1, required=True, metavar="KEY=VALUE...")
@dry_run_option
@json_option
@cluster_options
def set_(changes: tuple[str, ...], **where: Any) -> None:
    """Set keys of one resource.

    KEY=VALUE sets a key; KEY+=VALUE and KEY-=VALUE add to and remove from a list.

    Example: kafkapy configs set topic orders retention.ms=3600000 cleanup.policy+=compact
    """
    _alter(dict(map(_change, changes)), **where)


@configs.command("delete")
@type_argument
@name_argument
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
@dry_run_option
@json_option
@cluster_options
def delete(keys: tuple[str, ...], **where: Any) -> None:
    """Reset keys to their defaults."""
    _alter(dict.fromkeys(keys, ("delete", None)), **where)


def _alter(
    changes: Mapping[str, tuple[str, str | None]],
    settings: dict[str, object],
    kind: str,
    name: str,
    dry_run: bool,
    as_json: bool,
) -> None:
    with connected(settings) as admin, _topic_known(admin, kind, name):
        result = _only(admin.alter_configs([_resource(kind, name, changes)], validate_only=dry_run))
    if result != "OK":
        # "InvalidConfigError: ..." is for programs.
        raise KafkaError(f"{kind.capitalize()} {name}: {result.partition(': ')[2]}")
    output = Output(as_json)
    if as_json:
        output.json({"type": kind, "name": name, "keys": list(changes), "dry_run": dry_run})
    else:
        done = "could be changed" if dry_run else "changed"
        output.say(f"{kind.capitalize()} {name}: {', '.join(changes)} {done}.")


def _change(text: str) -> tuple[str, tuple[str, str | None]]:
    key, equals, value = text.partition("=")
    sign = key[-1:] if key[-1:] in ("+", "-") else ""
    key = key.removesuffix(sign) if sign else key
    if not equals or not key.strip():
        raise click.UsageError(f"{text!r} is not KEY=VALUE.")
    return key.strip(), (OPERATIONS[sign + "="], value)


def _resource(kind: str, name: str, keys: Any) -> ConfigResource:
    from kafkapy.clients.admin.configs import ConfigResource

    if kind == "broker" and name == ALL_BROKERS:
        name = ""
    if kind.startswith("broker") and name and not name.isdecimal():
        raise click.UsageError(f"{name!r} is not a broker: give its id, or {ALL_BROKERS} for all brokers.")
    return ConfigResource(kind, name, keys)


@contextmanager
def _topic_known(admin: KafkaAdminClient, kind: str, name: str) -> Iterator[None]:
    """Raise an error for an unknown topic or a denied one."""
    try:
        yield
    except UnknownTopicOrPartitionError:
        raise no_topic(admin, name) from None
    except TopicAuthorizationFailedError as error:
        raise KafkaError(topic_problem(name, error.code)) from None


def _only(found: Mapping[str, Mapping[str, Any]]) -> Any:
    """The value of a result for one resource."""
    return next(iter(next(iter(found.values())).values()))


# --- list ---------------------------------------------------------------------------------------------------------

Found = dict[tuple[str, str], dict[str, str | None]]
"""Keys and values by type and name. The value of a secret is None."""


def _of_resources(admin: KafkaAdminClient, kinds: Sequence[str]) -> Found:
    """The resources of these types that set keys."""
    from kafkapy.clients.admin.configs import ConfigResource

    found: Found = {}
    for kind in kinds:
        names = sorted(_names(admin, kind))
        if kind == "broker":
            names = ["", *sorted(names, key=int)]
        for start in range(0, len(names), DESCRIBED_AT_ONCE):
            asked = [ConfigResource(kind, name) for name in names[start : start + DESCRIBED_AT_ONCE]]
            for name, keys in _described(admin, asked).items():
                if keys:
                    found[kind, name or ALL_BROKERS] = keys
    return found


def _described(admin: KafkaAdminClient, resources: Sequence[ConfigResource]) -> dict[str, dict[str, str | None]]:
    """The keys that each resource of one type sets, without resources that are gone or hidden meanwhile."""
    try:
        (found,) = admin.describe_configs(resources, config_filter="modified").values()
    except (UnknownTopicOrPartitionError, TopicAuthorizationFailedError):
        if len(resources) == 1:
            return {}
        halves = (resources[: len(resources) // 2], resources[len(resources) // 2 :])
        return {name: keys for half in halves for name, keys in _described(admin, half).items()}
    except InvalidRequestError:
        if resources[0].resource_type is not ConfigResourceType.GROUP:
            raise
        return {}  # Kafka describes groups from 4.0 on.
    return {name: {key: entry["value"] for key, entry in sorted(keys.items())} for name, keys in found.items()}


def _names(admin: KafkaAdminClient, kind: str) -> Sequence[str]:
    """The names of a type's resources, also from brokers before Kafka 4.1, which do not list them as such."""
    try:
        return admin.list_config_resources([kind]).get(kind.replace("-", "_"), [])
    except UnsupportedVersionError:
        if kind == "topic":
            return admin.list_topics()
        if kind == "broker":
            return [str(each["broker_id"]) for each in admin.describe_cluster()["brokers"]]
        return [each["group_id"] for each in admin.list_groups()] if kind == "group" else []


def _of_clients(admin: KafkaAdminClient) -> Found:
    """Quotas, and the SCRAM credentials of users."""
    from kafkapy.tools.quotas import DEFAULT_TEXT

    found: Found = {}
    with suppress(UnsupportedVersionError):
        for parts, quotas in admin.describe_client_quotas():
            kinds = [kind for kind in OF_CLIENTS if kind in parts]
            texts = (DEFAULT_TEXT if parts[kind] is None else str(parts[kind]) for kind in kinds)
            found[", ".join(kinds), ", ".join(texts)] = {key: _number(value) for key, value in sorted(quotas.items())}
    with suppress(UnsupportedVersionError):
        for user, about in admin.describe_user_scram_credentials().items():
            keys = found.setdefault((USER, user), {})
            for each in about["credential_infos"]:
                keys[each["mechanism"].mechanism_name] = f"iterations={each['iterations']}"
    return dict(sorted(found.items()))


def _shown(keys: Mapping[str, str | None]) -> str:
    return " ".join(f"{key}={'[hidden]' if value is None else value}" for key, value in keys.items())


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() else str(value)
