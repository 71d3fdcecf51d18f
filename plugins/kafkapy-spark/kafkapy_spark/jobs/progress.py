"""How far a job is, on stderr: a line that changes on a terminal, a plain line every 10 s elsewhere.

Tasks of Spark's stages and rows of streaming queries are looked up while the job runs, so a job says only what Spark
does not know: what it is at, and rows that it moves itself.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from kafkapy.tools.output import size_text
from kafkapy_spark.session import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SILENT", "JobProgress", "job_progress"]

logger = logging.getLogger("kafkapy.spark")

POLL_S: Final = 0.5
PLAIN_EVERY_S: Final = 10.0


class JobProgress:
    """What a job says while it runs, on any thread; this one shows it to nobody."""

    def step(self, text: str) -> None:
        """What is done from now on, in a few words."""

    def advance(self, rows: int, size: int = 0) -> None:
        """So many more rows, and bytes, are done."""


SILENT: Final = JobProgress()


@contextmanager
def job_progress(spark: SparkSession, what: str) -> Iterator[JobProgress]:
    """Shows how far the job is while the block runs."""
    state = _State(spark, what)
    done = threading.Event()
    watch = _on_terminal if sys.stderr.isatty() else _in_lines
    thread = threading.Thread(target=watch, args=(state, done), name="kafkapy-job-progress", daemon=True)
    thread.start()
    try:
        yield state
    finally:
        done.set()
        thread.join()


class _State(JobProgress):
    """What is known; looked up by the thread that shows it."""

    def __init__(self, spark: SparkSession, what: str) -> None:
        self.what = what
        self.tasks = 0
        self.tasks_done = 0
        self._spark = spark
        self._started = time.monotonic()
        self._lock = threading.Lock()
        self._step = ""
        self._rows = 0
        self._bytes = 0
        self._not_ours = {query.runId for query in spark.streams.active}
        self._queries: dict[str, _QueryRows] = {}

    def step(self, text: str) -> None:
        self._step = text

    def advance(self, rows: int, size: int = 0) -> None:
        with self._lock:
            self._rows += rows
            self._bytes += size

    def look_up(self) -> None:
        """Asks Spark, which does not tell clients of Spark Connect of its tasks. A session that ends meanwhile is no
        error of the job's."""
        try:
            if not is_connect(self._spark):
                tracker = self._spark.sparkContext.statusTracker()
                stages = [found for stage in tracker.getActiveStageIds() if (found := tracker.getStageInfo(stage))]
                self.tasks = sum(stage.numTasks for stage in stages)
                self.tasks_done = sum(stage.numCompletedTasks for stage in stages)
            for query in self._spark.streams.active:
                if query.runId not in self._not_ours:
                    self._queries.setdefault(query.runId, _QueryRows(query))
            for each in self._queries.values():
                each.look_up()
        except Exception as error:
            logger.debug("Progress is not known: %s", error)

    @property
    def details(self) -> str:
        """Everything but the job's name, in one line."""
        seconds = time.monotonic() - self._started
        rows = self._rows + sum(query.rows for query in self._queries.values())
        parts = [self._step] if self._step else []
        if self.tasks:
            parts.append(f"{self.tasks_done:,} of {self.tasks:,} tasks")
        if rows:
            parts.append(f"{rows:,} rows")
        if self._bytes:
            parts.append(size_text(self._bytes))
        if rows and seconds >= 1:
            parts.append(f"{rows / seconds:,.0f} rows/s")
        return ", ".join(parts)

    @property
    def line(self) -> str:
        """For a log."""
        return f"{self.what}: {', '.join(filter(None, (self.details, f'{time.monotonic() - self._started:.0f} s')))}"


class _QueryRows:
    """Rows that a streaming query has read."""

    def __init__(self, query: Any) -> None:
        self.rows = 0
        self._query = query
        self._batch = -1

    def look_up(self) -> None:
        """Of batches that have ended since the last look."""
        last = self._query.lastProgress
        if last is None or last.batchId <= self._batch:
            return
        self.rows += sum(each.numInputRows for each in self._query.recentProgress if each.batchId > self._batch)
        self._batch = last.batchId


def _in_lines(state: _State, done: threading.Event) -> None:
    while not done.wait(PLAIN_EVERY_S):
        state.look_up()
        print(state.line, file=sys.stderr, flush=True)


def _on_terminal(state: _State, done: threading.Event) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), TextColumn("{task.fields[details]}"))
    console = Console(stderr=True)
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True, refresh_per_second=4) as bars:
        bar = bars.add_task(state.what, total=None, details="")
        while not done.wait(POLL_S):
            state.look_up()
            bars.update(bar, total=state.tasks or None, completed=state.tasks_done, details=state.details)
