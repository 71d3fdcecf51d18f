"""The follower's reader of Fetch responses: every version, in pieces, cut at every byte, and with flipped bits."""

from __future__ import annotations

import random
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkapy._speedups.testing.fetch_response_driver import read_fetch_response
from kafkapy.protocol.header import decode_response, encode_response
from kafkapy.protocol.messages.fetch import FetchResponse
from kafkapy.protocol.registry import ApiKeys
from kafkapy.protocol.schema import DecodeError

Topic = FetchResponse.TopicResponse
Answer = Topic.Partition
VERSIONS = range(4, 18)
IDS = [uuid.UUID(int=7), uuid.UUID(int=9)]


def response(version: int, seed: int = 0) -> FetchResponse:
    chance = random.Random(seed)
    topics = []
    for number, name in enumerate(("orders", "x" * 200)):
        answers = [
            Answer(
                partition_index=index,
                error_code=chance.choice((0, 0, 6)),
                high_watermark=chance.randrange(2**40),
                last_stable_offset=5,
                log_start_offset=chance.randrange(2**20),
                aborted_transactions=chance.choice(
                    (None, [], [Answer.AbortedTransaction(producer_id=1, first_offset=2)] * 3)
                ),
                records=chance.choice((None, b"", chance.randbytes(chance.randrange(1, 700)))),
            )
            for index in range(chance.randrange(4))
        ]
        for answer in answers:
            if version >= 12 and chance.random() < 0.5:
                answer.diverging_epoch = Answer.EpochEndOffset(epoch=3, end_offset=chance.randrange(2**40))
                answer.current_leader = Answer.LeaderIdAndEpoch(leader_id=1, leader_epoch=4)
        topics.append(Topic(topic=name, topic_id=IDS[number], partitions=answers))
    made = FetchResponse(throttle_time_ms=3, error_code=0, session_id=77 if version >= 7 else 0, responses=topics)
    if version >= 16:
        made.node_endpoints = [FetchResponse.NodeEndpoint(node_id=1, host="h" * 20, port=9, rack=None)]
    return made


def frame_of(version: int, seed: int = 0) -> bytes:
    return encode_response(ApiKeys.FETCH, version, 42, response(version, seed))


def expected(version: int, frame: bytes) -> object:
    """The reading of the independent decoder, in the driver's form; None when it refuses the frame."""
    try:
        correlation_id, made = decode_response(ApiKeys.FETCH, version, frame)
    except DecodeError:
        return None
    assert isinstance(made, FetchResponse)
    found = []
    for topic in made.responses:
        for each in topic.partitions:
            end = each.diverging_epoch
            found.append(
                (
                    topic.topic_id.bytes if version >= 13 else topic.topic.encode(),
                    each.partition_index,
                    each.error_code,
                    each.high_watermark,
                    each.log_start_offset,
                    (end.epoch, end.end_offset) if end.epoch >= 0 or end.end_offset >= 0 else None,
                    bytes(each.records or b""),
                )
            )
    return correlation_id, made.error_code, made.session_id, found


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("piece", [1, 2, 61, 4096])
def test_every_version_reads_as_the_decoder_reads_it(version: int, piece: int) -> None:
    for seed in range(20):
        frame = frame_of(version, seed)
        assert read_fetch_response(version, frame, piece) == expected(version, frame)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_frame_cut_at_any_byte_is_refused(version: int) -> None:
    frame = frame_of(version, 3)
    for cut in range(len(frame)):
        assert read_fetch_response(version, frame[:cut]) is None
    assert read_fetch_response(version, frame + b"\0") is None


@pytest.mark.parametrize("version", VERSIONS)
def test_flipped_bits_are_read_as_the_decoder_reads_them(version: int) -> None:
    chance = random.Random(version)
    for seed in range(150):
        spoiled = bytearray(frame_of(version, seed % 5))
        for _ in range(chance.randrange(1, 4)):
            spoiled[chance.randrange(len(spoiled))] ^= 1 << chance.randrange(8)
        frame = bytes(spoiled)
        ours, theirs = read_fetch_response(version, frame, chance.choice((1, 100, 10**6))), expected(version, frame)
        # The decoder also reads what a follower skips, such as host names: it may refuse more.
        assert ours == theirs or theirs is None


@given(st.binary(max_size=300), st.sampled_from(list(VERSIONS)), st.integers(1, 50))
@settings(max_examples=300)
def test_noise_is_never_read_beyond_its_end(frame: bytes, version: int, piece: int) -> None:
    read_fetch_response(version, frame, piece)


def test_records_beyond_the_limit_are_refused_before_they_arrive() -> None:
    made = FetchResponse(
        session_id=0,
        responses=[
            Topic(
                topic_id=IDS[0],
                partitions=[
                    Answer(partition_index=0, high_watermark=0, records=bytes(5000), aborted_transactions=None)
                ],
            )
        ],
    )
    frame = encode_response(ApiKeys.FETCH, 17, 1, made)
    assert read_fetch_response(17, frame, 100, 4999) is None
    assert read_fetch_response(17, frame, 100, 5000) is not None
