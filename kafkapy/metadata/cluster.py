"""The cluster's id, and ids for brokers that were not given one. Source: kafka.server.KafkaServer."""

from __future__ import annotations

from kafkapy.metadata.store import MetadataStore, NodeExistsError
from kafkapy.metadata.znodes import BROKER_SEQUENCE_ID, CLUSTER_ID, decode_cluster_id, encode_cluster_id
from kafkapy.types import random_uuid, uuid_to_string


async def get_or_create_cluster_id(store: MetadataStore, proposed: str | None = None) -> str:
    """The cluster's id; the first broker of a cluster makes it: `proposed` (from meta.properties) or a random one."""
    found = (await store.get_many([CLUSTER_ID]))[0]
    if found is None:
        cluster_id = proposed or uuid_to_string(random_uuid())
        try:
            await store.create(CLUSTER_ID, encode_cluster_id(cluster_id), make_parents=True)
            return cluster_id
        except NodeExistsError:
            found = await store.get(CLUSTER_ID)  # another broker was faster
    return decode_cluster_id(found[0])


async def generate_broker_id(store: MetadataStore, reserved_max_id: int) -> int:
    """A broker id nobody else gets, above `reserved_max_id`: the version of a node that is written each time."""
    await store.ensure_path(BROKER_SEQUENCE_ID)
    return reserved_max_id + (await store.set(BROKER_SEQUENCE_ID, b"")).version
