"""What the members of all protocols share: metrics, the coordinator, the leader's work, polls and tasks."""

from __future__ import annotations

import asyncio
import math
from types import SimpleNamespace
from typing import Any

import pytest
from clients.consumer.membership.fake_core import Run, tps

from kafkapy.clients.consumer.membership import group_coordinator as coordinators
from kafkapy.clients.consumer.membership import metrics as module
from kafkapy.clients.consumer.membership.assignors.api import RebalanceProtocol
from kafkapy.clients.consumer.membership.group_coordinator import GroupCoordinator
from kafkapy.clients.consumer.membership.leader import assign, snapshot
from kafkapy.clients.consumer.membership.member import PolledMember
from kafkapy.clients.consumer.membership.metrics import GROUP, CoordinatorMetrics
from kafkapy.clients.consumer.membership.protocol import Assignment, Subscription
from kafkapy.clients.metrics import WINDOW_S
from kafkapy.clients.network_client import RequestOf
from kafkapy.errors import ErrorCode, IllegalStateError, KafkaError, error_for
from kafkapy.protocol.messages.heartbeat import HeartbeatRequest
from kafkapy.protocol.registry import ApiKeys

# --- metrics ------------------------------------------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    clock = SimpleNamespace(now_s=1000.0)
    clock.monotonic = lambda: clock.now_s
    monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(coordinators, "time", clock)
    return clock


def test_nothing_was_measured(clock: SimpleNamespace) -> None:
    values = CoordinatorMetrics().read(0)[GROUP]
    unknown = {name for name, value in values.items() if math.isnan(value)}
    assert unknown == {
        "heartbeat-response-time-max",
        "join-time-max",
        "join-time-avg",
        "sync-time-max",
        "sync-time-avg",
        "commit-latency-max",
        "commit-latency-avg",
        "rebalance-latency-avg",
        "rebalance-latency-max",
    }
    ages = {name: value for name, value in values.items() if name.endswith("seconds-ago")}
    assert ages == {"last-rebalance-seconds-ago": -1, "last-heartbeat-seconds-ago": -1}
    assert not any(value for name, value in values.items() if name not in unknown and name not in ages)


def test_each_response_is_counted_under_its_name(clock: SimpleNamespace) -> None:
    metrics = CoordinatorMetrics()
    for key in (ApiKeys.HEARTBEAT, ApiKeys.CONSUMER_GROUP_HEARTBEAT, ApiKeys.SHARE_GROUP_HEARTBEAT):
        clock.now_s += 1
        metrics.answered(key, 0.25 if key is ApiKeys.HEARTBEAT else 0.125)
    for key, latencies_s in (
        (ApiKeys.JOIN_GROUP, (1.0, 3.0)),
        (ApiKeys.SYNC_GROUP, (0.5,)),
        (ApiKeys.OFFSET_COMMIT, (0.25, 0.5, 0.75)),
        (ApiKeys.OFFSET_FETCH, (9.0,)),
    ):
        for latency_s in latencies_s:
            metrics.answered(key, latency_s)
    clock.now_s += 2.5
    values = metrics.read(7)[GROUP]
    expected = {
        "heartbeat-rate": 3 / WINDOW_S,
        "heartbeat-total": 3,
        "heartbeat-response-time-max": 250,
        "join-rate": 2 / WINDOW_S,
        "join-total": 2,
        "join-time-max": 3000,
        "join-time-avg": 2000,
        "sync-rate": 1 / WINDOW_S,
        "sync-total": 1,
        "sync-time-max": 500,
        "sync-time-avg": 500,
        "commit-rate": 3 / WINDOW_S,
        "commit-total": 3,
        "commit-latency-max": 750,
        "commit-latency-avg": 500,
        "assigned-partitions": 7,
        "last-heartbeat-seconds-ago": 2,
    }
    assert {name: values[name] for name in expected} == expected
    assert "heartbeat-response-time-avg" not in values


def test_a_rebalance_lasts_from_its_first_attempt(clock: SimpleNamespace) -> None:
    metrics = CoordinatorMetrics()
    metrics.rebalance_ends()  # of which nobody has seen the begin
    for lasts_s in (2, 4):
        metrics.rebalance_begins()
        clock.now_s += lasts_s / 2
        metrics.rebalance_fails()
        metrics.rebalance_begins()
        clock.now_s += lasts_s / 2
        metrics.rebalance_ends()
        clock.now_s += 1.5
    values = metrics.read(0)[GROUP]
    expected = {
        "rebalance-total": 2,
        "rebalance-rate-per-hour": 2 / WINDOW_S * 3600,
        "rebalance-latency-avg": 3000,
        "rebalance-latency-max": 4000,
        "rebalance-latency-total": 6000,
        "failed-rebalance-total": 2,
        "last-rebalance-seconds-ago": 1,
    }
    assert {name: values[name] for name in expected} == expected


# --- the coordinator ----------------------------------------------------------------------------------------------


