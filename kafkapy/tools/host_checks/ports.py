"""Addresses: listeners, addresses for clients, and the servers of the metadata store."""

from __future__ import annotations

import errno
import ipaddress
import socket
from collections.abc import Iterator, Sequence
from typing import Final
from urllib.parse import urlsplit

from kafkapy.config.broker import BrokerConfig
from kafkapy.network.listen_sockets import open_listen_socket
from kafkapy.tools.host_checks.disks import is_running
from kafkapy.tools.host_checks.finding import Finding, Host, Subject, problem, satisfied, warning, within
from kafkapy.types import Endpoint

__all__ = ["check", "is_loopback"]

RESOLVE_S: Final = 5.0
CONNECT_S: Final = 3.0
ETCD_PORT: Final = 2379


def check(subject: Subject) -> Iterator[Finding]:
    """The findings."""
    config = subject.config
    running = is_running(subject)
    for endpoint in config.listeners:
        yield _bound(endpoint.connection_string, endpoint, running)
        yield from _ephemeral(endpoint, subject.host)
    for address in config.get_list("metrics.listeners"):
        host, _, port = address.rpartition(":")
        yield _bound(f"metrics {address}", Endpoint("METRICS", host.strip("[]"), int(port)), running)
    yield from _advertised(config)
    yield from _store(config)


def _bound(subject: str, endpoint: Endpoint, running: bool) -> Finding:
    try:
        open_listen_socket(endpoint, 0, 1).close()
    except OSError as error:
        if error.errno == errno.EADDRINUSE and running:
            return satisfied(subject, "in use, and a broker runs on the log directories")
        change = f"Choose another address, or free this one: ss -ltnp 'sport = :{endpoint.port}' names its process."
        if error.errno in (errno.EACCES, errno.EPERM):
            change = "Use a port above 1023, or give the unit AmbientCapabilities=CAP_NET_BIND_SERVICE."
        if (error.errno or 0) < 0:  # the resolver's numbers
            change = "Use a name that this machine can resolve, or an address."
        return problem(subject, error.strerror or str(error), change, "The broker does not start without a listener.")
    return satisfied(subject, "free")


def _ephemeral(endpoint: Endpoint, host: Host) -> Iterator[Finding]:
    ports = (host.text("proc/sys/net/ipv4/ip_local_port_range") or "").split()
    if len(ports) != 2 or not int(ports[0]) <= endpoint.port <= int(ports[1]):
        return
    if _is_reserved(endpoint.port, host.text("proc/sys/net/ipv4/ip_local_reserved_ports") or ""):
        return
    found = f"port {endpoint.port} is one that the kernel gives to outgoing connections"
    change = f"sysctl net.ipv4.ip_local_reserved_ports={endpoint.port}, or a port below {ports[0]}."
    why = "A connection of any program may hold the port when the broker starts."
    yield warning(endpoint.connection_string, found, change, why)


def _is_reserved(port: int, text: str) -> bool:
    for part in filter(None, text.split(",")):
        low, _, high = part.partition("-")
        if int(low) <= port <= int(high or low):
            return True
    return False


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a listener on a host."""
    return bool(host) and _all_loopback(_resolve(host))


def _all_loopback(addresses: Sequence[str]) -> bool:
    return bool(addresses) and all(ipaddress.ip_address(each).is_loopback for each in addresses)


def _resolve(host: str) -> Sequence[str]:
    """The addresses of a host without zones, none when it does not resolve."""
    try:
        found = within(RESOLVE_S, lambda: socket.getaddrinfo(host, None, type=socket.SOCK_STREAM))
    except (OSError, UnicodeError):  # TimeoutError is an OSError
        return []
    return [str(each[4][0]).partition("%")[0] for each in found]


def _advertised(config: BrokerConfig) -> Iterator[Finding]:
    bound = {each.listener_name: each for each in config.listeners}
    for endpoint in config.advertised_listeners:
        listener = bound[endpoint.listener_name]
        shown = endpoint._replace(host=endpoint.host or socket.getfqdn(), port=endpoint.port or listener.port)
        subject = f"advertised {shown.connection_string}"
        change = f"Set advertised.listeners={endpoint.listener_name}://NAME:PORT to an address that clients reach."
        addresses = _resolve(shown.host)
        if not addresses:
            why = "Clients and other brokers connect to this name, whatever address they began with."
            yield warning(subject, "this machine cannot resolve the name", change, why)
        elif _all_loopback(addresses) and not is_loopback(listener.host):
            why = "Clients on other machines are sent to themselves: the first connection works, the second does not."
            yield warning(subject, "only this machine reaches it, and the listener is open to others", change, why)
        else:
            yield satisfied(subject, ", ".join(dict.fromkeys(addresses)))


def _store(config: BrokerConfig) -> Iterator[Finding]:
    servers = store_servers(config)
    failures: dict[tuple[str, int], str] = {}
    for server in servers:
        try:
            _connect(server)
        except OSError as error:
            failures[server] = error.strerror or str(error)
    key = "zookeeper.connect" if config.metadata_store == "zookeeper" else "kafkapy.etcd.endpoints"
    change = f"Start the server, correct {key}, or open the port in the firewall."
    for server in servers:
        subject = f"{config.metadata_store} {server[0]}:{server[1]}"
        if server not in failures:
            yield satisfied(subject, "accepts connections")
        elif all(each in failures for each in servers):
            why = "The broker does not start without its metadata store."
            yield problem(subject, failures[server], change, why)
        else:
            yield warning(subject, failures[server], change, "The broker uses the others, and has fewer in reserve.")


def _connect(server: tuple[str, int]) -> None:
    """Connect and close. OSError; the resolution of the name counts too."""
    within(CONNECT_S + RESOLVE_S, lambda: socket.create_connection(server, CONNECT_S).close())


def store_servers(config: BrokerConfig) -> list[tuple[str, int]]:
    """(host, port) of each server of the metadata store."""
    if config.metadata_store == "zookeeper":
        from kazoo.hosts import collect_hosts  # type: ignore[import-untyped]

        return [(host, int(port)) for host, port in collect_hosts(config.get_str("zookeeper.connect"))[0]]
    if config.metadata_store == "etcd":
        found = [urlsplit(each if "//" in each else f"//{each}") for each in config.get_list("kafkapy.etcd.endpoints")]
        return [(each.hostname or "", each.port or ETCD_PORT) for each in found]
    return []
