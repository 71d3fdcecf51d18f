"""Changes of groups: reset offsets with a preview, delete offsets, remove members, delete."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from kafkapy.admin import MemberToRemove, OffsetSpec, OffsetTimestamp
from kafkapy.errors import KafkaError, NoError
from kafkapy.types import OffsetAndMetadata, TopicPartition
from kafkapy_console.console import number
from kafkapy_console.errors import BadInputError, MissingApiError, RemoteServiceError
from kafkapy_console.pages.groups import group_of
from kafkapy_console.services.groups import Group, Groups, Lag, log_ends
from kafkapy_console.services.topics import Topics
from kafkapy_console.settings import Level
from kafkapy_console.text import url_part
from kafkapy_console.times import parse_time
from kafkapy_console.web import Form, Visit, action, page

__all__ = ["ROUTES"]

WAYS = ("earliest", "latest", "time", "offset", "shift", "group")
WAYS_OF_SHARE_GROUPS = ("earliest", "latest", "time")
MOST_PARTITIONS = 10_000
"""Partitions of one reset: the form has a field for each."""


async def _group_with_offsets(visit: Visit) -> Group:
    """The group of an address that the session may change. ConsoleError where its offsets are not known."""
    group = await group_of(visit, Level.EDITOR)
    if group.error is not None:
        raise RemoteServiceError(f"The coordinator does not describe the group: {group.error}")
    if group.offsets_error is not None:
        raise (MissingApiError if group.misses_api else RemoteServiceError)(group.offsets_error)
    return group


async def reset_form(visit: Visit) -> Response:
    """Choose partitions and a place; with a choice, the preview: offsets before and after, records affected."""
    group = await _group_with_offsets(visit)
    ways = WAYS_OF_SHARE_GROUPS if group.is_share else WAYS
    way, at = visit.query.text("way"), visit.query.text("at")
    topics = sorted({each.partition.topic for each in group.lags})
    topic, partition = visit.query.text("topic"), visit.query.text("partition")
    context = {
        "group": group, "topics": topics, "topic": topic, "partition": partition, "ways": ways,
        "way": way or "earliest", "at": at,
    }  # fmt: skip
    if way not in ways:
        return visit.render("group_reset.html", rows=None, again=0, skipped=0, done=0, **context)
    partitions = await _chosen(visit, group, topic, partition)
    if len(partitions) > MOST_PARTITIONS:
        narrower = "partition" if topic else "topic"
        text = f"A reset of {len(partitions):,} partitions is too large: {MOST_PARTITIONS:,} are the most."
        raise BadInputError(f"{text} Choose a {narrower}.")
    targets = await _targets(visit, way, at, partitions, group)
    committed = {each.partition: each.committed for each in group.lags}
    begin, end = await log_ends(visit.clients, partitions)
    rows: list[dict[str, Any]] = []
    for each in partitions:
        if each in targets:
            before = committed.get(each)
            moved = 0 if before is None else targets[each] - before
            rows.append(
                {
                    "partition": each,
                    "before": before,
                    "after": targets[each],
                    "moved": moved,
                    "begin": begin.get(each),
                    "end": end.get(each),
                }
            )
    return visit.render(
        "group_reset.html",
        rows=rows,
        again=sum(max(0, -row["moved"]) for row in rows),
        skipped=sum(max(0, row["moved"]) for row in rows),
        done=sum(each.done for each in group.lags if each.partition in targets),
        **context,
    )


async def _chosen(visit: Visit, group: Group, topic: str, partition: str) -> list[TopicPartition]:
    """The partitions of a reset: those with offsets, or all of a topic that the group never read."""
    if not topic:
        if partition:
            raise BadInputError("Name the topic of the partition, too.")
        return [each.partition for each in group.lags]
    visit.require(Level.VIEWER, topic)
    every = (await Topics(visit.clients).one(topic)).keys
    if not partition:
        return every
    wanted = number(partition, "Partition", 0, 2**31 - 1)
    if TopicPartition(topic, wanted) not in every:
        raise BadInputError(f"{topic} has no partition {wanted}.")
    return [TopicPartition(topic, wanted)]


async def _targets(
    visit: Visit, way: str, at: str, partitions: list[TopicPartition], group: Group
) -> Mapping[TopicPartition, int]:
    admin = await visit.clients.admin()
    if way == "group":
        if not at:
            raise BadInputError("Name the group whose offsets are to be taken.")
        visit.require(Level.VIEWER, at)
        other = (await admin.list_group_offsets([at]))[at]
        specs = {each: other[each].offset for each in partitions if each in other and other[each].offset >= 0}
        if not specs:
            raise BadInputError(f"Group {at} has no offsets of these partitions.")
        return await admin.reset_targets(specs)
    if way == "shift":
        by = number(at, "Number of records", -(2**62), 2**62)
        committed = {each.partition: each.committed for each in group.lags}
        known = {each: committed.get(each) for each in partitions}
        return await admin.reset_targets({each: max(0, at + by) for each, at in known.items() if at is not None})
    if way == "offset":
        return await admin.reset_targets(dict.fromkeys(partitions, number(at, "Offset", 0, 2**63 - 1)))
    if way == "time":
        return await admin.reset_targets(dict.fromkeys(partitions, OffsetTimestamp(parse_time(at))))
    spec = OffsetSpec.EARLIEST if way == "earliest" else OffsetSpec.LATEST
    return await admin.reset_targets(dict.fromkeys(partitions, spec))


async def reset(visit: Visit, form: Form) -> Response:
    """Set the offsets that the preview showed, unless the group has moved meanwhile."""
    group = await _group_with_offsets(visit)
    if form.text("confirmed") != "yes":
        raise BadInputError("The reset is not confirmed.")
    targets: dict[TopicPartition, int] = {}
    before: dict[TopicPartition, int | None] = {}
    for text in form.all("target"):
        partition, old, new = _target(text)
        targets[partition], before[partition] = new, old
    if not targets:
        raise BadInputError("The preview has no partitions.")
    if group.members:
        raise BadInputError(f"Group {group.id} has {len(group.members)} members. Stop them first: {_why_empty(group)}")
    for name in sorted({each.topic for each in targets} - {each.partition.topic for each in group.lags}):
        visit.require(Level.VIEWER, name)
    if form.text("kind") != group.kind:
        raise BadInputError(f"Group {group.id} is of another kind than in the preview. Look at it again.")
    now = {each.partition: each.committed for each in group.lags}
    moved = [each for each in targets if now.get(each) != before[each]]
    if moved:
        raise BadInputError(f"{len(moved)} offsets have changed since the preview ({moved[0]}). Look at it again.")
    await _check_in_log(visit, targets)
    metadata = {each.partition: each.metadata for each in group.lags}
    admin = await visit.clients.admin()
    if group.is_share:
        outcome = await admin.alter_share_group_offsets(group.id, targets)
    else:
        outcome = await admin.alter_group_offsets(
            group.id, {each: OffsetAndMetadata(offset, metadata.get(each, "")) for each, offset in targets.items()}
        )
    _raise_failed(outcome, "partitions")
    Groups(visit.clients).changed()
    details = {str(each): [before[each], targets[each]] for each in list(targets)[:200]}
    visit.audit(
        "reset start offsets" if group.is_share else "reset offsets",
        group.id,
        partitions=len(targets),
        before_and_after=details,
    )
    visit.flash(
        f"{'Start offsets' if group.is_share else 'Offsets'} of {len(targets)} partitions of {group.id} are reset."
    )
    return visit.redirect(f"/groups/{url_part(group.id)}")


async def _check_in_log(visit: Visit, targets: Mapping[TopicPartition, int]) -> None:
    """BadInputError for an offset that a preview would not show: clamped, or of a partition without a leader."""
    begin, end = await log_ends(visit.clients, list(targets))
    for each, offset in targets.items():
        if each not in begin or each not in end:
            raise BadInputError(f"The ends of the log of {each} are not known. Look at it again.")
        if not begin[each] <= offset <= end[each]:
            bounds = f"the log begins at {begin[each]} and ends at {end[each]}"
            raise BadInputError(f"Offset {offset} of {each} is outside of the log: {bounds}. Look at it again.")


def _target(text: str) -> tuple[TopicPartition, int | None, int]:
    """topic:partition:before:after, where the topic's name has no colon."""
    parts = text.split(":")
    if len(parts) != 4:
        raise BadInputError("The preview is not valid.")
    topic, partition, before, after = parts
    return (
        TopicPartition(topic, number(partition, "Partition", 0, 2**31 - 1)),
        number(before, "Offset", 0, 2**63 - 1) if before else None,
        number(after, "Offset", 0, 2**63 - 1),
    )


