"""Leaders that lie: nothing wrong is appended, the partition fails or waits alone, and nothing grows."""

from __future__ import annotations

import asyncio
import random
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from waiting import until

from kafkapy.errors import ErrorCode
from kafkapy.protocol.header import encode_response
from kafkapy.protocol.messages.fetch import FetchRequest, FetchResponse
from kafkapy.protocol.registry import ApiKeys
from kafkapy.replica.fetcher_api import FollowerVersions
from kafkapy.types import TopicPartition
from tests.replica.scripted_leader import TP, Answer, batch, contents, pair

OTHER = TopicPartition("orders", 1)


def stamped(data: bytes, *, offset: int = 0, epoch: int = 0) -> bytes:
    """A batch with a base offset and a leader epoch."""
    changed = bytearray(data)
    changed[:8] = offset.to_bytes(8, "big", signed=True)
    changed[12:16] = epoch.to_bytes(4, "big", signed=True)
    return bytes(changed)


def with_bytes(data: bytes, at: int, value: bytes) -> bytes:
    return data[:at] + value + data[at + len(value) :]


GOOD = stamped(batch(3))
LIES: dict[str, bytes] = {
    "no batch": b"\xff" * 200,
    "a wrong CRC": with_bytes(GOOD, 70, bytes([GOOD[70] ^ 1])),
    "a negative length": with_bytes(GOOD, 8, b"\xff\xff\xff\xf0"),
    "a huge length": with_bytes(GOOD, 8, b"\x7f\xff\xff\xff"),
    "a length of nothing": with_bytes(GOOD, 8, b"\0\0\0\0"),
    "an unknown format": with_bytes(GOOD, 16, b"\x07"),
    "a cut batch": GOOD[:-1],
    "a negative offset": stamped(batch(3), offset=-5),
    "the largest offset": stamped(batch(3), offset=2**63 - 2),
    "a later epoch": stamped(batch(3), epoch=9),
    "a negative delta": with_bytes(GOOD, 23, b"\xff\xff\xff\xff"),
}


@pytest.mark.parametrize("lie", sorted(LIES))
def test_wrong_records_are_not_appended(tmp_path: Path, lie: str) -> None:
    """The partition backs off; the other one of the same answers goes on, and so does this one afterwards."""

    async def scenario() -> None:
        async with pair(tmp_path) as (leader, follower):
            lies = 0

            def spoil(topic_partition: TopicPartition, answer: Answer) -> None:
                nonlocal lies
                if topic_partition == TP and lies < 3 and not answer.error_code:
                    lies += 1
                    answer.records = LIES[lie]

            leader.on_answer = spoil
            leader.log(TP)
            leader.log(OTHER).append_as_leader(batch(2))
            ours = follower.follow(TP)
            other = follower.follow(OTHER)
            await until(lambda: other.high_watermark == 2, "the other partition follows")
            await until(lambda: lies == 3, "three lies")
            assert contents(ours) == b""
            leader.log(TP).append_as_leader(batch(4))
            await until(lambda: ours.high_watermark == 4, "the partition follows again")
            assert contents(ours) == contents(leader.log(TP))
            assert follower.failed == {}

    asyncio.run(scenario())


