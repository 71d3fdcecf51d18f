"""How a NetworkClient begins and ends: bootstrap servers, new beginnings with them, closing, forks, exits."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from clients.connected import client, list_groups
from clients.fake_broker import FakeCluster, Silence, eventually

from kafkapy.clients.connection import NodeConnection, open_socket
from kafkapy.clients.network_client import NetworkClient
from kafkapy.config.clients import COMMON, ClientConfig
from kafkapy.errors import (
    ConfigError,
    ErrorCode,
    IllegalStateError,
    KafkaConnectionError,
    NoBrokersAvailableError,
    NodeNotReadyError,
)
from kafkapy.protocol.messages.list_groups import ListGroupsResponse
from kafkapy.protocol.messages.metadata import MetadataResponse
from kafkapy.protocol.registry import ApiKeys
from kafkapy.testing.broker_process import BrokerProcess

Run = Callable[[Any], Any]


def count(kind: str) -> int:
    return len(list(Path(f"/proc/self/{kind}").iterdir()))


def io_threads() -> int:
    return sum(name.read_text() == "kafkapy-io\n" for name in Path("/proc/self/task").glob("*/comm"))


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


def test_what_stays_on_the_host_is_not_paced_unless_the_user_says_how(run: Run) -> None:
    def congestion_control(options: list[tuple[int, int, object]]) -> bytes:
        async def scenario() -> bytes:
            with socket.create_server(("127.0.0.1", 0)) as listener:
                connection = NodeConnection(1, *listener.getsockname())
                config = ClientConfig(COMMON, {"bootstrap_servers": "127.0.0.1", "socket_options": options})
                with await open_socket(connection, config, 5) as made:
                    return made.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0")

        return run(scenario())

    with socket.socket() as fresh:
        default = fresh.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0")
    assert congestion_control([]) == b"reno"
    for kind in (tuple, list):
        assert congestion_control([kind((socket.IPPROTO_TCP, socket.TCP_CONGESTION, default))]) == default


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
            # Before the other is lost, as that has metadata asked for.
            network.throttled(1, ApiKeys.FETCH, 12, 60_000)
            await cluster[2].stop()
            await eventually(lambda: not network.is_ready(2))
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
from kafkapy.clients.connection import NodeConnection, open_socket
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
            assert "after a fork" in str(error)
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
from kafkapy.clients.connection import NodeConnection, open_socket
from kafkapy.clients.network_client import NetworkClient
from kafkapy.config.clients import COMMON, ClientConfig
background = BackgroundLoop()
network = NetworkClient(ClientConfig(COMMON, bootstrap_servers="{broker.bootstrap}"))
background.run(network.start())
"""
    done = subprocess.run([sys.executable, "-c", code], timeout=60, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
