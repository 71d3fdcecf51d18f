from collections.abc import Callable, Collection, Iterable
from typing import final

from typing_extensions import Buffer

from kafkapy._speedups.clients.producer.buffer_pool import BufferPool
from kafkapy._speedups.clients.producer.partition_queue import PartitionQueue, TopicQueue
from kafkapy._speedups.clients.producer.producer_batch import ProducerBatch
from kafkapy._speedups.clients.producer.record_future import FutureRecordMetadata

@final
class RecordAccumulator:
    pool: BufferPool
    topics: dict[str, TopicQueue]
    incomplete: set[ProducerBatch]
    batch_size: int
    max_request_size: int
    linger_ms: int
    ignore_keys: bool
    adaptive: bool
    open: bool
    wake: Callable[[], object] | None
    wake_asked: bool
    timer_set: bool
    saturated: bool
    flushes: int
    closed: bool
    idempotent: bool
    transactional: bool
    completing: bool
    sending_allowed: bool
    producer_id: int
    producer_epoch: int
    backoff_ms: list[int]
    asked: PartitionQueue | None
    failure: BaseException | None
    records_appended: int
    bytes_appended: int
    def __init__(
        self,
        buffer_memory: int,
        batch_size: int,
        linger_ms: int,
        max_request_size: int,
        backoff_ms: list[int],
        *,
        ignore_keys: bool = False,
        adaptive: bool = True,
    ) -> None: ...
    def set_batch_size(self, batch_size: int) -> None: ...
    def append(
        self,
        topic: str,
        partition: int | None,
        timestamp_ms: int | None,
        key: Buffer | None,
        value: Buffer | None,
        headers: Iterable[tuple[str, Buffer | None]] | None = None,
    ) -> FutureRecordMetadata | None: ...
    def topic(self, name: str) -> TopicQueue: ...
    def queue(self, topic: str, partition: int) -> PartitionQueue: ...
    def listed_topics(self) -> set[str]: ...
    def has_room(self, room: int) -> bool: ...
    def wait_for_room(self, waiter: Callable[[], object]) -> None: ...
    def stop_waiting(self, waiter: Callable[[], object]) -> None: ...
    def tell_room(self, always: bool = False) -> None: ...
    def update_loads(self, excluded: Collection[int]) -> None: ...
    def ready(self, now: int) -> tuple[list[int], int | None, set[str]]: ...
    def drain(self, node: int, max_bytes: int, now: int, one_at_a_time: bool = False) -> list[ProducerBatch]: ...
    @property
    def undrained(self) -> bool: ...
    def succeed(self, batch: ProducerBatch, base_offset: int, log_append_time: int) -> None: ...
    def fail(
        self, batch: ProducerBatch, error: BaseException, record_errors: dict[int, BaseException] | None = None
    ) -> bool: ...
    def retry(self, batch: ProducerBatch, now: int) -> None: ...
    def split(self, batch: ProducerBatch) -> int: ...
    def take_expired(self, now: int, delivery_timeout_ms: int) -> tuple[list[ProducerBatch], int | None]: ...
    def take_undrained(self) -> list[ProducerBatch]: ...
    def take_all(self) -> list[ProducerBatch]: ...

by_age: Callable[[ProducerBatch], tuple[int, int]]
