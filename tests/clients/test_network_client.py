"""NetworkClient against brokers that answer as scripted: versions, back-off, timeouts, cuts, throttling, bootstrap."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop
from clients.fake_broker import Cut, FakeCluster, Silence, eventually

from kafkapy._speedups.client_frames import BytesFrame, BytesResponse
from kafkapy.clients.network_client import NetworkClient, RequestOf, request_header
from kafkapy.config.clients import COMMON, ClientConfig
from kafkapy.errors import (
    ConfigError,
    ErrorCode,
    IllegalStateError,
    KafkaConnectionError,
    KafkaProtocolError,
    NoBrokersAvailableError,
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


@asynccontextmanager
async def client(bootstrap: str, **keys: object) -> AsyncIterator[NetworkClient]:
    keys = {"reconnect_backoff_ms": 20, "retry_backoff_ms": 10, "client_id": "tester"} | keys
    network = NetworkClient(ClientConfig(COMMON, bootstrap_servers=bootstrap, **keys))
    try:
        await network.start()
        yield network
    finally:
        await network.close()


def groups(*names: str, throttle_ms: int = 0) -> ListGroupsResponse:
    listed = [ListGroupsResponse.Group(group_id=name, protocol_type="consumer") for name in names]
    return ListGroupsResponse(throttle_time_ms=throttle_ms, groups=listed)


async def list_groups(network: NetworkClient, node_id: int = 1, **keys: Any) -> list[str]:
    response = await network.send(node_id, ListGroupsRequest(), **keys)
    return [group.group_id for group in response.groups]


def count(kind: str) -> int:
    return len(list(Path(f"/proc/self/{kind}").iterdir()))


def io_threads() -> int:
    return sum(name.read_text() == "kafkapy-io\n" for name in Path("/proc/self/task").glob("*/comm"))


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
                with pytest.raises(UnsupportedVersionError, match="ListGroups is needed in version 4 to 5.*0 to 3"):
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
                assert tried == [4, newest if names_it else 0]

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
            with pytest.raises(RequestTimedOutError, match="has not answered in time"):
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
            with pytest.raises(KafkaProtocolError, match="does not answer ListGroups"):
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
            with pytest.raises(NodeNotReadyError, match="too early"):
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


# --- bootstrap ------------------------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_bootstrap_servers_that_cannot_be_reached(run: Run) -> None:
    async def scenario() -> None:
        port = free_port()
        with pytest.raises(NoBrokersAvailableError, match=rf"127.0.0.1:{port}.*within 200 ms.*connection refused"):
            async with client(f"127.0.0.1:{port}", bootstrap_timeout_ms=200):
                pass

    run(scenario())


def test_a_bootstrap_server_that_never_answers(run: Run) -> None:
    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as deaf:
            address = f"127.0.0.1:{deaf.getsockname()[1]}"
            with pytest.raises(NoBrokersAvailableError, match="within 200 ms"):
                async with client(address, bootstrap_timeout_ms=200):
                    pass

    run(scenario())


def test_names_that_cannot_be_resolved(run: Run) -> None:
    async def scenario() -> None:
        with pytest.raises(NoBrokersAvailableError, match="no-such-host.invalid:9092"):
            async with client("no-such-host.invalid", bootstrap_timeout_ms=200):
                pass

    run(scenario())


def test_one_good_bootstrap_server_is_enough(run: Run) -> None:
    async def scenario() -> None:
        async with FakeCluster() as cluster:
            servers = f"127.0.0.1:{free_port()},no-such-host.invalid:9,{cluster.bootstrap}"
            async with client(servers) as network:
                assert list(network.cluster.brokers()) == [1]

    run(scenario())


def test_every_address_of_a_name_is_tried(run: Run) -> None:
    """localhost is ::1 too on most systems, where the broker does not listen."""

    async def scenario() -> None:
        async with FakeCluster() as cluster, client(f"localhost:{cluster[1].port}") as network:
            assert list(network.cluster.brokers()) == [1]
        async with FakeCluster() as cluster:
            keys = {"client_dns_lookup": "resolve_canonical_bootstrap_servers_only"}
            async with client(f"localhost:{cluster[1].port}", **keys) as network:
                assert list(network.cluster.brokers()) == [1]

    run(scenario())


@pytest.mark.parametrize("servers", ["", "host:port", "a:0", "a:70000", "a b:1", "[::1:9092", "a:1,,b:2"])
def test_bootstrap_servers_that_are_none(servers: str) -> None:
    with pytest.raises(ConfigError, match="bootstrap.servers"):
        NetworkClient(ClientConfig(COMMON, bootstrap_servers=servers))


def test_a_failed_start_leaves_nothing(run: Run) -> None:
    async def scenario() -> None:
        gc.collect()
        before = count("fd")
        for _ in range(5):
            with pytest.raises(NoBrokersAvailableError):
                async with client(f"127.0.0.1:{free_port()}", bootstrap_timeout_ms=30):
                    pass
        gc.collect()
        assert count("fd") == before

    run(scenario())


def test_it_begins_again_with_the_bootstrap_servers(run: Run) -> None:
    """KIP-899: all brokers it knew are gone for good, and others are at the address it began with."""

    async def scenario() -> None:
        async with FakeCluster(3) as cluster:
            cluster.named = {2: cluster[2], 3: cluster[3]}
            async with client(cluster[1].address) as network:
                await eventually(lambda: set(network.cluster.brokers()) == {2, 3})
                await cluster[2].stop()
                await cluster[3].stop()
                cluster.named = {1: cluster[1]}
                network.cluster.invalidate()
                await eventually(lambda: set(network.cluster.brokers()) == {1})

    run(scenario())


def test_it_does_not_begin_again_while_brokers_only_throttle(run: Run) -> None:
    async def scenario() -> None:
        async with FakeCluster(2) as cluster, client(cluster.bootstrap) as network:
            for node_id in (1, 2):
                await network.ready(node_id)
            await cluster[2].stop()
            await eventually(lambda: not network.is_ready(2))
            network.throttled(1, ApiKeys.FETCH, 12, 60_000)
            for _ in range(5):
                with pytest.raises((KafkaConnectionError, NodeNotReadyError)):
                    await network.cluster.refresh()
                await asyncio.sleep(0.01)
            assert set(network.cluster.brokers()) == {1, 2}
            assert network.metrics.connection_count == 1

    run(scenario())


def test_it_does_not_begin_again_unless_it_may(run: Run) -> None:
    async def scenario() -> None:
        async with FakeCluster(2) as cluster:
            cluster.named = {2: cluster[2]}
            async with client(cluster[1].address, metadata_recovery_strategy="none") as network:
                await cluster[2].stop()
                cluster.named = {1: cluster[1]}
                for _ in range(5):
                    with pytest.raises((KafkaConnectionError, NodeNotReadyError)):
                        await network.cluster.refresh()
                assert set(network.cluster.brokers()) == {2}

    run(scenario())


def test_a_broker_may_ask_for_a_new_beginning(run: Run) -> None:
    async def scenario() -> None:
        async with FakeCluster(2) as cluster:
            cluster.named = {2: cluster[2]}
            async with client(cluster[1].address) as network:
                cluster[2].on[ApiKeys.METADATA] = lambda version, request: MetadataResponse(
                    brokers=[], topics=[], controller_id=-1, error_code=ErrorCode.REBOOTSTRAP_REQUIRED
                )
                cluster.named = {1: cluster[1]}
                network.cluster.invalidate()
                await eventually(lambda: set(network.cluster.brokers()) == {1})

    run(scenario())


def test_it_begins_again_after_too_long_without_metadata(run: Run) -> None:
    """KIP-1102: the known broker accepts connections, but never answers."""

    def silent(version: int, request: object) -> MetadataResponse:
        raise Silence

    async def scenario() -> None:
        async with FakeCluster(2) as cluster:
            cluster.named = {2: cluster[2]}
            keys = {"metadata_recovery_rebootstrap_trigger_ms": 100, "request_timeout_ms": 50}
            async with client(cluster[1].address, **keys) as network:
                cluster[2].on[ApiKeys.METADATA] = silent
                cluster.named = {1: cluster[1]}
                network.cluster.invalidate()
                await eventually(lambda: set(network.cluster.brokers()) == {1})

    run(scenario())


# --- the end --------------------------------------------------------------------------------------------------------


def test_closing_fails_what_is_in_flight_and_frees_everything(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    def silent(version: int, request: object) -> ListGroupsResponse:
        raise Silence

    async def scenario() -> None:
        async with FakeCluster(2) as cluster:
            gc.collect()
            fds, threads = count("fd"), io_threads()
            for _ in range(3):
                async with client(cluster.bootstrap) as network:
                    cluster[1].on[ApiKeys.LIST_GROUPS] = silent
                    waiting = asyncio.ensure_future(list_groups(network))
                    connecting = asyncio.ensure_future(network.ready(2))
                    await eventually(lambda: cluster[1].seen(ApiKeys.LIST_GROUPS))
                    cluster[1].requests.clear()
                with pytest.raises(KafkaConnectionError, match="client was closed"):
                    await waiting
                await asyncio.wait([connecting])
                if not connecting.cancelled():
                    connecting.exception()
                await network.close()
                with pytest.raises(IllegalStateError, match="closed"):
                    await list_groups(network)
            await eventually(lambda: not cluster[1]._writers and not cluster[2]._writers)
            gc.collect()
            assert count("fd") <= fds
            assert io_threads() == threads

    with caplog.at_level(logging.ERROR):
        run(scenario())
        gc.collect()
    assert caplog.records == []


def test_a_forked_child_does_no_harm(broker: BrokerProcess) -> None:
    """It is told that the client is its parent's; dropping the client, and ending, leaves the parent's connections."""
    code = f"""
