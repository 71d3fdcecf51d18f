"""A consumer's core with nothing but its group, and a coordinator that answers as a test says."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, Literal

from clients.fake_broker import Cut, FakeBroker, FakeCluster, eventually

from kafkapy._speedups.clients.consumer.record_iterator import FetchBuffer
from kafkapy.clients.consumer.membership import Membership, make_membership
from kafkapy.clients.consumer.membership.commits import OffsetCommitter
from kafkapy.clients.consumer.membership.protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from kafkapy.clients.consumer.subscription import OffsetReset, SubscriptionState
from kafkapy.clients.network_client import NetworkClient
from kafkapy.config.clients import ClientConfig
from kafkapy.config.consumer import CONSUMER
from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from kafkapy.protocol.messages.find_coordinator import FindCoordinatorResponse
from kafkapy.protocol.messages.heartbeat import HeartbeatResponse
from kafkapy.protocol.messages.join_group import JoinGroupResponse
from kafkapy.protocol.messages.leave_group import LeaveGroupResponse
from kafkapy.protocol.messages.offset_commit import OffsetCommitResponse
from kafkapy.protocol.messages.offset_fetch import OffsetFetchResponse
from kafkapy.protocol.messages.sync_group import SyncGroupResponse
from kafkapy.protocol.registry import ApiKeys
from kafkapy.types import OffsetAndMetadata, TopicPartition

Run = Callable[[Any], Any]

FIND, COMMIT = ApiKeys.FIND_COORDINATOR, ApiKeys.OFFSET_COMMIT
JOIN, SYNC, HEARTBEAT, LEAVE = ApiKeys.JOIN_GROUP, ApiKeys.SYNC_GROUP, ApiKeys.HEARTBEAT, ApiKeys.LEAVE_GROUP
COOPERATIVE = {"partition.assignment.strategy": "cooperative-sticky"}

GROUP = "orders"
VERSIONS = {
    ApiKeys.OFFSET_COMMIT: (2, 10),
    ApiKeys.OFFSET_FETCH: (1, 10),
    ApiKeys.JOIN_GROUP: (0, 9),
    ApiKeys.HEARTBEAT: (0, 4),
    ApiKeys.LEAVE_GROUP: (0, 5),
    ApiKeys.SYNC_GROUP: (0, 5),
    ApiKeys.CONSUMER_GROUP_HEARTBEAT: (0, 1),
}


def tps(text: str) -> set[TopicPartition]:
    """Partitions of "a0 a1 b0"."""
    return {TopicPartition(each[0], int(each[1:])) for each in text.split()}


def shown(partitions: Iterable[TopicPartition]) -> str:
    return " ".join(f"{each.topic}{each.partition}" for each in sorted(partitions))


class FakeCore:
    """`events` is what the user has been told, `errors` what polls would raise. While `absent` nobody polls."""

    def __init__(self, config: ClientConfig) -> None:
        self.config = config
        self.network = NetworkClient(config)
        buffer = FetchBuffer(lambda: None, lambda: None)
        self.subscription = SubscriptionState(OffsetReset.of("earliest"), buffer.partition)
        self.committer: OffsetCommitter | None = OffsetCommitter(self)
        self.auto_commit = False
        self.tells_every_rebalance = False
        self.positions: dict[TopicPartition, OffsetAndMetadata] = {}
        self.events: list[tuple[str, str]] = []
        self.errors: list[Exception] = []
        self.absent = False
        self.in_listener: Callable[[], Any] | None = None
        self.membership: Membership | None = None

    @property
    def commits(self) -> OffsetCommitter:
        assert self.committer is not None
        return self.committer

    @property
    def member(self) -> Any:
        assert self.membership is not None
        return self.membership

    def poll(self) -> None:
        self.absent = False
        self.member.poll_called()

    def positions_to_commit(self) -> dict[TopicPartition, OffsetAndMetadata]:
        return {each: position for each, position in self.positions.items() if each in self.subscription.assigned}

    async def prepare_revocation(self, partitions: set[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        await eventually(lambda: not self.absent)
        self.subscription.mark_pending_revocation(partitions)
        return {each: position for each, position in self.positions_to_commit().items() if each in partitions}

    async def run_listener(self, kind: Literal["revoked", "assigned", "lost"], partitions: set[TopicPartition]) -> None:
        await eventually(lambda: not self.absent)
        self.events.append((kind, shown(partitions)))
        if self.in_listener is not None:
            await self.in_listener()
        self.subscription.callback_done(partitions)

    def group_topics_changed(self, topics: Iterable[str]) -> None:
        self.subscription.group_topics = frozenset(topics)
        self.network.cluster.want(self.subscription.metadata_topics)

    def report(self, error: Exception) -> None:
        self.errors.append(error)

    def need_poll(self) -> None: ...

    def wake_fetcher(self) -> None: ...


class FakeGroup:
    """The coordinator, on broker 1. It answers well, unless `refuse` says otherwise.

    For it the consumer is the only member; with `leader` set, that one leads, and has assigned `assignment`.
    """

    def __init__(self, cluster: FakeCluster) -> None:
        self.broker: FakeBroker = cluster[1]
        self.cluster = cluster
        self.generation = 0
        self.members = 0
        self.leader: str | None = None
        self.assignment: str | None = None
        self.others: dict[str, Subscription] = {}
        """Members that the consumer leads."""
        self.skip_assignment = False
        self.assignments: list[dict[str, str]] = []
        """What the consumer has assigned, as the leader."""
        self.committed: dict[tuple[str, int], int] = {}
        self.committed_epochs: dict[tuple[str, int], int] = {}
        self.target: str | None = None
        """Of the consumer protocol: told with the next heartbeat."""
        self.given_ids: list[str | None] = []
        """Member ids of the next answers to heartbeats; then as the member says."""
        self.epoch = 0
        self.heartbeat_interval_ms = 20
        self._refusals: dict[int, list[int]] = {}
        self.broker.versions |= VERSIONS
        self.broker.on |= {
            ApiKeys.FIND_COORDINATOR: self._find,
            ApiKeys.JOIN_GROUP: self._join,
            ApiKeys.SYNC_GROUP: self._sync,
            ApiKeys.HEARTBEAT: self._heartbeat,
            ApiKeys.LEAVE_GROUP: self._leave,
            ApiKeys.OFFSET_COMMIT: self._commit,
            ApiKeys.OFFSET_FETCH: self._fetch,
            ApiKeys.CONSUMER_GROUP_HEARTBEAT: self._group_heartbeat,
        }

    def refuse(self, api_key: int, *codes: int) -> None:
        """The next requests of that API are answered so; 0 is an answer as always, -99 a cut."""
        self._refusals.setdefault(api_key, []).extend(codes)

    def seen(self, api_key: int) -> list[Any]:
        return self.broker.seen(api_key)

    def order(self, *api_keys: int) -> list[int]:
        return [key for key, _, _ in self.broker.requests if key in api_keys]

    def _refusal(self, api_key: int) -> int:
        codes = self._refusals.get(api_key)
        code = codes.pop(0) if codes else 0
        if code == -99:
            raise Cut
        return code

    def _find(self, version: int, request: Any) -> FindCoordinatorResponse:
        code, port = self._refusal(ApiKeys.FIND_COORDINATOR), self.broker.port
        if version < 4:
            return FindCoordinatorResponse(error_code=code, node_id=1, host="127.0.0.1", port=port)
        [key] = request.coordinator_keys
        found = FindCoordinatorResponse.Coordinator(key=key, node_id=1, host="127.0.0.1", port=port, error_code=code)
        return FindCoordinatorResponse(coordinators=[found])

    def _join(self, version: int, request: Any) -> JoinGroupResponse:
        code = self._refusal(ApiKeys.JOIN_GROUP)
        if not code and not request.member_id and not request.group_instance_id and version >= 4:
            code = ErrorCode.MEMBER_ID_REQUIRED
        member_id = request.member_id
        if not member_id:
            self.members += 1
            member_id = f"m{self.members}"
        if code:
            given = member_id if code == ErrorCode.MEMBER_ID_REQUIRED else ""
            return JoinGroupResponse(error_code=code, member_id=given, protocol_name="", leader="", members=[])
        self.generation += 1
        leader = self.leader or member_id
        chosen = request.protocols[0]
        members = [JoinGroupResponse.Member(member_id=member_id, metadata=chosen.metadata)]
        for other, subscription in self.others.items():
            members.append(JoinGroupResponse.Member(member_id=other, metadata=encode_subscription(subscription)))
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type="consumer" if version >= 7 else None,
            protocol_name=chosen.name,
            leader=leader,
            member_id=member_id,
            skip_assignment=self.skip_assignment,
            members=members if leader == member_id else [],
        )

    def _sync(self, version: int, request: Any) -> SyncGroupResponse:
        code = self._refusal(ApiKeys.SYNC_GROUP)
        if code:
            return SyncGroupResponse(error_code=code, assignment=b"")
        given = {each.member_id: each.assignment for each in request.assignments}
        if given:
            self.assignments.append({key: shown(decode_assignment(each).partitions) for key, each in given.items()})
        mine = given.get(request.member_id, b"")
        if self.assignment is not None:
            mine = encode_assignment(Assignment(tuple(sorted(tps(self.assignment)))))
        return SyncGroupResponse(assignment=mine)

    def _heartbeat(self, version: int, request: Any) -> HeartbeatResponse:
        return HeartbeatResponse(error_code=self._refusal(ApiKeys.HEARTBEAT))

    def _leave(self, version: int, request: Any) -> LeaveGroupResponse:
        return LeaveGroupResponse(error_code=self._refusal(ApiKeys.LEAVE_GROUP))

    def _name(self, topic: Any) -> str:
        names = {topic_id: name for name, topic_id in self.cluster.topic_ids.items()}
        return names.get(topic.topic_id, topic.name)

    def _commit(self, version: int, request: Any) -> OffsetCommitResponse:
        code = self._refusal(ApiKeys.OFFSET_COMMIT)
        topics = []
        for topic in request.topics:
            partitions = []
            for each in topic.partitions:
                if not code:
                    place = self._name(topic), each.partition_index
                    self.committed[place] = each.committed_offset
                    self.committed_epochs[place] = each.committed_leader_epoch
                partitions.append(
                    OffsetCommitResponse.Topic.Partition(partition_index=each.partition_index, error_code=code)
                )
            topics.append(OffsetCommitResponse.Topic(name=topic.name, topic_id=topic.topic_id, partitions=partitions))
        return OffsetCommitResponse(topics=topics)

    def _fetch(self, version: int, request: Any) -> OffsetFetchResponse:
        code = self._refusal(ApiKeys.OFFSET_FETCH)
        of_partition = code if code in (ErrorCode.UNSTABLE_OFFSET_COMMIT, ErrorCode.TOPIC_AUTHORIZATION_FAILED) else 0
        if version < 8:
            topics = [
                OffsetFetchResponse.Topic(
                    name=topic.name,
                    partitions=[
                        OffsetFetchResponse.Topic.Partition(
                            partition_index=number,
                            committed_offset=self.committed.get((topic.name, number), -1),
                            committed_leader_epoch=self.committed_epochs.get((topic.name, number), -1),
                            metadata="",
                            error_code=of_partition,
                        )
                        for number in topic.partition_indexes
                    ],
                )
                for topic in request.topics
            ]
            return OffsetFetchResponse(topics=topics, error_code=0 if of_partition else code)
        [group] = request.groups
        kind = OffsetFetchResponse.Group.Topic
        found = [
            kind(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    kind.Partition(
                        partition_index=number,
                        committed_offset=self.committed.get((self._name(topic), number), -1),
                        committed_leader_epoch=self.committed_epochs.get((self._name(topic), number), -1),
                        metadata="",
                        error_code=of_partition,
                    )
                    for number in topic.partition_indexes
                ],
            )
            for topic in group.topics
        ]
        error = 0 if of_partition else code
        return OffsetFetchResponse(
            groups=[OffsetFetchResponse.Group(group_id=group.group_id, topics=found, error_code=error)]
        )

    def _group_heartbeat(self, version: int, request: Any) -> ConsumerGroupHeartbeatResponse:
        code = self._refusal(ApiKeys.CONSUMER_GROUP_HEARTBEAT)
        if code:
            return ConsumerGroupHeartbeatResponse(
                error_code=code, error_message="no", member_epoch=0, heartbeat_interval_ms=0
            )
        if request.member_epoch < 0:
            return ConsumerGroupHeartbeatResponse(member_epoch=request.member_epoch, heartbeat_interval_ms=0)
        assignment = None
        if request.member_epoch == 0 or self.target is not None:
            self.epoch += 1
            by_topic: dict[Any, list[int]] = {}
            for each in sorted(tps(self.target or "")):
                by_topic.setdefault(self.cluster.topic_ids[each.topic], []).append(each.partition)
            kind = ConsumerGroupHeartbeatResponse.Assignment
            assignment = kind(
                topic_partitions=[
                    kind.TopicPartitions(topic_id=topic_id, partitions=numbers)
                    for topic_id, numbers in by_topic.items()
                ]
            )
            self.target = None
        return ConsumerGroupHeartbeatResponse(
            member_id=self.given_ids.pop(0) if self.given_ids else request.member_id,
            member_epoch=self.epoch,
            heartbeat_interval_ms=self.heartbeat_interval_ms,
            assignment=assignment,
        )


def subscriptions(request: Any) -> dict[str, Subscription]:
    """What a JoinGroup says for each of its protocols."""
    return {each.name: decode_subscription(each.metadata) for each in request.protocols}


async def joined(core: FakeCore) -> None:
    """Returns when it is a member with an assignment."""
    if not core.member._tasks:
        await core.member.start()
    await eventually(lambda: core.member.ready)


def commits_all(core: FakeCore, offset: int) -> None:
    """With auto commit, at this offset of every partition."""
    core.auto_commit = True
    core.positions = {each: OffsetAndMetadata(offset) for each in tps("a0 a1 a2 b0 b1 b2")}


async def commit(core: FakeCore) -> None:
    """As the user does, offset 3 of one partition."""
    await core.commits.commit({each: OffsetAndMetadata(3) for each in tps("a0")})


@asynccontextmanager
async def group(topics: str = "a", **keys: object) -> AsyncIterator[tuple[FakeCore, FakeGroup]]:
    """A core that is subscribed to topics with three partitions each, and its coordinator. It is not started yet."""
    async with FakeCluster() as cluster:
        for topic in "abc":
            cluster.create(topic, dict.fromkeys(range(3), (1, 0)))
        config = ClientConfig(
            CONSUMER,
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": GROUP,
                "heartbeat.interval.ms": 20,
                "session.timeout.ms": 5000,
                "retry.backoff.ms": 5,
                "retry.backoff.max.ms": 20,
                # Over before a request is tried again: whom it is too early to connect to is looked up once more.
                "reconnect.backoff.ms": 1,
                "reconnect.backoff.max.ms": 2,
                "default.api.timeout.ms": 10000,
            }
            | keys,
        )
        core = FakeCore(config)
        await core.network.start()
        core.subscription.subscribe(topics.split(), None)
        core.network.cluster.want(core.subscription.topics)
        await core.network.cluster.refresh()
        core.membership = make_membership(core)
        coordinator = FakeGroup(cluster)
        try:
            yield core, coordinator
        finally:
            if core.member._tasks:
                with contextlib.suppress(asyncio.TimeoutError):
                    async with asyncio.timeout(5):
                        await core.member.leave("the test is over")
            await core.network.close()
