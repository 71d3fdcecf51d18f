"""The append path's view of a batch: header, CRC, stamps, the walk over records; against a reference, and hostile."""

import array
import importlib.util
import random
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkapy._speedups.records import record_batch as kernel
from kafkapy._speedups.records.batch_builder import RecordBatchBuilder

_PATH = Path(__file__).parents[2] / "reference" / "record_batch.py"
_SPEC = importlib.util.spec_from_file_location("reference_record_batch", _PATH)
reference = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(reference)

HEADER = 61
INT64_MAX = 2**63 - 1


def exact(data):
    """The bytes in an allocation of just their size, so that a sanitizer sees a read past the end."""
    return array.array("B", data)


def built(records, **fields):
    builder = RecordBatchBuilder()
    for record in records:
        builder.append(*record)
    return builder.build(**fields)


def sample(count=5):
    return built(
        [
            (1000 + i, b"k%d" % i if i % 2 else None, b"v" * (i * 40), [("a", b"b"), ("ü", None), ("", b"")][: i % 4])
            for i in range(count)
        ],
        producer_id=77,
        producer_epoch=3,
        base_sequence=10,
        leader_epoch=4,
    )


def raw_batch(payload, count, last_offset_delta=None, **fields):
    """A batch with a right CRC around any bytes and counts."""
    delta = count - 1 if last_offset_delta is None else last_offset_delta
    body = struct.pack(
        ">hiqqqhii",
        fields.get("attributes", 0),
        delta,
        fields.get("base_timestamp", 0),
        fields.get("max_timestamp", 0),
        -1,
        -1,
        -1,
        count,
    ) + bytes(payload)
    crc = kernel_crc(body)
    return struct.pack(">qiibI", 0, 9 + len(body), -1, 2, crc) + body


def kernel_crc(body):
    return reference.crc32c(body)


def zigzag(value):
    value = (value << 1) ^ (value >> 63)
    value &= 2**64 - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def raw_record(offset_delta=0, timestamp_delta=0, key=b"\x01", value=b"\x01", headers=b"\x00", length=None):
    body = b"\x00" + zigzag(timestamp_delta) + zigzag(offset_delta) + key + value + headers
    return zigzag(len(body) if length is None else length) + body


# --- header -------------------------------------------------------------------------------------------------------


def test_header_agrees_with_the_reference():
    data = sample()
    status, fields = kernel.parse_header(exact(data))
    assert status == kernel.OK
    assert fields == reference.parse_header(data)
    assert fields["crc"] == reference.crc32c(data[21:])
    assert (fields["size"], fields["producer_id"], fields["base_sequence"]) == (len(data), 77, 10)


@given(st.binary(min_size=61, max_size=200))
def test_any_header_fields_agree_with_the_reference(noise):
    data = bytearray(noise)
    struct.pack_into(">i", data, 8, len(data) - 12)
    data[16] = 2
    status, fields = kernel.parse_header(exact(data))
    assert status == kernel.OK
    assert fields == reference.parse_header(data)


def test_every_truncation_is_incomplete():
    data = sample()
    for cut in range(len(data)):
        status, fields = kernel.parse_header(exact(data[:cut]))
        assert status == kernel.INCOMPLETE
        assert fields["size"] == (len(data) if cut >= HEADER else 0)
        assert kernel.check_records(exact(data[:cut]))[0] == kernel.INCOMPLETE


@pytest.mark.parametrize(
    ("length", "status"),
    [
        (-1, kernel.BAD_LENGTH),
        (-(2**31), kernel.BAD_LENGTH),
        (0, kernel.BAD_LENGTH),
        (13, kernel.BAD_LENGTH),
        (48, kernel.BAD_LENGTH),
        (2**31 - 1, kernel.BAD_LENGTH),
        (2**31 - 12, kernel.BAD_LENGTH),
        (2**31 - 13, kernel.INCOMPLETE),
    ],
)
def test_impossible_lengths(length, status):
    data = bytearray(sample())
    struct.pack_into(">i", data, 8, length)
    assert kernel.parse_header(exact(data))[0] == status


@pytest.mark.parametrize("magic", [0, 1, 3, 127, 255])
def test_other_formats_are_told_with_their_size(magic):
    data = bytearray(sample())
    struct.pack_into(">q", data, 0, 99)
    data[16] = magic
    status, fields = kernel.parse_header(exact(data))
    assert status == kernel.BAD_MAGIC
    assert (fields["size"], fields["base_offset"], fields["magic"] & 0xFF) == (len(data), 99, magic)


# --- CRC and stamps -----------------------------------------------------------------------------------------------


