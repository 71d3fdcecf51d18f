"""Controllers that die or lose their session: another one goes on, and the old one changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from controller.several import SeveralBrokers, run_several, session_of
from controller.test_several_brokers import create
from waiting import until, until_not

from kafkapy import errors
from kafkapy.controller import controller as controller_module
from kafkapy.controller.admin_requests import NewTopic
from kafkapy.controller.context import ReplicaStatus
from kafkapy.controller.controller_store import ControllerMovedError
from kafkapy.errors import ErrorCode
from kafkapy.metadata.broker_requests import BrokerResponse, LeaderAndIsr
from kafkapy.metadata.features import LATEST_LEVELS
from kafkapy.metadata.metadata_version import MetadataVersion
from kafkapy.metadata.store import Operation, SetData, StoreUnavailableError
from kafkapy.metadata.znodes import (
    FEATURE,
    decode_feature,
    decode_partition_state,
    encode_feature,
    encode_partition_state,
    partition_state_path,
)
from kafkapy.types import TopicPartition

T0 = TopicPartition("t", 0)


def test_the_next_controller_knows_everything_and_has_a_higher_epoch() -> None:
    async def test(cluster: SeveralBrokers) -> None:
        await create(cluster, {0: [0, 1], 1: [1, 2]})
        await create(cluster, {0: [0]}, "single")
        epoch = cluster.active.controller.epoch
        assert [each.controller.active_controller_id for each in cluster.members.values()] == [0, 0, 0]
        await cluster.kill(0)
        active = cluster.active
        assert active.controller.epoch == epoch + 1
        assert (cluster.state(T0).leader, cluster.state(T0).isr) == (1, (1,))
        assert cluster.state(TopicPartition("single", 0)).leader == -1
        for each in (cluster[1], cluster[2]):
            assert each.host.cache.controller_id == active.id
            assert each.controller.active_controller_id == active.id
            assert each.host.cache.partition(*T0).leader == 1
        await create(cluster, {0: [2, 1]}, "later")
        await cluster.restart(0)
        assert not cluster[0].controller.is_active
        assert cluster.state(TopicPartition("single", 0)).leader == 0
        assert cluster[0].host.cache.topic("later") is not None

    run_several(test)


def test_a_controller_whose_session_expired_writes_nothing_more() -> None:
    async def test(cluster: SeveralBrokers) -> None:
        await create(cluster, {0: [1, 2]})
        old = cluster[0]
        session = session_of(old)
        # It is frozen: it hears of nothing, and its session ends.
        session.cut = True
        await session.expire()
        old.host.reachable = False
        await cluster.settled()
        assert cluster.active.id != 0
        assert old.controller.is_active, "it does not know yet"
        before = cluster.state(T0)
        stale = LeaderAndIsr(0, old.controller.epoch, cluster[1].host.epoch, {}, {})
        # Brokers refuse its requests.
        assert await cluster[1].host.become_leader_or_follower(stale) == BrokerResponse(
            ErrorCode.STALE_CONTROLLER_EPOCH
        )
        await session.reconnect()
        await until(lambda: not old.controller.is_active, "the old controller has resigned")
        old.host.reachable = True
        await until(lambda: 0 in cluster.context.live_brokers, "broker 0 is registered again")
        await cluster.settled()
        assert cluster.state(T0) == before
        assert old.controller.active_controller_id == cluster.active.id
        assert cluster.context.live_brokers[0].epoch == old.controller.broker_epoch

    run_several(test)


def test_a_write_of_a_replaced_controller_is_refused_by_the_epoch_s_version() -> None:
    async def test(cluster: SeveralBrokers) -> None:
        await create(cluster, {0: [1, 2]})
        old, state = cluster[0], cluster.state(T0)
        # Another broker is elected, and this one has not heard of it.
        session = session_of(old)
        session.drop_watches()
        await session.delete("/controller")
        await until(lambda: sum(each.controller.is_active for each in cluster.members.values()) == 2, "two believe so")
        with pytest.raises(ControllerMovedError):
            await old.controller.store.update_partition_states({T0: state._replace(isr=(1,))})
        with pytest.raises(errors.NotControllerError):
            await old.controller.alter_partitions(1, cluster[1].controller.broker_epoch, [])
            await old.controller.allocate_producer_ids(1, cluster[1].controller.broker_epoch)
        await until(lambda: not old.controller.is_active, "the old controller has resigned")
        await cluster.settled()
        assert cluster.state(T0).isr == (1, 2)

    run_several(test)


def test_requests_behind_an_expiry_get_not_controller() -> None:
    async def test(cluster: SeveralBrokers) -> None:
        old, session = cluster[0], session_of(cluster[0])
        gate = asyncio.Event()
        waiting = asyncio.create_task(old.controller.submit("Slow", gate.wait))
        await asyncio.sleep(0.002)
        behind = asyncio.create_task(old.admin.create_topics([NewTopic("t", 1, 1)]))
        await asyncio.sleep(0.002)
        await session.expire()
        await session.reconnect()
        gate.set()
        assert await waiting
        with pytest.raises(errors.NotControllerError):
            await behind
        await cluster.settled()
        assert cluster.context.assignments == {}

    run_several(test)


@pytest.mark.parametrize("lost", ["isr", "election"])
def test_a_write_whose_reply_is_lost_is_found_out(monkeypatch: pytest.MonkeyPatch, lost: str) -> None:
    monkeypatch.setattr(controller_module, "RETRY_MS", 5)

    async def test(cluster: SeveralBrokers) -> None:
        await create(cluster, {0: [1, 2]})
        session = session_of(cluster[0])
        state_path = partition_state_path(T0)

        def writes_state(operations: Sequence[Operation]) -> bool:
            return any(isinstance(each, SetData) and each.path == state_path for each in operations)

        session.lose_reply = writes_state
        if lost == "isr":
            with pytest.raises(Exception, match="reply is lost"):
                await cluster.alter_isr(T0, (1,))
            state = cluster.state(T0)
            await cluster.settled()
            # The leader asks again, and its change is there.
            await until(lambda: cluster.state(T0).isr == (1,) or state.isr == (1, 2), "the state is known")
            data, stat = await session.get(state_path)
            assert decode_partition_state(T0, data, stat.version).isr == (1,)
        else:
            await cluster[1].die()
            await until(lambda: T0 in cluster.context.leadership and cluster.state(T0).leader == 2, "broker 2 leads")
            await cluster.settled()
            assert cluster[2].host.leads(T0)
        data, stat = await session.get(state_path)
        stored = decode_partition_state(T0, data, stat.version)
        for member in (cluster[0], cluster[2]):
            assert member.host.cache.partition(*T0) is not None
        if lost == "election":
            assert stored == cluster.state(T0)

    run_several(test)


def test_a_leader_that_asks_again_after_a_lost_write_gets_the_state() -> None:
    async def test(cluster: SeveralBrokers) -> None:
        await create(cluster, {0: [1, 2]})
        before = cluster.state(T0)
        session_of(cluster[0]).lose_reply = lambda operations: any(isinstance(each, SetData) for each in operations)
        with pytest.raises(StoreUnavailableError):
            await cluster.alter_isr(T0, (1,))
        # At once, before the controller has read the store again.
        answer = await cluster.alter_isr(T0, (1,), partition_epoch=before.version)
        assert answer == before._replace(isr=(1,), version=before.version + 1)
        assert cluster.state(T0) == answer
        assert await cluster.alter_isr(T0, (1, 2)) == before._replace(version=before.version + 2)

    run_several(test)


def test_a_leader_below_ibp_2_7_writes_the_isr_and_the_controller_takes_it_over() -> None:
    async def test(cluster: SeveralBrokers) -> None:
        await create(cluster, {0: [1, 2]})
        path = partition_state_path(T0)
        data, stat = await cluster[1].store.get(path)
        shrunk = decode_partition_state(T0, data, stat.version)._replace(isr=(1,))
        await cluster[1].store.set(path, encode_partition_state(shrunk), stat.version)
        changes = b'{"version":1,"partitions":[{"topic":"t","partition":0}]}'
        await cluster[1].store.create("/isr_change_notification/isr_change_", changes, sequential=True)
        await until(lambda: cluster.state(T0).isr == (1,), "the controller knows the ISR")
        await cluster.settled()
        assert cluster.state(T0).version == stat.version + 1
        assert cluster[0].host.cache.partition(*T0).isr == (1,)
        assert await cluster[0].store.children("/isr_change_notification") == []
        # An election reads the state once more.
        await cluster.kill(2)
        assert cluster.state(T0).isr == (1,)

    run_several(test, version=MetadataVersion.parse("2.6"))


def test_an_election_reads_what_the_leader_has_written_last() -> None:
    async def test(cluster: SeveralBrokers) -> None:
        await create(cluster, {0: [1, 2, 0]})
        path = partition_state_path(T0)
        data, stat = await cluster[1].store.get(path)
        shrunk = decode_partition_state(T0, data, stat.version)._replace(isr=(1, 0))
        await cluster[1].store.set(path, encode_partition_state(shrunk), stat.version)
        # The leader dies before it has told the controller: broker 2 may lack records.
        await cluster.kill(1)
        assert (cluster.state(T0).leader, cluster.state(T0).isr) == (0, (0,))

    run_several(test, version=MetadataVersion.parse("2.6"))


ZOOKEEPER = {"zookeeper_connect": "127.0.0.1:1"}
"""The keys of a broker that has other brokers beside it; the store is the test's."""


