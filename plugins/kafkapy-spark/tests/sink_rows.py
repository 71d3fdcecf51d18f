"""Tasks of an exactly-once sink that run write_task, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from exactly_once_faults import PARTITIONS, Cluster, read_committed
from kafkapy_spark import sink_session
from kafkapy_spark.sink_identity import transaction_timeout_ms
from kafkapy_spark.sink_options import SinkOptions
from kafkapy_spark.sink_plan import SinkPlan, TaskResult
from kafkapy_spark.sink_session import SinkSession
from kafkapy_spark.transactional_task import write_task

from kafkapy import testing


@pytest.fixture
def cluster(broker: testing.Broker) -> Iterator[Cluster]:
    """A topic on the tests' broker, and a client."""
    made = Cluster(broker.bootstrap_servers)
    yield made
    made.close()
    while sink_session._open:
        sink_session._open.popitem()[1].close()


class Rows:
    """A query whose tasks run write_task, with a producer."""

    def __init__(self, cluster: Cluster, **options: str) -> None:
        self.query = cluster.query()
        self.cluster = cluster
        given = {"kafka.bootstrap.servers": cluster.bootstrap, "topic": cluster.topic, "delivery": "exactly-once"}
        self.options = SinkOptions.parse({**given, **options}, streaming=True)
        self.session = SinkSession.connected(self.options.kafka)

    def plan(self, *, replay: bool = False) -> SinkPlan:
        """A driver's."""
        timeout_ms = transaction_timeout_ms(self.session, self.options)
        driver = self.query.driver(replay=replay, on_known=self.options.on_known)
        plan: SinkPlan = self.cluster.run(driver.begin(timeout_ms))
        return plan

    def commit(self, *results: TaskResult, **keywords: Any) -> None:
        """By a driver of the query, which is made with the keywords."""
        self.cluster.run(self.query.driver(**keywords).commit(results))

    def batch(self, number: int, *parts: list[bytes]) -> None:
        """A whole batch, of a task for each part."""
        plan = self.plan()
        self.commit(*(self.task(plan, at, values, number) for at, values in enumerate(parts)))

    def task(
        self, plan: SinkPlan, partition: int, values: list[bytes], batch: int = 0, *, fail: bool = False
    ) -> TaskResult:
        """What a task that gets these values gives."""

        def batches() -> Iterator[pa.RecordBatch]:
            yield pa.RecordBatch.from_pydict({"value": pa.array([], pa.binary())})
            for value in values:
                yield pa.RecordBatch.from_pydict({"value": [value]})
            if fail:
                raise RuntimeError("the query's own error")

        schema = pa.schema({"value": pa.binary()})
        return write_task(self.options, schema, plan, self.query.name, batch, partition, 0, batches())

    def seen(self) -> list[bytes]:
        """All that readers of committed records get, when nothing is open."""
        return sorted(read_committed(self.cluster.bootstrap, self.cluster.topic, PARTITIONS).elements())
