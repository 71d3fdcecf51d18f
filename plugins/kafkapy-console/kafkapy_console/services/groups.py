"""Groups as pages show them: one description of all kinds, lag by partition, and sentences that say why.

All requests take many groups at once: a page with fifty groups asks each coordinator twice, and each leader once.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from kafkapy.admin import ConsumerGroupDescription, OffsetSpec
from kafkapy.errors import KafkaError
from kafkapy.types import OffsetAndMetadata, TopicPartition
from kafkapy_console.errors import NotFoundError
from kafkapy_console.services.clients import Clients

__all__ = ["Group", "Groups", "Lag", "Member", "Reason", "explained"]

LIST_S = 3
SLOW_SHARE = 0.5
"""A partition with this share of the lag, and far above the others, is slow."""
SLOW_FACTOR = 10
REBALANCING = {"PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"}


@dataclass(frozen=True)
class Member:
    """A member of a group of any kind."""

    id: str
    instance: str | None
    client_id: str
    host: str
    rack: str | None
    epoch: int | None
    assignment: Sequence[TopicPartition]
    target: Sequence[TopicPartition] | None
    topics: Sequence[str]

    @property
    def moving(self) -> bool:
        """Whether the member has not the partitions yet that it is to have."""
        return self.target is not None and set(self.target) != set(self.assignment)


@dataclass(frozen=True)
class Lag:
    """A partition of a group: the committed offset and the ends of the log. None: unknown."""

    partition: TopicPartition
    committed: int | None
    begin: int | None
    end: int | None
    metadata: str
    member: Member | None

    @property
    def lag(self) -> int | None:
        """Records between the committed offset and the end of the log, at least 0."""
        if self.committed is None or self.end is None:
            return None
        return max(0, self.end - self.committed)

    @property
    def lost(self) -> int:
        """Records that retention deleted before the group read them."""
        if self.committed is None or self.begin is None:
            return 0
        return max(0, self.begin - self.committed)

    @property
    def ahead(self) -> int:
        """Offsets by which the commit lies behind the end of the log: the topic was made again, or lost records."""
        if self.committed is None or self.end is None:
            return 0
        return max(0, self.committed - self.end)


@dataclass(frozen=True)
class Group:
    """A group of any kind."""

    id: str
    kind: str
    """classic, consumer, share, streams."""
    state: str
    coordinator: int | None
    assignor: str
    epoch: int | None
    assignment_epoch: int | None
    members: Sequence[Member]
    lags: Sequence[Lag] = ()
    error: str | None = None
    protocol_type: str = ""
    """consumer; "sr" of schema registries, "connect": their members read no partitions."""

    @property
    def total_lag(self) -> int | None:
        """The lag of all partitions; None when none is known."""
        known = [each.lag for each in self.lags if each.lag is not None]
        return sum(known) if known else None

    @property
    def topics(self) -> list[str]:
        """The topics that the group reads or has offsets of."""
        names = {topic for member in self.members for topic in member.topics}
        return sorted(names | {each.partition.topic for each in self.lags})

    @property
    def rebalancing(self) -> bool:
        """Whether a rebalance is under way."""
        return self.state in REBALANCING


@dataclass(frozen=True)
class Reason:
    """A sentence about a group, and how bad it is: ok, info, warn, bad."""

    level: str
    text: str
    partitions: Sequence[TopicPartition] = field(default=())


class Groups:
    """The groups that one principal sees."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    async def all(self) -> dict[str, dict[str, Any]]:
        """{group id: {group_id, protocol_type, group_state, group_type}} of all brokers, sorted."""

        async def read() -> dict[str, dict[str, Any]]:
            found = await (await self._clients.admin()).list_groups()
            return {each["group_id"]: each for each in sorted(found, key=lambda each: str(each["group_id"]))}

        return await self._clients.cache.get("groups", LIST_S, read)

    def changed(self) -> None:
        """Forget what is cached, after a change."""
        self._clients.cache.drop("groups")

    async def one(self, group_id: str) -> Group:
        """A group with its lag. NotFoundError."""
        listed = (await self.all()).get(group_id)
        if listed is None:
            self.changed()
            listed = (await self.all()).get(group_id)
        if listed is None:
            raise NotFoundError(f"There is no group {group_id}, or you may not see it.")
        return (await self.described([listed]))[0]

    async def described(self, listed: Sequence[Mapping[str, Any]], with_begin: bool = True) -> list[Group]:
        """Descriptions with lag, in the given order. The error of one group is in its row."""
        admin = await self._clients.admin()
        kinds = {str(each["group_id"]): _kind(each) for each in listed}
        protocol_types = {str(each["group_id"]): str(each.get("protocol_type") or "") for each in listed}
        shared = [name for name, kind in kinds.items() if kind == "share"]
        plain = [name for name, kind in kinds.items() if kind in ("classic", "consumer", "")]
        groups: dict[str, Group] = {}
        if plain:
            for name, found in (await admin.describe_consumer_groups(plain)).items():
                groups[name] = (
                    _described(found, protocol_types[name])
                    if isinstance(found, ConsumerGroupDescription)
                    else _failed(name, found)
                )
        for name in shared:
            try:
                groups[name] = _share(name, (await admin.describe_share_groups([name]))[name])
            except KafkaError as error:
                groups[name] = _failed(name, error, "share")
        for each in listed:
            name = str(each["group_id"])
            if name not in groups:
                state = str(each.get("group_state") or "Unknown")
                groups[name] = Group(name, kinds[name], state, None, "", None, None, ())
        lags = await self._lags([groups[name] for name in plain if groups[name].error is None], with_begin)
        return [
            _with_lags(groups[name], lags.get(name, ())) for name in map(str, (each["group_id"] for each in listed))
        ]

    async def _lags(self, groups: Sequence[Group], with_begin: bool) -> dict[str, list[Lag]]:
        if not groups:
            return {}
        admin = await self._clients.admin()
        committed: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}
        try:
            committed = await admin.list_group_offsets([group.id for group in groups])
        except KafkaError:
            # One group without permission fails the call for all: then each by itself.
            for group in groups:
                try:
                    committed |= await admin.list_group_offsets([group.id])
                except KafkaError:
                    committed[group.id] = {}
        owners = {
            group.id: {each: member for member in group.members for each in member.assignment} for group in groups
        }
        wanted = sorted(
            {each for offsets in committed.values() for each in offsets}
            | {each for owned in owners.values() for each in owned}
        )
        begin, end = await log_ends(self._clients, wanted, with_begin)
        found = {}
        for group in groups:
            offsets, owned = committed.get(group.id, {}), owners[group.id]
            rows = []
            for each in sorted({*offsets, *owned}):
                at = offsets.get(each)
                rows.append(
                    Lag(
                        each,
                        at.offset if at is not None and at.offset >= 0 else None,
                        begin.get(each),
                        end.get(each),
                        at.metadata if at is not None else "",
                        owned.get(each),
                    )
                )
            found[group.id] = rows
        return found


