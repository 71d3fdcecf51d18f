"""AIOKafkaConsumer: the consumer on the user's event loop, with aiokafka's interface.

There is no Python thread: `ConsumerCore` runs on the loop of `start()`, asyncio's or uvloop. Reading buffered records
takes no turn of the loop. Unlike the synchronous consumer, it rebalances and commits in the background, even without a
reader: records count as processed once they are returned.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Unpack

from kafkapy._speedups.clients.consumer.consumer_record import ConsumerRecord
from kafkapy.clients.aio.errors import ConsumerStoppedError, IllegalOperation
from kafkapy.clients.aio.lifecycle import StartedClient, drop_old_keywords, post_to_running_loop, weakly
from kafkapy.clients.aio.offsets import CommitOffsets, OffsetAndTimestamp, commit_offsets, topic_partition
from kafkapy.clients.consumer.core import ConsumerCore
from kafkapy.clients.consumer.subscription import (
    EARLIEST,
    LATEST,
    ConsumerRebalanceListener,
    OffsetReset,
    SubscriptionPattern,
)
from kafkapy.config.clients import ClientConfig
from kafkapy.config.consumer import CONSUMER
from kafkapy.types import ListOffsetsTimestamp, TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    from kafkapy.clients.consumer.membership.protocol import ConsumerGroupMetadata
    from kafkapy.config.options import AIOConsumerOptions

__all__ = ["AIO_CONSUMER", "AIOKafkaConsumer"]

AIO_CONSUMER: Final = CONSUMER.with_keys((), without_effect=("loop", "rebalance_timeout_ms", "consumer_timeout_ms"))
"""The keys of a consumer. Keywords that only aiokafka has have no effect."""

UNLIMITED: Final = (1 << 31) - 1


class AIOKafkaConsumer(StartedClient):
    """Reads records of topics, alone or as a member of a group.

        async with AIOKafkaConsumer("orders", group_id="billing", bootstrap_servers="localhost:9092") as consumer:
            async for record in consumer:
                print(record.topic, record.partition, record.offset, record.key, record.value)

    Arguments: topics to subscribe to; configuration as keywords (aiokafka's and kafka-python's names of Kafka's keys),
    or with Kafka's names in a dict called `configs`. Defaults are Kafka's, except that max_poll_records has no limit by
    default. ConfigError. All methods run on the loop of `start`; several tasks may read.
    """

    def __init__(
        self, *topics: str, configs: Mapping[str, object] | None = None, **keywords: Unpack[AIOConsumerOptions]
    ) -> None:
        super().__init__()
        drop_old_keywords(keywords)
        config = ClientConfig(AIO_CONSUMER, configs, **keywords)
        self.config = config
        self._max_records: int = config["max.poll.records"] if "max.poll.records" in config.given else UNLIMITED
        self._api_timeout_ms: int = config["default.api.timeout.ms"]
        self._bell = asyncio.Event()
        self._waiting = 0
        self._awaited: Counter[TopicPartition] = Counter()
        """The partitions that tasks wait for by name, with the number of tasks."""
        self._attending = False
        self._leaving: asyncio.Task[None] | None = None
        self._errors: deque[Exception] = deque()
        self._intercepted: deque[ConsumerRecord] = deque()
        self._core = ConsumerCore(config, post=post_to_running_loop, ring=weakly(self._ring), attended=False)
        self._buffer = self._core.buffer
        self._interceptors = self._core.interceptors
        if topics:
            self.subscribe(topics)

    async def start(self) -> None:
        """Connect to the cluster and join the group of a subscription.

        Partitions are assigned on return. NoBrokersAvailableError; errors of the group's coordinator. A stopped
        consumer cannot start again.
        """
        if self._stopped:
            raise ConsumerStoppedError("This consumer has been stopped")
        if self._started:
            return
        self._started = True
        try:
            await self._core.start()
            self._attend()
            await self._assigned()
        except BaseException:
            await self.stop()
            raise

    async def _assigned(self) -> None:
        """Returns when there is an assignment; at once when none will follow."""
        core = self._core
        if core.subscription.subscription and core.membership is None:
            await core.topics.refresh(self._api_timeout_ms)
        while core.subscription.auto_assigned and core.membership is not None and not core.membership.ready:
            self._raise_errors()
            await self._ringing()

    async def stop(self) -> None:
        """Commit positions (with auto commit), leave the group, and close all connections.

        A second call does nothing. Tasks that wait for a record get ConsumerStoppedError, tasks that wait in getmany()
        get {}.
        """
        if self._stopped:
            return
        self._stopped = True
        self._bell.set()
        try:
            if self._started:
                try:
                    await self._finish_leaving()
                finally:
                    await self._core.close(True, min(self.config["request.timeout.ms"], 30_000))
        finally:
            self._interceptors.close()
            for name in ("key.deserializer", "value.deserializer"):
                if hasattr(self.config[name], "deserialize") and hasattr(self.config[name], "close"):
                    self.config[name].close()

    # --- attention for the core -----------------------------------------------------------------------------------

    def _ring(self) -> None:
        """Wakes the readers after a change or for new records.

        The core calls it on the loop.
        """
        self._bell.set()
        if self._buffer.attention and not self._waiting:
            self._attend_soon()

    def _attend_soon(self) -> None:
        """Schedules `_attend` for a subscription.

        Manually assigned partitions may still get positions from the user.
        """
        if self._running and not self._attending and self._core.subscription.auto_assigned:
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

    async def _ringing(self, partitions: tuple[TopicPartition, ...] = ()) -> None:
        """Waits for a change, or for the stop of the consumer.

        `partitions`: the partitions to wait for, if not all; the buffer may have records of other partitions meanwhile.
        """
        self._bell.clear()
        self._waiting += 1
        self._core.user_waits = True
        self._await_of(partitions, 1)
        try:
            await self._bell.wait()
        finally:
            self._await_of(partitions, -1)
            self._waiting -= 1
            self._core.user_waits = self._waiting > 0
        if self._stopped:
            raise ConsumerStoppedError("The consumer was stopped")

    def _await_of(self, partitions: tuple[TopicPartition, ...], count: int) -> None:
        """Adds `count` to the tasks that wait for records of these partitions."""
        if not partitions:
            return
        self._awaited.update(dict.fromkeys(partitions, count))
        self._awaited = +self._awaited
        self._core.fetcher.awaited = self._awaited
        self._buffer.tells_all = bool(self._awaited)
        if count > 0:
            self._core.wake_fetcher()

    def _require_running(self) -> None:
        if not self._running:
            raise ConsumerStoppedError("The consumer was stopped" if self._stopped else "The consumer is not started")

    # --- records --------------------------------------------------------------------------------------------------

    async def getone(self, *partitions: TopicPartition) -> ConsumerRecord:
        """The next record, of these partitions or of all; waits for it.

        Raises errors since the last call; ConsumerStoppedError.
        """
        polls = False
        try:
            while True:
                self._require_running()
                self._raise_errors()
                record = self._next(partitions)
                if record is not None:
                    return record
                if not polls:
                    polls = True
                    self._core.polls.begin()
                await self._ringing(partitions)
        finally:
            if polls:
                self._core.polls.end()

    def _next(self, partitions: tuple[TopicPartition, ...]) -> ConsumerRecord | None:
        if not partitions and not self._interceptors:
            record: ConsumerRecord | None = self._buffer.next()
            return record
        if not self._intercepted or partitions:
            taken = self._take(partitions, 1)
            self._intercepted.extend(record for records in taken.values() for record in records)
        return self._intercepted.popleft() if self._intercepted else None

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Records by partition, in order; {} if none arrive within `timeout_ms`.

        At most `max_records` (max_poll_records) together, of these partitions or of all. {} also when the consumer
        stops meanwhile. Raises errors since the last call; ConsumerStoppedError; ValueError.
        """
        if max_records is not None and (not isinstance(max_records, int) or max_records < 1):
            raise ValueError("`max_records` must be a positive Integer")
        if timeout_ms < 0:
            raise ValueError("timeout_ms must not be negative")
        limit = self._max_records if max_records is None else max_records
        self._core.polls.begin()
        try:
            return await self._many(partitions, timeout_ms, limit)
        finally:
            self._core.polls.end()

    async def _many(
        self, partitions: tuple[TopicPartition, ...], timeout_ms: float, limit: int
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        while True:
            self._require_running()
            self._raise_errors()
            taken = self._take(partitions, limit)
            if taken or timeout_ms == 0:
                return taken
            try:
                async with asyncio.timeout_at(deadline):
                    await self._ringing(partitions)
            except TimeoutError:
                timeout_ms = 0
            except ConsumerStoppedError:
                return {}

    def _take(self, partitions: tuple[TopicPartition, ...], limit: int) -> dict[TopicPartition, list[ConsumerRecord]]:
        while (taken := self._take_unseen(partitions, limit)) and self._interceptors:
            kept = self._interceptors.on_consume(taken)
            if kept:
                return kept
            # The interceptors dropped all of them; while there are more records, the bell does not ring again.
        return taken

    def _take_unseen(
        self, partitions: tuple[TopicPartition, ...], limit: int
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Before the interceptors see them."""
        taken: dict[TopicPartition, list[ConsumerRecord]]
        if partitions:
            # Hides the other partitions; the loop takes no turn in between.
            others = [
                state.buffer
                for state in self._core.subscription.all_states
                if state.buffer.readable and state.topic_partition not in partitions
            ]
            for buffer in others:
                buffer.readable = False
            try:
                taken = self._buffer.take(limit)
            finally:
                for buffer in others:
                    buffer.readable = True
        else:
            taken = self._buffer.take(limit)
        return taken

    def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        self._require_running()
        return self

    async def __anext__(self) -> ConsumerRecord:
        if not self._buffer.attention and not self._interceptors and not self._errors and self._running:
            record: ConsumerRecord | None = self._buffer.next()
            if record is not None:
                return record
        try:
            return await self.getone()
        except ConsumerStoppedError:
            raise StopAsyncIteration from None

    # --- subscription and assignment ------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Sequence[str] = (),
        pattern: str | re.Pattern[str] | SubscriptionPattern | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Subscribe to topics, by name or by pattern.

        A pattern matches at the start of a topic name. The subscription replaces the previous one. The broker matches a
        `SubscriptionPattern` (group_protocol="consumer"). The methods of `listener` may be coroutines; the rebalance
        awaits them.

        TypeError with neither or both; ValueError for an invalid pattern; IllegalStateError after assign().
        """
        if bool(topics) == (pattern is not None):
            raise TypeError("subscribe() needs either topics or a pattern")
        if isinstance(topics, str) or not all(isinstance(topic, str) for topic in topics):
            raise TypeError("topics must be a sequence of names")
        if listener is not None and not isinstance(listener, ConsumerRebalanceListener):
            raise TypeError("listener must be a ConsumerRebalanceListener")
        chosen = pattern if pattern is None or isinstance(pattern, SubscriptionPattern) else _compiled(pattern)
        self._when_left(lambda: self._core.subscribe(topics, chosen, listener))

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions, without a group's assignment.

        They replace the previous ones. IllegalStateError after subscribe().
        """
        chosen = [topic_partition(each) for each in partitions]
        self._when_left(lambda: self._core.assign(chosen))

    def unsubscribe(self) -> None:
        """Leave the group, in the background, and read nothing."""
        if self._running:
            before = self._leaving
            self._core.subscription.mark_pending_revocation(self._core.subscription.assigned)

            async def leave() -> None:
                if before is not None:
                    await before
                await self._core.unsubscribe()

            self._leaving = asyncio.get_running_loop().create_task(leave())
        else:
            self._core.subscription.unsubscribe()

    def _when_left(self, action: Callable[[], None]) -> None:
        """Runs an action now, or after a running unsubscription."""
        leaving = self._leaving
        if leaving is None or leaving.done():
            action()
            self._attend_soon()
            return

        async def do() -> None:
            await leaving
            if self._running:
                action()
                self._attend_soon()

        self._leaving = asyncio.get_running_loop().create_task(do())

    async def _finish_leaving(self) -> None:
        leaving, self._leaving = self._leaving, None
        if leaving is not None:
            await leaving

    def subscription(self) -> frozenset[str]:
        """The subscribed topics."""
        return frozenset(self._core.subscription.subscription)

    def assignment(self) -> set[TopicPartition]:
        """The assigned partitions."""
        return set(self._core.subscription.assigned)

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no records of these partitions until resume().

        IllegalStateError for an unassigned partition.
        """
        self._set_paused(partitions, True)

    def resume(self, *partitions: TopicPartition) -> None:
        """End a pause. IllegalStateError for an unassigned partition."""
        self._set_paused(partitions, False)

    def paused(self) -> set[TopicPartition]:
        """The paused partitions."""
        return {state.topic_partition for state in self._core.subscription.all_states if state.paused}

    def _set_paused(self, partitions: tuple[TopicPartition, ...], paused: bool) -> None:
        for state in [self._core.subscription.state_of(topic_partition(partition)) for partition in partitions]:
            state.paused = paused
        if self._running:
            self._core.wake_fetcher()

    # --- positions ------------------------------------------------------------------------------------------------

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Set the position of a partition: the offset of the next record.

        ValueError; IllegalStateError for an unassigned partition.
        """
        if isinstance(offset, bool) or not isinstance(offset, int) or offset < 0:
            raise ValueError("offset must be an int of at least 0")
        self._core.seek(topic_partition(partition), offset)
        self._intercepted.clear()

    async def seek_to_beginning(self, *partitions: TopicPartition) -> bool:
        """Continue at the oldest record of these, or of all assigned partitions.

        Returns True. IllegalStateError, KafkaTimeoutError.
        """
        return await self._reset(partitions, EARLIEST)

    async def seek_to_end(self, *partitions: TopicPartition) -> bool:
        """Continue after the newest record of these, or of all assigned partitions.

        Returns True. IllegalStateError, KafkaTimeoutError.
        """
        return await self._reset(partitions, LATEST)

    async def _reset(self, partitions: tuple[TopicPartition, ...], to: OffsetReset) -> bool:
        self._require_running()
        chosen = [topic_partition(each) for each in partitions] or sorted(self._core.subscription.assigned)
        self._core.reset(chosen, to)
        self._intercepted.clear()
        for partition in chosen:
            await self._core.position(partition, self._api_timeout_ms)
        return True

    async def seek_to_committed(self, *partitions: TopicPartition) -> dict[TopicPartition, int | None]:
        """Continue at the committed offsets; returns them.

        A partition without a committed offset has None and keeps its position. IllegalOperation without a group;
        IllegalStateError for an unassigned partition.
        """
        chosen = [topic_partition(each) for each in partitions] or sorted(self._core.subscription.assigned)
        for partition in chosen:
            self._core.subscription.state_of(partition)
        self._require_group()
        committed = await self._core.committed(chosen, self._api_timeout_ms)
        offsets: dict[TopicPartition, int | None] = {}
        for partition in chosen:
            found = committed.get(partition)
            offsets[partition] = None if found is None else found.offset
            if found is not None:
                self._core.seek(partition, found.offset, found.leader_epoch)
        self._intercepted.clear()
        return offsets

    async def position(self, partition: TopicPartition) -> int:
        """The offset of the next record; waits until it is known.

        IllegalStateError, KafkaTimeoutError.
        """
        self._require_running()
        self._raise_errors()
        return await self._core.position(topic_partition(partition), self._api_timeout_ms)

    def highwater(self, partition: TopicPartition) -> int | None:
        """The high watermark of the last fetch, None before a fetch.

        IllegalStateError for an unassigned partition.
        """
        return self._core.subscription.state_of(topic_partition(partition)).high_watermark

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        """The last stable offset of the last fetch, None before a fetch.

        -1 with read_uncommitted. IllegalStateError.
        """
        state = self._core.subscription.state_of(topic_partition(partition))
        if state.high_watermark is None or self.config["isolation.level"].lower() == "read_committed":
            return state.last_stable_offset
        return -1

    def last_poll_timestamp(self, partition: TopicPartition) -> int | None:
        """The time of a partition's last fetch response in epoch ms.

        None before a response. IllegalStateError.
        """
        return self._core.subscription.state_of(topic_partition(partition)).fetched_at_ms

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The oldest offset of each partition. KafkaTimeoutError."""
        return await self._offsets_at(partitions, ListOffsetsTimestamp.EARLIEST)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after the newest record of each partition.

        With read_committed, the last stable offset.
        """
        return await self._offsets_at(partitions, ListOffsetsTimestamp.LATEST)

    async def _offsets_at(
        self, partitions: Iterable[TopicPartition], at: ListOffsetsTimestamp
    ) -> dict[TopicPartition, int]:
        self._require_running()
        asked = dict.fromkeys((topic_partition(each) for each in partitions), int(at))
        listed = await self._core.list_offsets(asked, self._api_timeout_ms)
        return {partition: found.offset for partition, found in listed.items()}

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after each timestamp, or None.

        Timestamps are in ms since the epoch. ValueError, KafkaTimeoutError.
        """
        self._require_running()
        for partition, at in timestamps.items():
            if at < 0:
                raise ValueError(f"The target time for partition {partition} is {at}: it cannot be negative")
        asked = {topic_partition(partition): int(at) for partition, at in timestamps.items()}
        listed = await self._core.list_offsets(asked, self._api_timeout_ms)
        return {
            partition: OffsetAndTimestamp(found.offset, found.timestamp) if found.offset >= 0 else None
            for partition, found in listed.items()
        }

    # --- commits --------------------------------------------------------------------------------------------------

    def _require_group(self) -> None:
        if self._core.committer is None:
            raise IllegalOperation("group_id is not set")

    async def commit(self, offsets: CommitOffsets | None = None) -> None:
        """Commit these offsets, or the positions.

        An offset is that of the next record to read: a number, or a pair with metadata. CommitFailedError when the
        member is no longer in the group; IllegalOperation without a group; IllegalStateError for an unassigned
        partition; ValueError.
        """
        self._require_group()
        self._require_running()
        chosen = None if offsets is None else commit_offsets(offsets)
        for partition in chosen or ():
            self._core.subscription.state_of(partition)
        await self._core.commit(chosen, self._api_timeout_ms)

    async def committed(self, partition: TopicPartition) -> int | None:
        """The group's committed offset, or None.

        IllegalOperation, KafkaTimeoutError.
        """
        self._require_group()
        self._require_running()
        found = (await self._core.committed([topic_partition(partition)], self._api_timeout_ms)).get(partition)
        return None if found is None else found.offset

    def group_metadata(self) -> ConsumerGroupMetadata:
        """The member and its group, for AIOKafkaProducer.send_offsets_to_transaction()."""
        return self._core.group_metadata()

    # --- the cluster ----------------------------------------------------------------------------------------------

    async def topics(self) -> set[str]:
        """The names of all visible topics."""
        self._require_running()
        return set(await self._core.topics.names(self._api_timeout_ms))

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """The partition numbers of a topic, or None for an unknown topic."""
        return self._core.network.cluster.partitions_for_topic(topic)

    def metrics(self) -> dict[str, dict[str, Any]]:
        """The metrics by group and name; the names are Kafka's."""
        return self._core.all_metrics()

    async def client_instance_id(self, timeout_ms: float) -> UUID | None:
        """The client's id in the metrics that it pushes (KIP-714).

        None when no broker gives one within `timeout_ms`. IllegalStateError with enable_metrics_push=False or without
        the extra `telemetry`; ValueError for a negative timeout.
        """
        self._require_running()
        return await self._core.telemetry.client_instance_id(timeout_ms / 1000)


def _compiled(pattern: str | re.Pattern[str]) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None
