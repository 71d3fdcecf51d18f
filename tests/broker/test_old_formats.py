"""Produce v0 to v2 and Fetch v0 to v3 as a client from before Kafka 0.11 sees them, over a socket."""

from __future__ import annotations

import os
import struct
import time
import zlib
from pathlib import Path
from typing import Any

import pytest

from kafkapy.broker.message_conversion import FETCH, PRODUCE
from kafkapy.errors import ErrorCode
from kafkapy.protocol.header import encode_request
from kafkapy.protocol.messages.api_versions import ApiVersionsRequest
from kafkapy.protocol.messages.fetch import FetchRequest
from kafkapy.protocol.messages.produce import ProduceRequest
from kafkapy.records.batches import Record, RecordBatchBuilder, decode_records, iter_batches
from kafkapy.records.control import build_end_transaction_marker
from kafkapy.records.legacy import build_message_set, decode_message_set, iter_messages
from kafkapy.types import CompressionType, TimestampType, TopicPartition

T0 = 1_700_000_000_000
PAIRS = [(b"k0", b"v0"), (None, b"value" * 40), (b"k2", None), (b"", b""), (b"k4", b"x" * 20_000)]
CODECS = (CompressionType.NONE, CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4)
PRODUCE_VERSIONS = (0, 1, 2)
FETCH_VERSIONS = (0, 1, 2, 3)


def messages(magic: int, codec: int = 0, pairs: Any = PAIRS, base: int = 0, kind: int = 0) -> bytes:
    rows = [Record(base + i, T0 + i, kind, key, value) for i, (key, value) in enumerate(pairs)]
    return build_message_set(rows, magic, codec)


def produce_request(topic: str, *records: bytes | None, acks: int = -1) -> ProduceRequest:
    entries = [ProduceRequest.Topic.Partition(index=0, records=each) for each in records]
    return ProduceRequest(
        acks=acks, timeout_ms=10_000, topic_data=[ProduceRequest.Topic(name=topic, partition_data=entries)]
    )


def produce(client: Any, topic: str, records: bytes | None, version: int, acks: int = -1) -> Any:
    response = client(produce_request(topic, records, acks=acks), version)
    assert response.throttle_time_ms == 0
    return response.responses[0].partition_responses[0]


def fetch_request(topic: str, offset: int, max_bytes: int = 1 << 20, wait_ms: int = 0, **fields: Any) -> FetchRequest:
    entry = FetchRequest.Topic.Partition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=fields.get("all_max_bytes", 0x7FFFFFFF),
        topics=[FetchRequest.Topic(topic=topic, partitions=[entry])],
    )


def fetch(client: Any, topic: str, offset: int, version: int, **fields: Any) -> Any:
    return client(fetch_request(topic, offset, **fields), version).responses[0].partitions[0]


def fetch_all(client: Any, topic: str, offset: int, version: int, end: int) -> list[bytes]:
    """The whole messages up to an offset; no reply holds more bytes than the batches it is made of: it may be cut."""
    sets = []
    while offset < end:
        answer = fetch(client, topic, offset, version)
        assert (answer.error_code, answer.high_watermark) == (0, end)
        data = bytes(answer.records)
        whole = [(batch.position, batch.size) for batch in iter_batches(data)]
        sets.append(data[: sum(whole[-1])])
        offset = list(iter_messages(sets[-1]))[-1].offset + 1
    return sets


def modern(client: Any, topic: str, offset: int = 0) -> list[Any]:
    """The batches as they are stored."""
    return list(iter_batches(bytes(fetch(client, topic, offset, 4).records), check_crc=True))


# ---- Produce ----


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_message_sets_are_stored_as_one_batch(
    client: Any, topic_name: str, version: int, magic: int, codec: int
) -> None:
    client.create_topic(topic_name)
    for turn in range(2):
        answer = produce(client, topic_name, messages(magic, codec, base=7), version)
        assert (answer.error_code, answer.base_offset, answer.log_append_time_ms) == (0, 5 * turn, -1)
    batches = modern(client, topic_name)
    assert [(b.base_offset, b.last_offset, b.codec, b.magic) for b in batches] == [
        (0, 4, codec, 2),
        (5, 9, codec, 2),
    ]
    for batch in batches:
        assert [(r.timestamp, r.timestamp_type, r.key, r.value, r.headers) for r in decode_records(batch)] == [
            (T0 + i if magic else -1, 0, key, value, ()) for i, (key, value) in enumerate(PAIRS)
        ]