@pytest.mark.parametrize(
    ("version", "enabled", "layout"), [("2.6", False, b"1"), ("2.8", True, b"1"), ("3.9", True, b"2")]
)
def test_features_of_a_new_cluster(version: str, enabled: bool, layout: bytes) -> None:
    async def test(cluster: SeveralBrokers) -> None:
        data, _ = await cluster[0].store.get(FEATURE)
        assert decode_feature(data) == (enabled, {})
        assert b'"version":' + layout in data

    run_several(test, brokers=1, version=MetadataVersion.parse(version), **ZOOKEEPER)


def test_features_of_a_new_cluster_without_zookeeper() -> None:
    async def test(cluster: SeveralBrokers) -> None:
        data, stat = await cluster[0].store.get(FEATURE)
        assert (decode_feature(data), stat.version) == ((True, LATEST_LEVELS), 0)
        # A node of an earlier kafkapy gets them too; levels of this one stay.
        for written, kept in (({}, LATEST_LEVELS), ({"metadata.version": 33}, {"metadata.version": 33})):
            before = cluster.active.id
            await cluster[before].store.set(FEATURE, encode_feature(True, written))
            await cluster.kill(before)
            data, _ = await cluster.active.store.get(FEATURE)
            assert decode_feature(data) == (True, kept)
            await cluster.restart(before)

    run_several(test)


