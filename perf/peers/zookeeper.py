"""A ZooKeeper server of Debian's package, for the brokers of a test."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType

from peers.apache_kafka import PeerMissingError, free_port

JAR = Path("/usr/share/java/zookeeper.jar")


class ZooKeeper:
    """Owns the server's process; its data stay in `directory`. PeerMissingError where ZooKeeper is not installed."""

    def __init__(self, directory: Path) -> None:
        if not JAR.exists() or shutil.which("java") is None:
            raise PeerMissingError("ZooKeeper is not installed (apt-get install zookeeper)")
        self.directory = directory
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def connect(self) -> str:
        """host:port for zookeeper.connect."""
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> ZooKeeper:
        self.directory.mkdir(parents=True, exist_ok=True)
        config = self.directory / "zoo.cfg"
        config.write_text(
            f"tickTime=1000\ndataDir={self.directory}\nclientPortAddress=127.0.0.1\nclientPort={self.port}\n"
            "admin.enableServer=false\n"
        )
        main = "org.apache.zookeeper.server.ZooKeeperServerMain"
        with (self.directory / "out").open("wb") as out:
            self._process = subprocess.Popen(
                ["java", "-Xmx128m", "-cp", str(JAR), main, str(config)], stdout=out, stderr=subprocess.STDOUT
            )
        deadline = time.monotonic() + 60
        while not self._serves():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self._end()
                raise RuntimeError(f"ZooKeeper did not start: {(self.directory / 'out').read_text()[-1000:]}")
            time.sleep(0.05)
        return self

    def _serves(self) -> bool:
        """Whether it answers; it accepts connections before, and those it may leave without an answer for long."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1.0) as probe:
                probe.sendall(b"srvr")
                answer = b""
                while part := probe.recv(4096):
                    answer += part
        except OSError:
            return False
        return b"Mode:" in answer

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
