"""The declaration language: versions, nulls, defaults, tags, and what instances are like."""

from __future__ import annotations

import random
import subprocess
import sys
import tracemalloc
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from kafkapy.protocol.messages.fetch import FetchResponse
from kafkapy.protocol.schema import (
    ZERO_UUID,
    DecodeError,
    EncodeError,
    Record,
    Request,
    Struct,
    VersionRange,
    array,
    boolean,
    bytes_,
    float64,
    int8,
    int16,
    int32,
    int64,
    records,
    string,
    struct,
    uint16,
    uint32,
    uuid,
)


class Kinds(Record, versions="0-1", flexible="1+"):
    """One field of every type."""

    class Inner(Struct):
        name: str = string()

    flag: bool = boolean()
    tiny: int = int8()
    small: int = int16()
    port: int = uint16()
    medium: int = int32()
    crc: int = uint32()
    big: int = int64()
    ratio: float = float64()
    topic_id: UUID = uuid()
    text: str | None = string(nullable="0+")
    blob: bytes | None = bytes_(nullable="0+")
    batches: bytes | memoryview | None = records()
    numbers: list[int] | None = array(int32, nullable="0+")
    names: list[str] = array(string)
    inner: Inner | None = struct(Inner, nullable="0+")
    inners: list[Inner] = array(Inner)


FIXED = 46
"""Bytes of the fields before `text`."""


class Versioned(Request, key=1000, versions="0-9", flexible="6+"):
    """Fields that come, go, turn nullable and are tagged."""

    class Position(Struct):
        offset: int = int64(default=-1)
        epoch: int = int32(default=-1)

    always: int = int32()
    later: int = int32("2+", default=7)
    between: int = int32("2-4", default=0)
    lenient: int = int32("5+", default=-1, ignorable=True)
    name: str | None = string("1+", nullable="3+", default="")
    rack: str | None = string("6+", nullable="6+", default=None, tag=1)
    position: Position = struct(Position, "7+", default_factory=Position, tag=0)
    hops: list[int] = array(int32, "6+", default=[], tag=3)
    mixed: int = int32("4+", default=5, tag=4, tagged="8+")
    maybe: Position | None = struct(Position, "6+", nullable="6+", default=None, tag=9)


def test_every_type_on_the_wire():
    message = Kinds(
        flag=True,
        tiny=-1,
        small=-2,
        port=65535,
        medium=-3,
        crc=0xFFFFFFFF,
        big=-4,
        ratio=1.5,
        topic_id=UUID(int=1),
        text="é",
        blob=b"b",
        batches=b"rr",
        numbers=[1, -1],
        names=["x"],
        inner=Kinds.Inner(name="i"),
        inners=[Kinds.Inner(name="j")],
    )
    fixed = "01 ff fffe ffff fffffffd ffffffff fffffffffffffffc 3ff8000000000000 00000000000000000000000000000001"
    plain = (
        f"{fixed} 0002c3a9 0000000162 000000027272 00000002 00000001 ffffffff00000001 000178 01 000169 00000001 00016a"
    )
    compact = f"{fixed} 03c3a9 0262 037272 03 00000001 ffffffff 02 0278 01 0269 00 02 026a 00 00"
    assert message.encode(0).hex() == bytes.fromhex(plain).hex()
    assert message.encode(1).hex() == bytes.fromhex(compact).hex()
    assert Kinds.decode(message.encode(0), 0) == message == Kinds.decode(message.encode(1), 1)


def test_nulls_on_the_wire():
    message = Kinds(text=None, blob=None, batches=None, numbers=None, inner=None)
    tail = message.encode(0)[FIXED:]
    assert tail == bytes.fromhex("ffff ffffffff ffffffff ffffffff 00000000 ff 00000000")
    assert message.encode(1)[FIXED:] == bytes.fromhex("00 00 00 00 01 ff 01 00")
    assert Kinds.decode(message.encode(1), 1) == message


def test_fields_have_zero_defaults():
    message = Kinds()
    assert message.flag is False
    assert (message.tiny, message.ratio, message.text, message.blob) == (0, 0.0, "", b"")
    assert message.topic_id is ZERO_UUID
    assert (message.numbers, message.inner, message.inners) == ([], None, [])


