"""The power fails after any file operation of what is kept beside the logs: checkpoints, markers, ids, the metadata.

What was acknowledged is there afterwards, and nothing that is half of the next. What is written and how it is read
again: power_failures.py. Logs themselves: test_fault_injection.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from log.file_faults import build

HERE = Path(__file__).parent

pytestmark = pytest.mark.skipif(bool(os.environ.get("KAFKAPY_ASAN")), reason="preloaded libraries in each other's way")


@pytest.mark.parametrize(
    "scenario", ["whole file", "checkpoint", "clean shutdown", "identity", "topic ids", "metadata"]
)
def test_what_was_acknowledged_is_there_after_a_power_failure(
    tmp_path: Path, fast_directory: Path, scenario: str
) -> None:
    environment = {**os.environ, "LD_PRELOAD": str(build(tmp_path)), "PYTHONPATH": str(HERE.parent.parent)}
    command = [sys.executable, str(HERE / "power_failures.py"), str(fast_directory / "disk"), scenario]
    said = json.loads(subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE).stdout)
    assert not said["failures"], f"{len(said['failures'])} failed:\n" + "\n".join(said["failures"][:10])
    assert said["states"] >= 30
