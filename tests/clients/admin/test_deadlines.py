"""The time of an admin call is that of its requests: what the client waits, and what the broker is told to wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID

import pytest

from kafkapy.clients.admin.configs import ConfigResource
from kafkapy.clients.admin.core import AdminCore
from kafkapy.clients.cluster import BrokerNode
from kafkapy.clients.network_client import RequestOf
from kafkapy.config.admin import ADMIN
from kafkapy.config.clients import ClientConfig
from kafkapy.errors import ClusterAuthorizationFailedError, KafkaError
from kafkapy.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kafkapy.types import ConfigResourceType, CoordinatorType, OffsetAndMetadata, TopicPartition

CALL_MS, API_MS, REQUEST_MS = 700, 5_000, 30_000
T0 = TopicPartition("t", 0)
Call = Callable[..., Coroutine[Any, Any, Any]]

WITH_A_TIME: dict[str, Call] = {
    "create_topics": lambda core, **time: core.create_topics(["t"], **time),
    "delete_topics": lambda core, **time: core.delete_topics(["t"], **time),
    "create_partitions": lambda core, **time: core.create_partitions({"t": 3}, **time),
    "delete_records": lambda core, **time: core.delete_records({T0: 1}, **time),
    "list_partition_offsets": lambda core, **time: core.list_partition_offsets({T0: -1}, **time),
    "elect_leaders": lambda core, **time: core.elect_leaders("preferred", {"t": [0]}, **time),
    "elect_leaders of a topic": lambda core, **time: core.elect_leaders("preferred", ["t"], **time),
    "alter_partition_reassignments": lambda core, **time: core.alter_partition_reassignments({T0: [1]}, **time),
    "list_partition_reassignments": lambda core, **time: core.list_partition_reassignments(None, **time),
    "update_features": lambda core, **time: core.update_features({"f": 1}, **time),
    "add_raft_voter": lambda core, **time: core.add_raft_voter(1, UUID(int=1), [("C", "h", 1)], **time),
    "remove_raft_voter": lambda core, **time: core.remove_raft_voter(1, UUID(int=1), **time),
}
TOPIC = ConfigResource(ConfigResourceType.TOPIC, "t")
WITHOUT: dict[str, Call] = {
    "describe_cluster": lambda core: core.describe_cluster(),
    "describe_topics": lambda core: core.describe_topics(["t"]),
    "describe_configs": lambda core: core.describe_configs([TOPIC]),
    "list_groups": lambda core: core.list_groups(),
    "describe_groups": lambda core: core.describe_groups(["g"]),
    "delete_groups": lambda core: core.delete_groups(["g"]),
    "list_group_offsets": lambda core: core.list_group_offsets({"g": None}),
    "alter_group_offsets": lambda core: core.alter_group_offsets("g", {T0: OffsetAndMetadata(1)}),
    "describe_log_dirs": lambda core: core.describe_log_dirs(),
}


class Cluster:
    """One broker, which is the controller."""

    controller_id = 1

    def brokers(self) -> dict[int, BrokerNode]:
        return {1: BrokerNode(1, "host", 9092, None)}

    async def refresh(self) -> None:
        """It stays the same."""


class Refusing:
    """Tells where leaders are, and refuses all else. `asked`: requests, and how many ms each might take."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.asked: list[tuple[Any, int]] = []

    def least_loaded_node(self) -> int:
        return 1

    async def version(self, node: int, api_key: int, low: int, high: int) -> int:
        return high

    async def send(self, node: int, given: RequestOf, **options: Any) -> Any:
        request = given.build(options["max_version"])
        self.asked.append((request, options["timeout_ms"]))
        if not isinstance(request, MetadataRequest):
            raise ClusterAuthorizationFailedError
        kind = MetadataResponse.Topic
        partition = kind.Partition(partition_index=0, leader_id=1, replica_nodes=[1], isr_nodes=[1])
        return MetadataResponse(brokers=[], topics=[kind(name="t", partitions=[partition])])

    async def close(self) -> None:
        """Holds nothing."""


class Lookup:
    """Every coordinator is the one broker."""

    def __init__(self) -> None:
        self.limits: list[int] = []

    async def find(self, key: str, kind: CoordinatorType, timeout_ms: int) -> int:
        self.limits.append(timeout_ms)
        return 1

    def invalidate(self, key: str, kind: CoordinatorType) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """Holds nothing."""


def limits(call: Call, **time: int) -> list[int]:
    """All times in ms that the call's requests had, on this side and in what they tell the broker."""
    network, lookup = Refusing(), Lookup()
    core = AdminCore(ClientConfig(ADMIN, {"default.api.timeout.ms": API_MS, "request.timeout.ms": REQUEST_MS}))
    core.network, core.lookup, core._started = network, lookup, True  # type: ignore[assignment]

    async def run() -> None:
        try:
            await call(core, **time)
        except KafkaError:
            return

    asyncio.run(run())
    assert network.asked
    found = [limit for _, limit in network.asked] + lookup.limits
    found += [request.timeout_ms for request, _ in network.asked if hasattr(request, "timeout_ms")]
    return found


@pytest.mark.parametrize("name", WITH_A_TIME)
def test_the_time_of_a_call_is_the_limit_of_its_requests(name: str) -> None:
    assert all(0 < limit <= CALL_MS for limit in limits(WITH_A_TIME[name], timeout_ms=CALL_MS))


@pytest.mark.parametrize("name", sorted(WITH_A_TIME.keys() - {"update_features"}))
def test_a_call_without_a_time_has_that_of_the_client(name: str) -> None:
    found = limits(WITH_A_TIME[name])
    assert all(CALL_MS < limit <= API_MS for limit in found), found


@pytest.mark.parametrize("name", WITHOUT)
def test_calls_that_take_no_time_have_that_of_the_client(name: str) -> None:
    found = limits(WITHOUT[name])
    assert all(CALL_MS < limit <= API_MS for limit in found), found


@pytest.mark.parametrize("name", sorted(WITH_A_TIME.keys() - {"update_features"}))
def test_no_request_takes_longer_than_the_request_timeout(name: str) -> None:
    found = limits(WITH_A_TIME[name], timeout_ms=10 * REQUEST_MS)
    assert all(API_MS < limit <= REQUEST_MS for limit in found), found