def _why_empty(group: Group) -> str:
    if group.is_share:
        return "the coordinator changes start offsets of empty groups only."
    return "they would overwrite the offsets."


def _raise_failed(outcome: Mapping[Any, type[KafkaError]], what: str) -> None:
    failed = {each: error for each, error in outcome.items() if error is not NoError}
    if failed:
        first, error = next(iter(failed.items()))
        raise BadInputError(f"{len(failed)} of {len(outcome)} {what} failed; {first}: {error.__name__}: {error()}")


async def delete_form(visit: Visit) -> Response:
    """What the deletion of a group takes with it."""
    group = await group_of(visit, Level.EDITOR)
    return visit.render("group_delete.html", group=group)


async def delete(visit: Visit, form: Form) -> Response:
    """Delete a group whose name was typed."""
    group = await group_of(visit, Level.EDITOR)
    if form.text("name") != group.id:
        raise BadInputError(f"Type the name of the group to delete it: {group.id}.")
    outcome = (await (await visit.clients.admin()).delete_groups([group.id]))[group.id]
    if outcome != "OK":
        raise BadInputError(f"The coordinator refuses: {outcome}.")
    Groups(visit.clients).changed()
    visit.audit("delete group", group.id, offsets={str(e.partition): e.committed for e in group.lags[:200]})
    visit.flash(f"Group {group.id} is deleted.")
    return visit.redirect("/groups")


