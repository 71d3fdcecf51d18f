"""The commands of docs/quotas.md, run by a shell against a broker as they stand there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker.conftest import config

from kafkapy.broker.server import KafkaServer

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "quotas.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r"^```\w+ (\S+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    with KafkaServer(config(tmp_path_factory.mktemp("quotas-page"))) as started:
        yield started


def run(server: KafkaServer, directory: Path, name: str) -> str:
    address = f"127.0.0.1:{server.endpoints[0].port}"
    command = directory / "bin" / "kafkapy"
    command.parent.mkdir(exist_ok=True)
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m kafkapy.tools.cli "$@"\n')
    command.chmod(0o755)
    path = os.pathsep.join([str(command.parent), os.environ["PATH"]])
    environment = os.environ | {
        "PATH": path, "PYTHONPATH": str(ROOT), "KAFKAPY_BOOTSTRAP_SERVER": address, "XDG_CONFIG_HOME": str(directory),
    }  # fmt: skip
    program = [sys.executable, "-c"] if name.endswith(".py") else ["bash", "-eo", "pipefail", "-c"]
    text = BLOCKS[name].replace("localhost:9092", address)
    done = subprocess.run([*program, text], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"
    return done.stdout


def test_the_page_can_be_followed(server: KafkaServer, tmp_path: Path) -> None:
    assert BLOCKS.keys() == {"set", "show", "quotas.py"}
    assert "10485760" in run(server, tmp_path, "set")
    shown = run(server, tmp_path, "show")
    assert "1048576" in shown and "connection_creation_rate" in shown
    assert "{'producer_byte_rate': 1000000.0}" in run(server, tmp_path, "quotas.py")
