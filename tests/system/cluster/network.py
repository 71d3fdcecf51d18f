"""Hosts of a test on one machine: network namespaces on a bridge, whose links are cut in one direction or made slow.

    bridge's namespace:  bridge -- one port for each host
    a host's namespace:  eth0, with the address that its processes listen on

The test itself is the host CLIENTS, in the machine's own namespace. Needs root, and iproute2 and util-linux.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable
from types import TracebackType

from peers.store_server import Place

CLIENTS = "clients"
BRIDGE = "bridge"
NOBODY = "02:00:00:00:00:fe"
"""A hardware address that no host has: the bridge delivers packets for it to nobody."""
NETWORKS = range(1, 255)
NEEDED = ("ip", "tc", "nsenter")
FOUND_IN = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"


class NetworkRefusedError(Exception):
    """The machine does not permit network namespaces; the message says why."""


class Network:
    """Owns the namespaces of all hosts. NetworkRefusedError where they cannot be made."""

    def __init__(self, hosts: Iterable[str]) -> None:
        self._hosts = [*hosts, CLIENTS]
        self._number = 0
        self._cut: set[tuple[str, str]] = set()
        self._slow: set[str] = set()

    # --- life -----------------------------------------------------------------------------------------------------

    def __enter__(self) -> Network:
        for program in NEEDED:
            if shutil.which(program, path=FOUND_IN) is None:
                raise NetworkRefusedError(f"{program} is not installed (apt-get install iproute2 util-linux)")
        if os.geteuid() != 0:
            raise NetworkRefusedError("only root makes network namespaces")
        self._number = self._free_number()
        try:
            self._inside(self._bridge, "link", "add", BRIDGE, "type", "bridge")
            self._inside(self._bridge, "link", "set", BRIDGE, "up")
            for index, host in enumerate(self._hosts):
                self._connect(index, host)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove the namespaces, and with them all links. Processes in them must have ended."""
        for host in (*self._hosts[:-1], BRIDGE):
            _run("ip", "netns", "delete", self._namespace(host), check=False)

    def _free_number(self) -> int:
        """The number of a network that no other test uses: the bridge's namespace is made with it."""
        problem = ""
        for number in NETWORKS:
            self._number = number
            problem = _run("ip", "netns", "add", self._bridge, check=False)
            if not problem:
                return number
            if "File exists" not in problem:
                break
        raise NetworkRefusedError(f"no network namespace can be made: {problem}")

    def _connect(self, index: int, host: str) -> None:
        port = f"port{index}"
        address = f"{self.address(host)}/24"
        if host == CLIENTS:
            own = self._link(host)
            self._inside(
                self._bridge, "link", "add", port, "type", "veth", "peer", "name", own, "netns", str(os.getpid())
            )
        else:
            namespace, own = self._namespace(host), self._link(host)
            _run("ip", "netns", "add", namespace)
            self._inside(namespace, "link", "set", "lo", "up")
            self._inside(self._bridge, "link", "add", port, "type", "veth", "peer", "name", own, "netns", namespace)
        self._at(host, "address", "add", address, "dev", own)
        self._at(host, "link", "set", own, "up")
        self._inside(self._bridge, "link", "set", port, "master", BRIDGE, "up")

    # --- hosts ----------------------------------------------------------------------------------------------------

    def address(self, host: str) -> str:
        """The host's address, of a range that is set aside for tests of networks (RFC 2544)."""
        return f"198.18.{self._number}.{self._hosts.index(host) + 1}"

    def place(self, host: str) -> Place:
        """Where a process of the host listens, and the command that starts it there; it keeps its process id."""
        return Place(self.address(host), ("nsenter", f"--net=/run/netns/{self._namespace(host)}"))

    # --- faults ---------------------------------------------------------------------------------------------------

    def cut(self, source: str, target: str) -> None:
        """Lose all packets from one host to the other, without a word to either. The other direction stays."""
        self._cut.add((source, target))
        where = (self.address(target), "dev", self._link(source))
        self._at(source, "neighbour", "replace", where[0], "lladdr", NOBODY, "nud", "permanent", *where[1:])

    def part(self, one: Iterable[str], other: Iterable[str]) -> None:
        """Cut both directions between each host of one side and each of the other."""
        others = list(other)
        for source in one:
            for target in others:
                self.cut(source, target)
                self.cut(target, source)

    def slow(self, host: str, kbit: int) -> None:
        """Let the host send so many kbit/s, to all others together; a full queue loses packets."""
        self._slow.add(host)
        rate = ("rate", f"{kbit}kbit", "burst", "16kb", "latency", "300ms")
        self._shape(host, "replace", "dev", self._link(host), "root", "tbf", *rate)

    def mend(self) -> None:
        """All links are whole and fast again."""
        for source, target in sorted(self._cut):
            self._at(source, "neighbour", "delete", self.address(target), "dev", self._link(source))
        for host in sorted(self._slow):
            self._shape(host, "delete", "dev", self._link(host), "root")
        self._cut.clear()
        self._slow.clear()

    # --- names and commands ---------------------------------------------------------------------------------------

    @property
    def _bridge(self) -> str:
        return self._namespace(BRIDGE)

    def _namespace(self, host: str) -> str:
        return f"kafkapy-{self._number}-{host}"

    def _link(self, host: str) -> str:
        return f"kafkapy{self._number}" if host == CLIENTS else "eth0"

    def _at(self, host: str, *command: str) -> None:
        if host == CLIENTS:
            _run("ip", *command)
        else:
            self._inside(self._namespace(host), *command)

    def _shape(self, host: str, *command: str) -> None:
        inside = () if host == CLIENTS else ("-netns", self._namespace(host))
        _run("tc", *inside, "qdisc", *command)

    @staticmethod
    def _inside(namespace: str, *command: str) -> None:
        _run("ip", "-netns", namespace, *command)


def _run(program: str, *arguments: str, check: bool = True) -> str:
    """What the command complains of, empty when it succeeds."""
    path = shutil.which(program, path=FOUND_IN)
    assert path is not None, program
    done = subprocess.run([path, *arguments], check=False, capture_output=True, text=True)
    if check and done.returncode:
        raise NetworkRefusedError(f"{program} {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stderr.strip() or "it failed" if done.returncode else ""
