"""Building batches: sizes, offsets, timestamps, what is refused, and the round trip through decoder and reference."""

import importlib.util
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkapy._speedups.records import record_batch
from kafkapy._speedups.records.batch_builder import RecordBatchBuilder, replace_payload
from kafkapy._speedups.records.memory_records import Record, iter_batches

_PATH = Path(__file__).parents[2] / "reference" / "record_batch.py"
_SPEC = importlib.util.spec_from_file_location("reference_record_batch", _PATH)
reference = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(reference)


def built(count=3, base_offset=0, **fields):
    builder = RecordBatchBuilder(base_offset=base_offset)
    for i in range(count):
        builder.append(1000 + i, b"k%d" % i if i % 2 else None, b"v" * (i * 30), [("h", b"x"), ("n", None)][: i % 3])
    return builder.build(**fields)


def only(data):
    (batch,) = iter_batches(data)
    return batch


def test_a_builder_says_no_at_its_size_and_the_size_is_exact():
    builder = RecordBatchBuilder(200)
    assert (len(builder), builder.size, builder.max_timestamp) == (0, 61, -1)
    sizes = [61]
    while builder.append(5, b"k", b"v" * 10) is not None:
        sizes.append(builder.size)
        assert builder.size == len(builder.build())
    assert sizes == [61 + 18 * i for i in range(8)]
    assert builder.build() == builder.build()
    assert len(only(builder.build()).decode()) == len(builder) == 7


def test_the_first_record_is_taken_whatever_its_size():
    builder = RecordBatchBuilder(100)
    assert builder.append(1, None, bytes(1000)) == 0
    assert builder.append(1, None, b"") is None
    assert only(builder.build()).decode()[0].value == bytes(1000)


def test_offsets_may_have_gaps_but_must_rise():
    builder = RecordBatchBuilder(base_offset=10)
    assert builder.append(1, None, None) == 10
    assert builder.append(1, None, None, offset=15) == 15
    assert builder.next_offset == 16
    for bad in (15, 9, 10 + 2**31):
        with pytest.raises(ValueError):
            builder.append(1, None, None, offset=bad)
    batch = only(builder.build(last_offset=20))
    assert [r.offset for r in batch.decode()] == [10, 15]
    assert (batch.last_offset, batch.record_count) == (20, 2)
    with pytest.raises(ValueError):
        builder.build(last_offset=14)


def test_a_batch_emptied_by_compaction_keeps_its_last_offset():
    builder = RecordBatchBuilder(base_offset=10)
    with pytest.raises(ValueError):
        builder.build()
    batch = only(builder.build(last_offset=12, producer_id=4, producer_epoch=0, base_sequence=0))
    assert (batch.record_count, batch.last_offset, batch.last_sequence) == (0, 12, 2)
    assert batch.decode() == []


def test_the_delete_horizon_is_the_base_timestamp():
    builder = RecordBatchBuilder(delete_horizon_ms=5_000_000)
    builder.append(1000, b"k", None)
    batch = only(builder.build())
    assert batch.delete_horizon_ms == batch.base_timestamp == 5_000_000
    assert batch.decode()[0].timestamp == 1000


def test_the_place_of_the_max_timestamp_is_known():
    builder = RecordBatchBuilder(base_offset=3)
    assert builder.offset_of_max_timestamp == -1
    for timestamp in (5, 9, 9, 2):
        builder.append(timestamp, None, None)
    assert (builder.max_timestamp, builder.offset_of_max_timestamp) == (9, 4)


def test_records_without_timestamps():
    builder = RecordBatchBuilder()
    builder.append(-1, None, b"v")
    batch = only(builder.build())
    assert (batch.base_timestamp, batch.max_timestamp, batch.decode()[0].timestamp) == (-1, -1, -1)


@pytest.mark.parametrize(
    ("error", "arguments", "fields"),
    [
        (ValueError, (-2, None, None), {}),
        (TypeError, (1, "text", None), {}),
        (TypeError, (1, None, None, [(b"bytes", b"")]), {}),
        (TypeError, (1, None, None, [("a", 7)]), {}),
        (ValueError, (1, None, None), {"codec": 5, "compressed": b""}),
        (ValueError, (1, None, None), {"codec": 1}),
        (ValueError, (1, None, None), {"compressed": b""}),
        (ValueError, (1, None, None), {"producer_epoch": 2**15}),
        (ValueError, (1, None, None), {"base_sequence": 2**31}),
        (ValueError, (1, None, None), {"producer_id": -2}),
    ],
)
def test_arguments_that_make_no_batch(error, arguments, fields):
    builder = RecordBatchBuilder()
    with pytest.raises(error):
        builder.append(*arguments)
        builder.build(**fields)


def test_a_failed_append_leaves_the_builder_as_it_was():
    builder = RecordBatchBuilder()
    builder.append(1, b"a", b"b")
    before = builder.build()
    with pytest.raises(TypeError):
        builder.append(1, None, None, [("fine", b"x"), ("bad", 3)])
    assert builder.build() == before


def test_big_records():
    value = random.Random(10).randbytes(3_000_000)
    builder = RecordBatchBuilder()
    builder.append(1, value[:100_000], value, [("big", value[:500_000])])
    (record,) = only(builder.build()).decode()
    assert (record.key, record.value, record.headers) == (value[:100_000], value, (("big", value[:500_000]),))


def test_replacing_the_payload_keeps_everything_else():
    data = built(3, 8, producer_id=4, producer_epoch=1, base_sequence=7, transactional=True, leader_epoch=2)
    batch = only(data)
    assert replace_payload(batch, batch.payload(), codec=0) == data
    other = only(replace_payload(batch, b"", codec=3, log_append_time=99))
    assert (other.codec, other.timestamp_type, other.max_timestamp, other.is_transactional) == (3, 1, 99, True)
    assert (other.base_offset, other.producer_id, other.base_sequence, other.record_count) == (8, 4, 7, 3)
    assert other.is_valid()
    for codec in (-1, 5):
        with pytest.raises(ValueError):
            replace_payload(batch, b"", codec=codec)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(-1, 2**62),
            st.none() | st.binary(max_size=100),
            st.none() | st.binary(max_size=100),
            st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=3),
        ),
        min_size=1,
        max_size=8,
    ),
    st.integers(0, 2**62),
    st.booleans(),
)
def test_round_trip(records, base_offset, control):
    builder = RecordBatchBuilder(base_offset=base_offset)
    for record in records:
        builder.append(*record)
    data = builder.build(control=control)
    batch = only(data)
    assert batch.is_valid()
    assert batch.is_control == control
    assert batch.decode() == [Record(base_offset + i, t, 0, k, v, h) for i, (t, k, v, h) in enumerate(records)]
    assert record_batch.parse_header(data)[1] == reference.parse_header(data)
