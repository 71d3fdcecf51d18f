"""Coordinators of several brokers on one virtual clock, with a network and logs in memory.

The logs know who leads them. What a leader has appended is committed when `Logs.replicate` is on; otherwise it is the
leader's tail, which a change of leadership may cut. Requests between brokers are encoded, decoded and served by the
handlers of the real broker. A broker may be away, hang, lose requests or answers, and its metadata may be old.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid5

from kafkapy import errors
from kafkapy.broker.handlers import (
    add_partitions_to_txn,
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    txn_offset_commit,
    write_share_group_state,
    write_txn_markers,
)
from kafkapy.clients.network_client import RequestOf
from kafkapy.coordinator.group.config import GroupConfig
from kafkapy.coordinator.group.coordinator import GroupCoordinator
from kafkapy.coordinator.partitioning import partition_of
from kafkapy.coordinator.result import Later
from kafkapy.coordinator.share.cluster_persister import ClusterPersister
from kafkapy.coordinator.share.config import ShareCoordinatorConfig
from kafkapy.coordinator.share.coordinator import ShareCoordinator
from kafkapy.coordinator.share.state import ShareKey
from kafkapy.coordinator.transaction.config import TransactionConfig
from kafkapy.coordinator.transaction.coordinator import TransactionCoordinator
from kafkapy.coordinator.transaction.markers import LocalMarkerWriter, Marker
from kafkapy.coordinator.transaction.metadata import ProducerIdAndEpoch
from kafkapy.coordinator.transaction.remote_coordinator import ClusterCoordinates
from kafkapy.coordinator.transaction.remote_markers import ClusterMarkerWriter
from kafkapy.coordinator.transaction.verification import TransactionVerification
from kafkapy.coordinator.writer import Appended, CommittedListener, LoadedChunk, loaded_batch
from kafkapy.errors import ErrorCode, KafkaError, code_of, error_for
from kafkapy.metadata.cache import MetadataSnapshot, PartitionMetadata, TopicMetadata
from kafkapy.metadata.topic_names import GROUP_METADATA_TOPIC, SHARE_GROUP_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from kafkapy.metadata.znodes import BrokerRegistration
from kafkapy.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from kafkapy.protocol.messages.delete_share_group_state import DeleteShareGroupStateRequest
from kafkapy.protocol.messages.initialize_share_group_state import InitializeShareGroupStateRequest
from kafkapy.protocol.messages.read_share_group_state import ReadShareGroupStateRequest
from kafkapy.protocol.messages.read_share_group_state_summary import ReadShareGroupStateSummaryRequest
from kafkapy.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from kafkapy.protocol.messages.write_share_group_state import WriteShareGroupStateRequest
from kafkapy.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from kafkapy.protocol.schema import Request
from kafkapy.records.batches import iter_batches
from kafkapy.records.control import read_control_batch
from kafkapy.testing.coordinator import VirtualClock
from kafkapy.testing.share import share_parts
from kafkapy.types import ZERO_UUID, Endpoint, TopicPartition

HANDLERS: dict[type[Request], Any] = {
    WriteTxnMarkersRequest: write_txn_markers,
    AddPartitionsToTxnRequest: add_partitions_to_txn,
    TxnOffsetCommitRequest: txn_offset_commit,
    InitializeShareGroupStateRequest: initialize_share_group_state,
    ReadShareGroupStateRequest: read_share_group_state,
    WriteShareGroupStateRequest: write_share_group_state,
    DeleteShareGroupStateRequest: delete_share_group_state,
    ReadShareGroupStateSummaryRequest: read_share_group_state_summary,
}
NEWEST = {kind: kind.VERSIONS.high for kind in HANDLERS}
STATE_PARTITIONS, OFFSETS_PARTITIONS, SHARE_PARTITIONS = 2, 2, 2
STATES = [TopicPartition(TRANSACTION_STATE_TOPIC, number) for number in range(STATE_PARTITIONS)]
OFFSETS = [TopicPartition(GROUP_METADATA_TOPIC, number) for number in range(OFFSETS_PARTITIONS)]
SHARES = [TopicPartition(SHARE_GROUP_STATE_TOPIC, number) for number in range(SHARE_PARTITIONS)]


class Log:
    """One partition: its batches, and the records of test producers, of which nobody needs the bytes."""

    def __init__(self) -> None:
        self.leader = -1
        self.epoch = 0
        self.entries: list[tuple[int, bytes | tuple[ProducerIdAndEpoch, Any]]] = []
        """The offset after each entry, and the entry."""
        self.high_watermark = 0
        self._forget()

    def _forget(self) -> None:
        self.epochs: dict[int, int] = {}
        """Producer id to the highest producer epoch."""
        self.coordinators: dict[int, int] = {}
        """Producer id to the highest coordinator epoch of its markers."""
        self.open: dict[int, list[Any]] = {}
        self.outcomes: dict[Any, bool] = {}
        self.markers: dict[int, int] = {}
        """Producer id to the number of its markers."""

    @property
    def end(self) -> int:
        return self.entries[-1][0] if self.entries else 0

    @property
    def batches(self) -> list[bytes]:
        return [entry for _, entry in self.entries if isinstance(entry, bytes)]

    def append(self, data: bytes) -> int:
        for batch in iter_batches(data, check_crc=True):
            marker = read_control_batch(batch) if batch.is_control else None
            if marker is not None:
                if batch.producer_epoch < self.epochs.get(batch.producer_id, -1):
                    raise errors.InvalidProducerEpochError()
                if marker.coordinator_epoch < self.coordinators.get(batch.producer_id, -1):
                    raise errors.TransactionCoordinatorFencedError()
        for batch in iter_batches(data):
            base = self.end
            entry = base.to_bytes(8, "big") + batch.to_bytes()[8:]
            self.entries.append((base + batch.last_offset_delta + 1, entry))
            self._apply(entry)
        return self.end

    def produce(self, producer: ProducerIdAndEpoch, what: Any) -> bool:
        """A record of a producer; whether it was taken."""
        if producer.producer_epoch < self.epochs.get(producer.producer_id, -1):
            return False
        self.entries.append((self.end + 1, (producer, what)))
        self._apply((producer, what))
        return True

    def _apply(self, entry: bytes | tuple[ProducerIdAndEpoch, Any]) -> None:
        if not isinstance(entry, bytes):
            (producer_id, epoch), what = entry
            self.epochs[producer_id] = epoch
            self.open.setdefault(producer_id, []).append(what)
            return
        [batch] = iter_batches(entry)
        marker = read_control_batch(batch) if batch.is_control else None
        if marker is None:
            return
        self.epochs[batch.producer_id] = batch.producer_epoch
        self.coordinators[batch.producer_id] = marker.coordinator_epoch
        self.markers[batch.producer_id] = self.markers.get(batch.producer_id, 0) + 1
        for what in self.open.pop(batch.producer_id, ()):
            assert what not in self.outcomes
            self.outcomes[what] = marker.committed

    def cut(self, kept: int) -> None:
        """Lose all but the first `kept` entries of the tail, as the next leader does not have them."""
        committed = sum(end <= self.high_watermark for end, _ in self.entries)
        del self.entries[committed + kept :]
        self._forget()
        for _, entry in self.entries:
            self._apply(entry)


class Writer:
    """A broker's access to the logs that it believes to lead. A PartitionWriter."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._listeners: list[CommittedListener] = []

    def _log(self, partition: TopicPartition) -> Log:
        if partition not in self._broker.leads:
            raise errors.NotLeaderOrFollowerError()
        return self._broker.cluster.logs[partition]

    def ensure_writable(self, partition: TopicPartition) -> int:
        self._log(partition)
        failure = self._broker.cluster.unwritable.get(partition)
        if failure is not None:
            raise error_for(failure)
        return 1_000_000

    def append(self, partition: TopicPartition, batches: bytes, leader_epoch: int, done: Appended) -> None:
        if self._broker.leads.get(partition) != leader_epoch:
            done(errors.FencedLeaderEpochError())
            return
        log = self._broker.cluster.logs[partition]
        if (log.leader, log.epoch) != (self._broker.id, leader_epoch):
            # It has been replaced without having heard of it: this goes to a tail that nobody replicates.
            done(1_000_000_000)
            return
        try:
            end = log.append(batches)
        except KafkaError as error:
            done(error)
            return
        if self._broker.cluster.replicate:
            log.high_watermark = end
        done(end)

    def together(self, work: Callable[[], None]) -> None:
        work()

    def leader_epoch(self, partition: TopicPartition) -> int:
        return self._broker.leads.get(partition, -1)

    def high_watermark(self, partition: TopicPartition, leader_epoch: int) -> int:
        if self._broker.leads.get(partition) != leader_epoch:
            return -1
        return self._broker.cluster.logs[partition].high_watermark

    def end_offset(self, partition: TopicPartition) -> int:
        return self._broker.cluster.logs[partition].end

    def read(self, partition: TopicPartition, offset: int) -> LoadedChunk:
        log = self._log(partition)
        found = [loaded_batch(batch, 0) for data in log.batches for batch in iter_batches(data)]
        return LoadedChunk([each for each in found if each is not None], log.end, at_end=True)

    def sync(self, partition: TopicPartition) -> None:
        self._log(partition)

    def on_committed(self, listener: CommittedListener) -> None:
        self._listeners.append(listener)

    def committed(self, partition: TopicPartition) -> None:
        for listener in self._listeners:
            listener(partition)


