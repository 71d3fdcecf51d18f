from typing import final

from kafkapy._speedups.clients.producer.producer_batch import ProducerBatch

@final
class RecordSpans:
    @property
    def count(self) -> int: ...
    def append(self, batch: ProducerBatch, first: int, count: int) -> None: ...
    def batches(self) -> list[ProducerBatch]: ...
