"""A streaming query from topic to topic, exactly once, in a process of its own, which is killed as a KillPlan says.

    python exactly_once_query.py '{"bootstrap": ..., "source": ..., "sink": ..., "checkpoint": ..., "master": ...}'

`plan`: the directory of a KillPlan. `again`: the query is started again in the same process when it has failed because
of that. `failures`: so many attempts of each task of a batch raise at its end. `protocol`: the transaction version that
clients follow. A query that a busy machine has let fail is started again in any case.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from kafkapy_spark.data_source import KafkapyDataSource
from kafkapy_spark.exactly_once import TransactionMessage
from kafkapy_spark.exactly_once_stream import ExactlyOnceStreamWriter
from kafkapy_spark.sink_options import SinkOptions
from kill_plan import STARVED, KillPlan, Reach
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType
from pyspark.taskcontext import TaskContext

GIVEN = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}


def phase(given: dict[str, Any], where: str) -> AbstractContextManager[Reach]:
    """Of the plan, if there is one; and from now on this process speaks the protocol."""
    from kafkapy.clients.network_client import NetworkClient

    if "protocol" in given:
        NetworkClient.finalized_feature = lambda *_: given["protocol"]  # type: ignore[method-assign]
    return KillPlan(given["plan"]).phase(where) if given.get("plan") else nullcontext(lambda _place: None)


class FaultyWriter(ExactlyOnceStreamWriter):
    """The writer, in processes that die."""

    def __init__(self, options: SinkOptions, schema: StructType, given: dict[str, Any]) -> None:
        super().__init__(options, schema)
        self.given = given

    def __getstate__(self) -> dict[str, Any]:
        if self._plan is not None:
            return super().__getstate__()
        with phase(self.given, "begin"):
            return super().__getstate__()

    def write(self, iterator: Iterator[Any]) -> TransactionMessage:
        """All records are taken before the task fails."""
        context = TaskContext.get()
        assert context is not None
        first = context.partitionId() == 0
        with phase(self.given if first else {**self.given, "plan": None}, "task") as reach:

            def then_fail() -> Iterator[Any]:
                yield from iterator
                if context.attemptNumber() < self.given.get("failures", 0):
                    raise RuntimeError("a task of the test's fails")
                reach("records")

            return super().write(then_fail())

    def commit(self, messages: Any, batchId: int) -> None:
        """Maybe not to its end."""
        with phase(self.given, "commit"):
            super().commit(messages, batchId)

    def abort(self, messages: Any, batchId: int) -> None:
        """Maybe not to its end, or not at all."""
        if self.given.get("plan") and KillPlan(self.given["plan"]).is_dead:
            return
        with phase(self.given, "abort"):
            super().abort(messages, batchId)


class FaultySource(KafkapyDataSource):
    """The format, with such a writer."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "faulty"

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        """Knows by an option what is to go wrong."""
        given = json.loads(self.options["faults"])
        options = {name: value for name, value in self.options.items() if name.lower() != "faults"}
        return FaultyWriter(SinkOptions.parse(options, streaming=True), schema, given)


def main() -> None:
    """Runs the query to the end of what there is, or of this process."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master(GIVEN["master"])
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.sql.adaptive.enabled", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(FaultySource)
    plan = KillPlan(GIVEN["plan"]) if GIVEN.get("again") else None
    while True:
        struck = len(plan.struck) if plan else 0
        try:
            run(spark)
            return
        except StreamingQueryException as error:
            if STARVED not in str(error) and (plan is None or len(plan.struck) == struck):
                raise


def run(spark: SparkSession) -> None:
    """The query, to the end of what there is. StreamingQueryException."""
    bootstrap = GIVEN["bootstrap"]
    query = (
        spark.readStream.format("kafkapy")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", GIVEN["source"])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", GIVEN["per_batch"])
        .load()
        .select("key", "value")
        .writeStream.format("faulty")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", GIVEN["sink"])
        .option("delivery", "exactly-once")
        .option("checkpointLocation", GIVEN["checkpoint"])
        .option("faults", json.dumps(GIVEN))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()
