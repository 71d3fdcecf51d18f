"""Markers on their way into the logs of this broker."""

from __future__ import annotations

from typing import Any

import pytest

from kafkapy import errors
from kafkapy.coordinator.result import Later
from kafkapy.coordinator.transaction.markers import LocalMarkerWriter, Marker
from kafkapy.errors import ErrorCode, error_for
from kafkapy.records.batches import iter_batches
from kafkapy.records.control import read_control_batch
from kafkapy.testing.coordinator import MemoryWriter, VirtualClock
from kafkapy.types import TopicPartition

A = TopicPartition("a", 0)
OFFSETS = TopicPartition("__consumer_offsets", 7)
COMMIT = Marker(producer_id=9, producer_epoch=2, coordinator_epoch=5, committed=True)


class Bench:
    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.log = MemoryWriter()
        self.offsets: list[tuple[int, Marker]] = []
        self.answer: Later[None] = Later()
        self.markers = LocalMarkerWriter(self.log, self.clock, self.complete, timeout_ms=lambda: 1000)

    def complete(self, partition: int, marker: Marker) -> Later[None]:
        self.offsets.append((partition, marker))
        return self.answer


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.mark.parametrize("committed", [True, False])
def test_a_marker_is_a_control_batch_of_the_producer(bench: Any, committed: bool) -> None:
    assert bench.markers.write(A, COMMIT._replace(committed=committed)).done
    [written] = bench.log.batches[A]
    [batch] = iter_batches(written)
    assert (batch.producer_id, batch.producer_epoch, batch.is_control, batch.is_transactional) == (9, 2, True, True)
    marker = read_control_batch(batch)
    assert marker is not None
    assert (marker.committed, marker.coordinator_epoch) == (committed, 5)


def test_it_is_done_when_it_is_committed(bench: Any) -> None:
    bench.log.replicate = False
    first, second = bench.markers.write(A, COMMIT), bench.markers.write(A, COMMIT)
    assert not first.done and not second.done
    bench.log.commit()
    assert first.result() is None
    assert second.result() is None
    bench.clock.advance(2000)
    assert first.error is None


def test_replicas_have_a_time_to_take_it(bench: Any) -> None:
    bench.log.replicate = False
    late = bench.markers.write(A, COMMIT)
    bench.clock.advance(1001)
    with pytest.raises(errors.RequestTimedOutError):
        late.result()
    after = bench.markers.write(A, COMMIT)
    bench.log.commit()
    assert after.result() is None


@pytest.mark.parametrize("where", ["unwritable", "failure"])
def test_what_the_log_says_is_the_answer(bench: Any, where: str) -> None:
    setattr(bench.log, where, error_for(ErrorCode.NOT_ENOUGH_REPLICAS))
    with pytest.raises(errors.NotEnoughReplicasError):
        bench.markers.write(A, COMMIT).result()
    bench.log.unwritable, bench.log.failure = None, OSError("disk")
    with pytest.raises(errors.KafkaStorageError):
        bench.markers.write(A, COMMIT).result()


def test_those_for_offsets_go_by_way_of_the_group_coordinator(bench: Any) -> None:
    later = bench.markers.write(OFFSETS, COMMIT)
    assert bench.offsets == [(7, COMMIT)]
    assert OFFSETS not in bench.log.batches
    assert not later.done
    bench.answer.set(None)
    assert later.result() is None


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
def test_a_group_coordinator_that_is_not_ready_is_asked_again(bench: Any, error: ErrorCode, shown: ErrorCode) -> None:
    bench.answer.fail(error_for(error))
    failed = bench.markers.write(OFFSETS, COMMIT).error
    assert isinstance(failed, errors.KafkaError)
    assert failed.code is shown


@pytest.mark.parametrize("partition", [A, OFFSETS])
def test_a_marker_of_no_producer_goes_nowhere(bench: Any, partition: TopicPartition) -> None:
    for producer_id, epoch in ((-1, 2), (9, -1), (9, -2)):
        refused = bench.markers.write(partition, COMMIT._replace(producer_id=producer_id, producer_epoch=epoch))
        assert refused.error is not None
    assert not bench.log.batches and not bench.offsets
