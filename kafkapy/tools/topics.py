"""`kafkapy topics`: list, describe, create, alter, delete and reassign topics, and delete records.

Counterpart of kafka-topics.sh, kafka-delete-records.sh and kafka-reassign-partitions.sh.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from kafkapy.errors import ErrorCode, KafkaError, OffsetOutOfRangeError, error_for
from kafkapy.tools.lazy_group import CommandGroup
from kafkapy.tools.missing_names import NO_SUCH_TOPIC, NOT_AUTHORIZED, no_topic, topics_by_name
from kafkapy.tools.named_partitions import known_topics, partitions_of
from kafkapy.tools.options import (
    TOPIC,
    cluster_options,
    cluster_options_beside_config,
    connected,
    json_option,
    key_values,
    yes_option,
)
from kafkapy.tools.output import Column, Output
from kafkapy.tools.reassign import reassign
from kafkapy.types import ListOffsetsTimestamp, TopicPartition

if TYPE_CHECKING:
    from kafkapy.clients.admin.kafka_admin_client import KafkaAdminClient

__all__ = ["topics"]

Row = dict[str, Any]

LIST_COLUMNS = (
    Column("topic"),
    Column("partitions", right=True),
    Column("replication_factor", "replicas", right=True),
    Column("internal"),
)
PARTITION_COLUMNS = (
    Column("topic"),
    Column("partition", right=True),
    Column("leader", right=True),
    Column("leader_epoch", "epoch", right=True),
    Column("replicas"),
    Column("isr"),
    Column("offline"),
)
OFFSET_COLUMNS = (
    Column("earliest", right=True),
    Column("latest", right=True),
    Column("records", right=True),
)


@click.group("topics", cls=CommandGroup)
def topics() -> None:
    """List, describe, create, alter, delete and reassign topics."""


@topics.command("list")
@click.option("--exclude-internal", is_flag=True, help="Hide internal topics, such as __consumer_offsets.")
@click.option("--quiet", "-q", is_flag=True, help="Print only the names, one per line.")
@json_option
@cluster_options
def list_(settings: dict[str, object], exclude_internal: bool, quiet: bool, as_json: bool) -> None:
    """List all topics."""
    with connected(settings) as admin:
        found = sorted(admin.describe_topics(), key=lambda topic: str(topic["name"]))
    rows = [_listed(topic) for topic in found if not (exclude_internal and topic["is_internal"])]
    output = Output(as_json)
    if quiet:
        output.names([row["topic"] for row in rows])
    else:
        empty = "The cluster shows no topics. kafkapy topics create NAME creates one."
        output.rows(rows, LIST_COLUMNS, empty)


@topics.command("describe")
@click.argument("names", nargs=-1, metavar="[TOPIC]...", type=TOPIC)
@click.option("--offsets", is_flag=True, help="Show the first and the next offset of each partition.")
@click.option("--under-replicated", is_flag=True, help="Show only under-replicated partitions.")
@click.option("--unavailable", is_flag=True, help="Show only partitions without a leader.")
@json_option
@cluster_options
def describe(
    settings: dict[str, object],
    names: tuple[str, ...],
    offsets: bool,
    under_replicated: bool,
    unavailable: bool,
    as_json: bool,
) -> None:
    """Show topics with their partitions and configuration.

    Without a name, the command shows all topics that are not internal.
    """
    with connected(settings) as admin:
        found = known_topics(admin, names)
        rows = [row for topic in found for row in _partition_rows(topic)]
        filtered = under_replicated or unavailable
        if under_replicated:
            rows = [row for row in rows if set(row["isr"]) < set(row["replicas"])]
        if unavailable:
            rows = [row for row in rows if row["leader"] is None]
        if offsets:
            _add_offsets(admin, rows)
        configs = _given_configs(admin, [topic["name"] for topic in found])
    output = Output(as_json)
    if as_json:
        output.json([_described(topic, configs, rows) for topic in found])
    elif output.terminal:
        if not found:
            output.say("The cluster shows no topics. kafkapy topics create NAME creates one.")
        elif filtered and not rows:
            asked = (("under-replicated", under_replicated), ("unavailable", unavailable))
            output.say(f"No partition is {' and '.join(word for word, given in asked if given)}.")
        for topic in found:
            its = [row for row in rows if row["topic"] == topic["name"]]
            if its or not filtered:
                output.heading(topic["name"], *_summary(topic, configs[topic["name"]]))
                output.rows(its, (*PARTITION_COLUMNS[1:], *(OFFSET_COLUMNS if offsets else ())))
    else:
        output.rows(rows, (*PARTITION_COLUMNS, *(OFFSET_COLUMNS if offsets else ())))


@topics.command("create")
@click.argument("names", nargs=-1, required=True, metavar="TOPIC...")
@click.option("--partitions", "-p", type=click.IntRange(1), help="Number of partitions; default: the broker's.")
@click.option("--replication-factor", "-r", type=click.IntRange(1), help="Number of replicas; default: the broker's.")
@click.option("--config", "-c", "configs", multiple=True, metavar="KEY=VALUE", help="Configuration key of the topic.")
@click.option("--if-not-exists", is_flag=True, help="Accept topics that exist already.")
@click.option("--dry-run", is_flag=True, help="Check the creation without making it.")
@json_option
@cluster_options_beside_config
def create(
    settings: dict[str, object],
    names: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Create topics.

    Example: kafkapy topics create orders -p 6 -r 3 -c cleanup.policy=compact
    """
    wanted = {
        name: {
            "num_partitions": partitions or -1,
            "replication_factor": replication_factor or -1,
            "configs": key_values(configs),
        }
        for name in names
    }
    with connected(settings) as admin:
        created = admin.create_topics(wanted, validate_only=dry_run, raise_errors=False)["topics"]
    exists = ErrorCode.TOPIC_ALREADY_EXISTS if if_not_exists else ErrorCode.NONE
    done = "could be created" if dry_run else "created"
    rows = [_outcome(topic, done, ignored=exists, ignored_text="exists already") for topic in created]
    _report(rows, as_json)


