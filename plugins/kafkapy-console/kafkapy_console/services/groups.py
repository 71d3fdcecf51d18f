"""Groups as pages show them: one description of all kinds, and lag by partition.

All requests take many groups at once: a page with fifty groups asks each coordinator twice, and each leader once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from kafkapy.admin import ConsumerGroupDescription, OffsetSpec
from kafkapy.errors import KafkaError, RetriableError, UnsupportedVersionError
from kafkapy.types import TopicPartition
from kafkapy_console.errors import NotFoundError, cluster_is_away, sentence
from kafkapy_console.services.clients import Clients

__all__ = ["Group", "Groups", "Lag", "Member", "log_ends"]

LIST_S = 3
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
    """A partition of a group: its offset in the group and the ends of the log. None: unknown."""

    partition: TopicPartition
    committed: int | None
    """The committed offset; of a share group, the start offset."""
    begin: int | None
    end: int | None
    metadata: str = ""
    readers: Sequence[Member] = ()
    """The members that have the partition: one at most, or any number in a share group."""
    told: int | None = None
    """The lag that the coordinator of a share group tells: records that are not done."""

    @property
    def lag(self) -> int | None:
        """Records between the offset and the end of the log, at least 0."""
        if self.told is not None:
            return max(0, self.told)
        if self.committed is None or self.end is None:
            return None
        return max(0, self.end - self.committed)

    @property
    def done(self) -> int:
        """Records after the start offset that a share group has accepted or archived, as far as it is told."""
        if self.told is None or self.committed is None or self.end is None:
            return 0
        return max(0, self.end - self.committed - self.told)

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
    offsets_error: str | None = None
    """Why the offsets are not known."""
    misses_api: bool = False
    """Whether the brokers have no API that tells them."""

    @property
    def is_share(self) -> bool:
        """Whether members share partitions: the group has start offsets, not committed ones."""
        return self.kind == "share"

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
        for name, share in (await _each(shared, admin.describe_share_groups)).items():
            groups[name] = _failed(name, share, "share") if isinstance(share, KafkaError) else _share(name, share)
        for each in listed:
            name = str(each["group_id"])
            if name not in groups:
                state = str(each.get("group_state") or "Unknown")
                groups[name] = Group(name, kinds[name], state, None, "", None, None, ())
        offsets: dict[str, Mapping[TopicPartition, _Offset]] = {}
        answers = (
            *(await self._offsets([groups[name] for name in plain if groups[name].error is None])).items(),
            *(await self._start_offsets([groups[name] for name in shared])).items(),
        )
        for name, found_or_error in answers:
            if isinstance(found_or_error, KafkaError):
                missing = isinstance(found_or_error, UnsupportedVersionError)
                text = NO_START_OFFSETS if missing else sentence(found_or_error)
                groups[name] = replace(groups[name], offsets_error=text, misses_api=missing)
            else:
                offsets[name] = found_or_error
        lags = await self._lags({name: groups[name] for name in offsets}, offsets, with_begin)
        names = [str(each["group_id"]) for each in listed]
        return [replace(groups[name], lags=tuple(lags.get(name, ()))) for name in names]

    async def _offsets(self, groups: Sequence[Group]) -> dict[str, dict[TopicPartition, _Offset] | KafkaError]:
        """Committed offsets, or why they are not known. A group whose offsets may not be seen has none."""
        admin = await self._clients.admin()
        found = await _each([group.id for group in groups], admin.list_group_offsets)
        return {
            name: (committed if _is_of_all(committed) else {})
            if isinstance(committed, KafkaError)
            else {each: _Offset(_known(at.offset), at.metadata) for each, at in committed.items()}
            for name, committed in found.items()
        }

    async def _start_offsets(self, groups: Sequence[Group]) -> dict[str, dict[TopicPartition, _Offset] | KafkaError]:
        """Start offsets of share groups, with the lags that the coordinators tell (Kafka 4.2)."""
        admin = await self._clients.admin()
        found = await _each([group.id for group in groups if group.error is None], admin.list_share_group_offsets)
        return {
            name: starts
            if isinstance(starts, KafkaError)
            else {each: _Offset(_known(at.start_offset), "", at.lag) for each, at in starts.items()}
            for name, starts in found.items()
        }

    async def _lags(
        self,
        groups: Mapping[str, Group],
        offsets: Mapping[str, Mapping[TopicPartition, _Offset]],
        with_begin: bool,
    ) -> dict[str, list[Lag]]:
        readers: dict[str, dict[TopicPartition, list[Member]]] = {name: {} for name in groups}
        for name, group in groups.items():
            for member in group.members:
                for each in member.assignment:
                    readers[name].setdefault(each, []).append(member)
        wanted = sorted({each for name in groups for each in (*offsets[name], *readers[name])})
        begin, end = await log_ends(self._clients, wanted, with_begin)
        found = {}
        for name in groups:
            rows = []
            for each in sorted({*offsets[name], *readers[name]}):
                at = offsets[name].get(each, NO_OFFSET)
                reading = tuple(readers[name].get(each, ()))
                rows.append(Lag(each, at.offset, begin.get(each), end.get(each), at.metadata, reading, at.lag))
            found[name] = rows
        return found


class _Offset(NamedTuple):
    """The offset of a partition in a group. None: the group has none."""

    offset: int | None
    metadata: str = ""
    lag: int | None = None


NO_OFFSET = _Offset(None)
NO_START_OFFSETS = (
    "The brokers do not tell offsets of share groups: Apache Kafka has this API (KIP-932) since version 4.1."
)
"""Each broker that the client knows tells offsets of the other kinds."""


async def _each(names: Sequence[str], ask: Callable[[Sequence[str]], Awaitable[Mapping[str, Any]]]) -> dict[str, Any]:
    """The answer about each group, or its error; all in one call where none of them fails."""
    if not names:
        return {}
    try:
        return dict(await ask(names))
    except KafkaError as error:
        if _is_of_all(error):
            return dict.fromkeys(names, error)
    # One group without permission fails the call for all: then each by itself.
    found: dict[str, Any] = {}
    for position, name in enumerate(names):
        try:
            found |= await ask([name])
        except KafkaError as error:
            if _is_of_all(error):
                return found | dict.fromkeys(names[position:], error)
            found[name] = error
    return found


def _is_of_all(error: KafkaError) -> bool:
    """Whether one call by group would fail as well. The client retries a retriable error until its time-out."""
    return cluster_is_away(error) or isinstance(error, (RetriableError, UnsupportedVersionError))


def _known(offset: int) -> int | None:
    return offset if offset >= 0 else None


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
