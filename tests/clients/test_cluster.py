"""ClusterMetadata: what it reads, what and when it asks, leader epochs, leader hints."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from clients.connected import client
from clients.fake_broker import FakeCluster, Silence, eventually

from kafkapy.clients.cluster import BrokerNode, ClusterMetadata
from kafkapy.errors import (
    ErrorCode,
    IllegalStateError,
    KafkaConnectionError,
    NodeNotReadyError,
    TopicAuthorizationFailedError,
)
from kafkapy.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kafkapy.protocol.registry import ApiKeys
from kafkapy.testing.broker_process import BrokerProcess
from kafkapy.types import TopicPartition

Run = Callable[[Any], Any]
A0, A1, A2 = (TopicPartition("a", number) for number in range(3))


def asked(cluster: FakeCluster) -> list[set[str] | None]:
    """The topics of every Metadata request, None for all."""
    requests = [request for broker in cluster.brokers.values() for request in broker.seen(ApiKeys.METADATA)]
    return [None if request.topics is None else {topic.name for topic in request.topics} for request in requests]


def test_what_a_real_broker_says(broker: BrokerProcess, run: Run) -> None:
    async def scenario() -> None:
        async with client(broker.bootstrap) as network:
            cluster = network.cluster
            assert cluster.topics == {}
            cluster.allow_auto_topic_creation = True
            cluster.want(["metadata-test"])
            await eventually(lambda: cluster.partitions_for_topic("metadata-test"))
            place = TopicPartition("metadata-test", 0)
            assert cluster.leader_for(place) == cluster.leader_for_partition(place) == 1
            assert cluster.leader_epoch_for(place) >= 0
            assert cluster.available_partitions_for_topic("metadata-test") == {0}
            assert place in (cluster.partitions_for_broker(1) or set())
            topic_id = cluster.topic_id("metadata-test")
            assert isinstance(topic_id, uuid.UUID)
            assert cluster.topic_name(topic_id) == "metadata-test"
            assert "metadata-test" in cluster.topic_names()
            assert cluster.broker_metadata(1) == cluster.node(1) == cluster.controller
            assert cluster.controller is not None and cluster.controller.nodeId == 1

    run(scenario())


def test_what_is_not_known(run: Run) -> None:
    async def scenario() -> None:
        async with FakeCluster() as fake, client(fake.bootstrap) as network:
            cluster = network.cluster
            assert cluster.partitions_for_topic("a") is None
            assert cluster.available_partitions_for_topic("a") is None
            assert cluster.leader_for(A0) is None
            assert cluster.leader_epoch_for(A0) == -1
            assert cluster.topic_id("a") is None
            assert cluster.topic_name(uuid.uuid4()) is None
            assert cluster.topic_error("a") is None
            assert cluster.partitions_for_broker(1) is None
            assert cluster.broker_metadata(9) is None

    run(scenario())


# --- what is asked for ----------------------------------------------------------------------------------------------


def test_new_topics_are_asked_for_alone(run: Run) -> None:
    async def scenario() -> None:
        async with FakeCluster() as fake:
            for topic in "abc":
                fake.create(topic, {0: (1, 0)})
            async with client(fake.bootstrap) as network:
                network.cluster.want(["a"])
                await eventually(lambda: "a" in network.cluster.topics)
                network.cluster.want(["a", "b"])
                await eventually(lambda: "b" in network.cluster.topics)
                assert set(network.cluster.topics) == {"a", "b"}
                await network.cluster.refresh()
                assert asked(fake) == [set(), {"a"}, {"b"}, {"a", "b"}]

    run(scenario())


def test_the_wanted_topics_can_be_replaced(run: Run) -> None:
    async def scenario() -> None:
        async with FakeCluster() as fake:
            for topic in "abc":
                fake.create(topic, {0: (1, 0)})
            async with client(fake.bootstrap) as network:
                network.cluster.want(["a", "b"])
                await network.cluster.refresh()
                network.cluster.want_only(["b", "c"])
                await network.cluster.refresh()
                assert set(network.cluster.topics) == {"b", "c"}
                network.cluster.want_all(True)
                await network.cluster.refresh()
                assert set(network.cluster.topics) == {"a", "b", "c"}
                assert asked(fake)[-1] is None

    run(scenario())


def test_one_request_serves_concurrent_callers(run: Run) -> None:
    async def scenario() -> None:
        async with FakeCluster() as fake:
            fake.create("a", {0: (1, 0)})
            async with client(fake.bootstrap) as network:
                gate = asyncio.Event()

                async def slow(version: int, request: MetadataRequest) -> MetadataResponse:
                    await gate.wait()
                    return fake.metadata(request)

                fake[1].on[ApiKeys.METADATA] = slow
                callers = [asyncio.ensure_future(network.cluster.refresh()) for _ in range(10)]
                await eventually(lambda: len(asked(fake)) == 2)
                callers[0].cancel()
                network.cluster.want(["a"])
                callers.append(asyncio.ensure_future(network.cluster.refresh()))
                await asyncio.sleep(0.02)
                assert len(asked(fake)) == 2
                gate.set()
                await asyncio.gather(*callers[1:])
                assert "a" in network.cluster.topics, "the last caller's topic came with a request of its own"
                assert len(asked(fake)) <= 4

    run(scenario())


def test_whoever_waits_hears_that_the_client_was_closed(run: Run) -> None:
    def silent(version: int, request: MetadataRequest) -> MetadataResponse:
        raise Silence

    async def scenario() -> None:
        async with FakeCluster() as fake:
            async with client(fake.bootstrap) as network:
                fake[1].on[ApiKeys.METADATA] = silent
                callers = [asyncio.ensure_future(network.cluster.refresh()) for _ in range(3)]
                await eventually(lambda: len(asked(fake)) == 2)
            results = await asyncio.gather(*callers, return_exceptions=True)
            assert {type(result) for result in results} <= {IllegalStateError, KafkaConnectionError}

    run(scenario())


def test_topics_that_are_not_used_are_forgotten(run: Run) -> None:
    async def scenario() -> None:
        async with FakeCluster() as fake:
            fake.create("a", {0: (1, 0)})
            async with client(fake.bootstrap) as network:
                cluster = ClusterMetadata(network.config, network.send_metadata, network.cluster.brokers().values())
                cluster._max_idle_s = 0.05
                cluster.want(["a"])
                await cluster.refresh()
                assert set(cluster.topics) == {"a"}
                await asyncio.sleep(0.06)
                await cluster.refresh()
                assert set(cluster.topics) == set()

    run(scenario())


def test_metadata_is_asked_for_again_when_it_is_old(run: Run) -> None:
    async def scenario() -> None:
        async with FakeCluster() as fake, client(fake.bootstrap, metadata_max_age_ms=30):
            await eventually(lambda: len(asked(fake)) >= 4)

    run(scenario())


def test_it_asks_again_until_there_is_a_leader(run: Run) -> None:
    async def scenario() -> None:
        async with FakeCluster() as fake:
            fake.create("a", {0: (-1, 3)})
            async with client(fake.bootstrap) as network:
                network.cluster.want(["a"])
                await eventually(lambda: len(asked(fake)) >= 4)
                assert network.cluster.leader_for(A0) is None
                assert network.cluster.partitions_for_topic("a") == {0}
                assert network.cluster.available_partitions_for_topic("a") == set()
                fake.leaders["a"][0] = (1, 4)
                await eventually(lambda: network.cluster.leader_for(A0) == 1)
                number = len(asked(fake))
                await asyncio.sleep(0.1)
                assert len(asked(fake)) <= number + 1, "and then no more"

    run(scenario())


def test_what_goes_out_of_date_during_a_refresh_is_asked_for_again(run: Run) -> None:
    async def scenario() -> None:
        async with FakeCluster() as fake:
            fake.create("a", {0: (1, 3)})
            async with client(fake.bootstrap) as network:
                network.cluster.want(["a"])
                await network.cluster.refresh()

                def late(version: int, request: MetadataRequest) -> MetadataResponse:
                    answer = fake.metadata(request)
                    if fake.leaders["a"][0] == (1, 3):
                        fake.leaders["a"][0] = (1, 4)  # after this answer was made
                        network.cluster.invalidate()
                    return answer

                fake[1].on[ApiKeys.METADATA] = late
                await network.cluster.refresh()
                await eventually(lambda: network.cluster.leader_epoch_for(A0) == 4)

    run(scenario())


def test_errors_of_topics(run: Run) -> None:
    async def scenario() -> None:
        async with FakeCluster() as fake:
            fake.topic_errors["secret"] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            async with client(fake.bootstrap) as network:
                network.cluster.want(["secret", "missing"])
                await network.cluster.refresh()
                error = network.cluster.topic_error("secret")
                assert isinstance(error, TopicAuthorizationFailedError)
                assert "secret" in str(error)
                missing = network.cluster.topic_error("missing")
                assert missing is not None and missing.retriable and missing.invalid_metadata
                assert network.cluster.topic_names() == set()

    run(scenario())


def test_a_failed_refresh_is_told_and_tried_again(run: Run) -> None:
    async def scenario() -> None:
        async with FakeCluster() as fake, client(fake.bootstrap) as network:
            await fake[1].stop()
            with pytest.raises((KafkaConnectionError, NodeNotReadyError)):
                await network.cluster.refresh()
            await fake[1].start()
            version = network.cluster.version
            await eventually(lambda: network.cluster.version > version)

    run(scenario())


def test_a_starting_broker_that_knows_nobody_is_not_believed(run: Run) -> None:
    async def scenario() -> None:
        async with FakeCluster() as fake, client(fake.bootstrap) as network:
            fake.named = {}
            for _ in range(3):
                with contextlib.suppress(Exception):
                    await network.cluster.refresh()
            assert set(network.cluster.brokers()) == {1}

    run(scenario())


def test_impossible_partitions_are_ignored(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """A list of all partitions up to such an index would cost gigabytes."""

    async def scenario() -> None:
        async with FakeCluster(1) as fake:
            fake.create("a", {0: (1, 7), 2: (1, 7), 2**31 - 1: (1, 7), -1: (1, 7), 5_000_000: (1, 7)})
            async with client(fake.bootstrap) as network:
                network.cluster.want(["a"])
                await network.cluster.refresh()
                assert network.cluster.partitions_for_topic("a") == {0, 2}
        assert "has partition index 5000000: ignored" in caplog.text

    run(scenario())


# --- leaders --------------------------------------------------------------------------------------------------------


def test_a_broker_that_lags_behind_does_not_bring_an_old_leader_back(run: Run) -> None:
    async def scenario() -> None:
        async with FakeCluster(2) as fake:
            fake.create("a", {0: (2, 7)})
            async with client(fake.bootstrap) as network:
                cluster = network.cluster
                cluster.want(["a"])
                await cluster.refresh()
                assert (cluster.leader_for(A0), cluster.leader_epoch_for(A0)) == (2, 7)
                fake.leaders["a"][0] = (1, 6)
                await cluster.refresh()
                assert (cluster.leader_for(A0), cluster.leader_epoch_for(A0)) == (2, 7)
                fake.leaders["a"][0] = (1, 8)
                await cluster.refresh()
                assert (cluster.leader_for(A0), cluster.leader_epoch_for(A0)) == (1, 8)
                fake.create("a", {0: (2, 0)})  # deleted and made again
                await cluster.refresh()
                assert (cluster.leader_for(A0), cluster.leader_epoch_for(A0)) == (2, 0)

    run(scenario())


def test_epochs_of_old_brokers_are_not_trusted(run: Run) -> None:
    """Before Metadata version 9 a broker may tell an epoch that is not the leader's."""

    async def scenario() -> None:
        async with FakeCluster(2) as fake:
            for broker in fake.brokers.values():
                broker.versions[ApiKeys.METADATA] = (0, 8)
            fake.create("a", {0: (2, 7)})
            async with client(fake.bootstrap) as network:
                network.cluster.want(["a"])
                await network.cluster.refresh()
                assert (network.cluster.leader_for(A0), network.cluster.leader_epoch_for(A0)) == (2, -1)
                fake.leaders["a"][0] = (1, 6)
                await network.cluster.refresh()
                assert network.cluster.leader_for(A0) == 1

    run(scenario())


