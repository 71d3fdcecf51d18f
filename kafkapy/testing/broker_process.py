"""A kafkapy broker in a process of its own, for tests and benchmarks that kill, restart and measure it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType

from kafkapy.config.single_node import SINGLE_NODE

_LISTENING = re.compile(rb"listening on ([A-Z0-9_.-]+)://(\S+):(\d+)")


class BrokerFailedError(RuntimeError):
    """The broker's process ended, or said nothing, before it was ready; the message carries the end of its log."""


class BrokerProcess:
    """Owns one `kafkapy-server` process and its data directory.

    The port is chosen by the system at the first start and kept over restarts, so that clients find the broker again.
    The data directory is kept until `remove()` (called by the context manager) when it was made here.
    """

    def __init__(
        self,
        data_dir: Path | None = None,
        overrides: dict[str, str] | None = None,
        *,
        port: int = 0,
        environment: dict[str, str] | None = None,
        command: list[str] | None = None,
    ) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="kafkapy-") if data_dir is None else None
        self.data_dir = Path(self._temporary.name) if self._temporary else Path(data_dir or ".")
        self.overrides = dict(overrides or {})
        self.port = port
        self.log_path = self.data_dir / "broker.log"
        self.process: subprocess.Popen[bytes] | None = None
        self._environment = environment or {}
        self._command = command or [sys.executable, "-m", "kafkapy.tools.server"]

    @property
    def bootstrap(self) -> str:
        """host:port for a client's bootstrap servers."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Of the running process; raises BrokerFailedError when there is none."""
        if self.process is None:
            raise BrokerFailedError("the broker is not running")
        return self.process.pid

    def start(self, timeout_s: float = 60.0) -> BrokerProcess:
        """Starts the process and returns once it says that it listens."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        config = self.data_dir / "server.properties"
        keys = {
            "broker.id": "1",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "log.dirs": str(self.data_dir / "logs"),
            **SINGLE_NODE,
        } | self.overrides
        config.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
        log_start = self.log_path.stat().st_size if self.log_path.exists() else 0
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [*self._command, str(config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | self._environment,
            )
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            with self.log_path.open("rb") as log:
                log.seek(log_start)
                said = _LISTENING.search(log.read())
            if said:
                self.port = int(said[3])
                return self
            if self.process.poll() is not None:
                raise BrokerFailedError(f"the broker ended with exit code {self.process.returncode}: {self.log_tail()}")
            time.sleep(0.01)
        self.kill()
        raise BrokerFailedError(f"the broker was not listening after {timeout_s} s: {self.log_tail()}")

    def stop(self, timeout_s: float = 60.0) -> int:
        """SIGTERM, then the exit code; raises subprocess.TimeoutExpired when the broker does not end in time."""
        if self.process is None:
            return 0
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout_s)
        self.process = None
        return code

    def kill(self) -> None:
        """SIGKILL: nothing is flushed, as in a crash."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def restart(self) -> None:
        """A clean stop and a start on the same port and data."""
        self.stop()
        self.start()

    def kill_after(self, seconds: float) -> threading.Timer:
        """Kills the broker after a while, from another thread; the timer is already started."""
        timer = threading.Timer(seconds, self.kill)
        timer.start()
        return timer

    def rss_bytes(self) -> int:
        """Resident memory of the process."""
        fields = Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", fields)[1]) * 1024  # type: ignore[index]

    def cpu_seconds(self) -> float:
        """User and system time used so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def log_tail(self, size: int = 4000) -> str:
        """The end of everything the process printed."""
        return self.log_path.read_bytes()[-size:].decode(errors="replace") if self.log_path.exists() else ""

    def remove(self) -> None:
        """Kills what still runs and removes a data directory that was made here."""
        self.kill()
        if self._temporary:
            self._temporary.cleanup()

    def __enter__(self) -> BrokerProcess:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process is not None and error is None:
            self.stop()
        self.remove()
