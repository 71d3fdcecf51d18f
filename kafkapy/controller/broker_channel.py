"""The controller's requests to brokers: batches, a queue per broker, and channels.

A broker receives requests in the order the controller made them: each broker has one queue and one request in flight. A
step with many partitions becomes several requests. A LeaderAndIsr of a batch goes before its UpdateMetadata, so a
leader knows its role before clients hear of it. Source: kafka.controller.ControllerChannelManager,
ControllerBrokerRequestBatch.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, Final, Protocol, TypeVar

from kafkapy.controller.context import ControllerContext
from kafkapy.errors import code_of
from kafkapy.metadata.broker_requests import (
    LEADER_DURING_DELETE,
    BrokerRequest,
    BrokerResponse,
    LeaderAndIsr,
    LeaderAndIsrPartition,
    MetadataPartitions,
    StopReplica,
    StopReplicaPartition,
    UpdateMetadata,
    UpdateMetadataPartition,
)
from kafkapy.metadata.znodes import BrokerRegistration, PartitionState
from kafkapy.slices import in_chunks, in_slices
from kafkapy.types import TopicPartition

logger = logging.getLogger("state.change.logger")

D = TypeVar("D", bound=dict[TopicPartition, Any])

MAX_PARTITIONS: Final = 5000
"""Most partitions of one request; a step with more becomes several requests.

A million in one request would be more than a broker accepts (socket.request.max.bytes), and a thousand brokers get it.
"""

ResponseCallback = Callable[[int, BrokerRequest, BrokerResponse], None]
"""Called on the control loop with the broker's id, the request, and the response."""


class BrokerRequestHandler(Protocol):
    """A broker's handlers of the controller's requests; the ReplicaManager implements it."""

    async def become_leader_or_follower(self, request: LeaderAndIsr) -> BrokerResponse:
        """Lead or follow partitions."""

    async def update_metadata(self, request: UpdateMetadata) -> BrokerResponse:
        """Apply the metadata for clients."""

    async def stop_replicas(self, request: StopReplica) -> BrokerResponse:
        """Stop hosting partitions."""


class BrokerChannel(ABC):
    """A connection to one broker.

    A channel factory makes it; that broker's queue uses it on the control loop.
    """

    @abstractmethod
    async def send(self, request: BrokerRequest) -> BrokerResponse:
        """Send a request and return the response.

        The channel retries as long as the broker is alive.
        """

    async def close(self) -> None:
        """Release the channel's resources."""
        return


class LocalBrokerChannel(BrokerChannel):
    """The channel to this broker itself: a call on the control loop."""

    def __init__(self, handler: BrokerRequestHandler) -> None:
        self._handler = handler

    async def send(self, request: BrokerRequest) -> BrokerResponse:
        """Call the handler for the request.

        An error that it raises becomes the error of the response.
        """
        try:
            if isinstance(request, LeaderAndIsr):
                return await self._handler.become_leader_or_follower(request)
            if isinstance(request, UpdateMetadata):
                return await self._handler.update_metadata(request)
            return await self._handler.stop_replicas(request)
        except Exception as error:
            logger.exception("The broker failed to handle %s of the controller", type(request).__name__)
            return BrokerResponse(code_of(error), dict.fromkeys(request.partitions, code_of(error)))


ChannelFactory = Callable[[BrokerRegistration], BrokerChannel]


class _BrokerQueue:
    """The requests on their way to one broker, in order."""

    def __init__(self, broker: BrokerRegistration, channel: BrokerChannel, answered: ResponseCallback) -> None:
        self.broker = broker
        self._channel = channel
        self._answered = answered
        self._queue: asyncio.Queue[BrokerRequest] = asyncio.Queue()
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"controller-to-broker-{broker.id}")

    def put(self, request: BrokerRequest) -> None:
        self._queue.put_nowait(request)

    async def _run(self) -> None:
        while True:
            request = await self._queue.get()
            try:
                response = await self._channel.send(request)
            except Exception as error:  # one request that cannot be sent must not keep the following ones back
                logger.exception(
                    "Controller request %s to broker %d cannot be sent", type(request).__name__, self.broker.id
                )
                response = BrokerResponse(code_of(error), dict.fromkeys(request.partitions, code_of(error)))
            self._answered(self.broker.id, request, response)
            self._queue.task_done()

    def queued(self) -> int:
        return self._queue.qsize()

    async def drain(self) -> None:
        await self._queue.join()

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._channel.close()


class ControllerChannelManager:
    """Owns the queues to all live brokers.

    Owned by KafkaController; used on the control loop.
    """

    def __init__(self, factory: ChannelFactory, answered: ResponseCallback) -> None:
        self._factory = factory
        self._answered = answered
        self._queues: dict[int, _BrokerQueue] = {}

    def add_broker(self, broker: BrokerRegistration) -> None:
        """Open a channel to a broker that has started."""
        if broker.id not in self._queues:
            self._queues[broker.id] = _BrokerQueue(broker, self._factory(broker), self._answered)

    async def remove_broker(self, broker_id: int) -> None:
        """Close the channel to a dead broker and drop its queued requests."""
        queue = self._queues.pop(broker_id, None)
        if queue is not None:
            await queue.close()

    def send(self, broker_id: int, request: BrokerRequest) -> None:
        """Queue a request; a request to a dead broker is dropped."""
        queue = self._queues.get(broker_id)
        if queue is not None:
            queue.put(request)

    def queued(self) -> int:
        """The number of requests that wait, for all brokers. Any thread."""
        return sum(queue.queued() for queue in list(self._queues.values()))

    async def drain(self, broker_id: int) -> None:
        """Return when the broker has answered every request queued so far."""
        queue = self._queues.get(broker_id)
        if queue is not None:
            await queue.drain()

    async def drain_all(self) -> None:
        """Return when all brokers have answered every request queued so far."""
        await asyncio.gather(*(queue.drain() for queue in list(self._queues.values())))

    async def close(self) -> None:
        """Close all channels."""
        for broker_id in list(self._queues):
            await self.remove_broker(broker_id)


