"""An etcd server of Debian's package, for the brokers of a test."""

from __future__ import annotations

import os
import shutil
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

from peers.apache_kafka import PeerMissingError, free_port
from peers.store_server import HERE, Place, StoreServer

FOUND_IN = f"{os.environ.get('PATH', '')}:/usr/bin:/usr/sbin"


class Etcd(StoreServer):
    """Owns the server's process; its data stay in `directory`. PeerMissingError where etcd is not installed.

    `name` and `cluster` (name to peer URL) make it a member of a cluster. `arguments` are further flags of etcd.
    """

    title = "etcd"

    def __init__(
        self,
        directory: Path,
        arguments: Sequence[str] = (),
        *,
        name: str = "single",
        peer_port: int | None = None,
        cluster: Mapping[str, str] | None = None,
        scheme: str = "http",
        place: Place = HERE,
    ) -> None:
        program = shutil.which("etcd", path=FOUND_IN)
        if program is None:
            raise PeerMissingError("etcd is not installed (apt-get install etcd-server)")
        super().__init__(directory, place)
        self._program = program
        self.port = free_port()
        self.endpoint = f"{scheme}://{place.address}:{self.port}"
        """For kafkapy.etcd.endpoints."""
        self._name = name
        self._peer = f"http://127.0.0.1:{free_port() if peer_port is None else peer_port}"
        self._cluster = cluster or {name: self._peer}
        self._arguments = list(arguments)

    def start(self) -> None:
        """Start the process; it continues with the data it left behind."""
        self.directory.mkdir(parents=True, exist_ok=True)
        members = ",".join(f"{name}={peer}" for name, peer in self._cluster.items())
        self._launch([
            self._program, "--name", self._name, "--data-dir", str(self.directory / "data"),
            "--listen-client-urls", self.endpoint, "--advertise-client-urls", self.endpoint,
            "--listen-peer-urls", self._peer, "--initial-advertise-peer-urls", self._peer,
            "--initial-cluster", members, "--logger", "zap", "--log-level", "warn", *self._arguments,
        ])  # fmt: skip

    def _serves(self) -> bool:
        request = urllib.request.Request(f"{self.endpoint}/v3/kv/range", b'{"key":"Lw=="}', method="POST")
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                return answer.status == 200
        except urllib.error.HTTPError as error:
            return error.code in (400, 401)  # it asks for a user
        except urllib.error.URLError as error:
            return "CERTIFICATE" in str(error).upper()  # TLS that this probe does not trust
        except OSError:
            return False
