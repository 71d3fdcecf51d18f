"""docs/spark.md: its example runs as it stands there, and prints what stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

PAGE = Path(__file__).parents[3] / "docs" / "spark.md"
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_page_of_ten_minutes(broker: Any, tmp_path: Path) -> None:
    """Its blocks are one program, on the topics that it makes in a shell before."""
    page = PAGE.read_text()
    blocks = BLOCK.findall(page)
    program = "\n".join(text for kind, text in blocks if kind == "python")
    printed = "".join(text for kind, text in blocks if kind == "text")
    assert program and printed
    made = re.findall(r"kafkapy topics create (\S+)(?: --partitions (\d+))?$", page, re.MULTILINE)
    assert [name for name, _ in made] == ["orders", "expensive"]
    for name, partitions in made:
        broker.create_topic(name, int(partitions or 1))
    done = subprocess.run(
        [sys.executable, "-c", program.replace("localhost:9092", broker.bootstrap_servers)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable},
        timeout=840,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert [line for line in done.stdout.splitlines() if line] == printed.splitlines()
