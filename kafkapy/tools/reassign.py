"""`kafkapy topics reassign`: move replicas to other brokers, with plan, throttle and progress.

Counterpart of kafka-reassign-partitions.sh, whose plan files it reads and prints. Moves between the log directories of
a broker are in `kafkapy log-dirs move`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import click

from kafkapy.errors import KafkaError
from kafkapy.tools import reassignment, replica_plan
from kafkapy.tools.missing_names import topics_by_name
from kafkapy.tools.named_partitions import no_partition, partitions_of
from kafkapy.tools.options import TOPIC, cluster_options, connected, json_option, yes_option
from kafkapy.tools.output import Column, Output
from kafkapy.tools.replica_plan import Move
from kafkapy.types import TopicPartition

if TYPE_CHECKING:
    from kafkapy.clients.admin.kafka_admin_client import KafkaAdminClient

__all__ = ["RATE", "broker_list", "carry_out", "reassign", "show_plan", "throttle_option", "wait_option"]

AGAIN = "kafkapy topics reassign --status shows it, --cancel ends it."
NONE_RUNNING = "No reassignment is running."
STATUS_COLUMNS = (
    Column("topic"),
    Column("partition", right=True),
    Column("replicas"),
    Column("adding"),
    Column("removing"),
    Column("copied", right=True),
    Column("bytes", "of", right=True),
    Column("percent", "%", right=True),
)
UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}


class _Rate(click.ParamType[int]):
    """Bytes per second: 50000000, 50MB, 50MB/s."""

    name = "rate"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmg]?)b?(?:/s)?", str(value).strip(), re.IGNORECASE)
        rate = int(float(match[1]) * UNITS[match[2].lower()]) if match else 0
        if rate < 1:
            self.fail(f"{value!r} is not a rate, such as 50MB or 500kB/s.", param, ctx)
        return rate


RATE = _Rate()
throttle_option = click.option(
    "--throttle", type=RATE, metavar="RATE", help="Bytes per second that each broker copies, such as 50MB."
)
wait_option = click.option("--no-wait", is_flag=True, help="Start the moves and end, without their progress.")


@click.command("reassign")
@click.argument("places", nargs=-1, metavar="[TOPIC[:PARTITIONS]]...", type=TOPIC)
@click.option("--brokers", metavar="ID[,...]", help="Brokers that shall hold the replicas; default: all.")
@click.option("--replication-factor", "-r", type=click.IntRange(1), help="Number of replicas; default: as now.")
@click.option("--replicas", metavar="ID[,...]", help="Exactly these replicas, the preferred leader first.")
@click.option("--file", type=click.File(), help="Plan of --json or of kafka-reassign-partitions.sh.")
@click.option("--execute", is_flag=True, help="Carry out the plan; without it the command only shows it.")
@throttle_option
@wait_option
@click.option("--status", is_flag=True, help="Show the running reassignments.")
@click.option("--verify", is_flag=True, help="Show whether moves, or --file, are complete, and remove throttles.")
@click.option("--cancel", is_flag=True, help="Cancel the running reassignments.")
@yes_option
@json_option
@cluster_options
def reassign(
    settings: dict[str, object],
    places: tuple[str, ...],
    brokers: str | None,
    replication_factor: int | None,
    replicas: str | None,
    file: Any,
    execute: bool,
    throttle: int | None,
    no_wait: bool,
    status: bool,
    verify: bool,
    cancel: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Move replicas of topics to other brokers.

    The plan spreads replicas and leaders evenly over brokers and racks, and copies as little as possible. It is only
    shown; --execute carries it out, waits for its end, and removes the throttle.

    Example: kafkapy topics reassign orders --brokers 2,3,4 --throttle 50MB --execute
    """
    _check_options(places, brokers, replication_factor, replicas, file, execute, status, verify, cancel)
    output = Output(as_json)
    with connected(settings) as admin:
        if status or cancel:
            wanted = partitions_of(admin, places) if places else None
            (_cancel if cancel else _status)(admin, wanted, output, yes)
            return
        if file is not None:
            current, planned = _of_file(admin, file)
        else:
            current = _replicas(admin, partitions_of(admin, places))
            planned = current if verify else _planned(admin, current, brokers, replication_factor, replicas)
        sizes = _sizes(admin, current)
        moves = replica_plan.moves_of(current, planned, sizes)
        if verify:
            _verify(admin, moves, planned, current, output)
        elif execute:
            carry_out(admin, moves, output, throttle=throttle, waits=not no_wait, yes=yes)
        else:
            show_plan(moves, output)