async def log_ends(
    clients: Clients, partitions: Sequence[TopicPartition], with_begin: bool = True
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """First and next offsets. Partitions of topics that no longer exist are left out."""
    if not partitions:
        return {}, {}
    from kafkapy_console.services.topics import Topics

    known = await Topics(clients).with_partitions(partitions)
    leaders = {
        TopicPartition(name, each["partition_index"])
        for name, topic in known.items()
        for each in topic.partitions
        if each["leader_id"] >= 0
    }
    wanted = [each for each in partitions if each in leaders]
    if not wanted:
        return {}, {}
    admin = await clients.admin()
    end = await admin.list_partition_offsets(dict.fromkeys(wanted, OffsetSpec.LATEST))
    begin = await admin.list_partition_offsets(dict.fromkeys(wanted, OffsetSpec.EARLIEST)) if with_begin else {}
    return {key: each.offset for key, each in begin.items()}, {key: each.offset for key, each in end.items()}


def _kind(listed: Mapping[str, Any]) -> str:
    kind = str(listed.get("group_type") or "").lower()
    return kind if kind in ("classic", "consumer", "share", "streams") else ""


def _described(found: ConsumerGroupDescription, protocol_type: str) -> Group:
    members = [
        Member(
            each.member_id,
            each.group_instance_id,
            each.client_id,
            each.host,
            each.rack_id,
            each.member_epoch,
            each.assignment,
            each.target_assignment,
            each.subscribed_topics or ((f"/{each.subscribed_topic_regex}/",) if each.subscribed_topic_regex else ()),
        )
        for each in found.members
    ]
    return Group(
        found.group_id,
        str(found.group_type).lower(),
        found.state,
        found.coordinator,
        found.assignor,
        found.group_epoch,
        found.assignment_epoch,
        members,
        protocol_type=protocol_type,
    )


def _share(name: str, found: Mapping[str, Any]) -> Group:
    members = [
        Member(
            each["member_id"],
            None,
            each["client_id"],
            each["client_host"],
            each["rack_id"],
            each["member_epoch"],
            [
                TopicPartition(topic["topic_name"], number)
                for topic in each["assignment"]["topic_partitions"]
                for number in topic["partitions"]
            ],
            None,
            each["subscribed_topic_names"],
        )
        for each in found["members"]
    ]
    return Group(
        name,
        "share",
        found["group_state"],
        None,
        found["assignor_name"],
        found["group_epoch"],
        found["assignment_epoch"],
        members,
        error=found["error"],
    )


def _failed(name: str, error: object, kind: str = "") -> Group:
    return Group(name, kind, "Unknown", None, "", None, None, (), error=f"{type(error).__name__}: {error}")


def _with_lags(group: Group, lags: Sequence[Lag]) -> Group:
    return Group(**{**{name: getattr(group, name) for name in group.__dataclass_fields__}, "lags": tuple(lags)})


# --- why ----------------------------------------------------------------------------------------------------------


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
            yield Reason("warn", "Nobody reads: the group has committed offsets and no members.")
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
            "them, and a partition has one reader at most." if group.kind != "share" else
            f"{len(idle)} of {len(group.members)} members have no partition.",
        )  # fmt: skip
    subscriptions = {tuple(sorted(each.topics)) for each in group.members if each.topics}
    if len(subscriptions) > 1:
        yield Reason(
            "info",
            f"The members subscribe to {len(subscriptions)} different sets of topics: not every member can take over "
            "every partition.",
        )
    hosts = {each.host for each in group.members}
    if len(group.members) > 2 and len(hosts) == 1:
        yield Reason("info", f"All {len(group.members)} members connect from one address ({next(iter(hosts))}).")
    unread = [each.partition for each in group.lags if each.member is None]
    if unread and not group.rebalancing:
        topics = sorted({each.topic for each in unread})
        yield Reason(
            "warn",
            f"{len(unread)} partitions with a committed offset have no reader: no member subscribes to "
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
            "read them: the committed offsets lie before the beginning of the log. Readers go on where "
            "auto.offset.reset says.",
            [each.partition for each in lost],
        )
    ahead = [each for each in group.lags if each.ahead]
    if ahead:
        yield Reason(
            "bad",
            f"{len(ahead)} committed offsets lie after the end of the log: the topic was created again, or lost "
            "records in an unclean election. Readers go on where auto.offset.reset says.",
            [each.partition for each in ahead],
        )
    gone = [each for each in group.lags if each.end is None]
    if gone:
        yield Reason(
            "info",
            f"{len(gone)} partitions have no leader, or their topic no longer exists: their lag is unknown.",
            [each.partition for each in gone],
        )
    unset = [each for each in group.lags if each.committed is None and each.member is not None]
    if unset:
        yield Reason(
            "info",
            f"{len(unset)} assigned partitions have no committed offset yet.",
            [each.partition for each in unset],
        )
    lagging = [each for each in group.lags if each.lag]
    total = sum(each.lag or 0 for each in lagging)
    if not lagging:
        return
    slow = _slow(group)
    if slow:
        owners = sorted({each.member.client_id or each.member.id for each in slow if each.member is not None})
        yield Reason(
            "warn",
            f"{sum(each.lag or 0 for each in slow):,} of {total:,} records of the lag are in {len(slow)} of "
            f"{len(group.lags)} partitions ({', '.join(str(each.partition) for each in slow[:3])})"
            + (f", read by {', '.join(owners[:3])}: that reader is slow, or the keys are uneven." if owners else "."),
            [each.partition for each in slow],
        )
    still = [
        each
        for each in lagging
        if each.member is not None and each.partition in moved_at and now - moved_at[each.partition] > 60
    ]
    if still:
        oldest = max(now - moved_at[each.partition] for each in still)
        yield Reason(
            "warn",
            f"{len(still)} partitions have lag and a reader, but no new commit for {oldest / 60:.0f} minutes: the "
            "reader is stuck, or commits in another way.",
            [each.partition for each in still],
        )
    if not slow and not still and group.members:
        yield Reason("info", f"The lag is {total:,} records, spread over {len(lagging)} partitions.")


def _slow(group: Group) -> list[Lag]:
    known = [each for each in group.lags if each.lag is not None]
    if len(known) < 3:
        return []
    total = sum(each.lag or 0 for each in known)
    middle = median(each.lag or 0 for each in known)
    slow = [each for each in known if (each.lag or 0) > max(SLOW_FACTOR * middle, 100)]
    return slow if slow and sum(each.lag or 0 for each in slow) >= SLOW_SHARE * total else []
