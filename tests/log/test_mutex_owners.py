"""A thread unlocks only what it has locked: tests of the logs run once more, on mutexes that check it.

An unlock without a lock passes every other test unless two threads meet in that moment; it opens another thread's
critical section.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
TESTS = (
    "append_rules", "cleaner_threads", "future_logs", "half_done", "leadership", "log_appender", "log_manager",
    "producer_state", "read_limits", "retention",
)  # fmt: skip


@pytest.mark.skipif("LD_PRELOAD" in os.environ, reason="preloaded libraries in each other's way")
def test_no_mutex_is_unlocked_by_a_thread_that_does_not_hold_it(tmp_path: Path) -> None:
    library = tmp_path / "mutex_owners.so"
    source = HERE / "mutex_owners.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {"LD_PRELOAD": str(library), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'inner'}"]
    command += [str(HERE / f"test_{name}.py") for name in TESTS]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=600)
    said = f"{done.stdout[-4000:]}\n{done.stderr[-2000:]}"
    assert done.returncode == 0, said
    checked = [int(number) for number in re.findall(r"(\d+) mutexes were checked", done.stderr)]
    assert checked and max(checked) > 1000, said
