"""Messages of protocol buffers, counted and cut without decoding them."""

from __future__ import annotations

import random

import pytest

from kafkapy._speedups.protocol.protobuf import ROW, count_messages, first_field, whole_fields

pytest.importorskip("google.protobuf", reason="the extra telemetry is not installed")


def row(**children: int) -> bytes:
    """A kind of message: f1=2 has messages of kind 2 at field 1."""
    made = bytearray(ROW)
    for name, kind in children.items():
        made[int(name[1:])] = 1 + kind
    return bytes(made)


TREE = row(f1=0, f2=1) + row()
"""A message of kind 0 has others of kind 0 at field 1, and leaves at field 2."""


def delimited(number: int, content: bytes) -> bytes:
    assert len(content) < 16384
    length = bytes([len(content)]) if len(content) < 128 else bytes([len(content) & 0x7F | 0x80, len(content) >> 7])
    return bytes([number << 3 | 2]) + length + content


def test_messages_are_counted_by_the_shape() -> None:
    assert count_messages(b"", TREE, 10) == 1
    leaf = delimited(2, b"\x08\x96\x01\x11" + bytes(8) + b"\x1d" + bytes(4))
    inner = delimited(1, leaf + leaf + delimited(3, b"\xff\xff"))
    assert count_messages(inner + leaf, TREE, 10) == 5
    assert count_messages(delimited(2, delimited(1, b"\xff")), TREE, 10) == 2, "a leaf has no messages"
    assert count_messages(delimited(1, b"") * 1000, TREE, 10) == 11
    many_kinds = delimited(1, b"") * 3
    assert count_messages(many_kinds, row(f1=0), 10) == 4


def test_a_field_number_beyond_the_shape_is_no_message() -> None:
    assert count_messages(b"\x82\x02\x01\xff", TREE, 10) == 1, "field 32"
    assert count_messages(b"\xfa\xff\xff\xff\xff\xff\xff\xff\xff\x01\x01\xff", TREE, 10) == 1


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a", b"\x0a\x05abc", b"\x09abc", b"\x0d\x00", b"\x08", b"\x08\x80", b"\x0b", b"\x0c", b"\x0e", b"\x0f",
        b"\x00\x00", b"\x02\x00", b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x80" * 11, b"\x0a\x02\x0a\x01",
    ],
    ids=lambda data: data.hex()[:24],
)  # fmt: skip
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="not a message"):
        count_messages(data, TREE, 10)


def test_nesting_is_bounded() -> None:
    data = b""
    for _ in range(99):
        data = delimited(1, data)
    assert count_messages(data, TREE, 1000) == 100
    with pytest.raises(ValueError):
        count_messages(delimited(1, data), TREE, 1000)
    with pytest.raises(ValueError):
        count_messages(data, row(f1=9), 1000)  # a kind that the shape does not have


def test_cuts_are_between_fields() -> None:
    fields = [b"\x08\x05", delimited(2, b"abc"), delimited(3, bytes(300)), b"\x1d" + bytes(4)]
    data = b"".join(fields)
    ends = [sum(map(len, fields[: number + 1])) for number in range(len(fields))]
    assert whole_fields(data, 0, len(data), 1) == ends[0], "at least one"
    assert whole_fields(data, 0, len(data), 6) == ends[0]
    assert whole_fields(data, 0, len(data), 7) == ends[1]
    assert whole_fields(data, 0, len(data), 1000) == len(data)
    assert whole_fields(data, ends[1], len(data), 7) == ends[2]
    assert first_field(data, 0, len(data)) == (1, 0, 1, 2)
    assert first_field(data, ends[0], len(data)) == (2, 2, ends[0] + 2, ends[1])
    assert first_field(data, ends[1], len(data)) == (3, 2, ends[1] + 3, ends[2])


@pytest.mark.parametrize("range_", [(0, 0), (1, 1), (2, 1), (0, 9), (-1, 2), (9, 10)], ids=str)
def test_ranges_outside_are_refused(range_: tuple[int, int]) -> None:
    for call in (lambda: whole_fields(b"\x08\x05", *range_, 10), lambda: first_field(b"\x08\x05", *range_)):
        with pytest.raises(ValueError):
            call()


def test_cut_and_flipped_bytes_are_read_or_refused() -> None:
    leaf = delimited(2, b"\x08\x96\x01\x11" + bytes(8))
    good = delimited(1, delimited(1, leaf * 3) + leaf) + leaf * 3
    chance = random.Random(11)
    spoiled = [good[:end] for end in range(len(good))]
    for _ in range(3000):
        flipped = bytearray(good)
        for _ in range(chance.randrange(1, 4)):
            flipped[chance.randrange(len(flipped))] ^= 1 << chance.randrange(8)
        spoiled.append(bytes(flipped))
    for data in spoiled:
        try:
            found = count_messages(bytes(data), TREE, 100)
        except ValueError:
            continue
        assert 1 <= found <= len(data) // 2 + 1
        at = 0
        while at < len(data):
            cut = whole_fields(data, at, len(data), 5)
            _, _, start, end = first_field(data, at, len(data))
            assert at < start <= end <= cut <= len(data)
            at = cut
