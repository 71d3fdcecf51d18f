"""A broker's data plane, its listeners, requests and events.

The network's threads and the control loop meet here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kafkapy._speedups.base.event_queue import (
    APPENDED,
    CONNECTION_CLOSED,
    FLUSH_WANTED,
    HIGH_WATERMARK,
    LOG_OFFLINE,
    REQUEST,
    SEGMENT_ROLLED,
    SEGMENT_WANTED,
)
from kafkapy._speedups.network.connection import LOGGER_NAMES
from kafkapy._speedups.requests.data_plane import DataPlane
from kafkapy._speedups.requests.fetch_session import FetchSessionCache
from kafkapy._speedups.requests.offset_commit.lease import CommitTable
from kafkapy._speedups.requests.partition_table import PartitionTable
from kafkapy.broker.data_plane_asks import DataPlaneAsks
from kafkapy.broker.data_plane_events import DataPlaneEvents
from kafkapy.broker.handlers import SERVED
from kafkapy.broker.parts.part import Broker, Part
from kafkapy.broker.request_log import DataPlaneRequests
from kafkapy.network.api_table import api_table
from kafkapy.network.socket_server import SocketServer, SocketServerConfig
from kafkapy.replica.selectors import LeaderSelector, RackAwareReplicaSelector, ReplicaSelector

if TYPE_CHECKING:
    from kafkapy._speedups.network.network_request import NetworkRequest
    from kafkapy._speedups.network.request_channel import RequestChannel as NetworkChannel

__all__ = ["Appends", "Asks", "Endpoints", "Events", "Network", "Plane", "RequestChannel", "RequestLog", "Requests"]

STOP_ANSWERING_S: Final = 5.0
"""How long a stop waits for requests in flight."""


class Plane(Part):
    """Makes the data plane with its table of partitions and fetch sessions.

    The network's threads run it.
    """

    name = "data plane"

    async def start(self, broker: Broker) -> None:
        """Make it, and expire fetch sessions from time to time."""
        config = broker.config
        sessions = FetchSessionCache(
            config.get_int("max.incremental.fetch.session.cache.slots"),
            max_partitions=config.get_int("kafkapy.fetch.session.max.partitions"),
        )
        # The connection of a session that is not used for so long has been closed as idle.
        idle_ms = config.get_int("connections.max.idle.ms")
        if idle_ms >= 0:
            broker.scheduler.schedule("fetch-session-expiry", lambda: sessions.expire(idle_ms), 10_000, 10_000)
        broker.partition_table = PartitionTable()
        broker.plane = DataPlane(
            broker.node_id, broker.partition_table, sessions, broker.events, config.get_int("fetch.max.bytes")
        )
        CommitTable(broker.plane)

    async def stop(self, broker: Broker) -> None:
        """Let go of it: it holds the event queue's descriptor."""
        if hasattr(broker, "plane"):
            del broker.plane


class Network(Part):
    """Owns the listeners and the network threads.

    Bound before the registration, because that names the ports; clients wait in the backlog until requests are served.
    """

    name = "network"

    async def start(self, broker: Broker) -> None:
        """Bind and listen. OSError when a port is taken."""
        config = SocketServerConfig.from_broker_config(broker.config, broker.listener_security.listeners)
        server = SocketServer(config, broker.plane, broker.events, api_table(SERVED), broker.budget.connections)
        server.startup()
        broker.listener_security.attach(server)
        broker.client_quotas.bound_addresses(server.quotas.set_address_rates)
        broker.socket_server = server

    async def stop(self, broker: Broker) -> None:
        """Close all connections and end the threads."""
        if hasattr(broker, "socket_server"):
            await asyncio.get_running_loop().run_in_executor(None, broker.socket_server.shutdown, 0.1)
            broker.listener_security.attach(None)
            del broker.socket_server


class Appends(Part):
    """Ends the coordinators' appends once no event can finish them any more."""

    name = "appends"

    async def stop(self, broker: Broker) -> None:
        """Fail what still waits."""
        broker.context.coordinators.writer.close()


class Events(Part):
    """Hands the data plane's events to the parts they concern."""

    name = "events"

    async def start(self, broker: Broker) -> None:
        """Begin to drain the queue."""
        writer, logs = broker.context.coordinators.writer, broker.log_manager.events
        channels = broker.socket_server.request_channels
        events = DataPlaneEvents(broker.events, LOGGER_NAMES)
        events.on(SEGMENT_WANTED, logs.segment_wanted)
        events.on(SEGMENT_ROLLED, logs.segment_rolled)
        events.on(FLUSH_WANTED, logs.flush_wanted)
        events.on(LOG_OFFLINE, logs.log_offline)
        events.on(APPENDED, writer.appended)
        events.on(HIGH_WATERMARK, writer.high_watermark_moved)

        def closed(handle: int, argument: int, text: bytes) -> None:
            del argument, text
            for channel in channels:
                channel.connection_closed(handle)

        events.on(CONNECTION_CLOSED, closed)
        events.start()
        broker.plane_events = events

    async def stop(self, broker: Broker) -> None:
        """Hand out what is queued, then drain no more."""
        if hasattr(broker, "plane_events"):
            broker.plane_events.stop()
            del broker.plane_events


