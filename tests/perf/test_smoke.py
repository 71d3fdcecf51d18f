"""The whole instrument once, as `make perf-smoke` runs it: every work is measured, and nothing goes wrong."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from work import ALL

pytestmark = pytest.mark.alone

RUN = Path(__file__).parents[2] / "perf" / "run.py"
OF_THE_LIMIT = {"W1", "W2", "W3", "W7", "W9", "W10"}
JAVA_ONLY = {"X", "W10"}


@pytest.mark.skipif(shutil.which("gcc") is None, reason="the load generator is compiled with gcc")
def test_the_instrument_measures_every_work(tmp_path: Path) -> None:
    out = tmp_path / "results.json"
    command = [sys.executable, str(RUN), "--smoke", "--json", str(out), "--data-dir", str(tmp_path / "data")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    results = json.loads(out.read_text())
    assert results["errors"] == []
    measured = {(row["work"], row["peer"]) for row in results["rows"]}
    ours = {(work, "kafkapy") for work in ALL if work not in JAVA_ONLY}
    assert measured == ours | {(work, "limit") for work in OF_THE_LIMIT}
    for row in results["rows"]:
        assert row["metrics"] and all(len(values) == 1 for values in row["metrics"].values()), row
    assert {peer["status"] for peer in results["peers"]} == {"measured", "left out"}
    assert not list((tmp_path / "data").iterdir()), "what was measured on is removed"
