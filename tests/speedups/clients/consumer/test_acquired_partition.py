"""Acquired records of a ShareFetch response, read in C: against a plain model, in ranges of all kinds, and hostile."""

from __future__ import annotations

import random
import time
from typing import Any
from uuid import UUID

import pytest
from clients.consumer.fetched import batch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkapy._speedups.clients.arrow.columns import ArrowColumns
from kafkapy._speedups.clients.consumer.acquired_partition import AcquiredColumns, AcquiredPartition
from kafkapy._speedups.clients.consumer.consumer_record import ConsumerRecord
from kafkapy._speedups.clients.consumer.share_fetch_frame import ShareFetchResponseFrame
from kafkapy.errors import CorruptMessageError, IllegalStateError, KafkaError, KafkaProtocolError
from kafkapy.protocol.messages.share_fetch import ShareFetchResponse
from kafkapy.records.batches import RecordBatchBuilder

Topic = ShareFetchResponse.TopicResponse
Partition = Topic.Partition
ID = UUID(int=77)
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)


def encoded(version: int, *partitions: Any, **fields: Any) -> bytes:
    response = ShareFetchResponse(responses=[Topic(topic_id=ID, partitions=list(partitions))], **fields)
    return b"\x00\x00\x00\x07\x00" + response.encode(version)


def part(records: bytes, acquired: list[tuple[int, int, int]], **fields: Any) -> Any:
    ranges = [
        Partition.AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
        for first, last, count in acquired
    ]
    fields.setdefault("current_leader", Partition.LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1))
    return Partition(partition_index=3, records=records, acquired_records=ranges, **fields)


def read(frame: bytes, version: int = 2) -> list[AcquiredPartition]:
    response = ShareFetchResponseFrame(version)
    response.feed(frame)
    return response.partitions()


def chunk(records: bytes, *acquired: tuple[int, int, int], explicit: bool = False) -> AcquiredPartition:
    [found] = read(encoded(2, part(records, list(acquired))))
    found.explicit = explicit
    found.start("t", found.first_offset, False, None, None)
    return found


def places(records: list[ConsumerRecord]) -> list[tuple[int, int | None]]:
    return [(record.offset, record.delivery_count) for record in records]


# --- the response -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2])
def test_every_field_of_a_response(version: int) -> None:
    frame = encoded(
        version,
        part(
            batch(5, 2),
            [(5, 6, 3)],
            error_code=6,
            error_message="moved",
            acknowledge_error_code=121,
            acknowledge_error_message="state",
            current_leader=Partition.LeaderIdAndEpoch(leader_id=4, leader_epoch=9),
        ),
        part(b"", []),
        throttle_time_ms=12,
        error_code=0,
        error_message="all",
        acquisition_lock_timeout_ms=15_000,
        node_endpoints=[ShareFetchResponse.NodeEndpoint(node_id=4, host="h", port=92, rack=None)],
    )
    response = ShareFetchResponseFrame(version)
    response.feed(frame)
    first, second = response.partitions()
    assert (response.throttle_ms, response.lock_timeout_ms, response.error_message) == (12, 15_000, "all")
    assert response.node_endpoints == [(4, "h", 92, None)]
    assert (first.topic_id, first.partition, first.error_code, first.error_message) == (ID, 3, 6, "moved")
    assert (first.acknowledge_error_code, first.acknowledge_error_message) == (121, "state")
    assert first.current_leader == (4, 9)
    assert first.acquired == [(5, 6, 3)]
    assert (first.waiting, first.held, first.unsent, first.settled) == (2, 0, 0, False)
    assert (second.acquired, second.current_leader, second.settled, second.first_offset) == ([], None, True, -1)
    with pytest.raises(KafkaProtocolError, match="handed out once"):
        response.partitions()


def test_partitions_of_many_topics_know_theirs() -> None:
    ids = [UUID(int=1), UUID(int=2), UUID(int=1)]
    topics = [
        Topic(topic_id=each, partitions=[part(b"", []), part(b"", [(number, number, 1)])])
        for number, each in enumerate(ids)
    ]
    frame = b"\x00\x00\x00\x07\x00" + ShareFetchResponse(responses=topics, error_code=42).encode(2)
    response = ShareFetchResponseFrame(2)
    response.feed(frame)
    found = response.partitions()
    assert [each.topic_id for each in found] == [each for each in ids for _ in range(2)]
    assert [each.first_offset for each in found] == [-1, 0, -1, 1, -1, 2]
    assert (response.error_code, response.error_message, response.node_endpoints) == (42, None, [])
    for each in found:
        assert (each.error_code, each.error_message) == (0, None)
        assert (each.acknowledge_error_code, each.acknowledge_error_message) == (0, None)
    empty = ShareFetchResponseFrame(2)
    empty.feed(encoded(2, part(b"", [], error_message="", acknowledge_error_message=""), error_message=""))
    (each,) = empty.partitions()
    assert (empty.error_message, each.error_message, each.acknowledge_error_message) == ("", "", "")


