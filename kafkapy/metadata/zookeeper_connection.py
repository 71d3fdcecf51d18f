"""The connection to ZooKeeper: sockets, TLS, login, and ACLs of new nodes.

kazoo takes PEM files only, and trusts the system's authorities beside the given one. The handler here makes the sockets
itself: with a context from Kafka's keystores, in steps that a stop interrupts. Source of the ACLs: kafka.zk.ZkData.
"""

from __future__ import annotations

import os
import socket
import ssl
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kazoo.handlers.threading import SequentialThreadingHandler  # type: ignore[import-untyped]
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE  # type: ignore[import-untyped]

from kafkapy.errors import ConfigError
from kafkapy.metadata.store_tls import client_ssl_context, settings_of
from kafkapy.security.jaas import JaasError, parse_jaas

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig

__all__ = ["ZooKeeperHandler", "ZooKeeperSecurity", "acl_of", "security_of"]

STEP_S: Final = 0.1
"""Seconds until a stop interrupts a connection attempt."""
SENSITIVE: Final = ("/config/users", "/config/brokers", "/delegation_token/tokens")
"""Nodes with secrets, and all below them: others cannot read them."""
OPEN: Final = "/consumers"
"""Old consumers write below this node."""
SASL_KEY: Final = "kafkapy.zookeeper.sasl.jaas.config"
DIGEST_MODULE: Final = "org.apache.zookeeper.server.auth.DigestLoginModule"
VERSIONS: Final[Mapping[str, ssl.TLSVersion]] = {
    "TLSv1": ssl.TLSVersion.TLSv1,
    "TLSv1.1": ssl.TLSVersion.TLSv1_1,
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}


@dataclass(frozen=True, slots=True)
class ZooKeeperSecurity:
    """TLS, login and ACLs towards ZooKeeper. Immutable; `repr` hides the secrets."""

    context: ssl.SSLContext | None = None
    sasl: Mapping[str, str] | None = field(default=None, repr=False)
    """kazoo's options of SASL."""
    set_acl: bool = False


def acl_of(path: str, secure: bool) -> Sequence[Any]:
    """The ACL of a new node, the same as Kafka's."""
    if not secure or path == OPEN:
        return list(OPEN_ACL_UNSAFE)
    if any(path == each or path.startswith(f"{each}/") for each in SENSITIVE):
        return list(CREATOR_ALL_ACL)
    return [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]


def security_of(config: BrokerConfig) -> ZooKeeperSecurity:
    """The security that the keys zookeeper.* ask for.

    It blocks on the disk. ConfigError, also for a key that the connection cannot keep to.
    """
    context = _context(config) if config.get_bool("zookeeper.ssl.client.enable") else None
    sasl = _sasl(config)
    secure = config.get_bool("zookeeper.set.acl")
    shows_certificate = context is not None and config.is_set("zookeeper.ssl.keystore.location")
    if secure and sasl is None and not shows_certificate:
        raise _error(
            config, "zookeeper.set.acl",
            f"needs a broker that ZooKeeper knows: set {SASL_KEY}, or zookeeper.ssl.client.enable and "
            "zookeeper.ssl.keystore.location",
        )  # fmt: skip
    return ZooKeeperSecurity(context, sasl, secure)


def _context(config: BrokerConfig) -> ssl.SSLContext:
    for key in ("zookeeper.ssl.crl.enable", "zookeeper.ssl.ocsp.enable"):
        if config.get_bool(key):
            raise _error(config, key, "must be false: the connection to ZooKeeper does not look up revocations")
    checks = config.get_str("zookeeper.ssl.endpoint.identification.algorithm")
    if checks.lower() not in ("https", ""):
        raise _error(config, "zookeeper.ssl.endpoint.identification.algorithm", "must be HTTPS or empty")
    replaced: dict[str, Any] = {
        f"{store}_type": "PEM" for store in ("keystore", "truststore") if _is_pem(config, store)
    }
    context = client_ssl_context(settings_of(config, "zookeeper.", **replaced))
    _limit_versions(config, context)
    suites = config.get_list("zookeeper.ssl.cipher.suites") if config.is_set("zookeeper.ssl.cipher.suites") else []
    if suites:
        try:
            context.set_ciphers(":".join(_openssl_name(suite) for suite in suites))
        except ssl.SSLError:
            raise _error(
                config, "zookeeper.ssl.cipher.suites", "names no suite of TLS 1.2 that OpenSSL knows"
            ) from None
    return context


def _is_pem(config: BrokerConfig, store: str) -> bool:
    """Whether a store without a type is PEM by its name, as for ZooKeeper's own client."""
    key = f"zookeeper.ssl.{store}"
    location = config.get_optional_str(f"{key}.location")
    return not config.is_set(f"{key}.type") and location is not None and location.endswith(".pem")


def _limit_versions(config: BrokerConfig, context: ssl.SSLContext) -> None:
    protocol = config.get_str("zookeeper.ssl.protocol")
    enabled_key = "zookeeper.ssl.enabled.protocols"
    names = config.get_list(enabled_key) if config.is_set(enabled_key) else [protocol]
    key = enabled_key if config.is_set(enabled_key) else "zookeeper.ssl.protocol"
    unknown = [name for name in (*names, protocol) if name not in VERSIONS]
    if unknown or not names:
        raise _error(config, key, f"must be of {', '.join(VERSIONS)}")
    chosen = sorted(VERSIONS[name] for name in names)
    between = [version for version in VERSIONS.values() if chosen[0] <= version <= chosen[-1]]
    if len(between) != len(set(chosen)):
        raise _error(config, key, "must name versions without a gap between them")
    # Otherwise OpenSSL refuses to widen a range that its own configuration has narrowed.
    context.maximum_version = ssl.TLSVersion.MAXIMUM_SUPPORTED
    context.minimum_version = chosen[0]
    context.maximum_version = chosen[-1]