def test_the_whole_batches_before_a_wrong_one_count(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pair(tmp_path) as (leader, follower):
            theirs = leader.log()
            for _ in range(5):
                theirs.append_as_leader(batch(2))
            seen = []

            def spoil(topic_partition: TopicPartition, answer: Answer) -> None:
                if answer.records and not seen:
                    seen.append(1)
                    records = bytearray(answer.records)
                    records[-1] ^= 1
                    answer.records = bytes(records)

            leader.on_answer = spoil
            ours = follower.follow()
            await until(lambda: ours.high_watermark == 10, "the follower catches up")
            assert contents(ours) == contents(theirs)

    asyncio.run(scenario())


@pytest.mark.parametrize("order", ["below", "descending"])
def test_wrong_offsets_fail_the_partition_alone(tmp_path: Path, order: str) -> None:
    async def scenario() -> None:
        async with pair(tmp_path) as (leader, follower):
            for each in (TP, OTHER):
                leader.log(each).append_as_leader(batch(4))
            ours, other = follower.follow(TP), follower.follow(OTHER)
            await until(lambda: ours.high_watermark == other.high_watermark == 4, "both follow")
            before = contents(ours)

            def spoil(topic_partition: TopicPartition, answer: Answer) -> None:
                if topic_partition == TP:
                    low = [stamped(batch(2), offset=1)]
                    down = [stamped(batch(2), offset=9), stamped(batch(2), offset=4)]
                    answer.records = b"".join(low if order == "below" else down)

            leader.on_answer = spoil
            leader.log(OTHER).append_as_leader(batch(4))
            if order == "below":
                await until(lambda: TP in follower.failed, "the partition has failed")
                assert follower.fetchers.metrics().failed_partitions == 1
            await until(lambda: other.high_watermark == 8, "the other partition goes on")
            assert contents(ours) == before
            assert OTHER not in follower.failed

    asyncio.run(scenario())


def test_the_high_watermark_ends_at_the_own_log(tmp_path: Path) -> None:
    """Scenario 13: nor does a log start beyond it pass."""

    async def scenario() -> None:
        async with pair(tmp_path) as (leader, follower):

            def spoil(topic_partition: TopicPartition, answer: Answer) -> None:
                answer.high_watermark = 2**62
                answer.log_start_offset = 2**61

            leader.on_answer = spoil
            leader.log().append_as_leader(batch(4))
            ours = follower.follow()
            await until(lambda: ours.high_watermark == 4, "the record follows")
            assert (ours.log_start_offset, ours.log_end_offset) == (0, 4)
            leader.on_answer = lambda topic_partition, answer: setattr(answer, "high_watermark", -(2**62))
            leader.log().append_as_leader(batch(1))
            await until(lambda: ours.log_end_offset == 5, "the next record follows")
            assert ours.high_watermark == ours.log_start_offset == 0

    asyncio.run(scenario())


Frame = Callable[[FetchRequest, bytes], bytes]
FRAMES: dict[str, Frame] = {
    "no bytes": lambda request, frame: b"",
    "noise": lambda request, frame: random.Random(7).randbytes(400),
    "another correlation id": lambda request, frame: b"\x12\x34\x56\x78" + frame[4:],
    "bytes behind the end": lambda request, frame: frame + b"\0",
    "a cut response": lambda request, frame: frame[:-1],
    "a huge number of topics": lambda request, frame: frame[:5] + bytes(10) + b"\xff\xff\xff\xff\x0f",
    "a huge tag": lambda request, frame: frame[:4] + b"\x01\x05\xff\xff\xff\xff\x0f" + bytes(50),
    "many tags": lambda request, frame: frame[:4] + b"\xff\xff\x03" + bytes(2000),
}


@pytest.mark.parametrize("name", sorted(FRAMES))
@pytest.mark.parametrize("piece", [0, 3])
def test_garbage_ends_the_connection_alone(tmp_path: Path, name: str, piece: int) -> None:
    async def scenario() -> None:
        async with pair(tmp_path) as (leader, follower):
            leader.log().append_as_leader(batch(3))
            spoiled = 0

            def spoil(request: FetchRequest, response: FetchResponse) -> FetchResponse | bytes:
                nonlocal spoiled
                if spoiled >= 2:
                    return response
                spoiled += 1
                correlation_id = leader.connections  # the first request of each connection but one
                frame = encode_response(ApiKeys.FETCH, 17, correlation_id, response)
                return FRAMES[name](request, frame)

            leader.on_fetch = spoil
            leader.piece = piece
            ours = follower.follow()
            await until(lambda: ours.high_watermark == 3, "the follower catches up")
            await until(lambda: spoiled == 2 and leader.connections >= 3, "the connection ends twice")
            assert contents(ours) == contents(leader.log())
            assert follower.failed == {}

    asyncio.run(scenario())


@pytest.mark.parametrize("size", [-1, 0, 3, 2**31 - 1])
def test_a_frame_size_that_lies_costs_nothing(tmp_path: Path, size: int) -> None:
    """The memory of a response grows with received bytes, never with announced ones."""

    async def scenario() -> None:
        async with pair(tmp_path, replica_socket_timeout_ms="300") as (leader, follower):
            leader.log().append_as_leader(batch(3))
            good = leader._serve
            lies = 0

            async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                nonlocal lies
                if lies < 2:
                    lies += 1
                    write = writer.write

                    def lie(data: bytes) -> None:
                        write(data if leader.requests[ApiKeys.FETCH] < lies else size.to_bytes(4, "big", signed=True))

                    writer.write = lie  # type: ignore[method-assign]
                await good(reader, writer)

            leader._serve = serve  # type: ignore[method-assign]
            await leader_restarts(leader, follower)
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            ours = follower.follow()
            await until(lambda: ours.high_watermark == 3, "the follower catches up")
            assert lies == 2
            assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000

    async def leader_restarts(leader: Any, follower: Any) -> None:
        leader._server.close()
        endpoint = await leader.start()
        follower.endpoints[1] = endpoint

    asyncio.run(scenario())


def test_records_beyond_every_limit_are_not_kept(tmp_path: Path) -> None:
    """No Produce request is larger than socket.request.max.bytes, so no batch is."""

    async def scenario() -> None:
        keys = {"socket_request_max_bytes": "50000", "replica_fetch_max_bytes": "1000"}
        async with pair(tmp_path, **keys) as (leader, follower):
            large = True

            def spoil(topic_partition: TopicPartition, answer: Answer) -> None:
                if large:
                    answer.records = bytes(60_000)

            leader.on_answer = spoil
            leader.log()
            ours = follower.follow()
            await until(lambda: leader.connections >= 3, "the connections end")
            large = False
            leader.log().append_as_leader(batch(2))
            await until(lambda: ours.high_watermark == 2, "the follower catches up")

    asyncio.run(scenario())


def test_partitions_that_nobody_asked_for_are_ignored(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pair(tmp_path) as (leader, follower):
            leader.log().append_as_leader(batch(3))
            removed = follower.follow(OTHER)
            follower.fetchers.remove([OTHER])

            def spoil(request: FetchRequest, response: FetchResponse) -> FetchResponse:
                for topic in response.responses:
                    extra = [
                        Answer(partition_index=index, high_watermark=9, records=GOOD, aborted_transactions=None)
                        for index in (1, 2, 77, 2**31 - 1, -1)
                    ]
                    topic.partitions = [*extra, *topic.partitions, *topic.partitions]
                return response

            leader.on_fetch = spoil
            ours = follower.follow()
            await until(lambda: ours.high_watermark == 3, "the follower catches up")
            leader.log().append_as_leader(batch(2))
            await until(lambda: ours.high_watermark == 5, "and goes on")
            assert contents(ours) == contents(leader.log())
            assert removed.log_end_offset == 0

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ],
)
def test_errors_are_tried_again(tmp_path: Path, code: ErrorCode) -> None:
    async def scenario() -> None:
        async with pair(tmp_path) as (leader, follower):
            left = 2

            def fail(topic_partition: TopicPartition, answer: Answer) -> None:
                nonlocal left
                if left and topic_partition == TP:
                    left -= 1
                    answer.error_code = code
                    answer.records = b""

            leader.on_answer = fail
            for each in (TP, OTHER):
                leader.log(each).append_as_leader(batch(3))
            ours, other = follower.follow(TP), follower.follow(OTHER)
            await until(lambda: ours.high_watermark == other.high_watermark == 3, "both follow")
            assert left == 0
            assert follower.failed == {}

    asyncio.run(scenario())


