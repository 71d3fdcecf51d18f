"""The command line as a whole: help without the weight, completion, tables on a terminal, plugins, broken brokers."""

from __future__ import annotations

import io
import json
import os
import pty
import socket
import subprocess
import sys
from pathlib import Path

import click
import click.testing
import pytest
from click.shell_completion import ShellComplete
from rich.console import Console
from tools.conftest import CommandLine

from kafkapy.tools import cli
from kafkapy.tools.options import key_values, parse_partitions
from kafkapy.tools.output import Column, Output, size_text, time_text

COLUMNS = (Column("name"), Column("count", "how many", right=True), Column("parts"), Column("id", quiet=True))
ROWS = [
    {"name": "a", "count": 5, "parts": [1, 2], "id": "x" * 30, "unseen": True},
    {"name": None, "count": 12345, "parts": [], "id": None, "unseen": False},
]


def complete(arguments: list[str], incomplete: str) -> list[str]:
    shell = ShellComplete(cli.main, {}, "kafkapy", "_KAFKAPY_COMPLETE")
    return [item.value for item in shell.get_completions(arguments, incomplete)]


def test_help_is_shown_without_loading_what_commands_need() -> None:
    program = (
        "import sys; from kafkapy.tools.cli import main; main(sys.argv[1:], standalone_mode=False); "
        "print([name for name in sys.modules if name.startswith(('rich', 'asyncio', 'kafkapy.cl', 'kafkapy._sp'))])"
    )
    for arguments in (["--help"], ["groups", "reset-offsets", "--help"]):
        run = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
        assert run.stdout.startswith("Usage: ")
        assert run.stdout.splitlines()[-1] == "[]"


def test_every_command_is_there_under_its_name_and_has_help() -> None:
    context = click.Context(cli.main)
    assert list(cli.COMMANDS) == [name for name in cli.main.list_commands(context) if name in cli.COMMANDS]
    for name, (_, short) in cli.COMMANDS.items():
        command = cli.main.get_command(context, name)
        assert command is not None
        assert (command.name, bool(command.help), short.endswith(".")) == (name, True, True)
    assert click.testing.CliRunner().invoke(cli.main, ["nonsense"]).exit_code == 2


GREETING = """
import click
from kafkapy.plugins import hookimpl

@click.command("greet")
def greet():
    "Say hello."
    click.echo("hello")

@hookimpl
def register_commands():
    return [greet]
"""


@pytest.mark.parametrize(("source", "works"), [(GREETING, True), ("import does_not_exist", False)])
def test_commands_of_plugins_are_listed_and_run(tmp_path: Path, source: str, works: bool) -> None:
    info = tmp_path / "greeting-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[kafkapy]\ngreeting = greeting\n")
    (tmp_path / "greeting.py").write_text(source)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "kafkapy.tools.cli", *arguments]
        environment = os.environ | {"PYTHONPATH": str(tmp_path)}
        return subprocess.run(command, capture_output=True, text=True, env=environment)

    shown, greeted = run("--help"), run("greet")
    assert (shown.returncode, "topics " in shown.stdout) == (0, True)
    assert ("Say hello." in shown.stdout) is works
    if works:
        assert (greeted.returncode, greeted.stdout, shown.stderr) == (0, "hello\n", "")
    else:
        assert shown.stderr.startswith("Warning: plugin greeting (greeting, greeting) cannot be loaded: ")
        assert (greeted.returncode, greeted.stderr.startswith("Error: plugin greeting")) == (1, True)


def test_words_are_completed_without_a_broker() -> None:
    assert {"topics", "groups", "consume"} <= set(complete([], ""))
    assert complete(["topics"], "de") == ["delete", "delete-records", "describe"]
    assert complete(["configs", "set"], "to") == ["topic"]
    assert complete(["produce", "t", "--compression"], "l") == ["lz4"]
    assert complete(["groups", "reset-offsets", "g"], "--to-e") == ["--to-earliest"]


def test_names_of_topics_and_groups_are_completed_from_the_cluster(kafkapy: CommandLine, topic: str) -> None:
    there = ["--bootstrap-server", kafkapy.bootstrap]
    assert topic in complete(["topics", "describe", *there], "")
    assert complete(["topics", "describe", *there], topic) == [topic]
    assert complete(["consume", *there], topic) == [topic]
    assert complete(["configs", "describe", "topic", *there], topic) == [topic]
    assert complete(["topics", "describe", topic, *there], topic) == []
    kafkapy.done("groups", "reset-offsets", f"{topic}-group", "-t", topic, "--to-latest", "--execute")
    assert complete(["groups", "describe", *there], topic) == [f"{topic}-group"]


def test_completion_without_a_broker_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkapy.tools.options.COMPLETION_TIMEOUT_MS", 100)
    assert complete(["topics", "describe", "--bootstrap-server", "127.0.0.1:1"], "") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str) -> None:
    result = click.testing.CliRunner().invoke(cli.main, ["completion", shell])
    assert result.exit_code == 0
    assert f"_KAFKAPY_COMPLETE={shell}_complete" in result.stdout