async def delete_offsets(visit: Visit, form: Form) -> Response:
    """Delete the offsets of one topic, which no member reads."""
    group = await _group_with_offsets(visit)
    topic = form.needed("topic")
    gone = _of_topic(group, topic)
    if not gone:
        raise BadInputError(f"Group {group.id} has no offsets of {topic}.")
    admin = await visit.clients.admin()
    if group.is_share:
        if group.members:
            many = len(group.members)
            raise BadInputError(f"Group {group.id} has {many} members. Stop them first: {_why_empty(group)}")
        _raise_failed(await admin.delete_share_group_offsets(group.id, [topic]), "topics")
    else:
        _raise_failed(await admin.delete_group_offsets(group.id, [each.partition for each in gone]), "partitions")
    Groups(visit.clients).changed()
    visit.audit(
        "delete start offsets" if group.is_share else "delete offsets",
        group.id,
        topic=topic,
        offsets={str(e.partition): e.committed for e in gone[:200]},
    )
    what = "Start offsets" if group.is_share else "Offsets"
    visit.flash(f"{what} of {topic} in {group.id} are deleted ({len(gone)} partitions).")
    return visit.redirect(f"/groups/{url_part(group.id)}")


async def offsets_form(visit: Visit) -> Response:
    """The offsets that a deletion would remove."""
    group = await _group_with_offsets(visit)
    topic = visit.query.needed("topic")
    rows = _of_topic(group, topic)
    readers = list(group.members) if group.is_share else [member for member in group.members if topic in member.topics]
    return visit.render("group_delete_offsets.html", group=group, topic=topic, rows=rows, readers=readers)


def _of_topic(group: Group, topic: str) -> list[Lag]:
    """The partitions whose offsets a deletion removes; a share group has a state also before its first fetch."""
    return [
        each for each in group.lags if each.partition.topic == topic and (group.is_share or each.committed is not None)
    ]


async def remove_member(visit: Visit, form: Form) -> Response:
    """Remove one member of a classic group; it may join again."""
    group = await group_of(visit, Level.EDITOR)
    member_id = form.needed("member")
    found = next((member for member in group.members if member.id == member_id), None)
    if found is None:
        raise BadInputError("The group has no such member now.")
    removal = MemberToRemove(member_id=None if found.instance else found.id, group_instance_id=found.instance)
    outcome = await (await visit.clients.admin()).remove_group_members(group.id, [removal])
    for error in outcome.values():
        if error is not NoError:
            raise BadInputError(f"The coordinator refuses: {error.__name__}: {error()}")
    Groups(visit.clients).changed()
    visit.audit("remove member", group.id, member=member_id, client=found.client_id)
    visit.flash(f"Member {found.client_id or found.id} is removed; a running one joins again.")
    return visit.redirect(f"/groups/{url_part(group.id)}")


ROUTES = [
    page("/groups/{group}/reset", reset_form, Level.EDITOR),
    action("/groups/{group}/reset", reset),
    page("/groups/{group}/delete", delete_form, Level.EDITOR),
    action("/groups/{group}/delete", delete),
    page("/groups/{group}/delete-offsets", offsets_form, Level.EDITOR),
    action("/groups/{group}/delete-offsets", delete_offsets),
    action("/groups/{group}/remove-member", remove_member),
]
