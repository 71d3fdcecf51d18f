"""A broker whose groups do not wait for more members, and clients that act as members."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafkapy.broker.server import KafkaServer
from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkapy.protocol.messages.heartbeat import HeartbeatRequest
from kafkapy.protocol.messages.join_group import JoinGroupRequest
from kafkapy.protocol.messages.leave_group import LeaveGroupRequest
from kafkapy.protocol.messages.offset_commit import OffsetCommitRequest
from kafkapy.protocol.messages.offset_fetch import OffsetFetchRequest
from kafkapy.protocol.messages.sync_group import SyncGroupRequest
from kafkapy.security.authorizer.base import AuthorizationResult
from kafkapy.types import ResourceType

_names = itertools.count(1)


class GroupClient:
    """A connection with short forms of the group requests, in any version; fields may be given by name."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def __call__(self, request: Any, version: int) -> Any:
        return self.client(request, version)

    def coordinate(self, group: str) -> None:
        """Have the broker coordinate the group: its topic is created, and its partition is loaded."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            found = self(FindCoordinatorRequest(key=group, key_type=0), 1)
            if found.error_code == ErrorCode.NONE:
                fetched = self(OffsetFetchRequest(group_id=group, topics=None), 7)
                if fetched.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                    return
            time.sleep(0.01)
        raise TimeoutError(group)

    def join(self, group: str, member: str = "", version: int = 9, **fields: Any) -> Any:
        request = JoinGroupRequest(
            **{
                "group_id": group,
                "session_timeout_ms": 30_000,
                "rebalance_timeout_ms": 30_000,
                "member_id": member,
                "protocol_type": "consumer",
                "protocols": [JoinGroupRequest.Protocol(name="range", metadata=b"\0\0\0\0\0\0\xff\xff\xff\xff")],
                **fields,
            }
        )
        response = self(request, version)
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            request.member_id = response.member_id
            response = self(request, version)
        return response

    def sync(self, group: str, joined: Any, version: int = 5, **fields: Any) -> Any:
        named = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
        request = SyncGroupRequest(
            **{
                "group_id": group,
                "generation_id": joined.generation_id,
                "member_id": joined.member_id,
                "assignments": [
                    SyncGroupRequest.Assignment(member_id=each.member_id, assignment=b"assigned")
                    for each in joined.members
                ],
                **named,
                **fields,
            }
        )
        return self(request, version)

    def heartbeat(self, group: str, joined: Any, version: int = 4) -> ErrorCode:
        request = HeartbeatRequest(group_id=group, generation_id=joined.generation_id, member_id=joined.member_id)
        return ErrorCode(self(request, version).error_code)

    def leave(self, group: str, *members: str, version: int = 5) -> Any:
        if version < 3:
            return self(LeaveGroupRequest(group_id=group, member_id=members[0]), version)
        named = [LeaveGroupRequest.Member(member_id=each) for each in members]
        return self(LeaveGroupRequest(group_id=group, members=named), version)

    def commit(self, group: str, topic: str, offsets: dict[int, int], version: int = 8, **fields: Any) -> list[int]:
        partition = OffsetCommitRequest.Topic.Partition
        parts = [
            partition(partition_index=index, committed_offset=offset, committed_metadata="note")
            for index, offset in offsets.items()
        ]
        named = {"topic_id": fields.pop("topic_id")} if "topic_id" in fields else {"name": topic}
        request = OffsetCommitRequest(
            group_id=group, topics=[OffsetCommitRequest.Topic(partitions=parts, **named)], **fields
        )
        return [each.error_code for each in self(request, version).topics[0].partitions]

    def stable(self, group: str, **fields: Any) -> Any:
        """Join and sync as the only member; the JoinGroup response."""
        self.coordinate(group)
        joined = self.join(group, **fields)
        assert joined.error_code == ErrorCode.NONE, joined
        assert self.sync(group, joined).error_code == ErrorCode.NONE
        return joined


@pytest.fixture(scope="module")
def groups_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """One broker for all tests of groups in a module; they use groups and topics of their own."""
    from kafkapy.config.broker import BrokerConfig
    from kafkapy.config.properties import Properties

    keys = [
        "broker.id=1",
        "listeners=PLAINTEXT://127.0.0.1:0",
        f"log.dirs={tmp_path_factory.mktemp('groups')}",
        "num.network.threads=1",
        "group.initial.rebalance.delay.ms=0",
        "offsets.topic.replication.factor=1",
        "offsets.topic.num.partitions=3",
        "share.coordinator.state.topic.replication.factor=1",
        "share.coordinator.state.topic.min.isr=1",
        "share.coordinator.state.topic.num.partitions=3",
    ]
    with KafkaServer(BrokerConfig.from_properties(Properties().override(keys))) as server:
        yield server


@pytest.fixture
def group_client(groups_broker: KafkaServer, connect: Callable[..., Any]) -> GroupClient:
    """A connection to that broker."""
    return GroupClient(connect(groups_broker))


@pytest.fixture
def other_client(groups_broker: KafkaServer, connect: Callable[..., Any]) -> GroupClient:
    """Another one."""
    return GroupClient(connect(groups_broker))


@pytest.fixture
def group_name() -> str:
    """A group that no other test uses."""
    return f"group-{next(_names)}"


class Denying:
    """Denies everything on the resources named."""

    decisions_epoch = 1

    def __init__(self, *denied: tuple[ResourceType, str]) -> None:
        self.denied = set(denied)

    def authorize(self, context: Any, actions: Any) -> list[AuthorizationResult]:
        return [
            AuthorizationResult.DENIED
            if (action.resource_type, action.resource_name) in self.denied
            else AuthorizationResult.ALLOWED
            for action in actions
        ]


@pytest.fixture
def deny(groups_broker: KafkaServer) -> Iterator[Callable[..., None]]:
    """Have the broker of the groups deny everything on some (resource type, name)."""
    before = groups_broker.context.authorizer

    def use(*denied: tuple[ResourceType, str]) -> None:
        groups_broker.context.authorizer = Denying(*denied)  # type: ignore[assignment]

    yield use
    groups_broker.context.authorizer = before


@pytest.fixture(scope="module")
def sasl_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """One broker with a SASL listener for all tests of a module."""
    from broker.sasl_broker import sasl_config

    with KafkaServer(sasl_config(tmp_path_factory.mktemp("sasl"))) as server:
        yield server


@pytest.fixture
def sasl_connect(sasl_broker: KafkaServer) -> Iterator[Callable[..., Any]]:
    """Opens connections to that broker; those of a user have logged in by PLAIN."""
    from broker.sasl_broker import logged_in, open_connection

    opened: list[Any] = []

    def make(user: str | None = None) -> Any:
        opened.append(open_connection(sasl_broker) if user is None else logged_in(sasl_broker, user))
        return opened[-1]

    yield make
    for client in opened:
        client.close()
