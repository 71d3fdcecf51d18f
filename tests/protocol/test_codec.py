"""What the codec makes of good bytes, of bad bytes and of bad values, for every declared message in every version."""

from __future__ import annotations

import copy
import pickle
import random
import tracemalloc
import zlib

import pytest

from kafkapy.protocol.schema import DecodeError, EncodeError


def seed(cls, version):
    return random.Random(zlib.crc32(f"{cls.NAME}-{version}".encode()))


def test_every_version_is_byte_identical_to_the_reference_and_survives_the_round_trip(
    message_class, random_message, versions_of, reference
):
    for version in versions_of(message_class):
        rng = seed(message_class, version)
        for _ in range(8):
            message = random_message(message_class, version, rng, unknown_tags=True)
            wire = message.encode(version)
            assert wire == reference.encode(message, version)
            decoded = message_class.decode(wire, version)
            assert decoded == message
            assert decoded == reference.decode(message_class, wire, version)
            assert decoded.encode(version) == wire


def test_truncated_at_every_byte_is_a_decode_error(message_class, random_message, versions_of):
    for version in versions_of(message_class):
        wire = random_message(message_class, version, seed(message_class, version), unknown_tags=True).encode(version)
        for cut in range(0, len(wire), 1 if len(wire) < 400 else 7):
            with pytest.raises(DecodeError):
                message_class.decode(wire[:cut], version)


def test_one_byte_too_many_is_a_decode_error_unless_allowed(message_class, versions_of):
    for version in versions_of(message_class):
        message = message_class()
        wire = message.encode(version) + b"\x00"
        with pytest.raises(DecodeError, match="left over"):
            message_class.decode(wire, version)
        assert message_class.decode(wire, version, exact=False) == message


def test_flipped_bits_are_decoded_or_refused_and_never_take_much_memory(message_class, random_message, versions_of):
    rng = seed(message_class, -1)
    tracemalloc.start()
    try:
        for version in versions_of(message_class):
            wire = random_message(message_class, version, rng, unknown_tags=True).encode(version)
            for _ in range(40):
                hostile = bytearray(wire)
                for _ in range(rng.choice((1, 1, 3)) if wire else 0):
                    hostile[rng.randrange(len(hostile))] ^= 1 << rng.randrange(8)
                try:
                    message_class.decode(bytes(hostile), version)
                except DecodeError:
                    pass
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()


def test_random_bytes_are_decoded_or_refused(message_class, versions_of):
    rng = seed(message_class, -2)
    for version in versions_of(message_class):
        for _ in range(20):
            try:
                message_class.decode(rng.randbytes(rng.randint(0, 60)), version)
            except DecodeError:
                pass


def test_a_version_that_is_not_declared_is_refused(message_class):
    unknown = message_class.VERSIONS.high + 1
    with pytest.raises(DecodeError, match=f"no version {unknown}"):
        message_class.decode(b"", unknown)
    with pytest.raises(EncodeError, match=f"no version {unknown}"):
        message_class().encode(unknown)
    with pytest.raises(DecodeError, match="no version -1"):
        message_class.decode(b"", -1)


def test_copies_and_pickles_are_equal_and_apart(message_class, random_message):
    message = random_message(message_class, message_class.VERSIONS.high, random.Random(1), unknown_tags=True)
    for other in (copy.copy(message), copy.deepcopy(message), pickle.loads(pickle.dumps(message))):
        assert other == message
        assert other is not message
