"""The cleaner's key map against a dict, its bounds, and the hash against its authors' vectors."""

from __future__ import annotations

import random

import pytest

from kafkapy._speedups.log.offset_map import OffsetMap, siphash128

SLOT = 24


def test_siphash_gives_its_published_vectors() -> None:
    key = bytes(range(16))
    assert siphash128(key, b"").hex() == "a3817f04ba25a8e66df67214c7550293"
    assert siphash128(key, b"\0").hex() == "da87c1d86b99af44347659119b22fc45"
    with pytest.raises(ValueError, match="16 bytes"):
        siphash128(b"short", b"")


def test_it_holds_what_a_dict_holds() -> None:
    rng = random.Random(5)
    keys = OffsetMap(20_000 * SLOT)
    keys.reset(10_000)
    model: dict[bytes, int] = {}
    for offset in range(30_000):
        key = rng.randbytes(rng.randrange(5)) + b"%d" % rng.randrange(7000)
        if len(model) < 9_000 or key in model:
            assert keys.put(key, offset)
            model[key] = offset
    assert len(keys) == len(model)
    assert all(keys.get(key) == offset for key, offset in model.items())
    assert keys.get(b"never put") == -1


def test_a_full_map_takes_known_keys_only() -> None:
    keys = OffsetMap(100 * SLOT, 0.5)
    assert not keys.put(b"early", 1)  # no table before the first reset
    assert keys.get(b"early") == -1
    keys.reset()
    taken = [number for number in range(80) if keys.put(b"%d" % number, number)]
    assert taken == list(range(50)) == list(range(keys.max_entries))
    assert keys.put(b"7", 99) and keys.get(b"7") == 99
    assert keys.get(b"77") == -1


def test_memory_is_bounded_and_follows_what_is_needed() -> None:
    keys = OffsetMap(1 << 20)
    keys.reset(10)
    small = keys.memory_bytes
    keys.reset(1 << 40)
    assert small < keys.memory_bytes <= 1 << 20
    keys.put(b"k", 1)
    keys.reset(10)
    assert (len(keys), keys.get(b"k"), keys.memory_bytes) == (0, -1, small)
    for wrong in (0.0, 1.0, -1.0):
        with pytest.raises(ValueError, match="load factor"):
            OffsetMap(1 << 20, wrong)
    with pytest.raises(ValueError, match="no entry"):
        OffsetMap(10)