@topics.command("alter")
@click.argument("name", metavar="TOPIC", type=TOPIC)
@click.option(
    "--partitions", "-p", type=click.IntRange(1), required=True, help="New number of partitions, above the current one."
)
@click.option("--dry-run", is_flag=True, help="Check the change without making it.")
@json_option
@cluster_options
def alter(settings: dict[str, object], name: str, partitions: int, dry_run: bool, as_json: bool) -> None:
    """Add partitions to a topic.

    kafkapy configs set topic TOPIC KEY=VALUE changes its configuration.
    """
    with connected(settings) as admin:
        results = admin.create_partitions({name: partitions}, validate_only=dry_run, raise_errors=False).results
        if any(each.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for each in results):
            raise no_topic(admin, name)
    done = f"could have {partitions} partitions" if dry_run else f"has {partitions} partitions now"
    answers = [
        {"name": each.name, "error_code": each.error_code, "error_message": each.error_message} for each in results
    ]
    _report([_outcome(answer, done) for answer in answers], as_json)


@topics.command("delete")
@click.argument("names", nargs=-1, required=True, metavar="TOPIC...", type=TOPIC)
@click.option("--if-exists", is_flag=True, help="Accept topics that do not exist.")
@yes_option
@json_option
@cluster_options
def delete(settings: dict[str, object], names: tuple[str, ...], if_exists: bool, yes: bool, as_json: bool) -> None:
    """Delete topics with all their records.

    The command asks first on a terminal.
    """
    wanted = list(dict.fromkeys(names))
    with connected(settings) as admin:
        if not yes and sys.stdin.isatty():
            there = _there(admin, wanted) if if_exists else topics_by_name(admin, wanted)
            if there:
                click.confirm(f"Delete {', '.join(there)} with all records?", abort=True, err=True)
        deleted = admin.delete_topics(wanted, raise_errors=False)["topics"]
        if not if_exists and [topic["error_code"] for topic in deleted] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]:
            raise no_topic(admin, *wanted)
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if if_exists else ErrorCode.NONE
    _report([_outcome(topic, "deleted", ignored=missing, ignored_text="does not exist") for topic in deleted], as_json)


@topics.command("delete-records")
@click.argument("places", nargs=-1, required=True, metavar="TOPIC[:PARTITIONS]...", type=TOPIC)
@click.option("--before", required=True, metavar="OFFSET|end", help="First offset to keep; end: delete all records.")
@yes_option
@json_option
@cluster_options
def delete_records(settings: dict[str, object], places: tuple[str, ...], before: str, yes: bool, as_json: bool) -> None:
    """Delete the records of partitions below an offset."""
    if before != "end" and not before.isdecimal():
        raise click.UsageError(f"--before {before!r} is not an offset: give a number or end.")
    offset = -1 if before == "end" else int(before)
    with connected(settings) as admin:
        partitions = partitions_of(admin, places)
        if not yes and sys.stdin.isatty():
            which = "all records" if before == "end" else f"the records below offset {before}"
            click.confirm(f"Delete {which} of {', '.join(places)}?", abort=True, err=True)
        try:
            deleted = admin.delete_records(dict.fromkeys(partitions, offset))
        except OffsetOutOfRangeError:
            raise KafkaError(_outside(admin, partitions, offset)) from None
    rows = [
        {"topic": partition.topic, "partition": partition.partition, "first_offset": answer["low_watermark"]}
        for partition, answer in sorted(deleted.items())
    ]
    columns = (Column("topic"), Column("partition", right=True), Column("first_offset", right=True))
    Output(as_json).rows(rows, columns)


topics.add_command(reassign)


