"""Listeners as text: NAME://host:port lists and name-to-protocol maps.

Source: kafka.cluster.EndPoint, KIP-103, KIP-797.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping

from kafkapy.types import Endpoint, SecurityProtocol

_LISTENER = re.compile(
    r"(?P<name>[^:/]+)://(?:\[(?P<v6>[0-9a-zA-Z%.:]*)\]|(?P<host>[0-9a-zA-Z\-%._]*)):(?P<port>-?[0-9]+)"
)
_MAX_PORT = 65535


def split_list(text: str) -> list[str]:
    """Items between commas, without blanks and empty items."""
    return [item.strip() for item in text.split(",") if item.strip()]


def parse_map(text: str) -> dict[str, str]:
    """``a:1,b:2`` as a dict.

    The value follows the last colon. ValueError for an item without a colon.
    """
    out: dict[str, str] = {}
    for item in split_list(text):
        name, colon, value = item.rpartition(":")
        if not colon:
            raise ValueError(f"{item!r} is not of the form name:value")
        out[name.strip()] = value.strip()
    return out


def parse_protocol_map(text: str) -> dict[str, SecurityProtocol]:
    """Parse listener.security.protocol.map. ValueError for an unknown protocol."""
    out: dict[str, SecurityProtocol] = {}
    for name, protocol in parse_map(text).items():
        if protocol not in SecurityProtocol.__members__:
            raise ValueError(f"{protocol!r} is not a security protocol; use {', '.join(SecurityProtocol.__members__)}")
        out[name.upper()] = SecurityProtocol[protocol]
    return out


def parse_listeners(
    text: str, protocols: Mapping[str, SecurityProtocol], distinct_ports: bool = True
) -> list[Endpoint]:
    """Parse listeners or advertised.listeners. ValueError with the reason.

    Names must differ. With `distinct_ports`, ports other than 0 must differ too, except for one IPv4 and one IPv6
    address.
    """
    endpoints = [_parse_listener(item, protocols) for item in split_list(text)]
    names = [endpoint.listener_name for endpoint in endpoints]
    if len(set(names)) != len(names):
        raise ValueError("each listener must have a different name")
    if distinct_ports:
        _check_ports(endpoints)
    return endpoints


def _parse_listener(text: str, protocols: Mapping[str, SecurityProtocol]) -> Endpoint:
    match = _LISTENER.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not of the form NAME://host:port")
    name = match["name"].strip().upper()
    port = int(match["port"])
    if not 0 <= port <= _MAX_PORT:
        raise ValueError(f"port {port} is not between 0 and {_MAX_PORT}")
    protocol = protocols.get(name)
    if protocol is None:
        raise ValueError(f"no security protocol is defined for listener {name} in listener.security.protocol.map")
    return Endpoint(name, match["v6"] or match["host"] or "", port, protocol)


def _check_ports(endpoints: list[Endpoint]) -> None:
    by_port: dict[int, list[Endpoint]] = {}
    for endpoint in endpoints:
        if endpoint.port:
            by_port.setdefault(endpoint.port, []).append(endpoint)
    for port, sharing in by_port.items():
        if len(sharing) > 1 and sorted(map(_ip_version, sharing)) != [4, 6]:
            raise ValueError(f"each listener must have a different port, but {port} is used {len(sharing)} times")


def _ip_version(endpoint: Endpoint) -> int:
    try:
        return ipaddress.ip_address(endpoint.host.partition("%")[0]).version
    except ValueError:
        return 0
