"""A command of kafkapy-spark writes its own words to stderr, and nothing of Spark's."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kafkapy import testing

pytest.importorskip("pyspark")


def test_stderr_has_one_sentence_and_no_log_of_spark(broker: testing.Broker) -> None:
    program = "from kafkapy_spark.cli import main; main()"
    command = [sys.executable, "-c", program, "profile", "nowhere", "-b", broker.bootstrap_servers]
    done = subprocess.run([*command, "--master", "local[1]"], capture_output=True, text=True)
    assert done.returncode == 1
    said = [line for line in done.stderr.splitlines() if not line.startswith("profile nowhere: ")]
    assert len(said) == 1 and said[0].startswith("Error: ") and "nowhere" in said[0], done.stderr
