"""The IP addresses of a host in a limit, as accepted connections show them."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from typing import Final

__all__ = ["addresses_of", "is_address"]

logger = logging.getLogger("kafka.network.ConnectionQuotas")

RESOLVE_S: Final = 5.0
"""Seconds for the resolution of a host name."""


def is_address(name: str) -> str | None:
    """The usual text of an IP address; None for a host name."""
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(address if mapped is None else mapped)


async def addresses_of(name: str) -> list[str]:
    """The addresses of a host, sorted; none when it cannot be resolved."""
    address = is_address(name)
    if address is not None:
        return [address]
    loop = asyncio.get_running_loop()
    try:
        found = await asyncio.wait_for(loop.getaddrinfo(name, None, type=socket.SOCK_STREAM), RESOLVE_S)
    except (OSError, TimeoutError, UnicodeError):
        logger.warning("Host %s of a connection quota cannot be resolved; the broker ignores the quota", name)
        return []
    return sorted({str(info[4][0]) for info in found})
