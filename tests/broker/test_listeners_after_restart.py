"""Listeners that a dynamic change added, and stores whose passwords it gave, work after a restart of the broker."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

from broker.conftest import Client, config
from broker.dynamic_changes import change
from broker.sasl_broker import log_in_plain
from waiting import WAIT_S

from kafkapy.broker.server import KafkaServer
from kafkapy.errors import ErrorCode
from kafkapy.security.ssl.certificates import create_authority

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
PRESENT = "PLAINTEXT://127.0.0.1:0"


def port(server: KafkaServer, listener: str) -> int:
    return next(each.port for each in server.endpoints if each.listener_name == listener)


def added(server: KafkaServer, keys: dict[str, str]) -> None:
    client = Client("127.0.0.1", port(server, "PLAINTEXT"))
    change(client, keys)
    client.close()


def listeners(name: str, protocol: str) -> dict[str, str]:
    both = f"{PRESENT},{name}://127.0.0.1:0"
    return {
        "listeners": both,
        "advertised.listeners": both,
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,{name}:{protocol}",
    }


def test_a_tls_listener_is_one_after_a_restart(tmp_path: Path) -> None:
    authority = create_authority()
    (tmp_path / "key.p12").write_bytes(authority.issue("broker", hosts=["localhost"]).pkcs12("opens"))
    prefix = "listener.name.tls.ssl."
    keys = {
        prefix + "keystore.type": "PKCS12",
        prefix + "keystore.location": str(tmp_path / "key.p12"),
        prefix + "keystore.password": "opens",
    }
    trusted = ssl.create_default_context(cadata=authority.chain_pem())
    for restarted in (False, True):
        with KafkaServer(config(tmp_path / "data", advertised_listeners=PRESENT)) as server:
            if not restarted:
                added(server, listeners("TLS", "SSL") | keys)
            with (
                socket.create_connection(("127.0.0.1", port(server, "TLS")), timeout=WAIT_S) as plain,
                trusted.wrap_socket(plain, server_hostname="localhost") as secured,
            ):
                assert secured.version() == "TLSv1.3"


def test_a_sasl_listener_is_one_after_a_restart(tmp_path: Path) -> None:
    keys = {
        "listener.name.login.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.login.plain.sasl.jaas.config": f'{MODULE} required user_ann="secret";',
    }
    for restarted in (False, True):
        with KafkaServer(config(tmp_path, advertised_listeners=PRESENT)) as server:
            if not restarted:
                added(server, listeners("LOGIN", "SASL_PLAINTEXT") | keys)
            for password, error in (("secret", ErrorCode.NONE), ("wrong", ErrorCode.SASL_AUTHENTICATION_FAILED)):
                client = Client("127.0.0.1", port(server, "LOGIN"))
                assert log_in_plain(client, "ann", password).error_code == error
                client.close()
