"""Secrets in command lines: a warning in one sentence, and the other ways to give them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import click.testing
import pytest

from kafkapy.config.broker import BrokerConfig
from kafkapy.tools import broker_run, passwords
from kafkapy.tools.cli import main
from kafkapy.tools.passwords import client_keys

SECRET = "hunter2"


def warnings(capsys: pytest.CaptureFixture[str]) -> list[str]:
    captured = capsys.readouterr()
    assert SECRET not in captured.out + captured.err
    assert captured.out == ""
    return captured.err.splitlines()


@pytest.mark.parametrize(
    "key", ["sasl.plain.password", "sasl.password", "sasl_plain_password", "ssl.key.password", "sasl.jaas.config"]
)
def test_a_secret_of_a_client_is_warned_about(key: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert client_keys((f"{key}={SECRET}", "client.id=x")) == {key: SECRET, "client.id": "x"}
    (line,) = warnings(capsys)
    assert line.startswith(
        f"kafkapy: warning: all users of this machine can read {key} in the command line; use -X {key}"
    )


@pytest.mark.parametrize("text", ["client.id=password", "sasl.password=${env:P}", "sasl.password=", "ssl.cafile=/x"])
def test_other_values_are_not(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    client_keys((text,))
    assert warnings(capsys) == []


def test_several_secrets_give_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    client_keys((f"sasl.password={SECRET}", f"ssl.key.password={SECRET}"))
    (line,) = warnings(capsys)
    assert "sasl.password, ssl.key.password in the command line" in line


def test_a_secret_without_a_value_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[Any] = []

    def prompt(text: str, **options: Any) -> str:
        asked.append((text, options))
        return SECRET

    monkeypatch.setattr(passwords.sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(click, "prompt", prompt)
    assert client_keys(("sasl.password", "client.id=x")) == {"sasl.password": SECRET, "client.id": "x"}
    assert asked == [("sasl.password", {"hide_input": True, "err": True})]
    assert warnings(capsys) == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("sasl.password", "There is no terminal to ask for sasl.password"),
        ("client.id", "'client.id' is not KEY=VALUE"),
        ("=x", "'=x' is not KEY=VALUE"),
    ],
)
def test_wrong_texts_are_usage_errors(text: str, reason: str) -> None:
    result = click.testing.CliRunner().invoke(main, ["topics", "list", "-X", text])
    assert result.exit_code == 2
    assert reason in result.stderr


def config(tmp_path: Path) -> BrokerConfig:
    return BrokerConfig({"broker.id": "1", "log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"})


def test_the_server_warns_of_overrides(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    overrides = [
        f"ssl.key.password={SECRET}",
        f"listener.name.inner.plain.sasl.jaas.config = {SECRET}",
        "ssl.keystore.password=${env:KEY}",
        "broker.id=7",
    ]
    broker_run._warn_of_secrets(config(tmp_path), overrides, [])
    (line,) = warnings(capsys)
    assert line == (
        "kafkapy-server: warning: all users of this machine can read ssl.key.password, "
        "listener.name.inner.plain.sasl.jaas.config in the command line; use the properties file, or ${env:NAME} "
        "(config.providers)"
    )


@pytest.mark.parametrize(
    ("keys", "warned"),
    [
        (f"name=a,password={SECRET}", True),
        (f"name=a,salt=QUJD,saltedpassword={SECRET}", True),
        ("name=a,password-env=KEY", False),
        ("name=password,password-file=/x", False),
    ],
)
def test_the_server_warns_of_added_users(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], keys: str, warned: bool
) -> None:
    broker_run._warn_of_secrets(config(tmp_path), [], [f"SCRAM-SHA-256=[{keys}]"])
    found = warnings(capsys)
    assert len(found) == warned
    assert all(
        line.endswith("the password of --add-scram in the command line; use password-file or password-env")
        for line in found
    )
