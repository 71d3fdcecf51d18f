"""A run of archive() in a process of its own that kills itself (SIGKILL) at a place. Its arguments
beside archive's own, or the JSON of all in argv:

kill    [place, number]: the number-th time that it comes by. "task": files of a task are written; "decide": all
        files of a round are; "decided": a Parquet directory's commit is written, no file of it in place; "moved": a
        file of it is; "committed": the commit is done.
spark   whether a session of Spark's runs the tasks; else this process does, which starts sooner.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kafkapy_spark.jobs import archive, archive_arrow, archive_writer
from kafkapy_spark.jobs.archive_delta import DeltaArchive
from kafkapy_spark.jobs.archive_iceberg import IcebergArchive
from kafkapy_spark.jobs.archive_parquet import ParquetDirectory
from kafkapy_spark.jobs.archive_store import Store

PLACES: dict[str, list[tuple[type, str, bool]]] = {
    "task": [(archive_writer.TaskWriter, "finish", True)],
    "decide": [(each, "commit", False) for each in (ParquetDirectory, DeltaArchive, IcebergArchive)],
    "decided": [(Store, "create", True)],
    "moved": [(Store, "move", True)],
    "committed": [(each, "commit", True) for each in (ParquetDirectory, DeltaArchive, IcebergArchive)],
}
"""Methods, and whether the process dies behind them or before."""


def dying(method: Callable[..., Any], countdown: list[int], behind: bool) -> Callable[..., Any]:
    """The method that ends the process at its turn."""

    def call(*arguments: Any, **keywords: Any) -> Any:
        countdown[0] -= 1
        if not countdown[0] and not behind:
            os.kill(os.getpid(), signal.SIGKILL)
        result = method(*arguments, **keywords)
        if not countdown[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    return call


def run(arguments: dict[str, Any], summary: Path | None = None) -> None:
    """Archives, and writes the summary's JSON to a file."""
    place, number = arguments.pop("kill") or ("", 0)
    countdown = [number]
    for kind, name, behind in PLACES.get(place, ()):
        setattr(kind, name, dying(getattr(kind, name), countdown, behind))
    spark: Any = None
    if arguments.pop("spark"):
        from pyspark.sql import SparkSession

        os.environ["PYSPARK_PYTHON"] = sys.executable
        spark = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.memory", "512m")
            .config("spark.log.level", "ERROR")
            .config("spark.sql.shuffle.partitions", "2")
            .getOrCreate()
        )
    else:
        archive_arrow._run = lambda _, plan, tasks: [
            archive_writer.write_task(plan, number, task) for number, task in enumerate(tasks)
        ]
    done = archive.archive(spark, **arguments)
    if summary is not None:
        summary.write_text(json.dumps(done.as_dict()))


if __name__ == "__main__":
    run(json.loads(sys.argv[1]))
