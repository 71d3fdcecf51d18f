"""KafkaConsumer: the consumer on the user's thread, with kafka-python's interface.

The user's thread takes records out of the buffers itself. Everything else happens on the loop of a background thread
(`ConsumerCore`), which fetches, sends heartbeats and commits even while the user's thread is busy.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import re
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, Unpack

from kafkapy._speedups.clients.consumer.consumer_record import ConsumerRecord
from kafkapy._speedups.clients.consumer.record_iterator import RecordIterator
from kafkapy.clients.background import BackgroundLoop
from kafkapy.clients.consumer.core import ConsumerCore
from kafkapy.clients.consumer.offset_commit import OffsetCommitFuture
from kafkapy.clients.consumer.subscription import EARLIEST, LATEST, ConsumerRebalanceListener, SubscriptionPattern
from kafkapy.config.clients import ClientConfig
from kafkapy.config.config_def import MAX_LONG
from kafkapy.config.consumer import CONSUMER
from kafkapy.errors import IllegalStateError, KafkaTimeoutError, NoBrokersAvailableError, WakeupError
from kafkapy.types import ListOffsetsTimestamp, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    import pyarrow

    from kafkapy.clients.consumer.membership.protocol import ConsumerGroupMetadata
    from kafkapy.config.options import ConsumerOptions

__all__ = ["KafkaConsumer"]

T = TypeVar("T")
Offsets = Mapping[TopicPartition, OffsetAndMetadata | int]
CommitCallback = Callable[[Mapping[TopicPartition, OffsetAndMetadata], Exception | None], Any]

logger = logging.getLogger("kafka.consumer")

SLICE_S: Final = 0.5
"""Longest single wait in seconds: a signal just before a wait begins does not interrupt it."""
SERVE_S: Final = 0.1

_open: weakref.WeakSet[KafkaConsumer] = weakref.WeakSet()


def _stop_in_child() -> None:
    """Abandons the parent's consumers in a forked child.

    Their next call raises an error.
    """
    for consumer in list(_open):
        consumer.fetch_buffer.attention = True


os.register_at_fork(after_in_child=_stop_in_child)


class Doorbell:
    """Wakes one waiting thread.

    A ring without a waiting thread ends the next wait. Signals interrupt a wait.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def ring(self) -> None:
        """Rings. Any thread, and signal handlers."""
        try:
            self._lock.release()
        except RuntimeError:
            pass  # already rung

    def wait(self, seconds: float) -> None:
        """Waits for a ring, for `seconds`, or for one slice."""
        self._lock.acquire(timeout=min(seconds, SLICE_S))