@pytest.mark.parametrize("checks", [True, False])
def test_crcs_are_checked_where_they_are_asked_for(checks: bool) -> None:
    response = ShareFetchResponseFrame(2, checks)
    response.feed(encoded(2, part(damaged(batch(0, 1)), [(0, 0, 1)])))
    (found,) = response.partitions()
    found.start("t", 0, False, None, None)
    with pytest.raises(CorruptMessageError, match="its CRC is wrong" if checks else "its records do not add up"):
        found.take(1)


def test_the_memory_of_opened_batches_is_for_all_partitions() -> None:
    builder = RecordBatchBuilder(base_offset=0)
    builder.append(1, None, bytes(1000))
    plain, compressed = len(builder.build(0)) - 61, builder.build(1)
    for budget, opened in ((0, (0, 0)), (plain, (plain, 0)), (2 * plain - 1, (plain, 0)), (2 * plain, (plain, plain))):
        response = ShareFetchResponseFrame(2, True, budget)
        response.feed(encoded(2, part(compressed, [(0, 0, 1)]), part(compressed, [(0, 0, 1)])))
        found = response.partitions()
        assert tuple(each.bytes - len(compressed) for each in found) == opened
        for each in found:
            each.start("t", 0, False, None, None)
            assert places(each.take(2)) == [(0, 1)]


@pytest.mark.parametrize("version", [0, 3])
def test_other_versions(version: int) -> None:
    with pytest.raises(ValueError, match="between 1 and 2"):
        ShareFetchResponseFrame(version)


@pytest.mark.parametrize(
    "acquired",
    [
        [(5, 4, 1)],
        [(-1, 4, 1)],
        [(0, 4, 1), (4, 9, 1)],
        [(5, 9, 1), (0, 4, 1)],
        [(0, 1 << 24, 1)],
        [(0, (1 << 63) - 1, 1)],
        [(0, 1 << 23, 1), ((1 << 23) + 1, 1 << 24, 1)],
    ],
)
def test_ranges_that_no_broker_sends(acquired: list[tuple[int, int, int]]) -> None:
    with pytest.raises(KafkaProtocolError, match="cannot be decoded"):
        read(encoded(2, part(batch(0, 3), acquired)))


def test_the_bound_of_acquired_offsets_holds_for_the_whole_response() -> None:
    half = 1 << 23
    read(encoded(2, part(b"", [(0, half - 1, 1)]), part(b"", [(0, half - 1, 1)])))
    with pytest.raises(KafkaProtocolError, match="cannot be decoded"):
        read(encoded(2, part(b"", [(0, half - 1, 1)]), part(b"", [(0, half, 1)])))


def test_cut_responses() -> None:
    frame = encoded(2, part(batch(0, 3), [(0, 2, 1)]), error_message="x")
    for size in range(4, len(frame)):
        response = ShareFetchResponseFrame(2)
        response.feed(frame[:size])
        with pytest.raises(KafkaProtocolError):
            response.partitions()


def test_damaged_responses() -> None:
    frame = encoded(2, part(batch(0, 3) + batch(3, 4), [(0, 1, 1), (3, 6, 2)]), part(batch(9, 1), [(9, 9, 1)]))
    chance = random.Random(932)
    for _ in range(3000):
        damaged = bytearray(frame)
        for _ in range(chance.randrange(1, 4)):
            damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        try:
            found = read(bytes(damaged))
        except (KafkaError, ValueError):
            continue
        for each in found:
            if each.first_offset >= 0:
                each.start("t", each.first_offset, False, None, None)
                _use(each, chance)


