"""A broker without threads and sockets: all of its replication is the production code.

    controller, ISR manager, ReplicaManager, fetchers, LogManager, PartitionLogs, data plane

The test has the place of the Processors (it wakes parked requests), of the fetcher threads (SteppedFetcher), of the
network and of the metadata store's connection.
"""

from __future__ import annotations

import asyncio
import errno
import struct
from collections.abc import Callable
from contextvars import Context
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from controller.sessions import Session
from simulation.clock import Life, VirtualLoop, context_of
from simulation.disk import SimulatedBackend
from simulation.network import TIMEOUT_S, Network, SimulatedSender

from kafkapy._speedups.base.event_queue import (
    FLUSH_WANTED,
    FOLLOWER_CAUGHT_UP,
    FOLLOWER_LOG_START,
    LOG_OFFLINE,
    SEGMENT_ROLLED,
    SEGMENT_WANTED,
    EventQueue,
)
from kafkapy._speedups.requests.data_plane import DataPlane
from kafkapy._speedups.requests.fetch_session import FetchSessionCache
from kafkapy._speedups.requests.partition_table import PartitionTable
from kafkapy._speedups.testing.request_driver import ASK, PARKED, WORKER, Exchange, RequestDriver
from kafkapy._speedups.testing.stepped_fetcher import SteppedFetcher
from kafkapy.broker.controller_order import ControllerOrder
from kafkapy.broker.data_plane_events import DataPlaneEvents
from kafkapy.broker.handlers import (
    alter_partition,
    leader_and_isr,
    list_offsets,
    offset_for_leader_epoch,
    stop_replica,
    update_metadata,
)
from kafkapy.broker.logs_at_start import log_at_start
from kafkapy.config.broker import BrokerConfig
from kafkapy.controller.broker_channel import BrokerChannel, LocalBrokerChannel
from kafkapy.controller.controller import KafkaController
from kafkapy.controller.remote_channel import RemoteBrokerChannel
from kafkapy.controller.topic_admin import TopicAdmin
from kafkapy.errors import KafkaError
from kafkapy.log.log_manager import LogManager
from kafkapy.metadata.cache import MetadataCache
from kafkapy.metadata.config_repository import ConfigRepository
from kafkapy.metadata.znodes import BrokerRegistration
from kafkapy.protocol.schema import Request
from kafkapy.replica.alter_partition import AlterPartitionManager, AlterPartitionSender, StoreIsrWriter
from kafkapy.replica.fetcher_api import FollowerVersions
from kafkapy.replica.fetcher_manager import ReplicaFetcherManager
from kafkapy.replica.isr import IsrManager
from kafkapy.replica.leader_connections import LeaderConnections
from kafkapy.replica.log_configs import effective_log_config
from kafkapy.replica.replica_manager import ReplicaManager
from kafkapy.types import Endpoint, TopicPartition

if TYPE_CHECKING:
    from simulation.cluster import SimulatedCluster

LISTENER: Final = "PLAINTEXT"
PRODUCE: Final = 0
FETCH: Final = 1
PRODUCE_WAIT_S: Final = 30.0
HANDLERS: Final = {
    handler.REQUEST: handler.handle  # type: ignore[attr-defined]
    for handler in (
        alter_partition,
        leader_and_isr,
        list_offsets,
        offset_for_leader_epoch,
        stop_replica,
        update_metadata,
    )
}


class AllowedContext:
    """The context of a request of a broker, which may do everything."""

    def __init__(self, broker: SimulatedBroker, request: Request, version: int, number: int) -> None:
        self.broker = SimpleNamespace(
            controller=broker.controller,
            controller_order=broker.controller_order,
            replica_manager=broker.replicas,
            config=broker.config,
        )
        self.api_version = version
        self.api_key = request.API_KEY
        self.correlation_id = number

    def authorize(self, *asked: Any, **more: Any) -> bool:
        return True

    def authorize_cluster(self, operation: Any) -> None:
        return

    def leave(self, *things: object) -> None:
        return

    async def authorized_names_in_slices(self, operation: Any, kind: Any, names: Any, **more: Any) -> set[str]:
        return set(names)


