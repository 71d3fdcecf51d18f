"""A streaming query that a job runs to its end, and what it has read."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.streaming.listener import StreamingQueryListener

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["QueryRun", "observed", "run_query"]

OBSERVED: Final = "kafkapy_job"
"""The name of what is counted."""
LAST_EVENTS_S: Final = 10.0
"""How long a query that has ended is waited for to report its last batches."""


@dataclass
class QueryRun:
    """`batches` are those that had rows."""

    rows: int = 0
    bytes: int = 0
    batches: int = 0


def observed(frame: DataFrame, name: str | Observation = OBSERVED) -> DataFrame:
    """The frame, whose rows and bytes of keys and values are counted as well when it is run: by `run_query`, or for the
    Observation."""
    from pyspark.sql import functions

    total = functions.lit(0).cast("bigint")
    for column in ("key", "value"):
        if column in frame.columns:
            total = total + functions.coalesce(functions.sum(functions.octet_length(column)), functions.lit(0))
    return frame.observe(name, functions.count(functions.lit(1)).alias("rows"), total.alias("bytes"))


def run_query(spark: SparkSession, start: Callable[[], StreamingQuery]) -> QueryRun:
    """Starts a query and waits until it has ended, or SIGINT has come, which stops it. StreamingQueryException when it
    fails."""
    counter = _Counter()
    spark.streams.addListener(counter)
    try:
        query = start()
        run = str(query.runId)
        try:
            query.awaitTermination()
        except KeyboardInterrupt:
            pass
        finally:
            query.stop()
        counter.ended(run).wait(LAST_EVENTS_S)
        return counter.run(run)
    finally:
        spark.streams.removeListener(counter)


class _Counter(StreamingQueryListener):
    """Its methods are called on a thread of Py4J's, for all queries of the session."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: dict[str, QueryRun] = {}
        self._ended: dict[str, threading.Event] = {}

    def run(self, run_id: str) -> QueryRun:
        """What is known of a query."""
        with self._lock:
            return self._runs.setdefault(run_id, QueryRun())

    def ended(self, run_id: str) -> threading.Event:
        """Set once the query has reported all there is."""
        with self._lock:
            return self._ended.setdefault(run_id, threading.Event())

    def onQueryStarted(self, event: Any) -> None:
        pass

    def onQueryProgress(self, event: Any) -> None:
        run = self.run(str(event.progress.runId))
        rows = event.progress.numInputRows
        run.rows += rows
        sums = event.progress.observedMetrics.get(OBSERVED)
        run.bytes += sums["bytes"] if sums is not None else 0
        run.batches += rows > 0

    def onQueryIdle(self, event: Any) -> None:
        pass

    def onQueryTerminated(self, event: Any) -> None:
        self.ended(str(event.runId)).set()
