"""CoordinatorLookup: versions, retries, errors, shared questions, and the connection of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from clients.connected import client
from clients.fake_broker import FakeCluster, eventually

from kafkapy.clients.coordinator_lookup import GROUP_CONNECTIONS, CoordinatorLookup
from kafkapy.errors import ErrorCode, GroupAuthorizationFailedError, KafkaTimeoutError
from kafkapy.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kafkapy.protocol.messages.list_groups import ListGroupsRequest
from kafkapy.protocol.registry import ApiKeys
from kafkapy.testing.broker_process import BrokerProcess
from kafkapy.types import CoordinatorType

Run = Callable[[Any], Any]
GROUP, TRANSACTION = CoordinatorType.GROUP, CoordinatorType.TRANSACTION


def coordinators(cluster: FakeCluster, *answers: int) -> None:
    """Each broker answers with these in turn: a node id, or an error code below 0 (negated); the last one stays."""
    left = list(answers)

    def handler(version: int, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        answer = left.pop(0) if len(left) > 1 else left[0]
        error, node_id = (-answer, -1) if answer < 0 else (0, answer)
        port = cluster[node_id].port if node_id > 0 else -1
        if version < 4:
            return FindCoordinatorResponse(error_code=error, node_id=node_id, host="127.0.0.1", port=port)
        [key] = request.coordinator_keys
        found = FindCoordinatorResponse.Coordinator(
            key=key, node_id=node_id, host="127.0.0.1", port=port, error_code=error
        )
        return FindCoordinatorResponse(coordinators=[found])

    for broker in cluster.brokers.values():
        broker.on[ApiKeys.FIND_COORDINATOR] = handler


def questions(cluster: FakeCluster) -> list[FindCoordinatorRequest]:
    return [request for broker in cluster.brokers.values() for request in broker.seen(ApiKeys.FIND_COORDINATOR)]


def test_the_coordinators_of_a_real_broker(broker: BrokerProcess, run: Run) -> None:
    async def scenario() -> None:
        async with client(broker.bootstrap) as network:
            lookup = CoordinatorLookup(network)
            assert await lookup.find("group", GROUP) == GROUP_CONNECTIONS - 1
            assert await lookup.find("transaction", TRANSACTION) == 1
            response = await network.send(GROUP_CONNECTIONS - 1, ListGroupsRequest())
            assert response.error_code == 0
            assert network.metrics.connection_count == 2, "a group's coordinator has a connection of its own"
            assert await CoordinatorLookup(network, own_connections=False).find("group", GROUP) == 1

    run(scenario())


@pytest.mark.parametrize("newest", [0, 2, 3, 4, 6])
def test_every_version(run: Run, newest: int) -> None:
    async def scenario() -> None:
        async with FakeCluster(2) as cluster:
            coordinators(cluster, 2)
            for broker in cluster.brokers.values():
                broker.versions[ApiKeys.FIND_COORDINATOR] = (0, newest)
            async with client(cluster.bootstrap) as network:
                assert await CoordinatorLookup(network).find("g", GROUP) == GROUP_CONNECTIONS - 2

    run(scenario())


def test_it_asks_until_there_is_one_and_remembers_it(run: Run) -> None:
    async def scenario() -> None:
        async with FakeCluster(2) as cluster:
            coordinators(cluster, -ErrorCode.COORDINATOR_NOT_AVAILABLE, -ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 1, 2)
            async with client(cluster.bootstrap) as network:
                lookup = CoordinatorLookup(network, own_connections=False)
                assert lookup.known("g", GROUP) is None
                assert await lookup.find("g", GROUP) == 1
                assert await lookup.find("g", GROUP) == lookup.known("g", GROUP) == 1
                assert len(questions(cluster)) == 3
                lookup.invalidate("g", GROUP)
                lookup.invalidate("g", GROUP)
                assert await lookup.find("g", GROUP) == 2

    run(scenario())


def test_one_question_for_concurrent_callers(run: Run) -> None:
    async def scenario() -> None:
        async with FakeCluster() as cluster:
            coordinators(cluster, 1)
            async with client(cluster.bootstrap) as network:
                lookup = CoordinatorLookup(network, own_connections=False)
                callers = [asyncio.ensure_future(lookup.find("g", GROUP)) for _ in range(10)]
                await asyncio.sleep(0)
                callers[0].cancel()
                assert await asyncio.gather(*callers[1:]) == [1] * 9
                assert len(questions(cluster)) == 1

    run(scenario())


def test_errors_that_no_retry_mends(run: Run) -> None:
    async def scenario() -> None:
        async with FakeCluster() as cluster:
            coordinators(cluster, -ErrorCode.GROUP_AUTHORIZATION_FAILED, 1)
            async with client(cluster.bootstrap) as network:
                lookup = CoordinatorLookup(network, own_connections=False)
                with pytest.raises(GroupAuthorizationFailedError):
                    await lookup.find("g", GROUP)
                assert await lookup.find("g", GROUP) == 1, "it is asked anew"

    run(scenario())


def test_a_coordinator_that_is_not_found_in_time(run: Run) -> None:
    async def scenario() -> None:
        async with FakeCluster() as cluster:
            coordinators(cluster, -ErrorCode.COORDINATOR_NOT_AVAILABLE)
            async with client(cluster.bootstrap) as network:
                lookup = CoordinatorLookup(network)
                with pytest.raises(KafkaTimeoutError, match="coordinator of group 'g' was not found within 50 ms"):
                    await lookup.find("g", GROUP, timeout_ms=50)
                lookup.close()
                await eventually(lambda: not lookup._asking)

    run(scenario())


def test_it_goes_on_while_brokers_cannot_be_reached(run: Run) -> None:
    async def scenario() -> None:
        async with FakeCluster() as cluster:
            coordinators(cluster, 1)
            async with client(cluster.bootstrap) as network:
                await cluster[1].stop()
                lookup = CoordinatorLookup(network, own_connections=False)
                caller = asyncio.ensure_future(lookup.find("g", GROUP))
                await asyncio.sleep(0.05)
                assert not caller.done()
                await cluster[1].start()
                assert await caller == 1

    run(scenario())
