"""KafkaConsumer: the consumer on the user's thread, with kafka-python's interface.

The user's thread takes records out of the buffers itself. Everything else happens on the loop of a background thread
(`ConsumerCore`), which fetches, sends heartbeats and commits even while the user's thread is busy.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from kafkapy._speedups.clients.consumer.consumer_record import ConsumerRecord
from kafkapy.clients.consumer.attended import AttendedConsumer, check_names
from kafkapy.clients.consumer.core import ConsumerCore
from kafkapy.clients.consumer.offset_commit import OffsetCommitFuture
from kafkapy.clients.consumer.subscription import EARLIEST, LATEST, ConsumerRebalanceListener, SubscriptionPattern
from kafkapy.config.clients import ClientConfig
from kafkapy.config.config_def import MAX_LONG
from kafkapy.config.consumer import CONSUMER
from kafkapy.errors import IllegalStateError
from kafkapy.types import ListOffsetsTimestamp, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    import pyarrow

    from kafkapy.clients.consumer.membership.protocol import ConsumerGroupMetadata
    from kafkapy.config.options import ConsumerOptions

__all__ = ["KafkaConsumer"]

Offsets = Mapping[TopicPartition, OffsetAndMetadata | int]
CommitCallback = Callable[[Mapping[TopicPartition, OffsetAndMetadata], Exception | None], Any]


class KafkaConsumer(AttendedConsumer):
    """Reads records of topics, alone or as a member of a group.

        for record in KafkaConsumer("orders", group_id="billing", bootstrap_servers="localhost:9092"):
            print(record.topic, record.partition, record.offset, record.key, record.value)

    Arguments: topics to subscribe to; configuration as keywords (``max_poll_records=100``), or with Kafka's names in a
    dict called `configs` (``{"max.poll.records": 100}``). docs/clients.md lists all of them. ConfigError,
    NoBrokersAvailableError.

    One thread at a time may use it (IllegalStateError otherwise), except for `wakeup` and methods marked "any thread".
    A child after fork() cannot use it.
    """

    _core: ConsumerCore

    def __init__(
        self, *topics: str, configs: Mapping[str, object] | None = None, **keywords: Unpack[ConsumerOptions]
    ) -> None:
        config = ClientConfig(CONSUMER, configs, **keywords)
        check_names(topics)
        self._topics = topics
        self._intercepted: deque[ConsumerRecord] = deque()
        super().__init__(config, f"kafkapy-consumer-{config['client.id'] or config['group.id'] or ''}")
        self._interceptors = self._core.interceptors

    def _make_core(self) -> ConsumerCore:
        core = ConsumerCore(self.config, post=self._background.post, ring=self._bell.ring)
        if self._topics:
            # Before the start: the first metadata then contains the topics.
            core.subscribe(self._topics, None, None)
        return core

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

    def _next_record(self) -> ConsumerRecord | None:
        take = self._next_intercepted if self._interceptors else self.fetch_buffer.next
        record: ConsumerRecord | None = self._wait_for(take, self._consumer_timeout_s)
        if self._interceptors:
            self.fetch_buffer.attention = True  # the fast path does not call interceptors
        return record

    def _next_intercepted(self) -> ConsumerRecord | None:
        if not self._intercepted:
            taken = self.fetch_buffer.take(1)
            if taken:
                for records in self._interceptors.on_consume(taken).values():
                    self._intercepted.extend(records)
        return self._intercepted.popleft() if self._intercepted else None

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
        check_names(topics)
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

    # --- the end --------------------------------------------------------------------------------------------------

    def close(self, autocommit: bool = True, timeout_ms: float | None = None) -> None:
        """Commits (with auto commit), leaves the group, and closes all connections.

        It does not commit with `autocommit` False, and takes at most about `timeout_ms` (30 s). Further calls do
        nothing. A child after fork() only drops the consumer.
        """
        self._close(timeout_ms, lambda limit: self._core.close(autocommit, limit), self._interceptors.close)


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
