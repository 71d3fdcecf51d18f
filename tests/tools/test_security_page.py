"""The commands and files of docs/security.md, run as they stand there, except for the port and the directory."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click.testing
import pytest

from kafkapy.broker.server import KafkaServer
from kafkapy.config.broker import BrokerConfig
from kafkapy.config.properties import load_properties
from kafkapy.security.add_scram import parse_add_scram
from kafkapy.tools.cli import main

PAGE = (Path(__file__).parents[2] / "docs" / "security.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(?P<language>\w+)(?: (?P<name>\S+))?\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = {match["name"]: match["text"] for match in BLOCK.finditer(PAGE) if match["name"]}
ADDED = re.search(r"--add-scram '([^']+)'", PAGE)


def test_an_open_broker_becomes_one_with_users_and_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("admin.password").write_text("a long password\n")
    Path("alice.password").write_text("wonder\n")
    for name in ("server.properties", "admin.properties"):
        Path(name).write_text(BLOCKS[name])
    properties = load_properties("server.properties")
    keys = {
        **properties,
        "listeners": properties["listeners"].replace("9093", "0"),
        "log.dirs": str(tmp_path / "data"),
        "delegation.token.secret.key": "secret of the tokens",
    }
    assert ADDED is not None
    with KafkaServer(BrokerConfig(keys), added_users=[parse_add_scram(ADDED[1])]) as server:
        commands = [*BLOCKS["commands"].splitlines(), *BLOCKS["tokens"].splitlines()]
        outputs = []
        for command in commands:
            program, *arguments = shlex.split(command.replace("9093", str(server.endpoints[0].port)))
            assert program == "kafkapy"
            result = click.testing.CliRunner().invoke(main, arguments)
            assert result.exit_code == 0, f"{command}: {result.output}"
            outputs.append(result.stdout)
    assert "alice\tSCRAM-SHA-256\t4096" in outputs[1]
    token = outputs[5].splitlines()[1].split("\t")[0]
    assert token in outputs[6]
