"""A check of passwords for SASL/PLAIN: a simple bind at an LDAP server (RFC 4511).

It is enough for a server that knows the users below one name; a product would search for the user first, reuse
connections, and take a library.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from kafkapy.errors import ConfigError

if TYPE_CHECKING:
    from kafkapy.security.sasl.base import MechanismSettings

URL_KEY = "template.ldap.url"
NAME_KEY = "template.ldap.name"
TIMEOUT_S = 5.0
PORTS = {"ldap": 389, "ldaps": 636}
INTEGER, OCTETS, ENUMERATED, SEQUENCE, BIND, BOUND, PASSWORD = 0x02, 0x04, 0x0A, 0x30, 0x60, 0x61, 0x80
SUCCESS = 0


class LdapBind:
    """Accepts a password with which the server lets the user bind.

    kafkapy calls `authenticate` on worker threads, because it is no coroutine function and may wait for the server.
    """

    def configure(self, settings: MechanismSettings) -> None:
        """Read the keys; a key of the listener and mechanism wins."""
        url = urlsplit(settings.get(URL_KEY))
        if url.scheme not in PORTS or not url.hostname:
            raise ConfigError(URL_KEY, settings.get(URL_KEY), "must be ldap://host[:port] or ldaps://host[:port]")
        self._address = url.hostname, url.port or PORTS[url.scheme]
        self._tls = ssl.create_default_context() if url.scheme == "ldaps" else None
        self._name: str = settings.get(NAME_KEY)

    def authenticate(self, username: str, password: str) -> bool:
        """Whether the server accepts the password. An error means that it could not be asked."""
        name = self._name.replace("{}", escaped(username))
        with socket.create_connection(self._address, timeout=TIMEOUT_S) as plain:
            connection = plain if self._tls is None else self._tls.wrap_socket(plain, server_hostname=self._address[0])
            connection.sendall(bind_request(name, password))
            return result_code(connection) == SUCCESS

    def close(self) -> None:
        """Releases nothing: every check has its own connection."""


def escaped(value: str) -> str:
    """A value for a distinguished name (RFC 4514): no user name may add a part to it."""
    return "".join(char if char.isalnum() else "".join(f"\\{byte:02x}" for byte in char.encode()) for char in value)


def bind_request(name: str, password: str) -> bytes:
    """BindRequest of LDAP version 3, with a password."""
    body = element(INTEGER, b"\3") + element(OCTETS, name.encode()) + element(PASSWORD, password.encode())
    return element(SEQUENCE, element(INTEGER, b"\1") + element(BIND, body))


def result_code(connection: socket.socket) -> int:
    """The result code of a BindResponse. ConnectionError for anything else."""
    with connection.makefile("rb") as stream:
        kind, message = read_element(stream.read)
        rest = memoryview(message)

        def take(size: int) -> bytes:
            nonlocal rest
            taken, rest = bytes(rest[:size]), rest[size:]
            return taken

        read_element(take)
        inner, rest_of_response = read_element(take)
        if kind != SEQUENCE or inner != BOUND or rest_of_response[:2] != bytes((ENUMERATED, 1)):
            raise ConnectionError("the server's answer is no BindResponse")
        return rest_of_response[2]


def element(kind: int, content: bytes) -> bytes:
    """A BER element."""
    size = len(content)
    if size < 0x80:
        return bytes((kind, size)) + content
    encoded = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((kind, 0x80 | len(encoded))) + encoded + content


def read_element(read: Callable[[int], bytes]) -> tuple[int, bytes]:
    """Kind and content of the next BER element. ConnectionError when it is cut off or longer than 64 KiB."""
    kind, size = exactly(read, 2)
    if size & 0x80:
        size = int.from_bytes(exactly(read, size & 0x7F), "big")
    if size > 1 << 16:
        raise ConnectionError("the server's answer is too long")
    return kind, exactly(read, size)


def exactly(read: Callable[[int], bytes], size: int) -> bytes:
    """That many bytes."""
    data = read(size)
    if len(data) < size:
        raise ConnectionError("the server has closed the connection")
    return data
