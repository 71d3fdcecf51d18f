"""The machine's own limit (native/limit.c) in the shape of a broker; it serves the load generator only."""

from __future__ import annotations

import subprocess
from pathlib import Path

import measure


def prepare() -> str:
    """Raises PeerMissingError where there is no C compiler."""
    from peers.apache_kafka import PeerMissingError

    try:
        measure.native("limit")
    except RuntimeError as error:
        raise PeerMissingError(str(error)) from None
    return "one thread, C"


class Limit:
    """Owns the process; `overrides["batch.bytes"]` is the size of batches to be fetched, `batches` their number.

    With `overrides["tls.pem"]`, a file of a key and its certificate, it serves TLS on `secure_port`, which is its only
    one.
    """

    def __init__(self, data_dir: Path, overrides: dict[str, str]) -> None:
        self.data_dir = data_dir
        self.batch_bytes = int(overrides.get("batch.bytes", 16384))
        self.pem = overrides.get("tls.pem")
        self.port = 0
        self.batches = 0
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        if self.process is None:
            raise RuntimeError("the limit is not running")
        return self.process.pid

    def start(self) -> None:
        self.data_dir.mkdir(parents=True, exist_ok=True)
        command = [str(measure.native("limit")), str(self.data_dir), str(self.batch_bytes)]
        if self.pem:
            command.append(self.pem)
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        said = self.process.stdout.readline().split()
        if len(said) != 2:
            raise RuntimeError("the limit did not start")
        self.port, self.batches = int(said[0]), int(said[1])

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def stop(self) -> int:
        self.kill()
        return 0

    remove = kill
