"""What clients are told: snapshots, updates and deletions of the metadata cache."""

from __future__ import annotations

import asyncio
from uuid import UUID

from kafkapy.metadata.broker_requests import LEADER_DURING_DELETE, UpdateMetadata, UpdateMetadataPartition
from kafkapy.metadata.cache import MetadataCache
from kafkapy.metadata.znodes import BrokerRegistration, PartitionState
from kafkapy.types import ZERO_UUID, Endpoint, Node, SecurityProtocol, TopicPartition, random_uuid

BROKERS = {
    0: BrokerRegistration(0, (Endpoint("PLAINTEXT", "h0", 1), Endpoint("SSL", "h0", 2, SecurityProtocol.SSL)), "r"),
    1: BrokerRegistration(1, (Endpoint("PLAINTEXT", "h1", 1),)),
}


def update(
    partitions: dict[tuple[str, int], int], ids: dict[str, UUID], brokers: dict[int, BrokerRegistration] = BROKERS
) -> UpdateMetadata:
    states = {
        TopicPartition(*each): UpdateMetadataPartition(PartitionState(leader, 4, (leader,), 1, version=2), (0, 1), (1,))
        for each, leader in partitions.items()
    }
    return UpdateMetadata(0, 1, 5, ids, states, brokers)


def filled() -> tuple[MetadataCache, UUID]:
    async def fill() -> tuple[MetadataCache, UUID]:
        cache, topic_id = MetadataCache("cluster"), random_uuid()
        cache.update(update({("t", 1): 1, ("t", 0): 0}, {"t": topic_id}))
        return cache, topic_id

    return asyncio.run(fill())


def test_topics_are_found_by_name_and_by_id() -> None:
    cache, topic_id = filled()
    topic = cache.topic("t")
    assert topic is not None
    assert topic is cache.topic_by_id(topic_id)
    assert list(topic.partitions) == [0, 1]
    assert topic.partitions[1].leader == 1
    assert topic.partitions[1].leader_epoch == 4
    assert cache.topic_id("t") == topic_id
    assert cache.topic_id("nope") == ZERO_UUID
    assert cache.topic_by_id(random_uuid()) is None
    assert cache.contains("t")
    assert cache.contains(TopicPartition("t", 1))
    assert not cache.contains(TopicPartition("t", 2))
    assert cache.controller_id == 0


def test_brokers_are_shown_by_listener() -> None:
    cache, _ = filled()
    assert cache.brokers("PLAINTEXT") == [Node(0, "h0", 1, "r"), Node(1, "h1", 1, None)]
    assert cache.brokers("SSL") == [Node(0, "h0", 2, "r")]
    assert cache.brokers("OTHER") == []
    partition = cache.partition("t", 0)
    assert partition is not None
    assert cache.snapshot.offline_replicas(partition) == [1]
    assert cache.snapshot.offline_replicas(cache.topics()["t"].partitions[0], "OTHER") == [0, 1]


def test_an_update_replaces_only_what_it_names() -> None:
    cache, topic_id = filled()
    before = cache.snapshot
    asyncio.run(_apply(cache, update({("t", 1): 0, ("u", 0): 1}, {"t": topic_id, "u": random_uuid()})))
    assert cache.topics()["t"].partitions[0] == before.topics["t"].partitions[0]
    assert cache.topics()["t"].partitions[1].leader == 0
    assert cache.topics()["u"].partition_count == 1
    assert cache.snapshot.brokers_version == before.brokers_version
    # The old snapshot still is what it was.
    assert before.topics["t"].partitions[1].leader == 1
    assert "u" not in before.topics


def test_brokers_version_grows_when_a_broker_comes_or_goes() -> None:
    cache, topic_id = filled()
    version = cache.snapshot.brokers_version
    asyncio.run(_apply(cache, update({}, {}, {0: BROKERS[0]})))
    assert cache.snapshot.brokers_version > version
    assert cache.topics()["t"].topic_id == topic_id
    assert cache.brokers("PLAINTEXT") == [Node(0, "h0", 1, "r")]


def test_a_deleted_topic_goes_by_name_and_by_id() -> None:
    cache, topic_id = filled()
    gone = {("t", 0): LEADER_DURING_DELETE}
    assert asyncio.run(_apply(cache, update(gone, {"t": topic_id}))) == [TopicPartition("t", 0)]
    assert cache.topics()["t"].partition_count == 1
    asyncio.run(_apply(cache, update({("t", 1): LEADER_DURING_DELETE}, {"t": topic_id})))
    assert cache.topic("t") is None
    assert cache.topic_by_id(topic_id) is None


def test_a_topic_made_again_shows_nothing_of_the_old_one() -> None:
    cache, old_id = filled()
    new_id = random_uuid()
    asyncio.run(_apply(cache, update({("t", 0): 0}, {"t": new_id})))
    assert cache.topics()["t"].partition_count == 1
    assert cache.topics()["t"].topic_id == new_id
    assert cache.topic_by_id(old_id) is None


def test_internal_topics_are_marked() -> None:
    cache, _ = filled()
    asyncio.run(_apply(cache, update({("__consumer_offsets", 0): 0}, {"__consumer_offsets": random_uuid()})))
    assert cache.topics()["__consumer_offsets"].is_internal
    assert not cache.topics()["t"].is_internal


def test_waiting_for_a_change_ends_with_the_next_update() -> None:
    async def test() -> bool:
        cache = MetadataCache()
        waiter = asyncio.create_task(cache.wait_for_change())
        await asyncio.sleep(0)
        assert not waiter.done()
        cache.update(update({}, {}))
        await waiter
        return True

    assert asyncio.run(test())


async def _apply(cache: MetadataCache, request: UpdateMetadata) -> list[TopicPartition]:
    return cache.update(request)
