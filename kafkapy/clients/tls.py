"""The TLS of a client.

The I/O thread runs TLS without the GIL by a `TlsContext`. Keys and certificates cannot be taken out of an
ssl.SSLContext, so its connections run through Python's ssl on the client's loop (`PythonTls`).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from typing import Any, Final

from kafkapy._speedups.base.tls import TlsContext
from kafkapy.config.clients import ClientConfig
from kafkapy.errors import ConfigError, SslAuthenticationError
from kafkapy.security.ssl.context import client_context
from kafkapy.security.ssl.settings import SslSettings

__all__ = ["PythonTls", "client_tls"]

IN_PEM: Final = {
    "keystore_type": ("ssl.keystore.key", "ssl.keystore.certificate.chain"),
    "truststore_type": ("ssl.truststore.certificates",),
}
PIECE: Final = 64 * 1024
"""Bytes of one copy between a TLS connection and its plain end."""


def client_tls(config: ClientConfig) -> TlsContext | PythonTls:
    """The TLS of a client whose security.protocol has it.

    Reads files. ConfigError with file and reason.
    """
    context = config["ssl.context"]
    if context is None:
        # Certificates and keys in the configuration itself are always PEM.
        kinds: dict[str, Any] = {
            kind: "PEM" for kind, keys in IN_PEM.items() if any(key in config.given for key in keys)
        }
        return client_context(SslSettings.from_config(config.get, **kinds))
    if not isinstance(context, ssl.SSLContext):
        raise ConfigError("ssl.context", type(context).__name__, "must be an ssl.SSLContext")
    beside = sorted(name for name in config.given if name.startswith("ssl.") and name != "ssl.context")
    if beside:
        raise ConfigError(beside[0], None, "has no effect beside ssl.context; set it in that context")
    return PythonTls(context)


class PythonTls:
    """Connections over an ssl.SSLContext. Only the client's loop uses it.

    Each connection is a pair of tasks that copy between Python's TLS and a local socket, whose other end the I/O thread
    reads and writes.
    """

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self._copies: set[asyncio.Task[None]] = set()

    async def secured(self, made: socket.socket, host: str) -> socket.socket:
        """A socket for plain bytes after the TLS handshake on a connected socket.

        The socket `made` belongs to this object from here. SslAuthenticationError; OSError when the connection is lost.
        """
        try:
            theirs = await asyncio.open_connection(sock=made, ssl=self._context, server_hostname=host)
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionError):
            raise ConnectionResetError("the connection was closed during the TLS handshake") from None
        except ssl.CertificateError as error:
            raise SslAuthenticationError(f"the peer's certificate is refused: {error.verify_message}") from None
        except ssl.SSLError as error:
            raise SslAuthenticationError(f"the TLS handshake failed: {error.reason or error}") from None
        except BaseException:
            made.close()
            raise
        plain, ours = socket.socketpair()
        for end in (plain, ours):
            end.setblocking(False)
        try:
            own = await asyncio.open_unix_connection(sock=ours)
        except BaseException:
            plain.close()
            ours.close()
            theirs[1].close()
            raise
        writers = (theirs[1], own[1])
        for reader, writer in ((theirs[0], own[1]), (own[0], theirs[1])):
            copy = asyncio.ensure_future(_copy(reader, writer, writers))
            self._copies.add(copy)
            copy.add_done_callback(self._copies.discard)
        return plain

    async def close(self) -> None:
        """Ends all copies, and so the connections."""
        copies = list(self._copies)
        for copy in copies:
            copy.cancel()
        await asyncio.gather(*copies, return_exceptions=True)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, both: tuple[Any, ...]) -> None:
    """Copies until one side ends, and then closes both."""
    try:
        with contextlib.suppress(OSError):  # ssl.SSLError too: the other end learns of the close
            while piece := await reader.read(PIECE):
                writer.write(piece)
                await writer.drain()
    finally:
        for each in both:
            each.close()
