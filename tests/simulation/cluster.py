"""A whole cluster in one process: brokers, their disks, network and store, clients, and the rules that always hold."""

from __future__ import annotations

import asyncio
import random
import shutil
import struct
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from simulation.broker import Channel, SimulatedBroker
from simulation.checks import Checks
from simulation.clock import NOBODY, VirtualLoop, sliced
from simulation.disk import fail_power, wipe
from simulation.network import CLIENTS, TIMEOUT_S, Network
from simulation.store import SimulatedEnsemble

from kafkapy._speedups.log.partition_log import PartitionLog
from kafkapy.config.broker import BrokerConfig
from kafkapy.config.properties import Properties
from kafkapy.controller.admin_requests import NewTopic
from kafkapy.errors import ErrorCode, KafkaConnectionError, KafkaError, error_for
from kafkapy.metadata.metadata_version import LATEST, MetadataVersion
from kafkapy.metadata.znodes import PartitionState, decode_partition_state, partition_state_path
from kafkapy.protocol.messages.produce import ProduceRequest, ProduceResponse
from kafkapy.records.batches import RecordBatchBuilder
from kafkapy.types import TopicPartition

PRODUCE_VERSION: Final = 9
KEYS: Final = {
    "replica.lag.time.max.ms": "4000",
    "replica.fetch.wait.max.ms": "2000",
    "replica.fetch.backoff.ms": "500",
    "replica.socket.timeout.ms": "6000",
    "zookeeper.session.timeout.ms": "2000",
    "auto.leader.rebalance.enable": "false",
    "log.cleaner.enable": "false",
    "log.segment.delete.delay.ms": "0",
    "min.insync.replicas": "2",
    "log.retention.ms": "-1",
    "log.index.size.max.bytes": "4096",
}
TWO_DIRS: Final = "two"
"""The value of log.dirs for two directories in each broker's own one."""
BASE: Final = Path("/dev/shm") if Path("/dev/shm").is_dir() else None


class Acknowledged(NamedTuple):
    """A record that a leader has acknowledged."""

    partition: TopicPartition
    offset: int
    value: bytes


