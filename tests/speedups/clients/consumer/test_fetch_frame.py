"""A client's Fetch response, read in C, against the codec of kafkapy.protocol: all versions, and hostile bytes."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkapy._speedups.clients.consumer.fetch_frame import FetchResponseFrame
from kafkapy._speedups.clients.consumer.fetched_partition import FetchedPartition
from kafkapy.errors import KafkaError, KafkaProtocolError
from kafkapy.protocol.messages.fetch import FetchResponse
from kafkapy.records.batches import RecordBatchBuilder, iter_records

Topic = FetchResponse.TopicResponse
Partition = Topic.Partition
VERSIONS = range(4, 19)


def frame_of(response: FetchResponse, version: int) -> bytes:
    return b"\x00\x00\x00\x07" + (b"\x00" if version >= 12 else b"") + response.encode(version)


def read(frame: bytes, version: int, **options: Any) -> FetchResponseFrame:
    response = FetchResponseFrame(version, **options)
    response.feed(frame)
    return response


def batch(base: int, *values: bytes | None, codec: int = 0, **build: Any) -> bytes:
    builder = RecordBatchBuilder(base_offset=base)
    for i, value in enumerate(values):
        builder.append(1_700_000_000_000 + i, b"k%d" % i if i % 2 else None, value, [("h", b"x"), ("n", None)][: i % 3])
    return builder.build(codec, **build)


def rows(partition: FetchedPartition, topic: str, offset: int = 0) -> list[tuple[Any, ...]]:
    partition.start(topic, offset, False, None, None)
    out = []
    while (record := partition.next()) is not None:
        out.append((record.offset, record.timestamp, record.timestamp_type, record.key, record.value, record.headers))
    return out


def expected_rows(records: bytes | memoryview | None) -> list[tuple[Any, ...]]:
    return [
        (r.offset, r.timestamp, r.timestamp_type, r.key, r.value, list(r.headers)) for r in iter_records(records or b"")
    ]


partitions_of = st.builds(
    Partition,
    partition_index=st.integers(0, 1000),
    error_code=st.sampled_from([0, 1, 3, 6, 74]),
    high_watermark=st.integers(-1, 1 << 62),
    last_stable_offset=st.integers(-1, 1 << 62),
    log_start_offset=st.integers(-1, 1 << 62),
    diverging_epoch=st.builds(
        Partition.EpochEndOffset, epoch=st.integers(-1, 1000), end_offset=st.integers(-1, 1 << 40)
    ),
    current_leader=st.builds(Partition.LeaderIdAndEpoch, leader_id=st.integers(-1, 9), leader_epoch=st.integers(-1, 9)),
    snapshot_id=st.builds(Partition.SnapshotId, end_offset=st.integers(-1, 1 << 40), epoch=st.integers(-1, 9)),
    aborted_transactions=st.none()
    | st.lists(
        st.builds(
            Partition.AbortedTransaction, producer_id=st.integers(0, 1 << 60), first_offset=st.integers(0, 1 << 60)
        ),
        max_size=3,
    ),
    preferred_read_replica=st.integers(-1, 100),
    records=st.none()
    | st.sampled_from([b"", batch(3, b"a", b"b"), batch(0, b"v" * 300, None, codec=3) + batch(2, b"x")]),
)
responses_of = st.builds(
    FetchResponse,
    throttle_time_ms=st.integers(0, 1 << 30),
    error_code=st.sampled_from([0, 70, 71]),
    session_id=st.integers(0, 1 << 30),
    responses=st.lists(
        st.builds(
            Topic,
            topic=st.text("abc.-_", min_size=1, max_size=8),
            topic_id=st.uuids(),
            partitions=st.lists(partitions_of, max_size=4),
        ),
        max_size=3,
    ),
    node_endpoints=st.lists(
        st.builds(
            FetchResponse.NodeEndpoint,
            node_id=st.integers(0, 100),
            host=st.text(max_size=10),
            port=st.integers(0, 65535),
            rack=st.none() | st.text(max_size=5),
        ),
        max_size=3,
    ),
)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_a_version_does_not_say_is_unknown(version: int) -> None:
    response = FetchResponse(responses=[Topic(topic="t", partitions=[Partition(partition_index=3, high_watermark=0)])])
    (found,) = read(frame_of(response, version), version).partitions()
    assert (found.partition, found.error_code, found.high_watermark) == (3, 0, 0)
    assert (found.last_stable_offset, found.log_start_offset, found.preferred_read_replica) == (-1, -1, -1)
    assert (found.diverging_epoch, found.snapshot_id, found.current_leader) == (None, None, None)
    assert (found.aborted_transactions, found.has_records, found.bytes) == ([], False, 0)
    assert (found.end_offset, found.end_epoch, found.leader_epoch, found.next_offset) == (-1, -1, -1, -1)


@pytest.mark.parametrize("number", [-1, 0, 1])
def test_zero_is_an_offset_a_broker_and_an_epoch(number: int) -> None:
    def found(**fields: Any) -> FetchedPartition:
        response = FetchResponse(responses=[Topic(topic="t", partitions=[Partition(partition_index=3, **fields)])])
        (partition,) = read(frame_of(response, 12), 12).partitions()
        return partition

    kinds = Partition.EpochEndOffset, Partition.SnapshotId, Partition.LeaderIdAndEpoch
    known = number >= 0
    diverging = found(diverging_epoch=kinds[0](epoch=7, end_offset=number))
    assert diverging.diverging_epoch == ((7, number) if known else None)
    assert found(snapshot_id=kinds[1](end_offset=number, epoch=7)).snapshot_id == ((number, 7) if known else None)
    assert found(current_leader=kinds[2](leader_id=number, leader_epoch=-1)).current_leader == (
        (number, -1) if known else None
    )
    assert found(current_leader=kinds[2](leader_id=-1, leader_epoch=number)).current_leader == (
        (-1, number) if known else None
    )


@settings(max_examples=80, deadline=None)
@given(responses_of, st.sampled_from(VERSIONS))
def test_both_decoders_see_the_same(response: FetchResponse, version: int) -> None:
    if version < 7:
        response.session_id = 0
    if version < 11:
        for topic in response.responses:
            for partition in topic.partitions:
                partition.preferred_read_replica = -1
    if version < 12:
        for topic in response.responses:
            for partition in topic.partitions:
                partition.diverging_epoch = Partition.EpochEndOffset()
                partition.current_leader = Partition.LeaderIdAndEpoch()
                partition.snapshot_id = Partition.SnapshotId()
    if version < 16:
        response.node_endpoints = []
    encoded = response.encode(version)
    expected = FetchResponse.decode(encoded, version)
    frame = read(frame_of(response, version), version)
    assert (frame.throttle_ms, frame.error_code, frame.session_id) == (
        expected.throttle_time_ms,
        expected.error_code,
        expected.session_id,
    )
    assert frame.node_endpoints == [(n.node_id, n.host, n.port, n.rack) for n in expected.node_endpoints]
    got = frame.partitions()
    wanted = [(topic, partition) for topic in expected.responses for partition in topic.partitions]
    assert len(got) == len(wanted)
    for mine, (topic, theirs) in zip(got, wanted, strict=True):
        assert mine.topic == (topic.topic if version <= 12 else None)
        assert mine.topic_id == (topic.topic_id if version >= 13 else None)
        assert mine.partition == theirs.partition_index
        assert mine.error_code == theirs.error_code
        assert mine.high_watermark == theirs.high_watermark
        assert mine.last_stable_offset == theirs.last_stable_offset
        assert mine.log_start_offset == theirs.log_start_offset
        assert mine.preferred_read_replica == theirs.preferred_read_replica
        diverging, leader, snapshot = theirs.diverging_epoch, theirs.current_leader, theirs.snapshot_id
        assert mine.diverging_epoch == ((diverging.epoch, diverging.end_offset) if diverging.end_offset >= 0 else None)
        told = leader.leader_id >= 0 or leader.leader_epoch >= 0
        assert mine.current_leader == ((leader.leader_id, leader.leader_epoch) if told else None)
        assert mine.snapshot_id == ((snapshot.end_offset, snapshot.epoch) if snapshot.end_offset >= 0 else None)
        assert mine.aborted_transactions == sorted(
            [(a.producer_id, a.first_offset) for a in theirs.aborted_transactions or []], key=lambda entry: entry[1]
        )
        assert mine.has_records == bool(theirs.records)
        assert rows(mine, "t") == expected_rows(theirs.records)


def sample(version: int) -> FetchResponse:
    return FetchResponse(
        session_id=5 if version >= 7 else 0,
        responses=[
            Topic(
                topic="orders",
                topic_id=UUID(int=77),
                partitions=[
                    Partition(
                        partition_index=0,
                        high_watermark=9,
                        last_stable_offset=9,
                        aborted_transactions=[Partition.AbortedTransaction(producer_id=4, first_offset=2)],
                        records=batch(0, b"a", b"b", None) + batch(3, b"c" * 40, codec=4),
                    ),
                    Partition(partition_index=1, error_code=6, high_watermark=-1, records=None),
                ],
            )
        ],
        node_endpoints=[FetchResponse.NodeEndpoint(node_id=1, host="h", port=2)] if version >= 16 else [],
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_every_truncation_is_noticed(version: int) -> None:
    whole = frame_of(sample(version), version)
    assert len(read(whole, version).partitions()) == 2
    for cut in range(4, len(whole)):
        frame = read(whole[:cut], version)
        with pytest.raises(KafkaProtocolError):
            frame.partitions()
        with pytest.raises(KafkaProtocolError):
            _ = frame.node_endpoints
    with pytest.raises(KafkaProtocolError):
        read(whole + b"\x00", version).partitions()


@pytest.mark.parametrize("check_crcs", [True, False])
def test_random_bits_end_in_records_or_errors(check_crcs: bool) -> None:
    rng = random.Random(5)
    for turn in range(3000):
        version = rng.choice(VERSIONS)
        whole = bytearray(frame_of(sample(version), version))
        for _ in range(rng.choice((1, 1, 2, 10))):
            whole[rng.randrange(4, len(whole))] ^= 1 << rng.randrange(8)
        frame = read(bytes(whole), version, check_crcs=check_crcs, max_decompressed=rng.choice((0, 100, 1 << 30)))
        try:
            for partition in frame.partitions():
                partition.start("orders", rng.randrange(4), turn % 2 == 0, None, None)
                for record in partition.take(100):
                    assert len(record) == 13
        except (KafkaError, MemoryError):
            continue


def test_tags_that_are_not_known_are_skipped() -> None:
    version = 12
    encoded = FetchResponse(responses=[]).encode(version)
    assert encoded[-1:] == b"\x00"
    frame = read(b"\x00\x00\x00\x07" + b"\x01\x05\x02ab" + encoded[:-1] + b"\x01\x09\x03abc", version)
    assert frame.partitions() == []


def test_a_frame_is_of_a_served_version_and_takes_one_response() -> None:
    for version in (3, 19, -1):
        with pytest.raises(ValueError):
            FetchResponseFrame(version)
    frame = FetchResponseFrame(12)
    with pytest.raises(KafkaProtocolError):
        frame.partitions()
    frame.feed(frame_of(sample(12), 12))
    with pytest.raises(KafkaProtocolError):
        frame.feed(b"\x00\x00\x00\x07")
    assert len(frame.partitions()) == 2
    with pytest.raises(KafkaProtocolError):
        frame.partitions()
    with pytest.raises(KafkaProtocolError, match="takes one response"):
        frame.feed(frame_of(sample(12), 12))


def test_records_outlive_frame_and_partition() -> None:
    frame = read(frame_of(sample(12), 12), 12)
    partition = frame.partitions()[0]
    del frame
    partition.start("orders", 0, False, None, None)
    records = partition.take(10)
    del partition
    assert [record.value for record in records] == [b"a", b"b", None, b"c" * 40]
    assert [record.key for record in records] == [None, b"k1", None, None]


def test_what_is_open_at_a_time_is_bounded() -> None:
    batches = b"".join(batch(i, bytes(100_000), codec=4) for i in range(20))
    response = FetchResponse(responses=[Topic(topic="t", partitions=[Partition(partition_index=0, records=batches)])])
    for budget, opened in ((1 << 30, 20), (250_000, 2), (0, 0)):
        partition = read(frame_of(response, 12), 12, max_decompressed=budget).partitions()[0]
        assert 100_000 * opened <= partition.bytes - len(batches) < 100_100 * opened + 1
        partition.start("t", 0, False, None, None)
        assert [len(record.value) for record in partition.take(100)] == [100_000] * 20
        assert partition.exhausted


def test_a_frame_without_arguments_is_refused() -> None:
    with pytest.raises(TypeError):
        FetchResponseFrame()  # type: ignore[call-arg]