def test_lists_and_structs_are_not_shared_between_instances():
    first, second = Versioned(), Versioned()
    first.hops.append(1)
    first.position.offset = 5
    assert second.hops == []
    assert second.position == Versioned.Position(offset=-1)
    assert Versioned.decode(second.encode(9), 9).hops is not Versioned.decode(second.encode(9), 9).hops


def test_the_zero_uuid_is_one_object_and_16_bytes_encode_too():
    known = uuid4()
    assert Kinds.decode(Kinds().encode(1), 1).topic_id is ZERO_UUID
    decoded = Kinds.decode(Kinds(topic_id=known).encode(1), 1).topic_id
    assert decoded == known and hash(decoded) == hash(known) and str(decoded) == str(known)
    assert decoded.is_safe == known.is_safe and decoded.bytes == known.bytes
    assert Kinds(topic_id=known.bytes).encode(1) == Kinds(topic_id=known).encode(1)
    with pytest.raises(EncodeError, match=r"topic_id: a uuid\.UUID is needed"):
        Kinds(topic_id=b"short").encode(1)


def test_absent_fields_take_their_defaults():
    decoded = Versioned.decode(Versioned(always=1, later=9, between=3, lenient=4).encode(2), 2)
    assert (decoded.always, decoded.later, decoded.between, decoded.lenient) == (1, 9, 3, -1)
    decoded = Versioned.decode(Versioned(always=1).encode(0), 0)
    assert (decoded.later, decoded.name, decoded.rack, decoded.mixed) == (7, "", None, 5)
    assert decoded.position == Versioned.Position()


def test_a_value_that_the_version_cannot_carry_is_refused_unless_ignorable():
    with pytest.raises(EncodeError, match="later: this version has no such field, so it cannot carry 9"):
        Versioned(always=1, later=9).encode(1)
    with pytest.raises(EncodeError, match="rack"):
        Versioned(rack="r").encode(5)
    with pytest.raises(EncodeError, match="position"):
        Versioned(position=Versioned.Position(offset=3)).encode(6)
    with pytest.raises(EncodeError, match="hops"):
        Versioned(hops=[1]).encode(0)
    assert Versioned(always=1, lenient=3).encode(1) == Versioned(always=1).encode(1)


def test_null_is_refused_where_the_version_does_not_allow_it():
    with pytest.raises(EncodeError, match="version 2: name: null"):
        Versioned(name=None).encode(2)
    assert Versioned.decode(Versioned(name=None).encode(3), 3).name is None
    wire = Versioned(name="").encode(2)
    assert wire[-2:] == b"\x00\x00"
    with pytest.raises(DecodeError, match="name at byte 12: null in a field that cannot be null"):
        Versioned.decode(wire[:-2] + b"\xff\xff", 2)
    with pytest.raises(DecodeError, match="a length of -2"):
        Versioned.decode(wire[:-2] + b"\xff\xfe", 2)


def test_defaults_are_left_out_of_the_tagged_section():
    assert Versioned(always=1).encode(9).endswith(b"\x00")
    message = Versioned(always=1, rack="r", position=Versioned.Position(offset=2), hops=[], mixed=6)
    wire = message.encode(9)
    # always, later, lenient, name; then the tags 0, 1 and 4 in this order
    position = "00 0d 0000000000000002 ffffffff 00"
    assert wire.hex() == bytes.fromhex(f"00000001 00000007 ffffffff 01 03 {position} 01 02 0272 04 04 00000006").hex()
    assert Versioned.decode(wire, 9) == message


def test_a_field_may_be_positional_in_some_versions_and_tagged_in_later_ones():
    message = Versioned(always=1, mixed=6)
    assert len(message.encode(7)) == len(Versioned(always=1).encode(7))
    assert len(message.encode(8)) > len(Versioned(always=1).encode(8))
    for version in range(4, 10):
        assert Versioned.decode(message.encode(version), version).mixed == 6


