"""Compressed batches in a Produce: looked at by default, at once or by a worker; one that lies leaves no trace."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest

from kafkapy._speedups.records import record_batch
from kafkapy._speedups.testing import request_driver
from kafkapy.errors import ErrorCode
from kafkapy.records.batches import RecordBatchBuilder, iter_batches
from kafkapy.records.compression import compress

CODECS = (1, 2, 3, 4)
LARGE = random.Random(5).randbytes(3_000_000)
"""More than one request may have its network thread decompress, whatever the codec."""


def changed(batch: bytes, *, codec: int | None = None, count: int | None = None, payload: bytes | None = None) -> bytes:
    """The batch with another header or payload and a right CRC."""
    out = bytearray(batch[:61] + (batch[61:] if payload is None else payload))
    struct.pack_into(">i", out, 8, len(out) - 12)
    if codec is not None:
        out[22] = out[22] & ~7 | codec
    if count is not None:
        struct.pack_into(">i", out, 57, count)
        struct.pack_into(">i", out, 23, count - 1)
    record_batch.refresh_crc(out)
    return bytes(out)


def large_batch(codec: int) -> bytes:
    builder = RecordBatchBuilder()
    for at in range(0, len(LARGE), 100_000):
        builder.append(1_700_000_000_000, b"k", LARGE[at : at + 100_000])
    return builder.build(codec)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("version", [7, 13])
def test_what_is_as_it_says_is_appended_as_it_came(broker: Any, codec: int, version: int) -> None:
    (log,) = broker.topic("t")
    batch = broker.batch(*[b"v" * i for i in range(200)], codec=codec)
    assert broker.only(broker.produce({"t": [(0, batch)]}, version=version)).error_code == ErrorCode.NONE
    assert log.log_end_offset == 200
    (kept,) = iter_batches(
        broker.fetch_reply(broker.fetch_exchange([("t", 0, 0)]), 12).responses[0].partitions[0].records
    )
    assert kept.record_count == 200


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_that_lies_is_refused_and_its_neighbour_is_not(broker: Any, codec: int) -> None:
    logs = broker.topic("t", 2)
    good = broker.batch(*[b"v" * i for i in range(20)], codec=codec)
    other = next(each for each in CODECS if each != codec)
    lies = {
        changed(good, count=19): ErrorCode.INVALID_RECORD,
        changed(good, count=21): ErrorCode.INVALID_RECORD,
        changed(good, count=2**31 - 1): ErrorCode.INVALID_RECORD,
        changed(good, codec=other): ErrorCode.CORRUPT_MESSAGE,
        changed(good, payload=b"this is not what the codec writes"): ErrorCode.CORRUPT_MESSAGE,
        changed(good, payload=good[61:-1]): ErrorCode.CORRUPT_MESSAGE,
        changed(good, payload=compress(codec, b"\0\0\0")): ErrorCode.INVALID_RECORD,
    }
    for turn, (lie, error) in enumerate(lies.items()):
        reply = broker.produce({"t": [(0, lie), (1, good)]}, version=9)
        assert [e.error_code for e in broker.by_partition(reply).values()] == [error, ErrorCode.NONE]
        assert [log.log_end_offset for log in logs] == [0, 20 * (turn + 1)]
        assert broker.by_partition(reply)["t", 0].error_message


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("mode", ["full", "header"])
def test_a_compacted_topic_takes_no_compressed_record_without_a_key(broker: Any, codec: int, mode: str) -> None:
    (log,) = broker.topic("t", cleanup_policy=["compact"], kafkapy_validate_compressed=mode)
    entry = broker.only(broker.produce({"t": [(0, broker.batch(b"a", b"b", key=None, codec=codec))]}, version=9))
    assert entry.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in entry.record_errors] == [0, 1]
    assert log.log_end_offset == 0
    assert broker.only(broker.produce({"t": [(0, broker.batch(b"a", codec=codec))]}, version=9)).error_code == 0


def test_timestamps_of_compressed_records_are_looked_at(broker: Any) -> None:
    now = 1_700_000_000_000
    (log,) = broker.topic("t", timestamp_before_max_ms=1000)
    entry = broker.only(broker.produce({"t": [(0, broker.batch(b"a", timestamp=now, codec=3))]}, version=9))
    assert entry.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in entry.record_errors] == [0]
    assert log.log_end_offset == 0


@pytest.mark.parametrize("codec", CODECS)
def test_the_max_timestamp_of_the_header_is_made_right(broker: Any, codec: int) -> None:
    broker.topic("t")
    wrong = bytearray(broker.batch(b"a", b"b", timestamp=1_700_000_000_000, codec=codec))
    record_batch.stamp_max_timestamp(wrong, 1_800_000_000_000)
    assert broker.only(broker.produce({"t": [(0, bytes(wrong))]}, version=9)).error_code == ErrorCode.NONE
    (found,) = broker.fetch_reply(broker.fetch_exchange([("t", 0, 0)]), 12).responses[0].partitions
    (batch,) = iter_batches(found.records)
    assert batch.max_timestamp == 1_700_000_000_000
    batch.ensure_valid()


def test_the_mode_header_believes_what_can_be(broker: Any) -> None:
    (log,) = broker.topic("t", kafkapy_validate_compressed="header")
    good = broker.batch(b"value", codec=1)
    assert broker.only(broker.produce({"t": [(0, changed(good, count=20))]}, version=9)).error_code == ErrorCode.NONE
    assert log.log_end_offset == 20
    for count in (1_000_000, 2**31 - 1):
        entry = broker.only(broker.produce({"t": [(0, changed(good, count=count))]}, version=9))
        assert entry.error_code == ErrorCode.INVALID_RECORD
    assert log.log_end_offset == 20


# ---- by a worker -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
def test_a_large_batch_is_left_to_a_worker(broker: Any, codec: int) -> None:
    large, small = broker.topic("large", max_message_bytes=1 << 24)[0], broker.topic("small")[0]
    request = broker.produce_request({"large": [(0, large_batch(codec))], "small": [(0, broker.batch())]}, version=9)
    exchange = broker.send(request, 9)
    assert exchange.kind == request_driver.WORKER
    assert (large.log_end_offset, small.log_end_offset) == (0, 1)
    reply = broker.produce_reply(exchange.work(), 9)
    assert {e.error_code for e in broker.by_partition(reply).values()} == {ErrorCode.NONE}
    assert (large.log_end_offset, small.log_end_offset) == (30, 1)
    with pytest.raises(RuntimeError):
        exchange.work()


@pytest.mark.parametrize("codec", CODECS)
def test_a_large_batch_that_lies_is_refused_by_the_worker(broker: Any, codec: int) -> None:
    (log,) = broker.topic("t", max_message_bytes=1 << 24)
    good = large_batch(codec)
    for lie, error in (
        (changed(good, count=31), ErrorCode.INVALID_RECORD),
        (changed(good, payload=good[61:-100]), ErrorCode.CORRUPT_MESSAGE),
    ):
        exchange = broker.send(broker.produce_request({"t": [(0, lie)]}, version=9), 9)
        assert exchange.kind == request_driver.WORKER
        assert broker.only(broker.produce_reply(exchange.work(), 9)).error_code == error
    assert log.log_end_offset == 0


def test_batches_of_one_request_share_the_time_of_the_network_thread(broker: Any) -> None:
    logs = broker.topic("t", 40)
    batch = broker.batch(*[bytes(1000)] * 400, codec=3)  # opens to 400 KB
    request = broker.produce_request({"t": [(i, batch) for i in range(40)]}, version=9)
    exchange = broker.send(request, 9)
    assert exchange.kind == request_driver.WORKER
    at_once = sum(log.log_end_offset == 400 for log in logs)
    assert 1 <= at_once <= 12
    reply = broker.produce_reply(exchange.work(), 9)
    assert {e.error_code for e in broker.by_partition(reply).values()} == {ErrorCode.NONE}
    assert all(log.log_end_offset == 400 for log in logs)


def test_a_cancelled_request_of_a_worker_leaves_no_trace(broker: Any) -> None:
    (log,) = broker.topic("t", max_message_bytes=1 << 24)
    exchange = broker.send(broker.produce_request({"t": [(0, large_batch(4))]}, version=9), 9)
    exchange.cancel()
    assert log.log_end_offset == 0


def test_a_worker_checks_a_batch_once_although_it_waits_for_a_segment(broker: Any) -> None:
    (log,) = broker.topic("t", max_message_bytes=1 << 24, segment_bytes=4 << 20)
    first = broker.send(broker.produce_request({"t": [(0, large_batch(3))]}, version=9), 9)
    assert broker.only(broker.produce_reply(first.work(), 9)).error_code == ErrorCode.NONE
    second = broker.send(broker.produce_request({"t": [(0, large_batch(3))]}, version=9), 9)
    assert second.kind == request_driver.WORKER
    second.work()
    while second.kind == request_driver.PARKED:
        log.prepare_segment()
        second.resume()
    assert broker.only(broker.produce_reply(second, 9)).error_code == ErrorCode.NONE
    assert log.log_end_offset == 60
