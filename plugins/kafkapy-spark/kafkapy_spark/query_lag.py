"""How far streaming queries are behind their topics, out of the progress that Spark reports of each batch.

The lag is that of the moment when the batch was planned: where its sources ended then, less where the batch ends. It is
what Spark's own Kafka source reports as min/max/avgOffsetsBehindLatest; here by topic, and of that source too.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kafkapy.errors import IllegalArgumentError
from kafkapy_spark.offsets import PartitionOffsets, parse_offsets


@dataclass(frozen=True)
class TopicLag:
    """One topic of one source of a query, after one batch. Offsets, which may be more than records."""

    query_id: str
    """The same for all runs of a query."""
    run_id: str
    query_name: str | None
    batch_id: int
    timestamp: str
    """When the batch began, ISO 8601 in UTC."""
    source: int
    """The number of the source in the query."""
    topic: str
    partitions: int
    min_offsets_behind_latest: int
    max_offsets_behind_latest: int
    avg_offsets_behind_latest: float
    offsets_behind_latest: int
    """Of all partitions together."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def lags_of(progress: Mapping[str, Any]) -> list[TopicLag]:
    """The lags in the JSON of a StreamingQueryProgress, by source and topic. Sources of other kinds, and batches whose
    ends are not known (the first one of a query), have none."""
    return [
        lag
        for number, source in enumerate(progress["sources"])
        if (end := _offsets(source.get("endOffset"))) and (latest := _offsets(source.get("latestOffset")))
        for lag in _topic_lags(progress, number, end, latest)
    ]


def _topic_lags(
    progress: Mapping[str, Any], source: int, end: PartitionOffsets, latest: PartitionOffsets
) -> Iterator[TopicLag]:
    behind: dict[str, list[int]] = {}
    for partition in sorted(end.keys() & latest.keys()):
        behind.setdefault(partition.topic, []).append(max(0, latest[partition] - end[partition]))
    for topic, offsets in behind.items():
        yield TopicLag(
            query_id=progress["id"],
            run_id=progress["runId"],
            query_name=progress.get("name"),
            batch_id=progress["batchId"],
            timestamp=progress["timestamp"],
            source=source,
            topic=topic,
            partitions=len(offsets),
            min_offsets_behind_latest=min(offsets),
            max_offsets_behind_latest=max(offsets),
            avg_offsets_behind_latest=sum(offsets) / len(offsets),
            offsets_behind_latest=sum(offsets),
        )


def _offsets(value: Any) -> PartitionOffsets | None:
    """Offsets as Spark prints them: JSON, or a text of it. None for what is not of a Kafka source."""
    try:
        return parse_offsets(value if isinstance(value, str) else json.dumps(value))
    except IllegalArgumentError:
        return None


# --- Prometheus -------------------------------------------------------------------------------------------------------

_LABELS: Final = ("query_name", "query_id", "source", "topic")
_GAUGES: Final = (
    ("min_offsets_behind_latest", "Offsets that the partition that is least behind was behind when the batch began."),
    ("max_offsets_behind_latest", "Offsets that the partition that is most behind was behind when the batch began."),
    ("avg_offsets_behind_latest", "Offsets that a partition was behind when the batch began, on average."),
    ("offsets_behind_latest", "Offsets that all partitions together were behind when the batch began."),
    ("batch_id", "The batch that the lags are of."),
)


class LagCollector(Collector):
    """The newest lags of the queries that run, as gauges. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lags: dict[str, list[TopicLag]] = {}

    def put(self, lags: Iterable[TopicLag]) -> None:
        """Those of one batch."""
        newest = list(lags)
        if newest:
            with self._lock:
                self._lags[newest[0].run_id] = newest

    def drop(self, run_id: str) -> None:
        """A run that has ended."""
        with self._lock:
            self._lags.pop(run_id, None)

    def collect(self) -> Iterator[Metric]:
        """The metrics kafkapy_spark_*, with labels query_name (empty for none), query_id, source and topic."""
        with self._lock:
            lags = [lag for each in self._lags.values() for lag in each]
        for name, text in _GAUGES:
            family = GaugeMetricFamily(f"kafkapy_spark_{name}", text, labels=_LABELS)
            for lag in lags:
                family.add_metric(
                    [lag.query_name or "", lag.query_id, str(lag.source), lag.topic], float(getattr(lag, name))
                )
            yield family
