"""Reassignments: running ones, and a new set of replicas for a partition with a preview."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from kafkapy.errors import KafkaError
from kafkapy.types import TopicPartition
from kafkapy_console.console import number
from kafkapy_console.errors import BadInputError, NotFoundError
from kafkapy_console.pages.topics import topic_of
from kafkapy_console.services.looks import described_cluster
from kafkapy_console.services.topics import Topic, Topics
from kafkapy_console.settings import Level
from kafkapy_console.web import Form, Visit, action, page

__all__ = ["ROUTES"]


async def running(visit: Visit) -> Response:
    """The reassignments that run now."""
    visit.require(Level.VIEWER)
    found = await (await visit.clients.admin()).list_partition_reassignments()
    return visit.render("reassignments.html", rows=sorted(found.items()))


async def choose(visit: Visit) -> Response:
    """Choose the replicas of a partition; with a choice, the preview: replicas that come and go, bytes to copy."""
    topic = await topic_of(visit, Level.ADMIN)
    partition = _partition(topic, visit.path("partition"))
    brokers = {each["broker_id"] for each in (await described_cluster(visit.clients))["brokers"]}
    now = list(partition["replica_nodes"])
    chosen = _replicas(visit.query.text("replicas"), brokers) if "replicas" in visit.query else None
    return visit.render(
        "reassign.html",
        tab="",
        topic=topic,
        number=partition["partition_index"],
        now=now,
        brokers=sorted(brokers),
        chosen=chosen,
        coming=[] if chosen is None else [each for each in chosen if each not in now],
        going=[] if chosen is None else [each for each in now if each not in chosen],
        size=await _size(visit, topic.name, partition["partition_index"]),
    )


def _partition(topic: Topic, text: str) -> Any:
    wanted = number(text, "Partition", 0, 2**31 - 1)
    found = next((each for each in topic.partitions if each["partition_index"] == wanted), None)
    if found is None:
        raise NotFoundError(f"{topic.name} has no partition {wanted}.")
    return found


def _replicas(text: str, brokers: set[int]) -> list[int]:
    replicas = [number(each, "Broker", 0, 2**31 - 1) for each in text.replace(",", " ").split()]
    if not replicas:
        raise BadInputError("Name at least one broker; the first one is the preferred leader.")
    if len(set(replicas)) != len(replicas):
        raise BadInputError("A broker can have one replica of a partition only.")
    unknown = [each for each in replicas if each not in brokers]
    if unknown:
        raise BadInputError(f"Broker {unknown[0]} is not in the cluster.")
    return replicas


async def _size(visit: Visit, topic: str, partition: int) -> int | None:
    try:
        brokers = await Topics(visit.clients).log_dirs()
    except KafkaError:
        return None
    sizes = [
        each["partition_size"]
        for broker in brokers
        for directory in broker["log_dirs"]
        for found in directory["topics"]
        if found["name"] == topic
        for each in found["partitions"]
        if each["partition_index"] == partition
    ]
    return max(sizes, default=None)


async def reassign(visit: Visit, form: Form) -> Response:
    """Start the reassignment, unless the replicas have changed since the preview."""
    topic = await topic_of(visit, Level.ADMIN)
    partition = _partition(topic, visit.path("partition"))
    brokers = {each["broker_id"] for each in (await described_cluster(visit.clients))["brokers"]}
    replicas = _replicas(form.text("replicas"), brokers)
    if form.text("before") != ",".join(map(str, partition["replica_nodes"])):
        raise BadInputError("The replicas have changed since the preview. Look at it again.")
    key = TopicPartition(topic.name, partition["partition_index"])
    outcome = await (await visit.clients.admin()).alter_partition_reassignments({key: replicas})
    _raise_failed(outcome)
    Topics(visit.clients).changed()
    visit.audit("reassign", str(key), before=partition["replica_nodes"], after=replicas)
    visit.flash(f"{key} moves to brokers {', '.join(map(str, replicas))}.")
    return visit.redirect("/reassignments")


async def cancel(visit: Visit, form: Form) -> Response:
    """Cancel a running reassignment: the replicas that were added go again."""
    name = form.needed("topic")
    visit.require(Level.ADMIN, name)
    key = TopicPartition(name, number(form.text("partition"), "Partition", 0, 2**31 - 1))
    _raise_failed(await (await visit.clients.admin()).alter_partition_reassignments({key: None}))
    Topics(visit.clients).changed()
    visit.audit("cancel reassignment", str(key))
    visit.flash(f"The reassignment of {key} is cancelled.")
    return visit.redirect("/reassignments")


def _raise_failed(outcome: dict[TopicPartition, type[KafkaError] | None]) -> None:
    for key, error in outcome.items():
        if error is not None:
            raise BadInputError(f"The controller refuses {key}: {error.__name__}: {error()}")


ROUTES = [
    page("/reassignments", running),
    page("/topics/{topic}/partitions/{partition}", choose, Level.ADMIN),
    action("/topics/{topic}/partitions/{partition}", reassign, Level.ADMIN),
    action("/reassignments/cancel", cancel, Level.ADMIN),
]