def test_a_leader_hint_is_taken_when_it_is_newer(run: Run) -> None:
    """KIP-951."""

    async def scenario() -> None:
        async with FakeCluster(3) as fake:
            fake.create("a", {0: (1, 5), 1: (1, 5)})
            fake.named = {1: fake[1], 2: fake[2]}
            async with client(fake.bootstrap) as network:
                cluster = network.cluster
                cluster.want(["a"])
                await cluster.refresh()
                versions: list[int] = []
                cluster.add_listener(lambda changed: versions.append(changed.version))
                assert not cluster.update_leader(A0, 2, 5), "no newer epoch"
                assert not cluster.update_leader(A0, -1, 6), "no leader"
                assert not cluster.update_leader(A0, 3, 6), "no address"
                assert not cluster.update_leader(A2, 2, 6), "no such partition"
                assert cluster.update_leader(A0, 2, 6)
                assert (cluster.leader_for(A0), cluster.leader_epoch_for(A0)) == (2, 6)
                assert cluster.update_leader(A1, 3, 9, BrokerNode(3, "127.0.0.1", fake[3].port))
                assert cluster.leader_for(A1) == 3
                assert len(versions) == 2
                await network.ready(3)
                await cluster.refresh()  # what the brokers say is older
                assert cluster.leader_epoch_for(A0) == 6

    run(scenario())


def test_a_newer_epoch_seen_elsewhere_makes_the_leader_unknown(run: Run) -> None:
    async def scenario() -> None:
        async with FakeCluster(2) as fake:
            fake.create("a", {0: (1, 5)})
            async with client(fake.bootstrap) as network:
                cluster = network.cluster
                cluster.want(["a"])
                await cluster.refresh()
                cluster.seen_epoch(A0, 5)
                assert cluster.leader_for(A0) == 1
                fake.leaders["a"][0] = (2, 6)
                cluster.seen_epoch(A0, 6)
                assert cluster.leader_for(A0) is None
                await eventually(lambda: cluster.leader_for(A0) == 2)

    run(scenario())


def test_listeners(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with FakeCluster() as fake, client(fake.bootstrap) as network:
            heard: list[int] = []

            def listener(cluster: ClusterMetadata) -> None:
                heard.append(cluster.version)

            def broken(cluster: ClusterMetadata) -> None:
                raise ValueError("of the user's")

            network.cluster.add_listener(broken)
            network.cluster.add_listener(listener)
            await network.cluster.refresh()
            network.cluster.remove_listener(listener)
            await network.cluster.refresh()
            assert len(heard) == 1

    run(scenario())
    assert "of the user's" in caplog.text
