"""Requests of coordinators to other brokers, with one request in flight to each.

`RequestQueues` collects items for each broker while a request is under way, and sends them together in the next one.
`SenderPeers` carries the requests over an InterBrokerSender; tests have a network in memory. Source:
kafka.common.InterBrokerSendThread.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from kafkapy import errors
from kafkapy.coordinator.clock import Clock
from kafkapy.coordinator.result import Later
from kafkapy.errors import KafkaError
from kafkapy.types import TopicPartition

if TYPE_CHECKING:
    from kafkapy.clients.network_client import RequestOf
    from kafkapy.metadata.inter_broker_sender import InterBrokerSender
    from kafkapy.protocol.schema import Request

logger = logging.getLogger("kafka.coordinator.Peers")

Destination = TypeVar("Destination", bound=Hashable)
Item = TypeVar("Item")

LeaderOf = Callable[[TopicPartition], "int | None"]
"""The leader of a partition as the metadata cache knows it: -1 for none, None for an unknown partition."""


class Peers(Protocol):
    """The other brokers of the cluster."""

    def send(self, broker_id: int, request: Request | RequestOf, timeout_ms: int) -> Later[Any]:
        """The decoded response, or a KafkaError; see InterBrokerClient.send."""


class SenderPeers:
    """Peers over the connections of an InterBrokerSender.

    Owned by Coordinators; used on the control loop. `connect` makes the sender for the first request.
    """

    def __init__(self, connect: Callable[[], InterBrokerSender]) -> None:
        self._connect = connect
        self._sender: InterBrokerSender | None = None
        self._tasks: dict[asyncio.Task[None], int] = {}

    def send(self, broker_id: int, request: Request | RequestOf, timeout_ms: int) -> Later[Any]:
        """See Peers."""
        later: Later[Any] = Later()
        task = asyncio.get_running_loop().create_task(self._send(broker_id, request, timeout_ms, later))
        self._tasks[task] = broker_id
        task.add_done_callback(lambda ended: self._ended(ended, later))
        return later

    async def _send(self, broker_id: int, request: Request | RequestOf, timeout_ms: int, later: Later[Any]) -> None:
        if self._sender is None:
            self._sender = self._connect()
        try:
            response = await self._sender.send(broker_id, request, timeout_ms=timeout_ms)
        except KafkaError as error:
            later.fail(error)
        else:
            later.set(response)

    def _ended(self, task: asyncio.Task[None], later: Later[Any]) -> None:
        del self._tasks[task]
        if later.done:
            return
        error = None if task.cancelled() else task.exception()
        if error is not None:
            logger.error("A request to another broker failed", exc_info=error)
        later.fail(errors.NetworkExceptionError())

    @property
    def brokers(self) -> set[int]:
        """The brokers with requests in flight."""
        return set(self._tasks.values())

    def disconnect(self, broker_id: int) -> None:
        """Fail the requests in flight to a broker that has gone."""
        for task in [task for task, peer in self._tasks.items() if peer == broker_id]:
            task.cancel()

    def cancel(self) -> None:
        """Fail all requests in flight."""
        for task in self._tasks:
            task.cancel()

    async def close(self) -> None:
        """Cancel the requests in flight, and close the connections."""
        tasks = list(self._tasks)
        self.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._sender is not None:
            await self._sender.close()


class RequestQueues(Generic[Destination, Item]):
    """Items on their way to other brokers; one request in flight to each destination.

    A destination is a broker, or a broker and something else that requests are apart by.

    Used on the clock's thread. `take` removes the items of the next request from a queue. `send` sends them.
    `answered` gets the items of a request with its response or its error.
    """

    def __init__(
        self,
        clock: Clock,
        take: Callable[[deque[Item]], list[Item]],
        send: Callable[[Destination, Sequence[Item]], Later[Any]],
        answered: Callable[[Sequence[Item], Later[Any]], None],
    ) -> None:
        self._clock = clock
        self._take = take
        self._send = send
        self._answered = answered
        self._queues: dict[Destination, deque[Item]] = {}
        """Items to send. A destination is in here while it has a request in flight, or one that is due."""
        self._closed = False

    def add(self, destination: Destination, item: Item) -> None:
        """Send an item with the next request to a destination.

        That leaves in the next turn of the loop, or after the request in flight.
        """
        if self._closed:
            self._answered([item], Later.failure(errors.NetworkExceptionError("The broker is being stopped")))
            return
        queue = self._queues.get(destination)
        if queue is None:
            queue = self._queues[destination] = deque()
            self._clock.call_soon(lambda: self._next(destination))
        queue.append(item)

    def remove(self, moved: Callable[[Destination, Item], bool]) -> list[Item]:
        """Remove and return items that are not in flight.

        `moved(destination, item)` selects them.
        """
        removed: list[Item] = []
        for destination, queue in self._queues.items():
            kept: list[Item] = []
            for item in queue:
                (removed if moved(destination, item) else kept).append(item)
            if len(kept) < len(queue):
                queue.clear()
                queue.extend(kept)
        return removed

    def close(self) -> None:
        """Send nothing more: the items that are not in flight fail."""
        self._closed = True
        waiting = [item for queue in self._queues.values() for item in queue]
        self._queues.clear()
        if waiting:
            self._answered(waiting, Later.failure(errors.NetworkExceptionError("The broker is being stopped")))

    def _next(self, destination: Destination) -> None:
        queue = self._queues.get(destination)
        if queue is None:
            return
        items = self._take(queue)
        if not items:
            del self._queues[destination]
            return

        def ended(done: Later[Any]) -> None:
            # In the next turn: what `answered` puts into the queue goes along.
            self._clock.call_soon(lambda: self._next(destination))
            self._answered(items, done)

        try:
            later = self._send(destination, items)
        except Exception as error:
            logger.exception("A request to broker %s cannot be sent", destination)
            later = Later.failure(error if isinstance(error, KafkaError) else errors.UnknownServerError())
        later.then(ended)
