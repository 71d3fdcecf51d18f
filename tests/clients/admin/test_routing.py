"""Which broker an admin request goes to, and when it is sent again: against a network that answers as told."""

from __future__ import annotations

import asyncio
import gc
import time
from collections import deque
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from kafkapy.clients import connections
from kafkapy.clients.admin.core import AdminCore
from kafkapy.clients.admin.shapes import PIECE
from kafkapy.clients.admin.topics import NewTopic
from kafkapy.clients.cluster import BrokerNode
from kafkapy.clients.connections import LARGE_BYTES, Connections
from kafkapy.clients.network_client import RequestOf
from kafkapy.config.admin import ADMIN
from kafkapy.config.clients import ClientConfig
from kafkapy.errors import (
    ErrorCode,
    IllegalStateError,
    KafkaConnectionError,
    NoError,
    NotControllerError,
    NotLeaderForPartitionError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from kafkapy.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from kafkapy.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from kafkapy.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from kafkapy.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from kafkapy.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kafkapy.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from kafkapy.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kafkapy.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kafkapy.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from kafkapy.protocol.schema import Request
from kafkapy.types import CoordinatorType, ListOffsetsTimestamp, OffsetAndMetadata, TopicPartition

Answer = Any


class FakeCluster:
    """Brokers 1 to 3, of which the controller is the first of a list that every refresh takes one from."""

    def __init__(self, controllers: list[int]) -> None:
        self.controllers = deque(controllers)
        self.controller_id = self.controllers[0]
        self.refreshes = 0

    def brokers(self) -> dict[int, BrokerNode]:
        return {each: BrokerNode(each, "host", 9092, None) for each in (1, 2, 3)}

    async def refresh(self) -> None:
        self.refreshes += 1
        if len(self.controllers) > 1:
            self.controllers.popleft()
        self.controller_id = self.controllers[0]


class FakeNetwork:
    """Answers each request with the next of the answers told for its class, and keeps what it was asked."""

    def __init__(self, answers: dict[type[Request], list[Answer]], newest: dict[type[Request], int]) -> None:
        self.cluster = FakeCluster([1])
        self.answers = {kind: deque(given) for kind, given in answers.items()}
        self.newest = {kind.API_KEY: version for kind, version in newest.items()}
        self.asked: list[tuple[int, Request, int]] = []
        self.closed = False

    def least_loaded_node(self) -> int:
        return 3

    async def version(self, node: int, api_key: int, low: int, high: int) -> int:
        newest = min(high, self.newest.get(api_key, high))
        if newest < low:
            raise UnsupportedVersionError(f"broker {node} serves api {api_key} up to {newest}")
        return newest

    async def send(self, node: int, given: RequestOf, **options: Any) -> Any:
        version = await self.version(node, given.kind.API_KEY, options["min_version"], options["max_version"])
        request = given.build(version)
        request.encode(version)
        self.asked.append((node, request, version))
        answer = self.answers[type(request)].popleft()
        if isinstance(answer, Exception):
            raise answer
        return answer(node, request) if callable(answer) else answer

    async def close(self) -> None:
        self.closed = True


class FakeLookup:
    """Groups are at broker 2, once they were looked for anew at broker 3."""

    def __init__(self) -> None:
        self.nodes: dict[tuple[str, CoordinatorType], int] = {}
        self.invalidated: list[str] = []

    async def find(self, key: str, kind: CoordinatorType, timeout_ms: int) -> int:
        return self.nodes.setdefault((key, kind), 3 if key in self.invalidated else 2)

    def invalidate(self, key: str, kind: CoordinatorType) -> None:
        self.invalidated.append(key)
        self.nodes.pop((key, kind), None)

    def close(self) -> None:
        self.nodes.clear()


def ask(
    method: Callable[[AdminCore], Coroutine[Any, Any, Any]],
    answers: dict[type[Request], list[Answer]],
    *,
    controllers: list[int] | None = None,
    newest: dict[type[Request], int] | None = None,
    **configs: object,
) -> tuple[Any, FakeNetwork, FakeLookup]:
    """(what the method returned or raised, the network, the lookup)."""
    network, lookup = FakeNetwork(answers, newest or {}), FakeLookup()
    if controllers:
        network.cluster = FakeCluster(controllers)
    config = ClientConfig(ADMIN, {"retry.backoff.ms": 1, "retry.backoff.max.ms": 2, **configs})
    core = AdminCore(config)
    core.network, core.lookup, core._started = network, lookup, True  # type: ignore[assignment]

    async def run() -> Any:
        try:
            return await method(core)
        except Exception as error:
            return error

    return asyncio.run(run()), network, lookup


def created(code: int = 0, name: str = "t", message: str | None = None) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=[CreateTopicsResponse.Topic(name=name, error_code=code, error_message=message)])


