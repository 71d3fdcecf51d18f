"""The command line, the Arrow reader and the Spark connector's driver meet a hostile TLS server.

Each ends with an error, shows no secret, and sends none before the server has proved its name.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import click.testing
import pytest
from certificates import Certificate, localhost, make_ca, shared_ca

import kafkapy.arrow
from kafkapy.clients.admin.kafka_admin_client import KafkaAdminClient
from kafkapy.errors import KafkaError
from kafkapy.tools.cli import main

SECRET = b"hunter2-of-ann"
MOST_BYTES = 1 << 20
UNPROVEN = ("another authority", "another name", "without TLS", "silent")
"""Servers that have not proved their name: nothing but a handshake may reach them."""
PROVEN = ("garbage", "a huge frame", "zeros", "closes")
"""Servers with a certificate that fits, and no Kafka behind it."""


class HostileServer:
    """Takes connections, one after another, and keeps what they send."""

    def __init__(self, behaviour: str, directory: Path) -> None:
        self.behaviour = behaviour
        self.received = b""
        self.in_tls = b""
        """What came inside TLS."""
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(*self._certificate().write(directory, "server"))
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _certificate(self) -> Certificate:
        if self.behaviour == "another authority":
            return make_ca("evil").sign("localhost", ["127.0.0.1"])
        if self.behaviour == "another name":
            return shared_ca().sign("elsewhere", ["elsewhere.example"])
        return localhost()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                connection.settimeout(0.5)
                self._meet(connection)

    def _meet(self, raw: socket.socket) -> None:
        if self.behaviour in ("without TLS", "silent"):
            self.received += raw.recv(MOST_BYTES)
            if self.behaviour == "without TLS":
                raw.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            while chunk := raw.recv(MOST_BYTES):
                self.received += chunk
            return
        with self._context.wrap_socket(raw, server_side=True) as wrapped:
            self.in_tls += wrapped.recv(MOST_BYTES)
            if self.behaviour == "garbage":
                wrapped.sendall(b"\x00\x00\x00\x40" + bytes(range(64)))
            elif self.behaviour == "a huge frame":
                wrapped.sendall(b"\x7f\xff\xff\xff" + bytes(1000))
            elif self.behaviour == "zeros":
                for _ in range(64):
                    wrapped.sendall(bytes(MOST_BYTES // 16))

    def close(self) -> None:
        self._listening.close()
        # An accept that waits does not hear of the close.
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", int(self.address.rpartition(":")[2])), 1).close()


@pytest.fixture
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[HostileServer]:
    made = HostileServer(request.param, tmp_path)
    yield made
    made.close()


def keys(server: HostileServer, directory: Path) -> dict[str, str]:
    trusted = directory / "trusted.pem"
    trusted.write_bytes(shared_ca().pem)
    return {
        "bootstrap.servers": server.address,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.plain.username": "ann",
        "sasl.plain.password": SECRET.decode(),
        "ssl.ca.location": str(trusted),
        "bootstrap.timeout.ms": "1500",
        "socket.connection.setup.timeout.ms": "400",
    }


def by_command_line(settings: Mapping[str, str], directory: Path) -> str:
    config = directory / "client.properties"
    config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    result = click.testing.CliRunner().invoke(main, ["topics", "list", "--config", str(config)])
    assert result.exit_code == 1, (result.stdout, result.exception)
    assert len(result.stderr.splitlines()) == 1
    return result.stdout + result.stderr


def by_arrow(settings: Mapping[str, str], directory: Path) -> str:
    with pytest.raises(KafkaError) as raised:
        kafkapy.arrow.read("orders", configs=settings)
    return str(raised.value)


def by_spark(settings: Mapping[str, str], directory: Path) -> str:
    """What the driver does first, with and without delegation tokens."""
    parse = pytest.importorskip("kafkapy_spark.options").SourceOptions.parse
    reader = pytest.importorskip("kafkapy_spark.offset_reader").OffsetReader
    given = {f"kafka.{name}": value for name, value in settings.items()} | {"subscribe": "orders"}
    offsets = reader(parse({**given, "fetchOffset.numRetries": "1"}, streaming=False))
    with pytest.raises(KafkaError) as raised:
        offsets.partitions()
    offsets.close()
    with pytest.raises(KafkaError) as of_token:
        KafkaAdminClient(dict(settings))
    return f"{raised.value} {of_token.value}"


@pytest.mark.parametrize("server", [*UNPROVEN, *PROVEN], indirect=True)
@pytest.mark.parametrize("way", [by_arrow, by_command_line, by_spark], ids=lambda each: each.__name__)
def test_a_hostile_server_gets_an_error_and_no_secret(
    server: HostileServer, tmp_path: Path, way: Callable[[Mapping[str, str], Path], str]
) -> None:
    said = way(keys(server, tmp_path), tmp_path)
    assert server.address in said
    assert SECRET.decode() not in said
    assert SECRET not in server.received + server.in_tls
    if server.behaviour in UNPROVEN:
        assert server.in_tls == b""
