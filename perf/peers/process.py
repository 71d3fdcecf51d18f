"""A peer that is one program: started on a port of its own, ready when it answers ApiVersions."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

from peers.apache_kafka import answers_api_versions, free_port


class ProgramPeer:
    """Owns the process. Subclasses give the command line; same shape as kafkapy's BrokerProcess."""

    def __init__(self, data_dir: Path, overrides: dict[str, str] | None = None) -> None:
        self.data_dir = data_dir
        self.overrides = dict(overrides or {})
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self.log_path = data_dir / "broker.log"

    def command(self) -> list[str]:
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        return {}

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        if self.process is None:
            raise RuntimeError("the broker is not running")
        return self.process.pid

    def start(self, timeout_s: float = 60.0) -> None:
        """Raises RuntimeError with the end of the program's log."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.data_dir,
                env=os.environ | self.environment(),
            )
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline and self.process.poll() is None:
            if answers_api_versions(self.port):
                return
            time.sleep(0.02)
        self.kill()
        raise RuntimeError(f"did not start: {self.log_path.read_bytes()[-1000:].decode(errors='replace')}")

    def stop(self, timeout_s: float = 30.0) -> int:
        if self.process is None:
            return 0
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            return -9
        self.process = None
        return code

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def remove(self) -> None:
        self.kill()