def test_a_terminal_gets_a_table_and_a_pipe_gets_lines(kafkapy: CommandLine, topic: str) -> None:
    command = [sys.executable, "-m", "kafkapy.tools.cli", "topics", "describe", topic, "-b", kafkapy.bootstrap]
    master, slave = pty.openpty()
    with subprocess.Popen(command, stdout=slave, env=os.environ | {"COLUMNS": "100", "TERM": "xterm"}) as shown:
        os.close(slave)
        text = b""
        while True:
            try:
                block = os.read(master, 4096)
            except OSError:
                break
            text += block
        assert shown.wait(30) == 0
    os.close(master)
    assert "─" in text.decode()
    assert f"{topic}" in text.decode()
    assert "2 partitions, 1 replica" in text.decode()
    piped = subprocess.run(command, capture_output=True, text=True, check=True)
    assert piped.stdout.splitlines()[1] == f"{topic}\t0\t1\t0\t1\t1\t-"


def test_tables_fit_the_terminal() -> None:
    for width, shown in ((80, False), (140, True)):
        file = io.StringIO()
        output = Output(console=Console(file=file, width=width, force_terminal=True, color_system=None))
        output.heading("first", "detail")
        output.rows(ROWS, COLUMNS)
        output.heading("second")
        lines = file.getvalue().splitlines()
        assert (lines[0], lines[-2:]) == ("first  detail", ["", "second"])
        assert ("x" * 30 in file.getvalue()) is shown
        assert lines[1].split()[:4] == ["name", "how", "many", "parts"]
        assert lines[3].split()[:4] == ["a", "5", "1,", "2"]
        assert lines[4].split()[:3] == ["-", "12345", "-"]
        assert all(len(line) <= width for line in lines)


def test_lines_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    Output().rows(ROWS, COLUMNS)
    assert capsys.readouterr().out == f"name\tcount\tparts\tid\na\t5\t1,2\t{'x' * 30}\n-\t12345\t-\t-\n"
    Output(as_json=True).rows(ROWS, COLUMNS)
    assert json.loads(capsys.readouterr().out) == ROWS
    Output().rows([{"name": "a\tb\nc\x1b[31m"}], COLUMNS[:1])
    assert capsys.readouterr().out == "name\na\\tb\\nc\\x1b[31m\n"
    Output(as_json=True).say("nothing of this")
    Output().say("a sentence")
    assert capsys.readouterr().out == "a sentence\n"


def test_sizes_and_times() -> None:
    assert [size_text(each) for each in (0, 999, 1000, 1_500_000, 2e12, None, -1)] == [
        "0 B",
        "999 B",
        "1.0 kB",
        "1.5 MB",
        "2.0 TB",
        "-",
        "-",
    ]
    assert (time_text(1_700_000_000_123), time_text(-1), time_text(None)) == ("2023-11-14T22:13:20.123Z", None, None)


def test_places_and_keys() -> None:
    assert parse_partitions("orders") == ("orders", None)
    assert parse_partitions("orders:0,3-5") == ("orders", [0, 3, 4, 5])
    assert key_values(("a=b=c", "d=")) == {"a": "b=c", "d": ""}
    for wrong in ("orders:", "orders:x", "orders:1-", "orders:-1", "orders:5-3"):
        with pytest.raises(click.UsageError, match="is not TOPIC"):
            parse_partitions(wrong)


def test_configuration_comes_from_a_file_and_from_keys(kafkapy: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("request.timeout.ms=9000\nclient.id=from-the-file\n")
    assert kafkapy("cluster", "id", "--command-config", str(file)).exit_code == 0
    file.write_text("request.timeout=9000\n")
    said = kafkapy.failure("cluster", "id", "--command-config", str(file))
    assert "did you mean request.timeout.ms" in said
    assert "must be a whole number" in kafkapy.failure("cluster", "id", "-X", "request.timeout.ms=soon")
    said = kafkapy.failure("topics", "create", "t", "-X", "min.insync.replicas=2")
    assert "min.insync.replicas belongs to topics, not to the client" in said


def test_brokers_may_be_named_in_the_file(kafkapy: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"bootstrap.servers={kafkapy.bootstrap}\n")
    run = click.testing.CliRunner().invoke
    assert run(cli.main, ["topics", "list", "--command-config", str(file)]).exit_code == 0
    assert run(cli.main, ["topics", "list", "-X", f"bootstrap.servers={kafkapy.bootstrap}"]).exit_code == 0
    elsewhere = ["-b", "127.0.0.1:1", "-X", "bootstrap.timeout.ms=100"]
    result = run(cli.main, ["topics", "list", "--command-config", str(file), *elsewhere])
    assert "No broker at 127.0.0.1:1" in result.stderr


def test_an_unreachable_broker_is_one_sentence() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        command = [sys.executable, "-m", "kafkapy.tools.cli", "topics", "list", "-X", "bootstrap.timeout.ms=300"]
        environment = os.environ | {"KAFKAPY_BOOTSTRAP_SERVER": address}
        run = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert (run.returncode, run.stdout) == (1, "")
    (sentence,) = run.stderr.splitlines()
    assert sentence.startswith(f"Error: No broker at {address} answered within 300 ms")
    assert "connection refused. Name brokers with --bootstrap-server (-b)." in sentence
