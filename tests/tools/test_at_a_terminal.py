"""Commands as a person at a terminal meets them: what they say, ask and draw there, and what Ctrl-C does."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click.testing
import pytest
from rich.console import Console
from tools.conftest import CommandLine

from kafkapy.broker.server import KafkaServer
from kafkapy.config.broker import BrokerConfig
from kafkapy.config.single_node import SINGLE_NODE
from kafkapy.security.authorizer.allow_all import AllowAllAuthorizer
from kafkapy.security.authorizer.base import AuthorizationResult
from kafkapy.testing.broker import Broker
from kafkapy.tools import cli, produce
from kafkapy.tools.output import Column, Output

Name = Callable[[], str]
ESCAPES = re.compile("\x1b\\[[0-9;?]*[A-Za-z]")
CURSOR = re.compile("\x1b\\[[0-9;?]*[A-HJKlh]")
"""What a progress bar draws with."""


class Terminal:
    """A command whose stdin, stdout and stderr are one terminal; `stdin` and `stdout` are a pipe or file instead."""

    def __init__(self, *arguments: str, columns: int = 80, stdin: int | None = None, stdout: int | None = None) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kafkapy.tools.cli", *arguments],
            stdin=theirs if stdin is None else stdin,
            stdout=theirs if stdout is None else stdout,
            stderr=theirs,
            preexec_fn=_own_terminal,
            # readline writes the size of this program's terminal into the environment.
            env={name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
            | {"TERM": "xterm-256color"},
        )
        os.close(theirs)
        self.raw = ""

    @property
    def text(self) -> str:
        return ESCAPES.sub("", self.raw).replace("\r\n", "\n")

    def wait_for(self, text: str) -> None:
        """Until it stands on the terminal."""
        deadline = time.monotonic() + 60
        while text not in self.text:
            assert self._read(deadline), self.raw

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def end(self) -> str:
        """All that was written, when the command has ended."""
        deadline = time.monotonic() + 60
        while self._read(deadline):
            pass
        self.process.wait(60)
        os.close(self._ours)
        return self.text

    def _read(self, deadline: float) -> bool:
        ready, _, _ = select.select([self._ours], [], [], max(0, deadline - time.monotonic()))
        assert ready, self.raw
        try:
            block = os.read(self._ours, 65536)
        except OSError:  # the other end is closed
            return False
        self.raw += block.decode(errors="surrogateescape")
        return bool(block)


def _own_terminal() -> None:
    os.setsid()
    fcntl.ioctl(2, termios.TIOCSCTTY, 0)


@pytest.fixture
def at(broker: Broker) -> Iterator[Callable[..., Terminal]]:
    made: list[Terminal] = []

    def start(*arguments: str, **options: Any) -> Terminal:
        made.append(Terminal(*arguments, "-b", broker.bootstrap_servers, **options))
        return made[-1]

    yield start
    for each in made:
        if each.process.poll() is None:
            each.process.kill()
            each.process.wait()


At = Callable[..., Terminal]


# --- progress and Ctrl-C ----------------------------------------------------------------------------------------------


def test_no_bar_is_drawn_over_typed_records(at: At, topic: str, kafkapy: CommandLine) -> None:
    run = at("produce", topic)
    run.wait_for("Type one record per line.")
    run.type("one\n")
    run.type("two\n\x04")
    shown = run.end()
    assert run.process.returncode == 0
    assert CURSOR.search(run.raw) is None
    assert shown.endswith("2 records sent\n")
    assert sorted(kafkapy.done("consume", topic).splitlines()) == ["one", "two"]


def test_no_bar_is_drawn_where_the_other_end_of_a_pipe_has_the_terminal(at: At, topic: str) -> None:
    lines, feed = os.pipe()
    run = at("produce", topic, stdin=lines)
    os.close(lines)
    os.write(feed, b"a\nb\n")
    os.close(feed)
    assert run.end() == "2 records sent\n"
    assert CURSOR.search(run.raw) is None
    out, into = os.pipe()
    run = at("consume", topic, stdout=into)
    os.close(into)
    assert run.end() == ""
    assert sorted(os.read(out, 100).split()) == [b"a", b"b"]
    os.close(out)


def test_a_bar_is_drawn_from_and_to_files(at: At, topic: str, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_bytes(b"x\n" * 1000)
    run = at("produce", topic, str(lines))
    assert "1,000 records sent, " in run.end()
    assert CURSOR.search(run.raw)
    run = at("consume", topic, "--output", str(tmp_path / "copy"))
    run.end()
    assert CURSOR.search(run.raw)
    assert (tmp_path / "copy").read_bytes() == lines.read_bytes()


def test_ctrl_c_says_how_many_records_arrived(at: At, topic: str, kafkapy: CommandLine) -> None:
    run = at("produce", topic)
    run.wait_for("Ctrl-D")
    run.type("one\ntwo\n")
    kafkapy.done("consume", topic, "--follow", "-c", "2")  # both have arrived
    run.type("\x03")
    assert "Interrupted: 2 records arrived.\n" in run.end()
    assert run.process.returncode == 130


def test_ctrl_c_waits_for_what_is_on_its_way(
    broker: Broker, topic: str, kafkapy: CommandLine, capsys: pytest.CaptureFixture[str]
) -> None:
    def calls() -> Iterator[produce.Placed]:
        yield "Line 1", {"values": [b"one", b"two"]}
        raise KeyboardInterrupt

    # Nothing goes out before it is flushed.
    configs: dict[str, object] = {"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 600_000}
    with pytest.raises(SystemExit) as ended:
        produce._send(configs, topic, calls(), False)
    assert ended.value.code == 130
    assert capsys.readouterr().err == "Interrupted: 2 records arrived.\n"
    assert sorted(kafkapy.done("consume", topic).splitlines()) == ["one", "two"]


def test_ctrl_c_says_what_was_printed(at: At, topic: str, kafkapy: CommandLine) -> None:
    kafkapy.done("produce", topic, stdin=b"one\ntwo\n")
    run = at("consume", topic, "--follow")
    run.wait_for("Waiting for records; Ctrl-C ends.")
    run.wait_for("one\n")
    run.wait_for("two\n")
    run.type("\x03")
    assert run.end().endswith("2 records printed.\n")
    assert run.process.returncode == 0


# --- nothing there ----------------------------------------------------------------------------------------------------


def test_empty_results_say_so_and_what_to_do_next(at: At, topic: str, name: Name) -> None:
    group = name()
    assert "There are no records in that range. --follow waits" in at("consume", topic).end()
    assert f"Group {group} has read all records." in at("consume", topic, "--group", group).end()
    assert "has only defaults. --all shows them" in at("configs", "describe", "topic", topic, columns=200).end()
    assert "No partition is under-replicated." in at("topics", "describe", "--under-replicated").end()
    assert "No transactional id matches." in at("transactions", "list", "--state", "Ongoing").end()
    assert "No group has these states" in at("groups", "list", "--state", "Dead", columns=200).end()
    assert "The group has no members now." in at("groups", "describe", group, "--members").end()


def test_a_cluster_without_topics_and_groups_says_so() -> None:
    with Broker() as empty:
        for command, sentence in (
            (("topics", "list"), "kafkapy topics create NAME creates one."),
            (("groups", "list"), "kafkapy consume TOPIC --group NAME creates one."),
            (("transactions", "list"), "No producer of the cluster uses transactions."),
        ):
            run = Terminal(*command, "-b", empty.bootstrap_servers, columns=200)
            assert sentence in run.end()
            assert run.process.returncode == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("topics", "delete"),
        ("topics", "delete-records", "--before", "end"),
        ("groups", "delete"),
        ("groups", "delete-offsets"),
    ],
)
def test_what_is_not_there_fails_before_anything_is_asked(at: At, topic: str, arguments: tuple[str, ...]) -> None:
    missing = ("nope", topic) if arguments[1] == "delete-offsets" else ("nope",)
    run = at(*arguments, *missing, columns=200)
    shown = run.end()
    assert run.process.returncode == 1
    assert shown.startswith("Error: T") and "no" in shown and "[y/N]" not in shown


def test_what_is_there_is_deleted_after_a_yes(at: At, topic: str, kafkapy: CommandLine) -> None:
    run = at("topics", "delete", topic)
    run.wait_for("[y/N]")
    run.type("n\n")
    run.end()
    assert run.process.returncode == 1
    assert topic in kafkapy.done("topics", "list", "-q")
    run = at("topics", "delete", topic)
    run.wait_for("[y/N]")
    run.type("y\n")
    assert f"Topic {topic} deleted." in run.end()


def test_a_partition_that_does_not_exist_fails_at_once(kafkapy: CommandLine, topic: str) -> None:
    lines = b'{"value":"a","partition":1}\n{"value":"b","partition":2}\n'
    # A record for an unknown partition waits for metadata that never comes: so long, if it is sent at all.
    wait = ("-X", "max.block.ms=2000000000", "-X", "delivery.timeout.ms=2000000000")
    error = kafkapy.failure("produce", topic, "--json", *wait, stdin=lines)
    assert error == f"Line 2 of stdin: Topic {topic} has no partition 2: it has partitions 0 to 1."


# --- what is not allowed ----------------------------------------------------------------------------------------------


class _Refusing(AllowAllAuthorizer):
    """Denies all topics and groups that begin with "secret"."""

    decisions_epoch = 1

    def authorize(self, context: Any, actions: Any) -> list[AuthorizationResult]:
        answers = {True: AuthorizationResult.DENIED, False: AuthorizationResult.ALLOWED}
        return [answers[action.resource_name.startswith("secret")] for action in actions]


def test_what_is_denied_is_not_said_to_be_missing(tmp_path: Path) -> None:
    keys = {"broker.id": "1", "listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path / "logs")}
    with KafkaServer(BrokerConfig(keys | SINGLE_NODE)) as server:
        kafkapy = CommandLine(f"127.0.0.1:{server.endpoints[0].port}")
        kafkapy.done("topics", "create", "secrets", "open")
        kafkapy.done("groups", "reset-offsets", "secret-group", "-t", "open", "--to-latest", "--execute")
        server.use_authorizer(_Refusing())
        for arguments in (
            ("topics", "describe", "secrets"),
            ("topics", "delete-records", "secrets", "--before", "end", "-y"),
            ("topics", "delete", "secrets", "-y"),
            ("topics", "alter", "secrets", "-p", "5"),
            ("consume", "secrets"),
            ("consume", "secrets", "--group", "g"),
            ("produce", "secrets"),
            ("produce", "secrets", "--json"),
            ("configs", "describe", "topic", "secrets"),
            ("configs", "set", "topic", "secrets", "retention.ms=5"),
            ("groups", "describe", "secret-group"),
            ("groups", "delete", "secret-group", "-y"),
        ):
            error = kafkapy.failure(*arguments, stdin=b'{"value":"x"}\n')
            assert "not authorized" in error.lower() and "needs an ACL" in error, (arguments, error)
            assert arguments[-1] in error or "secret" in error


# --- names that were misspelt -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (("topic", "list"), "Did you mean topics?"),
        (("group", "list"), "Did you mean groups?"),
        (("config", "describe"), "Did you mean configs?"),
        (("produces",), "Did you mean produce?"),
        (("topics", "delete-record"), "Did you mean delete-records?"),
        (("groups", "describes"), "Did you mean describe?"),
        (("cluster", "broker"), "Did you mean brokers?"),
        (("log-dirs", "mov"), "Did you mean move?"),
        (("xyzzy",), "kafkapy --help lists the commands."),
    ],
)
def test_a_misspelt_command_is_answered_with_the_closest(arguments: tuple[str, ...], meant: str) -> None:
    result = click.testing.CliRunner().invoke(cli.main, list(arguments), prog_name="kafkapy")
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].endswith(meant)


def test_misspelt_topics_groups_and_keys(kafkapy: CommandLine, name: Name) -> None:
    topic = f"orders-of-{name()}"
    kafkapy.done("topics", "create", topic)
    meant = f"did you mean {topic}?"
    wrong = topic.replace("orders", "Order")
    for arguments in (
        ("topics", "describe", wrong),
        ("consume", wrong),
        ("consume", wrong, "--group", "g"),
        ("produce", wrong),
        ("configs", "describe", "topic", wrong),
        ("configs", "set", "topic", wrong, "retention.ms=5"),
        ("topics", "delete-records", wrong, "--before", "end", "-y"),
        ("groups", "reset-offsets", "g", "-t", wrong, "--to-latest"),
        ("topics", "alter", wrong, "-p", "9"),
        ("topics", "delete", wrong, "-y"),
        ("transactions", "describe-producers", wrong, "0"),
        ("log-dirs", "describe", "--topic-list", wrong),
    ):
        assert kafkapy.failure(*arguments) == f"The cluster has no topic {wrong}; {meant}", arguments
    for arguments in (
        ("configs", "set", "topic", topic, "retention.sm=5"),
        ("configs", "delete", "topic", topic, "retention.sm"),
        ("configs", "describe", "topic", topic, "retention.sm"),
        ("topics", "create", name(), "-c", "retention.sm=5"),
    ):
        assert "retention.sm" in (error := kafkapy.failure(*arguments)) and "did you mean retention.ms" in error
    group = f"billing-of-{name()}"
    kafkapy.done("groups", "reset-offsets", group, "-t", topic, "--to-latest", "--execute")
    wrong = group.replace("billing", "biling")
    for arguments in (("groups", "describe", wrong), ("groups", "delete", wrong, "-y")):
        assert kafkapy.failure(*arguments) == f"The cluster has no group {wrong}; did you mean {group}?"


def test_offsets_of_a_group_that_is_not_there_are_set_with_a_word_of_warning(
    at: At, topic: str, kafkapy: CommandLine, name: Name
) -> None:
    group = f"shipping-of-{name()}"
    kafkapy.done("groups", "reset-offsets", group, "-t", topic, "--to-latest", "--execute")
    wrong = group.replace("shipping", "shiping")
    shown = at("groups", "reset-offsets", wrong, "-t", topic, "--to-latest").end()
    assert f"Group {wrong} has no offsets so far; did you mean {group}" in " ".join(shown.split())
    assert "so far" not in at("groups", "reset-offsets", group, "-t", topic, "--to-latest").end()


@pytest.mark.parametrize("columns", [40, 80])
@pytest.mark.parametrize(
    "command",
    [
        ("topics", "describe", "nope"),
        ("groups", "reset-offsets", "g", "-t", "t"),
        ("configs", "describe", "broker"),
        ("log-dirs", "move", "orders", "--to", "d"),
        ("consume", "nope", "--from", "yesterday"),
    ],
    ids=" ".join,
)
def test_sentences_break_between_words_only(
    at: At, kafkapy: CommandLine, command: tuple[str, ...], columns: int
) -> None:
    shown = at(*command, columns=columns).end()
    lines = shown[shown.index("Error: ") :].splitlines()
    assert len(lines) > 1 or len(lines[0]) < columns
    assert all(len(line) <= columns for line in lines)
    assert " ".join(lines) == kafkapy(*command).stderr.splitlines()[-1]


# --- tables -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
@pytest.mark.parametrize(
    "command", [("topics", "describe", "--offsets"), ("groups", "describe"), ("log-dirs", "describe")]
)
def test_headings_break_between_words_only(
    at: At, topic: str, kafkapy: CommandLine, command: tuple[str, ...], columns: int
) -> None:
    group = f"{topic}-a-group-with-a-name-that-is-longer-than-any-heading-could-be"
    if command[0] == "groups":
        kafkapy.done("groups", "reset-offsets", group, "-t", topic, "--to-latest", "--execute")
    named = {"topics": (topic,), "groups": (group,), "log-dirs": ()}[command[0]]
    shown = at(*command, *named, columns=columns).end()
    words = {"topics": "partition leader epoch replicas isr offline earliest latest records"}
    words |= {
        "groups": "topic partition current log end lag client host",
        "log-dirs": "partition size offset lag future",
    }
    found = set(re.findall(r"[a-z]+", shown))
    assert found >= set(words[command[0]].split()), shown
    assert all(len(line) <= columns for line in shown.splitlines() if "─" in line), shown


def test_a_table_that_has_no_room_for_its_headings_is_one_line_per_value() -> None:
    shown = io.StringIO()
    output = Output(console=Console(file=shown, width=20, highlight=False))
    columns = (Column("partition"), Column("offset", "starting offset", right=True), Column("more"))
    output.rows([{"offset": 5, "partition": "x" * 30}, {"offset": 6, "more": "y"}], columns)
    assert shown.getvalue().splitlines() == [
        f"partition        {'x' * 30}",
        "starting offset  5",
        "more             -",
        "",
        "partition        -",
        "starting offset  6",
        "more             y",
    ]
