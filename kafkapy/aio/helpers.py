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
    """A context for TLS to brokers: it checks certificates and host names, against the system's authorities where none
    are given. `certfile` and `keyfile` are this client's own. OSError, ssl.SSLError for files that cannot be used.
    """
    context = create_default_context(cafile=cafile, capath=capath, cadata=cadata)
    if certfile is not None:
        context.load_cert_chain(certfile, keyfile, password)
    return context