class Scheduler:
    """The KafkaScheduler on the virtual clock."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def schedule(self, name: str, fn: Callable[[], Any], delay_ms: int = 0, period_ms: int = -1) -> Any:
        task = SimpleNamespace(over=False)
        task.cancel = partial(setattr, task, "over", True)

        def run() -> None:
            if task.over:
                return
            made = fn()
            if asyncio.iscoroutine(made):
                self._loop.create_task(made)
            if period_ms >= 0:
                self._loop.call_later(max(period_ms, 1) / 1000, run)

        self._loop.call_later(delay_ms / 1000, run)
        return task


class InlineThreads:
    """Work on files for other threads is done at once."""

    def submit(self, work: Callable[..., Any], *arguments: Any) -> None:
        work(*arguments)

    def shutdown(self, wait: bool = True) -> None:
        return


class Connections(LeaderConnections):
    """A follower's questions to its leaders, over the simulated network."""

    def __init__(self, broker: SimulatedBroker, versions: FollowerVersions) -> None:
        self._broker_id = broker.id
        self._versions = versions
        self._broker = broker

    async def connect(self, fetcher: Any, leader_id: int, index: int) -> float | None:
        """A handshake: one round trip."""
        broker = self._broker
        network = broker.network
        await asyncio.sleep(2 * network.delay())
        target = network.brokers.get(leader_id)
        lost = network.loses(broker.id, leader_id, "connect") or network.loses(leader_id, broker.id, "connect")
        if target is None or not target.life.alive or not target.listens or lost:
            raise KafkaError(f"broker {leader_id} does not answer")
        fetcher.leader_id = leader_id
        fetcher.channel = Channel(target)
        fetcher.connected(min(self._versions.fetch, 17))
        return None

    async def _ask(self, leader_id: int, request: Request, newest: int) -> Any:
        version = min(newest, request.VERSIONS.high)
        return await self._broker.network.call(self._broker.id, leader_id, request, version, TIMEOUT_S)

    async def close(self) -> None:
        return


class Channel:
    """One connection to a broker's data plane, as long as the broker lives."""

    def __init__(self, broker: SimulatedBroker) -> None:
        self.broker = broker
        self.life = broker.life
        self.driver = RequestDriver(broker.plane, 0, True)
        self.correlation_id = 0


class Parked:
    """A request that waits at a log, and what is done with its reply."""

    __slots__ = ("exchange", "replied", "timer", "wait_s")

    def __init__(self, exchange: Exchange, replied: Callable[[bytes | None], None], wait_s: float) -> None:
        self.exchange = exchange
        self.replied = replied
        self.wait_s = wait_s
        self.timer: asyncio.TimerHandle | None = None


