"""The broker's identity: cluster id and broker id.

Source: kafka.server.KafkaServer (getOrGenerateClusterId, getOrGenerateBrokerId) and
kafka.server.BrokerMetadataCheckpoint.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from kafkapy.broker import meta_properties
from kafkapy.broker.meta_properties import InconsistentBrokerIdError, StartupError
from kafkapy.config.broker import BrokerConfig
from kafkapy.metadata.store import MetadataStore, NodeExistsError, NoNodeError
from kafkapy.metadata.znodes import BROKER_SEQUENCE_ID, CLUSTER_ID, decode_cluster_id, encode_cluster_id
from kafkapy.types import random_uuid, uuid_to_string

logger = logging.getLogger("kafka.server.KafkaServer")


async def cluster_id(store: MetadataStore, stored: str | None) -> str:
    """The cluster's id from the metadata store.

    A new store gets `stored`, the id in the log directories, or a random id.
    """
    try:
        return decode_cluster_id((await store.get(CLUSTER_ID))[0])
    except NoNodeError:
        pass
    made = stored or uuid_to_string(random_uuid())
    try:
        await store.create(CLUSTER_ID, encode_cluster_id(made), make_parents=True)
    except NodeExistsError:  # another broker of a new cluster was faster
        return decode_cluster_id((await store.get(CLUSTER_ID))[0])
    return made


def configured_id(config: BrokerConfig, stored: int | None) -> int | None:
    """The configured id, else `stored`, the one in meta.properties, else None.

    InconsistentBrokerIdError when the log directories belong to another broker than the configured one.
    """
    configured = config.broker_id
    if configured < 0:
        return stored
    if stored is not None and stored != configured:
        raise InconsistentBrokerIdError(
            f"broker.id is {configured}, but the log directories belong to broker {stored}; set broker.id to that, "
            "or use other directories for a new broker"
        )
    return configured


async def broker_id(config: BrokerConfig, store: MetadataStore, stored: int | None) -> int:
    """The configured id, else the one in meta.properties, else a new one above reserved.broker.max.id.

    InconsistentBrokerIdError when the log directories belong to another broker than the configured one.
    """
    known = configured_id(config, stored)
    if known is not None:
        return known
    await store.ensure_path(BROKER_SEQUENCE_ID)
    stat = await store.set(BROKER_SEQUENCE_ID, b"")
    return config.get_int("reserved.broker.max.id") + stat.version


async def establish(config: BrokerConfig, store: MetadataStore, directories: Sequence[str]) -> tuple[int, str]:
    """(broker id, cluster id), written down in every live log directory.

    StartupError when they do not fit.
    """
    found = await asyncio.to_thread(meta_properties.read_all, directories)
    stored = meta_properties.stored(found)
    # Only an embedded store belongs to these directories; a ZooKeeper ensemble has an id of its own.
    adopted = stored.cluster_id if config.metadata_store == "embedded" else None
    cluster = await cluster_id(store, adopted)
    meta_properties.check_cluster_id(found, cluster)
    node = await broker_id(config, store, stored.broker_id)
    await asyncio.to_thread(write_identity, directories, node, cluster)
    logger.info("Cluster ID = %s, broker ID = %d", cluster, node)
    return node, cluster


def write_identity(live: Sequence[str], node: int, cluster: str) -> None:
    """meta.properties in every live directory. StartupError when one cannot be written."""
    try:
        meta_properties.write_all(live, node, cluster)
    except OSError as error:
        raise StartupError(f"{error.filename}: meta.properties cannot be written: {error.strerror}") from error
