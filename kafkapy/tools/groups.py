"""`kafkapy groups`: list, describe, reset and delete groups.

Counterpart of kafka-groups.sh and kafka-consumer-groups.sh.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

from kafkapy.errors import ErrorCode, KafkaError, NoError, UnknownMemberIdError
from kafkapy.tools.lazy_group import CommandGroup
from kafkapy.tools.missing_names import NOT_AUTHORIZED, check_groups, group_problem, no_group
from kafkapy.tools.options import GROUP, TOPIC, cluster_options, connected, json_option, yes_option
from kafkapy.tools.output import Column, Output
from kafkapy.tools.reset_offsets import reset_offsets
from kafkapy.types import ListOffsetsTimestamp, TopicPartition

if TYPE_CHECKING:
    from kafkapy.clients.admin.groups import ConsumerGroupDescription, MemberDescription
    from kafkapy.clients.admin.kafka_admin_client import KafkaAdminClient

__all__ = ["error_name", "groups", "log_ends", "report"]

Row = dict[str, Any]
NO_GROUPS = "The cluster has no consumer groups. kafkapy consume TOPIC --group NAME creates one."

LIST_COLUMNS = (Column("group"), Column("type"), Column("protocol"), Column("state"))
OFFSET_COLUMNS = (
    Column("group"),
    Column("topic"),
    Column("partition", right=True),
    Column("current_offset", "current", right=True),
    Column("log_end_offset", "log end", right=True),
    Column("lag", right=True, style="bold"),
    Column("client_id", "client"),
    Column("host"),
    Column("member_id", "member", quiet=True),
)
MEMBER_COLUMNS = (
    Column("group"),
    Column("member_id", "member"),
    Column("client_id", "client"),
    Column("host"),
    Column("group_instance_id", "instance", quiet=True),
    Column("epoch", right=True),
    Column("assignment"),
    Column("target_assignment", "target", quiet=True),
)
STATE_COLUMNS = (
    Column("group"),
    Column("type"),
    Column("state"),
    Column("coordinator", right=True),
    Column("assignor"),
    Column("members", right=True),
    Column("lag", right=True),
)


@click.group("groups", cls=CommandGroup)
def groups() -> None:
    """List, describe, reset and delete groups."""


groups.add_command(reset_offsets)


@groups.command("list")
@click.option(
    "--state", "states", multiple=True, metavar="STATE", help="Show only groups in this state, such as Empty."
)
@click.option(
    "--type", "types", multiple=True, metavar="TYPE", help="Show only groups of this type: classic, consumer ..."
)
@click.option("--quiet", "-q", is_flag=True, help="Print only the names, one per line.")
@json_option
@cluster_options
def list_(
    settings: dict[str, object], states: tuple[str, ...], types: tuple[str, ...], quiet: bool, as_json: bool
) -> None:
    """List all groups."""
    with connected(settings) as admin:
        found = admin.list_groups(states_filter=states, types_filter=types)
    rows = [
        {
            "group": each["group_id"],
            "type": each["group_type"],
            "protocol": each["protocol_type"],
            "state": each["group_state"],
        }
        for each in sorted(found, key=lambda each: str(each["group_id"]))
    ]
    output = Output(as_json)
    if quiet:
        output.names([row["group"] for row in rows])
    else:
        empty = "No group has members or offsets. kafkapy consume TOPIC --group NAME creates one."
        if states or types:
            empty = "No group has these states and types. kafkapy groups list shows all groups."
        output.rows(rows, LIST_COLUMNS, empty)


@groups.command("describe")
@click.argument("names", nargs=-1, metavar="[GROUP]...", type=GROUP)
@click.option("--members", "shown", flag_value="members", help="Show members and their assignments.")
@click.option("--state", "shown", flag_value="state", help="Show one line per group.")
@click.option("--all", "everything", is_flag=True, help="All groups of consumers.")
@json_option
@cluster_options
def describe(
    settings: dict[str, object], names: tuple[str, ...], shown: str | None, everything: bool, as_json: bool
) -> None:
    """Show the offsets and the lag of groups.

    The command shows every partition with its member. --members shows members with their assignments, and --state
    shows one line per group.
    """
    if not names and not everything:
        raise click.UsageError("Name groups, or give --all.")
    with connected(settings) as admin:
        described = _described(admin, names, everything)
        lags = {} if shown == "members" else _lag_rows(admin, described)
    output = Output(as_json)
    if shown == "members":
        rows = [row for group in described.values() for row in _member_rows(group)]
        output.rows(rows, MEMBER_COLUMNS, "The group has no members now." if described else NO_GROUPS)
    elif shown == "state":
        output.rows([_state_row(group, lags[name]) for name, group in described.items()], STATE_COLUMNS, NO_GROUPS)
    elif as_json:
        output.json([_state_row(group, lags[name]) | {"offsets": lags[name]} for name, group in described.items()])
    elif output.terminal:
        if not described:
            output.say(NO_GROUPS)
        for name, group in described.items():
            output.heading(name, *_summary(group, lags[name]))
            empty = "The group has no offsets and no partitions: it has not read anything yet."
            output.rows(lags[name], OFFSET_COLUMNS[1:], empty)
    else:
        output.rows([row for rows in lags.values() for row in rows], OFFSET_COLUMNS)


@groups.command("delete")
@click.argument("names", nargs=-1, required=True, metavar="GROUP...", type=GROUP)
@yes_option
@json_option
@cluster_options
def delete(settings: dict[str, object], names: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Delete groups that have no members.

    The command deletes their offsets too. It asks first on a terminal.
    """
    with connected(settings) as admin:
        check_groups(admin, names)
        if not yes and sys.stdin.isatty():
            click.confirm(f"Delete {', '.join(names)} with all offsets?", abort=True, err=True)
        results = admin.delete_groups(names)
    report("group", {name: None if text == "OK" else text for name, text in results.items()}, "deleted", as_json)


