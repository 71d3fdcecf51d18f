"""kafkapy-server as its user sees it: a process, its exit code, what it prints."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkapy import KafkaConsumer, KafkaProducer
from kafkapy.config.properties import load_properties
from kafkapy.config.single_node import QUICK_START

LISTENING = re.compile(r"listening on PLAINTEXT://127\.0\.0\.1:(\d+)")
Run = Callable[..., "Program"]


class Program:
    """A kafkapy-server in a process of its own."""

    def __init__(self, arguments: tuple[str, ...], output: Path) -> None:
        self.output = output
        environment = os.environ | {"PYTHONUNBUFFERED": "1"}
        with output.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "kafkapy.tools.server", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=Path(__file__).parents[2],
            )

    @property
    def text(self) -> str:
        return self.output.read_text()

    def port(self) -> int:
        """The port it listens on; waits for it."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            found = LISTENING.search(self.text)
            if found:
                return int(found[1])
            assert self.process.poll() is None, self.text
            time.sleep(0.02)
        raise AssertionError(self.text)

    def code(self) -> int:
        """The exit code; waits for the end."""
        return self.process.wait(60)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    started: list[Program] = []

    def make(*arguments: str) -> Program:
        started.append(Program(arguments, tmp_path / f"output-{len(started)}"))
        return started[-1]

    yield make
    for program in started:
        if program.process.poll() is None:
            program.process.kill()
            program.process.wait()


def overrides(directory: Path, listeners: str = "PLAINTEXT://127.0.0.1:0") -> list[str]:
    return ["--override", f"listeners={listeners}", "--override", f"log.dirs={directory}"]


def test_help_explains_and_version_is_shown(run: Run) -> None:
    shown = run("--help")
    assert shown.code() == 0
    assert "--override" in shown.text
    assert "KEY=VALUE" in shown.text
    version = run("--version")
    assert version.code() == 0
    assert re.search(r"kafkapy-server, version \d+\.\d+", version.text)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_a_clean_stop(run: Run, tmp_path: Path, number: signal.Signals) -> None:
    program = run(*overrides(tmp_path / "logs"))
    assert program.port() > 0
    program.process.send_signal(number)
    assert program.code() == 0
    assert (tmp_path / "logs" / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_the_parent_blocks_is_a_clean_stop(run: Run, tmp_path: Path, number: signal.Signals) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {number})
    try:
        program = run(*overrides(tmp_path / "logs"))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert program.port() > 0
    program.process.send_signal(number)
    assert program.code() == 0


def test_without_a_file_it_is_what_the_file_in_config_makes() -> None:
    shipped = load_properties(str(Path(__file__).parents[2] / "config" / "server.properties"))
    assert {key: shipped[key] for key in QUICK_START} == QUICK_START


def test_without_a_file_groups_and_transactions_work(run: Run, tmp_path: Path) -> None:
    bootstrap = f"127.0.0.1:{run(*overrides(tmp_path / 'logs')).port()}"
    with KafkaProducer(bootstrap_servers=bootstrap, transactional_id="t") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("orders", b"two coffees")
        producer.commit_transaction()
    with KafkaConsumer("orders", bootstrap_servers=bootstrap, group_id="g", auto_offset_reset="earliest") as consumer:
        assert next(consumer).value == b"two coffees"
        consumer.commit()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("num.networkthreads=3", ("num.networkthreads", "'3'", "did you mean num.network.threads", "line 2")),
        ("num.network.threads=many", ("num.network.threads", "'many'", "whole number", "line 2")),
        ("num.network.threads=0", ("num.network.threads", "0", "at least 1", "line 2")),
        ("listeners=NOWHERE://127.0.0.1:0", ("listeners", "NOWHERE", "line 2")),
    ],
)
def test_a_bad_line_is_named_with_what_is_allowed(run: Run, tmp_path: Path, line: str, said: tuple[str, ...]) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"# a comment\n{line}\n")
    program = run(str(file), "--override", f"log.dirs={tmp_path / 'logs'}")
    assert program.code() == 1
    assert len(program.text.strip().splitlines()) == 1, program.text
    for part in said:
        assert part in program.text