class Lookup:
    """Finds node 7."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    async def find(self, *given: Any) -> int:
        self.calls.append(("find", *given))
        return 7

    def invalidate(self, *given: Any) -> None:
        self.calls.append(("invalidate", *given))


@pytest.mark.parametrize("error", [None, error_for(ErrorCode.NETWORK_EXCEPTION), error_for(ErrorCode.INVALID_REQUEST)])
def test_a_coordinator_is_looked_up_until_it_is_lost(
    run: Run, clock: SimpleNamespace, error: KafkaError | None
) -> None:
    async def scenario() -> None:
        sent: list[Any] = []

        async def send(node_id: int, request: Any, **options: Any) -> str:
            sent.append((node_id, request, options))
            clock.now_s += 0.25
            if error is not None:
                raise error
            return "response"

        metrics = CoordinatorMetrics()
        network: Any = SimpleNamespace(send=send, config={"retry.backoff.ms": 1, "retry.backoff.max.ms": 1})
        coordinator = GroupCoordinator(network, "g", metrics)
        lookup: Any = Lookup()
        coordinator._lookup = lookup
        assert not coordinator.known
        group = ("g", coordinators.CoordinatorType.GROUP)
        request = HeartbeatRequest()
        for each in (request, RequestOf(HeartbeatRequest, lambda version: request)):
            if error is None:
                assert await coordinator.send(each, timeout_ms=5, min_version=1, max_version=2) == "response"
            else:
                with pytest.raises(type(error)):
                    await coordinator.send(each, timeout_ms=5, min_version=1, max_version=2)
            assert sent.pop() == (7, each, {"timeout_ms": 5, "min_version": 1, "max_version": 2})
            lost = error is not None and error.retriable
            assert lookup.calls == [("find", *group), *[("invalidate", *group)] * lost]
            assert coordinator.known is not lost
            lookup.calls.clear()
        values = metrics.read(0)[GROUP]
        assert values["heartbeat-total"] == (2 if error is None else 0)
        if error is None:
            assert values["heartbeat-response-time-max"] == 250
        for code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
            coordinator.answered(code)
        assert lookup.calls == []
        for code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            coordinator.known = True
            coordinator.answered(code)
            assert not coordinator.known
            assert lookup.calls.pop() == ("invalidate", *group)

    run(scenario())


# --- the leader ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", RebalanceProtocol)
@pytest.mark.parametrize("name", ["cooperative-sticky", "mine"])
@pytest.mark.parametrize(("given", "allowed"), [("a0", False), ("a1", True), ("", True)])
def test_a_cooperative_assignor_may_not_give_away_what_is_owned(
    protocol: RebalanceProtocol, name: str, given: str, allowed: bool
) -> None:
    subscriptions = {"m1": Subscription(("a",), owned_partitions=tuple(tps("a0"))), "m2": Subscription(("a",))}
    assignments = {"m1": Assignment(()), "m2": Assignment(tuple(tps(given)))}
    assignor: Any = SimpleNamespace(name=name, assign=lambda cluster, members: assignments)
    cluster: Any = None
    if allowed or protocol is RebalanceProtocol.EAGER or name != "mine":
        assert assign(assignor, protocol, cluster, subscriptions) is assignments
    else:
        with pytest.raises(IllegalStateError, match="reassigned partitions that members still own: a-0"):
            assign(assignor, protocol, cluster, subscriptions)


@pytest.mark.parametrize("given", ["", "a0", "a0 b0"])
def test_topics_that_nobody_has_are_logged(given: str, caplog: pytest.LogCaptureFixture) -> None:
    assignments = {"m1": Assignment(tuple(sorted(tps(given))))}
    assignor: Any = SimpleNamespace(name="mine", assign=lambda cluster, members: assignments)
    cluster: Any = None
    assign(assignor, RebalanceProtocol.EAGER, cluster, {"m1": Subscription(("a", "b"))})
    left = [each for each in "ab" if each not in given]
    said = [each.message for each in caplog.records if each.levelname == "WARNING"]
    assert said == [f"Topics {left} are subscribed, but no member has them assigned"] * bool(left)


def test_a_snapshot_has_racks_only_for_consumers_with_one() -> None:
    partitions = {0: SimpleNamespace(replicas=[1, 2]), 1: SimpleNamespace(replicas=[9])}
    cluster: Any = SimpleNamespace(
        brokers=lambda: {1: SimpleNamespace(rack="r1"), 2: SimpleNamespace(rack=None)},
        topics={"a": SimpleNamespace(partitions=partitions), "b": SimpleNamespace(partitions={})},
    )
    assert snapshot(cluster, ["a", "b", "c"], True) == {"a": [frozenset({"r1"}), frozenset()]}
    assert snapshot(cluster, ["a", "b", "c"], False) == {"a": [frozenset(), frozenset()]}


# --- tasks --------------------------------------------------------------------------------------------------------


class Member(PolledMember):
    def _metadata_changed(self, cluster: Any) -> None: ...


def test_a_member_has_tasks_from_its_start_to_its_end(run: Run) -> None:
    async def scenario() -> None:
        calls: list[Any] = []
        cluster = SimpleNamespace(
            add_listener=lambda listener: calls.append(("add", listener)),
            remove_listener=lambda listener: calls.append(("remove", listener)),
        )
        keys = {"group.id": "g", "client.rack": "", "max.poll.interval.ms": 70_000, "request.timeout.ms": 5}
        config: Any = keys
        network: Any = SimpleNamespace(cluster=cluster)
        coordinator: Any = object()
        member = Member(config, network, coordinator)
        assert (member._group_id, member._rack, member._rebalance_timeout_ms) == ("g", None, 70_000)
        assert (member._request_timeout_ms, member._polls._max_interval_s, member.error) == (5, 70, None)
        assert Member({**config, "client.rack": "r"}, network, coordinator)._rack == "r"  # type: ignore[arg-type]
        await member.stop()
        assert calls == []
        polled: list[int] = []
        member._polls = SimpleNamespace(called=lambda: polled.append(1))  # type: ignore[assignment]
        member._begin([asyncio.Event().wait(), asyncio.sleep(0)])  # type: ignore[list-item]
        first, second = member._tasks
        assert (calls, polled) == ([("add", member._metadata_changed)], [1])
        await asyncio.wait({second})
        await member.stop()
        assert (first.cancelled(), second.cancelled(), member._tasks) == (True, False, [])
        assert calls[1:] == [("remove", member._metadata_changed)]
        member.poll_called()
        assert (polled, member._polled.is_set()) == ([1, 1], True)

    run(scenario())
