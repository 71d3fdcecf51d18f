"""KafkaServer: one broker, from its start to its stop. Source: kafka.server.KafkaServer.

    server = KafkaServer(BrokerConfig.load("config/server.properties"))
    sys.exit(server.run())              # a program of its own: until SIGTERM or SIGINT
    with KafkaServer(config) as server: ...     # inside another program: a thread of its own

Start: lock the log directories, open the metadata store, agree on cluster and broker id, load the logs, bind the
listeners, register, become controller or hear from it, and only then accept. Stop: the other way round; what is in
flight is answered first, the logs are flushed and marked clean last.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from kafkapy._speedups.base import memory_reserve
from kafkapy._speedups.base.event_queue import (
    APPENDED,
    CONNECTION_CLOSED,
    FLUSH_WANTED,
    HIGH_WATERMARK,
    LOG_OFFLINE,
    REQUEST,
    SEGMENT_ROLLED,
    SEGMENT_WANTED,
    EventQueue,
)
from kafkapy._speedups.log.appender import LogAppender
from kafkapy._speedups.network.connection import LOGGER_NAMES
from kafkapy._speedups.requests.data_plane import DataPlane
from kafkapy._speedups.requests.fetch_session import FetchSessionCache
from kafkapy._speedups.requests.partition_table import PartitionTable
from kafkapy.broker import descriptors
from kafkapy.broker.apis import KafkaApis
from kafkapy.broker.auto_topics import AutoTopicCreation
from kafkapy.broker.broker_state import BrokerState
from kafkapy.broker.config_effects import ConfigEffects
from kafkapy.broker.context import BrokerContext
from kafkapy.broker.coordinators import Coordinators
from kafkapy.broker.data_plane_asks import DataPlaneAsks
from kafkapy.broker.data_plane_events import DataPlaneEvents
from kafkapy.broker.descriptors import DescriptorBudget
from kafkapy.broker.dynamic_config import DynamicConfig
from kafkapy.broker.handlers import SERVED
from kafkapy.broker.identity import establish
from kafkapy.broker.loop_lag import LoopLag
from kafkapy.broker.message_conversion import ConversionCounts
from kafkapy.broker.meta_properties import StartupError
from kafkapy.broker.producer_ids import ProducerIdManager, highest_known_id
from kafkapy.broker.request_log import DataPlaneRequests
from kafkapy.broker.scheduler import KafkaScheduler
from kafkapy.broker.unreachable_channel import UnreachableBrokerChannel
from kafkapy.config.broker import BrokerConfig
from kafkapy.config.topic import LogConfig
from kafkapy.controller.broker_channel import BrokerChannel, LocalBrokerChannel
from kafkapy.controller.controller import KafkaController
from kafkapy.controller.controller_store import ControllerStore
from kafkapy.controller.topic_admin import TopicAdmin
from kafkapy.errors import KafkaError
from kafkapy.log.dir_scan import parse_directory_name
from kafkapy.log.log_manager import LogManager
from kafkapy.metadata.cache import MetadataCache
from kafkapy.metadata.config_repository import ConfigRepository
from kafkapy.metadata.store import MetadataStore, MetadataStoreError
from kafkapy.metadata.znodes import BrokerRegistration
from kafkapy.network.api_table import api_table
from kafkapy.network.socket_server import SocketServer, SocketServerConfig, check_protocols
from kafkapy.plugins import PluginManager
from kafkapy.replica.log_configs import effective_log_config
from kafkapy.replica.replica_manager import ReplicaManager
from kafkapy.types import Endpoint, TopicPartition
from kafkapy.version import __version__

if TYPE_CHECKING:
    from kafkapy.broker.metrics_listener import MetricsListener
    from kafkapy.security.authorizer.base import Authorizer

logger = logging.getLogger("kafka.server.KafkaServer")

STOP_ANSWERING_S: Final = 5.0
"""How long a stop waits for requests in flight."""


IMPORTS_AFTER_S: Final = 1.0
IMPORTS_EVERY_S: Final = 0.02
"""When a broker that has started imports what its start did without, and the pause between two handlers."""


class _MemoryWatch:
    """Takes the data plane's reserve of memory again when there is some, and says that it was needed."""

    def __init__(self) -> None:
        self._taken = 0

    def __call__(self) -> None:
        short = memory_reserve.is_short()
        taken = memory_reserve.counters()["taken"]
        if taken > self._taken:
            self._taken = taken
            state = "large requests are refused until there is some" if short else "there is some again"
            logger.warning("the broker ran out of memory: %s", state)