def test_every_flipped_bit_under_the_crc_is_caught():
    data = sample(3)
    assert kernel.check_crc(exact(data))
    for at in range(17, len(data)):
        for bit in range(8):
            broken = bytearray(data)
            broken[at] ^= 1 << bit
            assert not kernel.check_crc(exact(broken))


def test_stamping_offset_and_epoch_leaves_the_crc_right():
    data = bytearray(sample())
    kernel.stamp(data, 2**40, 12)
    _, fields = kernel.parse_header(data)
    assert (fields["base_offset"], fields["leader_epoch"]) == (2**40, 12)
    assert kernel.check_crc(data)
    assert data[16:] == sample()[16:]


def test_stamping_the_append_time_computes_the_crc_anew():
    data = bytearray(sample())
    kernel.stamp_append_time(data, 123_456_789)
    _, fields = kernel.parse_header(data)
    assert (fields["attributes"], fields["max_timestamp"]) == (8, 123_456_789)
    assert fields["base_timestamp"] == 1000
    assert fields["crc"] == reference.crc32c(data[21:])


def test_a_lying_max_timestamp_is_corrected():
    data = bytearray(sample())
    before = bytes(data)
    kernel.stamp_max_timestamp(data, 1004)
    assert data == before
    kernel.stamp_max_timestamp(data, 5)
    assert kernel.parse_header(data)[1]["max_timestamp"] == 5
    assert kernel.check_crc(data)


@pytest.mark.parametrize("stamp", [kernel.stamp_append_time, kernel.stamp_max_timestamp])
def test_helpers_refuse_what_they_cannot_write_to(stamp):
    with pytest.raises(ValueError):
        stamp(bytearray(60), 1)
    with pytest.raises(BufferError):
        stamp(bytes(61), 1)
    with pytest.raises(ValueError):
        kernel.stamp(bytearray(60), 1, 1)
    with pytest.raises(ValueError):
        kernel.refresh_crc(bytearray(60))
    with pytest.raises(ValueError):
        kernel.check_crc(b"")


# --- the walk over records ----------------------------------------------------------------------------------------


def test_a_good_batch_passes():
    assert kernel.check_records(exact(sample())) == (kernel.OK, [], 1004, 4)


def test_the_first_record_with_the_max_timestamp_is_found():
    data = built([(5, None, b""), (9, None, b""), (9, None, b""), (-1, None, b"")])
    assert kernel.check_records(data) == (kernel.OK, [], 9, 1)
    assert kernel.check_records(built([(-1, None, b"")])) == (kernel.OK, [], -1, 0)


def test_missing_keys_are_named_by_index():
    assert kernel.check_records(sample(), needs_keys=True)[:2] == (kernel.OK, [(i, kernel.NULL_KEY) for i in (0, 2, 4)])


def test_timestamps_out_of_bounds_are_named_by_index():
    data = built([(t, b"k", b"") for t in (899, 900, 1000, 1050, 1051, -1)])
    bounds = {"now_ms": 1000, "timestamp_before_max_ms": 100, "timestamp_after_max_ms": 50}
    assert kernel.check_records(data, **bounds)[1] == [(0, kernel.BAD_TIMESTAMP), (4, kernel.BAD_TIMESTAMP)]
    assert kernel.check_records(data, log_append_time=True, **bounds)[1] == []


def test_extreme_timestamps_do_not_overflow_the_bounds():
    for timestamp, problems in ((INT64_MAX, 1), (-(2**63), 1), (-2, 0)):
        data = raw_batch(raw_record(timestamp_delta=0), 1, base_timestamp=timestamp)
        bounds = {"timestamp_before_max_ms": 10_000, "timestamp_after_max_ms": 10_000, "now_ms": 5000}
        assert len(kernel.check_records(data, **bounds)[1]) == problems


def test_a_producer_may_not_mark_log_append_time():
    data = raw_batch(raw_record(), 1, attributes=8)
    for append_time in (False, True):
        assert kernel.check_records(data, log_append_time=append_time)[1] == [(0, kernel.BAD_TIMESTAMP)]


def test_at_most_a_hundred_problems_are_listed():
    data = built([(1, None, b"")] * 500)
    assert kernel.check_records(data, needs_keys=True)[1] == [(i, kernel.NULL_KEY) for i in range(100)]


