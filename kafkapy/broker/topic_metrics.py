"""The numbers that kafka_exporter gives: of brokers, partitions and groups.

One broker of a cluster gives each series, so that sums over brokers are right: a partition's leader, a group's
coordinator, and the controller the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Final

from kafkapy.broker.metric_samples import SLICE, Filter, Samples
from kafkapy.types import TopicPartition

if TYPE_CHECKING:
    from kafkapy._speedups.log.partition_log import PartitionLog
    from kafkapy.broker.context import BrokerContext
    from kafkapy.coordinator.group.shard import GroupShard
    from kafkapy.metadata.cache import PartitionMetadata

__all__ = ["add_groups", "add_topics"]

BEYOND: Final = 2000
"""Offsets between two rests when they are only summed: less than a millisecond."""

Logs = Mapping[TopicPartition, "PartitionLog"]


def add_topics(samples: Samples, context: BrokerContext, logs: Logs, shown: Filter) -> None:
    """Brokers, topics and partitions. Any thread: the metadata are a snapshot."""
    snapshot = context.metadata_cache.snapshot
    controls = bool(context.controller.is_active)
    if controls:
        samples.add("kafka_brokers", len(snapshot.brokers))
        for broker_id, broker in snapshot.brokers.items():
            endpoint = broker.endpoints[0] if broker.endpoints else None
            address = "" if endpoint is None else f"{endpoint.host}:{endpoint.port}"
            samples.add("kafka_broker_info", 1, str(broker_id), address)
    for topic in snapshot.topics.values():
        samples.step()
        if not shown(topic.name):
            continue
        if controls:
            samples.add("kafka_topic_partitions", topic.partition_count, topic.name)
        for number, partition in topic.partitions.items():
            if partition.leader == context.node_id or (partition.leader < 0 and controls):
                _add_partition(samples, topic.name, partition, logs.get(TopicPartition(topic.name, number)))


def _add_partition(samples: Samples, topic: str, partition: PartitionMetadata, log: PartitionLog | None) -> None:
    number = str(partition.partition)
    replicas, in_sync = len(partition.replicas), len(partition.isr)
    values = {
        "leader": partition.leader,
        "leader_is_preferred": bool(partition.replicas) and partition.leader == partition.replicas[0],
        "replicas": replicas,
        "in_sync_replica": in_sync,
        "under_replicated_partition": in_sync < replicas,
    }
    if log is not None and partition.leader >= 0:
        values["current_offset"], values["oldest_offset"] = log.high_watermark, log.log_start_offset
    for name, value in values.items():
        samples.add_bounded(f"kafka_topic_partition_{name}", value, topic, number)


def add_groups(samples: Samples, context: BrokerContext, logs: Logs, topics: Filter, groups: Filter) -> None:
    """Committed offsets, lag and members of the groups coordinated here.

    On the scrape's thread. Each step copies one group's offsets at once, which no change can interrupt.
    """
    ends: dict[TopicPartition, int] = {}
    for partition, log in logs.items():
        samples.step()
        if topics(partition.topic):
            ends[partition] = log.high_watermark
    for shard in context.coordinators.group.runtime.shards().values():
        for group_id in dict.fromkeys([*list(shard.groups), *shard.store.groups()]):
            if groups(group_id):
                _add_group(samples, shard, group_id, ends, topics)


def _add_group(
    samples: Samples, shard: GroupShard, group_id: str, ends: Mapping[TopicPartition, int], topics: Filter
) -> None:
    group = shard.groups.get(group_id)
    if group is not None:
        samples.add("kafka_consumergroup_members", len(group.members), group_id)
    sums: dict[str, list[int]] = {}
    total: list[int] | None = None
    last: str | None = None
    committed = iter(shard.leases.newest(group_id).items())
    while some := list(islice(committed, BEYOND if samples.full else SLICE)):
        full = samples.full
        for partition, found in some:
            topic, number = partition
            offset = found.offset
            if topic != last:
                last = topic
                total = sums.get(topic)
                if total is None and topics(topic):
                    total = sums[topic] = [0, 0, 0]
            if total is None:
                continue
            total[0] += offset
            end = ends.get(partition)
            if end is not None:
                lag = end - offset if end > offset else 0
                total[1] += lag
                total[2] += 1
            if full:
                samples.dropped += 1 if end is None else 2
                continue
            labels = group_id, topic, str(number)
            samples.add_bounded("kafka_consumergroup_current_offset", offset, *labels)
            if end is not None:
                samples.add_bounded("kafka_consumergroup_lag", lag, *labels)
        samples.step(len(some) * SLICE // BEYOND + 1)
    for topic, (offsets, lag, known) in sums.items():
        samples.add("kafka_consumergroup_current_offset_sum", offsets, group_id, topic)
        if known:
            samples.add("kafka_consumergroup_lag_sum", lag, group_id, topic)