@pytest.mark.parametrize("code", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE])
def test_some_errors_give_the_partition_up(tmp_path: Path, code: ErrorCode) -> None:
    async def scenario() -> None:
        async with pair(tmp_path) as (leader, follower):

            def fail(topic_partition: TopicPartition, answer: Answer) -> None:
                if topic_partition == TP:
                    answer.error_code = code

            leader.on_answer = fail
            for each in (TP, OTHER):
                leader.log(each).append_as_leader(batch(3))
            ours, other = follower.follow(TP), follower.follow(OTHER)
            await until(lambda: TP in follower.failed and other.high_watermark == 3, "one fails, one follows")
            assert follower.failed[TP].code is code
            leader.on_answer = None
            leader.log(TP, epoch=1)
            follower.follow(TP, epoch=1)
            await until(lambda: ours.high_watermark == 3, "a new epoch begins again")

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_an_error_of_the_whole_answer_begins_again(tmp_path: Path, code: ErrorCode) -> None:
    async def scenario() -> None:
        async with pair(tmp_path) as (leader, follower):
            left = 3

            def fail(request: FetchRequest, response: FetchResponse) -> FetchResponse:
                nonlocal left
                if left and len(leader.fetches) > 2:
                    left -= 1
                    # The partitions beside the error do not count.
                    response.error_code = code
                return response

            leader.on_fetch = fail
            ours = follower.follow()
            leader.log()
            await until(lambda: left == 0, "the errors")
            leader.log().append_as_leader(batch(3))
            await until(lambda: ours.high_watermark == 3, "the follower catches up")
            assert leader.connections == 1

    asyncio.run(scenario())


