"""Fetch as a client sees it, in every served version, through the data plane's own code."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import weakref
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kafkapy._speedups.requests.fetch import decode as fetch_decode
from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.fetch import FetchRequest, FetchResponse
from kafkapy.records.control import build_end_transaction_marker

VERSIONS = range(4, 19)
DECODED = range(19)
"""Replies of those below 4 need a worker: tests/broker/test_old_formats.py."""
INT32 = (-(1 << 31), 1 << 31)
INT64 = (-(1 << 63), 1 << 63)


def random_request(source: random.Random, version: int) -> FetchRequest:
    def name() -> str:
        return "".join(source.choice("abcäö.-_") for _ in range(source.randrange(200)))

    request = FetchRequest(
        max_wait_ms=source.randrange(*INT32),
        min_bytes=source.randrange(*INT32),
        max_bytes=source.randrange(*INT32) if version >= 3 else 0x7FFFFFFF,
        isolation_level=source.randrange(2) if version >= 4 else 0,
    )
    if version >= 15:
        request.replica_state = FetchRequest.ReplicaState(
            replica_id=source.choice([-1, 5]), replica_epoch=source.choice([-1, 7])
        )
    else:
        request.replica_id = source.randrange(*INT32)
    if version >= 7:
        request.session_id, request.session_epoch = source.randrange(*INT32), source.randrange(*INT32)
    if version >= 11:
        request.rack_id = name()
    if version >= 12:
        request.cluster_id = source.choice([None, name()])
    for _ in range(source.randrange(4)):
        topic = FetchRequest.Topic()
        for _ in range(source.randrange(4)):
            entry = FetchRequest.Topic.Partition(
                partition=source.randrange(*INT32),
                fetch_offset=source.randrange(*INT64),
                partition_max_bytes=source.randrange(*INT32),
            )
            if version >= 5:
                entry.log_start_offset = source.randrange(*INT64)
            if version >= 9:
                entry.current_leader_epoch = source.randrange(*INT32)
            if version >= 12:
                entry.last_fetched_epoch = source.randrange(*INT32)
            if version >= 17:
                entry.replica_directory_id = UUID(bytes=source.randbytes(16))
            if version >= 18:
                entry.high_watermark = source.randrange(*INT64)
            topic.partitions.append(entry)
        forgotten = FetchRequest.ForgottenTopic(
            partitions=[source.randrange(*INT32) for _ in range(source.randrange(4))]
        )
        if version >= 13:
            topic.topic_id, forgotten.topic_id = UUID(bytes=source.randbytes(16)), UUID(bytes=source.randbytes(16))
        else:
            topic.topic = name()
            forgotten.topic = name() if version >= 7 else ""
        request.topics.append(topic)
        if version >= 7:
            request.forgotten_topics_data.append(forgotten)
    return request


@pytest.mark.parametrize("version", DECODED)
def test_the_decoder_reads_what_the_protocol_layer_writes(version: int) -> None:
    def key(topic: Any) -> bytes:
        return bytes(topic.topic_id.bytes) if version >= 13 else topic.topic.encode()

    source = random.Random(version)
    for _ in range(100):
        request = random_request(source, version)
        assert fetch_decode.decode(version, request.encode(version)) == {
            "replica_id": request.replica_state.replica_id if version >= 15 else request.replica_id,
            "replica_epoch": request.replica_state.replica_epoch if version >= 15 else -1,
            "rack_id": request.rack_id.encode(),
            "max_wait_ms": request.max_wait_ms,
            "min_bytes": request.min_bytes,
            "max_bytes": request.max_bytes if version >= 3 else 0x7FFFFFFF,
            "isolation_level": request.isolation_level,
            "session_id": request.session_id,
            "session_epoch": request.session_epoch,
            "partitions": [
                (
                    key(t),
                    p.partition,
                    p.current_leader_epoch,
                    p.fetch_offset,
                    p.last_fetched_epoch,
                    p.log_start_offset,
                    p.partition_max_bytes,
                )
                for t in request.topics
                for p in t.partitions
            ],
            "forgotten": [(key(t), p) for t in request.forgotten_topics_data for p in t.partitions],
        }


@pytest.mark.parametrize("version", VERSIONS)
def test_records_come_back_as_they_were_appended(broker: Any, version: int) -> None:
    logs = broker.topic("t", 2)
    broker.topic("u")
    for value in (b"one", b"two"):
        logs[0].append_as_leader(broker.batch(value))
    logs[1].append_as_leader(broker.batch(b"three"))
    reply = broker.fetch([("t", 0, 1), ("t", 1, 0), ("u", 0, 0)], version=version)
    entries = list(broker.by_partition(reply).values())
    assert [e.error_code for e in entries] == [0, 0, 0]
    assert [e.high_watermark for e in entries] == [2, 1, 0]
    assert [e.last_stable_offset for e in entries] == [2, 1, 0]
    assert [e.log_start_offset for e in entries] == ([0, 0, 0] if version >= 5 else [-1] * 3)
    assert [e.preferred_read_replica for e in entries] == [-1] * 3
    assert all(e.aborted_transactions is None for e in entries)
    assert [bytes(e.records) for e in entries] == [logs[0].read(1)[0], logs[1].read(0)[0], b""]
    assert b"two" in bytes(entries[0].records)
    assert reply.throttle_time_ms == 0
    assert len(reply.responses) == 2


@pytest.mark.parametrize("version", [-1, 19])
def test_versions_that_are_not_served_close_the_connection(broker: Any, version: int) -> None:
    assert broker.driver.handle(1, version, 1, None, b"").kind == "close"


@pytest.mark.parametrize("version", [4, 12, 13, 18])
def test_nothing_asked_is_answered_at_once(broker: Any, version: int) -> None:
    assert broker.fetch([], version=version, max_wait_ms=10_000).responses == []


# ---- errors ----


@pytest.mark.parametrize("version", [4, 12, 13])
def test_unknown_topics_and_partitions_come_after_what_was_read(broker: Any, version: int) -> None:
    broker.topic("t")
    reply = broker.fetch([("nowhere", 0, 0), ("t", 1, 0), ("t", -1, 0), ("t", 0, 0)], version=version)
    codes = [e.error_code for e in broker.by_partition(reply).values()]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == [0, ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else unknown, unknown, unknown]


@pytest.mark.parametrize("offset", [-1, 3, 1 << 62])
def test_an_offset_out_of_range(broker: Any, offset: int) -> None:
    (log,) = broker.topic("t")
    log.append_as_leader(broker.batch(b"a", b"b"))
    entry = broker.only(broker.fetch([("t", 0, offset)], max_wait_ms=10_000))
    assert entry.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (entry.high_watermark, entry.last_stable_offset, entry.log_start_offset, entry.records) == (-1, -1, -1, b"")


@pytest.mark.parametrize(
    ("epoch", "error"), [(4, 0), (-1, 0), (3, ErrorCode.FENCED_LEADER_EPOCH), (5, ErrorCode.UNKNOWN_LEADER_EPOCH)]
)
def test_the_leader_epoch_is_checked(broker: Any, epoch: int, error: int) -> None:
    (log,) = broker.topic("t")
    log.become_leader(1, 4, (1,))
    entry = broker.only(broker.fetch([("t", 0, 0)], version=16, current_leader_epoch=epoch))
    assert entry.error_code == error
    if error == ErrorCode.FENCED_LEADER_EPOCH:
        assert (entry.current_leader.leader_id, entry.current_leader.leader_epoch) == (1, 4)


def test_a_diverging_epoch_is_answered_at_once(broker: Any) -> None:
    (log,) = broker.topic("t")
    log.append_as_leader(broker.batch(b"a", b"b"))
    log.become_leader(1, 3, (1,))
    log.append_as_leader(broker.batch(b"c"))
    entry = broker.only(broker.fetch([("t", 0, 3)], last_fetched_epoch=0, max_wait_ms=10_000, min_bytes=10_000))
    assert entry.error_code == 0
    assert (entry.diverging_epoch.epoch, entry.diverging_epoch.end_offset) == (0, 2)
    entry = broker.only(broker.fetch([("t", 0, 2)], last_fetched_epoch=0))
    assert entry.diverging_epoch.epoch == -1
    assert b"c" in bytes(entry.records)


@pytest.mark.parametrize("version", [9, 10])
def test_clients_that_do_not_know_zstd(broker: Any, version: int) -> None:
    broker.topic("t", compression_type="zstd")
    entry = broker.only(broker.fetch([("t", 0, 0)], version=version))
    assert entry.error_code == (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE if version == 9 else 0)


def test_an_isolation_level_that_does_not_exist_closes(broker: Any) -> None:
    broker.topic("t")
    assert broker.fetch_exchange([("t", 0, 0)], isolation_level=2).kind == "close"


# ---- limits ----


def fill(broker: Any, log: Any, count: int, size: int = 500) -> int:
    for _ in range(count):
        log.append_as_leader(broker.batch(b"x" * size))
    return len(broker.batch(b"x" * size))


def test_the_first_batch_comes_whole_whatever_the_limits_say(broker: Any) -> None:
    logs = broker.topic("t", 3)
    sizes = [fill(broker, log, 2) for log in logs[1:]]
    for limit in (
        {"max_bytes": 1},
        {"partition_max_bytes": 1},
        {"max_bytes": 0},
        {"partition_max_bytes": 0},
        {"max_bytes": -5},
    ):
        entries = broker.by_partition(broker.fetch([("t", i, 0) for i in range(3)], **limit))
        assert [len(entries["t", i].records) for i in range(3)] == [0, sizes[0], 0]


def test_a_partition_has_its_own_limit(broker: Any) -> None:
    logs = broker.topic("t", 2)
    size = fill(broker, logs[0], 4)
    fill(broker, logs[1], 4)
    entries = broker.by_partition(broker.fetch([("t", 0, 0), ("t", 1, 0)], partition_max_bytes=2 * size + 10))
    assert [len(e.records) for e in entries.values()] == [2 * size + 10] * 2


def test_the_reply_has_a_limit(broker: Any) -> None:
    logs = broker.topic("t", 3)
    size = max(fill(broker, log, 4) for log in logs)
    entries = broker.by_partition(broker.fetch([("t", i, 0) for i in range(3)], max_bytes=5 * size))
    assert [len(e.records) for e in entries.values()] == [4 * size, size, 0]
    entries = broker.by_partition(broker.fetch([("t", i, 0) for i in range(3)], max_bytes=5 * size - 1))
    assert [len(e.records) for e in entries.values()] == [4 * size, 0, 0]


def test_the_brokers_limit_holds_for_all(make_broker: Any) -> None:
    broker = make_broker(fetch_max_bytes=2048)
    (log,) = broker.topic("t")
    fill(broker, log, 20)
    assert len(broker.only(broker.fetch([("t", 0, 0)])).records) == 2048


# ---- waiting ----


def test_a_fetch_waits_for_records(broker: Any) -> None:
    (log,) = broker.topic("t")
    exchange = broker.fetch_exchange([("t", 0, 0)], max_wait_ms=10_000)
    assert exchange.kind == "parked"
    assert exchange.deadline_ns > 0
    assert exchange.resume().kind == "parked"
    log.append_as_leader(broker.batch(b"here"))
    assert exchange.wakes == 1
    assert b"here" in bytes(broker.only(broker.fetch_reply(exchange.resume(), 12)).records)


def test_records_that_come_before_the_timeout_are_answered_by_it(broker: Any) -> None:
    (log,) = broker.topic("t")
    exchange = broker.fetch_exchange([("t", 0, 0)], max_wait_ms=10_000, min_bytes=100_000)
    log.append_as_leader(broker.batch(b"here"))
    assert exchange.resume().kind == "parked"
    assert b"here" in bytes(broker.only(broker.fetch_reply(exchange.resume(timed_out=True), 12)).records)


@pytest.mark.parametrize(
    "fields",
    [
        {"max_wait_ms": 0},
        {"max_wait_ms": -1},
        {"max_wait_ms": 10_000, "min_bytes": 0},
        {"max_wait_ms": 10_000, "min_bytes": -1},
    ],
)
def test_a_fetch_that_does_not_want_to_wait(broker: Any, fields: dict[str, int]) -> None:
    broker.topic("t")
    assert broker.only(broker.fetch([("t", 0, 0)], **fields)).error_code == 0


def test_min_bytes_are_counted_over_all_partitions(broker: Any) -> None:
    logs = broker.topic("t", 2)
    size = len(broker.batch())
    exchange = broker.fetch_exchange([("t", 0, 0), ("t", 1, 0)], max_wait_ms=10_000, min_bytes=2 * size)
    logs[0].append_as_leader(broker.batch())
    assert exchange.resume().kind == "parked"
    logs[1].append_as_leader(broker.batch())
    assert [len(e.records) for e in broker.by_partition(broker.fetch_reply(exchange.resume(), 12)).values()] == [
        size,
        size,
    ]


def test_min_bytes_beyond_max_bytes_do_not_wait_for_ever(broker: Any) -> None:
    (log,) = broker.topic("t")
    size = fill(broker, log, 3)
    assert (
        len(broker.only(broker.fetch([("t", 0, 0)], max_wait_ms=10_000, min_bytes=1 << 30, max_bytes=2 * size)).records)
        == 2 * size
    )


def test_errors_met_while_reading_do_not_wait(broker: Any) -> None:
    logs = broker.topic("t", 2)
    logs[1].become_follower(2, 1)
    reply = broker.fetch([("t", 0, 0), ("t", 1, 0)], version=10, max_wait_ms=10_000)
    codes = [entry.error_code for entry in broker.by_partition(reply).values()]
    assert codes == [0, ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_refused_partitions_do_not_end_the_wait_of_others_unless_all_are(broker: Any) -> None:
    broker.topic("t")
    assert broker.fetch_exchange([("t", 0, 0), ("nowhere", 0, 0)], max_wait_ms=10_000).kind == "parked"
    assert broker.fetch_exchange([("nowhere", 0, 0)], max_wait_ms=10_000).kind == "reply"


def test_deleting_the_records_that_a_fetch_waits_at_ends_the_wait(broker: Any) -> None:
    """It would wait for bytes behind an offset that is not there any more."""
    (log,) = broker.topic("t")
    fill(broker, log, 3)
    at_start, behind = (
        broker.fetch_exchange([("t", 0, offset)], max_wait_ms=10_000, min_bytes=100_000) for offset in (0, 2)
    )
    assert (at_start.kind, behind.kind) == ("parked", "parked")
    log.delete_records(2)
    assert behind.resume().kind == "parked"
    broker.correlation_id -= 1
    entry = broker.only(broker.fetch_reply(at_start.resume(), 12))
    assert (entry.error_code, bytes(entry.records)) == (ErrorCode.OFFSET_OUT_OF_RANGE, b"")


@pytest.mark.parametrize("version", [10, 11, 18])
def test_losing_leadership_ends_the_wait(broker: Any, version: int) -> None:
    (log,) = broker.topic("t")
    exchange = broker.fetch_exchange([("t", 0, 0)], version=version, max_wait_ms=10_000)
    log.become_follower(2, 1)
    assert exchange.wakes == 1
    entry = broker.only(broker.fetch_reply(exchange.resume(), version))
    # A newer client may go on here (KIP-392).
    assert entry.error_code == (ErrorCode.NOT_LEADER_OR_FOLLOWER if version < 11 else 0)
    assert not entry.records


def test_a_new_leader_epoch_ends_the_wait_of_those_who_check_it(broker: Any) -> None:
    (log,) = broker.topic("t")
    exchange = broker.fetch_exchange([("t", 0, 0)], max_wait_ms=10_000, current_leader_epoch=0)
    log.become_leader(1, 1, (1,))
    assert broker.only(broker.fetch_reply(exchange.resume(), 12)).error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_a_cancelled_fetch_leaves_nothing_behind(broker: Any) -> None:
    (log,) = broker.topic("t")
    exchange = broker.fetch_exchange([("t", 0, 0)], max_wait_ms=10_000)
    exchange.cancel()
    log.append_as_leader(broker.batch())
    assert exchange.wakes == 0
    gone = weakref.ref(log)
    broker.table.remove_topic("t")
    del log
    gc.collect()
    assert gone() is None


def test_the_high_watermark_bounds_consumers(broker: Any) -> None:
    (log,) = broker.topic("t", isr=(1, 2))
    log.append_as_leader(broker.batch(b"a"))
    exchange = broker.fetch_exchange([("t", 0, 0)], max_wait_ms=10_000)
    assert exchange.kind == "parked"
    log.follower_position(2, 1)
    assert exchange.wakes == 1
    entry = broker.only(broker.fetch_reply(exchange.resume(), 12))
    assert (entry.high_watermark, len(entry.records)) == (1, len(broker.batch(b"a")))


def test_read_committed_stops_at_an_open_transaction(broker: Any) -> None:
    (log,) = broker.topic("t")
    log.append_as_leader(broker.batch(b"a"))
    log.append_as_leader(broker.batch(b"b", producer_id=9, producer_epoch=0, base_sequence=0, transactional=True))
    entry = broker.only(broker.fetch([("t", 0, 0)], isolation_level=1))
    assert (entry.last_stable_offset, entry.high_watermark, entry.aborted_transactions) == (1, 2, [])
    assert len(entry.records) == len(broker.batch(b"a"))
    assert len(broker.only(broker.fetch([("t", 0, 0)])).records) > len(broker.batch(b"a"))
    assert broker.fetch_exchange([("t", 0, 1)], isolation_level=1, max_wait_ms=10_000).kind == "parked"


@pytest.mark.parametrize("version", VERSIONS)
def test_aborted_transactions_are_listed_for_read_committed(broker: Any, version: int) -> None:
    (log,) = broker.topic("t")
    log.append_as_leader(broker.batch(b"b", producer_id=9, producer_epoch=0, base_sequence=0, transactional=True))
    exchange = broker.fetch_exchange([("t", 0, 0)], version=version, isolation_level=1, max_wait_ms=10_000)
    assert exchange.kind == "parked"
    log.append_as_leader(build_end_transaction_marker(9, 0, committed=False, coordinator_epoch=0, timestamp_ms=1))
    assert exchange.wakes == 1
    entry = broker.only(broker.fetch_reply(exchange.resume(), version))
    assert [(t.producer_id, t.first_offset) for t in entry.aborted_transactions] == [(9, 0)]
    assert entry.last_stable_offset == 2


# ---- followers ----


@pytest.mark.parametrize("version", [4, 14, 15, 18])
def test_a_follower_reads_to_the_log_end_and_moves_the_high_watermark(broker: Any, version: int) -> None:
    (log,) = broker.topic("t", isr=(1, 2))
    log.append_as_leader(broker.batch(b"a"))
    entry = broker.only(broker.fetch([("t", 0, 0)], version=version, replica_id=2))
    assert (entry.high_watermark, len(entry.records)) == (0, len(broker.batch(b"a")))
    exchange = broker.fetch_exchange([("t", 0, 1)], version=version, replica_id=2, max_wait_ms=10_000)
    assert exchange.kind == "parked"
    assert log.high_watermark == 1
    log.append_as_leader(broker.batch(b"b"))
    assert exchange.wakes == 1
    assert len(broker.only(broker.fetch_reply(exchange.resume(), version)).records) == len(broker.batch(b"b"))


def test_a_follower_needs_cluster_action(broker: Any) -> None:
    broker.topic("t", isr=(1, 2))
    broker.plane.authorizer_epoch = 1
    exchange = broker.fetch_exchange([("t", 0, 0), ("nowhere", 0, 0)], replica_id=2)
    assert exchange.questions == [b"\x09\x00cluster"]
    broker.driver.decide({b"\x09\x00cluster": False})
    codes = [e.error_code for e in broker.by_partition(broker.fetch_reply(exchange.resume(), 12)).values()]
    assert codes == [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 2
    broker.driver.decide({b"\x09\x00cluster": True})
    assert broker.only(broker.fetch([("t", 0, 0)], replica_id=2)).error_code == 0


def test_unauthorized_topics_are_refused_whether_they_exist_or_not(broker: Any) -> None:
    broker.topic("open")
    broker.topic("secret")
    broker.plane.authorizer_epoch = 1
    exchange = broker.fetch_exchange([("open", 0, 0), ("secret", 0, 0), ("nowhere", 0, 0), ("secret", 1, 0)])
    assert exchange.questions == [b"\x03open", b"\x03secret", b"\x03nowhere"]
    broker.driver.decide({b"\x03open": True, b"\x03secret": False, b"\x03nowhere": False})
    codes = {key: e.error_code for key, e in broker.by_partition(broker.fetch_reply(exchange.resume(), 12)).items()}
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert codes == {("open", 0): 0, ("secret", 0): denied, ("nowhere", 0): denied, ("secret", 1): denied}


# ---- segments ----


def test_data_on_an_older_segment_is_answered_at_once(broker: Any) -> None:
    (log,) = broker.topic("t")
    log.append_as_leader(broker.batch(b"old"))
    log.prepare_segment()
    log.roll()
    log.append_as_leader(broker.batch(b"new"))
    entry = broker.only(broker.fetch([("t", 0, 0)], max_wait_ms=10_000, min_bytes=10_000))
    assert b"old" in bytes(entry.records)
    assert broker.fetch_exchange([("t", 0, 1)], max_wait_ms=10_000, min_bytes=10_000).kind == "parked"


# ---- message sets ----


def spoil_memory(name: str) -> None:
    """Cuts the files of a log in memory to nothing."""
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if str(entry.readlink()).startswith(f"/memfd:kafkapy:{name} "):
                os.truncate(entry, 0)


@pytest.mark.parametrize("version", range(4))
def test_a_segment_that_cannot_be_read_for_a_worker_is_one_partitions_trouble(broker: Any, version: int) -> None:
    """The records were there when the request was counted, and are not when the worker reads them."""
    bad, good = broker.topic("t", 2)
    for log in (bad, good):
        log.append_as_leader(broker.batch())
    exchange = broker.fetch_exchange([("t", 0, 0), ("t", 1, 0)], version=version)
    assert exchange.asks_conversion
    spoil_memory("t-0")
    with pytest.raises(OSError, match="cannot be read"):
        exchange.records_to_convert(0)
    exchange.refuse_conversion(0, ErrorCode.KAFKA_STORAGE_ERROR)
    _, data = exchange.records_to_convert(1)
    exchange.give_message_set(1, b"message set", 1)
    with pytest.raises(KeyError):
        exchange.give_message_set(0, b"too late", 1)
    found = broker.by_partition(broker.fetch_reply(exchange.resume(), version))
    # Clients of these versions do not know KAFKA_STORAGE_ERROR.
    assert (found["t", 0].error_code, found["t", 0].records) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, b"")
    assert (found["t", 1].error_code, bytes(found["t", 1].records)) == (0, b"message set")
    assert len(data) == good.size


@pytest.mark.parametrize("isolation_level", (0, 1))
def test_nothing_is_visible_before_it_is_flushed(broker: Any, isolation_level: int) -> None:
    """flush.messages: Kafka syncs in the append, before the high watermark moves. Followers read to the log end."""
    (log,) = broker.topic("t", flush_messages=2)

    def produce() -> Any:
        return broker.send(broker.produce_request({"t": [(0, broker.batch())]}, version=9), 9)

    def fetch() -> Any:
        return broker.only(broker.fetch([("t", 0, 0)], isolation_level=isolation_level))

    assert produce().kind == "reply"
    assert (fetch().high_watermark, len(fetch().records)) == (1, len(broker.batch()))
    waiting = broker.fetch_exchange([("t", 0, 1)], max_wait_ms=60_000, isolation_level=isolation_level)
    second = produce()
    assert (second.kind, waiting.kind) == ("parked", "parked")
    third = produce()
    assert third.kind == "parked"
    seen = fetch()
    assert (seen.high_watermark, seen.last_stable_offset, len(seen.records)) == (1, 1, len(broker.batch()))
    assert waiting.wakes == 0
    assert log.offsets()[1:4] == (3, 1, 1)
    assert len(log.read(0)[0]) == 3 * len(broker.batch())
    log.flush_due()
    assert (second.wakes, third.wakes, waiting.wakes) == (1, 1, 1)
    reply = waiting.resume().reply
    assert reply is not None
    assert len(broker.only(FetchResponse.decode(reply[9:], 12)).records) == 2 * len(broker.batch())
    assert log.offsets()[1:4] == (3, 3, 3)
    for exchange in (second, third):
        exchange.resume()
    assert produce().kind == "reply"
    assert fetch().high_watermark == 4


def test_a_coordinators_append_is_visible_when_it_returns(broker: Any) -> None:
    (log,) = broker.topic("t", flush_messages=1)
    log.append_as_leader(broker.batch())
    assert log.offsets()[1:4] == (1, 1, 1)


def test_acks_all_with_followers_waits_for_the_flush_too(broker: Any) -> None:
    (log,) = broker.topic("t", flush_messages=1, isr=(1, 2))
    exchange = broker.send(broker.produce_request({"t": [(0, broker.batch())]}, version=9, acks=-1), 9)
    log.follower_position(2, 1)
    assert exchange.kind == "parked"
    assert exchange.resume().kind == "parked"
    assert log.high_watermark == 0
    log.flush_due()
    assert log.high_watermark == 1
    assert broker.only(broker.produce_reply(exchange.resume(), 9)).error_code == 0
