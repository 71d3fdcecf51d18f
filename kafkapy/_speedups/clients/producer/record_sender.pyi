from collections.abc import Callable, Iterable
from typing import Any

from kafkapy._speedups.clients.producer.record_accumulator import RecordAccumulator
from kafkapy._speedups.clients.producer.record_future import BulkFuture, FutureRecordMetadata
from kafkapy.types import RecordMetadata

class RecordSender:
    accumulator: RecordAccumulator
    key_serializer: Callable[[str, Any, Any], Any] | None
    value_serializer: Callable[[str, Any, Any], Any] | None
    partitioner: Callable[[str, Any, Any, Any, Any], int] | None
    interceptors: Any
    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Iterable[tuple[str, bytes | None]] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        callback: Callable[[RecordMetadata | None, BaseException | None], object] | None = None,
    ) -> FutureRecordMetadata: ...
    def send_plain(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Iterable[tuple[str, bytes | None]] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> FutureRecordMetadata: ...
    def send_many(
        self,
        topic: str,
        values: Iterable[Any],
        keys: Iterable[Any] | None = None,
        headers: Iterable[tuple[str, bytes | None]] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> BulkFuture: ...

def deliver_to(
    future: FutureRecordMetadata, callback: Callable[[RecordMetadata | None, BaseException | None], object]
) -> None: ...