def test_a_nullable_struct_in_the_tagged_section():
    message = Versioned(always=1, maybe=Versioned.Position(offset=3, epoch=4))
    wire = message.encode(9)
    assert wire.endswith(bytes.fromhex("01 09 0e 01 0000000000000003 00000004 00"))
    assert Versioned.decode(wire, 9) == message
    null = wire[: -len("0e01000000000000000300000004 00".replace(" ", "")) // 2] + b"\x01\x00"
    assert Versioned.decode(null, 9).maybe is None


def test_unknown_tags_survive_in_order():
    wire = Versioned(always=1, rack="r").encode(9)
    assert wire.endswith(bytes.fromhex("01 01 02 0272"))
    grown = wire[:-5] + bytes.fromhex("03 01 02 0272 02 01 aa 64 02 bbcc")
    decoded = Versioned.decode(grown, 9)
    assert decoded._unknown_tags == {2: b"\xaa", 100: b"\xbb\xcc"}
    assert decoded.rack == "r"
    assert decoded.encode(9) == grown
    assert decoded != Versioned.decode(wire, 9)
    with pytest.raises(EncodeError, match="version 5 has no tagged fields"):
        decoded.encode(5)
    decoded._unknown_tags = {1: b""}
    with pytest.raises(EncodeError, match="tag 1 is in _unknown_tags too"):
        decoded.encode(9)


def test_a_tagged_field_must_fill_its_size():
    wire = Versioned(always=1, rack="r").encode(9)
    with pytest.raises(DecodeError, match="leaves 1 of the 3 bytes"):
        Versioned.decode(wire[:-3] + bytes.fromhex("03 0272 00"), 9)
    with pytest.raises(DecodeError, match="rack"):
        Versioned.decode(wire[:-3] + bytes.fromhex("01 0272"), 9)


def test_a_tagged_section_longer_than_127_bytes():
    message = Versioned(always=1, rack="r" * 300, hops=list(range(5000)))
    assert Versioned.decode(message.encode(9), 9) == message


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"tiny": 128}, "tiny: 128 is outside -128 to 127"),
        ({"small": -32769}, "small: -32769 is outside"),
        ({"port": -1}, "port: -1 is outside 0 to 65535"),
        ({"medium": 1 << 31}, "medium: 2147483648 is outside"),
        ({"crc": 1 << 32}, "crc: 4294967296 is outside"),
        ({"big": 1 << 63}, "big: 9223372036854775808 is outside"),
        ({"big": 1 << 200}, "big: .* is outside"),
        ({"medium": 1.5}, "medium: an integer is needed"),
        ({"medium": None}, "medium: an integer is needed"),
        ({"ratio": "x"}, "ratio: a number is needed"),
        ({"text": b"x"}, "text: a string is needed"),
        ({"text": "x" * 32768}, "text: a string of 32768 bytes"),
        ({"text": "\ud800"}, "text: the string has lone surrogates"),
        ({"blob": "x"}, "blob: a bytes-like object is needed"),
        ({"names": "abc"}, "names: a list is needed"),
        ({"names": 3}, "names: a list is needed"),
        ({"names": [None]}, "names: null"),
        ({"inners": [None]}, r"a Kinds\.Inner is needed, not None"),
        ({"inners": [object()]}, r"a Kinds\.Inner is needed"),
        ({"inner": Versioned()}, r"a Kinds\.Inner is needed"),
    ],
)
def test_values_that_do_not_fit_are_encode_errors(values, why):
    for version in (0, 1):
        with pytest.raises(EncodeError, match=why):
            Kinds(**values).encode(version)


def test_errors_are_value_errors():
    assert issubclass(DecodeError, ValueError)
    assert issubclass(EncodeError, ValueError)


def test_tuples_and_any_buffer_encode():
    message = Kinds(numbers=(1, 2), blob=bytearray(b"x"), batches=memoryview(b"y"))
    assert Kinds.decode(message.encode(1), 1).numbers == [1, 2]
    assert Kinds.decode(message.encode(1), 1) == Kinds(numbers=[1, 2], blob=b"x", batches=b"y")


def test_any_buffer_decodes_and_records_are_views_of_it():
    wire = Kinds(batches=b"records", blob=b"copied").encode(1)
    source = bytearray(wire)
    for data in (wire, source, memoryview(source), memoryview(wire)):
        decoded = Kinds.decode(data, 1)
        assert isinstance(decoded.batches, memoryview)
        assert decoded.batches == b"records"
        assert type(decoded.blob) is bytes
    decoded = Kinds.decode(source, 1)
    source[source.index(b"records")] = ord("R")
    assert decoded.batches == b"Records"
    assert decoded.blob == b"copied"
    with pytest.raises(TypeError):
        Kinds.decode("text", 1)


