"""A service manager hears when the broker accepts clients, and the end has the exit code that it expects."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kafkapy.tools import supervisor


@pytest.mark.parametrize("kind", ["path", "abstract"])
def test_a_broker_says_that_it_is_ready(tmp_path: Path, kind: str) -> None:
    name = str(tmp_path / "notify") if kind == "path" else f"@kafkapy-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(name if kind == "path" else f"\0{name[1:]}")
        manager.settimeout(120)
        overrides = [f"--override=log.dirs={tmp_path / 'data'}", "--override=listeners=PLAINTEXT://127.0.0.1:0"]
        process = subprocess.Popen(
            [sys.executable, "-m", "kafkapy.tools.server", *overrides],
            env=os.environ | {"NOTIFY_SOCKET": name},
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert manager.recv(4096) == b"READY=1"
        finally:
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=120)
        assert process.returncode == 0, said
        assert "listening on" in said


@pytest.mark.parametrize("address", ["", "relative", "/nowhere/socket"])
def test_without_a_manager_nothing_happens(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    supervisor.notify(supervisor.READY)
