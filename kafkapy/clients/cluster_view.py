"""The cluster's metadata with the methods of kafka-python and aiokafka."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafkapy.clients.cluster import BrokerNode, ClusterMetadata

__all__ = ["ClusterView"]


class ClusterView:
    """A ClusterMetadata with the reading methods of kafka-python and aiokafka."""

    def __init__(self, cluster: ClusterMetadata) -> None:
        self._cluster = cluster

    def topics(self, exclude_internal_topics: bool = True) -> set[str]:
        """The names of the known topics."""
        return self._cluster.topic_names(exclude_internal_topics)

    def brokers(self) -> set[BrokerNode]:
        """The brokers; before the first update, the bootstrap servers."""
        return set(self._cluster.brokers().values())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)