def test_a_leader_that_diverges_for_ever_costs_no_record(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pair(tmp_path, versions=FollowerVersions()) as (leader, follower):
            for each in (TP, OTHER):
                leader.log(each).append_as_leader(batch(3))
            ours, other = follower.follow(TP), follower.follow(OTHER)
            await until(lambda: ours.high_watermark == other.high_watermark == 3, "both follow")

            def spoil(topic_partition: TopicPartition, answer: Answer) -> None:
                if topic_partition == TP:
                    answer.records = b""
                    answer.diverging_epoch = Answer.EpochEndOffset(epoch=0, end_offset=2**60)

            leader.on_answer = spoil
            leader.log(OTHER).append_as_leader(batch(3))
            await until(lambda: other.high_watermark == 6, "the other partition goes on")
            assert ours.log_end_offset == 3
            leader.on_answer = None
            leader.log(TP).append_as_leader(batch(3))
            await until(lambda: ours.high_watermark == 6, "and so does this one")

    asyncio.run(scenario())


@pytest.mark.parametrize("lie", ["diverges", "out of range"])
def test_an_answer_that_changes_nothing_is_not_asked_for_at_once_again(tmp_path: Path, lie: str) -> None:
    async def scenario() -> None:
        async with pair(tmp_path, replica_fetch_backoff_ms="3600000") as (leader, follower):
            told = 0

            def lying(topic_partition: TopicPartition, answer: Answer) -> None:
                nonlocal told
                if topic_partition == TP and ours.log_end_offset > 0:
                    told += 1
                    answer.records = b""
                    if lie == "diverges":
                        answer.diverging_epoch = Answer.EpochEndOffset(epoch=0, end_offset=2**60)
                    else:
                        answer.error_code = ErrorCode.OFFSET_OUT_OF_RANGE

            leader.log().append_as_leader(batch(3))
            leader.log(OTHER)
            leader.on_answer = lying
            ours = follower.follow()
            beside = follower.follow(OTHER)
            await until(lambda: told > 0, "the lie is told")
            for count in range(1, 21):
                leader.log(OTHER).append_as_leader(batch(1))
                await until(lambda count=count: beside.log_end_offset == count, "the other partition goes on")
            # One more may have been under way.
            assert told <= 2
            assert ours.log_end_offset == 3
            assert not follower.failed

    asyncio.run(scenario())


@pytest.mark.parametrize("seed", range(4))
def test_random_bits_never_reach_the_log(tmp_path: Path, seed: int) -> None:
    """Each answer has a few flipped bits, until there was enough of that.

    The offset of a batch is spared: its CRC does not cover that, and another offset is a gap as after compaction.
    """

    async def scenario() -> None:
        chance = random.Random(seed)
        async with pair(tmp_path, replica_socket_timeout_ms="300", replica_fetch_backoff_ms="1") as (leader, follower):
            for each in (TP, OTHER):
                for count in range(6):
                    leader.log(each).append_as_leader(batch(2, size=count + each.partition))
            batches = [one for each in (TP, OTHER) for one in split(contents(leader.log(each)))]
            left = 40
            answer = leader._answer

            async def flip(frame: bytes) -> bytes | None:
                nonlocal left
                good = await answer(frame)
                if good is None or frame[:2] != b"\0\x01" or left <= 0:
                    return good
                left -= 1
                found = [good.find(one[8:]) for one in batches]
                spared = {at for start in found if start >= 0 for at in range(start - 8, start)}
                spoiled = bytearray(good)
                for _ in range(chance.randrange(1, 4)):
                    at = chance.randrange(len(spoiled))
                    if at not in spared:
                        spoiled[at] ^= 1 << chance.randrange(8)
                return bytes(spoiled)

            leader._answer = flip  # type: ignore[method-assign]
            logs = {each: follower.follow(each) for each in (TP, OTHER)}
            await until(lambda: left <= 0, "enough is spoiled")
            for each in (TP, OTHER):
                # A flipped error code may have failed it.
                leader.log(each, epoch=1)
                follower.follow(each, epoch=1)
            for each, ours in logs.items():
                theirs = leader.log(each)
                await until(
                    lambda ours=ours, theirs=theirs: ours.high_watermark == theirs.log_end_offset,
                    "the follower catches up",
                )
                # A flipped log start is not to be told from a true one.
                assert contents(theirs).endswith(contents(ours))
                assert contents(ours) or ours.log_start_offset == 12

    asyncio.run(scenario())


def split(data: bytes) -> list[bytes]:
    """The batches."""
    found = []
    while data:
        size = 12 + int.from_bytes(data[8:12], "big")
        found.append(data[:size])
        data = data[size:]
    return found
