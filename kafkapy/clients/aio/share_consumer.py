"""AIOKafkaShareConsumer: the consumer of share groups on the user's event loop.

There is no Python thread: `ShareConsumerCore` runs on the loop of `start()`. Reading buffered records and acknowledging
take no turn of the loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack

from kafkapy._speedups.clients.consumer.consumer_record import ConsumerRecord
from kafkapy.clients.aio.errors import ConsumerStoppedError
from kafkapy.clients.aio.lifecycle import StartedClient, drop_old_keywords, post_to_running_loop, weakly
from kafkapy.clients.consumer.attended import check_names
from kafkapy.clients.share.acknowledgements import AcknowledgeType, acknowledge_type
from kafkapy.clients.share.consumer import by_partition
from kafkapy.clients.share.core import AcknowledgementCallback, ShareConsumerCore
from kafkapy.config.clients import ClientConfig
from kafkapy.config.share_consumer import SHARE_CONSUMER
from kafkapy.errors import IllegalStateError
from kafkapy.types import TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    from kafkapy.config.options import AIOShareConsumerOptions

__all__ = ["AIO_SHARE_CONSUMER", "AIOKafkaShareConsumer"]

AIO_SHARE_CONSUMER: Final = SHARE_CONSUMER.with_keys((), without_effect=("loop",))
"""The keys of a share consumer. Keywords that only aiokafka has have no effect."""

T = TypeVar("T")


class AIOKafkaShareConsumer(StartedClient):
    """Reads records as a member of a share group, a queue's worker (KIP-932).

        async with AIOKafkaShareConsumer("jobs", group_id="workers", bootstrap_servers="localhost:9092") as consumer:
            async for record in consumer:
                await work(record.value)

    As KafkaShareConsumer, with coroutines: the next step accepts the records before it, or the program acknowledges
    each of them (share_acknowledgement_mode="explicit"). All methods run on the loop of `start`, and one task reads:
    another one's step would accept its records. ConfigError, InvalidGroupIdError.
    """

    def __init__(
        self, *topics: str, configs: Mapping[str, object] | None = None, **keywords: Unpack[AIOShareConsumerOptions]
    ) -> None:
        super().__init__()
        drop_old_keywords(keywords)
        check_names(topics)
        self.config = ClientConfig(AIO_SHARE_CONSUMER, configs, **keywords)
        self._max_records: int = self.config["max.poll.records"]
        self._api_timeout_ms: int = self.config["default.api.timeout.ms"]
        self._bell = asyncio.Event()
        self._attending = False
        self._errors: deque[Exception] = deque()
        self._renewed: deque[ConsumerRecord] = deque()
        self._core = ShareConsumerCore(self.config, post=post_to_running_loop, ring=weakly(self._ring), attended=False)
        self._buffer = self._core.buffer
        self._deliveries = self._core.deliveries
        if topics:
            self._core.subscribe(topics)

    async def start(self) -> None:
        """Connect to the cluster, and join the group of a subscription.

        NoBrokersAvailableError. A stopped consumer cannot start again.
        """
        if self._stopped:
            raise ConsumerStoppedError("This consumer has been stopped")
        if self._started:
            return
        self._started = True
        try:
            await self._core.start()
            self._attend()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Send the acknowledgements, leave the group, and close all connections.

        All other records go back. A second call does nothing. Tasks that wait for a record get ConsumerStoppedError,
        those in getmany() get {}.
        """
        if self._stopped:
            return
        self._stopped = True
        self._bell.set()
        try:
            if self._started:
                await self._core.close(min(self.config["request.timeout.ms"], 30_000))
        finally:
            for name in ("key.deserializer", "value.deserializer"):
                if hasattr(self.config[name], "deserialize") and hasattr(self.config[name], "close"):
                    self.config[name].close()

    # --- attention for the core -----------------------------------------------------------------------------------

    def _ring(self) -> None:
        """Wakes the reader after a change or for new records.

        The core calls it on the loop.
        """
        self._bell.set()
        if self._buffer.attention and self._running and not self._attending:
            self._attending = True
            asyncio.get_running_loop().call_soon(self._attend)

    def _attend(self) -> None:
        """Runs the core's poll work; keeps an error for the next call."""
        self._attending = False
        if not self._running or not self._buffer.attention:
            return
        self._core.enter_poll()
        error = self._core.attendance.next_error()
        if error is not None:
            self._errors.append(error)
            self._bell.set()

    def _raise_errors(self) -> None:
        if self._buffer.attention:
            self._attend()
        if self._errors:
            raise self._errors.popleft()

    def _require_running(self) -> None:
        if not self._running:
            raise ConsumerStoppedError("The consumer was stopped" if self._stopped else "The consumer is not started")

    # --- records --------------------------------------------------------------------------------------------------

    async def getone(self) -> ConsumerRecord:
        """The next record; waits for it, and accepts the records before it.

        IllegalStateError: no subscription, or an unacknowledged record in explicit mode. Raises errors since the last
        call; ConsumerStoppedError.
        """
        self._require_running()
        if self._renewed:
            return self._renewed.popleft()
        record = await self._read(self._buffer.next, self._next_renewed, None)
        assert record is not None
        return record

    def _next_renewed(self, records: list[ConsumerRecord]) -> ConsumerRecord:
        self._renewed.extend(records)
        return self._renewed.popleft()

    async def getmany(
        self, *, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Records by partition; {} if none arrive within `timeout_ms`.

        At most `max_records` (max_poll_records) together. It accepts the records before, or sends their
        acknowledgements. Records whose locks were renewed come once more, alone. {} also when the consumer stops
        meanwhile. Errors as `getone`; ValueError.
        """
        if max_records is not None and (not isinstance(max_records, int) or max_records < 1):
            raise ValueError("`max_records` must be a positive Integer")
        if timeout_ms < 0:
            raise ValueError("timeout_ms must not be negative")
        limit = self._max_records if max_records is None else max_records
        self._require_running()
        try:
            return await self._read(lambda: self._buffer.take(limit), by_partition, timeout_ms) or {}
        except ConsumerStoppedError:
            return {}

    async def _read(
        self, take: Callable[[], T], renewed: Callable[[list[ConsumerRecord]], T], timeout_ms: float | None
    ) -> T | None:
        """One poll: the first true result of `take`, or the renewed records by `renewed`."""
        if not self._core.subscription.auto_assigned:
            raise IllegalStateError("Consumer is not subscribed to any topics.")
        self._deliveries.user_polls()
        self._core.polls.begin()
        deadline = None if timeout_ms is None else asyncio.get_running_loop().time() + timeout_ms / 1000
        try:
            while True:
                self._raise_errors()
                found = self._take(take, renewed)
                if found or timeout_ms == 0:
                    return found
                try:
                    async with asyncio.timeout_at(deadline):
                        await self._ringing()
                except TimeoutError:
                    timeout_ms = 0
        finally:
            self._core.polls.end()
            if self._deliveries.unsent:
                self._core.send_acknowledgements()

    def _take(self, take: Callable[[], T], renewed: Callable[[list[ConsumerRecord]], T]) -> T | None:
        found: T | None
        try:
            if self._deliveries.renewing:
                # As in Kafka's client, new records come when the renewed ones were returned.
                records = self._deliveries.take_renewed()
                found = renewed(records) if records else None
            else:
                found = take()
        except Exception:
            self._deliveries.errors_seen()
            raise
        if found:
            self._core.fetcher.wants = False
        else:
            self._core.fetch()
        return found

    async def _ringing(self) -> None:
        """Waits for a change, or for the stop of the consumer."""
        self._bell.clear()
        self._core.user_waits = True
        try:
            await self._bell.wait()
        finally:
            self._core.user_waits = False
        if self._stopped:
            raise ConsumerStoppedError("The consumer was stopped")

    def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        self._require_running()
        return self

    async def __anext__(self) -> ConsumerRecord:
        if not self._buffer.attention and not self._errors and not self._renewed and self._running:
            record: ConsumerRecord | None = self._buffer.next()
            if record is not None:
                return record
        try:
            return await self.getone()
        except ConsumerStoppedError:
            raise StopAsyncIteration from None

    # --- subscription ---------------------------------------------------------------------------------------------

    def subscribe(self, topics: Sequence[str]) -> None:
        """Subscribe to topics by name, in place of the previous ones. TypeError, ValueError."""
        check_names(topics)
        if not topics or not all(topic.strip() for topic in topics):
            raise ValueError("subscribe() needs names of topics")
        self._core.subscribe(topics)
        if self._running:
            self._ring()

    async def unsubscribe(self) -> None:
        """Send the acknowledgements, give all other records back, and leave the group."""
        self._require_running()
        self._renewed.clear()
        # Half of it would end all fetches.
        await asyncio.shield(self._core.unsubscribe())

    def subscription(self) -> frozenset[str]:
        """The subscribed topics."""
        return frozenset(self._core.subscription.subscription)

    def assignment(self) -> set[TopicPartition]:
        """The assigned partitions, which other members may have, too."""
        return set(self._core.subscription.assigned)

    # --- acknowledgements -----------------------------------------------------------------------------------------

    def acknowledge(self, record: ConsumerRecord, type: AcknowledgeType | str = AcknowledgeType.ACCEPT) -> None:
        """Acknowledge a record of the last poll: accept, release, reject or renew.

        The next poll or commit sends it; until then another call changes it. IllegalStateError in implicit mode, or for
        a record that this consumer does not have; ValueError.
        """
        kind = acknowledge_type(type)
        self._require_explicit()
        self._deliveries.acknowledge(record.topic, record.partition, record.offset, kind, record)

    def acknowledge_offset(
        self, topic: str, partition: int, offset: int, type: AcknowledgeType | str = AcknowledgeType.ACCEPT
    ) -> None:
        """As `acknowledge`, by the place of a record, which may be unreadable."""
        kind = acknowledge_type(type)
        self._require_explicit()
        self._deliveries.acknowledge(topic, partition, offset, kind)

    def _require_explicit(self) -> None:
        self._require_running()
        if not self._deliveries.explicit:
            raise IllegalStateError("Implicit acknowledgement of delivery is being used.")

    async def commit_sync(self, timeout_ms: int | None = None) -> dict[TopicPartition, Exception | None]:
        """Send the acknowledgements, and wait: {partition: None or the error}.

        As KafkaShareConsumer.commit_sync.
        """
        self._require_running()
        return await self._core.commit(self._api_timeout_ms if timeout_ms is None else timeout_ms)

    def commit_async(self) -> None:
        """Send the acknowledgements without waiting; the callback gets the outcomes."""
        self._require_running()
        self._deliveries.user_commits()
        self._core.commit_soon()

    def set_acknowledgement_commit_callback(self, callback: AcknowledgementCallback | None) -> None:
        """Set the function that gets the outcomes of acknowledgements; None: no function.

        The loop calls `callback({partition: offsets}, None or the error)`.
        """
        self._core.callback = callback

    def acquisition_lock_timeout_ms(self) -> int | None:
        """The lock time of a record in ms, None before the first record."""
        return self._core.fetcher.lock_timeout_ms

    # --- the cluster ----------------------------------------------------------------------------------------------

    def metrics(self) -> dict[str, dict[str, Any]]:
        """The metrics by group and name; the names are Kafka's."""
        return self._core.all_metrics()

    async def client_instance_id(self, timeout_ms: float) -> UUID | None:
        """The client's id in the metrics that it pushes (KIP-714), as AIOKafkaConsumer's method."""
        self._require_running()
        return await self._core.telemetry.client_instance_id(timeout_ms / 1000)
