"""Tells the service manager that started this process about its state.

The protocol is sd_notify's: a datagram to the socket that NOTIFY_SOCKET names. systemd (Type=notify), s6 and others
wait for it.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress

__all__ = ["READY", "notify"]

READY = "READY=1"
"""The broker accepts clients."""
VARIABLE = "NOTIFY_SOCKET"
PATIENCE_S = 1.0


def notify(state: str) -> None:
    """Send a state, if a service manager asked for states.

    A manager that does not listen any more, or does not read for PATIENCE_S, is no reason to fail.
    """
    address = os.environ.get(VARIABLE, "")
    if address[:1] not in ("/", "@"):
        return
    # A name that begins with @ is in the abstract namespace.
    place = f"\0{address[1:]}" if address.startswith("@") else address
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
        sender.settimeout(PATIENCE_S)  # TimeoutError is an OSError
        sender.connect(place)
        sender.sendall(state.encode())
