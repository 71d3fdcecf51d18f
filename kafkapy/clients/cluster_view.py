"""The cluster's metadata as code that was written for kafka-python or aiokafka asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafkapy.clients.cluster import BrokerNode, ClusterMetadata

__all__ = ["ClusterView"]


class ClusterView:
    """A ClusterMetadata with the reading methods of kafka-python's and aiokafka's."""

    def __init__(self, cluster: ClusterMetadata) -> None:
        self._cluster = cluster

    def topics(self, exclude_internal_topics: bool = True) -> set[str]:
        """The names of the topics that are known."""
        return self._cluster.topic_names(exclude_internal_topics)

    def brokers(self) -> set[BrokerNode]:
        """The brokers, the bootstrap servers until there are others."""
        return set(self._cluster.brokers().values())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)
