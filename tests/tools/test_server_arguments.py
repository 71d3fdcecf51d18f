"""The ordinary command lines of kafkapy-server mean without click what they mean with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkapy.tools import server_command
from kafkapy.tools.server import plain_arguments


@pytest.mark.parametrize(
    "line",
    [
        "",
        "server.properties",
        "server.properties --override a=b",
        "--override a=b=c --override=d=e server.properties --override f=",
        "--logging log.properties --logging=other.properties",
    ],
)
def test_plain_lines_mean_what_click_says(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[Any] = []
    monkeypatch.setattr(server_command, "run_broker", lambda *arguments, **flags: said.append((arguments, flags)))
    server_command.command(line.split(), standalone_mode=False)
    assert said == [(plain_arguments(line.split()), {"rebuild_metadata": False, "add_scram": ()})]


def test_a_rebuild_is_for_click(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[Any] = []
    monkeypatch.setattr(server_command, "run_broker", lambda *arguments, **flags: said.append((arguments, flags)))
    line = ["--rebuild-metadata", "server.properties"]
    assert plain_arguments(line) is None
    server_command.command(line, standalone_mode=False)
    assert said == [(("server.properties", (), None), {"rebuild_metadata": True, "add_scram": ()})]


def test_users_are_for_click(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[Any] = []
    monkeypatch.setattr(server_command, "run_broker", lambda *arguments, **flags: said.append(flags["add_scram"]))
    line = ["--add-scram", "SCRAM-SHA-256=[name=a,password=b]", "--add-scram=SCRAM-SHA-512=[name=a,password=b]"]
    assert plain_arguments(line) is None
    server_command.command(line, standalone_mode=False)
    assert said == [("SCRAM-SHA-256=[name=a,password=b]", "SCRAM-SHA-512=[name=a,password=b]")]


@pytest.mark.parametrize(
    "line", ["--help", "-h", "--version", "a b", "--override", "--override --logging x", "--unknown", "--", "-"]
)
def test_all_else_is_left_to_click(line: str) -> None:
    assert plain_arguments(line.split()) is None


def test_a_directory_is_no_properties_file(tmp_path: Path) -> None:
    assert plain_arguments([str(tmp_path)]) is None