class KafkaConsumer(RecordIterator):
    """Reads records of topics, alone or as a member of a group.

        for record in KafkaConsumer("orders", group_id="billing", bootstrap_servers="localhost:9092"):
            print(record.topic, record.partition, record.offset, record.key, record.value)

    Arguments: topics to subscribe to; configuration as keywords (``max_poll_records=100``), or with Kafka's names in a
    dict called `configs` (``{"max.poll.records": 100}``). docs/clients.md lists all of them. ConfigError,
    NoBrokersAvailableError.

    One thread at a time may use it (IllegalStateError otherwise), except for `wakeup` and methods marked "any thread".
    A child after fork() cannot use it.
    """

    def __init__(
        self, *topics: str, configs: Mapping[str, object] | None = None, **keywords: Unpack[ConsumerOptions]
    ) -> None:
        config = ClientConfig(CONSUMER, configs, **keywords)
        _check_names(topics)
        self.config = config
        self._bell = Doorbell()
        self._lock = threading.RLock()
        self._woken = False
        self._closed = False
        self._closing = False
        """Whether close() is running: its listeners may still commit."""
        self._intercepted: deque[ConsumerRecord] = deque()
        consumer_timeout_ms = config["consumer.timeout.ms"]
        self._consumer_timeout_s = (
            None if consumer_timeout_ms < 0 or consumer_timeout_ms == MAX_LONG else consumer_timeout_ms / 1000
        )
        self._api_timeout_ms: int = config["default.api.timeout.ms"]
        self._max_poll_records: int = config["max.poll.records"]
        self._background = BackgroundLoop(f"kafkapy-consumer-{config['client.id'] or config['group.id'] or ''}")
        try:
            self._core = self._background.run(self._make_core(config, topics))
        except BaseException:
            self._background.stop()
            raise
        super().__init__(self._core.buffer)
        self._interceptors = self._core.interceptors
        self._finalizer = weakref.finalize(self, self._background.stop)
        _open.add(self)

    async def _make_core(self, config: ClientConfig, topics: tuple[str, ...]) -> ConsumerCore:
        core = ConsumerCore(config, post=self._background.post, ring=self._bell.ring)
        if topics:
            # Before the start: the first metadata then contains the topics.
            core.subscribe(topics, None, None)
        try:
            await core.start()
        except BaseException:
            await core.network.close()
            raise
        core.network.learn_api_version(config)
        return core

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- one thread at a time -------------------------------------------------------------------------------------

    def _acquire(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise IllegalStateError("KafkaConsumer is not safe for use by several threads at a time")
        if self._closed:
            self._lock.release()
            raise IllegalStateError("This consumer has already been closed")

    def _call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Calls a function of the core on the loop's thread."""
        self._acquire()
        try:
            return self._background.call(function, *arguments)
        finally:
            self._lock.release()

    def _look(self, function: Callable[[], T]) -> T:
        """As `_call`, for functions that change nothing.

        It works while another thread is in poll().
        """
        if self._closed:
            raise IllegalStateError("This consumer has already been closed")
        return self._background.call(function)

    def _run(self, coroutine: Any) -> Any:
        """Runs a coroutine of the core on the loop's thread.

        The coroutine has its own timeout.
        """
        try:
            self._acquire()
        except BaseException:
            coroutine.close()
            raise
        try:
            return self._background.run(coroutine)
        finally:
            self._lock.release()

    def _serve(self, coroutine: Any) -> Any:
        """As `_run`; meanwhile listeners and callbacks run on this thread."""
        try:
            self._background.check()
        except BaseException:
            coroutine.close()
            raise
        future = asyncio.run_coroutine_threadsafe(coroutine, self._background.loop)
        future.add_done_callback(lambda _: self._bell.ring())
        error: Exception | None = None
        while not future.done():
            self._background.call(self._core.attendance.serve)
            error = self._do_work(error)
            self._bell.wait(SERVE_S)
        error = self._do_work(error)
        result = future.result()
        if error is not None:
            raise error
        return result

    # --- records --------------------------------------------------------------------------------------------------

    def poll(
        self, timeout_ms: float = 0, max_records: int | None = None, update_offsets: bool = True
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Records by partition, in order; {} if none arrive within `timeout_ms`.

        At most `max_records` (max.poll.records) together. It joins the group, runs the listener and callbacks, and
        automatically commits the records of earlier polls. With `update_offsets` False the positions stay, and the next
        poll returns the same records. Raises errors since the last poll; WakeupError; ValueError and TypeError for
        arguments.
        """
        limit = self._max_records(timeout_ms, max_records)
        self._acquire()
        try:
            records: dict[TopicPartition, list[ConsumerRecord]]
            records = self._wait_for(lambda: self.fetch_buffer.take(limit), timeout_ms / 1000) or {}
            if records and not update_offsets:
                self._background.call(self._seek_back, {tp: taken[0].offset for tp, taken in records.items()})
            if records and self._interceptors:
                records = self._interceptors.on_consume(records)
            return records
        finally:
            self._lock.release()

    def poll_batch(self, max_records: int | None = None, timeout_ms: float = 0) -> list[ConsumerRecord]:
        """As `poll`, in one list.

        The records of a partition are in order, the partitions in the order of their turns.
        """
        limit = self._max_records(timeout_ms, max_records)
        self._acquire()
        try:
            if self._interceptors:
                return [record for records in self.poll(timeout_ms, limit).values() for record in records]
            return self._wait_for(lambda: self.fetch_buffer.take_list(limit), timeout_ms / 1000) or []
        finally:
            self._lock.release()

    def poll_arrow(
        self, timeout_ms: float = 0, max_records: int | None = None, columns: Sequence[str] | None = None
    ) -> pyarrow.Table:
        """As `poll`, as a pyarrow table with these columns.

        columns: names from kafkapy.arrow.COLUMNS, None for all. At most `max_records` rows (None: no limit) and about
        64 MiB; no rows if none arrive within `timeout_ms`.

        It calls no deserializers and interceptors. Needs pyarrow (the extra `arrow`).
        """
        from kafkapy.clients.arrow.tables import MAX_TABLE_BYTES, TableBuilder

        limit = self._max_records(timeout_ms, MAX_LONG if max_records is None else max_records)
        builder = TableBuilder(columns)
        self._acquire()
        try:
            self._wait_for(
                lambda: self.fetch_buffer.take_columns(builder.columns, limit, MAX_TABLE_BYTES), timeout_ms / 1000
            )
            return builder.table()
        finally:
            self._lock.release()

    def _max_records(self, timeout_ms: float, max_records: int | None) -> int:
        if timeout_ms < 0:
            raise ValueError("timeout_ms must not be negative")
        limit = self._max_poll_records if max_records is None else max_records
        if not isinstance(limit, int):
            raise TypeError("max_records must be an integer")
        if limit <= 0:
            raise ValueError("max_records must be positive")
        return limit

    def next_slowly(self) -> ConsumerRecord:
        """The next record of an iteration.

        It waits up to consumer.timeout.ms, then raises StopIteration.
        """
        if self._closed:
            raise StopIteration
        self._acquire()
        try:
            take = self._next_intercepted if self._interceptors else self.fetch_buffer.next
            record: ConsumerRecord | None = self._wait_for(take, self._consumer_timeout_s)
            if self._interceptors:
                self.fetch_buffer.attention = True  # the fast path does not call interceptors
        finally:
            self._lock.release()
        if record is None:
            raise StopIteration
        return record

    def _next_intercepted(self) -> ConsumerRecord | None:
        if not self._intercepted:
            taken = self.fetch_buffer.take(1)
            if taken:
                for records in self._interceptors.on_consume(taken).values():
                    self._intercepted.extend(records)
        return self._intercepted.popleft() if self._intercepted else None

    def _wait_for(self, take: Callable[[], T], seconds: float | None) -> T:
        """The first true result of `take`, or its last result after `seconds`: one poll."""
        self._core.polls.begin()
        try:
            return self._wait(take, seconds)
        finally:
            self._core.polls.end()

    def _wait(self, take: Callable[[], T], seconds: float | None) -> T:
        buffer = self.fetch_buffer
        deadline = None
        while True:
            if buffer.attention:
                self._attend()
            taken = take()
            if taken:
                return taken
            if deadline is None:
                if seconds == 0:
                    time.sleep(0)  # a poll without waiting yields to the loop's thread
                    return taken
                deadline = math.inf if seconds is None else time.monotonic() + seconds
            left = deadline - time.monotonic()
            if left <= 0:
                return taken
            self._core.user_waits = True
            try:
                self._bell.wait(left)
            finally:
                self._core.user_waits = False

    def _attend(self) -> None:
        """Does the loop's work for this thread, and raises a pending error."""
        if self._woken:
            self._woken = False
            raise WakeupError
        try:
            self._background.call(self._core.enter_poll)
            error = self._do_work(None) or self._core.attendance.next_error()
        except BaseException:
            self.fetch_buffer.attention = True  # interrupted: the next call does the rest
            raise
        if self._woken:
            # wakeup() ran after the check above, and enter_poll() may have cleared its flag.
            self.fetch_buffer.attention = True
        if error is not None:
            raise error

    def _do_work(self, error: Exception | None) -> Exception | None:
        """Runs listeners and callbacks; returns `error` or the first new error."""
        while (work := self._core.attendance.next_work()) is not None:
            try:
                work()
            except Exception as raised:
                if error is not None:
                    logger.error("This poll already raises another error", exc_info=raised)
                error = error or raised
        return error

    def wakeup(self) -> None:
        """Ends the current or next wait of the consumer with WakeupError.

        The wait is in poll() or an iteration. Any thread.
        """
        self._woken = True
        self.fetch_buffer.attention = True
        self._bell.ring()

    # --- subscription and assignment ------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Sequence[str] = (),
        pattern: str | re.Pattern[str] | SubscriptionPattern | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Subscribes to topics, by name or by pattern.

        A pattern matches at the start of a topic name. The subscription replaces the previous one. The broker matches a
        `SubscriptionPattern` (group.protocol=consumer).

        ValueError with neither; IllegalStateError with both, or after assign(); TypeError.
        """
        if not topics and pattern is None:
            raise ValueError("Must provide topics or pattern")
        if topics and pattern is not None:
            raise IllegalStateError("Subscription to topics, partitions and pattern are mutually exclusive")
        _check_names(topics)
        if listener is not None and not hasattr(listener, "on_partitions_assigned"):
            raise TypeError("listener must be a ConsumerRebalanceListener")
        chosen = pattern if pattern is None or isinstance(pattern, SubscriptionPattern) else re.compile(pattern)
        self._call(self._core.subscribe, topics, chosen, listener)

    def unsubscribe(self) -> None:
        """Leaves the group and reads nothing."""
        self._acquire()
        try:
            self._serve(self._core.unsubscribe())
        finally:
            self._lock.release()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Reads these partitions, without a group's assignment.

        They replace the previous ones. IllegalStateError after subscribe().
        """
        chosen = _partitions(partitions)
        if not chosen:
            self.unsubscribe()
        else:
            self._call(self._core.assign, chosen)

    def subscription(self) -> set[str] | None:
        """The subscribed topics, None without a subscription. Any thread."""
        return self._look(lambda: self._core.subscription.subscription) or None

    def assignment(self) -> set[TopicPartition]:
        """The assigned partitions. Any thread."""
        return self._look(lambda: self._core.subscription.assigned)

    def pause(self, *partitions: TopicPartition) -> None:
        """Returns no records of these partitions until resume().

        Fetched records stay in the buffer.
        """
        self._call(self._set_paused, _partitions(partitions), True)

    def resume(self, *partitions: TopicPartition) -> None:
        """Ends a pause."""
        self._call(self._set_paused, _partitions(partitions), False)

    def paused(self) -> set[TopicPartition]:
        """The paused partitions. Any thread."""
        return self._look(
            lambda: {state.topic_partition for state in self._core.subscription.all_states if state.paused}
        )

    def _set_paused(self, partitions: list[TopicPartition], paused: bool) -> None:
        for state in [self._core.subscription.state_of(partition) for partition in partitions]:
            state.paused = paused
        self._core.wake_fetcher()

    # --- positions ------------------------------------------------------------------------------------------------

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Sets the position of a partition: the offset of the next record.

        ValueError for an unassigned partition (also an IllegalStateError) or a negative offset.
        """
        epoch = -1
        if isinstance(offset, OffsetAndMetadata):
            epoch, offset = offset.leader_epoch, offset.offset
        if isinstance(offset, bool) or not isinstance(offset, int) or offset < 0:
            raise ValueError("offset must be an int of at least 0")
        self._call(self._core.seek, _partition(partition), offset, epoch)
        self._intercepted.clear()

    def _seek_back(self, offsets: dict[TopicPartition, int]) -> None:
        for partition, offset in offsets.items():
            self._core.seek(partition, offset)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Continues at the oldest record of these, or of all assigned partitions."""
        self._reset(partitions, EARLIEST)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Continues after the newest record of these, or of all assigned partitions."""
        self._reset(partitions, LATEST)

    def _reset(self, partitions: tuple[TopicPartition, ...], to: Any) -> None:
        chosen = _partitions(partitions) or list(self.assignment())
        if not chosen:
            raise ValueError("No partitions are currently assigned")
        self._call(self._core.reset, chosen, to)
        self._intercepted.clear()

    def position(self, partition: TopicPartition, timeout_ms: int | None = None) -> int:
        """The offset of the next record; waits until it is known. KafkaTimeoutError."""
        return int(self._run(self._core.position(_partition(partition), self._timeout(timeout_ms))))

    def highwater(self, partition: TopicPartition) -> int | None:
        """The high watermark of the last fetch, None before a fetch."""
        return self._call(lambda: self._core.subscription.state_of(_partition(partition)).high_watermark)

    def lag(self, partition: TopicPartition) -> int | None:
        """Number of records between the position and the end, None when unknown.

        The end is that of the records that this consumer may read.
        """
        return self._call(lambda: self._core.lag(_partition(partition)))

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """The oldest offset of each partition. KafkaTimeoutError."""
        return self._offsets_at(partitions, ListOffsetsTimestamp.EARLIEST, timeout_ms)

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """The offset after the newest record of each partition.

        With read_committed, the last stable offset.
        """
        return self._offsets_at(partitions, ListOffsetsTimestamp.LATEST, timeout_ms)

    def _offsets_at(
        self, partitions: Iterable[TopicPartition], at: ListOffsetsTimestamp, timeout_ms: int | None
    ) -> dict[TopicPartition, int]:
        timestamps = dict.fromkeys(_partitions(partitions), int(at))
        listed = self._run(self._core.list_offsets(timestamps, self._timeout(timeout_ms)))
        return {partition: found.offset for partition, found in listed.items()}

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after each timestamp, or None.

        Timestamps are in ms since the epoch. ValueError.
        """
        for partition, at in timestamps.items():
            if at < 0:
                raise ValueError(f"The target time for partition {partition} is {at}: it cannot be negative")
        asked = {_partition(partition): int(at) for partition, at in timestamps.items()}
        listed = self._run(self._core.list_offsets(asked, self._timeout(timeout_ms)))
        return {
            partition: OffsetAndTimestamp(found.offset, found.timestamp, found.leader_epoch)
            if found.offset >= 0
            else None
            for partition, found in listed.items()
        }

    # --- commits --------------------------------------------------------------------------------------------------

    def commit(self, offsets: Offsets | None = None, timeout_ms: int | None = None) -> None:
        """Commits these offsets, or the positions, and waits for the result.

        An offset is that of the next record to read. CommitFailedError when the member is no longer in the group;
        IllegalStateError without a group.
        """
        self._run(self._core.commit(_offsets(offsets), self._timeout(timeout_ms)))

    def commit_async(
        self, offsets: Offsets | None = None, callback: CommitCallback | None = None
    ) -> OffsetCommitFuture:
        """Commits without waiting.

        A later poll calls `callback(offsets, None or the error)`.
        """
        future = OffsetCommitFuture()
        default = self.config["default.offset.commit.callback"]

        def done(committed: Mapping[TopicPartition, OffsetAndMetadata], error: Exception | None) -> None:
            future.resolve(committed, error)
            chosen = callback or default
            if chosen is not None:
                chosen(committed, error)

        self._call(self._core.commit_soon, _offsets(offsets), done)
        return future

    def committed(
        self, partition: TopicPartition, metadata: bool = False, timeout_ms: int | None = None
    ) -> int | OffsetAndMetadata | None:
        """The committed offset, or None. IllegalStateError.

        With `metadata` it is an OffsetAndMetadata.
        """
        found = self._run(self._core.committed([_partition(partition)], self._timeout(timeout_ms))).get(partition)
        if found is None:
            return None
        return found if metadata else int(found.offset)

    def group_metadata(self) -> ConsumerGroupMetadata:
        """The member and its group, for KafkaProducer.send_offsets_to_transaction(). Any thread."""
        return self._look(self._core.group_metadata)

    # --- the cluster ----------------------------------------------------------------------------------------------

    def topics(self, timeout_ms: int | None = None) -> set[str]:
        """The names of all visible topics."""
        return set(self._run(self._core.topics.names(self._timeout(timeout_ms))))

    def partitions_for_topic(self, topic: str, timeout_ms: int | None = None) -> set[int]:
        """The partition numbers of a topic, or an empty set.

        Empty: the topic does not exist.
        """
        return set(self._run(self._core.topics.partitions_of(topic, self._timeout(timeout_ms))))

    def bootstrap(self, timeout_ms: int | None = None, refresh: bool = False) -> None:
        """Waits for the cluster if the constructor did not (api_version).

        `refresh` requests new metadata. KafkaTimeoutError.
        """
        timeout = self._timeout(timeout_ms)
        if self._core.network.cluster.bootstrapping:
            try:
                self._run(self._core.network.bootstrap(timeout))
            except NoBrokersAvailableError as error:
                raise KafkaTimeoutError(str(error)) from None
        elif refresh:
            self._run(self._core.topics.refresh(timeout))

    def bootstrap_connected(self) -> bool:
        """Whether the client has reached the cluster."""
        return not self._closed and not self._core.network.cluster.bootstrapping

    def metrics(self, raw: bool = False) -> dict[str, dict[str, Any]]:
        """The metrics by group and name; the names are Kafka's. Any thread.

        `raw` has no effect.
        """
        return self._look(self._core.all_metrics)

    def client_instance_id(self, timeout_ms: float) -> UUID | None:
        """The client's id in the metrics that it pushes, as KafkaProducer's method. Any thread."""
        return self._background.run(self._core.telemetry.client_instance_id(timeout_ms / 1000))

    # --- the end --------------------------------------------------------------------------------------------------

    def close(self, autocommit: bool = True, timeout_ms: float | None = None) -> None:
        """Commits (with auto commit), leaves the group, and closes all connections.

        It does not commit with `autocommit` False, and takes at most about `timeout_ms` (30 s). Further calls do
        nothing. A child after fork() only drops the consumer.
        """
        if self._closed or self._closing:
            return
        if self._background.foreign:
            self._closed = True
            return
        self._acquire()
        try:
            self._closing = True
            self.fetch_buffer.attention = True
            limit = int(min(self.config["request.timeout.ms"], 30_000) if timeout_ms is None else timeout_ms)
            try:
                self._serve(self._core.close(autocommit, limit))
            finally:
                self._closed = True
                self._finalizer()
                self._interceptors.close()
                for name in ("key.deserializer", "value.deserializer"):
                    if hasattr(self.config[name], "deserialize") and hasattr(self.config[name], "close"):
                        self.config[name].close()
        finally:
            self._lock.release()

    def _timeout(self, timeout_ms: float | None) -> int:
        return self._api_timeout_ms if timeout_ms is None else int(timeout_ms)


def _check_names(topics: Sequence[str]) -> None:
    if isinstance(topics, str) or not all(isinstance(topic, str) for topic in topics):
        raise TypeError("topics must be a sequence of names")


def _partition(partition: TopicPartition) -> TopicPartition:
    """The argument as a TopicPartition.

    TypeError unless it is a pair of topic and number.
    """
    if not isinstance(partition, tuple) or len(partition) != 2:
        raise TypeError("partition must be a TopicPartition")
    return partition if isinstance(partition, TopicPartition) else TopicPartition(*partition)


def _partitions(partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    return list(dict.fromkeys(_partition(partition) for partition in partitions))


def _offsets(offsets: Offsets | None) -> dict[TopicPartition, OffsetAndMetadata] | None:
    """Offsets to commit; a number is an offset without metadata."""
    if offsets is None:
        return None
    chosen = {
        _partition(partition): OffsetAndMetadata(offset) if isinstance(offset, int) else OffsetAndMetadata(*offset)
        for partition, offset in offsets.items()
    }
    for partition, offset in chosen.items():
        if offset.offset < 0:
            raise ValueError(f"The offset of {partition} is negative: {offset.offset}")
    return chosen
