"""A ZooKeeper server of Debian's package, alone or in an ensemble, for the brokers of a test."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from peers.apache_kafka import PeerMissingError, free_port

JAR = Path("/usr/share/java/zookeeper.jar")
NEEDED = ("slf4j-simple", "netty-codec", "netty-resolver", "netty-transport", "netty-transport-native-unix-common")
"""Jars that the one of Debian does not name itself: for a log, and for TLS."""
CLASS_PATH = ":".join((str(JAR), *(str(JAR.with_name(f"{name}.jar")) for name in NEEDED)))
PROPERTIES = "-Dzookeeper.4lw.commands.whitelist=*"


class ZooKeeper:
    """Owns the server's process; its data stay in `directory`. PeerMissingError where ZooKeeper is not installed.

    `settings` are further lines of its configuration, `java` further arguments of Java. `number` and `ensemble` (number
    to host:port:port) make it a member of an ensemble.
    """

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        java: Sequence[str] = (),
        *,
        number: int = 0,
        ensemble: Mapping[int, str] | None = None,
    ) -> None:
        if not JAR.exists() or shutil.which("java") is None:
            raise PeerMissingError("ZooKeeper is not installed (apt-get install zookeeper)")
        self.directory = directory
        self.port = free_port()
        self._settings = dict(settings or {})
        self._java = list(java)
        self._number = number
        self._ensemble = ensemble or {}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def connect(self) -> str:
        """host:port for zookeeper.connect."""
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> ZooKeeper:
        self.start()
        self.wait()
        return self

    def start(self) -> None:
        """Start the process; it continues with the data it left behind."""
        self.directory.mkdir(parents=True, exist_ok=True)
        lines = {
            "tickTime": "1000", "dataDir": str(self.directory), "clientPortAddress": "127.0.0.1",
            "clientPort": str(self.port), "admin.enableServer": "false", "initLimit": "60", "syncLimit": "30",
            **{f"server.{number}": address for number, address in self._ensemble.items()}, **self._settings,
        }  # fmt: skip
        config = self.directory / "zoo.cfg"
        config.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        main = "org.apache.zookeeper.server.ZooKeeperServerMain"
        if self._ensemble:
            (self.directory / "myid").write_text(str(self._number))
            main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        with (self.directory / "out").open("ab") as out:
            self._process = subprocess.Popen(
                ["java", "-Xmx128m", PROPERTIES, *self._java, "-cp", CLASS_PATH, main, str(config)],
                stdout=out, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def wait(self) -> None:
        """Return when it serves."""
        deadline = time.monotonic() + 120
        while not self._serves():
            assert self._process is not None
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"ZooKeeper did not start: {(self.directory / 'out').read_text()[-1000:]}")
            time.sleep(0.05)

    def _serves(self) -> bool:
        """Whether it answers; it accepts connections before, and those it may leave without an answer for long."""
        return "Mode:" in self.command("srvr")

    def command(self, name: str) -> str:
        """The answer to a command of four letters, empty without one."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1.0) as probe:
                probe.sendall(name.encode())
                answer = b""
                while part := probe.recv(4096):
                    answer += part
        except OSError:
            return ""
        return answer.decode()

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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
