"""Batches from Python: walking and decoding, against the reference decoder and hostile bytes."""

import array
import gc
import importlib.util
import random
import struct
from pathlib import Path

import pytest

from kafkapy._speedups.records.batch_builder import RecordBatchBuilder, replace_payload
from kafkapy._speedups.records.memory_records import BatchIterator, BatchView, Record, iter_batches
from kafkapy.errors import CorruptMessageError, InvalidRecordError, KafkaError

_PATH = Path(__file__).parents[2] / "reference" / "record_batch.py"
_SPEC = importlib.util.spec_from_file_location("reference_record_batch", _PATH)
reference = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(reference)


def exact(data):
    """The bytes in an allocation of just their size, so that a sanitizer sees a read past the end."""
    return array.array("B", data)


def built(count=3, base_offset=0, **fields):
    builder = RecordBatchBuilder(base_offset=base_offset)
    for i in range(count):
        builder.append(1000 + i, b"k%d" % i if i % 2 else None, b"v" * (i * 30), [("h", b"x"), ("n", None)][: i % 3])
    return builder.build(**fields)


def only(data):
    (batch,) = iter_batches(data)
    return batch


# --- walking ------------------------------------------------------------------------------------------------------


def test_a_view_gives_every_header_field():
    data = built(4, 100, producer_id=9, producer_epoch=2, base_sequence=2**31 - 2, transactional=True, leader_epoch=6)
    batch = only(data)
    assert (batch.magic, batch.size, batch.position, batch.record_count) == (2, len(data), 0, 4)
    assert (batch.base_offset, batch.last_offset, batch.next_offset, batch.last_offset_delta) == (100, 103, 104, 3)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (9, 2, 2**31 - 2)
    assert batch.last_sequence == 1  # wraps behind 2**31 - 1
    assert (batch.base_timestamp, batch.max_timestamp, batch.timestamp_type) == (1000, 1003, 0)
    assert (batch.is_transactional, batch.is_control, batch.codec, batch.attributes) == (True, False, 0, 0x10)
    assert (batch.leader_epoch, batch.delete_horizon_ms) == (6, None)
    assert batch.crc == reference.crc32c(data[21:])
    assert batch.to_bytes() == data
    assert bytes(batch.payload()) == data[61:]


def test_batches_follow_each_other_and_an_incomplete_one_ends_the_walk():
    first, second = built(2), built(3, 2)
    for cut in range(len(second) + 1):
        walk = iter_batches(exact(first + second[:cut]))
        offsets = [batch.base_offset for batch in walk]
        assert offsets == ([0, 2] if cut == len(second) else [0])
        assert walk.position == len(first) + (cut if cut == len(second) else 0)


def test_nothing_is_in_an_empty_buffer():
    assert list(iter_batches(b"")) == []


@pytest.mark.parametrize(
    ("at", "value"), [(8, b"\xff\xff\xff\xff"), (8, b"\x00\x00\x00\x05"), (16, b"\x03"), (16, b"\xff")]
)
def test_what_is_no_batch_is_refused(at, value):
    data = bytearray(built())
    data[at : at + len(value)] = value
    with pytest.raises(CorruptMessageError):
        list(iter_batches(exact(data)))


def test_the_crc_is_checked_on_request():
    data = bytearray(built())
    data[-1] ^= 1
    assert not only(data).is_valid()
    with pytest.raises(CorruptMessageError):
        only(data).ensure_valid()
    with pytest.raises(CorruptMessageError):
        list(iter_batches(data, check_crc=True))
    assert [batch.is_valid() for batch in iter_batches(built(), check_crc=True)] == [True]


def test_views_keep_the_buffer_alive_and_in_place():
    source = bytearray(built())
    batch = only(source)
    with pytest.raises(BufferError):
        source.extend(bytes(100))
    payload = batch.payload()
    del source
    gc.collect()
    assert len(batch.decode()) == 3
    del batch
    gc.collect()
    assert len(payload) > 0
    assert payload.nbytes == len(built()) - 61


def test_a_view_into_a_slice_of_a_memoryview_sees_the_right_bytes():
    data = built()
    view = memoryview(b"xxxxx" + data + b"yyy")[5 : 5 + len(data)]
    batch = only(view)
    assert batch.to_bytes() == data
    assert bytes(batch.payload()) == data[61:]


def test_views_and_iterators_come_from_iter_batches_only():
    with pytest.raises(TypeError):
        BatchView()
    with pytest.raises(TypeError):
        BatchIterator()


