"""A streaming query from topic to topic, exactly once, in a process of its own, which is killed at a request.

    python exactly_once_query.py '{"bootstrap": ..., "source": ..., "sink": ..., "checkpoint": ..., "master": ...}'

`fault`: {"where": "begin", "task", "commit" or "abort", "number": of the request in that process, "answered": whether
it was, "victim": "worker" (the Python process), "java" (the JVM above it: the driver's, or an executor's), "error" (a
RuntimeError), "flag": a file that is made when it happens, and keeps it from happening again}. `failures`: so many
attempts of each task of a batch raise at its end.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kafkapy_spark.data_source import KafkapyDataSource
from kafkapy_spark.exactly_once import TransactionMessage
from kafkapy_spark.exactly_once_stream import ExactlyOnceStreamWriter
from kafkapy_spark.sink_options import SinkOptions
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType
from pyspark.taskcontext import TaskContext

GIVEN = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}


def java_above() -> int:
    """The process id of the JVM that this process works for."""
    pid = os.getpid()
    while Path(f"/proc/{pid}/comm").read_text().strip() != "java":
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid


def strike(fault: dict[str, Any]) -> None:
    """Does what the fault says, once."""
    flag = Path(fault["flag"])
    if flag.exists():
        return
    flag.write_text(fault["where"])
    if fault["victim"] == "error":
        raise RuntimeError("a fault of the test's")
    os.kill(os.getpid() if fault["victim"] == "worker" else java_above(), signal.SIGKILL)
    signal.pause()


def arm(fault: dict[str, Any] | None, where: str) -> None:
    """Has the fault happen at its request from now on."""
    from kafkapy_spark.transactions import TransactionClient

    if not hasattr(TransactionClient, "unharmed"):
        TransactionClient.unharmed = TransactionClient.send_built  # type: ignore[attr-defined]
    if fault is None or fault["where"] != where:
        TransactionClient.send_built = TransactionClient.unharmed  # type: ignore[attr-defined,method-assign]
        return
    left = fault["number"]

    async def send_built(self: Any, *arguments: Any, **keywords: Any) -> Any:
        nonlocal left
        left -= 1
        mine = left == -1
        if mine and not fault["answered"]:
            strike(fault)
        response = await TransactionClient.unharmed(self, *arguments, **keywords)  # type: ignore[attr-defined]
        if mine and fault["answered"]:
            await asyncio.sleep(0)
            strike(fault)
        return response

    TransactionClient.send_built = send_built  # type: ignore[assignment,method-assign]


class FaultyWriter(ExactlyOnceStreamWriter):
    """The writer, in processes that die."""

    def __init__(self, options: SinkOptions, schema: StructType, given: dict[str, Any]) -> None:
        super().__init__(options, schema)
        self.given = given

    def __getstate__(self) -> dict[str, Any]:
        arm(self.given.get("fault"), "begin")
        return super().__getstate__()

    def write(self, iterator: Iterator[Any]) -> TransactionMessage:
        """Its records are sent before the task fails."""
        context = TaskContext.get()
        assert context is not None
        fault = self.given.get("fault")

        def then_fail() -> Iterator[Any]:
            yield from iterator
            if context.attemptNumber() < self.given.get("failures", 0):
                raise RuntimeError("a task of the test's fails")
            if fault is not None and fault["where"] == "task":
                strike(fault)

        return super().write(then_fail())

    def commit(self, messages: Any, batchId: int) -> None:
        """Maybe not to its end."""
        arm(self.given.get("fault"), "commit")
        super().commit(messages, batchId)

    def abort(self, messages: Any, batchId: int) -> None:
        """Maybe not to its end."""
        arm(self.given.get("fault"), "abort")
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
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.sql.adaptive.enabled", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(FaultySource)
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