def metadata(**leaders: int | None) -> MetadataResponse:
    """Topics with one partition each; None for a topic that is not there."""
    topic_class = MetadataResponse.Topic
    return MetadataResponse(
        brokers=[],
        topics=[
            topic_class(
                name=name,
                error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if leader is None else 0,
                partitions=[]
                if leader is None
                else [topic_class.Partition(partition_index=0, leader_id=leader, replica_nodes=[], isr_nodes=[])],
            )
            for name, leader in leaders.items()
        ],
    )


def offsets(code: int = 0, topic: str = "t", offset: int = 7) -> ListOffsetsResponse:
    topic_class = ListOffsetsResponse.Topic
    partition = topic_class.Partition(partition_index=0, error_code=code, offset=offset, leader_epoch=4)
    return ListOffsetsResponse(topics=[topic_class(name=topic, partitions=[partition])])


def test_a_new_controller_is_looked_for() -> None:
    result, network, _ = ask(
        lambda core: core.create_topics(["t"]),
        {CreateTopicsRequest: [created(ErrorCode.NOT_CONTROLLER), created(ErrorCode.NOT_CONTROLLER), created()]},
        controllers=[1, 1, 2],
    )
    assert [node for node, _, _ in network.asked] == [1, 1, 2]
    assert [topic["error_code"] for topic in result["topics"]] == [0]


def test_an_election_of_the_controller_is_waited_for() -> None:
    result, network, _ = ask(
        lambda core: core.create_topics(["t"]), {CreateTopicsRequest: [created()]}, controllers=[-1, -1, -1, 3]
    )
    assert ([node for node, _, _ in network.asked], len(result["topics"])) == ([3], 1)


def test_what_is_over_its_time_fails_with_the_last_reason() -> None:
    endless = [created(ErrorCode.NOT_CONTROLLER) for _ in range(1000)]
    result, network, _ = ask(
        lambda core: core.create_topics(["t"]), {CreateTopicsRequest: endless}, **{"default.api.timeout.ms": 50}
    )
    assert isinstance(result, NotControllerError)
    assert 1 < len(network.asked) < 1000


def test_a_lost_connection_is_tried_again() -> None:
    result, network, _ = ask(
        lambda core: core.create_topics(["t"]), {CreateTopicsRequest: [KafkaConnectionError("lost"), created()]}
    )
    assert len(network.asked) == 2
    assert result["topics"][0]["name"] == "t"


def test_only_topics_over_the_quota_are_sent_again() -> None:
    both = CreateTopicsResponse(
        topics=[
            CreateTopicsResponse.Topic(name="a"),
            CreateTopicsResponse.Topic(name="b", error_code=ErrorCode.THROTTLING_QUOTA_EXCEEDED),
        ]
    )
    result, network, _ = ask(
        lambda core: core.create_topics(["a", "b"]), {CreateTopicsRequest: [both, created(name="b")]}
    )
    assert [[topic.name for topic in request.topics] for _, request, _ in network.asked] == [["a", "b"], ["b"]]  # type: ignore[attr-defined]
    assert [topic["name"] for topic in result["topics"]] == ["a", "b"]


def test_a_topics_error_is_raised_with_its_name_or_returned() -> None:
    exists = created(ErrorCode.TOPIC_ALREADY_EXISTS, message="Topic 't' is there.")
    result, _, _ = ask(lambda core: core.create_topics([NewTopic("t", 1, 1)]), {CreateTopicsRequest: [exists]})
    assert isinstance(result, TopicAlreadyExistsError)
    assert str(result) == "Topic t: Topic 't' is there."
    result, _, _ = ask(lambda core: core.create_topics(["t"], raise_errors=False), {CreateTopicsRequest: [exists]})
    assert result["topics"][0]["error_code"] == ErrorCode.TOPIC_ALREADY_EXISTS