@pytest.mark.parametrize("acks", [-1, 1])
@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_the_topic_decides_on_codec_and_timestamps(client: Any, topic_name: str, version: int, acks: int) -> None:
    client.create_topic(topic_name, compression_type="zstd", message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)
    answer = produce(client, topic_name, messages(1, CompressionType.GZIP), version, acks)
    after = int(time.time() * 1000)
    assert answer.error_code == 0
    assert (before <= answer.log_append_time_ms <= after) if version == 2 else answer.log_append_time_ms == -1
    (entry,) = client(fetch_request(topic_name, 0), 10).responses[0].partitions
    (batch,) = iter_batches(bytes(entry.records), check_crc=True)
    assert (batch.codec, batch.timestamp_type) == (CompressionType.ZSTD, TimestampType.LOG_APPEND_TIME)
    assert {r.timestamp for r in decode_records(batch)} == {batch.max_timestamp}
    assert before <= batch.max_timestamp <= after
    for old in FETCH_VERSIONS:
        assert fetch(client, topic_name, 0, old).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.parametrize("target", ["producer", "uncompressed", "lz4"])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_append_time_holds_for_every_format_and_codec(client: Any, topic_name: str, magic: int, target: str) -> None:
    client.create_topic(topic_name, compression_type=target, message_timestamp_type="LogAppendTime")
    for codec in CODECS:
        data = build(0, codec) if magic == 2 else messages(magic, codec)
        assert produce(client, topic_name, data, 2).error_code == 0
    batches = modern(client, topic_name)
    assert [b.timestamp_type for b in batches] == [TimestampType.LOG_APPEND_TIME] * 4
    forced = {"uncompressed": CompressionType.NONE, "lz4": CompressionType.LZ4}
    assert [b.codec for b in batches] == [forced.get(target, codec) for codec in CODECS]
    assert all({r.timestamp for r in decode_records(b)} == {b.max_timestamp} for b in batches)


def test_acks_0_is_not_answered_unless_it_fails(connect: Any, topic_name: str) -> None:
    client = connect()
    client.create_topic(topic_name)
    for version in PRODUCE_VERSIONS:
        client.send_frame(encode_request(0, version, 5, "old", produce_request(topic_name, messages(0), acks=0)))
    # The next answer on the connection is that of the request behind them.
    assert fetch(client, topic_name, 0, 0).high_watermark == 15
    client.send_frame(encode_request(0, 1, 5, "old", produce_request(topic_name, messages(0)[:-1] + b"!", acks=0)))
    assert client.is_closed()


