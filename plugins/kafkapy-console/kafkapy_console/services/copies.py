"""Copies of topics: the same partitions, keys, values, headers and times, by a consumer and a producer of bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from kafkapy.admin import NewTopic
from kafkapy.types import TopicPartition
from kafkapy_console.records.reader import Start, scan
from kafkapy_console.services.clients import Clients
from kafkapy_console.services.jobs import Job
from kafkapy_console.services.topics import Topic

__all__ = ["copy_records", "create_like", "own_configs"]

SET_ON_TOPIC = "DYNAMIC_TOPIC_CONFIG"
IN_FLIGHT = 5000


def own_configs(configs: Mapping[str, Mapping[str, object]]) -> dict[str, str]:
    """The keys that a topic sets itself."""
    return {
        name: str(each["value"])
        for name, each in configs.items()
        if each["config_source"] == SET_ON_TOPIC and each["value"] is not None
    }


async def create_like(clients: Clients, source: Topic, name: str, configs: Mapping[str, str]) -> None:
    """Creates a topic with the partitions and replicas of another one, and these keys."""
    admin = await clients.admin()
    topic = NewTopic(name, len(source.partitions), source.replication or -1, None, dict(configs))
    await admin.create_topics([topic], wait_for_metadata=True)


async def copy_records(clients: Clients, source: Topic, target: str, job: Job) -> None:
    """Copies the committed records that the topic has now; `job` tells the progress."""
    producer = await clients.producer()
    waiting: set[asyncio.Future[object]] = set()
    copied = 0
    async for batch in scan(clients, source.keys, Start("beginning"), "read_committed"):
        for record in batch.records:
            partition = TopicPartition(target, record.partition)
            future = await producer.send(
                partition.topic,
                record.value,
                record.key,
                partition.partition,
                record.timestamp if record.timestamp >= 0 else None,
                list(record.headers),
            )
            waiting.add(future)  # type: ignore[arg-type]
        copied += len(batch.records)
        if len(waiting) >= IN_FLIGHT or batch.finished:
            await asyncio.gather(*waiting)
            waiting.clear()
        job.done, job.total = batch.done, batch.total
        job.text = f"{copied:,} records copied"
    await asyncio.gather(*waiting)
