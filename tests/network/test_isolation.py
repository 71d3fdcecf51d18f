"""Python may hold the GIL for as long as it likes: what the data plane serves goes on."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import time

CLIENT = """
import socket, struct, sys, time
port, frame = int(sys.argv[1]), bytes.fromhex(sys.argv[2])
s = socket.create_connection(("127.0.0.1", port), 10)
def receive(n):
    data = b""
    while len(data) < n:
        data += s.recv(n - len(data))
    return data
print("ready", flush=True)
while True:
    s.sendall(frame)
    receive(struct.unpack(">i", receive(4))[0])
    print(time.monotonic(), flush=True)
    time.sleep(0.01)
"""


def test_produce_and_fetch_are_answered_while_python_holds_the_gil(network):
    net = network()
    net.topic("t")
    net.client().send_bytes(net.produce_frame("t", net.batch(b"v" * 1000)))
    frames = [
        net.fetch_frame("t"),
        net.produce_frame("t", net.batch(b"w")),
        net.fetch_frame("t", max_wait_ms=1, min_bytes=1 << 20),
    ]
    port = net.server.bound_port("PLAINTEXT")
    clients = [
        subprocess.Popen([sys.executable, "-c", CLIENT, str(port), frame.hex()], stdout=subprocess.PIPE, text=True)
        for frame in frames
    ]
    try:
        for client in clients:
            assert client.stdout is not None
            assert client.stdout.readline() == "ready\n"
            client.stdout.readline()
        hold = ctypes.PyDLL(None).usleep  # PyDLL keeps the GIL during the call
        start = time.monotonic()
        hold(600_000)
        end = time.monotonic()
        for client in clients:
            answered = 0
            while (moment := float(client.stdout.readline())) < end:
                answered += start < moment
            assert answered > 5
    finally:
        for client in clients:
            client.kill()
            client.wait()
