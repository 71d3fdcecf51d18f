"""The values that ReplicaManager and the follower's fetchers exchange.

`FetchStart` is a partition to follow, `FollowerVersions` are the request versions of the cluster's protocol version,
`FetcherEvents` hears of partitions that stopped, and `FetcherMetrics` are the numbers of all fetchers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol
from uuid import UUID

from kafkapy.errors import KafkaError
from kafkapy.types import TopicPartition

if TYPE_CHECKING:
    from kafkapy._speedups.log.partition_log import PartitionLog

__all__ = ["FetchStart", "FetcherEvents", "FetcherMetrics", "FollowerVersions"]


class FetchStart(NamedTuple):
    """A partition that this broker follows from now on.

    `log` is a follower of this leader epoch already (`PartitionLog.become_follower`). A topic without an id has the
    id of zeros: the requests then name topics (Fetch 12 at most).
    """

    log: PartitionLog
    topic_id: UUID
    leader_id: int
    leader_epoch: int
    initial_offset: int = -1
    """Where the log is cut when the leader does not know its epochs. -1: at the high watermark."""


class FollowerVersions(NamedTuple):
    """The newest request versions that a follower may use, and its way of truncation.

    The defaults are those of inter.broker.protocol.version 3.9-IV0. The fetchers use older ones with an older leader.
    """

    fetch: int = 17
    list_offsets: int = 9
    offset_for_leader_epoch: int = 4
    truncates_on_fetch: bool = True
    """The answer to a Fetch tells the divergence (2.7-IV1); else OffsetForLeaderEpoch is asked first."""


class FetcherEvents(Protocol):
    """The callbacks of the fetchers to ReplicaManager, on the control loop."""

    def partition_failed(self, topic_partition: TopicPartition, leader_epoch: int, error: KafkaError) -> None:
        """The partition is not fetched any more, until `add` with another leader epoch.

        KAFKA_STORAGE_ERROR when its log is offline.
        """


class FetcherMetrics(NamedTuple):
    """The numbers of all fetchers at one moment."""

    fetchers: int
    partitions: int
    failed_partitions: int
    dead_threads: int
    """Fetchers whose connection is lost and not back yet."""
    max_lag: int
    """Records that the partition with the largest lag is behind its leader."""
    bytes_in: int
    """Bytes of records that were appended, since the start."""
    requests: int
    """Fetch requests that were answered, since the start."""
    throttled: int
    """Partitions that the replication throttle left out of a request, since the start."""
    min_fetch_rate: float
    """Fetch requests per second of the slowest fetcher over the last minute, 0 without fetchers."""
