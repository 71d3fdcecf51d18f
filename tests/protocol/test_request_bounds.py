"""What a broker decodes of a request: bounded by more than the bytes that are there."""

from __future__ import annotations

import pytest

from kafkapy._speedups.protocol import codec
from kafkapy._speedups.protocol.codec import DecodeError, decode_request
from kafkapy._speedups.protocol.encoder import EncodeError, encode_response
from kafkapy.protocol.messages.create_topics import CreateTopicsRequest
from kafkapy.protocol.messages.delete_topics import DeleteTopicsRequest
from kafkapy.protocol.messages.heartbeat import HeartbeatRequest

MOST = 1_000_000


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


@pytest.mark.parametrize("patient", (False, True))
def test_a_million_elements_are_taken_and_not_one_more(patient: bool) -> None:
    body = varint(MOST + 1) + b"\1" * MOST + b"\0\0\0\0" + b"\0"
    request, elements = decode_request(DeleteTopicsRequest, body, 4, True, patient)
    assert len(request.topic_names) == elements == MOST
    with pytest.raises(DecodeError, match="1000001 elements, 1000000 at most"):
        decode_request(DeleteTopicsRequest, varint(MOST + 2) + b"\1" * (MOST + 10), 4, True, patient)


def test_ten_thousand_tagged_fields_are_taken_and_not_one_more() -> None:
    def body(count: int) -> bytes:
        tags = b"".join(varint(tag) + b"\0" for tag in range(count))
        return b"\2g" + b"\0\0\0\1" + b"\2m" + b"\0" + varint(count) + tags

    request, _ = decode_request(HeartbeatRequest, body(10_000), 4)
    assert len(request._unknown_tags) == 10_000
    with pytest.raises(DecodeError, match="10001 tagged fields, 10000 at most"):
        decode_request(HeartbeatRequest, body(10_001), 4)


def test_many_small_structs_are_bounded_by_the_memory_that_they_take() -> None:
    """A million topics with a hundred empty assignments each would be some gigabytes."""
    assignment = b"\0\0\0\0" + b"\1" + b"\0"
    topic = b"\2t" + b"\0\0\0\1" + b"\0\1" + varint(101) + assignment * 100 + b"\1" + b"\0"
    count = 60_000
    body = varint(count + 1) + topic * count + b"\0\0\0\1" + b"\0" + b"\0"
    with pytest.raises(DecodeError, match="more than 268435456 bytes of memory"):
        decode_request(CreateTopicsRequest, body, 5)


@pytest.mark.parametrize("patient", [False, True])
def test_what_was_decoded_of_a_refused_request_goes_bit_by_bit(patient: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker thread would keep the GIL while a million objects go at once."""
    gone: list[int] = []
    monkeypatch.setattr(codec, "discard", lambda things: gone.append(len(things)))
    count = 100_000
    body = varint(count + 1) + b"\2t" * (count - 1) + b"\x7f"
    with pytest.raises(DecodeError):
        decode_request(DeleteTopicsRequest, body, 4, True, patient)
    assert gone == ([count - 1] if patient else [])


def test_a_response_that_takes_long_is_left_to_somebody_patient() -> None:
    message = DeleteTopicsRequest(topic_names=["topic"] * 500_000)
    assert encode_response(message, 4) is None
    assert encode_response(message, 4, patient=True) == message.encode(4)
    with pytest.raises(EncodeError, match="more than 268435456 bytes"):
        encode_response(DeleteTopicsRequest(topic_names=["x" * 30_000] * 20_000), 4, patient=True)