def _check_options(
    places: Sequence[str],
    brokers: str | None,
    factor: int | None,
    replicas: str | None,
    file: Any,
    execute: bool,
    status: bool,
    verify: bool,
    cancel: bool,
) -> None:
    given = [name for name, value in (("--execute", execute), ("--status", status), ("--verify", verify),
                                      ("--cancel", cancel)) if value]  # fmt: skip
    if len(given) > 1:
        raise click.UsageError(f"{given[0]} and {given[1]} exclude each other.")
    aims = [name for name, value in (("--brokers", brokers), ("--replication-factor", factor),
                                     ("--replicas", replicas), ("--file", file)) if value is not None]  # fmt: skip
    if (status or cancel) and aims:
        raise click.UsageError(f"{given[0]} and {aims[0]} exclude each other.")
    if file is not None and (len(aims) > 1 or places):
        raise click.UsageError(f"--file and {'topics' if places else aims[0]} exclude each other.")
    if replicas is not None and len(aims) > 1:
        raise click.UsageError(f"--replicas and {aims[0]} exclude each other.")
    if verify and aims not in ([], ["--file"]):
        raise click.UsageError(f"--verify and {aims[0]} exclude each other.")
    if file is None and not places and not (status or cancel):
        raise click.UsageError("Name topics, or a plan with --file.")


# --- the plan -----------------------------------------------------------------------------------------------------


def broker_list(text: str) -> list[int]:
    """The ids of 1,2,3. click.UsageError."""
    parts = text.split(",")
    if not all(part.strip().isascii() and part.strip().isdecimal() for part in parts):
        raise click.UsageError(f"{text!r} is not a list of broker ids, such as 1,2,3.")
    brokers = [int(part) for part in parts]
    if len(set(brokers)) < len(brokers):
        raise click.UsageError(f"{text!r} names a broker twice.")
    return brokers


def _replicas(admin: KafkaAdminClient, partitions: Collection[TopicPartition]) -> dict[TopicPartition, list[int]]:
    """The replicas that a partition has, or will have after its running reassignment."""
    found = topics_by_name(admin, dict.fromkeys(partition.topic for partition in partitions))
    current = {
        TopicPartition(name, each["partition_index"]): list(each["replica_nodes"])
        for name, topic in found.items()
        for each in topic["partitions"]
    }
    for partition in partitions:
        if partition not in current:
            raise KafkaError(no_partition(*partition, len(found[partition.topic]["partitions"])))
    moving = admin.list_partition_reassignments(list(partitions)) if partitions else {}
    for partition, state in moving.items():
        current[partition] = [broker for broker in state["replicas"] if broker not in state["removing_replicas"]]
    return {partition: current[partition] for partition in partitions}


def _planned(
    admin: KafkaAdminClient,
    current: dict[TopicPartition, list[int]],
    brokers: str | None,
    factor: int | None,
    replicas: str | None,
) -> dict[TopicPartition, list[int]]:
    if replicas is not None:
        wanted = broker_list(replicas)
        reassignment.racks_of(admin, wanted)
        return {partition: list(wanted) for partition in current}
    racks = reassignment.racks_of(admin, None if brokers is None else broker_list(brokers))
    return replica_plan.spread(current, racks, factor, _sizes(admin, current))


def _sizes(admin: KafkaAdminClient, current: dict[TopicPartition, list[int]]) -> dict[TopicPartition, int]:
    logs = reassignment.log_sizes(admin, current)
    found = {partition: reassignment.largest(logs, replicas, partition) for partition, replicas in current.items()}
    return {partition: size for partition, size in found.items() if size is not None}


