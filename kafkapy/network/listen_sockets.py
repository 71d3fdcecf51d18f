"""Listen sockets: bind addresses of listeners and their errors. Source: kafka.network.Acceptor."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from typing import Any

from kafkapy.types import Endpoint

__all__ = ["open_listen_socket"]


def open_listen_socket(endpoint: Endpoint, receive_buffer_bytes: int, backlog: int) -> socket.socket:
    """Bind and listen. OSError names the listener and the reason."""
    where = f"{endpoint.host or '*'}:{endpoint.port}"
    try:
        family, address = _bind_address(endpoint)
        listen_socket = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        message = f"Listener {endpoint.listener_name} cannot be opened on {where}: {error.strerror or error}"
        raise OSError(error.errno, message) from None
    try:
        listen_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # As Java does: one socket for both families where every interface is meant.
            listen_socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if not endpoint.host else 1)
        # Accepted sockets inherit these, also those that were made before somebody accepts them. The window scale is
        # agreed on when a connection is made.
        listen_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listen_socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if receive_buffer_bytes > 0:
            listen_socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        listen_socket.bind(address)
        listen_socket.listen(backlog)
        listen_socket.setblocking(False)
    except OSError as error:
        listen_socket.close()
        why = (
            "the port is taken by another process"
            if error.errno == errno.EADDRINUSE
            else os.strerror(error.errno or errno.EIO)
        )
        raise OSError(error.errno, f"Listener {endpoint.listener_name} cannot be bound to {where}: {why}") from None
    return listen_socket


def _bind_address(endpoint: Endpoint) -> tuple[int, Any]:
    """(address family, address to bind). An empty host is every interface, of both families where the machine has
    IPv6."""
    if not endpoint.host:
        if socket.has_ipv6:
            with contextlib.suppress(OSError), socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
                probe.bind(("::", 0))
                return socket.AF_INET6, ("::", endpoint.port)
        return socket.AF_INET, ("0.0.0.0", endpoint.port)
    found = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    # A name that stands for both families (localhost) is bound to its IPv4 address, which is what Java prefers too.
    found.sort(key=lambda info: info[0] != socket.AF_INET)
    return found[0][0], found[0][4]
