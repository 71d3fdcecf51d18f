"""What the servers of metadata stores have in common: one process, which waits, stands still and ends."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, TypeVar

Server = TypeVar("Server", bound="StoreServer")


class Place(NamedTuple):
    """Where a process runs: the address that it listens on, and the command that its own one follows."""

    address: str = "127.0.0.1"
    command: tuple[str, ...] = ()


HERE = Place()


class StoreServer:
    """Owns the server's process; its data stay in `directory`. Subclasses start it and ask whether it serves."""

    title = "the server"

    def __init__(self, directory: Path, place: Place = HERE) -> None:
        self.directory = directory
        self.place = place
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process; it continues with the data it left behind."""
        raise NotImplementedError

    def _serves(self) -> bool:
        raise NotImplementedError

    def _launch(self, command: list[str]) -> None:
        with (self.directory / "out").open("ab") as out:
            self._process = subprocess.Popen([*self.place.command, *command], stdout=out, stderr=subprocess.STDOUT)

    def wait(self) -> None:
        """Return when it serves."""
        deadline = time.monotonic() + 120
        while not self._serves():
            assert self._process is not None
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"{self.title} did not start: {(self.directory / 'out').read_text()[-1000:]}")
            time.sleep(0.05)

    def pause(self) -> None:
        """SIGSTOP: it keeps its connections and answers nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it run on after `pause`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL; the data stay."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def __enter__(self: Server) -> Server:
        self.start()
        self.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