class RequestLog(Part):
    """Writes the request log of Produce and Fetch."""

    name = "request log"

    def __init__(self) -> None:
        self._requests: DataPlaneRequests | None = None

    async def start(self, broker: Broker) -> None:
        """Follow the request logger's level."""
        self._requests = DataPlaneRequests(broker.plane, broker.socket_server.listener_names)
        broker.plane_events.on(REQUEST, self._requests.log)
        self._requests.start()

    async def stop(self, broker: Broker) -> None:
        """The data plane says nothing any more."""
        if self._requests is not None:
            self._requests.stop()


class Asks(Part):
    """Answers what the data plane asks."""

    name = "data-plane asks"

    def __init__(self) -> None:
        self._selector: ReplicaSelector | None = None

    async def start(self, broker: Broker) -> None:
        """Make what answers; its threads start with the first question that needs one."""
        threads = broker.config.get_int("num.io.threads")
        self._selector = selector = broker.plugins.create_replica_selector(broker.config)
        broker.asks = DataPlaneAsks(
            broker.context,
            broker.log_config_of,
            threads,
            broker.conversions,
            broker.listener_security.answer_principal,
            broker.client_quotas.answer,
            selector,
        )
        # The data plane knows the rules of the built-in selectors.
        known: dict[type, str] = {LeaderSelector: "leader", RackAwareReplicaSelector: "rack_aware"}
        broker.plane.replica_selector = known.get(type(selector), "asked")
        broker.plane.verify_transactions = broker.context.coordinators.verifies_transactions

    async def stop(self, broker: Broker) -> None:
        """End the threads."""
        if hasattr(broker, "asks"):
            await broker.asks.stop()
        if self._selector is not None:
            self._selector.close()


class RequestChannel(Part):
    """Takes requests from the data plane."""

    name = "request channel"

    async def start(self, broker: Broker) -> None:
        """Begin to drain the channels on the loop."""
        loop = asyncio.get_running_loop()
        for channel in broker.socket_server.request_channels:
            loop.add_reader(channel.fileno(), _drain, channel, broker.apis.dispatch, broker.asks.answer, loop)

    async def stop(self, broker: Broker) -> None:
        """Drain no more."""
        for channel in broker.socket_server.request_channels:
            asyncio.get_running_loop().remove_reader(channel.fileno())


def _drain(
    channel: NetworkChannel,
    dispatch: Callable[[NetworkRequest], None],
    answer: Callable[[NetworkRequest], None],
    loop: asyncio.AbstractEventLoop,
) -> None:
    """Serve the requests that have come.

    Answers of this turn, and of work that it has started, go out together: a network thread that is woken for each
    answer takes turns with this one.
    """
    channel.hold_replies()
    try:
        for request in channel.drain():
            if request.ask_kind is None:
                dispatch(request)
            else:
                answer(request)
    finally:
        loop.call_soon(channel.let_go_of_replies)


class Endpoints(Part):
    """Tells the data plane the brokers' addresses.

    It puts them into the node endpoints of Produce and Fetch responses (KIP-951).
    """

    name = "data-plane endpoints"

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    async def start(self, broker: Broker) -> None:
        """Begin to follow the metadata cache."""
        self._task = asyncio.get_running_loop().create_task(self._follow(broker), name="data-plane-endpoints")

    async def stop(self, broker: Broker) -> None:
        """Follow it no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _follow(self, broker: Broker) -> None:
        known: tuple[int, dict[str, int]] = (-1, {})
        while True:
            snapshot = broker.metadata_cache.snapshot
            present = (snapshot.brokers_version, broker.socket_server.listener_indexes())
            if present != known:
                known = present
                for name, index in known[1].items():
                    nodes = snapshot.nodes(name)
                    broker.plane.set_endpoints(index, {node.id: (node.host, node.port, node.rack) for node in nodes})
            await broker.metadata_cache.wait_for_change()


class Requests(Part):
    """Lets clients in."""

    name = "requests in flight"

    async def start(self, broker: Broker) -> None:
        """Serve requests from now on."""
        broker.logins.serve_scram(broker.socket_server)
        broker.socket_server.enable_request_processing()

    async def stop(self, broker: Broker) -> None:
        """Accept nobody, read nothing more, and answer what has been read."""
        server = broker.socket_server
        server.begin_shutdown(STOP_ANSWERING_S)
        # Members that wait for a rebalance would hold the stop up for as long as it may take.
        broker.context.coordinators.stop()
        await broker.apis.drain(STOP_ANSWERING_S)
        broker.apis.close()
        deadline = time.monotonic() + STOP_ANSWERING_S
        while not server.stopped and time.monotonic() < deadline:
            await asyncio.sleep(0.005)