def spoiled(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def wrapper(inner: bytes, codec: int, magic: int = 1) -> bytes:
    from kafkapy.records.compression import compress

    value = compress(codec, inner, magic=magic)
    stamp = struct.pack(">q", T0) if magic else b""
    body = struct.pack(">bb", magic, codec) + stamp + struct.pack(">ii", -1, len(value)) + value
    return struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_what_is_wrong_gets_kafkas_error(client: Any, topic_name: str, version: int) -> None:
    client.create_topic(topic_name, max_message_bytes="30000")
    inner = messages(1, 0, PAIRS[:2])
    cases = [
        (spoiled(messages(0), 28), ErrorCode.CORRUPT_MESSAGE),
        (spoiled(messages(1, CompressionType.GZIP), 60), ErrorCode.CORRUPT_MESSAGE),
        (wrapper(spoiled(inner, 60), CompressionType.GZIP), ErrorCode.CORRUPT_MESSAGE),
        (wrapper(inner, CompressionType.GZIP) * 2, ErrorCode.INVALID_RECORD),
        (wrapper(wrapper(inner, CompressionType.GZIP), CompressionType.GZIP), ErrorCode.INVALID_RECORD),
        (wrapper(messages(0, 0, PAIRS[:2]), CompressionType.SNAPPY), ErrorCode.INVALID_RECORD),
        (wrapper(inner, CompressionType.ZSTD), ErrorCode.INVALID_RECORD),
        (messages(0) + messages(1), ErrorCode.INVALID_RECORD),
        (messages(1, 0, [(None, bytes(40_000))]), ErrorCode.MESSAGE_TOO_LARGE),
        (messages(1, 0, [(None, bytes(20_000))] * 3), ErrorCode.MESSAGE_TOO_LARGE),
        (b"\0" * 16 + b"\7" * 20, ErrorCode.CORRUPT_MESSAGE),
        (None, ErrorCode.INVALID_RECORD),
    ]
    for data, expected in cases:
        answer = produce(client, topic_name, data, version)
        assert (ErrorCode(answer.error_code), answer.base_offset) == (expected, -1), (expected, data)
    assert produce(client, topic_name, messages(1), version).base_offset == 0


@pytest.mark.parametrize(("size", "codec"), [(30_000_000, CompressionType.LZ4), (30_000_000, CompressionType.GZIP)])
def test_what_opens_to_far_more_is_refused(client: Any, topic_name: str, size: int, codec: CompressionType) -> None:
    client.create_topic(topic_name, max_message_bytes="1000000", compression_type="uncompressed")
    body = struct.pack(">bb", 0, 0) + struct.pack(">ii", -1, size) + bytes(size)
    bomb = wrapper(struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body, codec, magic=0)
    assert len(bomb) < 1_000_000
    assert produce(client, topic_name, bomb, 0).error_code == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_a_partition_without_a_whole_message_is_no_error(client: Any, topic_name: str, version: int) -> None:
    client.create_topic(topic_name)
    for data in (b"", messages(1)[:5], messages(1)[:37], messages(0, CompressionType.GZIP)[:-1]):
        answer = produce(client, topic_name, data, version)
        assert (answer.error_code, answer.base_offset) == (0, -1)
    # What is cut behind whole messages is left out.
    assert produce(client, topic_name, messages(1) + messages(1)[:30], version).base_offset == 0
    assert fetch(client, topic_name, 0, 4).high_watermark == 5


@pytest.mark.parametrize("magic", [0, 1])
def test_a_compacted_topic_wants_keys(client: Any, topic_name: str, magic: int) -> None:
    client.create_topic(topic_name, cleanup_policy="compact")
    for codec in CODECS:
        assert produce(client, topic_name, messages(magic, codec), 2).error_code == ErrorCode.INVALID_RECORD
        assert produce(client, topic_name, messages(magic, codec, [(b"k", b"v")]), 2).error_code == 0


def test_timestamps_have_bounds_and_are_a_clients_own(client: Any, topic_name: str) -> None:
    client.create_topic(topic_name, message_timestamp_before_max_ms="1000")
    assert produce(client, topic_name, messages(1), 2).error_code == ErrorCode.INVALID_TIMESTAMP
    assert produce(client, topic_name, messages(0), 2).error_code == 0  # it has none


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_unknown_topics_and_acks(client: Any, topic_name: str, version: int) -> None:
    assert produce(client, "missing-" + topic_name, messages(0), version).error_code == 3
    client.create_topic(topic_name)
    assert produce(client, topic_name, messages(0), version, acks=2).error_code == ErrorCode.INVALID_REQUIRED_ACKS


def test_of_several_entries_for_one_partition_the_last_one_counts(client: Any, topic_name: str) -> None:
    client.create_topic(topic_name)
    sets = [messages(1, codec, [(b"k", b"%d" % n)]) for n, codec in enumerate((2, 0, 1, 3))]
    response = client(produce_request(topic_name, *sets), 1)
    assert [p.base_offset for p in response.responses[0].partition_responses] == [0]
    assert [r.value for b in modern(client, topic_name) for r in decode_records(b)] == [b"3"]


# ---- Fetch ----


def build(base: int, codec: int, count: int = 4, **options: Any) -> bytes:
    builder = RecordBatchBuilder()
    for n in range(base, base + count):
        builder.append(T0 + n, b"k%d" % n, b"v%d" % n, [("h", b"dropped")])
    return builder.build(codec, **options)


@pytest.fixture
def stored(client: Any, topic_name: str) -> str:
    """Offsets 0 to 15: a batch of four of each codec."""
    client.create_topic(topic_name)
    for number, codec in enumerate(CODECS):
        assert produce(client, topic_name, build(4 * number, codec), 9).error_code == 0
    return topic_name


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_batches_come_as_message_sets(client: Any, stored: str, version: int) -> None:
    magic = 0 if version < 2 else 1
    assert bytes(fetch(client, stored, 16, version).records) == b""
    for offset in range(16):
        data = b"".join(fetch_all(client, stored, offset, version, 16))
        got = decode_message_set(data)
        # An uncompressed batch begins where it was asked for; a compressed one comes whole.
        first = offset if offset < 4 else offset // 4 * 4
        assert [(r.offset, r.key, r.value) for r in got] == [(n, b"k%d" % n, b"v%d" % n) for n in range(first, 16)]
        assert [r.timestamp for r in got] == [T0 + n if magic else -1 for n in range(first, 16)]
        assert {m.magic for m in iter_messages(data)} <= {magic}
        wrappers = [(m.codec, m.offset) for m in iter_messages(data) if m.codec]
        assert wrappers == [(codec, 4 * codec + 3) for codec in CODECS[1:] if 4 * codec + 3 >= offset]


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_limits(client: Any, stored: str, version: int) -> None:
    out_of_range = fetch(client, stored, 17, version)
    assert (out_of_range.error_code, bytes(out_of_range.records)) == (ErrorCode.OFFSET_OUT_OF_RANGE, b"")
    first = len(modern(client, stored)[0].to_bytes())
    # The limit cuts the first batch: before v3 that shows as a message that is not whole, later it comes all the same.
    cut = bytes(fetch(client, stored, 0, version, max_bytes=first - 1).records)
    if version < 3:
        assert 0 < len(cut) < 26
        assert decode_message_set(cut) == []
    else:
        assert [r.offset for r in decode_message_set(cut)] == [0, 1, 2, 3]
    whole = decode_message_set(bytes(fetch(client, stored, 0, version, max_bytes=first + 1).records))
    assert [r.offset for r in whole] == [0, 1, 2, 3]
    assert bytes(fetch(client, stored, 0, version, max_bytes=0).records)[12:] == b"" or version == 3


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_log_append_time_comes_down(client: Any, topic_name: str, version: int) -> None:
    client.create_topic(topic_name, message_timestamp_type="LogAppendTime")
    for codec in CODECS:
        assert produce(client, topic_name, build(0, codec), 9).error_code == 0
    stamps = [b.max_timestamp for b in modern(client, topic_name) for _ in range(4)]
    got = [r for data in fetch_all(client, topic_name, 0, version, 16) for r in decode_message_set(data)]
    expected = [(-1, -1)] * 16 if version < 2 else [(stamp, 1) for stamp in stamps]
    assert [(r.timestamp, r.timestamp_type) for r in got] == expected


def append_marker(broker: Any, topic: str, producer: int) -> None:
    log = broker.context.log_manager.get(TopicPartition(topic, 0))
    log.append_as_leader(
        build_end_transaction_marker(producer, 0, committed=False, coordinator_epoch=0, timestamp_ms=1)
    )


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_markers_are_never_seen_and_never_stop_a_client(
    broker: Any, client: Any, connect: Any, topic_name: str, version: int
) -> None:
    client.create_topic(topic_name)
    log = broker.context.log_manager.get(TopicPartition(topic_name, 0))
    for producer in range(3):
        log.append_as_leader(
            build(0, 0, 1, producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True)
        )
        append_marker(broker, topic_name, producer)
    got = decode_message_set(bytes(fetch(client, topic_name, 0, version).records))
    assert [r.offset for r in got] == [0, 2, 4]
    # Behind the last record there is only a marker: nothing comes, and not before max wait is over.
    started = time.monotonic()
    answer = fetch(client, topic_name, 5, version, wait_ms=300)
    assert (answer.error_code, answer.high_watermark, bytes(answer.records)) == (0, 6, b"")
    assert time.monotonic() - started >= 0.3
    # What comes while it waits does wake it.
    client.send_frame(encode_request(1, version, 77, "old", fetch_request(topic_name, 5, wait_ms=30_000)))
    other = connect()
    time.sleep(0.1)
    assert produce(other, topic_name, messages(1, 0, [(b"late", b"v")]), 2).base_offset == 6
    frame = client.receive_frame()
    assert b"late" in frame
    assert struct.unpack_from(">i", frame)[0] == 77


def test_more_markers_than_a_reply_looks_at(broker: Any, client: Any, topic_name: str) -> None:
    client.create_topic(topic_name)
    log = broker.context.log_manager.get(TopicPartition(topic_name, 0))
    marker = build_end_transaction_marker(5, 0, committed=True, coordinator_epoch=0, timestamp_ms=1)
    for _ in range((1 << 20) // len(marker) + 2_000):
        log.append_as_leader(bytes(marker))
    end = log.log_end_offset
    assert produce(client, topic_name, build(0, 0, 1), 9).base_offset == end
    for version in FETCH_VERSIONS:
        got = decode_message_set(bytes(fetch(client, topic_name, 0, version).records))
        assert [r.offset for r in got] == [end]


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_a_fetch_waits_for_records(client: Any, connect: Any, topic_name: str, version: int) -> None:
    client.create_topic(topic_name)
    client.send_frame(encode_request(1, version, 9, "old", fetch_request(topic_name, 0, wait_ms=30_000)))
    other = connect()
    assert produce(other, topic_name, messages(0), 0).error_code == 0
    assert b"value" * 40 in client.receive_frame()


def test_conversion_can_be_forbidden(client: Any, topic_name: str) -> None:
    client.create_topic(topic_name, message_downconversion_enable="false")
    assert produce(client, topic_name, messages(1), 2).error_code == 0
    for version in FETCH_VERSIONS:
        answer = fetch(client, topic_name, 0, version)
        assert (answer.error_code, answer.high_watermark) == (ErrorCode.UNSUPPORTED_VERSION, -1)
    assert fetch(client, topic_name, 0, 4).error_code == 0


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_a_segment_that_cannot_be_read_is_told(broker: Any, client: Any, topic_name: str, version: int) -> None:
    """The file is shorter than the log knows: what was asked for is there until the worker reads it."""
    client.create_topic(topic_name)
    assert produce(client, topic_name, build(0, 0), 9).error_code == 0
    log = broker.context.log_manager.get(TopicPartition(topic_name, 0))
    path = Path(log.storage.directory) / f"{0:020d}.log"
    whole = path.read_bytes()
    os.truncate(path, 30)
    answer = fetch(client, topic_name, 0, version)
    assert (answer.error_code, answer.high_watermark) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    path.write_bytes(whole)
    assert fetch(client, topic_name, 0, version).error_code == 0


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_zstd_batches_are_for_later_versions(client: Any, topic_name: str, version: int) -> None:
    client.create_topic(topic_name)
    for codec in (CompressionType.NONE, CompressionType.ZSTD):
        assert produce(client, topic_name, build(0, codec), 9).error_code == 0
    assert [r.offset for r in decode_message_set(bytes(fetch(client, topic_name, 0, version).records))] == [0, 1, 2, 3]
    assert fetch(client, topic_name, 4, version).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_one_reply_is_bounded_and_partitions_take_turns(client: Any, topic_name: str, version: int) -> None:
    client.create_topic(topic_name, 3)
    big = messages(1, 0, [(None, bytes(400_000))])
    for partition in range(3):
        for _ in range(4):
            request = produce_request(topic_name, big)
            request.topic_data[0].partition_data[0].index = partition
            assert client(request, 2).responses[0].partition_responses[0].error_code == 0
    seen = set()
    for _ in range(40):
        request = fetch_request(topic_name, 0, 10 << 20)
        request.topics[0].partitions = [
            FetchRequest.Topic.Partition(partition=p, fetch_offset=0, partition_max_bytes=10 << 20) for p in range(3)
        ]
        answer = client(request, version).responses[0].partitions
        sizes = {p.partition_index: len(bytes(p.records)) for p in answer}
        assert 0 < sum(sizes.values()) <= 1 << 20
        assert all(decode_message_set(bytes(p.records)) for p in answer if p.records)
        seen |= {partition for partition, size in sizes.items() if size}
    assert seen == ({0, 1, 2} if version < 3 else {0})


# ---- what is told of it ----


def test_the_versions_are_advertised(client: Any) -> None:
    served = {each.api_key: (each.min_version, each.max_version) for each in client(ApiVersionsRequest(), 0).api_keys}
    assert (served[0], served[1], served[2]) == ((0, 13), (0, 18), (0, 11))


def test_conversions_are_counted(broker: Any, client: Any, topic_name: str) -> None:
    client.create_topic(topic_name)
    before = broker.conversions.price()
    produce(client, topic_name, messages(0, CompressionType.GZIP), 0)
    fetch(client, topic_name, 0, 3)
    fetch(client, topic_name, 0, 4)
    records = broker.conversions.records()
    assert (records[PRODUCE, topic_name], records[FETCH, topic_name]) == (5, 5)
    for api in (PRODUCE, FETCH):
        assert all(now > then for now, then in zip(broker.conversions.price()[api], before[api], strict=True))