@groups.command("delete-offsets")
@click.argument("name", metavar="GROUP", type=GROUP)
@click.argument("places", nargs=-1, required=True, metavar="TOPIC[:PARTITIONS]...", type=TOPIC)
@yes_option
@json_option
@cluster_options
def delete_offsets(settings: dict[str, object], name: str, places: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Delete offsets of a group.

    The broker refuses topics that a member of the group subscribes to. The command asks first on a terminal.
    """
    from kafkapy.tools.named_partitions import partitions_of

    with connected(settings) as admin:
        check_groups(admin, [name])
        partitions = partitions_of(admin, places)
        if not yes and sys.stdin.isatty():
            click.confirm(f"Delete the offsets of {name} for {', '.join(places)}?", abort=True, err=True)
        results = admin.delete_group_offsets(name, partitions)
    outcomes = {str(partition): error_name(error) for partition, error in sorted(results.items())}
    report("offset of", outcomes, "deleted", as_json)


@groups.command("remove-members")
@click.argument("name", metavar="GROUP", type=GROUP)
@click.option("--member", "members", multiple=True, metavar="ID", help="A member id.")
@click.option("--instance", "instances", multiple=True, metavar="ID", help="A group.instance.id.")
@click.option("--all", "everyone", is_flag=True, help="All members.")
@click.option("--reason", help="Reason for the broker's log.")
@json_option
@cluster_options
def remove_members(
    settings: dict[str, object],
    name: str,
    members: tuple[str, ...],
    instances: tuple[str, ...],
    everyone: bool,
    reason: str | None,
    as_json: bool,
) -> None:
    """Remove members from a group.

    Members that still run join again.
    """
    from kafkapy.clients.admin.groups import MemberToRemove

    if bool(members or instances) == everyone:
        raise click.UsageError("Give --member and --instance, or --all.")
    with connected(settings) as admin:
        wanted = [MemberToRemove(member_id=each, reason=reason) for each in members]
        wanted += [MemberToRemove(group_instance_id=each, reason=reason) for each in instances]
        if everyone:
            group = _described(admin, [name], False)[name]
            wanted = [MemberToRemove(member_id=each.member_id, reason=reason) for each in group.members]
        results = admin.remove_group_members(name, wanted)
        if any(error is UnknownMemberIdError for error in results.values()):
            _described(admin, [name], False)
    report("member", {member: error_name(error) for member, error in results.items()}, "removed", as_json)


# --- how ------------------------------------------------------------------------------------------------------------


def _described(admin: KafkaAdminClient, names: Iterable[str], everything: bool) -> dict[str, ConsumerGroupDescription]:
    """The descriptions of groups. KafkaError for an unknown group."""
    wanted = list(names)
    if everything:
        consumers = ("consumer", "")
        wanted = sorted(each["group_id"] for each in admin.list_groups() if each["protocol_type"] in consumers)
    described: dict[str, ConsumerGroupDescription] = {}
    for name, group in admin.describe_consumer_groups(wanted).items():
        if isinstance(group, KafkaError):
            gone = group.code == ErrorCode.GROUP_ID_NOT_FOUND
            raise no_group(admin, name) if gone else KafkaError(group_problem(name, group))
        described[name] = group
    return described


def _lag_rows(admin: KafkaAdminClient, described: Mapping[str, ConsumerGroupDescription]) -> dict[str, list[Row]]:
    """Every group's partitions with an offset or a member."""
    if not described:
        return {}
    committed = admin.list_group_offsets(list(described))
    owners = {
        name: {partition: member for member in group.members for partition in member.assignment}
        for name, group in described.items()
    }
    partitions = {partition for offsets in committed.values() for partition in offsets}
    partitions |= {partition for owned in owners.values() for partition in owned}
    ends = log_ends(admin, partitions)
    return {
        name: [
            _lag_row(
                name,
                partition,
                committed[name][partition].offset if partition in committed[name] else None,
                ends.get(partition),
                owners[name].get(partition),
            )
            for partition in sorted({*committed[name], *owners[name]})
        ]
        for name in described
    }


def log_ends(admin: KafkaAdminClient, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The end offset of each existing partition with a leader."""
    wanted = set(partitions)
    if not wanted:
        return {}
    led = {
        TopicPartition(topic["name"], each["partition_index"])
        for topic in admin.describe_topics(sorted({partition.topic for partition in wanted}))
        for each in topic["partitions"]
        if each["leader_id"] >= 0
    }
    found = admin.list_partition_offsets(dict.fromkeys(wanted & led, ListOffsetsTimestamp.LATEST))
    return {partition: each.offset for partition, each in found.items()}


def _lag_row(
    group: str, partition: TopicPartition, current: int | None, end: int | None, owner: MemberDescription | None
) -> Row:
    current = None if current is None or current < 0 else current
    return {
        "group": group,
        "topic": partition.topic,
        "partition": partition.partition,
        "current_offset": current,
        "log_end_offset": end,
        "lag": None if current is None or end is None else end - current,
        "client_id": owner.client_id if owner else None,
        "host": owner.host.removeprefix("/") if owner else None,
        "member_id": owner.member_id if owner else None,
    }


def _member_rows(group: ConsumerGroupDescription) -> list[Row]:
    return [
        {
            "group": group.group_id,
            "member_id": member.member_id,
            "group_instance_id": member.group_instance_id,
            "client_id": member.client_id,
            "host": member.host.removeprefix("/"),
            "epoch": member.member_epoch,
            "subscribed_topics": list(member.subscribed_topics),
            "subscribed_topic_regex": member.subscribed_topic_regex,
            "assignment": list(map(str, member.assignment)),
            "target_assignment": None if member.target_assignment is None else list(map(str, member.target_assignment)),
        }
        for member in sorted(group.members, key=lambda member: (member.client_id, member.member_id))
    ]


def _state_row(group: ConsumerGroupDescription, offsets: Iterable[Row]) -> Row:
    lags = [row["lag"] for row in offsets if row["lag"] is not None]
    return {
        "group": group.group_id,
        "type": group.group_type.value,
        "state": group.state,
        "coordinator": group.coordinator,
        "assignor": group.assignor or None,
        "members": len(group.members),
        "epoch": group.group_epoch,
        "lag": sum(lags) if lags else None,
    }


def _summary(group: ConsumerGroupDescription, offsets: Iterable[Row]) -> list[str]:
    row = _state_row(group, offsets)
    count = row["members"]
    details = [row["state"], f"{row['type']} protocol", f"{count} member{'' if count == 1 else 's'}"]
    if row["assignor"]:
        details.append(row["assignor"])
    if row["lag"] is not None:
        details.append(f"lag {row['lag']}")
    return details


def error_name(error: type[KafkaError]) -> str | None:
    """The name of an error for `report`, None without an error."""
    return None if error is NoError else error.__name__


def report(kind: str, outcomes: Mapping[str, str | None], done: str, as_json: bool) -> None:
    """Prints one line per name.

    One sentence and exit code 1 after a failure.
    """
    output = Output(as_json)
    if as_json:
        output.json([{kind.split()[0]: name, "error": error} for name, error in outcomes.items()])
    for name, error in outcomes.items():
        if error is None:
            output.say(f"{kind.capitalize()} {name} {done}.")
    failed = [f"{kind} {name}: {_explained(error)}" for name, error in outcomes.items() if error is not None]
    if failed:
        said = "; ".join(failed)
        raise KafkaError(f"{said[0].upper()}{said[1:]}.")


def _explained(name: str) -> str:
    """An error's sentence, by its class's name."""
    from kafkapy import errors

    if name in ("GroupAuthorizationFailedError", "TopicAuthorizationFailedError"):
        return NOT_AUTHORIZED
    if name == "NonEmptyGroupError":
        return "the group has members; stop them, or remove them with kafkapy groups remove-members GROUP --all"
    if name == "UnknownMemberIdError":
        return "the group has no such member; kafkapy groups describe GROUP --members shows those that it has"
    return str(getattr(errors, name)()).rstrip(".")
