"""What a leader has answered comes late: the log follows it no longer, or in another epoch, and stays as it is."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from log.conftest import Logs, make_batch

from kafkapy._speedups.base.event_queue import EventQueue
from kafkapy._speedups.log.partition_log import PartitionLog
from kafkapy._speedups.replica.fetcher import FollowedPartition
from kafkapy._speedups.replica.throttle import ReplicationThrottle
from kafkapy._speedups.testing.stepped_fetcher import SteppedFetcher
from kafkapy.protocol.header import decode_request, encode_response
from kafkapy.protocol.messages.fetch import FetchRequest, FetchResponse
from kafkapy.protocol.registry import ApiKeys
from kafkapy.records.batches import Record
from kafkapy.records.legacy import build_message_set

VERSION = 17
EPOCH = 5
TOPIC_ID = uuid.UUID(int=7)


class Follower:
    """A log that follows broker 2 in EPOCH; its next fetch is under way."""

    def __init__(self, root: Path) -> None:
        self.log: PartitionLog = Logs(root).open(leader_epoch=None)
        self.log.become_follower(2, EPOCH)
        self.log.append_as_follower(make_batch(2, leader_epoch=EPOCH))
        self.now_ns = 1_000_000_000
        self.fetcher = SteppedFetcher("follower", 1, EventQueue(), ReplicationThrottle())
        self.fetcher.configure(
            broker_epoch=1,
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=1 << 20,
            partition_max_bytes=1 << 20,
            max_batch_bytes=1 << 20,
            backoff_ms=1000,
            timeout_ms=30_000,
        )
        self.fetcher.connected(VERSION)
        self.fetcher.add(FollowedPartition(self.log, TOPIC_ID.bytes, EPOCH))
        self.asked = self.ask()

    def ask(self) -> tuple[int, int, int]:
        """(correlation id, fetched offset, epoch) of the next request."""
        frame = self.fetcher.next_request(self.now_ns)
        assert frame is not None
        header, request = decode_request(frame[4:])
        assert isinstance(request, FetchRequest)
        [topic] = request.topics
        [partition] = topic.partitions
        return header.correlation_id, partition.fetch_offset, partition.current_leader_epoch

    def answer(self, records: bytes, high_watermark: int, log_start_offset: int = 0) -> None:
        partition = FetchResponse.TopicResponse.Partition(
            partition_index=self.log.partition,
            high_watermark=high_watermark,
            log_start_offset=log_start_offset,
            aborted_transactions=None,
            records=records,
        )
        topic = FetchResponse.TopicResponse(topic_id=TOPIC_ID, partitions=[partition])
        frame = encode_response(ApiKeys.FETCH, VERSION, self.asked[0], FetchResponse(session_id=0, responses=[topic]))
        assert self.fetcher.take_response(len(frame).to_bytes(4, "big") + frame, self.now_ns)


@pytest.fixture
def follower(tmp_path: Path) -> Follower:
    return Follower(tmp_path)


def test_the_answer_in_time_is_taken(follower: Follower) -> None:
    assert follower.asked[1:] == (2, EPOCH)
    follower.answer(make_batch(3, base_offset=2, leader_epoch=EPOCH), 4, log_start_offset=1)
    assert follower.log.offsets()[:3] == (1, 5, 4)
    assert follower.ask()[1:] == (5, EPOCH)


@pytest.mark.parametrize(
    "change",
    [
        lambda log: log.become_leader(1, EPOCH + 1, (1, 2), (1, 2)),
        lambda log: log.become_leader(1, EPOCH, (1, 2), (1, 2)),
        lambda log: log.become_follower(3, EPOCH + 1),
        lambda log: log.close(),
    ],
    ids=["leads", "leads in the same epoch", "follows another", "is closed"],
)
def test_a_late_answer_changes_nothing(follower: Follower, change: Callable[[PartitionLog], None]) -> None:
    change(follower.log)
    before = follower.log.offsets(), follower.log.leader_epochs(), follower.log.size
    follower.answer(make_batch(3, base_offset=2, leader_epoch=EPOCH), 4, log_start_offset=1)
    assert (follower.log.offsets(), follower.log.leader_epochs(), follower.log.size) == before
    # Nor does it fetch on by itself.
    assert follower.fetcher.next_request(follower.now_ns + 1_000_000_000) is None


@pytest.mark.parametrize("epoch", [EPOCH + 1, EPOCH + 7])
def test_batches_of_a_newer_epoch_than_the_followed_one_are_left_out(follower: Follower, epoch: int) -> None:
    """KAFKA-18723: the leader has lost its lead meanwhile, and read what its successor wrote."""
    ours = make_batch(1, base_offset=2, leader_epoch=EPOCH)
    theirs = make_batch(1, base_offset=3, leader_epoch=epoch)
    follower.answer(ours + theirs + make_batch(1, base_offset=4, leader_epoch=EPOCH), 9)
    assert follower.log.offsets()[:3] == (0, 3, 3)
    assert follower.log.leader_epochs() == [(EPOCH, 0)]
    assert follower.ask()[1:] == (3, EPOCH)


def test_messages_of_old_formats_are_taken_in_order(follower: Follower) -> None:
    """As a leader of an old log sends them; their leader epoch is not known."""
    old = [build_message_set([Record(offset, 1000, 0, b"k", b"old")], 1) for offset in range(4)]
    follower.answer(old[2], 3)
    assert follower.log.offsets()[:3] == (0, 3, 3)
    assert follower.log.leader_epochs() == []
    follower.asked = follower.ask()
    assert follower.asked[1] == 3
    size = follower.log.size
    follower.answer(old[1], 3)
    assert (follower.log.offsets()[:3], follower.log.size) == ((0, 3, 3), size)