def test_a_string_that_is_not_utf_8_is_a_decode_error():
    wire = Versioned(name="abc").encode(3).replace(b"abc", b"a\xff\xfe")
    with pytest.raises(DecodeError, match="name at byte 12: not UTF-8"):
        Versioned.decode(wire, 3)


def test_decode_from_the_middle_says_where_it_ended():
    wire = Versioned(always=1).encode(9)
    message, end = Versioned.decode_from(b"xx" + wire + b"yy", 2, 9)
    assert message == Versioned(always=1)
    assert end == 2 + len(wire)
    for offset in (-1, 100):
        with pytest.raises(DecodeError, match="offset"):
            Versioned.decode_from(wire, offset, 9)


def test_errors_name_the_struct_and_the_field():
    inner = Kinds(inners=[Kinds.Inner(name="long name")]).encode(1)
    with pytest.raises(DecodeError, match=r"Kinds\.Inner version 1: name at byte \d+: 10|9 bytes are said to follow"):
        Kinds.decode(inner[:-6], 1)


def test_constructor_refuses_unknown_names():
    with pytest.raises(TypeError, match="Versioned has no field 'alway'"):
        Versioned(alway=1)
    with pytest.raises(TypeError):
        Versioned(1)


def test_instances_have_no_room_for_other_attributes():
    with pytest.raises(AttributeError):
        Versioned().typo = 1


def test_a_deleted_attribute_is_an_encode_error():
    message = Versioned()
    del message.always
    with pytest.raises(EncodeError, match="always: the attribute was deleted"):
        message.encode(0)
    assert "always" not in repr(message)
    assert message != Versioned()


def test_equality_is_by_type_and_value():
    assert Versioned(always=1) == Versioned(always=1)
    assert Versioned(always=1) != Versioned(always=2)
    assert Versioned.Position() != Kinds.Inner()
    assert Versioned() != "x"
    with pytest.raises(TypeError, match="unhashable"):
        hash(Versioned())


def test_repr_is_readable_and_bounded():
    message = Kinds(text="t", inners=[Kinds.Inner(name="i")], blob=b"x" * 1000, batches=b"y" * 65)
    shown = repr(message)
    assert "text='t'" in shown and "inners=[Kinds.Inner(name='i')]" in shown
    assert "blob=<1000 bytes>" in shown and "batches=<65 bytes>" in shown
    assert "batches=<2 bytes>" in repr(Kinds.decode(Kinds(batches=b"yy").encode(1), 1))


def test_versioned_records_carry_their_version():
    record = Kinds(text="x")
    wire = record.encode_versioned(1)
    assert wire == b"\x00\x01" + record.encode(1)
    assert Kinds.decode_versioned(wire) == (1, record)
    with pytest.raises(DecodeError, match="left over"):
        Kinds.decode_versioned(wire + b"\x00")
    with pytest.raises(DecodeError, match="no version 7"):
        Kinds.decode_versioned(b"\x00\x07" + wire[2:])
    assert Kinds.decode_versioned(b"\x00\x07" + wire[2:] + b"new", newer_as_newest=True) == (7, record)
    with pytest.raises(DecodeError, match="1 bytes cannot hold a version"):
        Kinds.decode_versioned(b"\x00")


@pytest.mark.parametrize("version", [0, 1])
def test_a_lying_count_is_refused_before_anything_is_allocated(version):
    prefix = Kinds(text="", blob=b"", batches=b"").encode(version)
    numbers_at = FIXED + (2 + 4 + 4 if version == 0 else 3)
    for count in (100, 0x7FFFFFFF):
        lie = count.to_bytes(4, "big") if version == 0 else varint(count + 1)
        hostile = prefix[:numbers_at] + lie + b"\x01" * 200
        tracemalloc.start()
        try:
            with pytest.raises(DecodeError, match=f"numbers at byte {numbers_at}: {count} elements are said to follow"):
                Kinds.decode(hostile, version)
            assert tracemalloc.get_traced_memory()[1] < 20_000
        finally:
            tracemalloc.stop()


