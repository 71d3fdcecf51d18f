"""`kafkapy cluster`: state, leaders, drains, id, brokers, quorum and served versions.

Counterpart of kafka-cluster.sh, kafka-leader-election.sh, kafka-metadata-quorum.sh and kafka-broker-api-versions.sh.
"""

from __future__ import annotations

import click

from kafkapy.errors import KafkaError
from kafkapy.tools import cluster_state
from kafkapy.tools.lazy_group import CommandGroup
from kafkapy.tools.options import cluster_options, connected, json_option
from kafkapy.tools.output import Column, Output, time_text
from kafkapy.tools.terminal import echo

__all__ = ["cluster"]

BROKER_COLUMNS = (
    Column("broker_id", "broker", right=True),
    Column("host"),
    Column("port", right=True),
    Column("rack"),
    Column("controller"),
    Column("fenced"),
)


@click.group("cluster", cls=CommandGroup)
def cluster() -> None:
    """Show and operate the cluster: health, leaders, drains, brokers."""


for command in cluster_state.COMMANDS:
    cluster.add_command(command)


@cluster.command("id")
@json_option
@cluster_options
def id_(settings: dict[str, object], as_json: bool) -> None:
    """Print the id of the cluster."""
    with connected(settings) as admin:
        found = admin.describe_cluster()["cluster_id"]
    output = Output(as_json)
    if as_json:
        output.json({"cluster_id": found})
    else:
        echo(found)


@cluster.command("brokers")
@json_option
@cluster_options
def brokers(settings: dict[str, object], as_json: bool) -> None:
    """List the brokers."""
    with connected(settings) as admin:
        found = admin.describe_cluster()
    rows = [
        {
            "broker_id": each["broker_id"],
            "host": each["host"],
            "port": each["port"],
            "rack": each["rack"],
            "controller": each["broker_id"] == found["controller_id"],
            "fenced": each.get("is_fenced", False),
        }
        for each in sorted(found["brokers"], key=lambda each: int(each["broker_id"]))
    ]
    output = Output(as_json)
    output.heading(f"cluster {found['cluster_id']}")
    output.rows(rows, BROKER_COLUMNS)


@cluster.command("quorum")
@json_option
@cluster_options
def quorum(settings: dict[str, object], as_json: bool) -> None:
    """Show the voters and observers of a KRaft cluster's metadata log."""
    with connected(settings) as admin:
        found = admin.describe_metadata_quorum()
    partition = found["topics"][0]["partitions"][0]
    if partition["error"]:
        raise KafkaError(partition["error"])
    end = max((each["log_end_offset"] for each in partition["current_voters"]), default=0)
    rows = [
        {
            "node_id": each["replica_id"],
            "role": _role(each["replica_id"], role, partition["leader_id"]),
            "log_end_offset": each["log_end_offset"],
            "lag": end - each["log_end_offset"],
            "last_caught_up": time_text(each["last_caught_up_timestamp"]),
            "directory_id": each["replica_directory_id"],
        }
        for role, key in (("voter", "current_voters"), ("observer", "observers"))
        for each in partition[key]
    ]
    output = Output(as_json)
    output.heading(
        f"leader {partition['leader_id']}",
        f"epoch {partition['leader_epoch']}",
        f"high watermark {partition['high_watermark']}",
    )
    columns = (
        Column("node_id", "node", right=True),
        Column("role"),
        Column("log_end_offset", right=True),
        Column("lag", right=True),
        Column("last_caught_up"),
        Column("directory_id", quiet=True),
    )
    output.rows(rows, columns)


@cluster.command("api-versions")
@click.option("--broker", type=int, help="Ask this broker; default: any broker.")
@json_option
@cluster_options
def api_versions(settings: dict[str, object], broker: int | None, as_json: bool) -> None:
    """List the requests that a broker serves."""
    from kafkapy.protocol.registry import ApiKeys

    names = {each.value: "".join(word.capitalize() for word in each.name.split("_")) for each in ApiKeys}
    with connected(settings) as admin:
        found = admin.api_versions(broker)
    rows = [
        {"api_key": key, "name": names.get(key), "min_version": low, "max_version": high}
        for key, (low, high) in sorted(found.items())
    ]
    columns = (
        Column("api_key", "key", right=True),
        Column("name"),
        Column("min_version", "oldest", right=True),
        Column("max_version", "newest", right=True),
    )
    Output(as_json).rows(rows, columns)


def _role(node: int, role: str, leader: int) -> str:
    return "leader" if node == leader else role