def test_bad_overrides_and_missing_files_are_named(run: Run, tmp_path: Path) -> None:
    wrong = run("--override", "no-equals-sign")
    missing = run(str(tmp_path / "missing.properties"))
    bad = run("--override", "broker.id=minus")
    for program, said in ((wrong, "no-equals-sign"), (missing, "missing.properties"), (bad, "broker.id")):
        assert program.code() == 1
        assert said in program.text
        assert "Traceback" not in program.text


def test_a_taken_port_and_a_taken_directory_are_one_sentence_each(run: Run, tmp_path: Path) -> None:
    first = run(*overrides(tmp_path / "one"))
    port = first.port()
    same_port = run(*overrides(tmp_path / "two", f"PLAINTEXT://127.0.0.1:{port}"))
    same_directory = run(*overrides(tmp_path / "one"))
    for program, said in ((same_port, str(port)), (same_directory, str(tmp_path / "one"))):
        assert program.code() == 1
        last = program.text.strip().splitlines()[-1]
        assert last.startswith("kafkapy-server: ")
        assert said in last
        assert "Traceback" not in program.text
    assert first.process.poll() is None, "the first broker lives on"


def test_a_directory_that_cannot_be_used_is_one_sentence(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    program = run(*overrides(tmp_path / "file"))
    assert program.code() == 1
    assert str(tmp_path / "file") in program.text.strip().splitlines()[-1]
    assert "Traceback" not in program.text


def test_a_directory_of_another_cluster_is_one_sentence(run: Run, tmp_path: Path) -> None:
    first = run(*overrides(tmp_path / "logs"))
    first.port()
    first.process.terminate()
    first.code()
    (tmp_path / "logs" / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=WNzc7e3mQT2qdN0vVIYyZg\n")
    program = run(*overrides(tmp_path / "logs"))
    assert program.code() == 1
    assert "WNzc7e3mQT2qdN0vVIYyZg" in program.text.strip().splitlines()[-1]
    assert "Traceback" not in program.text


def test_a_logging_file_sets_levels_and_format(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "logging.properties"
    file.write_text(f"root=INFO\nformat=json\noutput={tmp_path / 'broker.log'}\nlogger.kafka.controller=ERROR\n")
    program = run(*overrides(tmp_path / "logs"), "--logging", str(file))
    deadline = time.monotonic() + 60
    log = tmp_path / "broker.log"
    while "listening on" not in (log.read_text() if log.exists() else "") and time.monotonic() < deadline:
        time.sleep(0.02)
    program.process.terminate()
    assert program.code() == 0
    lines = log.read_text().splitlines()
    assert all(line.startswith("{") for line in lines)
    assert not any("kafka.controller" in line for line in lines)
    assert program.text == ""


def test_the_start_says_version_listeners_data_and_time(run: Run, tmp_path: Path) -> None:
    program = run(*overrides(tmp_path / "logs"))
    port = program.port()
    program.process.terminate()
    assert program.code() == 0
    (started,) = (line for line in program.text.splitlines() if "msg=started" in line)
    assert re.search(
        rf"version=\S+ seconds=\d+\.\d+ broker_id=\d+ cluster_id=\S+ listeners=PLAINTEXT://\S+:{port} ", started
    )
    assert started.endswith(f"log_dirs={tmp_path / 'logs'}")


def test_a_start_on_a_terminal_is_a_short_block(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "kafkapy.tools.server", *overrides(tmp_path / "logs")]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        shown = ""
        while "of cluster" not in shown:
            shown += os.read(ours, 65536).decode()  # OSError: it has ended
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    os.close(ours)
    first, *_ = shown.splitlines()
    assert re.fullmatch(r"kafkapy \S+ is ready after \d+\.\d\d s\. Ctrl-C stops it\.", first)
    assert f"data in      {tmp_path / 'logs'}" in shown
    assert re.search(r"listening on PLAINTEXT://127\.0\.0\.1:\d+", shown)