class Broker:
    """One broker: its coordinators, and its view of who leads."""

    def __init__(self, cluster: Cluster, broker_id: int) -> None:
        self.cluster = cluster
        self.id = broker_id
        self.leads: dict[TopicPartition, int] = {}
        self.leaders: dict[TopicPartition, int] = {}
        """The metadata cache: partition to leader."""
        self.away = False
        self.hangs = False
        self.newest = dict(NEWEST)
        self.denies = False
        self.clock = cluster.clock
        self.writer = Writer(self)
        self.verification_enabled = True
        self.group = GroupCoordinator(
            GroupConfig(),
            self.writer,
            self.clock,
            partition_count=lambda: OFFSETS_PARTITIONS,
            assignors=(),
            metadata=self.snapshot,
            **share_parts(self.clock),
        )
        self.markers = LocalMarkerWriter(self.writer, self.clock, self._complete_offsets, timeout_ms=lambda: 5000)
        self.cluster_markers = ClusterMarkerWriter(
            self.id, self.markers, self, self.clock, self.leader_of, timeout_ms=lambda: 5000
        )
        self.transaction = TransactionCoordinator(
            TransactionConfig(),
            self.writer,
            self.clock,
            self.cluster_markers,
            self._next_id,
            partition_count=lambda: STATE_PARTITIONS,
            is_gone=lambda partition: partition not in self.leaders,
        )
        self.transactions = ClusterCoordinates(
            self.id, self.transaction, self, self.clock, self.coordinator_of, timeout_ms=lambda: 5000
        )
        self.share = ShareCoordinator(
            ShareCoordinatorConfig(),
            self.writer,
            self.clock,
            partition_count=lambda: SHARE_PARTITIONS,
            exists=lambda topic_id, number: (
                TopicPartition(self.cluster.topics.get(topic_id, ""), number) in self.leaders
            ),
            is_gone=lambda topic_id: topic_id not in self.cluster.topics,
            delete_records=lambda partition, offset: Later.of(None),
        )
        self.persister = ClusterPersister(
            self.id,
            self.share,
            self,
            self.clock,
            self.share_coordinator_of,
            self.cluster.create_share_topic,
            timeout_ms=lambda: 5000,
        )
        self.verification = TransactionVerification(
            self.transactions, self.clock, enabled=True, backoff_ms=20, backoff_max_ms=100
        )

    async def _next_id(self) -> int:
        return next(self.cluster.ids)

    def _complete_offsets(self, partition: int, marker: Marker) -> Later[None]:
        return self.group.runtime.complete_transaction(
            partition, marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, marker.committed
        )

    # --- metadata ---------------------------------------------------------------------------------------------------

    def leader_of(self, partition: TopicPartition) -> int | None:
        return self.leaders.get(partition)

    def coordinator_of(self, transactional_id: str) -> int | None:
        return self.leader_of(STATES[partition_of(transactional_id, STATE_PARTITIONS)])

    def has(self, topic_id: UUID, number: int) -> bool:
        return TopicPartition(self.cluster.topics.get(topic_id, ""), number) in self.leaders

    def share_coordinator_of(self, key: ShareKey) -> int | None:
        return self.leader_of(SHARES[partition_of(key.text, SHARE_PARTITIONS)])

    def snapshot(self) -> MetadataSnapshot:
        topics: dict[str, dict[int, PartitionMetadata]] = {}
        for (topic, number), leader in self.leaders.items():
            topics.setdefault(topic, {})[number] = PartitionMetadata(number, leader, 0, (leader,), (leader,))
        return MetadataSnapshot(
            brokers={each: BrokerRegistration(each, (Endpoint("L", "h", 1),)) for each in self.cluster.brokers},
            topics={name: TopicMetadata(name, ZERO_UUID, partitions) for name, partitions in topics.items()},
        )

    def learn(self) -> None:
        """Hear of all leaders, as from an UpdateMetadata."""
        self.leaders = {partition: log.leader for partition, log in self.cluster.logs.items()}
        self.cluster_markers.leaders_changed()
        self.transactions.leaders_changed()
        self.persister.leaders_changed()

    def lead(self, partition: TopicPartition, epoch: int, leads: bool) -> None:
        """Obey a LeaderAndIsr."""
        if leads:
            self.leads[partition] = epoch
        else:
            self.leads.pop(partition, None)
        self.markers.leadership_changed(partition)
        self.group.runtime.on_leadership_change(partition, epoch, leads)
        self.transaction.on_leadership_change(partition, epoch, leads)
        self.share.on_leadership_change(partition, epoch, leads)

    # --- network ----------------------------------------------------------------------------------------------------

    def send(self, broker_id: int, request: Request | RequestOf, timeout_ms: int) -> Later[Any]:
        """Send a request to another broker. See Peers."""
        later: Later[Any] = Later()
        other = self.cluster.brokers[broker_id]
        kind = request.kind if isinstance(request, RequestOf) else type(request)
        version = other.newest[kind]
        try:
            built = request.build(version) if isinstance(request, RequestOf) else request
        except KafkaError as error:
            return Later.failure(error)
        self.cluster.sent.append((self.id, broker_id, built))
        if other.away or self.away:
            self.clock.call_soon(lambda: later.fail(errors.KafkaConnectionError("the broker is away")))
            return later
        self.clock.call_at(
            self.clock.monotonic_ms() + timeout_ms, lambda: later.fail(errors.RequestTimedOutError("no answer"))
        )
        fate = self.cluster.fates.popleft() if self.cluster.fates else ""
        if fate == "request lost":
            self.clock.call_soon(lambda: later.fail(errors.KafkaConnectionError("the request was lost")))
            return later
        arrived = kind.decode(built.encode(version), version)

        def answer(response: Any) -> None:
            if fate == "answer lost":
                later.fail(errors.KafkaConnectionError("the answer was lost"))
            else:
                later.set(type(response).decode(response.encode(version), version))

        def deliver() -> None:
            if not other.hangs:
                other.serve(arrived, version).then(lambda done: answer(done.result()))

        if fate == "delayed":
            self.cluster.delayed.append(deliver)
        else:
            self.clock.call_soon(deliver)
        return later

    def serve(self, request: Request, version: int) -> Later[Any]:
        """What the broker answers a client, or another broker."""
        later: Later[Any] = Later()
        handler = HANDLERS[type(request)]
        context = SimpleNamespace(
            api_version=version,
            broker=SimpleNamespace(
                coordinators=self,
                metadata_cache=SimpleNamespace(snapshot=self.snapshot(), contains=self.leaders.__contains__),
                replica_manager=SimpleNamespace(log=self.cluster.logs.get),
            ),
            client_id="client",
            client_address="127.0.0.1",
            authorize=lambda *_, **__: not self.denies,
            authorize_cluster=self._authorize_cluster,
            authorized_names_in_slices=self._allow,
            leave=lambda *_: None,
        )

        async def run() -> None:
            try:
                later.set(await handler.handle(context, request))
            except KafkaError as error:
                later.set(handler.error_response(request, code_of(error), error.message))

        self.cluster.start(run())
        return later

    async def _allow(self, _operation: Any, _kind: Any, names: Any) -> set[str]:
        return set(names)

    def _authorize_cluster(self, _operation: Any) -> None:
        if self.denies:
            raise errors.ClusterAuthorizationFailedError()


