"""Python may hold the GIL for as long as it likes: what the data plane serves goes on."""

from __future__ import annotations

import ctypes
import os
import select
import subprocess
import sys

ANSWERS = 6
CLIENT = """
import os, select, socket, struct, sys, time
port, frame, start, done, answers = int(sys.argv[1]), bytes.fromhex(sys.argv[2]), *map(int, sys.argv[3:])
s = socket.create_connection(("127.0.0.1", port), 10)
def receive(n):
    data = b""
    while len(data) < n:
        data += s.recv(n - len(data))
    return data
def ask():
    s.sendall(frame)
    receive(struct.unpack(">i", receive(4))[0])
    time.sleep(0.01)
ask()
print("ready", flush=True)
while not select.select([start], [], [], 0)[0]:
    ask()
os.read(start, 1)
for _ in range(answers):
    ask()
os.write(done, b"x")
"""


class Poll(ctypes.Structure):
    """C's struct pollfd."""

    _fields_ = [("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short)]


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
    started, start = os.pipe()
    done, finish = os.pipe()
    command = [str(number) for number in (started, finish, ANSWERS)]
    clients = [
        subprocess.Popen(
            [sys.executable, "-c", CLIENT, str(port), frame.hex(), *command],
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=(started, finish),
        )
        for frame in frames
    ]
    wait = Poll(done, select.POLLIN, 0)
    interval = sys.getswitchinterval()
    try:
        for client in clients:
            assert client.stdout is not None
            assert client.stdout.readline() == "ready\n"
        # PyDLL keeps the GIL during a call, and no other thread gets it between two.
        sys.setswitchinterval(1000)
        libc = ctypes.PyDLL(None)
        heard, byte = 0, ctypes.create_string_buffer(1)
        for _ in clients:
            libc.write(start, b"x", 1)
        for _ in clients:
            if libc.poll(ctypes.byref(wait), 1, 60_000) == 1:
                heard += libc.read(done, byte, 1)
        assert heard == len(clients)
    finally:
        sys.setswitchinterval(interval)
        for client in clients:
            client.kill()
            client.wait()
        for end in (started, start, done, finish):
            os.close(end)
