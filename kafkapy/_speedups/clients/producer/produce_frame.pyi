from collections.abc import Mapping
from typing import final
from uuid import UUID

from kafkapy._speedups.clients.io.frames import RequestFrame, ResponseFrame
from kafkapy._speedups.clients.producer.producer_batch import ProducerBatch
from kafkapy._speedups.clients.producer.record_accumulator import RecordAccumulator

@final
class ProduceRequestFrame(RequestFrame):
    batches: list[ProducerBatch]
    version: int
    bytes_before: int
    bytes_encoded: int
    def __init__(
        self,
        version: int,
        header: bytes,
        batches: list[ProducerBatch],
        acks: int,
        timeout_ms: int,
        transactional_id: str | None = None,
        topic_ids: Mapping[str, UUID] | None = None,
        codec: int = 0,
        level: int = 0,
    ) -> None: ...
    def release(self) -> None: ...
    def to_bytes(self) -> bytes: ...

@final
class ProduceResponseFrame(ResponseFrame):
    version: int
    throttle_time_ms: int
    plain: bool
    def __init__(self, version: int) -> None: ...
    def succeed_all(self, request: ProduceRequestFrame, accumulator: RecordAccumulator) -> bool: ...
    def body(self) -> bytes: ...
    def feed(self, frame: bytes) -> None: ...