def _use(each: AcquiredPartition, chance: random.Random) -> None:
    """Everything that may be done with a chunk, however strange its bytes are."""
    total = each.waiting
    columns = AcquiredColumns(ArrowColumns(("offset", "value")))
    for _ in range(40):
        try:
            kind = chance.randrange(3)
            if kind == 0 and each.next() is None:
                break
            if kind == 1 and not each.take(2):
                break
            if kind == 2 and not columns.append(each, 2):
                break
        except (KafkaError, MemoryError):
            each.error_seen()
        assert each.waiting + each.held + each.unsent <= total
    each.release_waiting()
    each.user_polls()
    each.collect()
    assert each.settled


# --- reading ----------------------------------------------------------------------------------------------------------


def test_only_acquired_records_are_read() -> None:
    found = chunk(batch(10, 5) + batch(15, 5), (11, 12, 1), (14, 16, 2), (19, 19, 5))
    assert places(found.take(3)) == [(11, 1), (12, 1), (14, 2)]
    assert places(found.take(100)) == [(15, 2), (16, 2), (19, 5)]
    assert found.take(1) == []
    assert (found.waiting, found.held, found.unsent) == (0, 6, 0)
    found.accept_held()
    assert found.collect() == [(11, 12, b"\1"), (14, 16, b"\1"), (19, 19, b"\1")]
    assert found.settled


def test_a_chunk_is_settled_when_nothing_of_it_is_open() -> None:
    found = chunk(batch(0, 2), (0, 1, 1), explicit=True)
    assert (found.node_id, found.committable) == (-1, True)
    # What only a response to Fetch says is unknown.
    assert (found.high_watermark, found.last_stable_offset, found.log_start_offset) == (-1, -1, -1)
    assert (found.preferred_read_replica, found.current_leader, found.error_code) == (-1, None, 0)
    assert (found.diverging_epoch, found.snapshot_id) == (None, None)
    seen = [(found.waiting, found.held, found.unsent, found.renewing, found.settled)]
    assert len(found.take(2)) == 2
    seen.append((found.waiting, found.held, found.unsent, found.renewing, found.settled))
    assert found.acknowledge(0, ACCEPT)
    assert found.acknowledge(1, RENEW)
    seen.append((found.waiting, found.held, found.unsent, found.renewing, found.settled))
    found.user_polls()
    sent = found.collect()
    seen.append((found.waiting, found.held, found.unsent, found.renewing, found.settled))
    assert found.renewed(sent, True) == [1]
    assert found.acknowledge(1, ACCEPT)
    found.user_polls()
    seen.append((found.waiting, found.held, found.unsent, found.renewing, found.settled))
    found.collect()
    seen.append((found.waiting, found.held, found.unsent, found.renewing, found.settled))
    assert seen == [
        (2, 0, 0, 0, False),
        (0, 2, 0, 0, False),
        (0, 0, 2, 0, False),
        (0, 0, 0, 1, False),
        (0, 0, 1, 0, False),
        (0, 0, 0, 0, True),
    ]


@pytest.mark.parametrize("kind", [ACCEPT, RELEASE, REJECT, RENEW])
def test_an_outcome_may_be_changed_until_it_is_sent(kind: int) -> None:
    found = chunk(batch(0, 2), (0, 1, 1), explicit=True)
    found.take(2)
    for first in (ACCEPT, RENEW, kind):
        assert found.acknowledge(0, first)
    assert found.acknowledge(1, kind)
    assert (found.held, found.unsent) == (0, 2)
    found.user_polls()
    assert found.collect() == [(0, 1, bytes([kind]))]
    assert not found.acknowledge(0, ACCEPT)


@pytest.mark.parametrize("count", [9, 10, 11, 12])
def test_ten_equal_outcomes_share_a_batch_with_others(count: int) -> None:
    found = chunk(batch(0, count + 1), (0, count, 1), explicit=True)
    assert len(found.take(count + 1)) == count + 1
    for offset in range(count):
        found.acknowledge(offset, ACCEPT)
    found.acknowledge(count, REJECT)
    together = [(0, count, b"\1" * count + b"\3")]
    assert found.collect() == (together if count <= 10 else [(0, count - 1, b"\1"), (count, count, b"\3")])


def test_neighbouring_ranges_are_acknowledged_together() -> None:
    found = chunk(batch(0, 6), (0, 2, 1), (3, 5, 4))
    assert len(found.take(6)) == 6
    found.accept_held()
    assert found.collect() == [(0, 5, b"\1")]


