"""Appenders, readers, rolls, truncations, waiters at once: dense offsets, whole batches, no lost wake-up."""

from __future__ import annotations

import threading
import time
from itertools import chain
from pathlib import Path
from typing import Any

from kafkapy._speedups.records import record_batch
from kafkapy._speedups.testing.group_append import append_group
from kafkapy._speedups.testing.log_waiter import HIGH_WATERMARK, LOG_END, LogWaiter
from kafkapy.errors import KafkaError

SECONDS = 3
# About 200 segments of 5,000 bytes.
MOST_OFFSETS = 8000


def run(workers: list[Any]) -> None:
    failures: list[BaseException] = []

    def guarded(worker: Any) -> None:
        try:
            worker()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(worker,), daemon=True) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        # A flush of all that was written may be what it is in, and a busy disk takes its time.
        thread.join(240)
        assert not thread.is_alive(), "a thread hangs"
    if failures:
        raise failures[0]


def test_concurrent_appends_reads_rolls_and_deletes(logs: Any, batch: Any) -> None:
    log = logs.open(segment_bytes=5000, index_interval_bytes=200, segment_index_bytes=4000, file_delete_delay_ms=0)
    until = time.monotonic() + SECONDS
    taken: list[list[int]] = [[], []]

    def append(which: int) -> Any:
        def work() -> None:
            data = batch(2, value=bytes([which]) * 50)
            while time.monotonic() < until:
                # Each segment is an open file: where the disk is slow to flush, the appenders wait for the deletions.
                if log.log_end_offset - log.log_start_offset > MOST_OFFSETS:
                    time.sleep(0.001)
                    continue
                taken[which].append(log.append_as_leader(data, api_version=9)[0])

        return work

    def read() -> None:
        offset = 0
        while time.monotonic() < until:
            try:
                data = log.read(offset, 2000, isolation=0)[0]
            except KafkaError:
                offset = log.log_start_offset
                continue
            while data:
                status, header = record_batch.parse_header(data)
                if status != record_batch.OK or header["size"] > len(data):
                    break
                assert record_batch.check_crc(data[: header["size"]])
                assert header["base_offset"] <= offset <= header["base_offset"] + 1
                offset = header["base_offset"] + 2
                data = data[header["size"] :]

    def maintain() -> None:
        while time.monotonic() < until:
            log.roll()
            log.seal_segments()
            log.flush()
            log.delete_records(max(log.log_start_offset, log.high_watermark - 400))
            log.delete_segments_below(log.log_start_offset)
            log.segments()
            log.find_timestamp(1000)

    run([append(0), append(1), read, read, maintain])
    assert sorted(taken[0] + taken[1]) == list(range(0, log.log_end_offset, 2))


def test_groups_of_appends_beside_single_ones(logs: Any, batch: Any) -> None:
    """Each is there once, in the order that its thread was told."""
    log = logs.open(segment_bytes=100_000, index_interval_bytes=200)
    until = time.monotonic() + SECONDS
    taken: list[list[int]] = [[] for _ in range(4)]
    together = [0, 0]

    def alone(which: int, number: int) -> int:
        return int(log.append_as_leader(batch(value=b"%d %d" % (which, number)), api_version=9)[0])

    def append(which: int, size: int) -> Any:
        def work() -> None:
            while time.monotonic() < until and log.log_end_offset < MOST_OFFSETS:
                own = taken[which]
                numbers = range(len(own), len(own) + size)
                if size == 1:
                    own.append(alone(which, numbers[0]))
                    continue
                answers = append_group(log, [batch(value=b"%d %d" % (which, number)) for number in numbers])
                for number, (decided, error, base) in zip(numbers, answers, strict=True):
                    assert error == 0
                    together[which] += decided
                    own.append(base if decided else alone(which, number))

        return work

    def read() -> None:
        offset = 0
        while time.monotonic() < until:
            data = log.read(offset, 5000, isolation=0)[0]
            while data:
                status, header = record_batch.parse_header(data)
                if status != record_batch.OK or header["size"] > len(data):
                    break
                assert record_batch.check_crc(data[: header["size"]])
                assert header["base_offset"] == offset
                offset += 1
                data = data[header["size"] :]

    def maintain() -> None:
        while time.monotonic() < until:
            log.roll()
            log.flush()
            time.sleep(0.01)

    run([append(0, 20), append(1, 7), append(2, 1), append(3, 1), read, maintain])
    assert sorted(chain(*taken)) == list(range(log.log_end_offset))
    assert sum(together) > 0
    for which, offsets in enumerate(taken):
        for number, offset in enumerate(offsets):
            assert b"%d %d" % (which, number) in log.read(offset, 1, isolation=0)[0]