class BrokerRequestBatch:
    """The requests to brokers from one step of the controller.

    Filled and sent within one event, on the control loop.
    """

    def __init__(self, controller_id: int, context: ControllerContext, channels: ControllerChannelManager) -> None:
        self._controller_id = controller_id
        self._context = context
        self._channels = channels
        self._leader_and_isr: dict[int, dict[TopicPartition, LeaderAndIsrPartition]] = {}
        self._stop_replica: dict[int, dict[TopicPartition, StopReplicaPartition]] = {}
        self._metadata_brokers: set[int] = set()
        self._metadata_for_all = False
        self._metadata = MetadataPartitions()

    def add_leader_and_isr(
        self, brokers: Iterable[int], partition: TopicPartition, state: PartitionState, is_new: bool = False
    ) -> None:
        """Add a partition for its leader and followers, and for all caches."""
        assignment = self._context.assignment_of(partition)
        each = LeaderAndIsrPartition(state, assignment.replicas, assignment.adding, assignment.removing, is_new)
        for broker in brokers:
            partitions = self._leader_and_isr.setdefault(broker, {})
            known = partitions.get(partition)
            # A partition that is new once in a batch stays new: a later, plain request does not change that.
            partitions[partition] = each if known is None or not known.is_new else each._replace(is_new=True)
        self.add_to_all(partition)

    def add_to_all(self, partition: TopicPartition) -> None:
        """Add a partition for the caches of all brokers."""
        self._metadata_for_all = True
        self._add_metadata(partition)

    async def add_update_metadata(self, brokers: Iterable[int], partitions: Iterable[TopicPartition] = ()) -> None:
        """Add partitions, and in any case the live brokers, for brokers' caches."""
        if brokers is self._context.live_brokers:
            self._metadata_for_all = True
        else:
            self._metadata_brokers.update(brokers)
        async for partition in in_slices(partitions):
            self._add_metadata(partition)

    def _add_metadata(self, partition: TopicPartition) -> None:
        state = self._context.leadership.get(partition)
        if self._context.is_topic_being_deleted(partition.topic):
            isr = () if state is None else state.isr
            state = PartitionState(LEADER_DURING_DELETE, 0, isr, self._context.epoch, version=0)
        elif state is None:
            return
        replicas = self._context.replicas_of(partition)
        self._metadata[partition] = UpdateMetadataPartition(state, replicas, self._context.offline_replicas(partition))

    def add_stop_replica(self, broker: int, partition: TopicPartition, leader_epoch: int, delete: bool) -> None:
        """Add a partition that a broker stops hosting."""
        partitions = self._stop_replica.setdefault(broker, {})
        known = partitions.get(partition)
        partitions[partition] = StopReplicaPartition(leader_epoch, delete or (known is not None and known.delete))

    async def send(self, full: bool = False) -> None:
        """Queue the batch's requests and empty it.

        `full`: the LeaderAndIsr names all partitions of its broker.
        """
        context = self._context
        for broker_id, partitions in self._leader_and_isr.items():
            broker = context.live_brokers.get(broker_id)
            if broker is None:
                continue
            async for part in _parts(partitions, dict):
                leaders = {each.state.leader for each in part.values()}
                live = {each: context.live_brokers[each] for each in leaders if each in context.live_brokers}
                topic_ids = {topic: context.topic_ids[topic] for topic in {p.topic for p in part}}
                self._channels.send(
                    broker_id,
                    LeaderAndIsr(self._controller_id, context.epoch, broker.epoch, topic_ids, part, live, full),
                )
        if self._metadata_for_all:
            self._metadata_brokers.update(context.live_brokers)
        if self._metadata_brokers:
            await self._send_metadata()
        for broker_id, stopped in self._stop_replica.items():
            broker = context.live_brokers.get(broker_id)
            if broker is None:
                continue
            async for stops in _parts(stopped, dict):
                self._channels.send(broker_id, StopReplica(self._controller_id, context.epoch, broker.epoch, stops))
        self._leader_and_isr, self._stop_replica = {}, {}
        self._metadata_brokers, self._metadata, self._metadata_for_all = set(), MetadataPartitions(), False

    async def _send_metadata(self) -> None:
        context = self._context
        live = dict(context.live_brokers)
        async for part in _parts(self._metadata, MetadataPartitions):
            topic_ids = {t: context.topic_ids[t] for t in {p.topic for p in part} if t in context.topic_ids}
            async for broker_id in in_slices(sorted(self._metadata_brokers)):
                broker = context.live_brokers.get(broker_id)
                if broker is not None:
                    self._channels.send(
                        broker_id,
                        UpdateMetadata(self._controller_id, context.epoch, broker.epoch, topic_ids, part, live),
                    )


async def _parts(partitions: D, make: Callable[[], D]) -> AsyncIterator[D]:
    """The partitions of one broker in parts of at most MAX_PARTITIONS."""
    if len(partitions) <= MAX_PARTITIONS:
        yield partitions
        return
    async for part in in_chunks(partitions.items(), MAX_PARTITIONS):
        made = make()
        made.update(part)
        yield made
