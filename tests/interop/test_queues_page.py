"""docs/queues.md: its commands and programs, run as they stand there, on kafkapy and on Apache Kafka 4.4."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from interop.share_groups import LOCK_MS, configure, fill
from waiting import wait_until

from kafkapy import KafkaAdminClient, KafkaConsumer, TopicPartition

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "queues.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r"^```\w+ (\S+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))


class Desk:
    """A directory with the page's programs, and the commands on the path."""

    def __init__(self, kafka: Any, directory: Path) -> None:
        self.kafka = kafka
        self.directory = directory
        self.running: list[subprocess.Popen[str]] = []
        for name, text in BLOCKS.items():
            if name.endswith(".py"):
                (directory / name).write_text(self.changed(text))
        tools = directory / "bin"
        tools.mkdir()
        for name, start in (("kafkapy", f'"{sys.executable}" -m kafkapy.tools.cli'), ("python", f'"{sys.executable}"')):
            (tools / name).write_text(f'#!/bin/sh\nexec {start} "$@"\n')
            (tools / name).chmod(0o755)
        self.environment = os.environ | {
            "PATH": f"{tools}:{os.environ['PATH']}", "PYTHONPATH": f"{ROOT}:{directory}",
            "KAFKAPY_BOOTSTRAP_SERVER": kafka.bootstrap, "XDG_CONFIG_HOME": str(directory),
        }  # fmt: skip

    def changed(self, text: str) -> str:
        """The broker is another one; fifty workers and a minute are many for a test."""
        for old, new in (
            ("localhost:9092", self.kafka.bootstrap),
            ("seq 50", "seq 3"),
            ("DELAY_S = 60", "DELAY_S = 1"),
        ):
            text = text.replace(old, new)
        return text

    def shell(self, name: str) -> str:
        done = subprocess.run(
            ["bash", "-eo", "pipefail", "-c", self.changed(BLOCKS[name])],
            cwd=self.directory, env=self.environment, capture_output=True, text=True, check=False, timeout=180,
        )  # fmt: skip
        assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"
        return done.stdout

    def start(self, *command: str) -> Any:
        """A program that goes on until the test ends; its output is in a file."""
        out = self.directory / f"out-{len(self.running)}"
        with out.open("w") as file:
            process = subprocess.Popen(
                command, cwd=self.directory, env=self.environment, stdout=file, stderr=subprocess.STDOUT, text=True,
                start_new_session=True,
            )  # fmt: skip
        self.running.append(process)
        return out

    def program(self, name: str) -> Any:
        return self.start(sys.executable, name)

    def stop(self) -> None:
        for process in self.running:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self.running.clear()


@pytest.fixture
def desk(kafka: Any, tmp_path: Path) -> Iterator[Desk]:
    made = Desk(kafka, tmp_path)
    yield made
    made.stop()


def lag(admin: KafkaAdminClient) -> int | None:
    found = admin.list_share_group_offsets("workers")["workers"]
    lags = [each.lag for each in found.values()]
    return sum(each or 0 for each in lags) if lags and None not in lags else None


def test_the_page_has_these_blocks() -> None:
    assert BLOCKS.keys() == {
        "jobs.py", "worker.py", "start", "outcomes.py", "long_jobs.py", "poison.py", "retries.py", "operate",
    }  # fmt: skip


def test_the_page_can_be_followed(kafka: Any, admin: KafkaAdminClient, desk: Desk) -> None:
    out = desk.start("bash", "-eo", "pipefail", "-c", desk.changed(BLOCKS["start"]))
    wait_until(lambda: "jobs" in admin.list_topics(), "the topic")
    wait_until(lambda: "workers" in str(admin.list_groups(types_filter=["share"])), "the group")
    fill(kafka.bootstrap, "jobs", [b"%d" % n for n in range(100)], 3)
    wait_until(lambda: out.read_text().count("done: ") == 100, "all jobs")
    assert {line for line in out.read_text().splitlines() if line.startswith("done: ")} == {
        f"done: {n}" for n in range(100)
    }
    wait_until(lambda: lag(admin) == 0, "no lag")
    desk.stop()
    wait_until(lambda: not admin.describe_share_groups(["workers"])["workers"]["members"], "the members' end")
    shown = desk.shell("operate")
    taken = re.findall(r"^(\d+) 1 (\d+)$", shown, re.MULTILINE)
    assert len(taken) == 3, shown
    assert all(int(value) // 3 == int(offset) for offset, value in taken)


def test_outcomes(kafka: Any, admin: KafkaAdminClient, desk: Desk) -> None:
    fill(kafka.bootstrap, "jobs", [b"7", b"no number", b"0", b"8"], 1)
    out = desk.program("outcomes.py")
    wait_until(lambda: "8, delivery" in out.read_text() and lag(admin) == 0, "the end of the queue")
    lines = out.read_text().splitlines()
    assert [line for line in lines if line.startswith("0,")] == [f"0, delivery {n}" for n in range(1, 6)]
    assert not any("no number" in line for line in lines)


def test_long_jobs(kafka: Any, admin: KafkaAdminClient, desk: Desk) -> None:
    configure(admin, "workers", share_record_lock_duration_ms=LOCK_MS)
    (desk.directory / "jobs.py").write_text(
        "import time\n\n\ndef work(job: bytes) -> None:\n"
        "    time.sleep(float(job))\n    print('done', job, flush=True)\n"
    )
    program = desk.directory / "long_jobs.py"
    program.write_text(program.read_text().replace("timeout=10", "timeout=0.5"))
    fill(kafka.bootstrap, "jobs", [b"5", b"0.1"], 1)
    out = desk.program("long_jobs.py")
    wait_until(lambda: lag(admin) == 0 and out.read_text().count("done") == 2, "both jobs")
    configure(admin, "workers", share_record_lock_duration_ms=30_000)


def test_poison_messages(kafka: Any, admin: KafkaAdminClient, desk: Desk) -> None:
    (desk.directory / "jobs.py").write_text(
        "def work(job: bytes) -> None:\n    if job == b'poison':\n        raise ValueError('poison')\n"
    )
    admin.create_topics({"jobs.failed": {"num_partitions": 1, "replication_factor": 1}})
    fill(kafka.bootstrap, "jobs", [b"good", b"poison", b"good"], 1)
    desk.program("poison.py")
    with KafkaConsumer(bootstrap_servers=kafka.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("jobs.failed", 0)])
        record = next(consumer)
    assert record.value == b"poison"
    assert b"ValueError: poison" in dict(record.headers)["error"]
    wait_until(lambda: lag(admin) == 0, "no lag")


def test_delayed_retries(kafka: Any, admin: KafkaAdminClient, desk: Desk) -> None:
    admin.create_topics({"jobs.retry": {"num_partitions": 1, "replication_factor": 1}})
    sent_at = time.time()
    fill(kafka.bootstrap, "jobs.retry", [b"again"], 1)
    retries = desk.program("retries.py")
    worker = desk.program("worker.py")
    wait_until(lambda: "done: again" in worker.read_text(), f"the retry; {retries.read_text()}")
    assert time.time() - sent_at >= 1
