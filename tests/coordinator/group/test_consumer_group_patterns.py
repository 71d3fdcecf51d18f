"""Members of consumer groups subscribe by regular expression: matched after the heartbeat, and again as topics come."""

from __future__ import annotations

from typing import Any

import pytest
from coordinator.group.consumer_client import Member, settle

from kafkapy.coordinator.group.consumer.requests import ConsumerClient
from kafkapy.errors import ErrorCode
from kafkapy.testing.coordinator import snapshot_of


def enter(bench: Any, member_id: str, regex: str, **fields: Any) -> Member:
    member = Member(bench, member_id, subscribed_topic_names=None, subscribed_topic_regex=regex, **fields)
    bench.clock.advance(0)
    return member


def topics(bench: Any, member: Member) -> set[str]:
    return {bench.snapshot.topic_names[topic_id] for topic_id in member.owned}


def test_topics_that_match_as_a_whole_are_assigned_with_the_next_heartbeat(bench: Any) -> None:
    bench.snapshot = snapshot_of({"a1": 2, "a2": 2, "ba1": 2})
    member = enter(bench, "m", "a.")
    assert member.owned == {}
    settle(member)
    assert topics(bench, member) == {"a1", "a2"}
    assert bench.shard.groups["group"].is_subscribed_to("a1")
    assert not bench.shard.groups["group"].is_subscribed_to("ba1")


def test_an_expression_that_is_not_valid_is_refused(bench: Any) -> None:
    refused = bench.enter("m", subscribed_topic_names=None, subscribed_topic_regex="a(")
    assert refused.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert "SubscribedTopicRegex `a(` is not a valid regular expression" in (refused.error_message or "")
    assert bench.shard.groups == {}


def test_topics_that_are_created_are_found_within_the_refresh_interval(bench: Any) -> None:
    bench.snapshot = snapshot_of({"a1": 2})
    member = enter(bench, "m", "a.*")
    settle(member)
    bench.snapshot = snapshot_of({"a1": 2, "a2": 2})
    settle(member)
    assert topics(bench, member) == {"a1"}, "at most every ten seconds"
    bench.clock.advance(10_001)
    settle(member)
    bench.clock.advance(0)
    settle(member)
    assert topics(bench, member) == {"a1", "a2"}


def test_nothing_is_matched_again_without_new_topics_before_the_long_interval(make_bench: Any) -> None:
    bench = make_bench(consumer_regex_refresh_interval_ms=60_000, consumer_session_timeout_ms=1_000_000)
    bench.snapshot = snapshot_of({"a1": 2})
    member = enter(bench, "m", "a.*")
    settle(member)
    first = bench.consumer_group().resolved["a.*"].timestamp_ms
    for wait, again in ((60_000, False), (1, True)):
        bench.clock.advance(wait)
        member.beat()
        bench.clock.advance(0)
        assert (bench.consumer_group().resolved["a.*"].timestamp_ms > first) is again


def test_topics_that_the_member_may_not_describe_are_not_assigned(bench: Any) -> None:
    bench.snapshot = snapshot_of({"a1": 2, "a2": 2})
    client = ConsumerClient("client", "/127.0.0.1", lambda names: set(names) & {"a2"})
    member = enter(bench, "m", "a.*", client=client)
    settle(member)
    assert topics(bench, member) == {"a2"}


def test_the_last_member_takes_its_expression_along(bench: Any) -> None:
    bench.snapshot = snapshot_of({"a1": 2, "b1": 2})
    members = [enter(bench, "m", "a.*"), enter(bench, "n", "a.*")]
    bench.clock.advance(10_001)
    settle(*members)
    bench.clock.advance(0)
    settle(*members)
    bench.beat("m", -1)
    assert set(bench.consumer_group().resolved) == {"a.*"}
    bench.beat("n", -1)
    assert bench.consumer_group().resolved == {}


def test_another_expression_replaces_the_topics_of_the_first(bench: Any) -> None:
    bench.snapshot = snapshot_of({"a1": 2, "b1": 2})
    member = enter(bench, "m", "a.*")
    settle(member)
    bench.clock.advance(10_001)
    member.take(bench.beat("m", member.epoch, owned=member.owned, subscribed_topic_regex="b.*"))
    bench.clock.advance(0)
    settle(member)
    assert topics(bench, member) == {"b1"}
    assert set(bench.consumer_group().resolved) == {"b.*"}


def test_no_expression_any_more_gives_up_its_topics(bench: Any) -> None:
    bench.snapshot = snapshot_of({"a1": 2})
    member = enter(bench, "m", "a.*")
    settle(member)
    member.take(bench.beat("m", member.epoch, owned=member.owned, subscribed_topic_regex=""))
    settle(member)
    assert member.owned == {}


@pytest.mark.parametrize("regex", ["", "nothing.*"])
def test_topics_go_to_the_member_that_still_has_the_expression(bench: Any, regex: str) -> None:
    bench.snapshot = snapshot_of({"a1": 2})
    leaving, staying = enter(bench, "m", "a.*"), enter(bench, "n", "a.*")
    settle(leaving, staying)
    assert leaving.owned
    bench.clock.advance(10_001)
    leaving.take(bench.beat("m", leaving.epoch, owned=leaving.owned, subscribed_topic_regex=regex))
    bench.clock.advance(0)
    settle(leaving, staying)
    assert leaving.owned == {}
    assert sum(map(len, staying.owned.values())) == 2


@pytest.mark.parametrize("names", [[], ["b1"]])
def test_names_and_expressions_add_up_and_survive_a_restart(bench: Any, names: list[str]) -> None:
    bench.snapshot = snapshot_of({"a1": 2, "b1": 2, "c1": 2})
    member = Member(bench, "m", subscribed_topic_names=names, subscribed_topic_regex="a.*")
    bench.clock.advance(0)
    settle(member)
    assert topics(bench, member) == {"a1", *names}
    before = bench.consumer_group().resolved
    bench.restart()
    assert bench.consumer_group().resolved == before
    epoch = bench.consumer_group().epoch
    settle(member)
    assert bench.consumer_group().epoch == epoch


def test_more_topics_than_fit_into_a_batch_are_given_up(bench: Any) -> None:
    bench.snapshot = snapshot_of({f"a{number}": 1 for number in range(200)})
    bench.writer.max_bytes = 900
    member = enter(bench, "m", "a.*")
    bench.clock.advance(10_000)
    assert bench.consumer_group().resolved == {}
    assert len(bench.coordinator.runtime.timer) == 2, "its session, and the expiry of offsets"
    assert member.beat().error_code == ErrorCode.NONE


def test_topics_that_change_or_go_are_not_matched_again(bench: Any) -> None:
    bench.snapshot = snapshot_of({"a1": 2, "a2": 2})
    member = enter(bench, "m", "a.*")
    settle(member)
    matched = bench.consumer_group().resolved["a.*"].timestamp_ms
    bench.clock.advance(10_001)
    bench.snapshot = snapshot_of({"a1": 3})
    settle(member)
    bench.clock.advance(0)
    assert bench.consumer_group().resolved["a.*"].timestamp_ms == matched
    assert {number for numbers in member.owned.values() for number in numbers} == {0, 1, 2}