class KafkaServer:
    """Owns every part of one broker and the order in which they start and stop. `run` or `start`/`stop` are called on
    a thread of the program; everything else happens on the control loop's thread, which one of them provides.
    """

    def __init__(self, config: BrokerConfig, plugins: PluginManager | None = None) -> None:
        self.config = config
        self.state = BrokerState.NOT_RUNNING
        self.loop_lag = LoopLag()
        self.conversions = ConversionCounts()
        self.context: BrokerContext
        self.socket_server: SocketServer
        self.metrics_listener: MetricsListener | None = None
        self._repository: ConfigRepository
        self._replica_manager: ReplicaManager | None = None
        self._plugins = plugins
        self._undo: list[tuple[str, Callable[[], Any]]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stop_asked: asyncio.Event | None = None
        self._failed = False
        self._effects = ConfigEffects()
        self._budget: DescriptorBudget

    # --- for programs -------------------------------------------------------------------------------------------

    def run(self, on_started: Callable[[], None] | None = None) -> int:
        """Run the broker on this thread until SIGTERM or SIGINT: 0 after a clean stop, 1 when it stopped because no
        log directory works any more or another broker has taken its place. `on_started` is called when it accepts
        clients.

        StartupError (or another KafkaError) when it cannot start.
        """
        descriptors.raise_limit()
        _run_loop(self._run(signals=True, on_started=on_started))
        return int(self._failed)

    def start(self, *, daemon: bool = False) -> KafkaServer:
        """Run the broker on a thread of its own; returns when it accepts clients. Raises what kept it from starting.

        A program that ends without `stop` waits for the broker, or with `daemon` lets it go as if it were killed.
        """
        started: threading.Event = threading.Event()
        failure: list[BaseException] = []

        def body() -> None:
            try:
                _run_loop(self._run(on_started=started.set))
            except BaseException as error:  # handed over to the thread that called start
                failure.append(error)
            finally:
                started.set()

        self._thread = threading.Thread(target=body, name=f"kafka-server-{self.config.broker_id}", daemon=daemon)
        self._thread.start()
        started.wait()
        if failure:
            self._thread.join()
            raise failure[0]
        return self

    def stop(self) -> None:
        """Stop the broker that `start` started and wait until it has. Calling it again does nothing."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        if self._loop is not None and self._stop_asked is not None:
            with suppress(RuntimeError):  # the loop is closed: the broker has stopped of itself
                self._loop.call_soon_threadsafe(self._stop_asked.set)
        thread.join()

    def call(self, coroutine: Any) -> Any:
        """The result of a coroutine that is run on the control loop, for the thread that called `start`."""
        if self._loop is None:
            raise RuntimeError("the broker is not running")
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def __enter__(self) -> KafkaServer:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def endpoints(self) -> list[Endpoint]:
        """The listeners with the ports that were bound."""
        return self.socket_server.bound_endpoints()

    async def _run(self, signals: bool = False, on_started: Callable[[], None] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop_asked = asyncio.Event()
        if signals:
            for number in (signal.SIGTERM, signal.SIGINT):
                self._loop.add_signal_handler(number, self._on_signal, number)
        await self.startup()
        if on_started is not None:
            on_started()
        await self._stop_asked.wait()
        await self.shutdown()

    def _on_signal(self, number: int) -> None:
        logger.info("Received %s", signal.Signals(number).name)
        if self._stop_asked is not None:
            self._stop_asked.set()

    # --- start --------------------------------------------------------------------------------------------------

    async def startup(self) -> None:
        """Start every part on the running loop. What was started is stopped again when one fails, and its error
        raised.
        """
        began = time.monotonic()
        self.state = BrokerState.STARTING
        try:
            await self._startup()
        except MetadataStoreError as error:
            await self._stop_parts()
            raise StartupError(str(error)) from error
        except BaseException:
            await self._stop_parts()
            raise
        self.state = BrokerState.RUNNING
        listeners = [endpoint.connection_string for endpoint in self.endpoints]
        for listener in listeners:
            logger.info("listening on %s", listener)
        logger.info(
            "started",
            extra={
                "version": __version__,
                "seconds": f"{time.monotonic() - began:.3f}",
                "broker_id": self.context.node_id,
                "cluster_id": self.context.cluster_id,
                "listeners": ",".join(listeners),
                "log_dirs": ",".join(str(each.path) for each in self.context.log_manager.dirs),
            },
        )
        self._plugins_loaded.notify("broker_started", broker=self)

    async def _startup(self) -> None:
        logger.info("starting")
        memory_reserve.install()
        check_protocols(self.config.listeners)
        self._budget = descriptors.claim()
        loop = asyncio.get_running_loop()
        plugins = self._plugins_loaded
        events = EventQueue()
        scheduler = KafkaScheduler(self.config.get_int("background.threads"), loop)
        self._on_stop("scheduler", scheduler.shutdown)

        log_manager = self._make_log_manager(plugins, events, scheduler)
        self._on_stop("log directories", lambda: _release(log_manager))
        log_manager.acquire()
        store = await self._open_store(log_manager)
        repository = ConfigRepository(store)
        await repository.start()
        self._on_stop("configuration", repository.stop)
        directories = [str(each.path) for each in log_manager.live_dirs if each.persistent]
        node_id, cluster_id = await establish(self.config, store, directories)
        alone = self.config.metadata_store == "zookeeper"
        if alone:
            # Before the logs are loaded. The registration decides between two brokers that start at once.
            await ControllerStore(store).check_alone(node_id)
        repository.topics_read = self._effects.check_topics
        dynamic = DynamicConfig(self.config, node_id, repository)
        dynamic.start()
        self.config = dynamic.config
        self._effects.check_broker(self.config)
        self._repository = repository

        self.state = BrokerState.RECOVERY
        await repository.load_topics(_topics_on_disk(log_manager))
        self._on_stop("logs", lambda: loop.run_in_executor(None, log_manager.shutdown, self._broker_epoch()))
        await loop.run_in_executor(None, log_manager.load)
        log_manager.start()

        partition_table = PartitionTable()
        sessions = FetchSessionCache(
            self.config.get_int("max.incremental.fetch.session.cache.slots"),
            max_partitions=self.config.get_int("kafkapy.fetch.session.max.partitions"),
        )
        scheduler.schedule("memory-reserve", _MemoryWatch(), 1_000, 1_000)
        # The connection of a session that is not used for so long has been closed as idle.
        idle_ms = self.config.get_int("connections.max.idle.ms")
        if idle_ms >= 0:
            scheduler.schedule("fetch-session-expiry", lambda: sessions.expire(idle_ms), 10_000, 10_000)
        plane = DataPlane(node_id, partition_table, sessions, events, self.config.get_int("fetch.max.bytes"))
        metadata_cache = MetadataCache(cluster_id)
        replica_manager = ReplicaManager(
            self.config, node_id, store, log_manager, partition_table, metadata_cache, repository
        )
        self._replica_manager = replica_manager
        self._on_stop("replica manager", replica_manager.stop)
        controller = KafkaController(
            self.config,
            node_id,
            store,
            metadata_cache,
            repository,
            self._channel_to,
            alone=alone,
            replaced=self._stop_failed,
            notify=plugins.notify,
        )
        topic_admin = TopicAdmin(controller)
        authorizer = plugins.create_authorizer(self.config)
        self._on_stop("authorizer", authorizer.close)
        plane.authorizer_epoch = authorizer.decisions_epoch
        producer_ids = ProducerIdManager(node_id, store, lambda: highest_known_id(log_manager.logs()))
        self.context = BrokerContext(
            node_id=node_id,
            cluster_id=cluster_id,
            store=store,
            metadata_cache=metadata_cache,
            controller=controller,
            topic_admin=topic_admin,
            log_manager=log_manager,
            replica_manager=replica_manager,
            scheduler=scheduler,
            dynamic_config=dynamic,
            authorizer=authorizer,
            producer_ids=producer_ids,
            auto_topics=AutoTopicCreation(dynamic, topic_admin),
            coordinators=Coordinators(
                self.config,
                store,
                replica_manager,
                metadata_cache,
                producer_ids.next_id,
                plugins.notify,
                plugins.create_group_assignors(self.config),
                LogAppender(events),
            ),
        )
        self.apis = KafkaApis(self.context)

        # Bound before the registration, because that names the ports; clients wait in the backlog.
        self._bind(plane, events)
        self._drain_events(events, log_manager)
        advertised = self.config.advertise(self.socket_server.bound_endpoints())
        rack = self.config.get_optional_str("broker.rack")
        await self.context.coordinators.start()
        dynamic.group_keys_read = self._effects.check_group
        dynamic.follow_groups(lambda *changed: self.context.coordinators.group.overrides.put(*changed))
        self._on_stop("controller", controller.stop)
        await controller.start(BrokerRegistration(node_id, advertised, rack))
        dynamic.broker_listeners.append(self._broker_config_changed)
        self._serve(plane)

    @cached_property
    def _plugins_loaded(self) -> PluginManager:
        return self._plugins or PluginManager.load(self.config.get_list("kafkapy.plugins.disabled"))

    def _make_log_manager(self, plugins: PluginManager, events: EventQueue, scheduler: KafkaScheduler) -> LogManager:
        return LogManager(
            self.config,
            backends=plugins.create_storage_backends(self.config),
            events=events,
            scheduler=scheduler,
            topic_config=self._log_config,
            on_log_dir_failure=self._log_dir_failed,
            on_segment_sealed=self._segment_sealed if plugins.has_listener("segment_sealed") else None,
        )

    def _segment_sealed(self, partition: TopicPartition, base_offset: int, next_offset: int, size: int) -> None:
        self._plugins_loaded.notify(
            "segment_sealed", topic_partition=partition, base_offset=base_offset, next_offset=next_offset, size=size
        )

    async def _open_store(self, log_manager: LogManager) -> MetadataStore:
        if self.config.metadata_store == "zookeeper":
            return await self._open_zookeeper()
        if self.config.keeps_nothing:
            return await self._open_memory()
        from kafkapy.metadata.embedded import EmbeddedStore

        directory = Path(self.config.metadata_log_dir).absolute()
        for log_dir in log_manager.offline_dirs:
            if log_dir.path == directory:
                raise StartupError(f"Directory {directory} cannot hold the cluster's metadata: {log_dir.failure}")
        store = EmbeddedStore(directory)
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StartupError(f"Directory {directory} cannot be made: {error.strerror}") from error
        await store.start()
        self._on_stop("metadata store", store.close)
        return store

    async def _open_memory(self) -> MetadataStore:
        from kafkapy.metadata.memory import MemoryStore

        store = MemoryStore()
        await store.start()
        self._on_stop("metadata store", store.close)
        return store

    async def _open_zookeeper(self) -> MetadataStore:
        from kafkapy.metadata.zookeeper import ZooKeeperStore

        config = self.config
        session_ms = config.get_int("zookeeper.session.timeout.ms")
        connection_ms = config.get_optional_int("zookeeper.connection.timeout.ms") or session_ms
        store = ZooKeeperStore(config.get_str("zookeeper.connect"), session_ms, connection_ms)
        await store.start()
        self._on_stop("metadata store", store.close)
        return store

    def _channel_to(self, broker: BrokerRegistration) -> BrokerChannel:
        """How the controller reaches a broker. Other brokers than this one are not served yet."""
        if self._replica_manager is not None and broker.id == self._replica_manager.broker_id:
            return LocalBrokerChannel(self._replica_manager)
        logger.error("Broker %d cannot be reached: clusters of several brokers are not served yet", broker.id)
        return UnreachableBrokerChannel()

    def _bind(self, plane: DataPlane, events: EventQueue) -> None:
        config = SocketServerConfig.from_broker_config(self.config)
        self.socket_server = SocketServer(config, plane, events, api_table(SERVED), self._budget.connections)
        self.socket_server.startup()
        self._on_stop("network", self._stop_network)

    def _drain_events(self, queue: EventQueue, log_manager: LogManager) -> None:
        events = DataPlaneEvents(queue, LOGGER_NAMES)
        channel = self.socket_server.request_channel
        events.on(SEGMENT_WANTED, log_manager.on_segment_wanted)
        events.on(SEGMENT_ROLLED, log_manager.on_segment_rolled)
        events.on(FLUSH_WANTED, log_manager.on_flush_wanted)
        events.on(LOG_OFFLINE, log_manager.on_log_offline)
        events.on(APPENDED, self.context.coordinators.writer.appended)
        events.on(HIGH_WATERMARK, self.context.coordinators.writer.high_watermark_moved)
        events.on(CONNECTION_CLOSED, lambda handle, _argument, _text: channel.connection_closed(handle))
        requests = DataPlaneRequests(channel.plane, [endpoint.listener_name for endpoint in self.config.listeners])
        events.on(REQUEST, requests.log)
        events.start()
        self._on_stop("appends", self.context.coordinators.writer.close)
        self._on_stop("events", events.stop)
        requests.start()
        self._on_stop("request log", requests.stop)

    def _serve(self, plane: DataPlane) -> None:
        """Take requests from the data plane, then let clients in."""
        loop = asyncio.get_running_loop()
        channel = self.socket_server.request_channel
        threads = self.config.get_int("num.io.threads")
        asks = DataPlaneAsks(self.context, self._log_config_of, threads, self.conversions)
        plane.verify_transactions = self.context.coordinators.verifies_transactions
        self._on_stop("data-plane asks", lambda: loop.run_in_executor(None, asks.close))
        dispatch = self.apis.dispatch

        def drain() -> None:
            # What is answered in this turn and by what it has started goes out together: a network thread that is woken
            # for each answer takes turns with this one.
            channel.hold_replies()
            try:
                for request in channel.drain():
                    if request.ask_kind is None:
                        dispatch(request)
                    else:
                        asks.answer(request)
            finally:
                loop.call_soon(channel.let_go_of_replies)

        loop.add_reader(channel.fileno(), drain)
        self._on_stop("request channel", lambda: loop.remove_reader(channel.fileno()))
        follower = loop.create_task(self._follow_brokers(plane), name="data-plane-endpoints")
        self._on_stop("data-plane endpoints", lambda: _cancelled(follower))
        self.loop_lag.start()
        self._on_stop("loop lag", self.loop_lag.stop)
        self._start_metrics(self._plugins_loaded)
        self.socket_server.enable_request_processing()
        self._on_stop("requests in flight", self._answer_what_is_in_flight)
        imports = loop.create_task(self._complete_imports(), name="imports")
        self._on_stop("imports", lambda: _cancelled(imports))

    async def _complete_imports(self) -> None:
        """Import the handlers and coordinators that no request has asked for yet: the first one shall not wait for it,
        and files that an upgrade puts in the place of ours must not become part of this process.
        """
        await asyncio.sleep(IMPORTS_AFTER_S)
        for key in SERVED:
            try:
                self.apis.handler(key)
            except Exception:  # its requests are refused; the others shall not wait for their modules
                logger.exception("What serves API key %d cannot be imported", key)
            await asyncio.sleep(IMPORTS_EVERY_S)
        self.context.coordinators.make_all()

    def _start_metrics(self, plugins: PluginManager) -> None:
        addresses = self.config.get_list("metrics.listeners")
        reporters = plugins.create_metrics_reporters(self.config)
        if not addresses and not reporters:
            return
        from kafkapy.broker.metrics import BrokerCollector

        self.context.coordinators.make_all()  # collectors are called on threads of their own
        collector = BrokerCollector(self)
        for reporter in reporters:
            reporter.start([collector])
            self._on_stop("metrics reporter", reporter.close)
        if addresses:
            from kafkapy.broker.metrics_listener import MetricsListener

            self.metrics_listener = MetricsListener(addresses, collector)
            self.metrics_listener.start()
            self._on_stop("metrics listener", self.metrics_listener.stop)

    def use_authorizer(self, authorizer: Authorizer) -> None:
        """Take decisions from another authorizer from now on: for tests and for programs that bring their own. Any
        thread.
        """
        self.context.authorizer = authorizer
        self.socket_server.request_channel.plane.authorizer_epoch = authorizer.decisions_epoch

    # --- while it runs ------------------------------------------------------------------------------------------

    async def _follow_brokers(self, plane: DataPlane) -> None:
        """Tell the data plane where brokers are, for the node endpoints in Produce and Fetch responses (KIP-951)."""
        version = -1
        while True:
            snapshot = self.context.metadata_cache.snapshot
            if snapshot.brokers_version != version:
                version = snapshot.brokers_version
                for index, endpoint in enumerate(self.config.listeners):
                    nodes = snapshot.nodes(endpoint.listener_name)
                    plane.set_endpoints(index, {node.id: (node.host, node.port, node.rack) for node in nodes})
            await self.context.metadata_cache.wait_for_change()

    def _broker_config_changed(self, config: BrokerConfig) -> None:
        logger.info("The broker's dynamic configuration has changed")
        self._effects.check_broker(config)
        self.config = config
        self.context.controller.config = config
        self.context.log_manager.config = config
        self.context.log_manager.cleaner.reconfigure()
        self.context.replica_manager.update_config(config)
        self.context.coordinators.update_config(config)
        self.socket_server.request_channel.plane.verify_transactions = self.context.coordinators.verifies_transactions
        self.socket_server.update_limits(SocketServerConfig.from_broker_config(config))

    def _log_config(self, topic: str) -> LogConfig:
        """Of a log that is being loaded. Worker threads."""
        return effective_log_config(topic, self._repository.topic(topic), self.config)

    def _log_config_of(self, partition: TopicPartition) -> LogConfig:
        """Of a log that runs. Worker threads."""
        log = self.context.log_manager.get(partition)
        config: LogConfig = self._log_config(partition.topic) if log is None else log.config
        return config

    def _log_dir_failed(self, directory: Path, partitions: list[TopicPartition]) -> None:
        """Any thread."""
        if self._replica_manager is not None:
            self._replica_manager.log_dir_failed(directory, partitions)
            if not self.context.log_manager.live_dirs:
                self._stop_failed()

    def _stop_failed(self) -> None:
        """Stop because the broker cannot go on; the program ends with exit code 1. Any thread."""
        if self._loop is not None and self._stop_asked is not None:
            self._failed = True
            self._loop.call_soon_threadsafe(self._stop_asked.set)

    # --- stop ---------------------------------------------------------------------------------------------------

    async def shutdown(self) -> None:
        """Stop every part, the last one started first. Errors are logged and do not keep the other parts from
        stopping.
        """
        if self.state is BrokerState.NOT_RUNNING:
            return
        logger.info("shutting down")
        self._plugins_loaded.notify("broker_stopping", broker=self)
        await self._controlled_shutdown()
        await self._stop_parts()
        logger.info("shut down completed")

    async def _controlled_shutdown(self) -> None:
        """Have the controller hand this broker's leaderships over, as often as controlled.shutdown.max.retries says."""
        self.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
        config, controller = self.config, self.context.controller
        if not config.get_bool("controlled.shutdown.enable") or not controller.is_active:
            return
        retries = config.get_int("controlled.shutdown.max.retries")
        for attempt in range(1, retries + 1):
            try:
                left = await controller.controlled_shutdown(self.context.node_id)
            except (KafkaError, MetadataStoreError) as error:
                logger.warning("Controlled shutdown failed: %s", error)
            else:
                if not left:
                    return
                logger.info("Controlled shutdown: %d partitions remain to be moved", len(left))
            if attempt < retries:
                await asyncio.sleep(config.get_int("controlled.shutdown.retry.backoff.ms") / 1000)
        logger.warning("Stopping although not all leaderships could be handed over")

    async def _stop_parts(self) -> None:
        self.state = BrokerState.SHUTTING_DOWN
        while self._undo:
            name, stop = self._undo.pop()
            try:
                result = stop()
                if inspect.isawaitable(result):
                    await result
            except Exception:
                logger.exception("Error while stopping: %s", name)
        self.state = BrokerState.NOT_RUNNING

    def _on_stop(self, name: str, stop: Callable[[], Any]) -> None:
        self._undo.append((name, stop))

    async def _answer_what_is_in_flight(self) -> None:
        """Accept nobody, read nothing more, and answer what has been read."""
        self.socket_server.begin_shutdown(STOP_ANSWERING_S)
        # Members that wait for a rebalance would hold the stop up for as long as it may take.
        self.context.coordinators.stop()
        await self.apis.drain(STOP_ANSWERING_S)
        self.apis.close()
        deadline = time.monotonic() + STOP_ANSWERING_S
        while not self.socket_server.stopped and time.monotonic() < deadline:
            await asyncio.sleep(0.005)

    async def _stop_network(self) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self.socket_server.shutdown, 0.1)
        del self.socket_server

    def _broker_epoch(self) -> int:
        return self.context.controller.broker_epoch if hasattr(self, "context") else -1


def _run_loop(main: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine on an event loop of this thread; the loop's worker threads have ended when this returns."""
    import uvloop

    loop = uvloop.new_event_loop()
    try:
        loop.run_until_complete(main)
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


def _release(log_manager: LogManager) -> None:
    for log_dir in log_manager.dirs:
        log_dir.release()


def _topics_on_disk(log_manager: LogManager) -> list[str]:
    """The topics that the log directories hold partitions of."""
    topics: dict[str, None] = {}
    for log_dir in filter(lambda each: each.persistent, log_manager.live_dirs):
        for name in os.listdir(log_dir.path):  # noqa: PTH208
            partition = parse_directory_name(name)
            if partition is not None:
                topics[partition.topic] = None
    return list(topics)


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
