"""Servers of the console: one for the command, one on a thread inside a broker."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import uvicorn

from kafkapy.errors import ConfigError
from kafkapy_console.app import create_app
from kafkapy_console.settings import Settings

__all__ = ["ConsoleThread", "broker_settings", "is_loopback", "listen", "serve"]

STOP_S = 3
"""Seconds that running requests have at the end."""

logger = logging.getLogger("kafkapy.console")


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def split_address(text: str) -> tuple[str, int]:
    """(host, port) of host:port. ConfigError."""
    host, colon, port = text.strip().rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise ConfigError("console.listeners", text, "host:port")
    return host.strip("[]") or "0.0.0.0", int(port)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens. OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen(1024)
    except OSError:
        bound.close()
        raise
    bound.set_inheritable(True)
    return bound


def check_exposure(settings: Settings, hosts: Sequence[str], allowed: bool) -> None:
    """ConfigError for a console without logins that other machines reach."""
    open_to_all = [host for host in hosts if not is_loopback(host)]
    if settings.login == "none" and open_to_all and not allowed:
        raise ConfigError(
            "login.mode",
            "none",
            f"a console without logins on {', '.join(open_to_all)} gives everybody who reaches it all rights: set a "
            "login in the settings file, or allow it with --no-login",
        )


def _config(settings: Settings, certificate: str | None = None, key: str | None = None, **extra: Any) -> uvicorn.Config:
    return uvicorn.Config(
        create_app(settings),
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=STOP_S,
        ssl_certfile=certificate,
        ssl_keyfile=key,
        h11_max_incomplete_event_size=64 << 10,
        **extra,
    )


def serve(
    settings: Settings, sockets: list[socket.socket], certificate: str | None = None, key: str | None = None
) -> None:
    """Serves until SIGINT or SIGTERM."""
    uvicorn.Server(_config(settings, certificate, key)).run(sockets)


class ConsoleThread:
    """A console on a thread with its own event loop."""

    def __init__(self, settings: Settings, listeners: Sequence[str]) -> None:
        addresses = [split_address(each) for each in listeners]
        check_exposure(settings, [host for host, _ in addresses], allowed=False)
        self._sockets = [listen(host, port) for host, port in addresses]
        self._server = uvicorn.Server(_config(settings))
        self._thread = threading.Thread(target=self._run, name="kafkapy-console", daemon=True)

    @property
    def ports(self) -> list[int]:
        """The ports of the listeners."""
        return [int(each.getsockname()[1]) for each in self._sockets]

    def start(self) -> None:
        """Starts the thread; the sockets accept already."""
        self._thread.start()
        logger.info("Console serves on port %s", ", ".join(map(str, self.ports)))

    def _run(self) -> None:
        try:
            asyncio.run(self._server.serve(self._sockets))
        except Exception:
            logger.exception("Console ended")
        finally:
            for each in self._sockets:
                each.close()

    def stop(self) -> None:
        """Ends the server and its thread."""
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(STOP_S + 5)


def broker_settings(broker: Any) -> Settings:
    """The settings of a console inside a broker: its file, and the broker's own address. ConfigError."""
    config = broker.config
    file = str(config["console.config.file"] or "")
    changes = {"read_only": True} if config["console.read.only"] else {}
    if file:
        own = {} if _names_brokers(file) else {"bootstrap.servers": _own_address(broker)}
        return Settings.from_file(file, own).with_changes(**changes)
    return Settings(kafka={"bootstrap.servers": _own_address(broker)}).with_changes(**changes)


def _names_brokers(file: str) -> bool:
    import tomllib

    try:
        with Path(file).open("rb") as opened:
            found = tomllib.load(opened)
            return "cluster" in found or "bootstrap.servers" in found.get("kafka", {})
    except (OSError, tomllib.TOMLDecodeError):
        return False


def _own_address(broker: Any) -> str:
    """The address of a listener without security, for clients on this machine. ConfigError without one."""
    for endpoint in broker.endpoints:
        if endpoint.security_protocol.name == "PLAINTEXT":
            host = endpoint.host or "127.0.0.1"
            return f"{'127.0.0.1' if host in ('0.0.0.0', '::') else host}:{endpoint.port}"
    reason = "the broker has no PLAINTEXT listener: the table [kafka] of a file says how to log in"
    raise ConfigError("console.config.file", "", reason)
