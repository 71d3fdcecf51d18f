"""KafkaShareConsumer: the consumer of share groups on the user's thread.

A share group is a queue: its members share the partitions of the topics, and each record goes to one of them, which
acknowledges it. Everything but reading and acknowledging happens on the loop of a background thread
(`ShareConsumerCore`). Its names are those of Java's KafkaShareConsumer; records and polls are KafkaConsumer's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar, Unpack

from kafkapy._speedups.clients.consumer.consumer_record import ConsumerRecord
from kafkapy.clients.consumer.attended import AttendedConsumer, check_names
from kafkapy.clients.share.acknowledgements import AcknowledgeType, acknowledge_type
from kafkapy.clients.share.core import AcknowledgementCallback, ShareConsumerCore
from kafkapy.config.clients import ClientConfig
from kafkapy.config.config_def import MAX_LONG
from kafkapy.config.share_consumer import SHARE_CONSUMER
from kafkapy.errors import IllegalStateError
from kafkapy.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow

    from kafkapy.config.options import ShareConsumerOptions

__all__ = ["KafkaShareConsumer", "by_partition"]

T = TypeVar("T")
Records = dict[TopicPartition, list[ConsumerRecord]]


class KafkaShareConsumer(AttendedConsumer):
    """Reads records as a member of a share group, a queue's worker (KIP-932).

        for record in KafkaShareConsumer("jobs", group_id="workers", bootstrap_servers="localhost:9092"):
            work(record.value)

    With share_acknowledgement_mode="implicit" the next step accepts the records before it, so a record whose work fails
    goes to another worker. With "explicit" the program says what becomes of each record (`acknowledge`).

    Arguments: topics to subscribe to; configuration as keywords, or with Kafka's names in a dict called `configs`.
    group_id is required. docs/queues.md describes share groups. ConfigError, InvalidGroupIdError,
    NoBrokersAvailableError.

    One thread at a time may use it (IllegalStateError otherwise), except for `wakeup` and methods marked "any thread".
    A child after fork() cannot use it.
    """

    _core: ShareConsumerCore

    def __init__(
        self, *topics: str, configs: Mapping[str, object] | None = None, **keywords: Unpack[ShareConsumerOptions]
    ) -> None:
        config = ClientConfig(SHARE_CONSUMER, configs, **keywords)
        check_names(topics)
        self._topics = topics
        self._renewed: deque[ConsumerRecord] = deque()
        """Renewed records that an iteration has not returned yet."""
        super().__init__(config, f"kafkapy-share-consumer-{config['client.id'] or config['group.id'] or ''}")
        self._deliveries = self._core.deliveries

    def _make_core(self) -> ShareConsumerCore:
        core = ShareConsumerCore(self.config, post=self._background.post, ring=self._bell.ring)
        if self._topics:
            # Before the start: the first metadata then contains the topics.
            core.subscribe(self._topics)
        return core

    # --- subscription ---------------------------------------------------------------------------------------------

    def subscribe(self, topics: Sequence[str]) -> None:
        """Subscribes to topics by name, in place of the previous ones; none: as `unsubscribe`.

        TypeError; ValueError for an empty name.
        """
        check_names(topics)
        if not topics:
            self.unsubscribe()
            return
        if not all(topic.strip() for topic in topics):
            raise ValueError("The name of a topic is empty")
        self._call(self._core.subscribe, list(topics))

    def unsubscribe(self) -> None:
        """Sends the acknowledgements, gives all other records back, and leaves the group."""
        self._acquire()
        try:
            self._renewed.clear()
            self._serve(self._core.unsubscribe())
        finally:
            self._lock.release()

    def subscription(self) -> set[str]:
        """The subscribed topics. Any thread."""
        return self._look(lambda: self._core.subscription.subscription)

    def assignment(self) -> set[TopicPartition]:
        """The assigned partitions, which other members may have, too. Any thread."""
        return self._look(lambda: self._core.subscription.assigned)

    # --- records --------------------------------------------------------------------------------------------------

    def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> Records:
        """Records by partition; {} if none arrive within `timeout_ms`.

        At most `max_records` (max.poll.records) together. It joins the group, runs the callback, and accepts the
        records of earlier polls, or sends their acknowledgements. Records whose locks were renewed come once more,
        alone.

        IllegalStateError: no subscription, or an unacknowledged record in explicit mode. Raises errors since the last
        poll; WakeupError; ValueError and TypeError for arguments.
        """
        limit = self._max_records(timeout_ms, max_records)
        return self._poll(lambda: self.fetch_buffer.take(limit), by_partition, timeout_ms) or {}

    def poll_batch(self, max_records: int | None = None, timeout_ms: float = 0) -> list[ConsumerRecord]:
        """As `poll`, in one list."""
        limit = self._max_records(timeout_ms, max_records)
        return self._poll(lambda: self.fetch_buffer.take_list(limit), lambda records: records, timeout_ms) or []

    def poll_arrow(
        self, timeout_ms: float = 0, max_records: int | None = None, columns: Sequence[str] | None = None
    ) -> pyarrow.Table:
        """As `poll`, as a pyarrow table with these columns.

        columns: names from kafkapy.arrow.COLUMNS, and delivery_count; None for all. At most `max_records` rows (None:
        no limit) and about 64 MiB; no rows if none arrive within `timeout_ms`. `acknowledge` takes such a table.

        It calls no deserializers. Needs pyarrow (the extra `arrow`).
        """
        from kafkapy.clients.arrow.tables import MAX_TABLE_BYTES
        from kafkapy.clients.share.tables import ShareTableBuilder

        limit = self._max_records(timeout_ms, MAX_LONG if max_records is None else max_records)
        builder = ShareTableBuilder(columns)
        self._poll(lambda: self.fetch_buffer.take_columns(builder.acquired, limit, MAX_TABLE_BYTES), None, timeout_ms)
        return builder.table()

    def _next_record(self) -> ConsumerRecord | None:
        if self._renewed:
            return self._next_renewed([])
        self._user_polls()
        timeout_ms = None if self._consumer_timeout_s is None else self._consumer_timeout_s * 1000
        return self._read(self.fetch_buffer.next, self._next_renewed, timeout_ms)

    def _next_renewed(self, records: list[ConsumerRecord]) -> ConsumerRecord:
        self._renewed.extend(records)
        record = self._renewed.popleft()
        if self._renewed:
            self.fetch_buffer.attention = True  # the fast path does not know them
        return record

    def _user_polls(self) -> None:
        if not self._core.subscription.auto_assigned:
            raise IllegalStateError("Consumer is not subscribed to any topics.")
        self._deliveries.user_polls()

    def _poll(
        self,
        take: Callable[[], T],
        renewed: Callable[[list[ConsumerRecord]], T] | None,
        timeout_ms: float,
    ) -> T | None:
        """One poll: the first true result of `take`, or the renewed records by `renewed`."""
        self._acquire()
        try:
            self._user_polls()
            return self._read(take, renewed, timeout_ms)
        finally:
            self._lock.release()

    def _read(
        self,
        take: Callable[[], T],
        renewed: Callable[[list[ConsumerRecord]], T] | None,
        timeout_ms: float | None,
    ) -> T | None:
        deliveries = self._deliveries

        def found() -> T | None:
            if renewed is not None and deliveries.renewing:
                # As in Kafka's client, new records come when the renewed ones were returned.
                records = deliveries.take_renewed()
                return renewed(records) if records else None
            try:
                return take()
            except Exception:
                deliveries.errors_seen()
                raise

        records = self._wait_for(found, None if timeout_ms is None else timeout_ms / 1000)
        if records:
            self._core.fetcher.wants = False
        if deliveries.unsent:
            self._background.post(self._core.send_acknowledgements)
        return records

    def _hungry(self) -> None:
        self._background.post(self._core.fetch)

    # --- acknowledgements -----------------------------------------------------------------------------------------

    def acknowledge(
        self, record: ConsumerRecord | pyarrow.Table, type: AcknowledgeType | str = AcknowledgeType.ACCEPT
    ) -> None:
        """Acknowledges a record of the last poll: accept, release, reject or renew.

        The next poll or commit sends it; until then another call changes it. `record` may also be a table of
        `poll_arrow` with the columns topic, partition and offset, for all its rows; a table cannot be renewed.

        IllegalStateError in implicit mode, or for a record that this consumer does not have; ValueError.
        """
        kind = acknowledge_type(type)
        self._acquire()
        try:
            self._require_explicit()
            if isinstance(record, ConsumerRecord):
                self._deliveries.acknowledge(record.topic, record.partition, record.offset, kind, record)
                return
            columns = (record[name].to_pylist() for name in ("topic", "partition", "offset"))
            for topic, partition, offset in zip(*columns, strict=True):
                self._deliveries.acknowledge(topic, partition, offset, kind)
        finally:
            self._lock.release()

    def acknowledge_offset(
        self, topic: str, partition: int, offset: int, type: AcknowledgeType | str = AcknowledgeType.ACCEPT
    ) -> None:
        """As `acknowledge`, by the place of a record, which may be unreadable."""
        kind = acknowledge_type(type)
        self._acquire()
        try:
            self._require_explicit()
            self._deliveries.acknowledge(topic, partition, offset, kind)
        finally:
            self._lock.release()

    def _require_explicit(self) -> None:
        if not self._deliveries.explicit:
            raise IllegalStateError("Implicit acknowledgement of delivery is being used.")

    def commit_sync(self, timeout_ms: int | None = None) -> dict[TopicPartition, Exception | None]:
        """Sends the acknowledgements, and waits: {partition: None or the error}.

        In implicit mode it first accepts the records of the last poll. RequestTimedOutError is the outcome of a
        partition without one within `timeout_ms` (default.api.timeout.ms).
        """
        self._acquire()
        try:
            self.fetch_buffer.attention = True
            outcomes: dict[TopicPartition, Exception | None]
            outcomes = self._serve(self._core.commit(self._timeout(timeout_ms)))
            return outcomes
        finally:
            self._lock.release()

    def commit_async(self) -> None:
        """Sends the acknowledgements without waiting; the callback gets the outcomes."""
        self._acquire()
        try:
            self._deliveries.user_commits()
            self.fetch_buffer.attention = True
            self._background.post(self._core.commit_soon)
        finally:
            self._lock.release()

    def set_acknowledgement_commit_callback(self, callback: AcknowledgementCallback | None) -> None:
        """Sets the function that gets the outcomes of acknowledgements; None: no function.

        A poll, commit_sync(), unsubscribe() or close() calls `callback({partition: offsets}, None or the error)`.
        """
        self._call(setattr, self._core, "callback", callback)

    def acquisition_lock_timeout_ms(self) -> int | None:
        """The lock time of a record in ms, None before the first record."""
        return self._look(lambda: self._core.fetcher.lock_timeout_ms)

    # --- the end --------------------------------------------------------------------------------------------------

    def close(self, timeout_ms: float | None = None) -> None:
        """Sends the acknowledgements, leaves the group, and closes all connections.

        All other records go back. It takes at most about `timeout_ms` (30 s). In implicit mode it does not accept the
        records of the last poll: they go to other members. Further calls do nothing. A child after fork() only
        drops the consumer.
        """
        self._close(timeout_ms, self._core.close, lambda: None)


def by_partition(records: list[ConsumerRecord]) -> Records:
    """Records by partition, in their order."""
    found: Records = {}
    for record in records:
        found.setdefault(TopicPartition(record.topic, record.partition), []).append(record)
    return found