import gc, os
from kafkapy.clients.background import BackgroundLoop
from kafkapy.clients.network_client import NetworkClient
from kafkapy.config.clients import COMMON, ClientConfig
from kafkapy.errors import IllegalStateError
from kafkapy.protocol.messages.list_groups import ListGroupsRequest
background = BackgroundLoop()
network = NetworkClient(ClientConfig(COMMON, bootstrap_servers="{broker.bootstrap}"))
background.run(network.start())
for dropped in (False, True):
    child = os.fork()
    if child == 0:
        try:
            background.run(network.send(1, ListGroupsRequest()))
        except IllegalStateError as error:
            assert "forked" in str(error)
            if dropped:
                background.stop()
                del network
                gc.collect()
            raise SystemExit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert background.run(network.send(1, ListGroupsRequest())).error_code == 0
assert network.metrics.connections_created.count == 1
background.run(network.close())
background.stop()
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], timeout=60, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_program_may_end_without_closing(broker: BrokerProcess) -> None:
    code = f"""
from kafkapy.clients.background import BackgroundLoop
from kafkapy.clients.network_client import NetworkClient
from kafkapy.config.clients import COMMON, ClientConfig
background = BackgroundLoop()
network = NetworkClient(ClientConfig(COMMON, bootstrap_servers="{broker.bootstrap}"))
background.run(network.start())
"""
    done = subprocess.run([sys.executable, "-c", code], timeout=60, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


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
