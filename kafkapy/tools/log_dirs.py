"""`kafkapy log-dirs`: what lies in the log directories of brokers, and moves between them. Counterpart of
kafka-log-dirs.sh, which cannot move, and of the log_dirs of kafka-reassign-partitions.sh, which can.

Works with any Kafka broker that has DescribeLogDirs and AlterReplicaLogDirs (1.0 and newer).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import wraps
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from kafkapy.clients.blocking import BlockingConnection, connect_to_any
from kafkapy.errors import ErrorCode, KafkaError, error_for
from kafkapy.log.dir_scan import parse_directory_name
from kafkapy.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from kafkapy.protocol.messages.describe_log_dirs import DescribeLogDirsRequest

__all__ = ["log_dirs"]

LOOK_AGAIN_S = 0.1
Row = dict[str, Any]


@click.group("log-dirs")
def log_dirs() -> None:
    """Show the log directories of brokers, and move partitions between those of one broker."""


def _sentence_on_error(command: Callable[..., None]) -> Callable[..., None]:
    @wraps(command)
    def run(**arguments: Any) -> None:
        try:
            command(**arguments)
        except KafkaError as error:
            raise click.ClickException(str(error)) from None

    return run


bootstrap_option = click.option(
    "--bootstrap-server",
    "bootstrap",
    default="127.0.0.1:9092",
    show_default=True,
    metavar="HOST:PORT[,...]",
    help="Where a broker of the cluster is.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="JSON instead of tables; describe: as Kafka's tool.")


@log_dirs.command("describe")
@bootstrap_option
@click.option("--broker-list", metavar="ID[,...]", help="Only these brokers.")
@click.option("--topic-list", metavar="TOPIC[,...]", help="Only partitions of these topics.")
@json_option
@_sentence_on_error
def describe(bootstrap: str, broker_list: str | None, topic_list: str | None, as_json: bool) -> None:
    """Show every log directory with its space and partitions; partitions on their way are marked as future."""
    topics = set(topic_list.split(",")) if topic_list else None
    connection, addresses = connect_to_any(bootstrap)
    connection.close()
    found: dict[int, list[Row]] = {}
    for broker in _brokers(broker_list, addresses):
        with _connected(addresses, broker) as each:
            found[broker] = _directories(each, topics)
    if as_json:
        brokers = [{"broker": broker, "logDirs": directories} for broker, directories in found.items()]
        print(json.dumps({"version": 1, "brokers": brokers}))
        return
    console = Console()
    for broker, directories in found.items():
        for directory in directories:
            _print_directory(console, broker, directory)


@log_dirs.command("move")
@click.argument("partitions", nargs=-1, required=True, metavar="TOPIC-PARTITION...")
@click.option("--to", "directory", required=True, metavar="DIR", help="The directory, as `describe` shows it.")
@bootstrap_option
@click.option("--broker", type=int, help="Which broker's replicas; may be left out when there is only one broker.")
@click.option("--wait", is_flag=True, help="Return when the partitions have moved, not when the moves have begun.")
@json_option
@_sentence_on_error
def move(
    partitions: tuple[str, ...], directory: str, bootstrap: str, broker: int | None, wait: bool, as_json: bool
) -> None:
    """Move partitions of one broker to another of its log directories.

    A move to the directory where a partition is ends a move that is under way. Example: kafkapy log-dirs move
    orders-0 orders-1 --to /disk2/kafka
    """
    wanted = sorted({_parse_partition(text) for text in partitions})
    connection, addresses = connect_to_any(bootstrap)
    connection.close()
    if broker is None:
        if len(addresses) != 1:
            raise KafkaError(f"The cluster has the brokers {_listed(addresses)}: --broker has to say which one.")
        broker = next(iter(addresses))
    _brokers(str(broker), addresses)
    with _connected(addresses, broker) as each:
        outcomes = _alter(each, directory, wanted)
        if wait:
            moving = [partition for partition, error in outcomes.items() if error is ErrorCode.NONE]
            outcomes |= _wait(each, directory, moving)
    _report(outcomes, directory, broker, wait, as_json)


def _report(
    outcomes: dict[tuple[str, int], ErrorCode], directory: str, broker: int, waited: bool, as_json: bool
) -> None:
    done = "moved" if waited else "move begun"
    rows: list[Row] = [
        {"partition": f"{topic}-{index}", "broker": broker, "logDir": directory, "error": _error_name(error)}
        for (topic, index), error in outcomes.items()
    ]
    if as_json:
        print(json.dumps({"version": 1, "moves": rows}))
    else:
        table = Table("partition", "broker", "to", "outcome")
        for row, error in zip(rows, outcomes.values(), strict=True):
            text = done if error is ErrorCode.NONE else _message(error)
            table.add_row(row["partition"], str(broker), directory, text)
        Console().print(table)
    failed = {error for error in outcomes.values() if error is not ErrorCode.NONE}
    if failed:
        count = sum(error is not ErrorCode.NONE for error in outcomes.values())
        what = "; ".join(sorted(_message(error).rstrip(".") for error in failed))
        raise KafkaError(f"{count} of {len(outcomes)} partitions cannot be moved to {directory}: {what}.")


@contextmanager
def _connected(addresses: dict[int, tuple[str, int]], broker: int) -> Iterator[BlockingConnection]:
    with closing(BlockingConnection(*addresses[broker])) as connection:
        yield connection


def _brokers(listed: str | None, addresses: dict[int, tuple[str, int]]) -> list[int]:
    if listed is None:
        return sorted(addresses)
    try:
        wanted = sorted({int(each) for each in listed.split(",")})
    except ValueError:
        raise KafkaError(f"{listed!r} is no list of broker ids.") from None
    missing = [broker for broker in wanted if broker not in addresses]
    if missing:
        raise KafkaError(f"The cluster has no broker {_listed(missing)}; it has {_listed(addresses)}.")
    return wanted


def _listed(brokers: Any) -> str:
    return ", ".join(str(broker) for broker in sorted(brokers)) or "none"


def _directories(connection: BlockingConnection, topics: set[str] | None) -> list[Row]:
    """The directories with their partitions, under the names that Kafka's tool uses, and their space where it is
    told."""
    response = connection.call(DescribeLogDirsRequest(topics=None))
    if response.error_code:
        raise error_for(response.error_code)
    directories = []
    for result in response.results:
        row: Row = {"logDir": result.log_dir, "error": _error_name(ErrorCode.of(result.error_code)), "partitions": []}
        if result.total_bytes >= 0:
            row |= {"totalBytes": result.total_bytes, "usableBytes": result.usable_bytes}
        for topic in result.topics:
            if topics is None or topic.name in topics:
                row["partitions"] += [
                    {
                        "partition": f"{topic.name}-{each.partition_index}",
                        "size": each.partition_size,
                        "offsetLag": each.offset_lag,
                        "isFuture": each.is_future_key,
                    }
                    for each in topic.partitions
                ]
        row["partitions"].sort(key=lambda each: _parse_partition(each["partition"]))
        directories.append(row)
    # A caller who may not look gets no directory at all from brokers that cannot say so.
    if not directories:
        raise error_for(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return sorted(directories, key=lambda each: str(each["logDir"]))


def _alter(
    connection: BlockingConnection, directory: str, wanted: list[tuple[str, int]]
) -> dict[tuple[str, int], ErrorCode]:
    topics: dict[str, list[int]] = {}
    for topic, index in wanted:
        topics.setdefault(topic, []).append(index)
    Dir = AlterReplicaLogDirsRequest.Dir
    entries = [Dir.Topic(name=topic, partitions=indexes) for topic, indexes in topics.items()]
    response = connection.call(AlterReplicaLogDirsRequest(dirs=[Dir(path=directory, topics=entries)]))
    return {
        (result.topic_name, each.partition_index): ErrorCode.of(each.error_code)
        for result in response.results
        for each in result.partitions
    }


def _wait(
    connection: BlockingConnection, directory: str, moving: list[tuple[str, int]]
) -> dict[tuple[str, int], ErrorCode]:
    """NONE for each once it is in the directory and on its way no more; KAFKA_STORAGE_ERROR when it will not come."""
    outcomes: dict[tuple[str, int], ErrorCode] = {}
    while len(outcomes) < len(moving):
        directories = {each["logDir"]: each for each in _directories(connection, {topic for topic, _ in moving})}
        there = directories[directory]
        found = {_parse_partition(each["partition"]): each for each in there["partitions"]}
        for partition in moving:
            if partition in outcomes:
                continue
            row = found.get(partition)
            # A future log without a lag has lost the log that it was made from.
            if row is None or (row["isFuture"] and row["offsetLag"] < 0):
                outcomes[partition] = ErrorCode.KAFKA_STORAGE_ERROR
            elif not row["isFuture"]:
                outcomes[partition] = ErrorCode.NONE
        if len(outcomes) < len(moving):
            time.sleep(LOOK_AGAIN_S)
    return outcomes


def _parse_partition(text: str) -> tuple[str, int]:
    partition = parse_directory_name(text)
    if partition is None:
        raise KafkaError(f"{text!r} is no partition: TOPIC-NUMBER is expected, such as orders-0.")
    return partition


def _error_name(error: ErrorCode) -> str | None:
    return None if error is ErrorCode.NONE else error.name


def _message(error: ErrorCode) -> str:
    return str(error_for(error))


def _print_directory(console: Console, broker: int, directory: Row) -> None:
    title = f"broker {broker}: {directory['logDir']}"
    if directory["error"] is not None:
        console.print(f"{title} is offline ({directory['error']})", style="red", highlight=False, soft_wrap=True)
        return
    if "totalBytes" in directory:
        title += f" ({_size(directory['usableBytes'])} of {_size(directory['totalBytes'])} free)"
    console.print(title, highlight=False, soft_wrap=True, markup=False)
    if not directory["partitions"]:
        return
    table = Table("partition", "size", "offset lag", "future")
    table.columns[1].justify = table.columns[2].justify = "right"
    for each in directory["partitions"]:
        lag = "" if each["offsetLag"] < 0 else str(each["offsetLag"])
        table.add_row(each["partition"], _size(each["size"]), lag, "yes" if each["isFuture"] else "")
    console.print(table)


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