def test_the_next_record_accepts_the_one_before() -> None:
    found = chunk(batch(0, 3), (0, 2, 1))
    assert found.next().offset == 0  # type: ignore[union-attr]
    assert found.collect() == []
    assert found.next().offset == 1  # type: ignore[union-attr]
    assert found.collect() == [(0, 0, b"\1")]
    assert found.next().offset == 2  # type: ignore[union-attr]
    assert found.next() is None
    assert found.collect() == [(1, 2, b"\1")]
    assert found.settled


def test_only_records_that_the_user_has_are_acknowledged() -> None:
    found = chunk(batch(0, 2) + batch(4, 1), (0, 5, 1), (8, 8, 1), explicit=True)
    assert len(found.take(2)) == 2
    assert [found.acknowledge(offset, ACCEPT) for offset in range(-1, 10)] == [False, True, True] + [False] * 8
    assert len(found.take(10)) == 1
    assert [found.acknowledge(offset, REJECT) for offset in range(-1, 10)] == [
        False, True, True, False, False, True, False, False, False, False, False
    ]  # fmt: skip
    assert found.collect() == [(0, 5, bytes([3, 3, 0, 0, 3, 0])), (8, 8, b"\0")]


def test_explicit_records_must_be_acknowledged() -> None:
    found = chunk(batch(0, 3), (0, 2, 1), explicit=True)
    assert found.next().offset == 0  # type: ignore[union-attr]
    with pytest.raises(IllegalStateError, match="All records must be acknowledged"):
        found.next()
    assert found.acknowledge(0, REJECT)
    assert not found.acknowledge(1, ACCEPT)
    assert not found.acknowledge(7, ACCEPT)
    assert not found.committable
    assert found.next().offset == 1  # type: ignore[union-attr]
    assert found.committable
    assert found.acknowledge(1, RELEASE)
    assert found.acknowledge(1, ACCEPT)
    assert found.collect() == [(0, 1, b"\3\1")]
    assert not found.acknowledge(1, ACCEPT)


def test_long_runs_of_one_type_get_their_own_batch() -> None:
    found = chunk(batch(0, 60), (0, 59, 1), explicit=True)
    assert len(found.take(60)) == 60
    for offset in range(60):
        found.acknowledge(offset, ACCEPT if offset < 20 else (ACCEPT, RELEASE)[offset % 2] if offset < 30 else REJECT)
    assert found.collect() == [
        (0, 20, b"\1"),
        (21, 29, bytes((ACCEPT, RELEASE)[offset % 2] for offset in range(21, 30))),
        (30, 59, b"\3"),
    ]


def test_offsets_without_records_are_gaps() -> None:
    found = chunk(batch(0, 2) + batch(4, 1) + batch(8, 1), (0, 5, 1), (7, 9, 1))
    assert places(found.take(10)) == [(0, 1), (1, 1), (4, 1), (8, 1)]
    found.accept_held()
    assert found.collect() == [(0, 5, bytes([1, 1, 0, 0, 1, 0])), (7, 9, bytes([0, 1, 0]))]


def test_no_records_at_all() -> None:
    found = chunk(b"", (4, 6, 1))
    assert found.next() is None
    assert found.collect() == [(4, 6, b"\0")]
    assert found.settled


