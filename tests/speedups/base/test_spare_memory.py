"""Memory of responses is used again, within a bound, and never by two at a time."""

from __future__ import annotations

import gc
import os
import random
import threading

import pytest

from kafkapy._speedups.base import spare_memory
from kafkapy._speedups.clients.consumer.fetch_frame import FetchResponseFrame
from kafkapy.protocol.messages.fetch import FetchResponse
from kafkapy.records.batches import RecordBatchBuilder

BOUND = 64 << 20


@pytest.fixture(autouse=True)
def nothing_kept() -> None:
    gc.collect()
    spare_memory.release()


def held() -> tuple[int, int]:
    now = spare_memory.held()
    assert now is not None
    return now


def frame_with(value: bytes) -> bytes:
    builder = RecordBatchBuilder()
    builder.append(1, None, value)
    partition = FetchResponse.TopicResponse.Partition(partition_index=0, high_watermark=1, records=builder.build())
    response = FetchResponse(responses=[FetchResponse.TopicResponse(topic="t", partitions=[partition])])
    return b"\x00\x00\x00\x01" + response.encode(4)


def record_of(frame: bytes):
    response = FetchResponseFrame(4)
    response.feed(frame)
    (partition,) = response.partitions()
    partition.start("t", 0, False, None, None)
    return partition.take(1)[0]


def test_a_response_lies_where_an_earlier_one_lay() -> None:
    size = 3 << 20
    record = record_of(frame_with(b"a" * size))
    before = held()
    del record
    after = held()
    assert after[0] == before[0] + 1
    assert after[1] >= before[1] + size
    record = record_of(frame_with(b"b" * size))
    assert held() == before
    assert record.value == b"b" * size


def test_what_is_kept_can_be_given_back() -> None:
    record = record_of(frame_with(bytes(1 << 20)))
    del record
    pieces, size = held()
    assert pieces == 1
    assert spare_memory.release() == size
    assert held() == (0, 0)
    assert spare_memory.release() == 0


def test_small_responses_and_too_many_large_ones_are_freed() -> None:
    record = record_of(frame_with(b"x" * 1000))
    before = held()
    del record
    assert held() == before
    records = [record_of(frame_with(bytes(9 << 20))) for _ in range(12)]
    assert len(records) == 12
    records.clear()
    assert 8 << 20 < held()[1] <= BOUND


def test_records_keep_what_they_are_in_while_others_come_and_go() -> None:
    rng = random.Random(1)
    kept = []
    for _ in range(60):
        value = rng.randbytes(rng.choice((300_000, 500_000, 1_000_000)))
        kept.append((record_of(frame_with(value)), value))
        if len(kept) > 6:
            record, expected = kept.pop(rng.randrange(len(kept)))
            assert record.value == expected
    assert all(record.value == expected for record, expected in kept)


def test_threads() -> None:
    wrong = []

    def work(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(40):
            value = bytes([rng.randrange(256)]) * rng.choice((300_000, 700_000))
            if record_of(frame_with(value)).value != value:
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_in_a_forked_child() -> None:
    record = record_of(frame_with(b"c" * (1 << 20)))
    child = os.fork()
    if not child:
        good = record.value == b"c" * (1 << 20)
        del record
        os._exit(0 if good and record_of(frame_with(b"d" * (1 << 20))).value == b"d" * (1 << 20) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
