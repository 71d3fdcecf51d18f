"""PLAIN: Kafka's checks and texts, the JAAS users, and callback handlers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from security.sasl.services import Services, plain_jaas, settings

from kafkapy.errors import ConfigError, PluginError
from kafkapy.plugins import PluginManager, hookimpl
from kafkapy.security.sasl.base import MechanismSettings, SaslAuthenticationError
from kafkapy.security.sasl.plain import PlainMechanism, PlainServer

JAAS = plain_jaas(alice="wonder", bob="pass=word,")


async def configured(jaas: str = JAAS, keys: Mapping[str, str] | None = None, plugins: Any = None) -> PlainMechanism:
    mechanism = PlainMechanism()
    await mechanism.configure(settings("PLAIN", jaas, keys), Services(plugins))
    return mechanism


async def login(token: bytes, **arguments: Any) -> PlainServer:
    mechanism = await configured(**arguments)
    server = mechanism.server()
    try:
        assert await server.evaluate(token) == b""
    finally:
        await mechanism.close()
    return server


@pytest.mark.parametrize(
    ("token", "user"),
    [(b"\0alice\0wonder", "alice"), (b"alice\0alice\0wonder", "alice"), (b"\0bob\0pass=word,", "bob")],
)
def test_a_user_of_the_jaas_entry_logs_in(token: bytes, user: str) -> None:
    server = asyncio.run(login(token))
    assert (server.complete, server.authorization_id, server.session_expires_ms) == (True, user, None)


@pytest.mark.parametrize(
    ("token", "text"),
    [
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"alice\0wonder", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0alice\0wonder\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0" * 1000, "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0\0wonder", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0carol\0wonder", "Authentication failed: Invalid username or password"),
        (b"carol\0carol\0wonder", "Authentication failed: Invalid username or password"),
        (b"\0alice\0\xff\xfe", "Authentication failed: Invalid username or password"),
        (
            b"bob\0alice\0wonder",
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
    ],
)
def test_any_other_token_is_refused_with_kafkas_text(token: bytes, text: str) -> None:
    with pytest.raises(SaslAuthenticationError) as caught:
        asyncio.run(login(token))
    assert str(caught.value) == text


def test_an_unknown_user_does_the_same_work_as_a_wrong_password(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal time is equal work: one digest of the password, one comparison of two digests."""
    import kafkapy.security.sasl.plain as module

    compared: list[tuple[int, int]] = []
    real = module.hmac.compare_digest

    def compare(left: bytes, right: bytes) -> bool:
        compared.append((len(left), len(right)))
        return real(left, right)

    monkeypatch.setattr(module.hmac, "compare_digest", compare)
    for token in (b"\0alice\0x", b"\0nobody\0x", b"\0alice\0" + b"x" * 10_000):
        with pytest.raises(SaslAuthenticationError, match="Invalid username or password"):
            asyncio.run(login(token))
    assert compared == [(32, 32)] * 3


@pytest.mark.parametrize(
    ("jaas", "reason"),
    [
        ("", "must have an entry of org.apache.kafka.common.security.plain.PlainLoginModule"),
        ("com.example.Other required user_alice=SECRET;", "not of com.example.Other"),
    ],
)
def test_a_listener_without_users_does_not_start(jaas: str, reason: str) -> None:
    key = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
    with pytest.raises(ConfigError, match=f"{key}.*{reason}") as caught:
        asyncio.run(configured(jaas))
    assert "SECRET" not in str(caught.value)


def test_a_user_of_another_login_module_does_not_count() -> None:
    jaas = plain_jaas(alice="wonder") + "com.example.Other required user_bob=x;"
    with pytest.raises(SaslAuthenticationError):
        asyncio.run(login(b"\0bob\0x", jaas=jaas))


# --- callback handlers ------------------------------------------------------------------------------------------------


class Directory:
    """Stands for a directory server; answers on a worker thread."""

    def __init__(self) -> None:
        self.settings: MechanismSettings | None = None
        self.threads: list[threading.Thread] = []
        self.closed = False
        self.answer: Any = None

    def configure(self, settings: MechanismSettings) -> None:
        self.settings = settings

    def authenticate(self, username: str, password: str) -> bool:
        self.threads.append(threading.current_thread())
        if username == "broken":
            raise OSError(f"directory refused {password}")
        return password == f"{username}-password"

    def close(self) -> None:
        self.closed = True


class AsyncDirectory(Directory):
    async def authenticate(self, username: str, password: str) -> bool:  # type: ignore[override]
        self.threads.append(threading.current_thread())
        return password == "right"


class NoDirectory:
    def configure(self, settings: MechanismSettings) -> None:
        del settings

    def close(self) -> None:
        pass


def manager(*handlers: Any) -> PluginManager:
    class Plugin:
        @hookimpl
        def register_sasl_callback_handlers(self) -> Mapping[str, Callable[[], Any]]:
            return {type(each).__name__: lambda each=each: each for each in handlers}

    loaded = PluginManager.load()
    loaded.register(Plugin(), "directory")
    return loaded


def with_handler(name: str) -> dict[str, str]:
    return {"listener.name.sasl_plaintext.plain.sasl.server.callback.handler.class": name}


def test_a_callback_handler_checks_in_place_of_the_jaas_entry() -> None:
    directory = Directory()
    arguments: dict[str, Any] = {"keys": with_handler("Directory"), "plugins": manager(directory), "jaas": ""}
    server = asyncio.run(login(b"\0dora\0dora-password", **arguments))
    assert server.authorization_id == "dora"
    assert directory.closed
    assert directory.settings is not None
    assert (directory.settings.mechanism, directory.settings.listener_name) == ("PLAIN", "SASL_PLAINTEXT")
    assert directory.threads[0] is not threading.main_thread()
    with pytest.raises(SaslAuthenticationError, match="Invalid username or password"):
        asyncio.run(login(b"\0dora\0wrong", **arguments))


def test_a_coroutine_function_runs_on_the_loop() -> None:
    directory = AsyncDirectory()
    arguments: dict[str, Any] = {"keys": with_handler("AsyncDirectory"), "plugins": manager(directory)}
    asyncio.run(login(b"\0dora\0right", **arguments))
    assert directory.threads == [threading.main_thread()]
    with pytest.raises(SaslAuthenticationError, match="Invalid username or password"):
        asyncio.run(login(b"\0dora\0wrong", **arguments))


def test_an_error_of_the_handler_shows_no_password(caplog: pytest.LogCaptureFixture) -> None:
    arguments: dict[str, Any] = {"keys": with_handler("Directory"), "plugins": manager(Directory())}
    with pytest.raises(SaslAuthenticationError) as caught:
        asyncio.run(login(b"\0broken\0s3cret", **arguments))
    assert str(caught.value) == "Authentication failed: credentials for user could not be verified"
    assert "'broken' could not be checked: OSError" in caplog.text
    assert "s3cret" not in caplog.text


def test_an_unknown_handler_and_one_without_the_method_are_refused() -> None:
    with pytest.raises(ConfigError, match="sasl.server.callback.handler.class.*must be one of Directory"):
        asyncio.run(configured(keys=with_handler("Directories"), plugins=manager(Directory())))
    with pytest.raises(PluginError, match="'NoDirectory' cannot be used for PLAIN: it has no method authenticate"):
        asyncio.run(configured(keys=with_handler("NoDirectory"), plugins=manager(NoDirectory())))


def test_kafkas_own_handler_is_the_jaas_entry() -> None:
    name = "org.apache.kafka.common.security.plain.internals.PlainServerCallbackHandler"
    asyncio.run(login(b"\0alice\0wonder", keys=with_handler(name)))
