"""A producer's metrics, under the names of Kafka's producer metrics.

The loop's thread counts per request, never per record. Source: SenderMetricsRegistry.
"""

from __future__ import annotations

import time

from kafkapy._speedups.clients.producer.produce_frame import ProduceRequestFrame
from kafkapy._speedups.clients.producer.producer_batch import ProducerBatch
from kafkapy._speedups.clients.producer.record_accumulator import RecordAccumulator
from kafkapy.clients.metrics import Meter

__all__ = ["ProducerMetrics"]


class ProducerMetrics:
    """The metrics of one producer core.

    The sender counts; users read `snapshot`.
    """

    def __init__(self, accumulator: RecordAccumulator, samples: int, window_s: float) -> None:
        self._accumulator = accumulator
        self._records = Meter(samples, window_s)
        self._batch_bytes = Meter(samples, window_s)
        self._queue_ms = Meter(samples, window_s)
        self._retries = Meter(samples, window_s)
        self._errors = Meter(samples, window_s)
        self._throttle_ms = Meter(samples, window_s)
        self._bytes_before = 0
        self._bytes_sent = 0
        self._batches = 0
        self._largest_record = 0
        self.splits = 0

    def request(self, batches: list[ProducerBatch]) -> None:
        """Counts a request with these batches."""
        now_s = time.monotonic()
        records = 0
        size = 0
        for batch in batches:
            records += batch.record_count
            size += batch.size
            if batch.max_record_size > self._largest_record:
                self._largest_record = batch.max_record_size
        first = batches[0]
        self._batches += len(batches)
        self._records.record(records, now_s)
        self._batch_bytes.record(size / len(batches), now_s)
        self._queue_ms.record(first.drained_ms - first.created_ms, now_s)

    def sent(self, request: ProduceRequestFrame) -> None:
        """Counts a response, or a failed request."""
        if request.bytes_encoded:
            self._bytes_before += request.bytes_before
            self._bytes_sent += request.bytes_encoded

    def throttled(self, throttle_ms: int) -> None:
        """Counts the throttle time of a response, which is mostly 0."""
        self._throttle_ms.record(throttle_ms, time.monotonic())

    def record_retries(self, batch: ProducerBatch) -> None:
        """Counts the records of a batch that is sent again."""
        self._retries.record(batch.record_count, time.monotonic())

    def record_errors(self, batch: ProducerBatch) -> None:
        """Counts the records of a failed batch."""
        self._errors.record(batch.record_count, time.monotonic())

    def snapshot(self) -> dict[str, float]:
        """Values by name.

        Averages and rates cover the last samples, totals the time since the start.
        """
        now_s = time.monotonic()
        accumulator = self._accumulator
        appended = accumulator.records_appended
        return {
            "record-send-rate": self._records.rate(now_s),
            "record-send-total": self._records.total,
            "records-per-request-avg": self._records.average(now_s),
            "batch-size-avg": self._batch_bytes.average(now_s),
            "batch-size-max": self._batch_bytes.maximum(now_s),
            "batch-total": float(self._batches),
            "batch-split-total": float(self.splits),
            "compression-rate-avg": self._bytes_sent / self._bytes_before if self._bytes_before else 1.0,
            "record-queue-time-avg": self._queue_ms.average(now_s),
            "record-queue-time-max": self._queue_ms.maximum(now_s),
            "produce-throttle-time-avg": self._throttle_ms.average(now_s),
            "produce-throttle-time-max": self._throttle_ms.maximum(now_s),
            "record-retry-rate": self._retries.rate(now_s),
            "record-retry-total": self._retries.total,
            "record-error-rate": self._errors.rate(now_s),
            "record-error-total": self._errors.total,
            "record-size-avg": accumulator.bytes_appended / appended if appended else 0.0,
            "record-size-max": float(self._largest_record),
            "buffer-total-bytes": float(accumulator.pool.total),
            "buffer-available-bytes": float(accumulator.pool.available),
            "waiting-threads": float(accumulator.pool.waiting),
        }
