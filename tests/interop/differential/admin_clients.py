"""What the admin clients of confluent-kafka, kafka-python and aiokafka return, and which errors they raise."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import aiokafka
import kafka
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewPartitions as AioPartitions
from aiokafka.admin import NewTopic as AioTopic
from aiokafka.admin.config_resource import ConfigResource as AioResource
from aiokafka.admin.config_resource import ConfigResourceType as AioResourceType
from aiokafka.admin.records_to_delete import RecordsToDelete
from confluent_kafka import Producer, TopicCollection, TopicPartition
from confluent_kafka import admin as confluent_admin_client
from interop.differential.exchanges import Peer, scenario
from interop.differential.offsets import T0
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewPartitions, NewTopic

from kafkapy.protocol.registry import ApiKeys

confluent: Any = confluent_admin_client  # its types are incomplete
NO_VALUE = {
    "port", "cluster_id", "topic_id", "throttle_time_ms", "error_message", "message", "log_dir", "total_bytes",
    "usable_bytes", "is_cordoned", "is_fenced",
}  # fmt: skip
"""Ids, words, sizes, and fields that only newer versions have."""


COMPARED_ELSEWHERE = re.compile(
    r"kafkapy\.|message\.(downconversion|format|timestamp\.(difference|after))|min\.insync\.replicas"
)
"""Configuration keys that differ on purpose; the exchanges of DescribeConfigs say how."""


def of_interest(value: Any) -> bool:
    """False for such a key, and for an element of a list that tells about one."""
    if isinstance(value, dict):
        return all(of_interest(each) for each in value.values() if isinstance(each, str))
    return not (isinstance(value, str) and COMPARED_ELSEWHERE.match(value))


def simple(value: Any) -> Any:
    """Numbers, texts, lists and dictionaries of whatever a client returned."""
    if hasattr(value, "to_object"):
        value = value.to_object()
    if isinstance(value, dict):
        return {str(key): simple(each) for key, each in value.items() if key not in NO_VALUE and of_interest(key)}
    if isinstance(value, list | tuple | set):
        made = [simple(each) for each in value if of_interest(each)]
        return sorted(made, key=str)
    return value if isinstance(value, str | int | float | None) else str(value)


def noted(peer: Peer, label: str, work: Callable[[], Any]) -> None:
    """Records the result, or the name of the error."""
    try:
        peer.note(label, simple(work()))
    except Exception as error:  # which one it is, is what is compared
        code: Any = error.args[0] if error.args else None
        peer.note(label, [type(error).__name__, code.name() if hasattr(code, "name") else None])


def results(futures: dict[Any, Any], show: Callable[[Any], Any] = lambda value: value) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, future in futures.items():
        try:
            made[str(key)] = show(future.result(20))
        except Exception as error:
            code = error.args[0]
            made[str(key)] = code.name() if hasattr(code, "name") else repr(error)
    return made


@scenario(ApiKeys.DESCRIBE_CLUSTER)
def confluent_admin(peer: Peer, version: int) -> None:
    if version:
        return
    client = confluent.AdminClient({"bootstrap.servers": peer.bootstrap, "log_level": 0})
    name = "admin-confluent"
    resource = confluent.ConfigResource(confluent.ResourceType.TOPIC, name)

    def configs(asked: Any) -> dict[str, Any]:
        return results(
            client.describe_configs([asked]),
            lambda found: {key: (entry.value, entry.is_read_only) for key, entry in found.items()},
        )

    def topic(partitions: int, replicas: int = 1, named: str = name) -> Any:
        return confluent.NewTopic(named, partitions, replicas)

    noted(peer, "create", lambda: results(client.create_topics([topic(2), topic(1, 1, "."), topic(1, 3, name + "3")])))
    peer.wait_for_topic(name)
    noted(peer, "create again", lambda: results(client.create_topics([topic(2)])))
    noted(peer, "validate", lambda: results(client.create_topics([topic(2, 1, name + "v")], validate_only=True)))
    for count in (3, 1):
        wanted = [confluent.NewPartitions(name, count), confluent.NewPartitions(name + "-missing", 3)]
        noted(peer, f"{count} partitions", partial(results, client.create_partitions(wanted)))
    peer.wait_for_topic(name)
    noted(peer, "configs", lambda: configs(resource))
    missing = confluent.ConfigResource(confluent.ResourceType.TOPIC, name + "-missing")
    noted(peer, "configs of a missing topic", lambda: configs(missing))
    change = confluent.ConfigEntry(
        "cleanup.policy", "compact", incremental_operation=confluent.AlterConfigOpType.APPEND
    )
    changed = confluent.ConfigResource(confluent.ResourceType.TOPIC, name, incremental_configs=[change])
    noted(peer, "incremental alter", lambda: results(client.incremental_alter_configs([changed])))
    producer = Producer({"bootstrap.servers": peer.bootstrap, "log_level": 0})
    for number in range(9):
        producer.produce(name, key=b"k", value=b"v", partition=0, timestamp=T0 + number)
    producer.flush(20)
    for label, spec in (
        ("earliest", confluent.OffsetSpec.earliest()), ("latest", confluent.OffsetSpec.latest()),
        ("max timestamp", confluent.OffsetSpec.max_timestamp()), ("time", confluent.OffsetSpec.for_timestamp(T0 + 4)),
    ):  # fmt: skip
        asked = {TopicPartition(name, 0): spec, TopicPartition(name, 77): spec}
        noted(
            peer,
            f"offsets {label}",
            partial(
                results, client.list_offsets(asked), lambda found: (found.offset, found.timestamp, found.leader_epoch)
            ),
        )
    for offset in (4, 400):
        gone = [TopicPartition(name, 0, offset)]
        noted(
            peer,
            f"delete records before {offset}",
            partial(results, client.delete_records(gone), lambda found: found.low_watermark),
        )
    both = TopicCollection([name, name + "-missing"])
    noted(
        peer,
        "describe topics",
        lambda: results(
            client.describe_topics(both, include_authorized_operations=True),
            lambda found: (
                found.is_internal,
                [(each.id, each.leader.id, len(each.replicas), len(each.isr)) for each in found.partitions],
                [str(each) for each in found.authorized_operations],
            ),
        ),
    )
    noted(peer, "cluster", lambda: [node.id for node in client.describe_cluster().result(20).nodes])
    noted(peer, "delete", lambda: results(client.delete_topics([name, name + "-missing"])))


@scenario(ApiKeys.DESCRIBE_CLUSTER)
def kafka_python_admin(peer: Peer, version: int) -> None:
    if version:
        return
    client = KafkaAdminClient(bootstrap_servers=peer.bootstrap)
    name = "admin-kafka-python"
    resource = ConfigResource(ConfigResourceType.TOPIC, name)
    noted(peer, "create", lambda: client.create_topics([NewTopic(name, 2, 1)]))
    peer.wait_for_topic(name)
    noted(peer, "create again", lambda: client.create_topics([NewTopic(name, 2, 1)]))
    noted(peer, "create with a bad name", lambda: client.create_topics([NewTopic("..", 2, 1)]))
    noted(peer, "list", lambda: name in client.list_topics())
    noted(peer, "describe", lambda: client.describe_topics([name]))
    noted(peer, "describe a missing one", lambda: client.describe_topics([name + "-missing"]))
    noted(peer, "cluster", client.describe_cluster)
    noted(peer, "more partitions", lambda: client.create_partitions({name: NewPartitions(3)}))
    noted(peer, "fewer partitions", lambda: client.create_partitions({name: NewPartitions(1)}))
    noted(peer, "configs", lambda: client.describe_configs([resource]))
    changed = ConfigResource(ConfigResourceType.TOPIC, name, configs={"retention.ms": "77"})
    noted(peer, "alter", lambda: client.alter_configs([changed]))
    peer.wait_for_topic(name)
    noted(peer, "delete records", lambda: client.delete_records({kafka.TopicPartition(name, 0): 3}))
    noted(peer, "delete", lambda: client.delete_topics([name]))
    noted(peer, "delete a missing one", lambda: client.delete_topics([name + "-missing"]))
    client.close()


@scenario(ApiKeys.DESCRIBE_CLUSTER)
def aiokafka_admin(peer: Peer, version: int) -> None:
    if version:
        return
    name = "admin-aiokafka"

    async def work() -> None:
        client = AIOKafkaAdminClient(bootstrap_servers=peer.bootstrap)
        await client.start()

        async def note(label: str, asked: Any) -> None:
            try:
                peer.note(label, simple(await asked))
            except Exception as error:  # which one it is, is what is compared
                peer.note(label, type(error).__name__)

        resource = AioResource(AioResourceType.TOPIC, name)
        changed = AioResource(AioResourceType.TOPIC, name, configs={"retention.ms": "77"})
        await note("create", client.create_topics([AioTopic(name, 2, 1)]))
        peer.wait_for_topic(name)
        await note("create again", client.create_topics([AioTopic(name, 2, 1)]))
        await note("describe", client.describe_topics([name]))
        await note("cluster", client.describe_cluster())
        await note("configs", client.describe_configs([resource]))
        await note("alter", client.alter_configs([changed]))
        await note("more partitions", client.create_partitions({name: AioPartitions(3)}))
        peer.wait_for_topic(name)
        gone = {aiokafka.TopicPartition(name, 0): RecordsToDelete(before_offset=3)}
        await note("delete records", client.delete_records(gone))
        await note("delete", client.delete_topics([name]))
        await note("delete a missing one", client.delete_topics([name + "-missing"]))
        await client.close()

    asyncio.run(asyncio.wait_for(work(), 60))
