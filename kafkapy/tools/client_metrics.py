"""`kafkapy client-metrics`: subscriptions to clients' metrics (KIP-714). Counterpart of kafka-client-metrics.sh."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

import click

from kafkapy.errors import KafkaError
from kafkapy.tools.lazy_group import CommandGroup
from kafkapy.tools.options import cluster_options, connected, json_option
from kafkapy.tools.output import Column, Output

if TYPE_CHECKING:
    from kafkapy.clients.admin.kafka_admin_client import KafkaAdminClient

__all__ = ["client_metrics"]

KIND = "client_metrics"
KEYS = {"metrics": "metrics", "interval": "interval.ms", "match": "match"}
"""Keys of a subscription by option."""
COLUMNS = [Column("name"), Column("metrics"), Column("interval.ms", "interval ms"), Column("match")]
NONE = "There are no subscriptions; kafkapy client-metrics alter creates one."
name_option = click.option("--name", metavar="NAME", required=True, help="Name of the subscription.")


@click.group("client-metrics", cls=CommandGroup)
def client_metrics() -> None:
    """List, describe, change and delete subscriptions to clients' metrics.

    A subscription names metrics, an interval, and the clients that push them (KIP-714). The brokers show what arrives
    at metrics.listeners.
    """


@client_metrics.command("list")
@json_option
@cluster_options
def list_(settings: dict[str, object], as_json: bool) -> None:
    """List the subscriptions."""
    with connected(settings) as admin:
        names = _names(admin)
    Output(as_json).rows([{"name": name} for name in names], COLUMNS[:1], NONE)


@client_metrics.command("describe")
@click.option("--name", metavar="NAME", help="Only this subscription.")
@json_option
@cluster_options
def describe(settings: dict[str, object], name: str | None, as_json: bool) -> None:
    """Show subscriptions with their metrics, interval and clients."""
    with connected(settings) as admin:
        found = {each: _described(admin, each) for each in ([name] if name else _names(admin))}
    if name and not found[name]:
        raise _unknown(name)
    rows = [{"name": each, **dict.fromkeys(KEYS.values(), ""), **keys} for each, keys in found.items()]
    Output(as_json).rows(rows, COLUMNS, NONE)


@client_metrics.command("alter")
@click.option("--name", metavar="NAME", help="Name of the subscription.")
@click.option("--generate-name", is_flag=True, help="Create a subscription under a new, random name.")
@click.option(
    "--metrics", metavar="NAMES", help='Beginnings of names of metrics, comma-separated; "*": all. Empty: the default.'
)
@click.option("--interval", metavar="MS", help="Pause between two pushes of a client in ms. Empty: the default.")
@click.option("--match", metavar="PATTERNS", help="SELECTOR=PATTERN, comma-separated. Empty: every client.")
@json_option
@cluster_options
def alter(
    settings: dict[str, object], name: str | None, generate_name: bool, as_json: bool, **options: str | None
) -> None:
    """Create or change a subscription.

    Example: kafkapy client-metrics alter --name all --metrics "*" --interval 60000 --match client_id=orders.*
    """
    if bool(name) == generate_name:
        raise click.UsageError("Give --name or --generate-name.")
    name = name or str(uuid4())
    changes: dict[str, tuple[str, str | None]] = {
        KEYS[option]: ("set", text) if text else ("delete", None)
        for option, text in options.items()
        if text is not None
    }
    if not changes:
        raise click.UsageError("Give --metrics, --interval or --match.")
    _alter(settings, name, changes)
    output = Output(as_json)
    if as_json:
        output.json({"name": name, "keys": list(changes)})
    else:
        output.say(f"Subscription {name}: {', '.join(changes)} changed.")


@client_metrics.command("delete")
@name_option
@json_option
@cluster_options
def delete(settings: dict[str, object], name: str, as_json: bool) -> None:
    """Delete a subscription.

    Its clients push no more, from their next push on.
    """
    with connected(settings) as admin:
        keys = _described(admin, name)
    if not keys:
        raise _unknown(name)
    _alter(settings, name, dict.fromkeys(keys, ("delete", None)))
    output = Output(as_json)
    if as_json:
        output.json({"name": name})
    else:
        output.say(f"Subscription {name} deleted.")


def _names(admin: KafkaAdminClient) -> list[str]:
    found = admin.list_config_resources([KIND])
    return sorted(name for names in found.values() for name in names)


def _described(admin: KafkaAdminClient, name: str) -> dict[str, Any]:
    """The keys that a subscription sets; none for an unknown one."""
    found = admin.describe_configs([_resource(name, None)], config_filter="modified")
    (resources,) = found.values()
    (keys,) = resources.values()
    return {key: entry["value"] for key, entry in keys.items()}


def _alter(settings: dict[str, object], name: str, changes: dict[str, tuple[str, str | None]]) -> None:
    with connected(settings) as admin:
        found = admin.alter_configs([_resource(name, changes)])
    (resources,) = found.values()
    (result,) = resources.values()
    if result != "OK":
        # "InvalidConfigError: ..." is for programs.
        raise KafkaError(f"Subscription {name}: {result.partition(': ')[2]}")


def _resource(name: str, keys: Any) -> Any:
    from kafkapy.clients.admin.configs import ConfigResource

    return ConfigResource(KIND, name, keys)


def _unknown(name: str) -> KafkaError:
    return KafkaError(f"There is no subscription {name}; kafkapy client-metrics list shows them.")
