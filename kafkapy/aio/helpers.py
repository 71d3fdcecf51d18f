"""aiokafka's `aiokafka.helpers`."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from ssl import SSLContext, create_default_context

__all__ = ["create_ssl_context"]

Path = str | bytes | PathLike[str] | PathLike[bytes]


def create_ssl_context(
    *,
    cafile: Path | None = None,
    capath: Path | None = None,
    cadata: str | bytes | None = None,
    certfile: Path | None = None,
    keyfile: Path | None = None,
    password: Callable[[], str | bytes | bytearray] | str | bytes | bytearray | None = None,
) -> SSLContext:
    """A TLS context that checks the brokers' certificates and host names.

    The default authorities are the system's. `certfile` and `keyfile` belong to this client. OSError, ssl.SSLError for
    unusable files.
    """
    context = create_default_context(cafile=cafile, capath=capath, cadata=cadata)
    if certfile is not None:
        context.load_cert_chain(certfile, keyfile, password)
    return context