def test_old_brokers_are_told_names_of_topics_to_delete() -> None:
    response = DeleteTopicsResponse(responses=[DeleteTopicsResponse.TopicResponse(name="t")])
    result, network, _ = ask(
        lambda core: core.delete_topics(["t"]), {DeleteTopicsRequest: [response]}, newest={DeleteTopicsRequest: 3}
    )
    assert network.asked[0][1].topic_names == ["t"]  # type: ignore[attr-defined]
    assert result["topics"][0]["name"] == "t"


def test_leaders_are_asked_and_asked_for_again_when_they_have_moved() -> None:
    result, network, _ = ask(
        lambda core: core.list_partition_offsets({TopicPartition("t", 0): ListOffsetsTimestamp.LATEST}),
        {
            MetadataRequest: [metadata(t=1), metadata(t=2)],
            ListOffsetsRequest: [offsets(ErrorCode.NOT_LEADER_OR_FOLLOWER), offsets()],
        },
    )
    assert [node for node, request, _ in network.asked if isinstance(request, ListOffsetsRequest)] == [1, 2]
    assert result[TopicPartition("t", 0)] == (7, -1, 4)


def test_partitions_of_two_leaders_are_asked_at_both() -> None:
    result, _, _ = ask(
        lambda core: core.list_partition_offsets({TopicPartition("a", 0): 5, TopicPartition("b", 0): 6}),
        {
            MetadataRequest: [metadata(a=1, b=2)],
            ListOffsetsRequest: [lambda node, request: offsets(topic=request.topics[0].name, offset=node)] * 2,
        },
    )
    assert {partition.topic: found.offset for partition, found in result.items()} == {"a": 1, "b": 2}


def test_an_unknown_topic_is_looked_for_twice_and_then_raised() -> None:
    result, network, _ = ask(
        lambda core: core.list_partition_offsets({TopicPartition("t", 0): 5}),
        {MetadataRequest: [metadata(t=None), metadata(t=None)]},
    )
    assert isinstance(result, UnknownTopicOrPartitionError)
    assert str(result) == "The cluster has no topic t."
    assert len(network.asked) == 2


def test_a_new_topic_is_found_at_the_second_look() -> None:
    result, _, _ = ask(
        lambda core: core.list_partition_offsets({TopicPartition("t", 0): 5}),
        {MetadataRequest: [metadata(t=None), metadata(t=1)], ListOffsetsRequest: [offsets()]},
    )
    assert result[TopicPartition("t", 0)].offset == 7


