"""The benchmarks of clients run, and say what they have measured."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

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
