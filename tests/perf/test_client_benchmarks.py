"""The benchmarks of clients run, and say what they have measured."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PERF = Path(__file__).parents[2] / "perf" / "clients"


def test_consumers_are_measured(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    clients = "kafkapy,kafkapy-poll,confluent"
    command = [sys.executable, str(PERF / "consume.py"), "--messages", "60000", "--rounds", "1", "--sizes", "100"]
    command += ["--codecs", "lz4", "--clients", clients, "--json", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    rows = json.loads(out.read_text())["results"]
    assert [row["client"] for row in rows] == clients.split(",")
    for row in rows:
        assert 0 < row["runs"][0]["messages"] <= 60_000
        assert row["messages_per_s"] > 0
        assert row["cpu_us_per_message"] > 0


def test_stages_to_arrow_are_measured(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    out = tmp_path / "out.json"
    command = [sys.executable, str(PERF.parent / "arrow_bench.py"), "--sizes", "100", "--codecs", "lz4"]
    command += ["--rounds", "1", "--seconds", "0.2", "--json", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(out.read_text())["results"]
    assert row["bound"]["records"] > 10_000
    assert row["bound"]["walk"] > 0 and row["key and value"]["columns"] > 0 and row["all columns"]["batch"] > 0
    assert row["client"]["per_s"] > 0


def test_the_console_is_measured() -> None:
    pytest.importorskip("kafkapy_console")
    command = [sys.executable, str(PERF.parent / "console_bench.py"), "--topics", "60", "--records", "5000"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "The search is complete: 1 hits in 5,000 records." in done.stdout
    assert "page of topics meanwhile" in done.stdout
