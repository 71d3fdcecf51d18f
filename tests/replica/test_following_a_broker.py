"""Followers of a whole broker: its fetch sessions, its listeners' security, its answers to replicas."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from waiting import until

from kafkapy._speedups.log.partition_log import PartitionLog
from kafkapy.config.clients import COMMON, ClientConfig
from kafkapy.replica.fetcher_api import FollowerVersions
from kafkapy.testing.broker import Broker
from kafkapy.types import Endpoint, TopicPartition
from tests.replica.scripted_leader import FOLLOWER, TP, Follower, batch, contents

USERS = {"ann": "secret"}


def lead(broker: Broker, topic_partition: TopicPartition, epoch: int) -> PartitionLog:
    """Makes the broker lead a partition that the follower has a replica of."""
    partition = broker.server.context.replica_manager.partition(topic_partition)
    assert partition.log is not None
    assert partition.assignment is not None
    log = partition.log
    state = partition.assignment.state._replace(leader_epoch=epoch)
    partition.assignment = partition.assignment._replace(state=state, replicas=(1, FOLLOWER))
    log.become_leader(1, epoch, [1, FOLLOWER], [1, FOLLOWER])
    return log


def follower_of(broker: Broker, directory: Path, *, versions: FollowerVersions | None = None, **keys: str) -> Follower:
    config = {"client.id": "follower", **broker.client_config()}
    return Follower(
        directory,
        {1: Endpoint("PLAINTEXT", "localhost", broker.port)},
        versions=versions,
        client_config=ClientConfig(COMMON, config),
        **keys,
    )


@pytest.mark.parametrize("security", ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_a_follower_of_a_broker(tmp_path: Path, security: str) -> None:
    async def scenario(broker: Broker) -> None:
        topic_id = broker.create_topic("orders", 2)
        follower = follower_of(broker, tmp_path)
        logs: dict[TopicPartition, tuple[PartitionLog, PartitionLog]] = {}
        for each in (TP, TopicPartition("orders", 1)):
            theirs = lead(broker, each, 5)
            for size in (10, 100_000, 900_000):
                theirs.append_as_leader(batch(2, size=size // 2))
            logs[each] = (theirs, follower.follow(each, epoch=5, topic_id=topic_id))
        try:
            for theirs, ours in logs.values():
                await until(lambda ours=ours: ours.high_watermark == 6, "the follower catches up")
                assert contents(ours) == contents(theirs)
                theirs.append_as_leader(batch(1))
                await until(lambda theirs=theirs: theirs.high_watermark == 7, "the leader counts the follower")
                await until(lambda ours=ours: ours.high_watermark == 7, "the high watermark follows")
            assert follower.failed == {}
        finally:
            await follower.close()

    with Broker(security=security, users=USERS if "SASL" in security else None) as broker:
        asyncio.run(scenario(broker))


@pytest.mark.parametrize("version", range(4, 18))
def test_every_version_of_fetch(tmp_path: Path, version: int) -> None:
    async def scenario(broker: Broker) -> None:
        topic_id = broker.create_topic("orders")
        theirs = lead(broker, TP, 3)
        for _ in range(5):
            theirs.append_as_leader(batch(3))
        follower = follower_of(broker, tmp_path, versions=FollowerVersions(fetch=version))
        try:
            ours = follower.follow(TP, epoch=3, topic_id=topic_id)
            await until(lambda: ours.high_watermark == 15, "the follower catches up")
            theirs.delete_records(7)
            await until(lambda: version < 5 or ours.log_start_offset == 7, "the log start follows")
            assert ours.read(7)[0] == theirs.read(7)[0]
        finally:
            await follower.close()

    with Broker() as broker:
        asyncio.run(scenario(broker))


@pytest.mark.parametrize("fetch", [11, 17])
def test_a_follower_is_cut_as_a_broker_says(tmp_path: Path, fetch: int) -> None:
    async def scenario(broker: Broker) -> None:
        topic_id = broker.create_topic("orders")
        versions = FollowerVersions(fetch=fetch, truncates_on_fetch=fetch >= 12)
        follower = follower_of(broker, tmp_path, versions=versions)
        ours = follower.log(TP, topic_id=topic_id)
        try:
            for log, epochs in ((lead(broker, TP, 1), (1, 3, 5)), (ours, (1, 2, 4))):
                for epoch in epochs:
                    log.become_leader(1, epoch, [1, FOLLOWER], [1, FOLLOWER])
                    for _ in range(epoch):
                        log.append_as_leader(batch(1))
            theirs = lead(broker, TP, 9)
            follower.follow(TP, epoch=9, topic_id=topic_id)
            await until(lambda: ours.high_watermark == theirs.log_end_offset, "the follower catches up")
            assert contents(ours) == contents(theirs)
            assert ours.leader_epochs() == theirs.leader_epochs()[: len(ours.leader_epochs())]
        finally:
            await follower.close()

    with Broker() as broker:
        asyncio.run(scenario(broker))


def test_a_connection_is_renewed_before_its_session_ends(tmp_path: Path) -> None:
    """The broker closes a connection whose SASL session has ended (KIP-368)."""

    async def scenario(broker: Broker) -> None:
        topic_id = broker.create_topic("orders")
        theirs = lead(broker, TP, 3)
        follower = follower_of(broker, tmp_path)
        lost: list[Any] = []
        try:
            ours = follower.follow(TP, epoch=3, topic_id=topic_id)
            await until(lambda: follower.fetchers.metrics().requests > 0, "a first answer")
            (fetcher,) = follower.fetchers._fetchers.values()
            wanted = fetcher.connection_wanted

            def connection_wanted(error: int, why: str) -> None:
                lost.append((error, why))
                wanted(error, why)

            fetcher.connection_wanted = connection_wanted  # type: ignore[method-assign]
            for number in range(1, 4):
                await until(lambda number=number: len(lost) >= number, "a renewal")
                theirs.append_as_leader(batch(1))
                await until(lambda number=number: ours.log_end_offset == number, "the follower goes on")
            # On a busy machine the broker may be faster now and then; the follower comes back from that as well.
            await until(lambda: any(error == 0 for error, _ in lost), "a renewal before the end")
            assert follower.failed == {}
        finally:
            await follower.close()

    with Broker(security="SASL_PLAINTEXT", users=USERS, connections_max_reauth_ms=1500) as broker:
        asyncio.run(scenario(broker))


def test_a_wrong_password_is_told_and_tried_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(broker: Broker) -> None:
        topic_id = broker.create_topic("orders")
        lead(broker, TP, 3).append_as_leader(batch(1))
        good = broker.client_config()
        follower = follower_of(broker, tmp_path)
        await follower.close()
        bad = ClientConfig(COMMON, {**good, "sasl.plain.password": "wrong"})
        follower = Follower(tmp_path / "2", {1: Endpoint("PLAINTEXT", "localhost", broker.port)}, client_config=bad)
        try:
            ours = follower.follow(TP, epoch=3, topic_id=topic_id)
            await until(lambda: any("has no connection to leader 1" in text for text in caplog.messages), "a warning")
            assert ours.log_end_offset == 0
            assert follower.fetchers.metrics().dead_threads == 1
        finally:
            await follower.close()

    with Broker(security="SASL_PLAINTEXT", users=USERS) as broker:
        asyncio.run(scenario(broker))