def test_features_stay_when_they_are_enabled_and_go_with_an_old_protocol() -> None:
    async def test(cluster: SeveralBrokers) -> None:
        store = cluster[1].store
        _, stat = await store.get(FEATURE)
        await store.set(FEATURE, encode_feature(True, {"some": 3}))
        await cluster.kill(0)
        data, kept = await store.get(FEATURE)
        assert decode_feature(data) == (True, {"some": 3})
        assert kept.version == stat.version + 1
        await store.set(FEATURE, encode_feature(False, {"some": 3}))
        await cluster.restart(0)
        survivor = 3 - cluster.active.id
        await cluster.kill(cluster.active.id)
        data, _ = await cluster[survivor].store.get(FEATURE)
        assert decode_feature(data) == (True, {})

    run_several(test, **ZOOKEEPER)


def test_blocks_of_producer_ids_follow_each_other() -> None:
    async def test(cluster: SeveralBrokers) -> None:
        async def allocate(broker: int) -> range:
            controller = cluster.active.controller
            block = await controller.allocate_producer_ids(broker, cluster[broker].controller.broker_epoch)
            assert block.broker_id == broker
            return range(block.first, block.last + 1)

        blocks = [await allocate(broker) for broker in (0, 1, 2, 1)]
        await cluster.kill(0)
        blocks += [await allocate(broker) for broker in (1, 2)]
        assert [number for block in blocks for number in block] == list(range(6000))
        assert {len(block) for block in blocks} == {1000}
        controller = cluster.active.controller
        with pytest.raises(errors.BrokerIdNotRegisteredError):
            await controller.allocate_producer_ids(0, 1)
        with pytest.raises(errors.StaleBrokerEpochError):
            await controller.allocate_producer_ids(1, cluster[1].controller.broker_epoch - 1)
        idle = cluster[3 - cluster.active.id].controller
        with pytest.raises(errors.NotControllerError):
            await idle.allocate_producer_ids(1, cluster[1].controller.broker_epoch)

    run_several(test)


