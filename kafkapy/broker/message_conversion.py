"""Message sets for clients that fetch in versions 0 to 3.

A worker thread makes them. The module also counts conversions.

Source: kafka.server.KafkaApis.handleFetchRequest (maybeConvertFetchedData) and updateRecordConversionStats.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from kafkapy.config.topic import LogConfig
from kafkapy.errors import ErrorCode, code_of
from kafkapy.types import TopicPartition

if TYPE_CHECKING:
    from kafkapy._speedups.network.network_request import NetworkRequest

logger = logging.getLogger("kafka.server.KafkaApis")

PRODUCE: Final = "Produce"
FETCH: Final = "Fetch"

MAX_OPENED_BYTES: Final = 64 * 1024 * 1024
"""The most bytes that one reply's batches may be decompressed to.

The first batch may exceed it: it may be as large as a batch may.
"""

_MAX_MAGIC: Final = {0: 0, 1: 0, 2: 1, 3: 1}
"""Fetch version to the newest message format that its clients read."""


class ConversionCounts:
    """Numbers of converted records, by API, and the cost of conversions.

    Counted by worker threads, read by metrics.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._records: Counter[tuple[str, str]] = Counter()
        self._time_ns: Counter[str] = Counter()
        self._memory: Counter[str] = Counter()

    def add(self, api: str, topic: str, records: int, time_ns: int, temporary_bytes: int) -> None:
        """One partition of a Produce or Fetch."""
        with self._lock:
            if records:
                self._records[api, topic] += records
                self._time_ns[api] += time_ns
            self._memory[api] += temporary_bytes

    def records(self) -> dict[tuple[str, str], int]:
        """(api, topic) to records converted."""
        with self._lock:
            return dict(self._records)

    def price(self) -> dict[str, tuple[float, int]]:
        """Conversion time in ms and temporary memory in bytes, by API.

        Both are totals.
        """
        with self._lock:
            return {api: (self._time_ns[api] / 1e6, self._memory[api]) for api in (PRODUCE, FETCH)}


class MessageConversion:
    """Converts the batches of parked fetches. Owned by DataPlaneAsks.

    One thread, so that old clients take at most one core and one reply's memory at a time, started when the first of
    them comes.
    """

    def __init__(self, log_config: Callable[[TopicPartition], LogConfig], counts: ConversionCounts) -> None:
        self._log_config = log_config
        self._counts = counts
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="kafka-message-conversion")

    def answer(self, request: NetworkRequest) -> None:
        """Have the worker do it."""
        self._worker.submit(self._convert, request)

    def close(self) -> None:
        """End the worker; what is under way is finished first."""
        self._worker.shutdown(wait=True)

    def _convert(self, request: NetworkRequest) -> None:
        """On the worker thread."""
        left = MAX_OPENED_BYTES
        for question in request.questions:
            index = int(question)
            try:
                left -= self._convert_part(request, index, left)
            except Exception as error:  # whatever is wrong with it, the other parts of the fetch are answered
                code = code_of(error)
                if isinstance(error, OSError):
                    code = ErrorCode.KAFKA_STORAGE_ERROR
                if code is ErrorCode.UNKNOWN_SERVER_ERROR:
                    logger.exception("The conversion of records for a Fetch of version %d failed", request.api_version)
                request.refuse_conversion(index, code)
        request.resume()

    def _convert_part(self, request: NetworkRequest, index: int, left: int) -> int:
        """The bytes of memory it took."""
        from kafkapy.records.compression import MAX_DECOMPRESSED_BYTES
        from kafkapy.records.legacy import down_convert

        topic, partition, fetch_offset, data = request.records_to_convert(index)
        if not self._log_config(TopicPartition(topic, partition)).message_downconversion_enable:
            request.refuse_conversion(index, ErrorCode.UNSUPPORTED_VERSION)
            return 0
        if left <= 0:
            request.give_message_set(index, b"", fetch_offset)
            return 0
        started = time.monotonic_ns()
        made = down_convert(
            data,
            _MAX_MAGIC[request.api_version],
            first_offset=fetch_offset,
            max_bytes=left,
            max_first_bytes=MAX_DECOMPRESSED_BYTES,
        )
        request.give_message_set(index, made.message_set, made.end_offset)
        spent = time.monotonic_ns() - started
        self._counts.add(FETCH, topic, made.record_count, spent, made.temporary_bytes)
        return made.temporary_bytes
