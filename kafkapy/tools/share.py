"""`kafkapy share`: list, describe, reset and delete share groups.

Counterpart of kafka-share-groups.sh.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

from kafkapy.errors import KafkaError
from kafkapy.tools.groups import error_name, log_ends, report
from kafkapy.tools.lazy_group import CommandGroup
from kafkapy.tools.missing_names import NOT_AUTHORIZED, no_group
from kafkapy.tools.options import GROUP, TOPIC, cluster_options, connected, json_option, yes_option
from kafkapy.tools.output import Column, Output
from kafkapy.tools.reset_offsets import refuse_failures, reset, reset_options
from kafkapy.types import TopicPartition

if TYPE_CHECKING:
    from kafkapy.clients.admin.kafka_admin_client import KafkaAdminClient

__all__ = ["share"]

Row = dict[str, Any]
NO_GROUPS = "The cluster has no share groups. kafkapy consume TOPIC --share NAME creates one."
EMPTY = "Empty"

LIST_COLUMNS = (Column("group"), Column("state"))
OFFSET_COLUMNS = (
    Column("group"),
    Column("topic"),
    Column("partition", right=True),
    Column("start_offset", "start", right=True),
    Column("log_end_offset", "log end", right=True),
    Column("lag", right=True, style="bold"),
    Column("members", right=True),
)
MEMBER_COLUMNS = (
    Column("group"),
    Column("member_id", "member"),
    Column("client_id", "client"),
    Column("host"),
    Column("epoch", right=True),
    Column("assignment"),
)
STATE_COLUMNS = (
    Column("group"),
    Column("state"),
    Column("assignor"),
    Column("epoch", right=True),
    Column("members", right=True),
    Column("lag", right=True),
)


@click.group("share", cls=CommandGroup)
def share() -> None:
    """List, describe, reset and delete share groups."""


@share.command("list")
@click.option(
    "--state", "states", multiple=True, metavar="STATE", help="Show only groups in this state: Stable, Empty."
)
@click.option("--quiet", "-q", is_flag=True, help="Print only the names, one per line.")
@json_option
@cluster_options
def list_(settings: dict[str, object], states: tuple[str, ...], quiet: bool, as_json: bool) -> None:
    """List all share groups."""
    with connected(settings) as admin:
        found = admin.list_groups(states_filter=states, types_filter=["share"])
    rows = [
        {"group": each["group_id"], "state": each["group_state"]}
        for each in sorted(found, key=lambda each: str(each["group_id"]))
    ]
    output = Output(as_json)
    if quiet:
        output.names([row["group"] for row in rows])
    else:
        output.rows(rows, LIST_COLUMNS, "No share group has these states." if states else NO_GROUPS)


@share.command("describe")
@click.argument("names", nargs=-1, metavar="[GROUP]...", type=GROUP)
@click.option("--members", "shown", flag_value="members", help="Show members and their assignments.")
@click.option("--state", "shown", flag_value="state", help="Show one line per group.")
@click.option("--all", "everything", is_flag=True, help="All share groups.")
@json_option
@cluster_options
def describe(
    settings: dict[str, object], names: tuple[str, ...], shown: str | None, everything: bool, as_json: bool
) -> None:
    """Show the start offsets and the lag of share groups.

    The start offset is the first one whose record is not done. The lag counts the records that are not done.
    """
    if not names and not everything:
        raise click.UsageError("Name groups, or give --all.")
    with connected(settings) as admin:
        described = _described(admin, names, everything)
        offsets = {} if shown == "members" else _offset_rows(admin, described)
    output = Output(as_json)
    if shown == "members":
        rows = [row for group in described.values() for row in _member_rows(group)]
        output.rows(rows, MEMBER_COLUMNS, "The group has no members now." if described else NO_GROUPS)
    elif shown == "state":
        output.rows([_state_row(group, offsets[name]) for name, group in described.items()], STATE_COLUMNS, NO_GROUPS)
    elif as_json:
        output.json(
            [_state_row(group, offsets[name]) | {"offsets": offsets[name]} for name, group in described.items()]
        )
    elif output.terminal:
        if not described:
            output.say(NO_GROUPS)
        for name, group in described.items():
            output.heading(name, *_summary(group, offsets[name]))
            output.rows(offsets[name], OFFSET_COLUMNS[1:], "The group has no start offsets: it has not read anything.")
    else:
        output.rows([row for rows in offsets.values() for row in rows], OFFSET_COLUMNS)


@share.command("reset-offsets")
@reset_options
def reset_offsets(settings: dict[str, object], group: str, **given: Any) -> None:
    """Reset the start offsets of a share group.

    The command shows the new offsets; --execute sets them, while the group has no members. The group then delivers all
    records from there on. Example: kafkapy share reset-offsets workers --topic jobs --to-earliest --execute
    """
    reset(settings, group, _start_offsets, _set_start_offsets, **given)


@share.command("delete-offsets")
@click.argument("name", metavar="GROUP", type=GROUP)
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...", type=TOPIC)
@yes_option
@json_option
@cluster_options
def delete_offsets(settings: dict[str, object], name: str, topics: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Delete the offsets of a share group for topics.

    The group must have no members. The command asks first on a terminal.
    """
    with connected(settings) as admin:
        _check(admin, [name])
        if not yes and sys.stdin.isatty():
            click.confirm(f"Delete the offsets of {name} for {', '.join(topics)}?", abort=True, err=True)
        results = admin.delete_share_group_offsets(name, topics)
    outcomes = {topic: error_name(error) for topic, error in sorted(results.items())}
    report("offsets of", outcomes, "deleted", as_json)


