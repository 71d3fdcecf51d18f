"""ConsumerCore: on a loop that goes on after it, as the asyncio consumer's does; and what it gives to its parts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from clients.fake_broker import eventually

from kafkapy.clients.consumer.core import ConsumerCore
from kafkapy.clients.consumer.fetcher import FetchConfig
from kafkapy.clients.consumer.membership.protocol import ConsumerGroupMetadata
from kafkapy.clients.consumer.subscription import EARLIEST, LATEST, FetchState, SubscriptionPattern
from kafkapy.config.clients import ClientConfig
from kafkapy.config.consumer import CONSUMER
from kafkapy.errors import IllegalStateError, KafkaTimeoutError
from kafkapy.testing import Broker
from kafkapy.types import IsolationLevel, OffsetAndMetadata, TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def core_of(attended: bool = True, **configs: Any) -> ConsumerCore:
    """A core that is not started."""
    config = ClientConfig(CONSUMER, {"bootstrap.servers": "127.0.0.1:1"}, **configs)
    return ConsumerCore(config, post=lambda call: None, ring=lambda: None, attended=attended)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize(("leaves", "timeout_ms"), [(True, 5000), (False, 5000), (True, 0)])
def test_nothing_runs_on_after_close(run: Callable[[Any], Any], protocol: str, leaves: bool, timeout_ms: int) -> None:
    async def scenario(bootstrap_servers: str) -> None:
        config = ClientConfig(
            CONSUMER,
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": f"g-{protocol}-{leaves}-{timeout_ms}",
                "group.protocol": protocol,
                "internal.leave.group.on.close": leaves,
            },
        )
        loop = asyncio.get_running_loop()
        core = ConsumerCore(config, post=loop.call_soon, ring=lambda: None, attended=False)
        await core.start()
        core.subscribe(["t"], None, None)
        core.enter_poll()
        await eventually(lambda: core.membership is not None and core.membership.ready)
        await core.close(True, timeout_ms)
        await eventually(lambda: asyncio.all_tasks() == {asyncio.current_task()})

    with Broker() as broker:
        broker.create_topic("t")
        run(scenario(broker.bootstrap_servers))


@pytest.mark.parametrize("attended", [True, False])
def test_the_fetcher_has_its_part_of_the_configuration(attended: bool) -> None:
    core = core_of(
        attended,
        fetch_max_wait_ms=1,
        fetch_min_bytes=2,
        fetch_max_bytes=3,
        max_partition_fetch_bytes=4,
        isolation_level="read_committed",
        check_crcs=False,
        client_rack="r",
        enable_incremental_fetch_sessions=False,
        request_timeout_ms=5000,
        retry_backoff_ms=6,
        metadata_max_age_ms=7,
        key_deserializer=bytes.decode,
        value_deserializer=bytes.hex,
    )
    assert core._fetch_config(core.config, tuple_headers=not attended) == core.fetcher._config
    assert core.fetcher._config == FetchConfig(
        max_wait_ms=1,
        min_bytes=2,
        max_bytes=3,
        max_partition_bytes=4,
        isolation=IsolationLevel.READ_COMMITTED,
        check_crcs=False,
        rack="r",
        sessions=False,
        request_timeout_ms=5000,
        retry_backoff_s=0.006,
        metadata_max_age_s=0.007,
        tuple_headers=not attended,
        key_deserializer=bytes.decode,
        value_deserializer=bytes.hex,
    )
    assert core.tells_every_rebalance is not attended


def test_a_response_has_room_for_what_is_asked_for() -> None:
    given = core_of().config
    least = given["fetch.max.bytes"] + given["max.partition.fetch.bytes"]
    assert core_of().config["receive.message.max.bytes"] >= least
    large = {"fetch_max_bytes": 1 << 30, "max_partition_fetch_bytes": 5}
    assert core_of(**large).config["receive.message.max.bytes"] == (1 << 30) + 5
    assert core_of(**large, receive_message_max_bytes=1 << 20).config["receive.message.max.bytes"] == 1 << 20


def test_consumers_without_a_client_id_are_numbered() -> None:
    names = [core_of(**configs).network.client_id for configs in ({"group_id": "g"}, {}, {"client_id": "me"})]
    first, second = (name.rpartition("-") for name in names[:2])
    assert (first[0], second[0], names[2]) == ("consumer-g", "consumer-kafkapy", "me")
    assert int(second[2]) == int(first[2]) + 1


def test_a_core_without_a_group_has_no_member() -> None:
    core = core_of(client_rack="r", group_instance_id="i")
    assert core.committer is core.membership is None
    assert not core.auto_commit
    assert core.group_metadata() == ConsumerGroupMetadata("")
    resource = {"client_rack": "r", "group_id": None, "group_instance_id": "i", "group_member_id": None}
    assert core._telemetry_resource() == resource
    assert "consumer-coordinator-metrics" not in core.all_metrics()
    with pytest.raises(IllegalStateError, match="Committing needs a group: group_id is not set"):
        core.commit_soon(None, lambda offsets, error: None)
    with pytest.raises(IllegalStateError, match=r"SubscriptionPattern needs a group with group\.protocol=consumer"):
        core.subscribe((), SubscriptionPattern("t"), None)


@pytest.mark.parametrize(("enabled", "commits"), [(True, True), (False, False)])
def test_a_core_with_a_group_has_a_member(enabled: bool, commits: bool) -> None:
    async def main() -> None:
        core = core_of(group_id="g", enable_auto_commit=enabled)
        assert core.committer is not None
        assert core.membership is not None
        assert core.auto_commit is commits
        assert core.group_metadata().group_id == "g"
        assert core._telemetry_resource()["group_id"] == "g"
        metrics = core.all_metrics()
        assert {"consumer-metrics", "consumer-fetch-manager-metrics", "consumer-coordinator-metrics"} <= metrics.keys()
        assert "last-poll-seconds-ago" in metrics["consumer-metrics"]
        with pytest.raises(IllegalStateError, match="SubscriptionPattern"):
            core.subscribe((), SubscriptionPattern("t"), None)  # of the classic protocol

    asyncio.run(main())


def test_the_isolation_level_says_what_lag_is() -> None:
    for level, lag in (("read_committed", 2), ("read_uncommitted", 7)):
        core = core_of(isolation_level=level)
        core.subscription.assign_by_user([T0])
        state = core.subscription.state_of(T0)
        state.seek(3)
        state.last_stable_offset, state.high_watermark = 5, 10
        assert core.lag(T0) == lag
        with pytest.raises(IllegalStateError, match="No current assignment for partition"):
            core.lag(T1)


@pytest.mark.parametrize("attended", [True, False])
def test_positions_to_commit_are_those_of_the_last_poll(attended: bool) -> None:
    async def main() -> None:
        core = core_of(attended, group_id="g", auto_offset_reset="earliest")
        core.assign([T0, T1])
        core.seek(T0, 3)
        core.seek(T1, 4)
        core.enter_poll()
        core.seek(T0, 5)
        core.subscription.assign_by_user([T0])
        offset = 3 if attended else 5
        assert core.positions_to_commit() == {T0: OffsetAndMetadata(offset, "", -1)}
        core.closed = True
        assert core.positions_to_commit() == {T0: OffsetAndMetadata(5, "", -1)}
        await core.fetcher.close()
        core.offsets.close()
        await core.network.close()

    asyncio.run(main())


def test_resets_and_positions_of_what_is_assigned() -> None:
    async def main() -> None:
        core = core_of(auto_offset_reset="none")
        core.assign([T0])
        for reset in (EARLIEST, LATEST):
            core.reset([T0], reset)
            state = core.subscription.state_of(T0)
            assert (state.state, state.reset) == (FetchState.AWAIT_RESET, reset)
        with pytest.raises(IllegalStateError):
            core.reset([T0, T1], EARLIEST)
        assert core.subscription.state_of(T0).reset is LATEST  # all or none
        with pytest.raises(KafkaTimeoutError, match="was not available within 1 ms"):
            await core.position(T0, 1)
        with pytest.raises(IllegalStateError):
            await core.position(T1, 1)
        core.seek(T0, 9)
        assert await core.position(T0, 60_000) == 9
        core.reset([T0], LATEST)
        core.report(ValueError("x"))
        with pytest.raises(ValueError, match="x"):
            await core.position(T0, 60_000)
        await core.fetcher.close()
        core.offsets.close()
        await core.network.close()

    asyncio.run(main())


def test_its_parts_wake_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    core = core_of(auto_offset_reset="earliest")
    core.assign([])
    woken: list[str] = []
    monkeypatch.setattr(core.fetcher, "wake", lambda: woken.append("fetcher"))
    monkeypatch.setattr(core.offsets, "wake", lambda: woken.append("offsets"))
    parts: list[tuple[Callable[[], object], list[str]]] = [
        (core.offsets._on_positions, ["fetcher"]),
        (lambda: core._metadata_changed(core.network.cluster), ["offsets", "fetcher"]),
        (lambda: core.assign([T0]), ["fetcher"]),
        (lambda: core.assign([T0]), []),  # nothing new
        (lambda: core.seek(T0, 5), ["offsets", "fetcher"]),
        (lambda: core.reset([T0], LATEST), ["offsets"]),
        (core.wake_fetcher, ["fetcher"]),
    ]
    for work, wakes in parts:
        core._changed.clear()
        work()
        assert woken == wakes
        woken.clear()
        assert core._changed.is_set() is (work is parts[0][0])  # position() looks again
    for report in (core.report, core.offsets._on_error, core.fetcher._on_error):
        core._changed.clear()
        core.buffer.attention = False
        error = ValueError(str(report))
        report(error)
        assert core._changed.is_set()
        assert core.buffer.attention
        assert core.attendance.next_error() is error
