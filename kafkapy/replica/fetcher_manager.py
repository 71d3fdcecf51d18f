"""The fetchers that copy partitions from their leaders (kafka.server.ReplicaFetcherManager)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from kafkapy.replica.fetcher_api import FetcherEvents, FetcherMetrics, FetchStart, FollowerVersions
from kafkapy.types import Endpoint, TopicPartition

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig
    from kafkapy.config.clients import ClientConfig
    from kafkapy.log.log_manager import LogManager

__all__ = ["ReplicaFetcherManager"]


class ReplicaFetcherManager:
    """Owns the fetchers: num.replica.fetchers threads for each leader that this broker follows.

    Made and used on the control loop. `add` and `remove` do not block: a fetcher checks the leader epoch of the log,
    under the log's mutex, with each append and truncation, so nothing that was fetched for an earlier epoch gets into
    a log after `become_leader` or `become_follower`.
    """

    def __init__(
        self,
        config: BrokerConfig,
        broker_id: int,
        log_manager: LogManager,
        client_config: ClientConfig,
        leaders: Callable[[int], Endpoint | None],
        events: FetcherEvents,
        *,
        versions: FollowerVersions = FollowerVersions(),  # noqa: B008
    ) -> None:
        """`client_config`: see inter_broker_client_config; `leaders`: an EndpointOf of the inter-broker listener."""
        raise NotImplementedError

    @property
    def broker_epoch(self) -> int:
        """The broker epoch that the requests carry from Fetch 15 on; -1: none."""
        raise NotImplementedError

    @broker_epoch.setter
    def broker_epoch(self, epoch: int) -> None:
        raise NotImplementedError

    def add(self, starts: Mapping[TopicPartition, FetchStart]) -> None:
        """Follow partitions, or follow them in a newer leader epoch.

        A partition that is followed in the same epoch goes on as it is.
        """
        raise NotImplementedError

    def remove(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Follow partitions no longer; a partition that is not followed is ignored."""
        raise NotImplementedError

    def update_config(self, config: BrokerConfig) -> None:
        """Apply a changed broker configuration: the throttle's rate, num.replica.fetchers."""
        raise NotImplementedError

    def update_topics(self, topics: Iterable[str]) -> None:
        """Apply follower.replication.throttled.replicas of the logs' current configurations."""
        raise NotImplementedError

    def resize(self, fetchers: int) -> None:
        """Set the number of fetchers for each leader; the partitions are spread anew."""
        raise NotImplementedError

    def metrics(self) -> FetcherMetrics:
        """The numbers of all fetchers."""
        raise NotImplementedError

    def lags(self) -> dict[TopicPartition, int]:
        """Records that each followed partition is behind its leader; -1 before the first answer."""
        raise NotImplementedError

    async def close(self) -> None:
        """End all fetchers. A second call does nothing."""
        raise NotImplementedError