@share.command("delete")
@click.argument("names", nargs=-1, required=True, metavar="GROUP...", type=GROUP)
@yes_option
@json_option
@cluster_options
def delete(settings: dict[str, object], names: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Delete share groups that have no members.

    The command asks first on a terminal.
    """
    with connected(settings) as admin:
        _check(admin, names)
        if not yes and sys.stdin.isatty():
            click.confirm(f"Delete {', '.join(names)} with all offsets?", abort=True, err=True)
        results = admin.delete_groups(names)
    report("group", {name: None if text == "OK" else text for name, text in results.items()}, "deleted", as_json)


# --- how ------------------------------------------------------------------------------------------------------------


def _check(admin: KafkaAdminClient, names: Iterable[str]) -> None:
    """KafkaError for an unknown group, or one that is no share group."""
    types = {each["group_id"]: each["group_type"] for each in admin.list_groups()}
    for name in names:
        if name not in types:
            raise no_group(admin, name)
        if types[name] != "share":
            raise KafkaError(f"Group {name} is a {types[name]} group: kafkapy groups has the commands for it.")


def _described(admin: KafkaAdminClient, names: Iterable[str], everything: bool) -> dict[str, Row]:
    """The descriptions of share groups. KafkaError for an unknown group."""
    wanted = list(names)
    if everything:
        wanted = sorted(each["group_id"] for each in admin.list_groups(types_filter=["share"]))
    if not wanted:
        return {}
    described = admin.describe_share_groups(wanted)
    for name, group in described.items():
        error = group["error"]
        if error is None:
            continue
        if error.startswith("GroupIdNotFoundError"):
            _check(admin, [name])
        if error.startswith("GroupAuthorizationFailedError"):
            error = NOT_AUTHORIZED
        raise KafkaError(f"Group {name}: {error}")
    return described


def _assigned(member: Row) -> list[TopicPartition]:
    topics = member["assignment"]["topic_partitions"]
    return sorted(TopicPartition(topic["topic_name"], each) for topic in topics for each in topic["partitions"])


def _offset_rows(admin: KafkaAdminClient, described: Mapping[str, Row]) -> dict[str, list[Row]]:
    """Every group's partitions with a start offset or a member."""
    if not described:
        return {}
    offsets = admin.list_share_group_offsets(list(described))
    members: dict[str, dict[TopicPartition, int]] = {name: {} for name in described}
    for name, group in described.items():
        for member in group["members"]:
            for partition in _assigned(member):
                members[name][partition] = members[name].get(partition, 0) + 1
    partitions = set().union(*offsets.values(), *members.values())
    ends = log_ends(admin, partitions)
    rows: dict[str, list[Row]] = {}
    for name in described:
        rows[name] = []
        for partition in sorted({*offsets[name], *members[name]}):
            found = offsets[name].get(partition)
            start = None if found is None or found.start_offset < 0 else found.start_offset
            rows[name].append(
                {
                    "group": name,
                    "topic": partition.topic,
                    "partition": partition.partition,
                    "start_offset": start,
                    "log_end_offset": ends.get(partition),
                    "lag": None if found is None else found.lag,
                    "members": members[name].get(partition, 0),
                }
            )
    return rows


def _member_rows(group: Row) -> list[Row]:
    return [
        {
            "group": group["group_id"],
            "member_id": member["member_id"],
            "client_id": member["client_id"],
            "host": member["client_host"].removeprefix("/"),
            "epoch": member["member_epoch"],
            "subscribed_topics": member["subscribed_topic_names"],
            "assignment": list(map(str, _assigned(member))),
        }
        for member in sorted(group["members"], key=lambda member: (member["client_id"], member["member_id"]))
    ]


def _state_row(group: Row, offsets: Iterable[Row]) -> Row:
    lags = [row["lag"] for row in offsets if row["lag"] is not None]
    return {
        "group": group["group_id"],
        "state": group["group_state"],
        "assignor": group["assignor_name"] or None,
        "epoch": group["group_epoch"],
        "members": len(group["members"]),
        "lag": sum(lags) if lags else None,
    }


def _summary(group: Row, offsets: Iterable[Row]) -> list[str]:
    row = _state_row(group, offsets)
    count = row["members"]
    details = [row["state"], f"{count} member{'' if count == 1 else 's'}"]
    if row["lag"] is not None:
        details.append(f"lag {row['lag']}")
    return details


def _start_offsets(admin: KafkaAdminClient, group: str) -> dict[TopicPartition, int]:
    _check(admin, [group])
    return {partition: each.start_offset for partition, each in admin.list_share_group_offsets(group)[group].items()}


def _set_start_offsets(admin: KafkaAdminClient, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    state = admin.describe_share_groups([group])[group]["group_state"]
    if state != EMPTY:
        raise KafkaError(f"Group {group} has members ({state}): stop them before the reset.")
    refuse_failures(group, admin.alter_share_group_offsets(group, offsets))
