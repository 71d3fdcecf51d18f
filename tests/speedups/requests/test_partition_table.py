"""The partition table: what Produce and Fetch find by name and by id."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from kafkapy._speedups.requests.partition_table import PartitionTable
from kafkapy._speedups.testing.request_driver import waiting_writer_keeps_readers_out
from kafkapy.errors import ErrorCode

ID = bytes(range(16))
OTHER_ID = bytes(range(1, 17))


def test_topics_are_listed_with_id_and_partition_count() -> None:
    table = PartitionTable()
    table.put("b", OTHER_ID, 1)
    table.put("a", ID, 3)
    assert table.topics() == [("a", ID, 3), ("b", OTHER_ID, 1)]
    table.put("a", ID, 5)
    assert table.topics()[0] == ("a", ID, 5)
    table.remove_topic("a")
    table.remove_topic("a")
    assert table.topics() == [("b", OTHER_ID, 1)]


@pytest.mark.parametrize(("topic_id", "count"), [(b"short", 1), (ID, -1)])
def test_a_topic_that_cannot_be_is_refused(topic_id: bytes, count: int) -> None:
    with pytest.raises(ValueError):
        PartitionTable().put("t", topic_id, count)


def test_a_log_needs_its_topic_and_a_valid_number(broker: Any) -> None:
    (log,) = broker.topic("t")
    table = PartitionTable()
    with pytest.raises(KeyError):
        table.set_log("t", 0, log)
    table.put("t", ID, 2)
    for partition in (-1, 2):
        with pytest.raises(ValueError):
            table.set_log("t", partition, log)
    table.set_log("t", 1, log)
    assert table.log("t", 1) is log
    assert table.log("t", 0) is None
    assert table.hosted() == [("t", 1)]
    with pytest.raises(KeyError):
        table.set_leader("nowhere", 0, 1, 1)


def test_a_removed_log_is_not_kept_alive(broker: Any) -> None:
    log = weakref.ref(broker.topic("t")[0])
    broker.table.remove_log("t", 0)
    broker.table.remove_log("t", 7)
    gc.collect()
    assert log() is None
    log = weakref.ref(broker.topic("t")[0])
    broker.table.remove_topic("t")
    gc.collect()
    assert log() is None


@pytest.mark.parametrize("version", [12, 13])
def test_a_topic_made_anew_loses_the_logs_of_the_old_one(broker: Any, version: int) -> None:
    (log,) = broker.topic("t")
    broker.table.put("t", OTHER_ID, 1)
    assert broker.table.topics() == [("t", OTHER_ID, 1)]
    assert broker.table.hosted() == []
    entry = broker.only(broker.fetch([("t", 0, 0)], version=version))
    assert entry.error_code == (ErrorCode.NOT_LEADER_OR_FOLLOWER if version == 12 else ErrorCode.UNKNOWN_TOPIC_ID)
    assert log.log_end_offset == 0


def test_many_topics_and_partitions_are_found(broker: Any) -> None:
    for number in range(50):
        broker.table.put(f"topic-{number}-with-a-name-too-long-to-be-inline", bytes([number + 1]) * 16, number)
    (log,) = broker.topic("t")
    assert len(broker.table.topics()) == 51
    asked = [(f"topic-{number}-with-a-name-too-long-to-be-inline", number, 0) for number in range(50)]
    found = broker.by_partition(broker.fetch([*asked, ("t", 0, 0)], version=12))
    assert {key: entry.error_code for key, entry in found.items()} == {
        **{(name, index): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for name, index, _ in asked},
        ("t", 0): ErrorCode.NONE,
    }
    assert log.partition == 0


def test_a_writer_that_waits_keeps_new_readers_out() -> None:
    """Else the control plane would wait for as long as Processors look partitions up."""
    assert waiting_writer_keeps_readers_out()