class Cluster:
    """The brokers, the partitions and the network between them. `close` ends it."""

    def __init__(self, count: int = 3, topics: tuple[str, ...] = ("a", "b", "c")) -> None:
        self.loop = asyncio.new_event_loop()
        self.clock = VirtualClock()
        self.ids = iter(range(1000, 10_000_000))
        self.replicate = True
        self.unwritable: dict[TopicPartition, ErrorCode] = {}
        self.sent: list[tuple[int, int, Any]] = []
        self.fates: deque[str] = deque()
        """What happens to the next requests: "request lost", "answer lost", "delayed", "" for nothing."""
        self.delayed: list[Callable[[], None]] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self.topics = {uuid5(ZERO_UUID, topic): topic for topic in topics}
        """Topic id to name."""
        self.creations = 0
        """How often a broker had __share_group_state created."""
        partitions = [*STATES, *OFFSETS, *(TopicPartition(topic, 0) for topic in topics), *SHARES]
        self.logs = {partition: Log() for partition in partitions}
        self.brokers = {number: Broker(self, number) for number in range(1, count + 1)}
        for index, partition in enumerate(partitions):
            self.elect(partition, 1 + index % count)
        self.learn()
        self.settle()

    def close(self) -> None:
        async def end() -> None:
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        self.loop.run_until_complete(end())
        self.loop.close()

    def elect(self, partition: TopicPartition, leader: int, *, kept: int = 1000, old_hears: bool = True) -> None:
        """A leader with the next epoch. `kept`: entries that another one has of what was not committed."""
        log = self.logs[partition]
        before = log.leader
        if before != leader:
            log.cut(kept)
        log.leader, log.epoch = leader, log.epoch + 1
        if before != leader and partition in self.brokers[leader].leads:
            # It has followed the other leader meanwhile.
            self.brokers[leader].lead(partition, log.epoch, False)
        if old_hears and before in self.brokers and before != leader:
            self.brokers[before].lead(partition, log.epoch, False)
        self.brokers[leader].lead(partition, log.epoch, True)

    def create_share_topic(self) -> None:
        self.creations += 1

    def learn(self) -> None:
        """Every broker hears of all leaders."""
        for broker in self.brokers.values():
            broker.learn()

    def commit(self) -> None:
        """All replicas have everything."""
        for partition, log in self.logs.items():
            log.high_watermark = log.end
            if log.leader in self.brokers:
                self.brokers[log.leader].writer.committed(partition)

    def coordinator(self, transactional_id: str) -> Broker:
        """The broker that coordinates an id."""
        return self.brokers[self.logs[STATES[partition_of(transactional_id, STATE_PARTITIONS)]].leader]

    def heal(self) -> None:
        """End all faults; every broker hears of all elections."""
        self.replicate = True
        self.unwritable.clear()
        self.fates.clear()
        for broker in self.brokers.values():
            broker.away = broker.hangs = False
            for partition, log in self.logs.items():
                if partition in broker.leads and log.leader != broker.id:
                    broker.lead(partition, log.epoch, False)
        self.learn()
        self.commit()
        self.settle()

    def leader(self, partition: TopicPartition) -> Broker:
        return self.brokers[self.logs[partition].leader]

    # --- time -------------------------------------------------------------------------------------------------------

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def settle(self) -> None:
        """Let everything run that is ready."""

        async def run() -> None:
            for _ in range(30):
                await asyncio.sleep(0)
                self.clock.run()
            await asyncio.sleep(0)

        self.loop.run_until_complete(run())

    def advance(self, ms: int) -> None:
        """Let time pass, in steps of 50 ms."""
        for _ in range(max(ms // 50, 1)):
            self.clock.advance(min(ms, 50))
            self.settle()

    def ask(self, request: Coroutine[Any, Any, Any] | Later[Any]) -> Any:
        """The reply of a request, or the code of its error."""
        task = self.start(request.wait() if isinstance(request, Later) else request)
        self.settle()
        assert task.done()
        error = task.exception()
        if error is None:
            return task.result()
        if not isinstance(error, KafkaError):
            raise error
        return code_of(error)

    # --- requests of producers --------------------------------------------------------------------------------------

    def init(self, name: str = "t") -> Any:
        return self.ask(self.coordinator(name).transaction.init_producer_id(name, 60_000, None))

    def add(self, producer: ProducerIdAndEpoch, *partitions: TopicPartition, name: str = "t") -> Any:
        return self.ask(self.coordinator(name).transaction.add_partitions(name, producer, partitions))

    def end(self, producer: ProducerIdAndEpoch, committed: bool = True, name: str = "t", version: int = 0) -> Any:
        return self.ask(self.coordinator(name).transaction.end_transaction(name, producer, committed, version))

    def state(self, name: str = "t") -> str:
        """The state of an id at its coordinator."""
        found = self.ask(self.coordinator(name).transaction.describe(name))
        return found.name if isinstance(found, ErrorCode) else found.state.name

    def requests(self, kind: type[Request]) -> list[tuple[int, int, Any]]:
        """The requests between brokers of a kind."""
        return [each for each in self.sent if isinstance(each[2], kind)]
