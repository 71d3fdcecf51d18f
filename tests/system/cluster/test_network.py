"""The network of the tests: links fail in the direction that is named, and heal."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
from system.cluster.network import CLIENTS, Network, NetworkRefusedError

PORT = 9000
ANSWERS = f"""
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
    own.bind((sys.argv[1], {PORT}))
    print("ready", flush=True)
    while True:
        data, sender = own.recvfrom(100)
        print(data.decode(), flush=True)
        own.sendto(data, sender)
"""


class Conversation:
    """Sends datagrams to a host that writes them down and answers."""

    def __init__(self, network: Network, host: str) -> None:
        place = network.place(host)
        self.process = subprocess.Popen(
            [*place.command, sys.executable, "-c", ANSWERS, place.address], stdout=subprocess.PIPE, text=True
        )
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.connect((place.address, PORT))
        assert self._line() == "ready"

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def say(self, text: str) -> None:
        self.socket.send(text.encode())

    def until(self, text: str) -> tuple[list[str], list[str]]:
        """Say it until the answer comes; what the host has heard and answered until then, each once."""
        answered: list[str] = []
        self.socket.settimeout(0.2)
        while text not in answered:
            self.say(text)
            try:
                answered.append(self.socket.recv(100).decode())
            except TimeoutError:
                continue
        heard: list[str] = []
        while text not in heard:
            heard.append(self._line())
        return list(dict.fromkeys(heard)), list(dict.fromkeys(answered))

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.socket.close()


@pytest.fixture
def network() -> Iterator[Network]:
    try:
        with Network(["one", "two"]) as made:
            yield made
    except NetworkRefusedError as error:
        pytest.skip(str(error))


def test_links_are_cut_in_one_direction_and_mended(network: Network) -> None:
    one, two = Conversation(network, "one"), Conversation(network, "two")
    try:
        assert one.until("a") == (["a"], ["a"])
        network.cut(CLIENTS, "one")
        one.say("lost")
        # Other links stay.
        assert two.until("a") == (["a"], ["a"])
        network.mend()
        assert one.until("b") == (["b"], ["b"])
        network.cut("one", CLIENTS)
        one.say("heard")
        assert two.until("b") == (["b"], ["b"])
        assert one._line() == "heard"
        network.mend()
        assert one.until("c") == (["c"], ["c"])
        network.part(["one", "two"], [CLIENTS])
        one.say("lost")
        two.say("lost")
        network.mend()
        network.slow("one", 100)
        assert one.until("d") == (["d"], ["d"])
        assert two.until("d") == (["d"], ["d"])
    finally:
        one.close()
        two.close()


def test_networks_live_beside_each_other(network: Network) -> None:
    with Network(["one"]) as other:
        assert network.address("one") != other.address("one")
        there = Conversation(other, "one")
        assert there.until("a") == (["a"], ["a"])
        network.cut(CLIENTS, "one")
        assert there.until("b") == (["b"], ["b"])
        there.close()
