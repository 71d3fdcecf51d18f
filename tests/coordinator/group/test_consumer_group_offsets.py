"""Offsets of consumer groups: members are checked by their epoch, and offsets expire when nobody reads the topic."""

from __future__ import annotations

from typing import Any

import pytest
from coordinator.group.consumer_client import Member, settle

from kafkapy.coordinator.group.offset_requests import NewOffset
from kafkapy.coordinator.result import ProducerStamp
from kafkapy.errors import ErrorCode, KafkaError
from kafkapy.types import TopicPartition

P0 = TopicPartition("topic", 0)
UNREAD = TopicPartition("other", 0)
RETENTION_MS = 60_000


def commit(bench: Any, member: str, epoch: int, version: int = 9, **how: Any) -> Any:
    return bench.commit({P0: 5}, version=version, member_id=member, generation_id=epoch, **how)


def test_members_commit_in_their_epoch_only(bench: Any) -> None:
    members = [Member(bench, "a"), Member(bench, "b")]
    settle(*members)
    assert commit(bench, "a", 2) == {P0: ErrorCode.NONE}
    assert commit(bench, "a", 1) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(bench, "a", 3) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(bench, "x", 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(bench, "", -1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(bench, "a", 2, version=8) is ErrorCode.UNSUPPORTED_VERSION


def test_anybody_commits_for_a_group_without_members(bench: Any) -> None:
    Member(bench, "a")
    bench.beat("a", -1)
    assert commit(bench, "", -1) == {P0: ErrorCode.NONE}
    assert bench.consumer_group().state_name == "Empty"


def test_commits_of_transactions_hear_of_generations(bench: Any) -> None:
    Member(bench, "a")
    producer = ProducerStamp(7, 0)
    assert commit(bench, "a", 1, version=3, producer=producer) == {P0: ErrorCode.NONE}
    assert commit(bench, "", -1, version=3, producer=producer) == {P0: ErrorCode.NONE}
    assert commit(bench, "a", 9, version=3, producer=producer) is ErrorCode.ILLEGAL_GENERATION
    assert commit(bench, "b", 1, version=3, producer=producer) is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("member", "epoch", "error"),
    [
        ("a", 1, ErrorCode.NONE),
        (None, -1, ErrorCode.NONE),
        ("a", 0, ErrorCode.STALE_MEMBER_EPOCH),
        ("a", 2, ErrorCode.STALE_MEMBER_EPOCH),
        ("b", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_members_fetch_in_their_epoch_only(bench: Any, member: str | None, epoch: int, error: ErrorCode) -> None:
    Member(bench, "a")
    commit(bench, "a", 1)
    later = bench.coordinator.read(
        "group", lambda shard, _: shard.offsets.fetch("group", [P0], member_id=member, member_epoch=epoch)
    )
    if error is ErrorCode.NONE:
        assert later.result()[P0].offset == 5
    else:
        with pytest.raises(KafkaError) as raised:
            later.result()
        assert raised.value.code is error


def test_offsets_of_topics_that_are_read_are_not_deleted(bench: Any) -> None:
    Member(bench, "a")
    bench.commit({P0: 5, UNREAD: 6}, version=9, member_id="a", generation_id=1)
    later = bench.coordinator.write("group", lambda shard, _: shard.offsets.delete("group", [P0, UNREAD]))
    bench.clock.run()
    assert later.result() == {P0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, UNREAD: ErrorCode.NONE}
    assert set(bench.fetch()) == {P0}


def test_offsets_of_unread_topics_expire_and_an_empty_group_goes_with_the_last(make_bench: Any) -> None:
    bench = make_bench(offsets_retention_ms=RETENTION_MS, offsets_retention_check_interval_ms=10_000)
    member = Member(bench, "a")
    bench.commit({P0: 5, UNREAD: 6}, version=9, member_id="a", generation_id=1)
    for _ in range(8):
        bench.clock.advance(10_000)
        member.beat()
    assert set(bench.fetch()) == {P0}
    bench.beat("a", -1)
    bench.clock.advance(10_000)
    assert bench.shard.groups == {}
    assert len(bench.shard.store) == 0
    bench.restart()
    assert bench.shard.groups == {}


def test_an_empty_group_is_deleted_and_one_with_members_is_not(bench: Any) -> None:
    Member(bench, "a")
    commit(bench, "a", 1)

    def delete() -> dict[str, ErrorCode]:
        later = bench.coordinator.write("group", lambda shard, _: shard.delete_groups(["group"]))
        bench.clock.run()
        errors: dict[str, ErrorCode] = later.result()
        return errors

    assert delete() == {"group": ErrorCode.NON_EMPTY_GROUP}
    bench.beat("a", -1)
    assert delete() == {"group": ErrorCode.NONE}
    assert bench.shard.groups == {}
    bench.restart()
    assert bench.shard.groups == {}
    assert len(bench.shard.store) == 0
    assert bench.enter("a").member_epoch == 1


def test_a_group_of_offsets_only_becomes_a_consumer_group_and_keeps_them(bench: Any) -> None:
    assert bench.commit({P0: NewOffset(7)}, version=9) == {P0: ErrorCode.NONE}
    assert bench.enter("a").member_epoch == 1
    assert bench.fetch()[P0].offset == 7
    bench.restart()
    assert bench.consumer_group().state_name == "Stable"
    assert bench.fetch()[P0].offset == 7


def test_a_group_that_kept_its_offsets_when_it_became_classic_is_deleted_for_good(bench: Any) -> None:
    Member(bench, "a")
    commit(bench, "a", 1)
    bench.beat("a", -1)
    bench.join()
    bench.restart()
    assert list(bench.fetch()) == [P0], "no record of the classic group was written"
    later = bench.coordinator.write("group", lambda shard, _: shard.offsets.delete("group", [P0]))
    bench.clock.run()
    assert later.result() == {P0: ErrorCode.NONE}
    later = bench.coordinator.write("group", lambda shard, _: shard.delete_groups(["group"]))
    bench.clock.run()
    assert later.result() == {"group": ErrorCode.NONE}
    for _ in range(2):
        assert bench.shard.groups == {}
        bench.restart()
