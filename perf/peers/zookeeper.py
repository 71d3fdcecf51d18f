"""A ZooKeeper server of Debian's package, alone or in an ensemble, for the brokers of a test."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from peers.apache_kafka import PeerMissingError, free_port
from peers.store_server import HERE, Place, StoreServer

JAR = Path("/usr/share/java/zookeeper.jar")
NEEDED = ("slf4j-simple", "netty-codec", "netty-resolver", "netty-transport", "netty-transport-native-unix-common")
"""Jars that the one of Debian does not name itself: for a log, and for TLS."""
CLASS_PATH = ":".join((str(JAR), *(str(JAR.with_name(f"{name}.jar")) for name in NEEDED)))
PROPERTIES = "-Dzookeeper.4lw.commands.whitelist=*"


class ZooKeeper(StoreServer):
    """Owns the server's process; its data stay in `directory`. PeerMissingError where ZooKeeper is not installed.

    `settings` are further lines of its configuration, `java` further arguments of Java. `number` and `ensemble` (number
    to host:port:port) make it a member of an ensemble.
    """

    title = "ZooKeeper"

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        java: Sequence[str] = (),
        *,
        number: int = 0,
        ensemble: Mapping[int, str] | None = None,
        place: Place = HERE,
    ) -> None:
        if not JAR.exists() or shutil.which("java") is None:
            raise PeerMissingError("ZooKeeper is not installed (apt-get install zookeeper)")
        super().__init__(directory, place)
        self.port = free_port()
        self._settings = dict(settings or {})
        self._java = list(java)
        self._number = number
        self._ensemble = ensemble or {}

    @property
    def connect(self) -> str:
        """host:port for zookeeper.connect."""
        return f"{self.place.address}:{self.port}"

    def start(self) -> None:
        """Start the process; it continues with the data it left behind."""
        self.directory.mkdir(parents=True, exist_ok=True)
        lines = {
            "tickTime": "1000", "dataDir": str(self.directory), "clientPortAddress": self.place.address,
            "clientPort": str(self.port), "admin.enableServer": "false", "initLimit": "60", "syncLimit": "30",
            **{f"server.{number}": address for number, address in self._ensemble.items()}, **self._settings,
        }  # fmt: skip
        config = self.directory / "zoo.cfg"
        config.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        main = "org.apache.zookeeper.server.ZooKeeperServerMain"
        if self._ensemble:
            (self.directory / "myid").write_text(str(self._number))
            main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        self._launch(["java", "-Xmx128m", PROPERTIES, *self._java, "-cp", CLASS_PATH, main, str(config)])

    def _serves(self) -> bool:
        """Whether it answers; it accepts connections before, and those it may leave without an answer for long."""
        return "Mode:" in self.command("srvr")

    def command(self, name: str) -> str:
        """The answer to a command of four letters, empty without one."""
        try:
            with socket.create_connection((self.place.address, self.port), 1.0) as probe:
                probe.sendall(name.encode())
                answer = b""
                while part := probe.recv(4096):
                    answer += part
        except OSError:
            return ""
        return answer.decode()