def test_messages_of_older_formats_are_walked_by_size():
    message = struct.pack(">qiIbb", 7, 14, 0, 0, 0) + b"\xff" * 8
    batch = only(message)
    assert (batch.magic, batch.base_offset, batch.size, batch.to_bytes()) == (0, 7, 26, message)
    assert bytes(batch.payload()) == b""
    with pytest.raises(ValueError):
        batch.decode()


# --- decoding -----------------------------------------------------------------------------------------------------


def test_records_have_absolute_offsets_and_times():
    records = only(built(3, 500)).decode()
    assert [(r.offset, r.timestamp, r.timestamp_type) for r in records] == [
        (500, 1000, 0),
        (501, 1001, 0),
        (502, 1002, 0),
    ]
    assert [r.headers for r in records] == [(), (("h", b"x"),), (("h", b"x"), ("n", None))]
    assert [r.key for r in records] == [None, b"k1", None]


def test_append_time_holds_for_every_record():
    records = only(built(3, log_append_time=77_777)).decode()
    assert [(r.timestamp, r.timestamp_type) for r in records] == [(77_777, 1)] * 3


def test_a_compressed_batch_asks_for_its_payload():
    data = built()
    payload = data[61:]
    packed = replace_payload(only(data), b"anything", codec=4)
    batch = only(packed)
    assert batch.codec == 4
    assert batch.is_valid()
    with pytest.raises(ValueError):
        batch.decode()
    assert batch.decode(payload) == only(data).decode()


def test_header_names_that_are_not_utf8_are_replaced():
    builder = RecordBatchBuilder()
    builder.append(1, None, None, [("zz", b"")])
    data = bytearray(builder.build())
    at = data.index(b"zz")
    data[at : at + 2] = b"\xff\xfe"
    assert only(data).decode()[0].headers == (("\ufffd\ufffd", b""),)


@pytest.mark.parametrize("count", [-1, -(2**31), 2, 4, 2**31 - 1])
def test_lying_counts_are_refused_before_anything_is_allocated(count):
    data = bytearray(built(3))
    struct.pack_into(">i", data, 57, count)
    with pytest.raises(InvalidRecordError):
        only(exact(data)).decode()


def test_every_truncation_of_a_payload_is_refused():
    batch = only(built(4))
    payload = bytes(batch.payload())
    for cut in range(len(payload)):
        with pytest.raises(InvalidRecordError):
            batch.decode(exact(payload[:cut]))
    with pytest.raises(InvalidRecordError):
        batch.decode(exact(payload + b"\0"))


def test_random_flips_decode_as_the_reference_does_or_are_refused():
    rng = random.Random(8)
    data = built(5)
    refused = agreed = 0
    for _ in range(4000):
        broken = bytearray(data)
        for _ in range(rng.randrange(1, 4)):
            broken[rng.randrange(57, len(broken))] ^= 1 << rng.randrange(8)
        batch = only(exact(broken))
        try:
            expected = (
                reference.parse_records(bytes(broken[61:]), batch.record_count) if batch.record_count >= 0 else None
            )
        except ValueError:
            expected = None
        if expected is None:
            refused += 1
            with pytest.raises(InvalidRecordError):
                batch.decode()
            continue
        agreed += 1
        assert [(r.timestamp, r.offset, r.key, r.value, r.headers) for r in batch.decode()] == [
            (wrapped(1000 + t), o, k, v, tuple((n.decode("utf-8", "replace"), c) for n, c in headers))
            for t, o, k, v, headers in expected
        ]
    assert refused > 100
    assert agreed > 100


def wrapped(value):
    return (value + 2**63) % 2**64 - 2**63


def test_flips_anywhere_never_crash():
    rng = random.Random(9)
    data = built(3) + built(2, 3)
    for _ in range(4000):
        broken = bytearray(data)
        for _ in range(rng.randrange(1, 6)):
            broken[rng.randrange(len(broken))] = rng.randrange(256)
        try:
            for batch in iter_batches(exact(broken)):
                for record in batch.decode() if batch.magic == 2 and not batch.codec else ():
                    assert record.headers is not None
        except KafkaError:
            continue


def test_records_compare_and_print_by_content():
    one = Record(1, 2, 0, b"k", None, [("a", b"b")])
    assert one == Record(1, 2, 0, b"k", None, (("a", b"b"),))
    assert hash(one) == hash(Record(1, 2, 0, b"k", None, [("a", b"b")]))
    assert one != Record(1, 2, 0, b"k", b"", [("a", b"b")])
    assert one != 5
    assert repr(one) == "Record(offset=1, timestamp=2, timestamp_type=0, key=b'k', value=None, headers=(('a', b'b'),))"
