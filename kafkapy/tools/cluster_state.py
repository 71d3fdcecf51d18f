"""`kafkapy cluster health`, `under-replicated`, `leaders`, `elect` and `drain`.

The commands add themselves to the group `kafkapy cluster`. They need Metadata, DescribeConfigs and DescribeLogDirs;
`elect` needs ElectLeaders (Kafka 2.2), `drain` AlterPartitionReassignments (Kafka 2.4).
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from kafkapy.errors import ErrorCode, KafkaError, error_for
from kafkapy.tools import reassignment, replica_plan
from kafkapy.tools.named_partitions import partitions_of
from kafkapy.tools.options import TOPIC, cluster_options, connected, json_option, yes_option
from kafkapy.tools.output import Column, Output
from kafkapy.tools.reassign import broker_list, carry_out, show_plan, throttle_option, wait_option
from kafkapy.types import TopicPartition

if TYPE_CHECKING:
    from kafkapy.clients.admin.kafka_admin_client import KafkaAdminClient

__all__ = ["COMMANDS"]

Row = dict[str, Any]
MIN_ISR = "min.insync.replicas"
OFFLINE, UNDER_MIN_ISR, AT_MIN_ISR, UNDER_REPLICATED, IN_SYNC = (
    "no leader",
    "under min ISR",
    "at min ISR",
    "under-replicated",
    "in sync",
)

PARTITION_COLUMNS = (
    Column("topic"),
    Column("partition", right=True),
    Column("state"),
    Column("leader", right=True),
    Column("replicas"),
    Column("isr"),
    Column("missing"),
    Column("min_isr", right=True),
)
BROKER_COLUMNS = (
    Column("broker", right=True),
    Column("rack"),
    Column("leaders", right=True),
    Column("preferred", right=True),
    Column("led_elsewhere", right=True),
    Column("imbalance", "imbalance %", right=True),
    Column("replicas", right=True),
    Column("in_sync", right=True),
)
ELECTION_COLUMNS = (Column("topic"), Column("partition", right=True), Column("outcome"))


@dataclass(frozen=True)
class _Partition:
    """One partition of the metadata."""

    name: TopicPartition
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    min_isr: int

    @property
    def missing(self) -> list[int]:
        return [broker for broker in self.replicas if broker not in self.isr]

    @property
    def state(self) -> str:
        """The worst state that is true.

        A partition with all replicas in sync is in sync, also when it is at its min ISR.
        """
        if self.leader is None:
            return OFFLINE
        needed = min(self.min_isr, len(self.replicas))
        if len(self.isr) < needed:
            return UNDER_MIN_ISR
        if not self.missing:
            return IN_SYNC
        return AT_MIN_ISR if len(self.isr) == needed else UNDER_REPLICATED

    def row(self) -> Row:
        return {
            "topic": self.name.topic,
            "partition": self.name.partition,
            "state": self.state,
            "leader": self.leader,
            "replicas": self.replicas,
            "isr": self.isr,
            "missing": self.missing,
            "min_isr": self.min_isr,
        }


def _partitions(admin: KafkaAdminClient) -> list[_Partition]:
    """All partitions, those of internal topics too."""
    from kafkapy.clients.admin.configs import ConfigResource

    topics = sorted(admin.describe_topics(), key=lambda topic: str(topic["name"]))
    resources = [ConfigResource("topic", topic["name"], [MIN_ISR]) for topic in topics]
    found = admin.describe_configs(resources, config_filter="all").get("topic", {}) if resources else {}
    return [
        _Partition(
            TopicPartition(topic["name"], each["partition_index"]),
            each["leader_id"] if each["leader_id"] >= 0 else None,
            tuple(each["replica_nodes"]),
            tuple(each["isr_nodes"]),
            int(found[topic["name"]][MIN_ISR]["value"]),
        )
        for topic in topics
        for each in sorted(topic["partitions"], key=lambda each: int(each["partition_index"]))
    ]


def _broker_rows(brokers: Mapping[int, str | None], partitions: Sequence[_Partition]) -> list[Row]:
    """The rows of BROKER_COLUMNS: live brokers, and dead ones that have replicas."""
    leaders = Counter(each.leader for each in partitions)
    preferred = Counter(each.replicas[0] for each in partitions)
    elsewhere = Counter(each.replicas[0] for each in partitions if each.leader != each.replicas[0])
    replicas = Counter(broker for each in partitions for broker in each.replicas)
    in_sync = Counter(broker for each in partitions for broker in each.isr)
    return [
        {
            "broker": broker,
            "rack": brokers.get(broker),
            "live": broker in brokers,
            "leaders": leaders[broker],
            "preferred": preferred[broker],
            "led_elsewhere": elsewhere[broker],
            "imbalance": 100 * elsewhere[broker] // preferred[broker] if preferred[broker] else 0,
            "replicas": replicas[broker],
            "in_sync": in_sync[broker],
        }
        for broker in sorted(brokers.keys() | replicas.keys())
    ]


@click.command("health")
@json_option
@cluster_options
def health(settings: dict[str, object], as_json: bool) -> None:
    """Show whether all brokers, partitions and replicas are well.

    The exit code is 1 when a partition has no leader or too few replicas in sync, or a log directory is offline.
    """
    with connected(settings) as admin:
        cluster = admin.describe_cluster()
        live = {int(each["broker_id"]): each["rack"] for each in cluster["brokers"] if not each.get("is_fenced")}
        partitions = _partitions(admin)
        moving = _reassigning(admin)
        offline_dirs = _offline_dirs(admin)
    states = Counter(each.state for each in partitions)
    brokers = _broker_rows(live, partitions)
    values: Row = {
        "cluster_id": cluster["cluster_id"],
        "controller": cluster["controller_id"] if cluster["controller_id"] >= 0 else None,
        "live_brokers": sorted(live),
        "dead_brokers": [row["broker"] for row in brokers if not row["live"]],
        "offline_log_dirs": offline_dirs,
        "topics": len({each.name.topic for each in partitions}),
        "partitions": len(partitions),
        "without_leader": states[OFFLINE],
        "under_min_isr": states[UNDER_MIN_ISR],
        "at_min_isr": states[AT_MIN_ISR],
        "under_replicated": sum(bool(each.missing) for each in partitions),
        "led_elsewhere": sum(row["led_elsewhere"] for row in brokers),
        "reassigning": moving,
    }
    problems = _problems(values)
    output = Output(as_json)
    if as_json:
        output.json(values | {"brokers": brokers, "healthy": not problems})
    else:
        output.heading(f"cluster {values['cluster_id']}")
        rows = [{"measure": name, "value": value} for name, value in values.items()]
        output.rows(rows, (Column("measure"), Column("value")))
        if not problems and output.terminal:
            output.say("All partitions have all their replicas in sync.", style="green")
    if problems:
        raise KafkaError(f"The cluster is not healthy: {', '.join(problems)}.")


def _problems(values: Mapping[str, Any]) -> list[str]:
    """The reasons against health, in words."""
    dead, dirs = values["dead_brokers"], values["offline_log_dirs"]
    offline, few, behind = values["without_leader"], values["under_min_isr"], values["under_replicated"]
    return [
        *(["it has no controller"] if values["controller"] is None else []),
        *([f"{'broker' if len(dead) == 1 else 'brokers'} {_listed(dead)} {_be(len(dead))} dead"] if dead else []),
        *([f"log directories of broker {_listed(sorted(set(dirs)))} are offline"] if dirs else []),
        *([f"{_counted(offline)} without a leader"] if offline else []),
        *([f"{_counted(few)} under the min ISR"] if few else []),
        *([f"{_counted(behind)} under-replicated"] if behind else []),
    ]


def _counted(partitions: int) -> str:
    return f"{partitions} {'partition' if partitions == 1 else 'partitions'} {_be(partitions)}"


def _be(count: int) -> str:
    return "is" if count == 1 else "are"


def _listed(brokers: Sequence[int]) -> str:
    return ", ".join(map(str, brokers))


def _reassigning(admin: KafkaAdminClient) -> int:
    """The number of running reassignments; 0 when the client may not see them."""
    from kafkapy.errors import ClusterAuthorizationFailedError, UnsupportedVersionError

    try:
        return len(admin.list_partition_reassignments())
    except (ClusterAuthorizationFailedError, UnsupportedVersionError):
        return 0


def _offline_dirs(admin: KafkaAdminClient) -> list[int]:
    """The brokers with an offline log directory, one entry per directory."""
    return [
        int(broker["broker"])
        for broker in admin.describe_log_dirs({})
        for log_dir in broker["log_dirs"]
        if log_dir["error_code"]
    ]


@click.command("under-replicated")
@click.option("--under-min-isr", is_flag=True, help="Only partitions that refuse acks=all, or have no leader.")
@json_option
@cluster_options
def under_replicated(settings: dict[str, object], under_min_isr: bool, as_json: bool) -> None:
    """List partitions with replicas that are not in sync."""
    with connected(settings) as admin:
        partitions = _partitions(admin)
    shown = (OFFLINE, UNDER_MIN_ISR) if under_min_isr else (OFFLINE, UNDER_MIN_ISR, AT_MIN_ISR, UNDER_REPLICATED)
    rows = [each.row() for each in partitions if each.state in shown]
    Output(as_json).rows(rows, PARTITION_COLUMNS, "All partitions have their replicas in sync.")


@click.command("leaders")
@json_option
@cluster_options
def leaders(settings: dict[str, object], as_json: bool) -> None:
    """Show the balance of leaders and replicas over brokers.

    A broker is preferred where it is the first replica. `imbalance` is the share of these partitions that another
    broker leads; kafkapy cluster elect brings them back.
    """
    with connected(settings) as admin:
        brokers = reassignment.racks_of(admin)
        partitions = _partitions(admin)
    Output(as_json).rows(_broker_rows(brokers, partitions), BROKER_COLUMNS)


@click.command("elect")
@click.argument("places", nargs=-1, metavar="[TOPIC[:PARTITIONS]]...", type=TOPIC)
@click.option("--unclean", is_flag=True, help="Elect a replica that is not in sync, when no other is live.")
@yes_option
@json_option
@cluster_options
def elect(settings: dict[str, object], places: tuple[str, ...], unclean: bool, yes: bool, as_json: bool) -> None:
    """Elect the preferred leaders of partitions, by default of all.

    An unclean election loses the records that the new leader does not have.
    """
    if unclean and not places:
        raise click.UsageError("--unclean needs the topics or partitions: they lose records.")
    with connected(settings) as admin:
        partitions = partitions_of(admin, places)
        if unclean and not yes and sys.stdin.isatty():
            click.confirm(f"Elect leaders of {', '.join(places)} that may lack records?", abort=True, err=True)
        wanted: dict[str, list[int]] | None = {} if places else None
        for partition in partitions:
            wanted.setdefault(partition.topic, []).append(partition.partition)  # type: ignore[union-attr]
        result = admin.elect_leaders("unclean" if unclean else "preferred", wanted, raise_errors=False)
    if result.error_code:
        raise error_for(result.error_code)
    rows = [
        {
            "topic": topic.topic,
            "partition": each.partition_id,
            "outcome": _elected(each.error_code, each.error_message),
            "error": error_for(each.error_code).code.name if each.error_code else None,
        }
        for topic in sorted(result.replica_election_results)
        for each in sorted(topic.partition_result)
    ]
    Output(as_json).rows(rows, ELECTION_COLUMNS, "All partitions have their preferred leader.")
    failed = [row for row in rows if row["error"] not in (None, ErrorCode.ELECTION_NOT_NEEDED.name)]
    if failed:
        said = "; ".join(f"{row['topic']}-{row['partition']}: {str(row['outcome']).rstrip('.')}" for row in failed)
        raise KafkaError(f"{len(failed)} of {len(rows)} elections failed: {said}")


def _elected(code: int, message: str | None) -> str:
    if code == ErrorCode.ELECTION_NOT_NEEDED:
        return "leads already"
    return str(message or error_for(code)) if code else "elected"


@click.command("drain")
@click.argument("broker", type=click.IntRange(0))
@click.option("--to", "brokers", metavar="ID[,...]", help="Brokers that get the replicas; default: all others.")
@click.option("--execute", is_flag=True, help="Carry out the plan; without it the command only shows it.")
@throttle_option
@wait_option
@yes_option
@json_option
@cluster_options
def drain(
    settings: dict[str, object],
    broker: int,
    brokers: str | None,
    execute: bool,
    throttle: int | None,
    no_wait: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Move all replicas of a broker, live or dead, to other brokers.

    The broker can be stopped for good afterwards. Other replicas stay. The plan is only shown; --execute carries it
    out, waits for its end, and removes the throttle.
    """
    output = Output(as_json)
    with connected(settings) as admin:
        live = reassignment.racks_of(admin)
        targets = None if brokers is None else reassignment.racks_of(admin, broker_list(brokers))
        current = {each.name: each.replicas for each in _partitions(admin)}
        if broker not in live and not any(broker in replicas for replicas in current.values()):
            raise KafkaError(
                f"The cluster has no broker {broker}, and no replica of it; it has {', '.join(map(str, sorted(live)))}."
            )
        planned = replica_plan.without(current, broker, live, targets)
        logs = reassignment.log_sizes(admin, planned)
        found = {each: reassignment.largest(logs, current[each], each) for each in planned}
        moves = replica_plan.moves_of(
            current, planned, {each: size for each, size in found.items() if size is not None}
        )
        if execute:
            carry_out(admin, moves, output, throttle=throttle, waits=not no_wait, yes=yes)
        else:
            show_plan(moves, output)
    if not as_json and (not moves or (execute and not no_wait)):
        output.say(f"Broker {broker} holds no replica.")


COMMANDS = (health, under_replicated, leaders, elect, drain)
"""The commands that `kafkapy cluster` has from here."""
