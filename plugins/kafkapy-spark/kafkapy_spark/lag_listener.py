"""A listener for streaming queries that says how far they are behind: to a log, a file of JSON lines, Prometheus."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from prometheus_client import CollectorRegistry, write_to_textfile
from pyspark.sql.streaming.listener import StreamingQueryListener

from kafkapy.broker.metrics_listener import MetricsListener
from kafkapy.errors import IllegalArgumentError
from kafkapy_spark.query_lag import LagCollector, TopicLag, lags_of

logger = logging.getLogger("kafkapy.spark")
lag_logger: Final = logging.getLogger("kafkapy.spark.lag")


class LagListener(StreamingQueryListener):
    """`spark.streams.addListener(LagListener(...))`, in the driver of a session that is not Spark Connect's.

    Every batch of every streaming query with a Kafka source (this one or Spark's own) gives one TopicLag for each of
    its topics, which goes to the logger kafkapy.spark.lag as JSON at level INFO, and:

    json_file           to this file, one JSON object a line
    prometheus_address  to Prometheus, who scrapes http://<address>/metrics; "host:port", port 0 for any
    prometheus_file     to this file in Prometheus' text format, which is replaced after each batch (for the textfile
                        collector of its node exporter)
    on_lag              to this function, on the thread of Spark's listeners

    Prometheus is told of queries that run. IllegalArgumentError for what is no address, KafkaError when it cannot be
    bound. What fails later is a warning: queries go on. `close()` ends the listening.
    """

    def __init__(
        self,
        *,
        json_file: str | Path | None = None,
        prometheus_address: str | None = None,
        prometheus_file: str | Path | None = None,
        on_lag: Callable[[TopicLag], None] | None = None,
    ) -> None:
        self._json_file = None if json_file is None else Path(json_file)
        self._text_file = None if prometheus_file is None else Path(prometheus_file)
        self._on_lag = on_lag
        self._collector = LagCollector()
        self._registry = CollectorRegistry()
        self._registry.register(self._collector)
        self._http: MetricsListener | None = None
        if prometheus_address is not None:
            host, _, port = prometheus_address.rpartition(":")
            if not host or not port.isdecimal():
                raise IllegalArgumentError(f"prometheus_address must be host:port, and is '{prometheus_address}'")
            self._http = MetricsListener([prometheus_address], self._collector, setting="prometheus_address")
            self._http.start()

    @property
    def prometheus_url(self) -> str | None:
        """Where Prometheus finds the metrics."""
        if self._http is None or not self._http.bound:
            return None
        host, port = self._http.bound[0]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics"

    def close(self) -> None:
        """Ends the HTTP listener. The listener stays one of Spark's until `spark.streams.removeListener`."""
        if self._http is not None:
            self._http.stop()

    # --- Spark's calls, one at a time -------------------------------------------------------------------------------

    def onQueryStarted(self, event: Any) -> None:
        """Nothing is known yet."""

    def onQueryProgress(self, event: Any) -> None:
        """A batch is done."""
        self._tell(lags_of(json.loads(event.progress.json)))

    def onQueryIdle(self, event: Any) -> None:
        """The lags are what they were."""

    def onQueryTerminated(self, event: Any) -> None:
        """A run has ended."""
        self._collector.drop(str(event.runId))
        self._attempt(self._write_text)

    def _tell(self, lags: list[TopicLag]) -> None:
        if not lags:
            return
        self._collector.put(lags)
        lines = [json.dumps(lag.as_dict()) for lag in lags]
        for line in lines:
            lag_logger.info("%s", line)
        self._attempt(self._append_json, lines)
        self._attempt(self._write_text)
        if self._on_lag is not None:
            for lag in lags:
                self._attempt(self._on_lag, lag)

    def _append_json(self, lines: list[str]) -> None:
        if self._json_file is not None:
            with self._json_file.open("a", encoding="utf-8") as file:
                file.write("".join(f"{line}\n" for line in lines))

    def _write_text(self) -> None:
        if self._text_file is not None:
            write_to_textfile(str(self._text_file), self._registry)

    def _attempt(self, what: Callable[..., None], *arguments: Any) -> None:
        try:
            what(*arguments)
        except Exception as error:  # of files, and of on_lag, which is the user's
            logger.warning("A query's lag cannot be told: %s: %s", type(error).__name__, error)