class SimulatedCluster:
    """Brokers 0 to n - 1. Made by `simulate`."""

    def __init__(self, seed: int, brokers: int, version: MetadataVersion, directory: Path, keys: Mapping[str, str]):
        self.seed = seed
        self.dice = random.Random(seed)
        self.loop = VirtualLoop(lambda: 0.0005 * self.dice.random())
        self.network = Network(self.loop, self.dice)
        self.version = version
        self.wait_s = int(KEYS["replica.fetch.wait.max.ms"]) / 1000
        """How long a parked request waits."""
        self.ensemble = SimulatedEnsemble(self.network)
        self.brokers = {
            number: SimulatedBroker(self, number, directory / str(number), _config(number, directory, keys))
            for number in range(brokers)
        }
        self.checks = Checks(self)
        self.acknowledged: list[Acknowledged] = []
        self._channels: dict[int, Channel] = {}
        self.loop.on_turn = self._turn
        self.loop.on_advance = self._advance

    def __getitem__(self, broker_id: int) -> SimulatedBroker:
        return self.brokers[broker_id]

    def _advance(self, now_s: float) -> None:
        for broker in self.brokers.values():
            if broker.life.alive and broker.log_manager is not None:
                broker.tick(now_s)

    def _turn(self) -> None:
        for broker in self.brokers.values():
            if broker.parked:
                broker.look_at_parked()
        if self.network.failures:
            raise self.network.failures[0]
        self.checks.look()

    # --- faults -------------------------------------------------------------------------------------------------------

    def died(self, broker: SimulatedBroker) -> None:
        """A broker's process has ended without a word: its session lives on until its timeout."""
        broker.store.drop_watches()
        self._channels.pop(broker.id, None)
        self.loop.call_later(
            self.ensemble.session_timeout_s, self._end_session, broker.store.session_id, context=self.loop.world
        )

    def _end_session(self, session_id: int) -> None:
        self.loop.create_task(self.ensemble.end(session_id), context=self.loop.world)

    def fail_power(self, broker_id: int) -> None:
        """Kill a broker; its disk forgets what was not synced."""
        broker = self[broker_id]
        broker.crash()
        fail_power(broker.log_manager.logs().values(), self.dice)

    def lose_disk(self, broker_id: int) -> None:
        """Kill a broker; it has an empty disk when it comes back."""
        self[broker_id].crash()
        wipe(self[broker_id].directory)

    async def restart(self, *brokers: int) -> None:
        """Start brokers again; return when they are registered."""
        await asyncio.gather(*(self[broker].start() for broker in brokers))

    # --- waiting ------------------------------------------------------------------------------------------------------

    async def until(self, condition: Callable[[], Any], what: str, seconds: float = 120.0) -> None:
        """Return when a condition holds. AssertionError after so many virtual seconds."""
        end = self.loop.time() + seconds
        while not condition():
            if self.loop.time() > end:
                raise AssertionError(f"not within {seconds:.0f} virtual seconds: {what}\n{self.describe()}")
            await asyncio.sleep(0.2)

    async def sleep(self, seconds: float) -> None:
        """Let the virtual time pass."""
        await asyncio.sleep(seconds)

    # --- what a test looks at -----------------------------------------------------------------------------------------

    @property
    def alive(self) -> list[SimulatedBroker]:
        """The brokers that run."""
        return [broker for broker in self.brokers.values() if broker.alive and broker.ready]

    @property
    def controller(self) -> SimulatedBroker | None:
        """The active controller; None while there is none or more than one."""
        found = [broker for broker in self.alive if broker.controller.is_active]
        return found[0] if len(found) == 1 else None

    def state(self, topic: str = "t", partition: int = 0) -> Any:
        """Leader and ISR as the store has them."""
        topic_partition = TopicPartition(topic, partition)
        node = self.ensemble.tree._tree.nodes.get(partition_state_path(topic_partition))
        return None if node is None else decode_partition_state(topic_partition, node[0], node[1].version)

    def leader(self, topic: str = "t", partition: int = 0) -> Any:
        """The leader of the store's epoch, once it knows."""
        state = self.state(topic, partition)
        if state is None or state.leader < 0 or not self[state.leader].alive:
            return None
        log = self[state.leader].log(topic, partition)
        if log is None or not log.is_leader or log.leader_epoch != state.leader_epoch:
            return None
        return self[state.leader]

    def in_sync(self, *brokers: int, topic: str = "t", partition: int = 0) -> bool:
        """Whether these are the ISR, in the store and at the leader."""
        state, leader = self.state(topic, partition), self.leader(topic, partition)
        if state is None or leader is None or set(state.isr) != set(brokers):
            return False
        hosted = leader.replicas.partitions.get(TopicPartition(topic, partition))
        return hosted is not None and hosted.state is not None and set(hosted.state.isr) == set(brokers)

    def describe(self) -> str:
        """The state of everything, for a message."""
        lines = [f"seed {self.seed}, {self.loop.time() - 1000:.3f} s, links cut: {sorted(self.network.cut)}"]
        for partition in self.checks.partitions:
            lines.append(f"{partition}: {self.state(*partition)}")
            for broker in self.brokers.values():
                log = broker.log(*partition)
                life = "" if broker.alive else " dead"
                lines.append(f"  broker {broker.id}{life}: {_describe(log)}")
        return "\n".join(lines)

    # --- topics and clients -------------------------------------------------------------------------------------------

    async def create(
        self,
        topic: str = "t",
        replicas: Sequence[Sequence[int]] = ((0, 1, 2),),
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic; return when each partition has a leader that knows it."""
        everybody = {each for one in replicas for each in one}
        await self.until(
            lambda: self.controller is not None and everybody <= self.controller.controller.context.live_brokers.keys(),
            "a controller that knows the brokers",
        )
        assert self.controller is not None
        new = NewTopic(topic, assignments=dict(enumerate(map(list, replicas))), configs=dict(configs or {}))
        admin = self.controller.admin
        context = self.controller.context
        task = self.loop.create_task(admin.create_topics([new], timeout_ms=30_000), context=context)
        outcome = (await task)[topic]
        if isinstance(outcome, KafkaError):
            raise outcome
        self.checks.partitions += [TopicPartition(topic, number) for number in range(len(replicas))]
        for number in range(len(replicas)):
            await self.until(
                lambda number=number: self.leader(topic, number) is not None, f"a leader of {topic}-{number}"
            )

    def post(self, broker_id: int, frame: bytes) -> asyncio.Future[bytes]:
        """A client's request to a broker's data plane; its reply, unless it is lost."""
        answer: asyncio.Future[bytes] = self.loop.create_future()
        broker = self[broker_id]
        if not broker.alive or not broker.ready:
            answer.set_exception(KafkaConnectionError("the broker is dead"))
            return answer
        channel = self._channels.get(broker_id)
        if channel is None or channel.broker.plane is not broker.plane or channel.driver.plane is not broker.plane:
            channel = self._channels[broker_id] = Channel(broker)
        world = self.loop.world

        def replied(reply: bytes | None) -> None:
            def arrive() -> None:
                if not answer.done() and reply is not None:
                    answer.set_result(reply)

            self.network.post(broker_id, CLIENTS, reply, arrive, NOBODY, world)

        found = channel
        self.network.post(
            CLIENTS, broker_id, frame, lambda: broker.receive(found, frame, replied), broker.life, broker.context
        )
        return answer

    async def produce(
        self,
        value: bytes,
        *,
        to: int | None = None,
        acks: int = -1,
        topic: str = "t",
        partition: int = 0,
        timeout_s: float = TIMEOUT_S,
        records: int = 1,
    ) -> Acknowledged:
        """Send a record to its leader, or to the broker `to`. KafkaError; KafkaConnectionError without an answer."""
        if to is None:
            leader = self.leader(topic, partition)
            if leader is None:
                raise error_for(ErrorCode.LEADER_NOT_AVAILABLE)
            to = leader.id
        entry = ProduceRequest.Topic.Partition(index=partition, records=batch(value, records))
        request = ProduceRequest(
            transactional_id=None,
            acks=acks,
            timeout_ms=30_000,
            topic_data=[ProduceRequest.Topic(name=topic, partition_data=[entry])],
        )
        head = struct.pack(">hhih", 0, PRODUCE_VERSION, 1, -1) + b"\0"
        body = head + request.encode(PRODUCE_VERSION)
        answer = self.post(to, struct.pack(">i", len(body)) + body)
        try:
            async with asyncio.timeout(timeout_s):
                reply = await answer
        except TimeoutError:
            raise KafkaConnectionError("no answer") from None
        response = ProduceResponse.decode(reply[9:], PRODUCE_VERSION)
        (one,) = response.responses[0].partition_responses
        if one.error_code:
            raise error_for(one.error_code)
        result = Acknowledged(TopicPartition(topic, partition), one.base_offset, value)
        if acks == -1:
            self.acknowledged.append(result)
        return result

    # --- the end ------------------------------------------------------------------------------------------------------

    def heal(self) -> None:
        """End the faults of network and store."""
        self.network.heal()
        self.network.drop = lambda source, target, message: False
        for broker in self.brokers.values():
            if broker.alive and broker.ready and broker.store.cut:
                broker.store.restore_connection()

    async def repair(self) -> None:
        """End all faults, and return when all replicas are in sync and equal."""
        self.heal()
        dead = [broker.id for broker in self.brokers.values() if not broker.alive]
        await self.restart(*dead)
        await self.until(self.whole, "all replicas are in sync")
        self.checks.compare()

    def whole(self) -> bool:
        """Whether all replicas are in sync and have what their leaders have."""
        for topic, partition in self.checks.partitions:
            state, leader = self.state(topic, partition), self.leader(topic, partition)
            if (
                state is None
                or leader is None
                or not self.in_sync(*self.replicas(topic, partition), topic=topic, partition=partition)
            ):
                return False
            theirs = leader.log(topic, partition)
            assert theirs is not None
            for replica in self.replicas(topic, partition):
                ours = self[replica].log(topic, partition)
                if (
                    ours is None
                    or ours.log_end_offset != theirs.log_end_offset
                    or ours.leader_epoch != theirs.leader_epoch
                ):
                    return False
                if ours.high_watermark != theirs.log_end_offset:
                    return False
            if not all(self._tells(broker, topic, partition, state) for broker in self.brokers.values()):
                return False
        return True

    @staticmethod
    def _tells(broker: SimulatedBroker, topic: str, partition: int, state: PartitionState) -> bool:
        """Whether clients that ask a broker learn the state."""
        known = broker.cache.partition(topic, partition)
        return known is not None and (
            (known.leader, known.leader_epoch, known.isr) == (state.leader, state.leader_epoch, state.isr)
        )

    def replicas(self, topic: str = "t", partition: int = 0) -> tuple[int, ...]:
        """The assignment, as the controller knows it."""
        if self.controller is None:
            return ()
        return tuple(self.controller.controller.context.replicas_of(TopicPartition(topic, partition)))


def batch(value: bytes, records: int = 1) -> bytes:
    """A batch of equal records."""
    builder = RecordBatchBuilder()
    for _ in range(records):
        builder.append(1_700_000_000_000, None, value)
    return builder.build()


@cache
def _properties(number: int, directory: Path, keys: tuple[tuple[str, str], ...]) -> BrokerConfig:
    properties = Properties("simulation")
    home = directory / str(number)
    for key, value in {"broker.id": str(number), "log.dirs": str(home), **dict(keys)}.items():
        properties.set(key, f"{home}/a,{home}/b" if value == TWO_DIRS else value)
    return BrokerConfig.from_properties(properties)


def _config(number: int, directory: Path, keys: Mapping[str, str]) -> BrokerConfig:
    return _properties(number, directory, tuple(sorted({**KEYS, **keys}.items())))


def _describe(log: PartitionLog | None) -> str:
    if log is None:
        return "no log"
    role = "leads" if log.is_leader else f"follows {log.leader_id}"
    return (
        f"{role} in epoch {log.leader_epoch}, {log.log_start_offset} to {log.log_end_offset}, "
        f"high watermark {log.high_watermark}, epochs {log.leader_epochs()}"
    )


Scenario = Callable[[SimulatedCluster], Awaitable[None]]


def simulate(
    scenario: Scenario,
    *,
    seed: int = 0,
    brokers: int = 3,
    version: MetadataVersion = LATEST,
    directory: Path | None = None,
    started: bool = True,
    **keys: str,
) -> SimulatedCluster:
    """Run a scenario on a new cluster; `keys` are broker settings with _ for dots."""
    overrides = {key.replace("_", "."): value for key, value in keys.items()}
    own = directory is None
    place = directory or Path(tempfile.mkdtemp(prefix="kafkapy-simulation-", dir=BASE))
    cluster = SimulatedCluster(seed, brokers, version, place, overrides)
    loop = cluster.loop

    async def run() -> None:
        await cluster.ensemble.start()
        if started:
            for broker in cluster.brokers.values():
                await broker.start()
        await scenario(cluster)
        cluster.checks.look()

    try:
        with sliced(loop, random.Random(f"slices of {seed}")):
            loop.run_until_complete(loop.create_task(run(), context=loop.world))
    finally:
        for broker in cluster.brokers.values():
            if broker.alive:
                broker.life.alive = False
        loop.close()
        for broker in cluster.brokers.values():
            broker.forget()
        if own:
            shutil.rmtree(place, ignore_errors=True)
        else:
            for broker in cluster.brokers.values():
                wipe(broker.directory)
    return cluster
