"""Why a group rebalances, lags or stands still, in sentences."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from kafkapy.types import TopicPartition
from kafkapy_console.services.groups import Group, Lag

__all__ = ["Reason", "explained"]

SLOW_SHARE = 0.5
"""A partition with this share of the lag, and far above the others, is slow."""
SLOW_FACTOR = 10


@dataclass(frozen=True)
class Reason:
    """A sentence about a group, and how bad it is: ok, info, warn, bad."""

    level: str
    text: str
    partitions: Sequence[TopicPartition] = field(default=())


def explained(group: Group, moved_at: Mapping[TopicPartition, float], now: float | None = None) -> list[Reason]:
    """Why a group rebalances, lags or stands still, from what the brokers say; the worst reasons first.

    `moved_at` has the times (s) at which the console last saw a committed offset move.
    """
    now = time.time() if now is None else now
    reasons = [*_about_state(group), *_about_members(group), *_about_lag(group, moved_at, now)]
    order = {"bad": 0, "warn": 1, "info": 2, "ok": 3}
    return sorted(reasons, key=lambda reason: order[reason.level]) or [
        Reason("ok", "The group is stable, all its partitions have a reader, and it has no lag.")
    ]


def _about_state(group: Group) -> Iterable[Reason]:
    if group.error is not None:
        yield Reason("bad", f"The coordinator does not describe the group: {group.error}")
    if group.offsets_error is not None:
        yield Reason("warn", group.offsets_error)
    if group.state == "Dead":
        yield Reason("bad", "The group is dead: its coordinator forgot it, and its members have to join again.")
    if group.state == "NotReady":
        yield Reason("warn", "The group is not ready: its topics are missing or not partitioned as it needs them.")
    if group.state == "PreparingRebalance":
        yield Reason(
            "warn",
            f"The group rebalances: the coordinator waits until all {len(group.members)} members have joined again. "
            "A member joins at its next poll(), so a member that takes long for its records holds up all others, for "
            "at most its max.poll.interval.ms.",
        )
    if group.state == "CompletingRebalance":
        yield Reason(
            "warn",
            "The group rebalances: all members have joined, and the coordinator waits for the assignment of the "
            "member that leads the group.",
        )
    if group.kind in ("consumer", "share", "streams") and group.epoch is not None:
        if group.state == "Assigning":
            yield Reason("info", f"The coordinator computes the assignment of epoch {group.epoch}.")
        behind = [each for each in group.members if each.epoch is not None and each.epoch < group.epoch]
        moving = [each for each in group.members if each.moving]
        if moving:
            names = ", ".join(each.client_id or each.id for each in moving[:5])
            given_up = sum(len(set(each.assignment) - set(each.target or ())) for each in moving)
            awaited = sum(len(set(each.target or ()) - set(each.assignment)) for each in moving)
            yield Reason(
                "warn",
                f"{len(moving)} of {len(group.members)} members change partitions: {given_up} to give up, {awaited} "
                f"to take over ({names}). A partition moves when its old owner has given it up in a heartbeat.",
            )
        elif behind:
            names = ", ".join(each.client_id or each.id for each in behind[:5])
            yield Reason("info", f"{len(behind)} members are still in an older epoch than {group.epoch}: {names}.")


def _about_members(group: Group) -> Iterable[Reason]:
    if not group.members:
        if group.lags and group.state != "Dead":
            yield Reason("warn", f"Nobody reads: the group has {_offsets(group)} and no members.")
        return
    if group.protocol_type not in ("", "consumer"):
        yield Reason(
            "info",
            f"The members agree on something else than partitions: their protocol is {group.protocol_type}.",
        )
        return
    idle = [each for each in group.members if not each.assignment and not each.moving]
    if idle and not group.rebalancing:
        owned = sum(len(each.assignment) for each in group.members)
        yield Reason(
            "info",
            f"{len(idle)} of {len(group.members)} members have no partition: the topics have {owned} partitions for "
            "them, and a partition has one reader at most." if not group.is_share else
            f"{len(idle)} of {len(group.members)} members have no partition.",
        )  # fmt: skip
    subscriptions = {tuple(sorted(each.topics)) for each in group.members if each.topics}
    if len(subscriptions) > 1:
        yield Reason(
            "info",
            f"The members subscribe to {len(subscriptions)} different sets of topics: not every member can "
            f"{'read' if group.kind == 'share' else 'take over'} every partition.",
        )
    hosts = {each.host for each in group.members}
    if len(group.members) > 2 and len(hosts) == 1:
        yield Reason("info", f"All {len(group.members)} members connect from one address ({next(iter(hosts))}).")
    unread = [each.partition for each in group.lags if not each.readers]
    if unread and not group.rebalancing:
        topics = sorted({each.topic for each in unread})
        yield Reason(
            "warn",
            f"{len(unread)} partitions with {_offset(group)} have no reader: no member subscribes to "
            f"{', '.join(topics[:3])}{' and others' if len(topics) > 3 else ''} now, "
            "or the assignment is not complete.",
            unread,
        )


def _about_lag(group: Group, moved_at: Mapping[TopicPartition, float], now: float) -> Iterable[Reason]:
    lost = [each for each in group.lags if each.lost]
    if lost:
        yield Reason(
            "bad",
            f"{sum(each.lost for each in lost):,} offsets in {len(lost)} partitions were deleted before the group "
            f"read them: the {_offsets(group)} lie before the beginning of the log. {_goes_on(group)}",
            [each.partition for each in lost],
        )
    ahead = [each for each in group.lags if each.ahead]
    if ahead:
        yield Reason(
            "bad",
            f"{len(ahead)} {_offsets(group)} lie after the end of the log: the topic "
            f"{'lost' if group.kind == 'share' else 'was created again, or lost'} "
            f"records in an unclean election. {_stands(group)}",
            [each.partition for each in ahead],
        )
    gone = [each for each in group.lags if each.end is None]
    if gone:
        yield Reason(
            "info",
            f"{len(gone)} partitions have no leader, or their topic no longer exists: their lag is unknown.",
            [each.partition for each in gone],
        )
    unset = [each for each in group.lags if each.committed is None and each.readers]
    if unset and group.offsets_error is None:
        yield Reason(
            "info",
            f"{len(unset)} assigned partitions have no start offset yet: their first fetch begins where the group's "
            "share.auto.offset.reset says."
            if group.is_share
            else f"{len(unset)} assigned partitions have no committed offset yet.",
            [each.partition for each in unset],
        )
    lagging = [each for each in group.lags if each.lag]
    total = sum(each.lag or 0 for each in lagging)
    if not lagging:
        return
    slow = _slow(group)
    if slow:
        owners = sorted({member.client_id or member.id for each in slow for member in each.readers})
        cause = "those readers are slow." if group.is_share else "that reader is slow, or the keys are uneven."
        yield Reason(
            "warn",
            f"{sum(each.lag or 0 for each in slow):,} of {total:,} records of the lag are in {len(slow)} of "
            f"{len(group.lags)} partitions ({', '.join(str(each.partition) for each in slow[:3])})"
            + (f", read by {', '.join(owners[:3])}: {cause}" if owners else "."),
            [each.partition for each in slow],
        )
    still = [
        each for each in lagging if each.readers and each.partition in moved_at and now - moved_at[each.partition] > 60
    ]
    if still:
        oldest = max(now - moved_at[each.partition] for each in still)
        yield Reason(
            "warn",
            f"{len(still)} partitions have lag and a reader, but their start offsets stand still for "
            f"{oldest / 60:.0f} minutes: the first record of each is not acknowledged, or nobody fetches."
            if group.is_share
            else f"{len(still)} partitions have lag and a reader, but no new commit for {oldest / 60:.0f} minutes: the "
            "reader is stuck, or commits in another way.",
            [each.partition for each in still],
        )
    if not slow and not still and group.members:
        yield Reason("info", f"The lag is {total:,} records, spread over {len(lagging)} partitions.")


def _offset(group: Group) -> str:
    return "a start offset" if group.is_share else "a committed offset"


def _offsets(group: Group) -> str:
    return "start offsets" if group.is_share else "committed offsets"


def _goes_on(group: Group) -> str:
    where = "at the beginning of the log" if group.is_share else "where auto.offset.reset says"
    return f"Readers go on {where}."


def _stands(group: Group) -> str:
    return "Readers get nothing until the log has passed them." if group.is_share else _goes_on(group)


def _slow(group: Group) -> list[Lag]:
    known = [each for each in group.lags if each.lag is not None]
    if len(known) < 3:
        return []
    total = sum(each.lag or 0 for each in known)
    middle = median(each.lag or 0 for each in known)
    slow = [each for each in known if (each.lag or 0) > max(SLOW_FACTOR * middle, 100)]
    return slow if slow and sum(each.lag or 0 for each in slow) >= SLOW_SHARE * total else []