def _there(admin: KafkaAdminClient, names: Sequence[str]) -> list[str]:
    """The existing topics, as far as the client may see them."""
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    codes = {topic["name"]: topic["error_code"] for topic in admin.describe_topics(names)}
    return [name for name in names if codes[name] != missing]


def _outside(admin: KafkaAdminClient, partitions: Sequence[TopicPartition], offset: int) -> str:
    """The sentence about an offset that lies behind the end of one of the partitions."""
    ends = admin.list_partition_offsets(dict.fromkeys(partitions, ListOffsetsTimestamp.LATEST))
    short = [f"{place} ends at {ends[place].offset}" for place in partitions if ends[place].offset < offset]
    return (
        f"Offset {offset} is outside of the log: {', '.join(short) or 'it is shorter by now'}. --before end deletes "
        "all records, kafkapy topics describe --offsets shows first and last offsets."
    )


def _listed(topic: Mapping[str, Any]) -> Row:
    return {
        "topic": topic["name"],
        "partitions": len(topic["partitions"]),
        "replication_factor": len(topic["partitions"][0]["replica_nodes"]) if topic["partitions"] else 0,
        "internal": topic["is_internal"],
    }


def _partition_rows(topic: Mapping[str, Any]) -> list[Row]:
    return [
        {
            "topic": topic["name"],
            "partition": each["partition_index"],
            "leader": each["leader_id"] if each["leader_id"] >= 0 else None,
            "leader_epoch": each["leader_epoch"],
            "replicas": each["replica_nodes"],
            "isr": each["isr_nodes"],
            "offline": each["offline_replicas"],
        }
        for each in sorted(topic["partitions"], key=lambda each: int(each["partition_index"]))
    ]


def _add_offsets(admin: KafkaAdminClient, rows: Sequence[Row]) -> None:
    partitions = [TopicPartition(row["topic"], row["partition"]) for row in rows if row["leader"] is not None]
    earliest = admin.list_partition_offsets(dict.fromkeys(partitions, ListOffsetsTimestamp.EARLIEST))
    latest = admin.list_partition_offsets(dict.fromkeys(partitions, ListOffsetsTimestamp.LATEST))
    for row in rows:
        partition = TopicPartition(row["topic"], row["partition"])
        low, high = (each[partition].offset if partition in each else None for each in (earliest, latest))
        row |= {"earliest": low, "latest": high, "records": None if low is None or high is None else high - low}


def _given_configs(admin: KafkaAdminClient, names: Sequence[str]) -> dict[str, dict[str, str]]:
    from kafkapy.clients.admin.configs import ConfigResource

    if not names:
        return {}
    found = admin.describe_configs([ConfigResource("topic", name) for name in names]).get("topic", {})
    return {name: {key: row["value"] for key, row in sorted(found[name].items())} for name in names}


def _summary(topic: Mapping[str, Any], configs: Mapping[str, str]) -> list[str]:
    row = _listed(topic)
    count, replicas = row["partitions"], row["replication_factor"]
    details = [
        f"{count} partition{'' if count == 1 else 's'}, {replicas} replica{'' if replicas == 1 else 's'}",
        f"id {_base64(topic['topic_id'])}",
    ]
    if configs:
        details.append(", ".join(f"{key}={value}" for key, value in configs.items()))
    return details


def _described(topic: Mapping[str, Any], configs: Mapping[str, Mapping[str, str]], rows: Sequence[Row]) -> Row:
    name = topic["name"]
    return {
        "topic": name,
        "topic_id": _base64(topic["topic_id"]),
        "internal": topic["is_internal"],
        "configs": configs[name],
        "partitions": [
            {key: value for key, value in row.items() if key != "topic"} for row in rows if row["topic"] == name
        ],
    }


def _base64(topic_id: str) -> str:
    """The text of an id, as in Kafka's tools."""
    from uuid import UUID

    from kafkapy.types import uuid_to_string

    return uuid_to_string(UUID(topic_id))


def _outcome(answer: Mapping[str, Any], done: str, ignored: int = 0, ignored_text: str = "") -> Row:
    code = answer["error_code"]
    error = None
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and code != ignored:
        error = NO_SUCH_TOPIC
    elif code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        error = NOT_AUTHORIZED
    elif code and code != ignored:
        error = str(answer.get("error_message") or error_for(code))
    return {
        "topic": answer["name"],
        "outcome": error or (ignored_text if code else done),
        "error": error_for(code).code.name if error else None,
    }


def _report(rows: Sequence[Row], as_json: bool) -> None:
    """Print one line per topic.

    One sentence and exit code 1 after a failure.
    """
    output = Output(as_json)
    if as_json:
        output.json(rows)
    else:
        for row in rows:
            if row["error"] is None:
                output.say(f"Topic {row['topic']} {row['outcome']}.")
    failed = [row for row in rows if row["error"] is not None]
    if failed:
        said = "; ".join(f"topic {row['topic']}: {row['outcome'].rstrip('.')}" for row in failed)
        raise KafkaError(said)
