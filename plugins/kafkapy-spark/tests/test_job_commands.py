"""What job commands print: progress, summaries, and why something failed. Without Spark."""

from __future__ import annotations

import io
import json
import sys
import time
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from kafkapy_spark.jobs import progress
from kafkapy_spark.jobs.progress import job_progress
from kafkapy_spark.jobs.session import reason
from kafkapy_spark.jobs.summary import Summary

from kafkapy.tools.output import Output


class FakeSpark:
    """A session whose stages and queries a test sets."""

    def __init__(self) -> None:
        self.stages = [SimpleNamespace(numTasks=tasks, numCompletedTasks=done) for tasks, done in ((8, 3), (4, 0))]
        self.streams = SimpleNamespace(active=[])
        tracker = SimpleNamespace(
            getActiveStageIds=lambda: [*range(len(self.stages))], getStageInfo=lambda number: self.stages[number]
        )
        self.sparkContext = SimpleNamespace(statusTracker=lambda: tracker)


def query(name: str, *batches: tuple[int, int]) -> Any:
    """A streaming query that has done batches (id, rows)."""
    done = [SimpleNamespace(batchId=number, numInputRows=rows) for number, rows in batches]
    return SimpleNamespace(runId=name, recentProgress=done, lastProgress=done[-1] if done else None)


def wait_for_line(capsys: pytest.CaptureFixture[str], *parts: str) -> str:
    deadline, seen = time.monotonic() + 20, ""
    while not any(all(part in line for part in parts) for line in seen.splitlines()):
        assert time.monotonic() < deadline, seen
        time.sleep(0.01)
        seen += capsys.readouterr().err
    return seen


def test_plain_lines(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Tasks of all stages that run, rows of the job's own queries and of its own, bytes."""
    monkeypatch.setattr(progress, "PLAIN_EVERY_S", 0.02)
    spark = FakeSpark()
    spark.streams.active = [query("others", (1, 1_000_000))]
    with job_progress(spark, "archive orders") as told:  # type: ignore[arg-type]
        told.step("reading")
        wait_for_line(capsys, "archive orders: reading, 3 of 12 tasks, 0 s")
        own = query("own", (0, 0), (1, 700))
        spark.streams.active.append(own)
        told.advance(300, 5_000_000)
        wait_for_line(capsys, "1,000 rows, 5.0 MB")
        own.recentProgress.append(SimpleNamespace(batchId=2, numInputRows=234))
        own.lastProgress = own.recentProgress[-1]
        spark.streams.active.clear()
        spark.stages.clear()
        seen = wait_for_line(capsys, "archive orders: reading, 1,234 rows, 5.0 MB")
        assert "1,000,000" not in seen and "1,001" not in seen


def test_a_session_that_ends_is_no_error(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(progress, "PLAIN_EVERY_S", 0.02)
    spark = FakeSpark()
    with job_progress(spark, "job"):  # type: ignore[arg-type]
        spark.stages = None  # type: ignore[assignment]
        wait_for_line(capsys, "job: ")


def test_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(progress, "POLL_S", 0.02)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with job_progress(FakeSpark(), "profile orders") as told:  # type: ignore[arg-type]
        told.step("reading")
        deadline = time.monotonic() + 20
        while "reading, 3 of 12 tasks" not in terminal.getvalue():
            assert time.monotonic() < deadline, terminal.getvalue()
            time.sleep(0.01)
    assert "profile orders" in terminal.getvalue()


@dataclass(kw_only=True)
class Copied(Summary):
    file_bytes: int
    keys: int
    note: str | None = None
    files: tuple[str, ...] = ()


def test_summaries(capsys: pytest.CaptureFixture[str]) -> None:
    summary = Copied(job="copy", rows=1234, bytes=999, seconds=2.0, file_bytes=5_000_000, keys=7, files=("a",))
    summary.show(Output())
    assert [line.split("\t") for line in capsys.readouterr().out.splitlines()] == [
        ["what", "value"],
        ["rows", "1,234"],
        ["bytes", "999"],
        ["seconds", "2.0"],
        ["file bytes", "5,000,000 (5.0 MB)"],
        ["keys", "7"],
    ]
    summary.show(Output(as_json=True))
    assert json.loads(capsys.readouterr().out) == {
        "job": "copy", "rows": 1234, "bytes": 999, "seconds": 2.0,
        "file_bytes": 5_000_000, "keys": 7, "note": None, "files": ["a"],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "[STREAM_FAILED] Query [id = 1] terminated with exception: Traceback (most recent call last):\n"
            '  File "x.py", line 1, in f\nKeyError: 1\n\nDuring handling of the above exception, another exception '
            "occurred:\n\nTraceback (most recent call last):\nkafkapy.errors.KafkaTimeoutError: no answer in 5 ms\n\n"
            "\tat org.apache.spark.api.python.BasePythonRunner\nCaused by: java.lang.X",
            "no answer in 5 ms",
        ),
        ("[PATH_ALREADY_EXISTS] Path /x exists.\nJVM stacktrace:\nat x", "[PATH_ALREADY_EXISTS] Path /x exists."),
        ("plain", "plain"),
        ("An error occurred while calling o8.save.\n: java.io.IOException: disk full\n\tat java.base/x", "disk full"),
    ],
)  # fmt: skip
def test_why_something_failed(text: str, expected: str) -> None:
    assert reason(ValueError(text)) == expected