def test_no_wake_up_is_lost(logs: Any, batch: Any) -> None:
    # Segments of 250 KB: each is an open file, and the appender writes as many as it can.
    log = logs.open(segment_bytes=250_000)
    until = time.monotonic() + SECONDS
    rounds = [0, 0]

    def wait(which: int, kind: int) -> Any:
        def work() -> None:
            waiter = LogWaiter(log)
            seen = 0
            while time.monotonic() < until:
                end = log.log_end_offset
                if not waiter.wait(kind, end):
                    # The appender goes on until both have stopped, so a wake-up must come.
                    deadline = time.monotonic() + 30
                    while waiter.wakes == seen:
                        assert time.monotonic() < deadline, "never woken"
                        time.sleep(0)
                    seen += 1
                    assert log.log_end_offset > end
                rounds[which] += 1
            done[which].set()
            waiter.remove()

        return work

    done = [threading.Event(), threading.Event()]

    def append() -> None:
        while not all(event.is_set() for event in done):
            log.append_as_leader(batch(), api_version=9)

    run([append, wait(0, HIGH_WATERMARK), wait(1, LOG_END)])
    assert min(rounds) > 10


def test_waiters_are_woken_when_leadership_or_the_log_goes(logs: Any, tmp_path: Path) -> None:
    log = logs.open()
    for end in (lambda: log.become_follower(2, 1), lambda: log.go_offline(5)):
        waiter = LogWaiter(log)
        assert not waiter.wait(HIGH_WATERMARK, 0)
        assert waiter.wakes == 0
        end()
        assert waiter.wakes == 1
        assert waiter.wait(HIGH_WATERMARK, 0), "nothing is waited for on a log that is gone"
        log.become_leader(1, 2, [1])


def test_appends_and_truncations_alternate_safely(logs: Any, batch: Any) -> None:
    log = logs.open(segment_bytes=2000, index_interval_bytes=100)
    until = time.monotonic() + 1

    def append() -> None:
        while time.monotonic() < until:
            log.append_as_leader(batch(2), api_version=9)

    def truncate() -> None:
        while time.monotonic() < until:
            log.truncate_to(max(0, log.log_end_offset - 20))

    def read() -> None:
        while time.monotonic() < until:
            try:
                log.read(max(log.log_start_offset, log.high_watermark - 6), 500, isolation=0)
            except KafkaError as error:
                assert error.code.name in ("OFFSET_OUT_OF_RANGE", "KAFKA_STORAGE_ERROR")

    run([append, append, truncate, read])
    assert log.offline_errno == 0
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, 1)[0]
        assert record_batch.check_crc(data)
        assert int.from_bytes(data[:8], "big") == offset
        offset += 2


def test_the_producer_state_is_that_of_the_log_after_truncations_beside_appends(logs: Any, batch: Any) -> None:
    """Nothing is appended between a cut and the producer state that speaks of it, or batches would be missing there."""
    log = logs.open(segment_bytes=2000, index_interval_bytes=100)
    now = time.time_ns() // 1_000_000
    until = time.monotonic() + 2
    appended = [0, 0]

    def append(which: int) -> None:
        sequence = 0
        while time.monotonic() < until:
            try:
                data = batch(2, producer_id=which + 1, epoch=0, sequence=sequence, timestamp=now)
                log.append_as_leader(data, api_version=9)
                sequence += 2
                appended[which] += 1
            except KafkaError as error:
                assert error.code.name == "OUT_OF_ORDER_SEQUENCE_NUMBER"
                known = [each for each in log.producers() if each["producer_id"] == which + 1]
                sequence = known[0]["last_sequence"] + 1 if known else 0

    def truncate() -> None:
        while time.monotonic() < until:
            log.truncate_to(max(0, log.log_end_offset - 10))

    def look() -> None:
        while time.monotonic() < until:
            log.producers()
            assert log.producer_id_expiration_ms > 0

    run([lambda: append(0), lambda: append(1), truncate, look])
    assert min(appended) > 10
    assert log.offline_errno == 0
    known = log.producers()
    log.reload_producers()
    assert sorted(map(str, known)) == sorted(map(str, log.producers()))
