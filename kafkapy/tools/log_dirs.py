"""`kafkapy log-dirs`: show log directories, and move partitions between them.

Counterpart of kafka-log-dirs.sh, which cannot move, and of the log_dirs of kafka-reassign-partitions.sh. Works with any
Kafka broker that has DescribeLogDirs and AlterReplicaLogDirs (1.0 and newer).
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from kafkapy.errors import ErrorCode, KafkaError, error_for
from kafkapy.tools.lazy_group import CommandGroup
from kafkapy.tools.missing_names import topics_by_name
from kafkapy.tools.options import cluster_options, connected, json_option, parse_partitions
from kafkapy.tools.output import Column, Output, size_text
from kafkapy.types import TopicPartition, TopicPartitionReplica

if TYPE_CHECKING:
    from kafkapy.clients.admin.kafka_admin_client import KafkaAdminClient

__all__ = ["log_dirs"]

LOOK_AGAIN_S = 0.1
Row = dict[str, Any]
Outcomes = dict[TopicPartition, ErrorCode]

PARTITION_COLUMNS = (
    Column("broker", right=True),
    Column("log_dir", "directory"),
    Column("partition"),
    Column("size", right=True),
    Column("offset_lag", right=True),
    Column("future"),
)
MOVE_COLUMNS = (Column("partition"), Column("broker", right=True), Column("log_dir", "to"), Column("outcome"))


@click.group("log-dirs", cls=CommandGroup)
def log_dirs() -> None:
    """Show log directories, and move partitions between them."""


@log_dirs.command("describe")
@click.option("--broker-list", metavar="ID[,...]", help="Show only these brokers.")
@click.option("--topic-list", metavar="TOPIC[,...]", help="Show only partitions of these topics.")
@json_option
@cluster_options
def describe(settings: dict[str, object], broker_list: str | None, topic_list: str | None, as_json: bool) -> None:
    """Show every log directory with its space and partitions.

    Moving partitions are marked as future. --json prints the output of kafka-log-dirs.sh.
    """
    topics = set(topic_list.split(",")) if topic_list else None
    with connected(settings) as admin:
        brokers = _brokers(admin, broker_list)
        found = {broker: _directories(admin, broker, topics) for broker in brokers}
        _check_topics(admin, topics or set(), found.values())
    if as_json:
        listed = [{"broker": broker, "logDirs": directories} for broker, directories in found.items()]
        print(json.dumps({"version": 1, "brokers": listed}))
        return
    output = Output()
    if output.terminal:
        for broker, directories in found.items():
            for directory in directories:
                _print_directory(output, broker, directory)
        return
    output.rows(
        [row for broker, directories in found.items() for each in directories for row in _rows(broker, each)],
        (*PARTITION_COLUMNS, Column("error")),
    )


@log_dirs.command("move")
@click.argument("partitions", nargs=-1, required=True, metavar="TOPIC-PARTITION...")
@click.option("--to", "directory", required=True, metavar="DIR", help="Target directory, as `describe` prints it.")
@click.option("--broker", type=int, help="Broker of the replicas; optional in a cluster of one broker.")
@click.option("--wait", is_flag=True, help="Wait until the partitions have moved.")
@json_option
@cluster_options
def move(
    settings: dict[str, object],
    partitions: tuple[str, ...],
    directory: str,
    broker: int | None,
    wait: bool,
    as_json: bool,
) -> None:
    """Move partitions to another log directory of their broker.

    A partition is TOPIC-NUMBER, or TOPIC:PARTITIONS as in other commands. A move to the current directory of a
    partition cancels its move. Example: kafkapy log-dirs move orders-0 orders-1 --to /disk2/kafka
    """
    wanted = sorted({partition for text in partitions for partition in _parse_partitions(text)})
    with connected(settings) as admin:
        if broker is None:
            brokers = _brokers(admin, None)
            if len(brokers) != 1:
                raise KafkaError(f"The cluster has the brokers {_listed(brokers)}: name one with --broker.")
            broker = brokers[0]
        else:
            _brokers(admin, str(broker))
        replicas = {TopicPartitionReplica(*partition, broker): directory for partition in wanted}
        answers = admin.alter_replica_log_dirs(replicas)
        outcomes: Outcomes = {
            TopicPartition(replica.topic, replica.partition): error.code for replica, error in answers.items()
        }
        if wait:
            moving = [partition for partition, error in outcomes.items() if error is ErrorCode.NONE]
            outcomes |= _wait(admin, broker, directory, moving)
        reasons = {
            partition: _reason(admin, broker, partition, error)
            for partition, error in outcomes.items()
            if error is not ErrorCode.NONE
        }
    _report(outcomes, reasons, directory, broker, wait, as_json)


def _reason(admin: KafkaAdminClient, broker: int, partition: TopicPartition, error: ErrorCode) -> str:
    """Why a partition cannot be moved, and what can be done instead."""
    from kafkapy.tools.named_partitions import partitions_of

    if error is ErrorCode.LOG_DIR_NOT_FOUND:
        there = ", ".join(str(each["logDir"]) for each in _directories(admin, broker, set()))
        return f"Broker {broker} has no such log directory; it has {there}."
    if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        try:
            partitions_of(admin, [f"{partition.topic}:{partition.partition}"])
        except KafkaError as missing:
            return str(missing)
        return f"Broker {broker} has no replica of {partition}; kafkapy topics describe shows which have."
    return _message(error)


def _check_topics(admin: KafkaAdminClient, wanted: Collection[str], found: Iterable[Sequence[Row]]) -> None:
    """KafkaError for a topic that is in no directory, and not in the cluster either."""
    there = {
        each["partition"].rpartition("-")[0]
        for directories in found
        for directory in directories
        for each in directory["partitions"]
    }
    if missing := sorted(set(wanted) - there):
        topics_by_name(admin, missing)


def _report(
    outcomes: Outcomes,
    reasons: Mapping[TopicPartition, str],
    directory: str,
    broker: int,
    waited: bool,
    as_json: bool,
) -> None:
    done = "moved" if waited else "move begun"
    output = Output(as_json)
    if as_json:
        rows = [
            {"partition": str(partition), "broker": broker, "logDir": directory, "error": _error_name(error)}
            for partition, error in outcomes.items()
        ]
        output.json({"version": 1, "moves": rows})
    else:
        lines = [
            {
                "partition": str(partition),
                "broker": broker,
                "log_dir": directory,
                "outcome": done if error is ErrorCode.NONE else reasons[partition],
            }
            for partition, error in outcomes.items()
        ]
        output.rows(lines, MOVE_COLUMNS)
    if reasons:
        what = "; ".join(sorted({reason.rstrip(".") for reason in reasons.values()}))
        raise KafkaError(f"{len(reasons)} of {len(outcomes)} partitions cannot be moved to {directory}: {what}")


def _brokers(admin: KafkaAdminClient, listed: str | None) -> list[int]:
    """The broker ids of a list, by default all.

    KafkaError for an unknown id.
    """
    known = sorted(each["broker_id"] for each in admin.describe_cluster()["brokers"] if not each.get("is_fenced"))
    if listed is None:
        return known
    try:
        wanted = sorted({int(each) for each in listed.split(",")})
    except ValueError:
        raise click.UsageError(f"{listed!r} is not a list of broker ids, such as 1,2,3.") from None
    missing = [broker for broker in wanted if broker not in known]
    if missing:
        raise KafkaError(f"The cluster has no broker {_listed(missing)}; it has {_listed(known)}.")
    return wanted


def _listed(brokers: Collection[int]) -> str:
    return ", ".join(map(str, brokers)) or "none"


def _directories(admin: KafkaAdminClient, broker: int, topics: set[str] | None) -> list[Row]:
    """The directories with partitions and space, under Kafka's names."""
    directories = []
    for result in admin.describe_log_dirs(brokers=[broker])[0]["log_dirs"]:
        error = ErrorCode.of(result["error_code"])
        row: Row = {"logDir": result["log_dir"], "error": _error_name(error), "partitions": []}
        if result["total_bytes"] >= 0:
            row |= {"totalBytes": result["total_bytes"], "usableBytes": result["usable_bytes"]}
        if result.get("is_cordoned"):
            row["isCordoned"] = True
        found = {
            TopicPartition(topic["name"], each["partition_index"]): each
            for topic in result["topics"]
            if topics is None or topic["name"] in topics
            for each in topic["partitions"]
        }
        row["partitions"] = [
            {
                "partition": str(partition),
                "size": each["partition_size"],
                "offsetLag": each["offset_lag"],
                "isFuture": each["is_future_key"],
            }
            for partition, each in sorted(found.items())
        ]
        directories.append(row)
    # A caller who may not look gets no directory at all from brokers that cannot say so.
    if not directories:
        raise error_for(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return sorted(directories, key=lambda each: str(each["logDir"]))


def _wait(admin: KafkaAdminClient, broker: int, directory: str, moving: list[TopicPartition]) -> Outcomes:
    """Wait until the moves end.

    NONE for a partition in the directory, KAFKA_STORAGE_ERROR for a failed move.
    """
    outcomes: Outcomes = {}
    topics = {partition.topic for partition in moving}
    while len(outcomes) < len(moving):
        directories = {each["logDir"]: each for each in _directories(admin, broker, topics)}
        found: Mapping[str, Row] = {each["partition"]: each for each in directories[directory]["partitions"]}
        for partition in moving:
            if partition in outcomes:
                continue
            row = found.get(str(partition))
            # A future log without a lag has lost the log that it was made from.
            if row is None or (row["isFuture"] and row["offsetLag"] < 0):
                outcomes[partition] = ErrorCode.KAFKA_STORAGE_ERROR
            elif not row["isFuture"]:
                outcomes[partition] = ErrorCode.NONE
        if len(outcomes) < len(moving):
            time.sleep(LOOK_AGAIN_S)
    return outcomes


def _parse_partitions(text: str) -> list[TopicPartition]:
    topic, numbers = parse_partitions(text)
    if numbers is not None:
        return [TopicPartition(topic, number) for number in numbers]
    topic, dash, number = text.rpartition("-")
    if not dash or not topic or not number.isascii() or not number.isdecimal() or int(number) >= 1 << 31:
        raise click.UsageError(f"{text!r} is not a partition: give TOPIC-NUMBER, such as orders-0.")
    return [TopicPartition(topic, int(number))]


def _error_name(error: ErrorCode) -> str | None:
    return None if error is ErrorCode.NONE else error.name


def _message(error: ErrorCode) -> str:
    return str(error_for(error))


def _print_directory(output: Output, broker: int, directory: Row) -> None:
    title = f"broker {broker}: {directory['logDir']}"
    if directory["error"] is not None:
        output.say(f"{title} is offline ({directory['error']})", style="red")
        return
    space = []
    if "totalBytes" in directory:
        space.append(f"{size_text(directory['usableBytes'])} of {size_text(directory['totalBytes'])} free")
    if "isCordoned" in directory:
        space.append("cordoned")
    output.heading(title, *space)
    rows = [row | {"size": size_text(row["size"])} for row in _rows(broker, directory) if row["partition"]]
    if rows:
        output.rows(rows, PARTITION_COLUMNS[2:])


def _rows(broker: int, directory: Row) -> list[Row]:
    """One row per partition.

    An empty or offline directory has one row without a partition.
    """
    about = {"broker": broker, "log_dir": directory["logDir"]}
    if not directory["partitions"]:
        return [about | {"partition": None, "error": directory["error"]}]
    return [
        about
        | {
            "partition": each["partition"],
            "size": each["size"],
            "offset_lag": None if each["offsetLag"] < 0 else each["offsetLag"],
            "future": each["isFuture"],
        }
        for each in directory["partitions"]
    ]
