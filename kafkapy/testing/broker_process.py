"""A broker process that tests and benchmarks kill, restart and measure."""

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
    """The broker process ended, or did not listen in time.

    The message contains the end of its log.
    """


class BrokerProcess:
    """Owns one `kafkapy-server` process and its data directory.

    The system chooses the port at the first start; restarts keep it, so that clients find the broker. A data directory
    made here is kept until `remove()` (the context manager calls it).
    """

    def __init__(
        self,
        data_dir: Path | None = None,
        overrides: dict[str, str] | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        environment: dict[str, str] | None = None,
        command: list[str] | None = None,
    ) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="kafkapy-") if data_dir is None else None
        self.data_dir = Path(self._temporary.name) if self._temporary else Path(data_dir or ".")
        self.overrides = dict(overrides or {})
        self.host = host
        self.port = port
        self.log_path = self.data_dir / "broker.log"
        self.process: subprocess.Popen[bytes] | None = None
        self._environment = environment or {}
        self._command = command or [sys.executable, "-m", "kafkapy.tools.server"]

    @property
    def bootstrap(self) -> str:
        """host:port for a client's bootstrap servers."""
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        """Process id of the broker. BrokerFailedError when it is not running."""
        if self.process is None:
            raise BrokerFailedError("the broker is not running")
        return self.process.pid

    def start(self, timeout_s: float = 60.0) -> BrokerProcess:
        """Starts the process and returns once it listens.

        BrokerFailedError when the process ends first, or does not listen within `timeout_s`.
        """
        self.data_dir.mkdir(parents=True, exist_ok=True)
        config = self.data_dir / "server.properties"
        keys = {
            "broker.id": "1",
            "listeners": f"PLAINTEXT://{self.host}:{self.port}",
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
        """Sends SIGTERM and returns the exit code.

        subprocess.TimeoutExpired when the broker does not end in time.
        """
        if self.process is None:
            return 0
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout_s)
        self.process = None
        return code

    def kill(self) -> None:
        """Sends SIGKILL: the broker flushes nothing, as in a crash."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def restart(self) -> None:
        """Stops and starts the broker on the same port and data."""
        self.stop()
        self.start()

    def kill_after(self, seconds: float) -> threading.Timer:
        """Kills the broker after a delay, from another thread.

        The returned timer has started.
        """
        timer = threading.Timer(seconds, self.kill)
        timer.start()
        return timer

    def rss_bytes(self) -> int:
        """Resident memory of the process in bytes."""
        fields = Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", fields)[1]) * 1024  # type: ignore[index]

    def cpu_seconds(self) -> float:
        """User and system time of the process in seconds."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def log_tail(self, size: int = 4000) -> str:
        """The last `size` bytes of the process's output."""
        return self.log_path.read_bytes()[-size:].decode(errors="replace") if self.log_path.exists() else ""

    def remove(self) -> None:
        """Kills a running process, and removes a temporary data directory."""
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