class SimulatedFetcher(SteppedFetcher):
    """A fetcher thread: requests go out and responses come in as events of the loop."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        self.leader_id = -1
        self.channel: Channel | None = None
        self.in_flight = 0
        self._sent = 0
        self._due = False
        self._timer: asyncio.TimerHandle | None = None
        self.broker: SimulatedBroker
        self.on_mail = self._soon

    @classmethod
    def of(cls, broker: SimulatedBroker) -> Callable[..., SimulatedFetcher]:
        def make(*arguments: Any, **keywords: Any) -> SimulatedFetcher:
            fetcher = cls(*arguments, **keywords)
            fetcher.broker = broker
            broker.steppers.append(fetcher)
            return fetcher

        return make

    def _soon(self) -> None:
        if not self._due and not self.in_flight and not self.ended:
            self._due = True
            self.broker.loop.call_soon(self._step)

    def _step(self) -> None:
        self._due = False
        if self.in_flight or self.ended:
            return
        loop = self.broker.loop
        request = self.next_request(loop.now_ns)
        if request is not None:
            self._send(request)
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.wakes_ns:
            self._timer = loop.call_at(self.wakes_ns / 1_000_000_000 + 1e-6, self._soon)

    def _send(self, request: bytes) -> None:
        broker, network, channel = self.broker, self.broker.network, self.channel
        assert channel is not None
        self._sent += 1
        number = self.in_flight = self._sent
        timer = broker.loop.call_later(broker.fetch_timeout_s, self._lost, number, errno.ETIMEDOUT)
        leader = channel.broker
        # Of this moment: the broker may have another life when the answer comes.
        life, context = broker.life, broker.context

        def answered(reply: bytes | None) -> None:
            if reply is not None:
                network.post(self.leader_id, broker.id, reply, lambda: self._take(number, timer, reply), life, context)

        if channel.life.alive:
            arrives, receiver, there = partial(leader.receive, channel, request, answered), leader.life, leader.context
        else:
            # Nobody knows the connection any more.
            arrives, receiver, there = partial(self._lost, number, errno.ECONNRESET), life, context
        network.post(broker.id, self.leader_id, request, arrives, receiver, there)

    def _take(self, number: int, timer: asyncio.TimerHandle, reply: bytes) -> None:
        if self.in_flight != number or self.ended:
            return
        timer.cancel()
        self.in_flight = 0
        self.take_response(reply, self.broker.loop.now_ns)
        self._soon()

    def _lost(self, number: int, failure: int) -> None:
        if self.in_flight == number and not self.ended:
            self.in_flight = 0
            self.lost(failure, self.broker.loop.now_ns)
            self._soon()


class SimulatedBroker:
    """One broker; `start` begins a life, `crash` ends it. The disk stays."""

    def __init__(self, cluster: SimulatedCluster, broker_id: int, directory: Path, config: BrokerConfig) -> None:
        self.cluster = cluster
        self.id = broker_id
        self.directory = directory
        self.config = config
        self.loop: VirtualLoop = cluster.loop
        self.network: Network = cluster.network
        self.life = Life(f"broker {broker_id}")
        self.life.alive = False
        self.context: Context = context_of(self.life)
        self.parked: list[Parked] = []
        self.steppers: list[SimulatedFetcher] = []
        self.fetch_timeout_s = TIMEOUT_S * 3
        self.lives = 0
        self.listens = self.ready = False
        self.lost_disk = False
        """Its disk has lost records, and has not caught up since."""
        self.log_manager: Any = None
        self.loaded: Life | None = None
        """The life that has loaded the logs; a dead one's logs stay to be looked at."""

    # --- a life -------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin a life, as KafkaServer does; return when the broker is registered."""
        if self.life.alive:
            return
        self.lives += 1
        self.life = Life(f"broker {self.id}, life {self.lives}")
        self.context = context_of(self.life)
        self.parked, self.steppers = [], []
        self.listens = self.ready = False
        self.registered = asyncio.Event()
        life = self.life
        try:
            await self.loop.create_task(self._start(), context=self.context)
        except BaseException:
            if self.life is life:
                self.crash()
            raise

    async def _start(self) -> None:
        config = self.config
        self.store: Session = self.cluster.ensemble.session()
        await self.store.start()
        self.configs = ConfigRepository(self.store)
        await self.configs.start()
        self.events = EventQueue()
        self.controller_order = ControllerOrder()
        self.backend = SimulatedBackend()
        self.scheduler = Scheduler(self.loop)
        self.log_manager = manager = LogManager(
            config,
            backends={"local": self.backend},
            events=self.events,
            scheduler=self.scheduler,
            topic_config=lambda topic: effective_log_config(topic, self.configs.topic(topic), config),
            on_log_dir_failure=lambda path, partitions: self.replicas.log_dir_failed(path, partitions),
        )
        manager._workers.clear()
        manager.events._segments = InlineThreads()  # type: ignore[assignment]
        self.table = PartitionTable()
        self.cache = MetadataCache()
        self.plane = DataPlane(self.id, self.table, FetchSessionCache(100, 120_000), self.events)
        self.replicas = ReplicaManager(config, self.id, self.store, manager, self.table, self.cache, self.configs)
        self.tick(self.loop.time())
        manager.acquire()
        manager.load()
        self.loaded = self.life
        manager.start()
        self._start_replication()
        self.controller = controller = KafkaController(
            config,
            self.id,
            self.store,
            self.cache,
            self.configs,
            self._channel,
            replaced=self.crash,
            logs_at_start=partial(log_at_start, manager),
            metadata_version=self.cluster.version,
        )
        controller.registered.append(self._registered)
        self.admin = TopicAdmin(controller)
        self.network.brokers[self.id] = self
        self.listens = True
        await controller.start(BrokerRegistration(self.id, (Endpoint(LISTENER, "host", 9000 + self.id),)))
        self.ready = True
        self.registered.set()

    def _start_replication(self) -> None:
        replicas, version = self.replicas, self.cluster.version
        versions = FollowerVersions(
            version.fetch_version,
            version.list_offsets_version,
            version.offset_for_leader_epoch_version,
            version.truncates_on_fetch,
        )
        self.fetchers = ReplicaFetcherManager(
            self.config,
            self.id,
            self.log_manager,
            None,  # type: ignore[arg-type]
            lambda broker: None,
            replicas,
            versions=versions,
            connections=Connections(self, versions),
            make_kernel=SimulatedFetcher.of(self),
        )
        replicas.follow_with(self.fetchers)
        sender: AlterPartitionSender = StoreIsrWriter(self.store, clock=self.loop.time)
        if version.has_alter_partition:
            sender = AlterPartitionManager(
                self.id,
                SimulatedSender(self.network, self.id),
                lambda: self.cache.controller_id,
                lambda: self.controller.broker_epoch,
            )
        self.isr = replicas.isr = IsrManager(self.id, replicas.replication, sender)
        period_ms = max(1, self.config.get_int("replica.lag.time.max.ms") // 2)
        self.scheduler.schedule("isr-expiration", self.isr.shrink_all, period_ms, period_ms)
        events = self.log_manager.events
        handed_out = DataPlaneEvents(self.events, {})
        handed_out.on(FOLLOWER_CAUGHT_UP, self.isr.follower_caught_up)
        handed_out.on(FOLLOWER_LOG_START, replicas.deletions.log_start_moved)
        handed_out.on(SEGMENT_WANTED, events.segment_wanted)
        handed_out.on(SEGMENT_ROLLED, events.segment_rolled)
        handed_out.on(FLUSH_WANTED, events.flush_wanted)
        handed_out.on(LOG_OFFLINE, events.log_offline)
        handed_out.start()

    def _registered(self, epoch: int) -> None:
        self.fetchers.broker_epoch = epoch

    def _channel(self, broker: BrokerRegistration) -> BrokerChannel:
        if broker.id == self.id:
            return LocalBrokerChannel(self.replicas)
        return RemoteBrokerChannel(broker.id, SimulatedSender(self.network, self.id), self.cluster.version, LISTENER)

    def crash(self) -> None:
        """SIGKILL: nothing of this life runs any more. The session of the store lives until it expires."""
        if not self.life.alive:
            return
        self.life.alive = False
        self.steppers.clear()
        self.ready = False
        self.store.cut = True
        self.cluster.died(self)
        for parked in self.parked:
            parked.exchange.cancel()
        self.parked.clear()
        for log_dir in self.log_manager.dirs:
            log_dir.release()

    def forget(self) -> None:
        """Let go of everything, at the end of the simulation."""
        for parked in self.parked:
            parked.exchange.cancel()
        self.parked.clear()
        self.steppers.clear()
        if self.log_manager is not None:
            for log_dir in self.log_manager.dirs:
                log_dir.release()

    # --- the data plane -----------------------------------------------------------------------------------------------

    def tick(self, now_s: float) -> None:
        """The clock of the lag times."""
        self.replicas.replication.clock_ms = int(now_s * 1000)

    def receive(self, channel: Channel, frame: bytes, replied: Callable[[bytes | None], None]) -> None:
        """A Produce or Fetch has arrived. `replied` gets the reply, or None when the connection is closed."""
        api_key, version, correlation_id, client_size = struct.unpack_from(">hhih", frame, 4)
        at = 14 + max(client_size, 0)
        if version >= (9 if api_key == PRODUCE else 12):
            at += 1
        exchange = channel.driver.handle(api_key, version, correlation_id, None, frame[at:])
        wait_s = PRODUCE_WAIT_S if api_key == PRODUCE else self.cluster.wait_s
        self._go_on(Parked(exchange, replied, wait_s))

    def _go_on(self, parked: Parked) -> bool:
        """Whether the request still waits."""
        exchange = parked.exchange
        while True:
            kind = exchange.kind
            if kind == PARKED:
                if exchange.wakes:
                    exchange.resume()
                    continue
                if parked.timer is None:
                    parked.timer = self.loop.call_later(parked.wait_s, self._timed_out, parked, context=self.context)
                    self.parked.append(parked)
                return True
            if kind == WORKER:
                exchange.work()
            elif kind == ASK:
                self._answer(exchange)
                exchange.resume()
            else:
                break
        if parked.timer is not None:
            parked.timer.cancel()
        parked.replied(exchange.reply)
        return False

    @staticmethod
    def _answer(exchange: Exchange) -> None:
        questions = exchange.questions
        assert not exchange.asks_conversion and not exchange.asks_verification and not exchange.asks_selection
        if exchange.asks_validation:
            for each in questions:
                exchange.replace_records(int(each), None)

    def _timed_out(self, parked: Parked) -> None:
        if parked in self.parked:
            parked.exchange.resume(timed_out=True)
            if not self._go_on(parked):
                self.parked.remove(parked)

    def look_at_parked(self) -> None:
        """Resume the requests that a log has woken."""
        for parked in list(self.parked):
            if parked.exchange.wakes and not self.context.run(self._go_on, parked) and parked in self.parked:
                self.parked.remove(parked)

    # --- the control plane --------------------------------------------------------------------------------------------

    async def serve(self, request: Request, version: int, number: int) -> Any:
        """The response of the handler to a sender's request of this number.

        Before the registration requests wait, as in the RequestChannel.
        """
        await self.registered.wait()
        return await HANDLERS[type(request)](AllowedContext(self, request, version, number), request)  # type: ignore[arg-type]

    # --- what a test looks at -----------------------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self.life.alive

    def log(self, topic: str = "t", partition: int = 0) -> Any:
        """A log, also that of a dead broker; None when it has none."""
        return None if self.log_manager is None else self.log_manager.table.get(TopicPartition(topic, partition))