def _of_file(
    admin: KafkaAdminClient, file: Any
) -> tuple[dict[TopicPartition, list[int]], dict[TopicPartition, list[int]]]:
    """(current, planned) of a plan file. KafkaError for a file that is no plan."""
    try:
        planned = {
            TopicPartition(str(each["topic"]), int(each["partition"])): [int(broker) for broker in each["replicas"]]
            for each in json.load(file)["partitions"]
        }
    except (ValueError, TypeError, KeyError) as error:
        raise KafkaError(
            f"File {file.name} is not a plan: {type(error).__name__}: {error}. A plan is "
            '{"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 2]}]}'
        ) from None
    if any(not replicas or len(set(replicas)) < len(replicas) for replicas in planned.values()):
        raise KafkaError(f"File {file.name} has a partition without replicas, or with a broker twice.")
    return _replicas(admin, list(planned)), planned


def show_plan(moves: Sequence[Move], output: Output) -> None:
    """Print a plan: a table and its sum, or JSON in file form."""
    if output.as_json:
        output.json(reassignment.plan_document(moves))
    elif not moves:
        output.say("Nothing to move: the replicas are as wanted.")
    else:
        output.rows(reassignment.plan_rows(moves), reassignment.PLAN_COLUMNS)
        if output.terminal:
            output.say(f"{reassignment.summary(moves)} --execute carries out the plan, --json prints it for a file.")


# --- carrying out -------------------------------------------------------------------------------------------------


def carry_out(
    admin: KafkaAdminClient, moves: Sequence[Move], output: Output, *, throttle: int | None, waits: bool, yes: bool
) -> None:
    """Start the moves, show their progress, and remove the throttle at the end.

    A terminal gets a question first.
    """
    if not moves:
        show_plan(moves, output)
        return
    if not yes and sys.stdin.isatty():
        click.confirm(f"{reassignment.summary(moves)} Start?", abort=True, err=True)
    reassignment.execute(admin, moves, throttle)
    if waits:
        reassignment.wait(admin, moves, output, AGAIN)
        if throttle is not None:
            reassignment.unthrottle(admin, {move.partition.topic for move in moves})
    if output.as_json:
        output.json(reassignment.plan_document(moves))
        return
    summary = reassignment.summary(moves)
    output.say(f"Reassignment {'complete' if waits else 'started'}: {summary}")
    if not waits:
        hint = " --verify removes the throttle at the end." if throttle is not None else ""
        output.say(f"{AGAIN}{hint}")


def _status(admin: KafkaAdminClient, wanted: list[TopicPartition] | None, output: Output, _yes: bool) -> None:
    moves = reassignment.running(admin, wanted)
    output.rows(reassignment.running_rows(admin, moves), STATUS_COLUMNS, NONE_RUNNING)


def _cancel(admin: KafkaAdminClient, wanted: list[TopicPartition] | None, output: Output, yes: bool) -> None:
    moves = reassignment.running(admin, wanted)
    if moves and not yes and sys.stdin.isatty():
        click.confirm(f"Cancel {len(moves)} reassignments?", abort=True, err=True)
    if moves:
        reassignment.cancel(admin, moves)
    if output.as_json:
        output.json(reassignment.plan_rows(moves))
    elif not moves:
        output.say(NONE_RUNNING)
    else:
        count = len(moves)
        output.say(f"{count} reassignment{'' if count == 1 else 's'} cancelled; new replicas are deleted.")


def _verify(
    admin: KafkaAdminClient,
    moves: Sequence[Move],
    planned: dict[TopicPartition, list[int]],
    current: dict[TopicPartition, list[int]],
    output: Output,
) -> None:
    """Print the state of each partition of a plan. KafkaError unless all are as planned."""
    moving = admin.list_partition_reassignments(list(planned))
    different = {move.partition for move in moves} - moving.keys()
    rows = [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "replicas": current[partition],
            "wanted": replicas,
            "state": "moving" if partition in moving else "different" if partition in different else "complete",
        }
        for partition, replicas in sorted(planned.items())
    ]
    columns = (
        Column("topic"),
        Column("partition", right=True),
        Column("replicas"),
        Column("wanted"),
        Column("state"),
    )
    output.rows(rows, columns)
    if not moving:
        reassignment.unthrottle(admin, {partition.topic for partition in planned})
    if moving or different:
        raise KafkaError(
            f"{len(moving)} partitions are moving and {len(different)} differ from the plan, of {len(planned)}."
        )
