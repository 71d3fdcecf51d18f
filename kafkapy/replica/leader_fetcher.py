"""One fetcher thread, as its manager sees it: its leader, its connection, its partitions."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkapy._speedups.base.event_queue import EventQueue
from kafkapy._speedups.replica.fetcher import FollowedPartition, ReplicaFetcher
from kafkapy._speedups.replica.throttle import ReplicationThrottle
from kafkapy.errors import KafkaError
from kafkapy.replica.leader_connections import LeaderConnections
from kafkapy.replica.minute_rate import TICK_S, MinuteRate

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig

__all__ = ["LeaderFetcher"]

logger = logging.getLogger("kafka.server.ReplicaFetcherThread")

MakeKernel = Callable[..., ReplicaFetcher]
"""Makes a fetcher from the arguments of ReplicaFetcher."""


class LeaderFetcher:
    """A fetcher thread of one leader, and the task that keeps it connected.

    Used on the control loop.
    """

    def __init__(
        self,
        config: BrokerConfig,
        broker_id: int,
        leader_id: int,
        index: int,
        connections: LeaderConnections,
        events: EventQueue,
        throttle: ReplicationThrottle,
        broker_epoch: int,
        make_kernel: MakeKernel = ReplicaFetcher,
    ) -> None:
        """OSError without descriptors or threads."""
        self.leader_id = leader_id
        self.index = index
        self.partitions = 0
        """Partitions that the thread has."""
        self._connections = connections
        self._backoff_s = config.get_int("replica.fetch.backoff.ms") / 1000
        self._last_attempt_s = float("-inf")
        self._connecting: asyncio.Task[None] | None = None
        self._renewal: asyncio.TimerHandle | None = None
        self._warned = ""
        self._kernel = make_kernel(
            f"broker-{broker_id}-fetcher-{index}", broker_id, events, throttle, name=f"fetcher-{leader_id}-{index}"
        )
        self.configure(config, broker_epoch)
        self._kernel.start()
        self._rate = MinuteRate()
        self._tick = asyncio.get_running_loop().call_later(TICK_S, self._ticked)

    @property
    def handle(self) -> int:
        """The number in WANTS_CONNECTION."""
        return self._kernel.handle

    def configure(self, config: BrokerConfig, broker_epoch: int) -> None:
        """Sets what the next request says."""
        self._backoff_s = config.get_int("replica.fetch.backoff.ms") / 1000
        max_wait_ms = config.get_int("replica.fetch.wait.max.ms")
        self._kernel.configure(
            broker_epoch=broker_epoch,
            max_wait_ms=max_wait_ms,
            min_bytes=config.get_int("replica.fetch.min.bytes"),
            max_bytes=config.get_int("replica.fetch.response.max.bytes"),
            partition_max_bytes=config.get_int("replica.fetch.max.bytes"),
            # No Produce request is larger, and so no batch.
            max_batch_bytes=config.get_int("socket.request.max.bytes"),
            backoff_ms=config.get_int("replica.fetch.backoff.ms"),
            timeout_ms=max(config.get_int("replica.socket.timeout.ms"), max_wait_ms),
        )

    # --- partitions ---------------------------------------------------------------------------------------------------

    def add(self, partition: FollowedPartition) -> None:
        """See ReplicaFetcher.add."""
        self.partitions += 1
        self._kernel.add(partition)

    def remove(self, partition: FollowedPartition) -> None:
        """See ReplicaFetcher.remove."""
        self.partitions -= 1
        self._kernel.remove(partition)

    def resume(self, partition: FollowedPartition, delay_ms: int = 0) -> None:
        """See ReplicaFetcher.resume."""
        self._kernel.resume(partition, delay_ms)

    def set_throttled(self, partition: FollowedPartition, throttled: bool) -> None:
        """See ReplicaFetcher.set_throttled."""
        self._kernel.set_throttled(partition, throttled)

    def counters(self) -> tuple[int, int, int, bool]:
        """See ReplicaFetcher.counters."""
        return self._kernel.counters()

    @property
    def fetch_rate(self) -> float:
        """Answered Fetch requests per second, over the last minute."""
        return self._rate.per_second

    def _ticked(self) -> None:
        self._rate.tick(self._kernel.counters()[0])
        self._tick = asyncio.get_running_loop().call_later(TICK_S, self._ticked)

    # --- connection ---------------------------------------------------------------------------------------------------

    def connection_wanted(self, error: int, why: str) -> None:
        """Connect the thread: for the first time, or again after this errno."""
        if error:
            logger.info("Fetcher %d of leader %d lost its connection: %s", self.index, self.leader_id, why)
        if self._connecting is None:
            self._connecting = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        """Connects, at most once in replica.fetch.backoff.ms, until that succeeds."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(max(self._last_attempt_s + self._backoff_s - loop.time(), 0))
            self._last_attempt_s = loop.time()
            try:
                ends_s = await self._connections.connect(self._kernel, self.leader_id, self.index)
            except (KafkaError, OSError) as error:
                level = logging.DEBUG if self._warned == str(error) else logging.WARNING
                self._warned = str(error)
                logger.log(level, "Fetcher %d has no connection to leader %d: %s", self.index, self.leader_id, error)
                continue
            self._warned = ""
            self._connecting = None
            if self._renewal is not None:
                self._renewal.cancel()
            if ends_s is not None:
                self._renewal = loop.call_later(max(ends_s - time.monotonic(), 0), self._renew)
            return

    def _renew(self) -> None:
        """A new connection replaces one whose SASL session ends; the thread changes over between two requests."""
        self._renewal = None
        self.connection_wanted(0, "")

    # --- end ----------------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Ends the thread soon; `join` waits for it."""
        self._tick.cancel()
        if self._renewal is not None:
            self._renewal.cancel()
        if self._connecting is not None:
            self._connecting.cancel()
        self._kernel.stop()

    def join(self) -> None:
        """Waits for the thread. Blocking; on any thread."""
        self._kernel.join()
