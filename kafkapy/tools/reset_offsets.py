"""`kafkapy groups reset-offsets`: reset the committed offsets of a group.

It only shows the new offsets, unless --execute is given. Counterpart of kafka-consumer-groups.sh --reset-offsets.
"""

from __future__ import annotations

import csv
import re
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kafkapy.config.suggestions import did_you_mean
from kafkapy.errors import KafkaError, NoError
from kafkapy.tools.options import GROUP, TOPIC, cluster_options, connected, json_option
from kafkapy.tools.output import Column, Output, tell
from kafkapy.tools.terminal import echo
from kafkapy.types import ListOffsetsTimestamp, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kafkapy.clients.admin.kafka_admin_client import KafkaAdminClient

__all__ = ["parse_datetime", "parse_duration", "refuse_failures", "reset", "reset_offsets", "reset_options"]

COLUMNS = (
    Column("topic"),
    Column("partition", right=True),
    Column("current_offset", "current", right=True),
    Column("new_offset", "new", right=True, style="bold"),
    Column("change", right=True),
    Column("log_end_offset", "log end", right=True),
)
BUSY = ("Stable", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")
DURATION = re.compile(
    r"P(?=.)(?:(?P<days>\d+(?:\.\d+)?)D)?(?:T(?=.)(?:(?P<hours>\d+(?:\.\d+)?)H)?(?:(?P<minutes>\d+(?:\.\d+)?)M)?"
    r"(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?",
    re.IGNORECASE,
)
SECONDS = {"days": 86400, "hours": 3600, "minutes": 60, "seconds": 1}
SHORT = re.compile(r"(\d+)(ms|s|m|h|d)", re.IGNORECASE)
SHORT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


OPTIONS = (
    click.argument("group", metavar="GROUP", type=GROUP),
    click.option(
        "--topic",
        "-t",
        "places",
        multiple=True,
        metavar="TOPIC[:PARTITIONS]",
        type=TOPIC,
        help="Reset only this topic.",
    ),
    click.option("--all-topics", is_flag=True, help="Reset all topics with offsets of the group."),
    click.option("--to-earliest", is_flag=True, help="Reset to the first record."),
    click.option("--to-latest", is_flag=True, help="Reset to the end of the log."),
    click.option("--to-current", is_flag=True, help="Commit the group's current offsets again."),
    click.option("--to-offset", type=click.IntRange(0), metavar="OFFSET", help="Reset to this offset."),
    click.option("--shift-by", type=int, metavar="N", help="Move by this number of records; negative: back."),
    click.option(
        "--to-datetime",
        metavar="TIME",
        help="Reset to the first record since then: 2024-05-01T12:00:00, UTC or +hh:mm.",
    ),
    click.option(
        "--by-duration", metavar="DURATION", help="Reset to the first record since so long ago: P1DT2H, 90m, 2h, 7d."
    ),
    click.option(
        "--from-file",
        type=click.Path(exists=True, dir_okay=False),
        metavar="FILE",
        help="Reset to the topic,partition,offset lines of a file, as --export writes them.",
    ),
    click.option("--execute", is_flag=True, help="Commit the new offsets; the default only shows them."),
    click.option("--dry-run", is_flag=True, help="Show the new offsets; the default."),
    click.option("--export", is_flag=True, help="Print topic,partition,offset lines."),
    json_option,
    cluster_options,
)
"""The options of the resets of groups of consumers and of share groups."""


def reset_options(command: Callable[..., None]) -> Callable[..., None]:
    """Decorates a function with all of them."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


@click.command("reset-offsets")
@reset_options
def reset_offsets(settings: dict[str, object], group: str, **given: Any) -> None:
    """Reset the committed offsets of a group.

    The command shows the new offsets; --execute commits them, while the group has no members. An offset outside the
    log becomes the nearest end of the log. Example: kafkapy groups reset-offsets billing --topic
    orders --to-datetime 2024-05-01T00:00:00 --execute
    """
    reset(settings, group, _committed, _commit, **given)


def _committed(admin: KafkaAdminClient, group: str) -> dict[TopicPartition, int]:
    return {partition: each.offset for partition, each in admin.list_group_offsets(group)[group].items()}


def reset(
    settings: dict[str, object],
    group: str,
    read: Callable[[KafkaAdminClient, str], dict[TopicPartition, int]],
    write: Callable[[KafkaAdminClient, str, Mapping[TopicPartition, int]], None],
    places: tuple[str, ...],
    all_topics: bool,
    execute: bool,
    dry_run: bool,
    export: bool,
    as_json: bool,
    **scenario: Any,
) -> None:
    """Show or execute a reset of offsets, which `read` and `write` access."""
    target, value = _target(scenario)
    if execute and dry_run:
        raise click.UsageError("--execute and --dry-run exclude each other.")
    if target == "from_file" and (places or all_topics):
        raise click.UsageError("--from-file names the partitions: --topic and --all-topics do not work with it.")
    if target != "from_file" and bool(places) == all_topics:
        raise click.UsageError("Name partitions: --topic, or --all-topics.")
    specs = _times(target, value)
    with connected(settings) as admin:
        current = read(admin, group)
        if not current:
            tell(_without_offsets(admin, group))
        partitions = _partitions(admin, group, current, places, all_topics, value if target == "from_file" else None)
        wanted = _specs(target, value, specs, partitions, current)
        new = admin.reset_targets(wanted)
        ends = admin.list_partition_offsets(dict.fromkeys(new, ListOffsetsTimestamp.LATEST))
        rows = [
            _row(partition, current.get(partition), offset, ends[partition].offset)
            for partition, offset in sorted(new.items())
        ]
        if execute:
            write(admin, group, new)
    output = Output(as_json)
    if export:
        for row in rows:
            echo(f"{row['topic']},{row['partition']},{row['new_offset']}")
        return
    output.heading(group, "reset" if execute else "dry run: nothing is changed without --execute")
    output.rows(rows, COLUMNS)


def _without_offsets(admin: KafkaAdminClient, group: str) -> str:
    """For who has misspelt a group: one without offsets is as good as any for the cluster."""
    known = {each["group_id"] for each in admin.list_groups()} - {group}
    question = did_you_mean(group, known)
    return f"Group {group} has no offsets so far" + (f"; {question}" if question else ".")


def _target(scenario: Mapping[str, Any]) -> tuple[str, Any]:
    """The one given target. click.UsageError."""
    given = [(name, value) for name, value in scenario.items() if value is not None and value is not False]
    if len(given) != 1:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in scenario)
        raise click.UsageError(f"Give one target: {options}.")
    return given[0]


def _times(target: str, value: Any) -> int | None:
    """The timestamp in ms of a target by time. click.UsageError."""
    try:
        if target == "to_datetime":
            return parse_datetime(value)
        if target == "by_duration":
            return max(0, int(time.time() * 1000) - parse_duration(value))
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    return None


def parse_datetime(text: str) -> int:
    """ms since 1970 of an ISO 8601 time, by default in UTC.

    ValueError for another text.
    """
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a time: give 2024-05-01T12:00:00, optionally with Z or +hh:mm.") from None
    return round((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1000)


def parse_duration(text: str) -> int:
    """ms of an ISO 8601 duration, or of a short form: 90m.

    Short forms end with ms, s, m, h or d. ValueError for another text.
    """
    if short := SHORT.fullmatch(text):
        return int(short[1]) * SHORT_MS[short[2].lower()]
    iso = DURATION.fullmatch(text)
    if iso is None:
        raise ValueError(f"{text!r} is not a duration: give P1DT2H30M, 90m, 2h or 7d.")
    return round(sum(float(part) * SECONDS[name] for name, part in iso.groupdict().items() if part) * 1000)


def _partitions(
    admin: KafkaAdminClient,
    group: str,
    current: Mapping[TopicPartition, int],
    places: tuple[str, ...],
    all_topics: bool,
    path: str | None,
) -> dict[TopicPartition, int | None]:
    """The partitions to reset, with the offsets of a file."""
    if path is not None:
        return dict(_from_file(path))
    if all_topics:
        if not current:
            raise KafkaError(f"Group {group} has no offsets: name its topics with --topic.")
        return dict.fromkeys(current)
    from kafkapy.tools.named_partitions import partitions_of

    return dict.fromkeys(partitions_of(admin, places))


def _from_file(path: str) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    with Path(path).open(newline="", encoding="utf-8") as lines:
        for number, row in enumerate(csv.reader(lines), 1):
            if not row:
                continue
            if len(row) != 3 or not row[1].strip().isdecimal() or not row[2].strip().isdecimal():
                raise KafkaError(f"Line {number} of {path} is not topic,partition,offset.")
            found[TopicPartition(row[0].strip(), int(row[1]))] = int(row[2])
    if not found:
        raise KafkaError(f"{path} has no topic,partition,offset lines.")
    return found


def _specs(
    target: str,
    value: Any,
    timestamp: int | None,
    partitions: Mapping[TopicPartition, int | None],
    current: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """The argument of reset_targets for each partition."""
    from kafkapy.clients.admin.partitions import OffsetTimestamp

    if timestamp is not None:
        return dict.fromkeys(partitions, OffsetTimestamp(timestamp))
    if target == "to_earliest":
        return dict.fromkeys(partitions, ListOffsetsTimestamp.EARLIEST)
    if target == "to_latest":
        return dict.fromkeys(partitions, ListOffsetsTimestamp.LATEST)
    if target == "to_offset":
        return dict.fromkeys(partitions, int(value))
    if target == "from_file":
        return {partition: int(offset or 0) for partition, offset in partitions.items()}
    shift = int(value) if target == "shift_by" else 0
    missing = [str(partition) for partition in partitions if current.get(partition, -1) < 0]
    if missing and shift:
        raise KafkaError(f"--shift-by needs a committed offset; the group has none for {', '.join(missing)}.")
    # As in Kafka's tool, a partition without an offset goes to the end of its log with --to-current.
    latest = ListOffsetsTimestamp.LATEST
    return {
        partition: current[partition] + shift if current.get(partition, -1) >= 0 else latest for partition in partitions
    }


def _row(partition: TopicPartition, current: int | None, new: int, end: int) -> dict[str, Any]:
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "current_offset": current,
        "new_offset": new,
        "change": None if current is None else new - current,
        "log_end_offset": end,
    }


def _commit(admin: KafkaAdminClient, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    described = admin.describe_consumer_groups([group])[group]
    if not isinstance(described, KafkaError) and described.state in BUSY:
        raise KafkaError(f"Group {group} has members ({described.state}): stop them before the reset.")
    results = admin.alter_group_offsets(
        group, {partition: OffsetAndMetadata(offset) for partition, offset in offsets.items()}
    )
    refuse_failures(group, results)


def refuse_failures(group: str, results: Mapping[TopicPartition, type[KafkaError]]) -> None:
    """KafkaError with the partitions whose reset failed."""
    failed = {partition: error for partition, error in results.items() if error is not NoError}
    if failed:
        said = "; ".join(f"{partition}: {str(error()).rstrip('.')}" for partition, error in sorted(failed.items()))
        raise KafkaError(f"Offsets of group {group} were not reset: {said}.")