def damaged(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def test_a_damaged_batch_is_rejected_once() -> None:
    found = chunk(batch(0, 2) + damaged(batch(2, 3)) + batch(5, 2), (0, 3, 1), (5, 6, 1))
    assert places(found.take(10)) == [(0, 1), (1, 1)]
    for _ in range(2):
        with pytest.raises(CorruptMessageError):
            found.take(10)
    found.error_seen()
    assert places(found.take(10)) == [(5, 1), (6, 1)]
    found.accept_held()
    assert found.collect() == [(0, 3, bytes([1, 1, 3, 3])), (5, 6, b"\1")]


def test_a_damaged_batch_while_iterating() -> None:
    found = chunk(damaged(batch(0, 2)) + batch(2, 1), (0, 2, 1))
    with pytest.raises(CorruptMessageError):
        found.next()
    assert found.next().offset == 2  # type: ignore[union-attr]
    assert found.next() is None
    assert found.collect() == [(0, 2, bytes([3, 3, 1]))]


def test_the_outcome_of_a_rejected_record_may_be_changed() -> None:
    found = chunk(damaged(batch(0, 2)), (0, 1, 1), explicit=True)
    with pytest.raises(CorruptMessageError):
        found.take(1)
    assert found.acknowledge(0, RELEASE)
    found.user_polls()
    assert found.collect() == [(0, 1, bytes([2, 3]))]


def test_what_cannot_be_found_behind_a_broken_batch_is_released() -> None:
    found = chunk(batch(0, 2) + b"\x00" * 40, (0, 3, 1))
    assert len(found.take(2)) == 2
    with pytest.raises(KafkaError):
        found.take(1)
    found.accept_held()
    found.error_seen()
    assert found.take(1) == []
    assert found.collect() == [(0, 3, bytes([1, 1, 2, 2]))]


def test_unread_records_are_dropped_after_their_lock() -> None:
    found = chunk(batch(0, 4), (0, 3, 1))
    assert len(found.take(1)) == 1
    found.locked_until = time.monotonic() - 1
    assert found.take(10) == []
    assert found.next() is None
    assert found.collect() == [(0, 0, b"\1")]
    assert found.settled


def test_unread_records_are_released() -> None:
    found = chunk(batch(0, 4), (0, 3, 1))
    assert len(found.take(1)) == 1
    found.release_waiting()
    assert found.next() is None
    assert found.collect() == [(0, 3, bytes([1, 2, 2, 2]))]


def test_renewals() -> None:
    found = chunk(batch(0, 4), (0, 3, 1), explicit=True)
    assert len(found.take(4)) == 4
    for offset, kind in enumerate([RENEW, ACCEPT, RENEW, RENEW]):
        assert found.acknowledge(offset, kind)
    found.user_polls()
    batches = found.collect()
    assert batches == [(0, 3, bytes([4, 1, 4, 4]))]
    assert (found.renewing, found.settled) == (3, False)
    assert not found.acknowledge(0, ACCEPT)
    assert found.renewed([(0, 0, b"\4")], False) == [0]
    assert found.renewed(batches, True) == [2, 3]
    assert (found.renewing, found.held) == (0, 2)
    assert found.acknowledge(2, ACCEPT)
    assert found.acknowledge(3, RENEW)
    found.user_polls()
    assert found.collect() == [(2, 3, bytes([1, 4]))]
    assert found.renewed([(3, 3, b"\4")], True) == [3]
    assert found.acknowledge(3, ACCEPT)
    found.user_polls()
    assert found.collect() == [(3, 3, b"\1")]
    assert found.settled


# --- columns ----------------------------------------------------------------------------------------------------------


def columns_of(found: AcquiredPartition, *limits: int) -> tuple[list[int], list[tuple[int, int]]]:
    inner = ArrowColumns(("offset",))
    columns = AcquiredColumns(inner)
    rows = [columns.append(found, limit) for limit in limits]
    offsets: list[int] = []
    for count, buffers in inner.finish():
        offsets += memoryview(buffers["offset"]).cast("B").cast("q")[:count].tolist()
    assert len(offsets) == sum(rows)
    return offsets, columns.counts


def test_acquired_records_as_columns() -> None:
    found = chunk(batch(0, 2) + batch(4, 3) + batch(9, 1), (0, 4, 1), (6, 7, 2), (9, 10, 1))
    assert columns_of(found, 2, 1, 10, 10) == ([0, 1, 4, 6, 9], [(2, 1), (1, 1), (1, 2), (1, 1)])
    found.accept_held()
    assert found.collect() == [
        (0, 4, bytes([1, 1, 0, 0, 1])),
        (6, 7, bytes([1, 0])),
        (9, 10, bytes([1, 0])),
    ]
    assert found.settled


def test_columns_before_a_damaged_batch() -> None:
    found = chunk(batch(0, 2) + damaged(batch(2, 2)) + batch(4, 1), (0, 4, 1))
    inner = ArrowColumns(("offset",))
    columns = AcquiredColumns(inner)
    assert columns.append(found, 10) == 2
    with pytest.raises(CorruptMessageError):
        columns.append(found, 10)
    found.error_seen()
    assert columns.append(found, 10) == 1
    found.accept_held()
    assert found.collect() == [(0, 4, bytes([1, 1, 3, 3, 1]))]


def test_columns_know_the_memory_of_the_rows_they_begin_with() -> None:
    inner = ArrowColumns(("offset", "value"))
    first = AcquiredColumns(inner)
    assert (first.bytes, first.counts) == (inner.bytes, [])
    assert first.append(chunk(batch(0, 3), (0, 2, 1)), 10) == 3
    assert first.bytes == inner.bytes > 0
    second = AcquiredColumns(inner)
    assert (second.bytes, second.counts) == (inner.bytes, [])
    found = chunk(batch(3, 2), (3, 4, 2))
    assert second.append(found, 10, False, 1 << 62, inner.bytes) == 0  # they are full
    assert (found.waiting, found.held, second.counts) == (2, 0, [])
    assert second.append(found, 10, False, 1 << 62, inner.bytes + 1) == 2
    assert (found.waiting, found.held, second.counts) == (0, 2, [(2, 2)])


def test_columns_raise_an_error_until_it_is_seen_and_drop_what_has_expired() -> None:
    found = chunk(damaged(batch(0, 2)) + batch(2, 2), (0, 3, 1))
    columns = AcquiredColumns(ArrowColumns(("offset",)))
    for _ in range(2):
        with pytest.raises(CorruptMessageError):
            columns.append(found, 10)
    found.error_seen()
    found.locked_until = time.monotonic() - 1
    assert columns.append(found, 10) == 0
    assert (found.waiting, found.held, columns.counts) == (0, 0, [])
    assert found.collect() == [(0, 1, bytes([REJECT]))]
    assert found.settled


def test_columns_take_only_chunks_of_acquired_records() -> None:
    with pytest.raises(TypeError):
        AcquiredColumns(None)  # type: ignore[arg-type]


# --- against a model --------------------------------------------------------------------------------------------------


@pytest.mark.timeout(1800)
@settings(
    max_examples=400,
    deadline=None,
    suppress_health_check=[HealthCheck.large_base_example, HealthCheck.data_too_large, HealthCheck.too_slow],
)
@given(st.data())
def test_any_use_against_a_model(data: st.DataObject) -> None:
    """Batches with holes, any ranges, and any order of reads, acknowledgements and collections."""
    offsets: list[int] = []
    records = b""
    base = data.draw(st.integers(0, 5))
    for _ in range(data.draw(st.integers(1, 5))):
        count = data.draw(st.integers(1, 4))
        records += batch(base, count)
        offsets += range(base, base + count)
        base += count + data.draw(st.integers(0, 3))
    acquired: list[tuple[int, int, int]] = []
    at = data.draw(st.integers(0, 3))
    while at < base + 2:
        size = data.draw(st.integers(1, 5))
        acquired.append((at, at + size - 1, data.draw(st.integers(1, 5))))
        at += size + data.draw(st.integers(0, 3))
    found = chunk(records, *acquired, explicit=True)
    counts = {offset: count for first, last, count in acquired for offset in range(first, last + 1)}
    expected = [offset for offset in offsets if offset in counts]
    sent: dict[int, int] = {}
    chosen: dict[int, int] = {}
    held: set[int] = set()
    columns = AcquiredColumns(inner := ArrowColumns(("offset",)))

    def collect() -> None:
        for first, last, types in found.collect():
            assert len(types) in (1, last - first + 1)
            for i, offset in enumerate(range(first, last + 1)):
                assert offset not in sent
                sent[offset] = types[i if len(types) > 1 else 0]

    while expected or held:
        action = data.draw(st.sampled_from(["take", "columns", "acknowledge", "collect"]))
        if action == "take":
            limit = data.draw(st.integers(1, 4))
            taken = found.take(limit)
            assert places(taken) == [(offset, counts[offset]) for offset in expected[:limit]]
            held.update(record.offset for record in taken)
            expected = expected[len(taken) :]
        elif action == "columns":
            limit = data.draw(st.integers(1, 4))
            rows = columns.append(found, limit)
            got = [
                offset
                for count, buffers in inner.finish()
                for offset in memoryview(buffers["offset"]).cast("B").cast("q")[:count].tolist()
            ]
            assert len(got) == rows
            assert got == expected[:limit]
            held.update(got)
            expected = expected[len(got) :]
        elif action == "acknowledge" and held:
            offset = data.draw(st.sampled_from(sorted(held)))
            kind = data.draw(st.integers(ACCEPT, REJECT))
            assert found.acknowledge(offset, kind)
            chosen[offset] = kind
            held.discard(offset)
        elif action == "collect":
            collect()
        assert found.held == len(held)
    found.take(1)
    found.user_polls()
    collect()
    assert sent == {offset: chosen.get(offset, GAP) for offset in counts}
    assert found.settled
