"""KafkaServer: one broker, from its start to its stop. Source: kafka.server.KafkaServer.

    server = KafkaServer(BrokerConfig.load("config/server.properties"))
    sys.exit(server.run())              # a whole program: until SIGTERM or SIGINT
    with KafkaServer(config) as server: ...     # inside another program: on a separate thread

`PARTS` is the order of the start. The stop goes the other way round: requests in flight are answered first, the logs
are flushed and marked clean last.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from kafkapy.broker import descriptors
from kafkapy.broker.apis import KafkaApis
from kafkapy.broker.broker_state import BrokerState
from kafkapy.broker.context import BrokerContext
from kafkapy.broker.controlled_shutdown import ControlledShutdown
from kafkapy.broker.loop_lag import LoopLag
from kafkapy.broker.message_conversion import ConversionCounts
from kafkapy.broker.meta_properties import StartupError
from kafkapy.broker.parts import (
    control,
    data_plane,
    isr,
    metadata,
    metrics,
    quotas,
    replication,
    resources,
    security,
    share,
    storage,
)
from kafkapy.broker.parts.part import Broker, Part
from kafkapy.config.broker import BrokerConfig
from kafkapy.metadata.store import MetadataStoreError
from kafkapy.network.socket_server import SocketServer
from kafkapy.plugins import PluginManager
from kafkapy.types import Endpoint
from kafkapy.version import __version__

if TYPE_CHECKING:
    from kafkapy.broker.metrics_listener import MetricsListener
    from kafkapy.security.add_scram import AddedUser
    from kafkapy.security.authorizer.base import Authorizer

logger = logging.getLogger("kafka.server.KafkaServer")

PARTS: Final[tuple[type[Part], ...]] = (
    resources.Resources,
    resources.Scheduler,
    security.FirstStart,
    storage.LogDirectories,
    metadata.Store,
    metadata.Configuration,
    security.Listeners,
    metadata.Features,
    storage.Logs,
    data_plane.Plane,
    control.Replicas,
    control.Authorization,
    security.Logins,
    quotas.Quotas,
    control.Control,
    data_plane.Network,
    data_plane.Appends,
    data_plane.Events,
    data_plane.RequestLog,
    isr.IsrChanges,
    control.Followers,
    replication.Replication,
    control.Controllership,
    metadata.ConfigChanges,
    share.SharePartitions,
    data_plane.Asks,
    data_plane.RequestChannel,
    data_plane.Endpoints,
    resources.ControlLoopLag,
    metrics.Metrics,
    data_plane.Requests,
    resources.Imports,
)
"""The parts of a broker in the order of their start."""


class KafkaServer:
    """Starts and stops the parts of one broker, in order.

    `run` or `start`/`stop` are called on a thread of the program; everything else happens on the control loop's thread,
    which one of them provides.
    """

    def __init__(
        self,
        config: BrokerConfig,
        plugins: PluginManager | None = None,
        *,
        rebuild_metadata: bool = False,
        added_users: Sequence[AddedUser] = (),
    ) -> None:
        """`plugins`: None loads those that are installed, and reads their keys of the configuration too.

        `rebuild_metadata`: the start writes the log directories' topics into the metadata store.

        `added_users`: SCRAM users that the start adds when they are missing.

        Raises PluginError when a plugin does not load, and ConfigError for a value of a plugin's key.
        """
        self._broker = Broker(
            config, plugins, self._stop_failed, rebuild_metadata=rebuild_metadata, added_users=added_users
        )
        self._started: list[Part] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stop_asked: asyncio.Event | None = None
        self._failed = False

    # --- for programs -------------------------------------------------------------------------------------------

    def run(self, on_started: Callable[[], None] | None = None) -> int:
        """Run the broker on this thread until SIGTERM or SIGINT; the exit code.

        0 after a clean stop, 1 when it stopped because no log directory works any more or another broker has taken its
        place. `on_started` is called when it accepts clients.

        StartupError (or another KafkaError) when it cannot start.
        """
        descriptors.raise_limit()
        _run_loop(self._run(signals=True, on_started=on_started))
        return int(self._failed)

    def start(self, *, daemon: bool = False) -> KafkaServer:
        """Run the broker on a separate thread; returns when it accepts clients.

        Raises the error of a start that failed.

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
        """Stop the broker that `start` started, and wait for its end.

        Calling it again does nothing.
        """
        thread, self._thread = self._thread, None
        if thread is None:
            return
        if self._loop is not None and self._stop_asked is not None:
            with suppress(RuntimeError):  # the loop is closed: the broker has stopped of itself
                self._loop.call_soon_threadsafe(self._stop_asked.set)
        thread.join()

    def call(self, coroutine: Any) -> Any:
        """The result of a coroutine that the control loop runs.

        For the thread that called `start`.
        """
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
    def config(self) -> BrokerConfig:
        """The current configuration; after the start, with dynamic changes."""
        return self._broker.config

    @property
    def state(self) -> BrokerState:
        """Where the broker is in its life."""
        return self._broker.state

    @property
    def context(self) -> BrokerContext:
        """The broker's parts for handlers."""
        return self._broker.context

    @property
    def apis(self) -> KafkaApis:
        """The dispatcher of requests to handlers."""
        return self._broker.apis

    @property
    def socket_server(self) -> SocketServer:
        """The listeners. AttributeError while there are none."""
        return self._broker.socket_server

    @property
    def metrics_listener(self) -> MetricsListener | None:
        """None where metrics.listeners is empty."""
        return self._broker.metrics_listener

    @property
    def conversions(self) -> ConversionCounts:
        """How many records were converted for old clients."""
        return self._broker.conversions

    @property
    def loop_lag(self) -> LoopLag:
        """How late the control loop is."""
        return self._broker.loop_lag

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
            # A parent that blocks them would leave SIGKILL as the only way to stop the broker.
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGINT})
        await self.startup()
        if on_started is not None:
            on_started()
        await self._stop_asked.wait()
        await self.shutdown()

    def _on_signal(self, number: int) -> None:
        logger.info("The broker received %s", signal.Signals(number).name)
        if self._stop_asked is not None:
            self._stop_asked.set()

    # --- start and stop -----------------------------------------------------------------------------------------

    async def startup(self) -> None:
        """Start every part on the running loop.

        When a part fails, the started parts are stopped again and its error is raised.
        """
        began = time.monotonic()
        broker = self._broker
        broker.state = BrokerState.STARTING
        logger.info("starting")
        try:
            for make in PARTS:
                part = make()
                self._started.append(part)
                await part.start(broker)
        except MetadataStoreError as error:
            await self._stop_parts()
            raise StartupError(str(error)) from error
        except BaseException:
            await self._stop_parts()
            raise
        broker.state = BrokerState.RUNNING
        listeners = [endpoint.connection_string for endpoint in self.endpoints]
        for listener in listeners:
            logger.info("listening on %s", listener)
        logger.info(
            "started",
            extra={
                "version": __version__,
                "seconds": f"{time.monotonic() - began:.3f}",
                "broker_id": broker.node_id,
                "cluster_id": broker.cluster_id,
                "listeners": ",".join(listeners),
                "log_dirs": ",".join(str(each.path) for each in broker.log_manager.dirs),
            },
        )
        broker.plugins.notify("broker_started", broker=self)

    async def shutdown(self) -> None:
        """Stop every part, the last one started first.

        Errors are logged and do not keep the other parts from stopping.
        """
        if self.state is BrokerState.NOT_RUNNING:
            return
        logger.info("shutting down")
        self._broker.plugins.notify("broker_stopping", broker=self)
        self._broker.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
        await ControlledShutdown(self.context).run()
        await self._stop_parts()
        logger.info("shut down completed")

    async def _stop_parts(self) -> None:
        self._broker.state = BrokerState.SHUTTING_DOWN
        while self._started:
            part = self._started.pop()
            try:
                await part.stop(self._broker)
            except Exception:
                logger.exception("Part '%s' of the broker failed to stop", part.name)
        self._broker.state = BrokerState.NOT_RUNNING

    def _stop_failed(self) -> None:
        """Stop because the broker cannot go on; the program ends with exit code 1. Any thread."""
        if self._loop is not None and self._stop_asked is not None:
            self._failed = True
            self._loop.call_soon_threadsafe(self._stop_asked.set)

    def use_authorizer(self, authorizer: Authorizer) -> None:
        """Take decisions from another authorizer from now on. Any thread.

        For tests and for programs that bring their own.
        """
        self._broker.authorizer = self.context.authorizer = authorizer
        self._broker.plane.authorizer_epoch = authorizer.decisions_epoch


def _run_loop(main: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine on an event loop of this thread; the loop's worker threads have ended when this returns."""
    import uvloop

    loop = uvloop.new_event_loop()
    try:
        loop.run_until_complete(main)
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