# --- what cannot be read, and what fails half way ---------------------------------------------------------------------


def test_nodes_that_cannot_be_read_keep_nobody_from_controlling() -> None:
    async def test(cluster: SeveralBrokers) -> None:
        await create(cluster, {0: [0, 1]})
        store = cluster[2].store
        await store.create("/brokers/ids/77", b"{", ephemeral=True)
        await store.create("/brokers/topics/broken", b"[]")
        for path in ("/isr_change_notification/isr_change_", "/log_dir_event_notification/log_dir_event_"):
            await store.create(path, b"nonsense", sequential=True)
        await cluster.settled()
        for path in ("/isr_change_notification", "/log_dir_event_notification"):
            await until_not(lambda path=path: store.children(path), "the notification is taken")
        assert cluster.context.live_brokers.keys() == {0, 1, 2}
        await cluster.kill(0)
        assert cluster.state(T0).leader == 1
        assert cluster.context.assignments.keys() == {"t"}

    run_several(test)


def test_a_broker_hears_of_its_replicas_although_the_store_failed_when_it_came(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(controller_module, "RETRY_MS", 5)

    async def test(cluster: SeveralBrokers) -> None:
        await create(cluster, {0: [1, 2]})
        await cluster.kill(2)
        replicas = cluster.active.controller.current.replicas
        original, failed = replicas.handle_state_changes, []

        async def fail_once(*arguments: Any) -> None:
            if arguments[1] is ReplicaStatus.ONLINE and not failed:
                failed.append(arguments)
                raise StoreUnavailableError("/", "the connection is gone")
            await original(*arguments)

        monkeypatch.setattr(replicas, "handle_state_changes", fail_once)
        await cluster.restart(2)
        await until(lambda: T0 in cluster[2].host.hosted, "broker 2 follows")
        await cluster.settled()
        assert failed
        assert cluster[2].host.cache.partition(*T0).leader == 1
        await cluster.catch_up(T0, 2)

    run_several(test)


def test_an_answer_to_an_earlier_registration_counts_no_more() -> None:
    async def test(cluster: SeveralBrokers) -> None:
        await create(cluster, {0: [1, 2]})
        controller, state = cluster.active.controller, cluster.state(T0)
        old = LeaderAndIsr(0, controller.epoch, cluster[2].host.epoch - 1, {}, {})
        answer = BrokerResponse(partition_errors={T0: ErrorCode.KAFKA_STORAGE_ERROR})
        controller._answered(2, old, answer)
        await cluster.settled()
        assert cluster.state(T0) == state
        controller._answered(2, replace(old, broker_epoch=cluster[2].host.epoch), answer)
        await cluster.settled()
        assert cluster.state(T0).isr == (1,)

    run_several(test)
