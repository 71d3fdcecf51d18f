"""The checked cursor: every primitive type round-trips, and no length or truncation gets past the end."""

import array
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkapy._speedups.testing import primitives

INTEGERS = {
    "b": (-(2**7), 2**7 - 1),
    "h": (-(2**15), 2**15 - 1),
    "i": (-(2**31), 2**31 - 1),
    "q": (-(2**63), 2**63 - 1),
    "u": (0, 2**32 - 1),
    "U": (0, 2**64 - 1),
    "v": (-(2**31), 2**31 - 1),
    "V": (-(2**63), 2**63 - 1),
}
VALUES = {kind: st.integers(*bounds) for kind, bounds in INTEGERS.items()} | {
    "s": st.none() | st.binary(max_size=300),
    "S": st.none() | st.binary(max_size=300),
}


def exact(data):
    """The bytes in an allocation of just their size, so that a sanitizer sees a read past the end."""
    return array.array("B", data)


@st.composite
def plans(draw):
    plan = draw(st.text(alphabet="".join(VALUES), max_size=12))
    return plan, [draw(VALUES[kind]) for kind in plan]


@settings(max_examples=300, deadline=None)
@given(plans())
def test_what_is_written_is_read_again_and_every_truncation_is_refused(case):
    plan, values = case
    data = primitives.write(plan, values)
    assert primitives.read(exact(data), plan) == (values, len(data))
    for cut in range(len(data)):
        with pytest.raises(ValueError):
            primitives.read(exact(data[:cut]), plan)


@pytest.mark.parametrize("kind", INTEGERS)
def test_the_ends_of_every_integer_type(kind):
    for value in (*INTEGERS[kind], 0, 1):
        data = primitives.write(kind, [value])
        assert primitives.read(data, kind) == ([value], len(data))
    low, high = INTEGERS[kind]
    for value in (low - 1, high + 1):
        with pytest.raises(OverflowError):
            primitives.write(kind, [value])


def test_the_bytes_of_known_values():
    assert primitives.write("hiq", [1, -2, 3]) == bytes.fromhex("0001fffffffe0000000000000003")
    assert primitives.write("uuv", [300, 127, -1]) == bytes.fromhex("ac027f01")
    assert primitives.write("V", [-(2**63)]) == b"\xff" * 9 + b"\x01"
    assert primitives.write("sSs", [b"ab", b"ab", None]) == bytes.fromhex("00026162036162ffff")
    assert primitives.write("aAA", [2, 2, -1]) == bytes.fromhex("000000020300")
    assert primitives.read(bytes.fromhex("ffffffff"), "I") == ([2**32 - 1], 4)


@pytest.mark.parametrize(
    ("plan", "data"),
    [
        ("u", "8080808080"),  # never ends in five bytes
        ("u", "ffffffff1f"),  # 33 bits
        ("u", "ffffffffff01"),
        ("v", "ffffffff7f"),
        ("U", "80808080808080808080"),
        ("U", "ffffffffffffffffff02"),  # 65 bits
        ("V", "ffffffffffffffffff7f"),
        ("s", "fffe"),  # -2
        ("s", "0003ffff"),
        ("S", "ffffffff0f"),
        ("S", "818002" + "00" * 8),
        ("y", "7fffffff00"),
        ("y", "80000000"),
        ("Y", "ffffffff0f0000"),
        ("a", "7fffffff00000000"),
        ("a", "fffffffe"),
        ("A", "ffffffff0f"),
        ("A", "03" + "00"),
        ("t", "01"),
        ("t", "0100ffffffff0f00"),
        ("t", "ffffffff0f"),
    ],
)
def test_lying_lengths_and_overlong_varints_are_refused(plan, data):
    with pytest.raises(ValueError):
        primitives.read(exact(bytes.fromhex(data)), plan)


def test_tagged_fields_are_skipped_to_their_end():
    # two fields: tag 0 with 2 bytes, tag 5 with none
    assert primitives.read(bytes.fromhex("020002aabb0500" + "07"), "tb") == ([None, 7], 8)


def test_null_and_empty_are_told_apart():
    assert primitives.read(bytes.fromhex("ffffffff00000000" + "0001"), "yyYY") == ([None, b"", None, b""], 10)
    assert primitives.read(bytes.fromhex("ffff000000ff"), "ss")[0] == [None, b""]


def test_random_bytes_never_read_past_the_end():
    rng = random.Random(5)
    kinds = "bhiqIuUvVsSyYaAt"
    for _ in range(4000):
        data = exact(rng.randbytes(rng.randrange(24)))
        plan = "".join(rng.choices(kinds, k=rng.randrange(1, 8)))
        try:
            _, consumed = primitives.read(data, plan)
        except ValueError:
            continue
        assert consumed <= len(data)


def test_a_plan_must_be_known_and_match():
    with pytest.raises(ValueError):
        primitives.read(b"\0", "?")
    with pytest.raises(ValueError):
        primitives.write("?", [1])
    with pytest.raises(ValueError):
        primitives.write("b", [])
    with pytest.raises(ValueError):
        primitives.write("s", [bytes(40_000)])