def _openssl_name(suite: str) -> str:
    """OpenSSL's name of a suite: TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 is ECDHE-RSA-AES128-GCM-SHA256."""
    exchange, separator, cipher = suite.removeprefix("TLS_").partition("_WITH_")
    if not separator:
        return suite
    cipher = cipher.replace("AES_128", "AES128").replace("AES_256", "AES256").replace("_CBC_", "_")
    if cipher.startswith("CHACHA20"):
        cipher = cipher.removesuffix("_SHA256")
    pieces = ([] if exchange == "RSA" else [exchange]) + [cipher]
    return "-".join(pieces).replace("_", "-")


def _sasl(config: BrokerConfig) -> Mapping[str, str] | None:
    configured = config.get_password(SASL_KEY)
    if configured is None:
        return None
    try:
        entries = parse_jaas(configured.value)
    except JaasError as error:
        raise _error(config, SASL_KEY, str(error)) from None
    entry = entries[0] if len(entries) == 1 else None
    if entry is None or entry.login_module != DIGEST_MODULE:
        raise _error(config, SASL_KEY, f"must be one entry of {DIGEST_MODULE}; other mechanisms are not supported")
    username, password = entry.option("username"), entry.option("password")
    if not username or not password:
        raise _error(config, SASL_KEY, "must have the options username and password")
    try:
        import puresasl.client  # type: ignore[import-untyped]  # noqa: F401
    except ImportError:
        raise _error(config, SASL_KEY, "needs the package pure-sasl (pip install 'kafkapy[zookeeper]')") from None
    return {"mechanism": "DIGEST-MD5", "username": username, "password": password}


def _error(config: BrokerConfig, key: str, reason: str) -> ConfigError:
    value = None if key == SASL_KEY else config[key]
    shown = ",".join(value) if isinstance(value, list) else value
    return ConfigError(key, shown, reason, *config.place_of(key))


class ZooKeeperHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's threads, with sockets that a stop interrupts.

    Owned by a ZooKeeperStore. kazoo's connection thread makes the sockets; `abort` may be called by any thread.
    """

    def __init__(self, context: ssl.SSLContext | None) -> None:
        super().__init__()
        self._context = context
        self._socket: socket.socket | None = None
        self._aborted = False
        self.problem = "no answer"
        """Why the last connection attempt failed."""

    def abort(self) -> None:
        """Break the connection, and refuse to make another one."""
        self._aborted = True
        sock = self._socket
        if sock is not None:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                return  # it was not connected

    def create_connection(
        self, address: tuple[str, int], hostname: str = "", timeout: float = 10.0, **ignored: object
    ) -> socket.socket:
        """Connect, and begin TLS where it is configured. OSError, or kazoo's timeout."""
        del ignored
        try:
            return self._connect(address, hostname, time.monotonic() + timeout)
        except (OSError, self.timeout_exception) as error:
            if not self._aborted:
                self.problem = f"{address[0]}:{address[1]}: {_reason(error)}"
            raise

    def _connect(self, address: tuple[str, int], hostname: str, end: float) -> socket.socket:
        family, kind, protocol, _, target = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0]
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            self._socket = sock
            sock.connect_ex(target)
            while not super().select([], [sock], [], STEP_S)[1]:
                self._check(end)
            error = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error:
                raise OSError(error, os.strerror(error))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._context is not None:
                sock = self._socket = self._context.wrap_socket(
                    sock, server_hostname=hostname, do_handshake_on_connect=False
                )
                self._handshake(sock, end)
            if self._aborted:
                raise ConnectionAbortedError("the broker stops")
        except BaseException:
            sock.close()
            raise
        return sock

    def _handshake(self, sock: ssl.SSLSocket, end: float) -> None:
        while True:
            self._check(end)
            try:
                sock.do_handshake()
                return
            except ssl.SSLWantReadError:
                super().select([sock], [], [], STEP_S)
            except ssl.SSLWantWriteError:
                super().select([], [sock], [], STEP_S)

    def _check(self, end: float) -> None:
        if self._aborted:
            raise ConnectionAbortedError("the broker stops")
        if time.monotonic() >= end:
            raise self.timeout_exception("no connection in time")

    def select(self, rlist: Any, wlist: Any, xlist: Any, timeout: float | None = None) -> Any:
        """Wait for sockets.

        A response that TLS has read already makes no socket readable, so kazoo would see it with the next one only.
        """
        ready = [each for each in rlist if isinstance(each, ssl.SSLSocket) and each.pending()]
        if not ready:
            return super().select(rlist, wlist, xlist, timeout)
        more, writable, failed = super().select(rlist, wlist, xlist, 0)
        return [*ready, *(each for each in more if each not in ready)], writable, failed


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return f"TLS fails: {getattr(error, 'verify_message', '') or error.reason or error}"
    return getattr(error, "strerror", None) or str(error)
