"""kafkapy users against a broker: users come, log in with their passwords, and go."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker.sasl_broker import log_in_scram, open_connection, sasl_config
from tools.sasl_server import Run, runner

from kafkapy.broker.server import KafkaServer

BOTH = {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 4096}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    with KafkaServer(sasl_config(tmp_path_factory.mktemp("users"))) as started:
        yield started


@pytest.fixture
def run(server: KafkaServer, tmp_path: Path) -> Run:
    return runner(server, tmp_path, "users")


def listed(run: Run, *names: str) -> dict[str, dict[str, int]]:
    result = run("list", "--json", *names)
    assert result.exit_code == 0, result.output
    found: dict[str, dict[str, int]] = {}
    for row in json.loads(result.stdout):
        found.setdefault(row["user"], {})[row["mechanism"]] = row["iterations"]
    return found


def can_log_in(server: KafkaServer, user: str, password: str, mechanism: str = "SCRAM-SHA-256") -> bool:
    client = open_connection(server)
    try:
        return log_in_scram(client, mechanism, user, password).error_code == 0
    finally:
        client.close()


def test_a_user_is_added_with_the_password_of_a_file(run: Run, server: KafkaServer, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("wonder land \nsecond line\n")
    result = run("add", "file-user", "--password-file", str(tmp_path / "secret"))
    assert (result.exit_code, result.stdout) == (0, "User file-user added.\n")
    assert listed(run, "file-user") == {"file-user": BOTH}
    for mechanism in BOTH:
        assert can_log_in(server, "file-user", "wonder land ", mechanism)
    assert not can_log_in(server, "file-user", "wonder land")


def test_a_password_comes_from_stdin_or_a_variable(
    run: Run, server: KafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("add", "stdin-user", "--password-file", "-", stdin="p\u00e4ss\r\n").exit_code == 0
    assert can_log_in(server, "stdin-user", "p\u00e4ss")
    monkeypatch.setenv("SECRET_OF_ENV_USER", "from env")
    assert run("add", "env-user", "--password-env", "SECRET_OF_ENV_USER", "-m", "SCRAM-SHA-512").exit_code == 0
    assert can_log_in(server, "env-user", "from env", "SCRAM-SHA-512")
    assert list(listed(run, "env-user")["env-user"]) == ["SCRAM-SHA-512"]


def test_a_password_is_changed_for_the_mechanisms_of_the_user(run: Run, server: KafkaServer) -> None:
    run("add", "changing", "--password-file", "-", "-m", "scram-sha-256", stdin="old")
    result = run("change-password", "changing", "--password-file", "-", "--iterations", "5000", stdin="new")
    assert (result.exit_code, result.stdout) == (0, "Password of user changing changed.\n")
    assert listed(run, "changing") == {"changing": {"SCRAM-SHA-256": 5000}}
    assert can_log_in(server, "changing", "new")
    assert not can_log_in(server, "changing", "old")


def test_a_mechanism_and_then_the_user_is_deleted(run: Run, server: KafkaServer) -> None:
    run("add", "leaving", "--password-file", "-", stdin="x")
    assert run("delete", "leaving", "-m", "SCRAM-SHA-256").stdout == "User leaving changed.\n"
    assert list(listed(run, "leaving")["leaving"]) == ["SCRAM-SHA-512"]
    assert run("delete", "leaving").stdout == "User leaving deleted.\n"
    assert "leaving" not in listed(run)
    assert not can_log_in(server, "leaving", "x")


def test_lists_are_for_people_scripts_and_programs(run: Run) -> None:
    run("add", "one-of-all", "--password-file", "-", stdin="x")
    assert "one-of-all\tSCRAM-SHA-256\t4096" in run("list").stdout.splitlines()
    assert "one-of-all" in run("list", "-q").stdout.splitlines()


@pytest.mark.parametrize(
    ("arguments", "stdin", "message"),
    [
        (("add", "known", "--password-file", "-"), "x", "The user known exists already"),
        (("add", "new", "--password-file", "-"), "", "Stdin has no password"),
        (("add", "new", "--password-file", "/nowhere"), None, "/nowhere cannot be read: No such file or directory"),
        (("add", "new", "--password-env", "NO_SUCH_VARIABLE"), None, "The variable NO_SUCH_VARIABLE has no password"),
        (("add", "", "--password-file", "-"), "x", "Username must not be empty"),
        (("change-password", "knwn", "--password-file", "-"), "x", "has no SCRAM user knwn; did you mean known?"),
        (("delete", "nobody-at-all"), None, "has no SCRAM user nobody-at-all."),
        (("list", "nobody-at-all"), None, "has no SCRAM user nobody-at-all."),
    ],
)
def test_a_mistake_is_one_sentence(run: Run, arguments: tuple[str, ...], stdin: str | None, message: str) -> None:
    run("add", "known", "--password-file", "-", stdin="x")
    result = run(*arguments, stdin=stdin)
    assert result.exit_code == 1
    assert message in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "There is no terminal to ask for a password"),
        (("--password-file", "-", "--password-env", "X"), "not both"),
        (("--password-file", "-", "--iterations", "4095"), "4095 is not in the range 4096<=x<=16384"),
        (("--password-file", "-", "-m", "PLAIN"), "'PLAIN' is not one of"),
    ],
)
def test_a_wrong_command_line(run: Run, options: tuple[str, ...], message: str) -> None:
    result = run("add", "new", *options, stdin="x")
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())


def test_no_option_takes_a_password(run: Run) -> None:
    for command in ("add", "change-password"):
        assert "--password " not in run(command, "--help").stdout
    assert run("add", "new", "--password", "x").exit_code == 2


def test_a_password_file_that_may_not_be_read(run: Run, tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\n")
    assert "it is no text in UTF-8" in " ".join(run("add", "n", "--password-file", f"{tmp_path}/binary").stderr.split())
    assert "Is a directory" in " ".join(run("add", "n", "--password-file", os.fspath(tmp_path)).stderr.split())