def test_an_error_of_a_partition_is_raised_with_its_name() -> None:
    failed = offsets(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    result, _, _ = ask(
        lambda core: core.list_partition_offsets({TopicPartition("t", 0): 5}),
        {MetadataRequest: [metadata(t=1)], ListOffsetsRequest: [failed]},
    )
    assert (type(result).__name__, str(result).startswith("Partition t-0: ")) == ("TopicAuthorizationFailedError", True)


def test_a_leader_that_stays_elsewhere_is_the_error_in_the_end() -> None:
    result, _, _ = ask(
        lambda core: core.list_partition_offsets({TopicPartition("t", 0): 5}, timeout_ms=30),
        {
            MetadataRequest: [metadata(t=1)] * 1000,
            ListOffsetsRequest: [offsets(ErrorCode.NOT_LEADER_OR_FOLLOWER)] * 1000,
        },
    )
    assert isinstance(result, NotLeaderForPartitionError)


def test_a_place_that_old_brokers_do_not_know_is_an_unsupported_version() -> None:
    result, _, _ = ask(
        lambda core: core.list_partition_offsets({TopicPartition("t", 0): ListOffsetsTimestamp.MAX_TIMESTAMP}),
        {MetadataRequest: [metadata(t=1)]},
        newest={ListOffsetsRequest: 6},
    )
    assert isinstance(result, UnsupportedVersionError)


def test_the_coordinator_of_one_group_is_looked_for_again() -> None:
    def answer(node: int, request: Any) -> DeleteGroupsResponse:
        return DeleteGroupsResponse(
            results=[
                DeleteGroupsResponse.Result(
                    group_id=group, error_code=ErrorCode.NOT_COORDINATOR if (node, group) == (2, "moved") else 0
                )
                for group in request.groups_names
            ]
        )

    result, network, lookup = ask(
        lambda core: core.delete_groups(["here", "moved"]), {DeleteGroupsRequest: [answer, answer]}
    )
    assert result == {"here": "OK", "moved": "OK"}
    assert [(node, request.groups_names) for node, request, _ in network.asked] == [  # type: ignore[attr-defined]
        (2, ["here", "moved"]),
        (3, ["moved"]),
    ]
    assert lookup.invalidated == ["moved"]


def test_old_brokers_are_asked_for_the_offsets_of_one_group_at_a_time() -> None:
    topic_class = OffsetFetchResponse.Topic
    response = OffsetFetchResponse(
        topics=[
            topic_class(
                name="t",
                partitions=[
                    topic_class.Partition(partition_index=0, committed_offset=3, committed_leader_epoch=1, metadata="m")
                ],
            )
        ]
    )
    result, network, _ = ask(
        lambda core: core.list_group_offsets(["a", "b"]),
        {OffsetFetchRequest: [response, response]},
        newest={OffsetFetchRequest: 5},
    )
    assert result == {group: {TopicPartition("t", 0): OffsetAndMetadata(3, "m", 1)} for group in ("a", "b")}
    assert [version for _, _, version in network.asked] == [5, 5]


def test_old_brokers_create_tokens_of_the_client_alone() -> None:
    response = CreateDelegationTokenResponse(
        principal_type="User",
        principal_name="alice",
        issue_timestamp_ms=1,
        expiry_timestamp_ms=2,
        max_timestamp_ms=3,
        token_id="id",
        hmac=b"secret",
    )

    def create(owner: str | None) -> Any:
        given: dict[type[Request], list[Answer]] = {CreateDelegationTokenRequest: [response]}
        newest: dict[type[Request], int] = {CreateDelegationTokenRequest: 2}
        return ask(lambda core: core.create_delegation_token(owner=owner), given, newest=newest)[0]

    made = create(None)
    assert (made.token_id, made.owner, made.requester) == ("id", "User:alice", "User:alice")
    assert isinstance(create("User:bob"), UnsupportedVersionError)


def test_old_brokers_remove_one_member_at_a_time_and_no_static_one() -> None:
    from kafkapy.admin import MemberToRemove

    gone = LeaveGroupResponse(members=[])
    result, network, _ = ask(
        lambda core: core.remove_group_members("g", [MemberToRemove("a"), MemberToRemove("b")]),
        {LeaveGroupRequest: [gone, gone]},
        newest={LeaveGroupRequest: 2},
    )
    assert result == {"a": NoError, "b": NoError}
    assert len(network.asked) == 2
    result, _, _ = ask(
        lambda core: core.remove_group_members("g", [MemberToRemove(group_instance_id="i")]),
        {},
        newest={LeaveGroupRequest: 2},
    )
    assert isinstance(result, UnsupportedVersionError)


def test_configs_of_old_brokers_are_sent_whole() -> None:
    from kafkapy.admin import ConfigResource
    from kafkapy.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
    from kafkapy.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse

    config_class = DescribeConfigsResponse.Result.Config
    given = DescribeConfigsResponse(
        results=[
            DescribeConfigsResponse.Result(
                error_code=0,
                resource_type=2,
                resource_name="t",
                configs=[
                    config_class(name="retention.ms", value="5", read_only=False, is_sensitive=False, config_source=1),
                    config_class(name="segment.ms", value="9", read_only=False, is_sensitive=False, config_source=5),
                    config_class(name="flush.ms", value="8", read_only=False, is_sensitive=False, config_source=1),
                ],
            )
        ]
    )
    done = AlterConfigsResponse(
        responses=[AlterConfigsResponse.ResourceResponse(error_code=0, resource_type=2, resource_name="t")]
    )
    newest = {IncrementalAlterConfigsRequest: -1}
    result, network, _ = ask(
        lambda core: core.alter_configs([ConfigResource("topic", "t", {"flush.ms": "7"})]),
        {DescribeConfigsRequest: [given, given], AlterConfigsRequest: [done]},
        newest=newest,
    )
    assert result == {"topic": {"t": "OK"}}
    sent = network.asked[-1][1].resources[0].configs  # type: ignore[attr-defined]
    assert {each.name: each.value for each in sent} == {"retention.ms": "5", "flush.ms": "7"}
    result, network, _ = ask(
        lambda core: core.reset_configs([ConfigResource("topic", "t", ["flush.ms"])]),
        {DescribeConfigsRequest: [given, given], AlterConfigsRequest: [done]},
        newest=newest,
    )
    sent = network.asked[-1][1].resources[0].configs  # type: ignore[attr-defined]
    assert {each.name: each.value for each in sent} == {"retention.ms": "5"}


def test_values_that_brokers_hide_are_reset_but_never_lost() -> None:
    from kafkapy.admin import ConfigResource
    from kafkapy.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
    from kafkapy.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsResponse

    result_class = DescribeConfigsResponse.Result
    hidden = result_class.Config(
        name="ssl.key.password", value=None, read_only=False, is_sensitive=True, config_source=2
    )
    given = DescribeConfigsResponse(
        results=[result_class(error_code=0, resource_type=4, resource_name="1", configs=[hidden])]
    )
    response_class = IncrementalAlterConfigsResponse.ResourceResponse
    done = IncrementalAlterConfigsResponse(responses=[response_class(error_code=0, resource_type=4, resource_name="1")])
    result, network, _ = ask(
        lambda core: core.reset_configs([ConfigResource("broker", "1")]),
        {DescribeConfigsRequest: [given, given], IncrementalAlterConfigsRequest: [done]},
    )
    assert result == {"broker": {"1": "OK"}}
    (deleted,) = network.asked[-1][1].resources[0].configs  # type: ignore[attr-defined]
    assert (deleted.name, deleted.config_operation) == ("ssl.key.password", 1)
    wanted = [ConfigResource("broker", "1", {"log.cleaner.threads": "2"})]
    result, _, _ = ask(
        lambda core: core.alter_configs(wanted, raise_on_unknown=False),
        {DescribeConfigsRequest: [given]},
        newest={IncrementalAlterConfigsRequest: -1},
    )
    assert isinstance(result, ValueError)
    assert "would reset ssl.key.password" in str(result)


def test_the_search_for_leaders_ends_with_the_calls_time() -> None:
    partition = TopicPartition("t", 0)
    started = time.monotonic()
    result, _, _ = ask(
        lambda core: core.list_partition_offsets({partition: ListOffsetsTimestamp.LATEST}, timeout_ms=100),
        {MetadataRequest: [KafkaConnectionError("gone")] * 2000},
    )
    assert isinstance(result, KafkaConnectionError)
    assert time.monotonic() - started < 2


def test_a_closed_client_says_so() -> None:
    async def close_and_list(core: AdminCore) -> Any:
        await core.close()
        await core.close()
        return await core.list_topics()

    result, network, _ = ask(close_and_list, {})
    assert isinstance(result, IllegalStateError)
    assert network.closed


def large_metadata(topics: int, partitions: int) -> MetadataResponse:
    topic_class = MetadataResponse.Topic
    return MetadataResponse(
        brokers=[],
        topics=[
            topic_class(
                name=f"t{number}",
                partitions=[
                    topic_class.Partition(partition_index=each, leader_id=1, replica_nodes=[1, 2], isr_nodes=[2])
                    for each in range(partitions)
                ],
            )
            for number in range(topics)
        ],
    )


@pytest.mark.parametrize(("topics", "partitions"), [(1, 3 * PIECE), (3 * PIECE // 10, 10)])
def test_other_tasks_run_while_a_large_description_is_made(topics: int, partitions: int) -> None:
    turns: list[bool] = []

    async def describe(core: AdminCore) -> Any:
        async def others() -> None:
            while True:
                turns.append(gc.isenabled())
                await asyncio.sleep(0)

        task = asyncio.ensure_future(others())
        try:
            return await core.describe_topics()
        finally:
            task.cancel()

    found, _, _ = ask(describe, {MetadataRequest: [large_metadata(topics, partitions)]})
    assert [len(topic["partitions"]) for topic in found] == [partitions] * topics
    last = found[-1]["partitions"][-1]
    assert (last["partition_index"], last["replica_nodes"], last["isr_nodes"]) == (partitions - 1, [1, 2], [2])
    assert turns.count(False) >= 2, "the garbage collector rests"
    assert gc.isenabled()


def test_the_garbage_collector_rests_while_a_large_response_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    worked: list[bool] = []

    def decode(key: int, version: int, frame: bytes) -> tuple[int, MetadataResponse]:
        worked.append(gc.isenabled())
        return 0, metadata()

    monkeypatch.setattr(connections, "decode_response", decode)
    for size in (LARGE_BYTES, LARGE_BYTES + 1):
        answer = SimpleNamespace(frame=bytes(size))
        Connections._decoded(None, None, MetadataRequest(), 12, answer)  # type: ignore[arg-type]
    assert worked == [True, False]
    assert gc.isenabled()
