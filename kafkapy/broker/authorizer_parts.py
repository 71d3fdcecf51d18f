"""The parts of a broker that an authorizer gets at its start."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkapy.broker.parts.part import Broker
    from kafkapy.metadata.acl_store import AclStore
    from kafkapy.metadata.store import MetadataStore

__all__ = ["AuthorizerParts"]

URL_KEY = "authorizer.zookeeper.url"


class AuthorizerParts:
    """The broker's side of `AuthorizerServices`.

    Made for one authorizer; used on the control loop. It owns the ACL store that it made, and with
    authorizer.zookeeper.url the session to that ensemble.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._acl_store: AclStore | None = None
        self._ensemble: MetadataStore | None = None

    @property
    def node_id(self) -> int:
        """The broker's id."""
        return self._broker.node_id

    @property
    def cluster_id(self) -> str:
        """The id of the cluster."""
        return self._broker.cluster_id

    @property
    def metadata_store(self) -> MetadataStore:
        """The cluster's metadata store."""
        return self._broker.store

    async def acl_store(self) -> AclStore:
        """The ACLs in Kafka's nodes. StoreUnavailableError."""
        if self._acl_store is None:
            from kafkapy.metadata.acl_store import AclStore

            self._acl_store = AclStore(await self._store_of_acls())
        return self._acl_store

    def decisions_changed(self) -> None:
        """Pass the authorizer's epoch to the data plane."""
        broker = self._broker
        broker.plane.authorizer_epoch = broker.authorizer.decisions_epoch

    async def stop(self) -> None:
        """Stop the ACL store, and end the session to its ensemble."""
        try:
            if self._acl_store is not None:
                await self._acl_store.stop()
        finally:
            if self._ensemble is not None:
                await self._ensemble.close()

    async def _store_of_acls(self) -> MetadataStore:
        config = self._broker.config
        url = config.get_optional_str(URL_KEY)
        if not url:
            return self._broker.store
        from kafkapy.metadata.zookeeper import ZooKeeperStore
        from kafkapy.metadata.zookeeper_connection import security_of

        session_ms = config.get_optional_int("authorizer.zookeeper.session.timeout.ms") or config.get_int(
            "zookeeper.session.timeout.ms"
        )
        connection_ms = config.get_optional_int("authorizer.zookeeper.connection.timeout.ms") or session_ms
        in_flight = config.get_optional_int("authorizer.zookeeper.max.in.flight.requests") or config.get_int(
            "zookeeper.max.in.flight.requests"
        )
        self._ensemble = ZooKeeperStore(
            url, session_ms, connection_ms, max_in_flight=in_flight, security=security_of(config)
        )
        await self._ensemble.start()
        return self._ensemble
