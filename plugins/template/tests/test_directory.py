"""The template's check of passwords, through the mechanism that uses it, at a server that speaks LDAP."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from kafkapy_template import plugin
from kafkapy_template.directory import bind_request, element, escaped

from kafkapy.config.broker import BrokerConfig
from kafkapy.errors import ConfigError
from kafkapy.plugins import BUILTIN_PLUGINS, PluginManager
from kafkapy.security.sasl.base import MechanismSettings, SaslAuthenticationError, SaslServer

KNOWN = bind_request("uid=alice,ou=people,dc=example,dc=org", "wonder")


@pytest.fixture
def directory_port() -> Iterator[int]:
    """A server that lets alice bind, refuses others, and breaks off for a password of "break"."""

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                request = connection.recv(10_000)
                if not request.endswith(b"break"):
                    code = 0 if request == KNOWN else 49
                    body = element(0x0A, bytes((code,))) + element(4, b"") + element(4, b"text" * 100)
                    connection.sendall(element(0x30, element(2, b"\1") + element(0x61, body)))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(10)


def log_in(url: str, token: bytes) -> SaslServer:
    manager = PluginManager.load(disabled=["template"], builtins=BUILTIN_PLUGINS)
    manager.register(plugin, "kafkapy-template")
    keys = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.server.callback.handler.class": "ldap_bind",
        "template.ldap.url": url,
        "template.ldap.name": "uid={},ou=people,dc=example,dc=org",
    }
    config = BrokerConfig(keys, definition=manager.broker_config_def())
    services = SimpleNamespace(
        callback_handler=lambda name: manager.create_sasl_callback_handler("sasl.server.callback.handler.class", name)
    )

    async def run() -> SaslServer:
        mechanism = manager.create_sasl_mechanism("sasl.enabled.mechanisms", "PLAIN")
        await mechanism.configure(MechanismSettings("PLAIN", "SASL_PLAINTEXT", config), services)
        try:
            server = mechanism.server()
            await server.evaluate(token)
        finally:
            await mechanism.close()
        return server

    return asyncio.run(run())


def test_the_directory_decides(directory_port: int) -> None:
    url = f"ldap://127.0.0.1:{directory_port}"
    assert log_in(url, b"\0alice\0wonder").authorization_id == "alice"
    for token in (b"\0alice\0wrong", b"\0bob\0wonder", b"\0alice,ou=people\0wonder"):
        with pytest.raises(SaslAuthenticationError, match="Invalid username or password"):
            log_in(url, token)


def test_a_server_that_breaks_off_is_told_from_a_wrong_password(directory_port: int) -> None:
    with pytest.raises(SaslAuthenticationError, match="could not be verified"):
        log_in(f"ldap://127.0.0.1:{directory_port}", b"\0alice\0break")


@pytest.mark.parametrize("url", ["http://127.0.0.1", "ldap://", "127.0.0.1:389"])
def test_a_wrong_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"template\.ldap\.url"):
        log_in(url, b"")


def test_no_user_name_adds_a_part_to_the_distinguished_name() -> None:
    assert escaped("alice,ou=x") == r"alice\2cou\3dx"