def test_a_count_that_the_bytes_could_hold_does_not_allocate_for_what_is_not_there():
    elements = 2_000_000
    hostile = bytes(FIXED) + bytes.fromhex("0000 00000000 ffffffff 00000000") + elements.to_bytes(4, "big")
    hostile += b"\xff\xff" + bytes(2 * elements)
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError, match="names at byte 64: null"):
            Kinds.decode(hostile, 0)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_a_lying_length_of_bytes_is_refused_before_anything_is_allocated():
    wire = Kinds(blob=b"").encode(0)
    hostile = wire[:48] + (0x7FFFFFF0).to_bytes(4, "big") + wire[52:]
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError, match="blob at byte 48: 2147483632 bytes are said to follow"):
            Kinds.decode(hostile, 0)
        assert tracemalloc.get_traced_memory()[1] < 20_000
    finally:
        tracemalloc.stop()


def test_a_list_that_shrinks_while_it_is_encoded_is_an_encode_error():
    class Shrinks:
        def __index__(self) -> int:
            numbers.clear()
            return 1

    numbers = [Shrinks(), 2, 3]
    with pytest.raises(EncodeError, match="the list changed"):
        Kinds(numbers=numbers).encode(0)


def test_decoding_leaks_nothing():
    wire = Kinds(text="x" * 50, names=["a"] * 20, inner=Kinds.Inner(name="n"), topic_id=uuid4()).encode(1)
    rng = random.Random(3)
    cuts = [rng.randrange(len(wire)) for _ in range(50)]

    def work() -> None:
        for _ in range(100):
            Kinds.decode(wire, 1).encode(1)
            for cut in cuts:
                try:
                    Kinds.decode(wire[:cut], 1)
                except DecodeError:
                    pass

    work()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        work()
        assert tracemalloc.get_traced_memory()[0] - before < 10_000
    finally:
        tracemalloc.stop()


def test_bad_declarations_are_refused():
    with pytest.raises(TypeError, match="its own type"):
        struct(Kinds.Inner, default_factory=Versioned.Position)
    with pytest.raises(TypeError, match="needs nullable versions"):
        string(default=None)
    with pytest.raises(TypeError, match="tagged versions need a tag"):
        int32(tagged="1+")
    with pytest.raises(TypeError, match="same tag"):

        class Twice(Struct):
            one: int = int32(tag=0)
            two: int = int32(tag=0)

    with pytest.raises(TypeError, match="cannot be extended"):

        class Extended(Versioned.Position):
            more: int = int32()


@pytest.mark.parametrize(
    ("text", "low", "high"), [("0+", 0, 0x7FFF), ("2-4", 2, 4), ("3", 3, 3), (None, 0, -1), ("10+", 10, 0x7FFF)]
)
def test_version_ranges(text, low, high):
    parsed = VersionRange.parse(text)
    assert (parsed.low, parsed.high) == (low, high)
    assert str(parsed) == (text or "none")
    assert (low in parsed) == (text is not None)
    assert high + 1 not in parsed
    with pytest.raises(ValueError):
        VersionRange.parse("x")


def test_constructors_are_type_checked(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "from kafkapy.protocol.messages.heartbeat import HeartbeatRequest\n"
        "good = HeartbeatRequest(group_id='g', generation_id=1, member_id='m')\n"
        "reveal_type(good.group_instance_id)\n"
        "HeartbeatRequest(group_id=1, generation_id=1, member_id='m')\n"
        "HeartbeatRequest(group_id='g', generation_id=1)\n"
        "HeartbeatRequest(group_id='g', generation_id=1, member_id='m', typo=1)\n"
    )
    root = Path(__file__).parent.parent.parent
    result = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", str(program)],  # with the cache that `make lint` has left
        capture_output=True,
        text=True,
        cwd=root,
    )
    lines = [line for line in result.stdout.splitlines() if '" defined in "' not in line]
    assert len(lines) == 4, result.stdout + result.stderr
    assert 'Revealed type is "str | None"' in lines[0] or "Union[builtins.str, None]" in lines[0]
    assert 'Argument "group_id"' in lines[1]
    assert 'Missing named argument "member_id"' in lines[2]
    assert 'Unexpected keyword argument "typo"' in lines[3]


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def test_fetch_response_defaults_are_those_of_the_protocol():
    partition = FetchResponse.TopicResponse.Partition(partition_index=0, high_watermark=5, records=b"")
    assert partition.diverging_epoch == FetchResponse.TopicResponse.Partition.EpochEndOffset(epoch=-1, end_offset=-1)
    assert partition.preferred_read_replica == -1
    assert partition.aborted_transactions == []