MALFORMED = {
    "no records": raw_batch(b"", 0, 0),
    "count too high": raw_batch(raw_record(), 2),
    "count too low": raw_batch(raw_record() + raw_record(1), 1),
    "count of two billion": raw_batch(raw_record(), 2**31 - 1),
    "negative count": raw_batch(raw_record(), -1),
    "last offset delta above": raw_batch(raw_record(), 1, 1),
    "last offset delta below": raw_batch(raw_record() + raw_record(1), 2, 0),
    "first delta not zero": raw_batch(raw_record(1), 1),
    "deltas with a gap": raw_batch(raw_record() + raw_record(2), 2),
    "deltas twice the same": raw_batch(raw_record() + raw_record(0), 2),
    "negative delta": raw_batch(raw_record(-1), 1),
    "trailing byte": raw_batch(raw_record() + b"\x00", 1),
    "record length beyond the batch": raw_batch(raw_record(length=100), 1),
    "record length negative": raw_batch(raw_record(length=-1), 1),
    "record length too short": raw_batch(raw_record(value=zigzag(3) + b"abc", length=7) + bytes(3), 1),
    "record length of two gigabytes": raw_batch(raw_record(length=2**31 - 1), 1),
    "key length beyond the record": raw_batch(raw_record(key=zigzag(50)) + bytes(60), 1),
    "value length beyond the record": raw_batch(raw_record(value=zigzag(2**31 - 1)), 1),
    "header count beyond the record": raw_batch(raw_record(headers=zigzag(2**31 - 1)), 1),
    "header count negative": raw_batch(raw_record(headers=zigzag(-1)), 1),
    "header name null": raw_batch(raw_record(headers=zigzag(1) + zigzag(-1) + zigzag(0)), 1),
    "header name too long": raw_batch(raw_record(headers=zigzag(1) + zigzag(9) + zigzag(0)), 1),
    "header value too long": raw_batch(raw_record(headers=zigzag(1) + zigzag(0) + zigzag(9)), 1),
    "header missing": raw_batch(raw_record(headers=zigzag(2) + zigzag(0) + zigzag(0) + b""), 1),
    "bytes after the headers": raw_batch(raw_record(headers=zigzag(0) + b"\x00\x00"), 1),
    "varint of six bytes": raw_batch(b"\x80\x80\x80\x80\x80\x00" + bytes(20), 1),
    "timestamp varint of eleven bytes": raw_batch(zigzag(18) + b"\x00" + b"\x80" * 11 + bytes(6), 1),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_records_that_do_not_add_up_are_refused(name):
    data = MALFORMED[name]
    assert kernel.check_crc(data)
    assert kernel.check_records(exact(data))[0] == kernel.BAD_STRUCTURE


def test_every_truncation_of_the_records_is_refused():
    data = sample()
    for cut in range(HEADER, len(data)):
        torn = bytearray(data[:cut])
        struct.pack_into(">i", torn, 8, cut - 12)
        assert kernel.check_records(exact(torn))[0] == kernel.BAD_STRUCTURE


def agrees_with_reference(data):
    """Whether kernel and reference say the same of a whole batch's records; returns the kernel's status."""
    status, _, _, _ = kernel.check_records(exact(data))
    header = reference.parse_header(data)
    try:
        # The kernel's own rules for a produced batch, on top of what the reference parses.
        assert 0 < header["record_count"] <= (len(data) - HEADER) // 7
        assert header["last_offset_delta"] == header["record_count"] - 1
        records = reference.parse_records(data[HEADER:], header["record_count"])
        assert [record[1] for record in records] == list(range(len(records)))
        expected = kernel.OK
    except (AssertionError, ValueError):
        expected = kernel.BAD_STRUCTURE
    assert status == expected, data.hex()
    return status


def test_random_flips_behind_a_refreshed_crc_agree_with_the_reference():
    rng = random.Random(6)
    data = sample(4)
    seen = set()
    for _ in range(4000):
        broken = bytearray(data)
        for _ in range(rng.randrange(1, 4)):
            broken[rng.randrange(HEADER - 4, len(broken))] ^= 1 << rng.randrange(8)
        kernel.refresh_crc(broken)
        seen.add(agrees_with_reference(bytes(broken)))
    assert seen == {kernel.OK, kernel.BAD_STRUCTURE}


def test_noise_for_records_agrees_with_the_reference():
    rng = random.Random(7)
    for _ in range(3000):
        count = rng.randrange(1, 4)
        payload = bytes(
            rng.choice((0, 0, 1, 2, 2, 4, 12, 14, 16, rng.randrange(256))) for _ in range(rng.randrange(7, 40))
        )
        agrees_with_reference(raw_batch(payload, count))


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(-1, 2**62),
            st.none() | st.binary(max_size=200),
            st.none() | st.binary(max_size=200),
            st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=3),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_what_the_builder_makes_passes_and_agrees(records):
    data = built(records)
    assert agrees_with_reference(data) == kernel.OK
    assert kernel.check_crc(data)
    parsed = reference.parse_records(data[HEADER:], len(records))
    base = reference.parse_header(data)["base_timestamp"]
    assert [
        (base + delta, key, value, [(name.decode(), content) for name, content in headers])
        for delta, _, key, value, headers in parsed
    ] == records
