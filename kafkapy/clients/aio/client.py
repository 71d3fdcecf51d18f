"""AIOKafkaClient: the connections and the metadata of a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Self, Unpack

from kafkapy.clients.aio.lifecycle import drop_old_keywords
from kafkapy.clients.cluster import ClusterMetadata
from kafkapy.clients.cluster_view import ClusterView
from kafkapy.clients.coordinator_lookup import CoordinatorLookup
from kafkapy.clients.network_client import NetworkClient
from kafkapy.config.clients import COMMON, ClientConfig
from kafkapy.errors import KafkaError
from kafkapy.protocol.schema import Request
from kafkapy.types import CoordinatorType

if TYPE_CHECKING:
    from kafkapy.config.options import AIOClientOptions

__all__ = ["AIO_CLIENT", "AIOKafkaClient"]

AIO_CLIENT: Final = COMMON.with_keys((), without_effect=("loop",))
"""The keys of a client. Keywords that only aiokafka has have no effect."""


class AIOKafkaClient:
    """Knows a cluster's brokers and topics, and sends requests to its nodes.

        client = AIOKafkaClient(bootstrap_servers="localhost:9092")
        await client.bootstrap()
        print(client.cluster.brokers(), (await client.fetch_all_metadata()).topics())
        await client.close()

    Requests are messages of `kafkapy.protocol`. Configuration comes as keywords, or with Kafka's names in a dict called
    `configs`. ConfigError. All methods run on the loop of `bootstrap`.
    """

    def __init__(self, *, configs: Mapping[str, object] | None = None, **keywords: Unpack[AIOClientOptions]) -> None:
        drop_old_keywords(keywords)
        self._use(NetworkClient(ClientConfig(AIO_CLIENT, configs, **keywords)))

    @classmethod
    def over(cls, network: NetworkClient) -> Self:
        """A client over another client's connections; that client opens and closes them."""
        client = cls.__new__(cls)
        client._use(network)
        return client

    def _use(self, network: NetworkClient) -> None:
        self._network = network
        self._lookup = CoordinatorLookup(network, own_connections=False)
        self.cluster = ClusterView(network.cluster)

    def __repr__(self) -> str:
        return f"<AIOKafkaClient client_id={self._network.client_id}>"

    async def bootstrap(self) -> None:
        """Connect to the cluster.

        NoBrokersAvailableError (a KafkaConnectionError) after bootstrap_timeout_ms.
        """
        try:
            await self._network.start()
        except BaseException:
            await self._network.close()
            raise

    async def close(self) -> None:
        """Close all connections. A second call does nothing."""
        self._lookup.close()
        await self._network.close()

    # --- metadata -------------------------------------------------------------------------------------------------

    def force_metadata_update(self) -> asyncio.Future[bool]:
        """Request metadata now; whether the update succeeded."""
        return asyncio.ensure_future(self._refresh())

    async def _refresh(self) -> bool:
        try:
            await self._network.cluster.refresh()
        except KafkaError:
            return False
        return True

    def add_topic(self, topic: str) -> asyncio.Future[bool]:
        """Add a topic to the metadata in `cluster`; whether the update succeeded."""
        self._network.cluster.want({topic})
        return self.force_metadata_update()

    def set_topics(self, topics: Iterable[str]) -> asyncio.Future[bool]:
        """Restrict the metadata in `cluster` to these topics; whether the update succeeded.

        No topics: the metadata of all topics.
        """
        chosen = set(topics)
        self._network.cluster.want_only(chosen)
        self._network.cluster.want_all(not chosen)
        return self.force_metadata_update()

    async def fetch_all_metadata(self) -> ClusterView:
        """New metadata of all topics of the cluster.

        KafkaError when no broker responds.
        """
        cluster = ClusterMetadata(self._network.config, self._network.send_metadata)
        cluster.want_all(True)
        await cluster.refresh()
        return ClusterView(cluster)

    # --- nodes ----------------------------------------------------------------------------------------------------

    def get_random_node(self) -> int | None:
        """The id of the least loaded usable broker, or None."""
        try:
            return self._network.least_loaded_node()
        except KafkaError:
            return None

    async def ready(self, node_id: int) -> bool:
        """Connect to a broker; whether it accepts a request."""
        try:
            await self._network.ready(node_id)
        except KafkaError:
            return False
        return True

    async def send(self, node_id: int, request: Request) -> Any:
        """The response to a request.

        In the newest version that both sides support. Errors as in NetworkClient.send.
        """
        return await self._network.send(node_id, request)

    async def coordinator_lookup(self, coordinator_type: int, coordinator_key: str) -> int:
        """The broker id of a group's (0) or transactional id's (1) coordinator.

        KafkaTimeoutError and others.
        """
        timeout_ms = self._network.config["request.timeout.ms"]
        kind = CoordinatorType(coordinator_type)
        self._lookup.invalidate(coordinator_key, kind)
        return await self._lookup.find(coordinator_key, kind, timeout_ms)
