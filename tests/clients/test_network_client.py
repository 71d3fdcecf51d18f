"""NetworkClient against brokers that answer as scripted: versions, back-off, timeouts, cuts, throttling."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop
from clients.connected import client, groups, list_groups
from clients.fake_broker import Cut, FakeCluster, Silence, eventually

from kafkapy._speedups.clients.io.frames import BytesFrame, BytesResponse
from kafkapy.clients.network_client import RequestOf, request_header
from kafkapy.errors import (
    KafkaConnectionError,
    KafkaProtocolError,
    NodeNotReadyError,
    RequestTimedOutError,
    StaleMetadataError,
    UnsupportedVersionError,
)
from kafkapy.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from kafkapy.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kafkapy.protocol.messages.produce import ProduceRequest
from kafkapy.protocol.registry import ApiKeys
from kafkapy.testing.broker_process import BrokerProcess

Run = Callable[[Any], Any]


# --- against our broker ---------------------------------------------------------------------------------------------


def test_requests_are_answered_by_a_real_broker(broker: BrokerProcess, run: Run) -> None:
    async def scenario() -> None:
        async with client(broker.bootstrap) as network:
            assert network.cluster.controller_id == 1
            assert {node.port for node in network.cluster.brokers().values()} == {broker.port}
            answers = await asyncio.gather(*(network.send_any(MetadataRequest(topics=None)) for _ in range(100)))
            assert {answer.cluster_id for answer in answers} == {network.cluster.cluster_id}
            response = await network.send_to_controller(ListGroupsRequest())
            assert response.error_code == 0
            assert network.metrics.connection_count == 1, "the bootstrap connection has become the broker's"

    run(scenario())


def test_the_broker_hears_the_name_of_the_client(run: Run) -> None:
    async def scenario() -> None:
        async with FakeCluster() as cluster, client(cluster.bootstrap, client_id="orders-7"):
            assert set(cluster[1].clients) == {"orders-7"}
            hello = cluster[1].seen(ApiKeys.API_VERSIONS)[0]
            assert hello.client_software_name == "kafkapy"
            assert hello.client_software_version

    run(scenario())


def test_a_restarted_broker_is_found_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        with BrokerProcess(tmp_path) as broker:
            async with client(broker.bootstrap) as network:
                await network.send(1, ListGroupsRequest())
                await asyncio.to_thread(broker.kill)
                with pytest.raises((KafkaConnectionError, NodeNotReadyError)):
                    await network.send(1, ListGroupsRequest())
                await asyncio.to_thread(broker.start)
                for _ in range(500):
                    try:
                        await network.send(1, ListGroupsRequest())
                        return
                    except (KafkaConnectionError, NodeNotReadyError):
                        await asyncio.sleep(0.02)
                raise AssertionError("the broker was not found again")

    uvloop.run(scenario())


# --- versions -------------------------------------------------------------------------------------------------------


def test_the_newest_common_version_is_chosen(run: Run) -> None:
    async def scenario() -> None:
        async with FakeCluster() as cluster:
            cluster[1].versions[ApiKeys.LIST_GROUPS] = (0, 3)
            cluster[1].on[ApiKeys.LIST_GROUPS] = lambda version, request: groups(f"v{version}")
            async with client(cluster.bootstrap) as network:
                assert await list_groups(network) == ["v3"]
                assert await list_groups(network, max_version=1) == ["v1"]
                assert await network.version(1, ApiKeys.LIST_GROUPS, 0, 9) == 3
                with pytest.raises(UnsupportedVersionError, match="ListGroups is needed in versions 4 to 5.*0 to 3"):
                    await list_groups(network, min_version=4)
                with pytest.raises(UnsupportedVersionError, match="no version"):
                    network.negotiated(1, ApiKeys.FETCH, 0, 17)

    run(scenario())


def test_a_request_may_depend_on_the_version(run: Run) -> None:
    async def scenario() -> None:
        async with FakeCluster() as cluster:
            cluster[1].on[ApiKeys.LIST_GROUPS] = lambda version, request: groups(*request.states_filter)
            async with client(cluster.bootstrap) as network:
                request = RequestOf(ListGroupsRequest, lambda version: ListGroupsRequest(states_filter=[f"v{version}"]))
                response = await network.send(1, request, max_version=4)
                assert [group.group_id for group in response.groups] == ["v4"]

    run(scenario())


@pytest.mark.parametrize(("newest", "names_it"), [(3, True), (2, True), (0, True), (2, False)])
def test_brokers_that_know_older_api_versions_only(run: Run, newest: int, names_it: bool) -> None:
    """Since 2.4 a broker names the versions it knows with the error; before, version 0 is the one to try."""

    async def scenario() -> None:
        async with FakeCluster() as cluster:
            broker = cluster[1]
            broker.versions[ApiKeys.API_VERSIONS] = (0, newest)
            if not names_it:
                refused = broker.refused_api_versions()
                refused.api_keys = []
                broker.refused_api_versions = lambda: refused  # type: ignore[method-assign]
            broker.on[ApiKeys.LIST_GROUPS] = lambda version, request: groups("g")
            async with client(cluster.bootstrap) as network:
                assert await list_groups(network) == ["g"]
                tried = [version for key, version, _ in broker.requests if key == ApiKeys.API_VERSIONS]
                assert tried == [5, newest if names_it else 0]

    run(scenario())


# --- failures -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [b"", b"\x00\x00", b"\x00\x00\x00\x30\x00\x00\x00\x09half of it"])
def test_a_connection_that_is_cut_fails_what_is_in_flight(run: Run, after: bytes) -> None:
    def cut(version: int, request: object) -> ListGroupsResponse:
        raise Cut(after)

    async def scenario() -> None:
        async with FakeCluster() as cluster, client(cluster.bootstrap) as network:
            cluster[1].on[ApiKeys.LIST_GROUPS] = cut
            results = await asyncio.gather(*(list_groups(network) for _ in range(5)), return_exceptions=True)
            assert [type(result) for result in results] == [KafkaConnectionError] * 5
            assert all(result.retriable and result.invalid_metadata for result in results)
            assert network.in_flight(1) == 0
            cluster[1].on[ApiKeys.LIST_GROUPS] = lambda version, request: groups("back")
            await eventually(lambda: not network.connection_delay_s(1))
            assert await list_groups(network) == ["back"]

    run(scenario())


def test_requests_wait_for_their_time_out_and_cost_the_connection(run: Run) -> None:
    def silent(version: int, request: object) -> ListGroupsResponse:
        raise Silence

    async def scenario() -> None:
        async with FakeCluster() as cluster, client(cluster.bootstrap) as network:
            cluster[1].on[ApiKeys.LIST_GROUPS] = silent
            patient = asyncio.ensure_future(list_groups(network, timeout_ms=60_000))
            await asyncio.sleep(0)
            with pytest.raises(RequestTimedOutError, match="did not respond in time"):
                await list_groups(network, timeout_ms=50)
            with pytest.raises(KafkaConnectionError, match="was lost"):
                await patient
            assert not network.is_ready(1)

    run(scenario())


def test_an_answer_that_is_none_costs_the_connection(run: Run) -> None:
    async def scenario() -> None:
        async with FakeCluster() as cluster, client(cluster.bootstrap) as network:
            cluster[1].on[ApiKeys.LIST_GROUPS] = lambda version, request: MetadataResponse(
                brokers=[], topics=[], controller_id=1
            )
            cluster[1].versions[ApiKeys.LIST_GROUPS] = (0, 0)
            with pytest.raises(KafkaProtocolError, match="invalid response to ListGroups"):
                await list_groups(network, max_version=0)
            await eventually(lambda: not network.is_ready(1))

    run(scenario())


def test_a_response_that_is_too_large_costs_the_connection(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    def huge(version: int, request: object) -> ListGroupsResponse:
        return groups("g" * 30_000)

    async def scenario() -> None:
        async with FakeCluster() as cluster, client(cluster.bootstrap, receive_message_max_bytes=20_000) as network:
            cluster[1].on[ApiKeys.LIST_GROUPS] = huge
            with pytest.raises(KafkaConnectionError, match=r"larger than receive\.message\.max\.bytes"):
                await list_groups(network)

    run(scenario())
    assert "larger than receive.message.max.bytes" in caplog.text


def test_a_cancelled_request_leaves_the_others_alone(run: Run) -> None:
    async def scenario() -> None:
        gate = asyncio.Event()

        async def slow(version: int, request: object) -> ListGroupsResponse:
            await gate.wait()
            return groups("late")

        async with FakeCluster() as cluster, client(cluster.bootstrap) as network:
            cluster[1].on[ApiKeys.LIST_GROUPS] = slow
            first, second = (asyncio.ensure_future(list_groups(network)) for _ in range(2))
            await eventually(lambda: network.in_flight(1) == 2)
            first.cancel()
            gate.set()
            assert await second == ["late"]
            assert first.cancelled()
            assert network.in_flight(1) == 0

    run(scenario())


def test_cancelling_one_of_those_who_wait_for_a_connection(run: Run) -> None:
    async def scenario() -> None:
        async with FakeCluster(2) as cluster, client(cluster[1].address) as network:
            cluster[2].on[ApiKeys.LIST_GROUPS] = lambda version, request: groups("two")
            first, second = (asyncio.ensure_future(list_groups(network, 2)) for _ in range(2))
            await asyncio.sleep(0)
            first.cancel()
            assert await second == ["two"]

    run(scenario())


def test_a_node_is_not_tried_again_during_its_back_off(run: Run) -> None:
    async def scenario() -> None:
        async with FakeCluster(2) as cluster, client(cluster[1].address, reconnect_backoff_ms=60_000) as network:
            await cluster[2].stop()
            with pytest.raises(KafkaConnectionError, match="cannot be reached: connection refused"):
                await list_groups(network, 2)
            assert 0 < network.connection_delay_s(2) <= 60
            with pytest.raises(NodeNotReadyError, match="back-off is not over"):
                await list_groups(network, 2)

    run(scenario())


def test_a_node_is_tried_again_after_its_back_off(run: Run) -> None:
    async def scenario() -> None:
        async with FakeCluster(2) as cluster, client(cluster[1].address) as network:
            await cluster[2].stop()
            for _ in range(3):
                await eventually(lambda: not network.connection_delay_s(2))
                with pytest.raises(KafkaConnectionError):
                    await list_groups(network, 2)
            await cluster[2].start()
            cluster[2].on[ApiKeys.LIST_GROUPS] = lambda version, request: groups("two")
            await eventually(lambda: not network.connection_delay_s(2))
            assert await list_groups(network, 2) == ["two"]
            assert network.connection_delay_s(2) == 0

    run(scenario())


def test_a_node_that_is_not_known(run: Run) -> None:
    async def scenario() -> None:
        async with FakeCluster() as cluster, client(cluster.bootstrap) as network:
            with pytest.raises(StaleMetadataError, match="broker 9 is not known"):
                await list_groups(network, 9)

    run(scenario())


def test_other_brokers_are_asked_when_one_cannot_be_reached(run: Run) -> None:
    async def scenario() -> None:
        async with FakeCluster(3) as cluster:
            for broker in cluster.brokers.values():
                broker.on[ApiKeys.LIST_GROUPS] = lambda version, request: groups("any")
            async with client(cluster.bootstrap) as network:
                await cluster[1].stop()
                await cluster[2].stop()
                for _ in range(20):
                    response = await network.send_any(ListGroupsRequest())
                    assert response.groups[0].group_id == "any"
                await cluster[3].stop()
                with pytest.raises((KafkaConnectionError, NodeNotReadyError)):
                    await network.send_any(ListGroupsRequest())

    run(scenario())


def test_the_least_loaded_node(run: Run) -> None:
    def silent(version: int, request: object) -> ListGroupsResponse:
        raise Silence

    async def scenario() -> None:
        async with FakeCluster(3) as cluster, client(cluster.bootstrap) as network:
            for node_id in (1, 2):
                cluster[node_id].on[ApiKeys.LIST_GROUPS] = silent
                await network.ready(node_id)
            await asyncio.sleep(0)
            busy = [asyncio.ensure_future(list_groups(network, 1)) for _ in range(2)]
            busy.append(asyncio.ensure_future(list_groups(network, 2)))
            await eventually(lambda: network.in_flight(1) == 2 and network.in_flight(2) == 1)
            network.disconnect(3)
            await eventually(lambda: not network.is_ready(3))
            assert network.least_loaded_node() == 2, "connected and less loaded"
            assert network.least_loaded_node({2}) == 1
            await eventually(lambda: not network.connection_delay_s(3))
            assert network.least_loaded_node({1, 2}) == 3, "it may be connected to"
            for request in busy:
                request.cancel()

    run(scenario())


# --- throttling, idleness, data plane -------------------------------------------------------------------------------


def test_a_throttled_client_waits_by_itself(run: Run) -> None:
    async def scenario() -> None:
        async with FakeCluster() as cluster, client(cluster.bootstrap) as network:
            cluster[1].on[ApiKeys.LIST_GROUPS] = lambda version, request: groups("g", throttle_ms=300)
            started = time.monotonic()
            await list_groups(network)
            await list_groups(network)
            assert time.monotonic() - started >= 0.3, "it waited"
            assert network.metrics_snapshot("consumer")["consumer-metrics"]["throttle-time-max"] == 300

    run(scenario())


def test_older_versions_are_throttled_by_the_broker(run: Run) -> None:
    async def scenario() -> None:
        async with FakeCluster() as cluster, client(cluster.bootstrap) as network:
            cluster[1].on[ApiKeys.LIST_GROUPS] = lambda version, request: groups("g", throttle_ms=60_000)
            await list_groups(network, max_version=1)
            assert network.is_ready(1)
            network.throttled(1, ApiKeys.FETCH, 7, 60_000)
            assert network.is_ready(1)
            network.throttled(1, ApiKeys.FETCH, 8, 60_000)
            assert not network.is_ready(1)

    run(scenario())


def test_unused_connections_are_closed(run: Run) -> None:
    async def scenario() -> None:
        async with FakeCluster() as cluster, client(cluster.bootstrap, connections_max_idle_ms=100) as network:
            assert network.is_ready(1)
            await eventually(lambda: network.metrics.connection_count == 0)
            cluster[1].on[ApiKeys.LIST_GROUPS] = lambda version, request: groups("g")
            await eventually(lambda: not network.connection_delay_s(1))
            assert await list_groups(network) == ["g"]

    run(scenario())


def metadata_frame() -> BytesFrame:
    return BytesFrame(request_header(ApiKeys.METADATA, 9, "c") + MetadataRequest(topics=[]).encode(9))


def test_frames_that_encode_themselves(run: Run) -> None:
    async def scenario() -> None:
        async with FakeCluster() as cluster, client(cluster.bootstrap) as network:
            response = BytesResponse()
            future = network.submit(1, ApiKeys.METADATA, 9, metadata_frame(), response, 10_000)
            assert await future is response
            assert len(response.frame) > 4
            assert network.in_flight(1) == 0
            cluster[1].on[ApiKeys.PRODUCE] = lambda version, request: (_ for _ in ()).throw(Silence)
            produce = ProduceRequest(transactional_id=None, acks=0, timeout_ms=1, topic_data=[])
            silent = BytesFrame(request_header(ApiKeys.PRODUCE, 8, "c") + produce.encode(8))
            assert await network.submit(1, ApiKeys.PRODUCE, 8, silent, None, 10_000) is None
            await eventually(lambda: cluster[1].seen(ApiKeys.PRODUCE))
            with pytest.raises(NodeNotReadyError):
                network.submit(2, ApiKeys.METADATA, 9, metadata_frame(), BytesResponse(), 10_000)

    run(scenario())


def test_metrics_have_kafka_pythons_shape(run: Run) -> None:
    async def scenario() -> None:
        async with FakeCluster() as cluster, client(cluster.bootstrap) as network:
            cluster[1].on[ApiKeys.LIST_GROUPS] = lambda version, request: groups("g")
            for _ in range(10):
                await list_groups(network)
            metrics = network.metrics_snapshot("producer")
            assert set(metrics) == {
                "producer-metrics",
                "producer-node-metrics.node-1",
                "producer-node-metrics.node--1",
            }
            whole, node = metrics["producer-metrics"], metrics["producer-node-metrics.node-1"]
            assert node["request-total"] == node["response-total"] == 10
            assert node["request-latency-max"] >= node["request-latency-avg"] > 0
            assert whole["request-total"] == 12
            assert whole["connection-count"] == whole["connection-creation-total"] == 1
            assert whole["incoming-byte-total"] > whole["outgoing-byte-total"] * 0.5 > 100
            assert whole["request-rate"] > 0
            assert whole["requests-in-flight"] == 0

    run(scenario())
