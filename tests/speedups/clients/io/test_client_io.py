"""ClientIo: frames out and in over socket pairs, hostile peers, channels that end, and what is left behind."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import random
import select
import socket
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkapy._speedups.clients.io.client_io import ClientIo
from kafkapy._speedups.clients.io.frames import BytesFrame, BytesResponse, RequestFrame, ResponseFrame
from kafkapy.errors import IllegalStateError

WAIT_S = 20.0
MAX_RESPONSE = 1 << 20


class Peer:
    """The other end of a channel, blocking."""

    def __init__(self, io: ClientIo) -> None:
        self.socket, ours = socket.socketpair()
        self.socket.settimeout(WAIT_S)
        self.channel = io.add(ours.detach())

    def exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            assert part, "the channel was closed"
            data += part
        return bytes(data)

    def request(self) -> bytes:
        return self.exactly(int.from_bytes(self.exactly(4), "big"))

    def answer(self, correlation_id: int, body: bytes = b"") -> None:
        self.socket.sendall(answer(correlation_id, body))

    def close(self) -> None:
        self.socket.close()


def answer(correlation_id: int, body: bytes = b"") -> bytes:
    return (len(body) + 4).to_bytes(4, "big") + correlation_id.to_bytes(4, "big") + body


def frame(correlation_id: int, body: bytes = b"") -> BytesFrame:
    request = BytesFrame(b"\x00\x12\x00\x03????" + body)
    request.correlation_id = correlation_id
    return request


def collect(io: ClientIo, number: int) -> list[tuple[int, Any, int]]:
    """That many events, waited for."""
    out: list[tuple[int, Any, int]] = []
    while len(out) < number:
        readable, _, _ = select.select([io.fileno()], [], [], WAIT_S)
        assert readable, f"only {len(out)} of {number} events came"
        out += io.events()
    return out


@pytest.fixture
def io() -> Iterator[ClientIo]:
    made = ClientIo(MAX_RESPONSE)
    yield made
    made.close()


@pytest.fixture
def peer(io: ClientIo) -> Iterator[Peer]:
    made = Peer(io)
    yield made
    made.close()


def count(directory: str) -> int:
    return len(list(Path(directory).iterdir()))


def settled(condition: Callable[[], bool]) -> None:
    """A thread that has been joined is in /proc for a moment longer."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def ask(io: ClientIo, peer: Peer, correlation_id: int, body: bytes = b"") -> BytesResponse:
    response = BytesResponse()
    io.submit(peer.channel, frame(correlation_id, body), response)
    return response


# --- requests and responses -----------------------------------------------------------------------------------------


def test_a_request_is_written_with_its_size_and_correlation_id(io: ClientIo, peer: Peer) -> None:
    ask(io, peer, 7, b"body")
    assert peer.request() == b"\x00\x12\x00\x03\x00\x00\x00\x07body"


@pytest.mark.parametrize("size", [0, 1, 16 * 1024 - 8, 16 * 1024 - 7, 3_000_000])
def test_requests_of_any_size_arrive_whole(io: ClientIo, peer: Peer, size: int) -> None:
    body = random.Random(size).randbytes(size)
    ask(io, peer, 1, body)
    assert peer.request()[8:] == body


def test_a_response_comes_with_its_object(io: ClientIo, peer: Peer) -> None:
    response = ask(io, peer, 5)
    peer.request()
    peer.answer(5, b"hello")
    assert collect(io, 1) == [(peer.channel, response, 0)]
    assert bytes(response.frame) == b"\x00\x00\x00\x05hello"


@pytest.mark.parametrize("size", [0, 60_000, 65_528, 65_529, 70_000, MAX_RESPONSE - 4])
def test_responses_of_any_size_are_read_whole(io: ClientIo, peer: Peer, size: int) -> None:
    responses = [ask(io, peer, number) for number in range(3)]
    body = random.Random(size).randbytes(size)
    writer = threading.Thread(target=lambda: [peer.answer(number, body) for number in range(3)])
    for _ in responses:
        peer.request()
    writer.start()
    assert [event[1] for event in collect(io, 3)] == responses
    writer.join()
    assert all(bytes(response.frame)[4:] == body for response in responses)


@pytest.fixture
def connect() -> Iterator[Callable[[ClientIo, int], Peer]]:
    """Peers over TCP, whose kernel waits for as much as is asked for; receive_buffer: its size, 0 for the system's."""
    made: list[Peer] = []

    def peer(io: ClientIo, receive_buffer: int) -> Peer:
        with socket.create_server(("127.0.0.1", 0)) as server:
            ours = socket.socket()
            if receive_buffer:
                ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
            ours.connect(server.getsockname())
            accepted, _ = server.accept()
        one = Peer.__new__(Peer)
        one.socket = accepted
        one.socket.settimeout(WAIT_S)
        one.channel = io.add(ours.detach())
        made.append(one)
        return one

    yield peer
    for each in made:
        each.close()


@pytest.mark.parametrize("receive_buffer", [0, 4096, 300_000, 8 << 20])
def test_responses_over_tcp_come_whole_however_they_are_cut(
    connect: Callable[[ClientIo, int], Peer], receive_buffer: int
) -> None:
    """The thread sleeps until much of a frame is there: it must wake for what is less, and for what comes next."""
    rng = random.Random(receive_buffer)
    io = ClientIo(32 << 20)
    peer = connect(io, receive_buffer)
    for number, size in enumerate((0, 70_000, 5_000_000, 10, 66_000, 1_048_576, 3_000_000, 5)):
        body = rng.randbytes(size)
        response = ask(io, peer, number, body[:8])
        peer.request()
        whole = answer(number, body)
        cuts = sorted(rng.randrange(len(whole)) for _ in range(4))
        for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
            peer.socket.sendall(whole[start:end])
            time.sleep(0.01)
        assert collect(io, 1) == [(peer.channel, response, 0)]
        assert response.frame[4:] == body
    io.close()


@pytest.mark.parametrize("part", [3, 100_000, 2_500_000])
def test_an_end_amid_a_large_response_over_tcp_ends_the_channel(
    connect: Callable[[ClientIo, int], Peer], part: int
) -> None:
    io = ClientIo(32 << 20)
    peer = connect(io, 0)
    ask(io, peer, 1)
    peer.request()
    peer.socket.sendall(answer(1, bytes(4_000_000))[:part])
    time.sleep(0.05)
    peer.close()
    assert [(event[0], event[1]) for event in collect(io, 1)] == [(peer.channel, None)]
    io.close()


def test_responses_in_single_bytes(io: ClientIo, peer: Peer) -> None:
    responses = [ask(io, peer, number) for number in range(4)]
    for byte in b"".join(answer(number, bytes(number)) for number in range(4)):
        peer.socket.send(bytes([byte]))
    assert [event[1] for event in collect(io, 4)] == responses


def test_many_responses_in_one_write(io: ClientIo, peer: Peer) -> None:
    responses = [ask(io, peer, number) for number in range(2000)]
    reader = threading.Thread(target=lambda: [peer.request() for _ in responses])
    reader.start()
    reader.join(WAIT_S)
    peer.socket.sendall(b"".join(answer(number, b"x" * (number % 300)) for number in range(2000)))
    assert [event[1] for event in collect(io, 2000)] == responses
    assert all(len(response.frame) == 4 + number % 300 for number, response in enumerate(responses))


def test_a_request_without_response_is_reported_when_it_was_written(io: ClientIo, peer: Peer) -> None:
    silent = frame(1, b"x")
    io.submit(peer.channel, silent, None)
    response = ask(io, peer, 2)
    assert peer.request()[8:] == b"x"
    peer.request()
    peer.answer(2)
    assert collect(io, 2) == [(peer.channel, silent, 0), (peer.channel, response, 0)]


def test_a_request_that_cannot_be_encoded_fails_alone(io: ClientIo, peer: Peer) -> None:
    broken, silent = ResponseFrame(), RequestFrame()
    io.submit(peer.channel, RequestFrame(), broken)
    io.submit(peer.channel, silent, None)
    assert collect(io, 2) == [(peer.channel, broken, errno.ENOSYS), (peer.channel, silent, errno.ENOSYS)]
    fine = ask(io, peer, 3)
    peer.request()
    peer.answer(3)
    assert collect(io, 1) == [(peer.channel, fine, 0)]


def test_a_slow_reader_holds_up_its_own_channel_only(io: ClientIo, peer: Peer) -> None:
    other = Peer(io)
    slow = ask(io, peer, 1, bytes(8_000_000))
    quick = ask(io, other, 1)
    other.request()
    other.answer(1)
    assert collect(io, 1) == [(other.channel, quick, 0)]
    assert len(peer.request()) == 8_000_008
    peer.answer(1)
    assert collect(io, 1) == [(peer.channel, slow, 0)]
    other.close()


def test_bytes_are_counted(io: ClientIo, peer: Peer) -> None:
    ask(io, peer, 1, b"four")
    peer.request()
    peer.answer(1, b"seventeen bytes..")
    collect(io, 1)
    assert (io.bytes_out(peer.channel), io.bytes_in(peer.channel)) == (16, 25)
    io.close_channel(peer.channel)
    collect(io, 1)
    assert (io.bytes_out(peer.channel), io.bytes_in(peer.channel)) == (0, 0)
    assert (io.bytes_out(), io.bytes_in()) == (16, 25)


def test_a_frame_that_is_no_request_is_refused() -> None:
    with pytest.raises(ValueError, match="no header"):
        BytesFrame(b"\x00\x12\x00\x03")
    with pytest.raises(BufferError):
        _ = BytesResponse().frame


# --- channels that end ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", [b"", b"\x00", answer(1, b"0123456789")[:-1], answer(1)[:6]])
def test_a_peer_that_goes_away_ends_the_channel(io: ClientIo, peer: Peer, sent: bytes) -> None:
    ask(io, peer, 1)
    peer.request()
    peer.socket.sendall(sent)
    peer.close()
    assert collect(io, 1) == [(peer.channel, None, 0)]


def test_a_peer_that_goes_away_amid_a_request_ends_the_channel(io: ClientIo, peer: Peer) -> None:
    ask(io, peer, 1, bytes(10_000_000))
    peer.exactly(1000)
    peer.close()
    [(channel, response, error)] = collect(io, 1)
    assert (channel, response) == (peer.channel, None)
    assert error in (0, errno.EPIPE, errno.ECONNRESET)


def test_what_was_answered_comes_before_the_end(io: ClientIo, peer: Peer) -> None:
    first = ask(io, peer, 1)
    ask(io, peer, 2)
    peer.request()
    peer.answer(1)
    peer.request()
    peer.close()
    assert collect(io, 2) == [(peer.channel, first, 0), (peer.channel, None, 0)]


def test_a_channel_can_be_closed_with_requests_in_flight(io: ClientIo, peer: Peer) -> None:
    ask(io, peer, 1)
    ask(io, peer, 2, bytes(5_000_000))
    io.close_channel(peer.channel)
    assert collect(io, 1) == [(peer.channel, None, 0)]
    ask(io, peer, 3)  # late: the channel is gone
    io.close_channel(peer.channel)
    other = Peer(io)
    ask(io, other, 1)
    other.request()
    other.answer(1)
    assert len(collect(io, 1)) == 1
    other.close()


def test_closing_ends_everything_and_may_be_repeated() -> None:
    io = ClientIo()
    peers = [Peer(io) for _ in range(5)]
    for peer in peers:
        ask(io, peer, 1, bytes(1_000_000))
    io.close()
    io.close()
    assert io.events() == []
    for peer in peers:
        while peer.socket.recv(1 << 20):
            pass
        peer.close()
    with pytest.raises(IllegalStateError, match="closed"):
        io.add(0)
    with pytest.raises(IllegalStateError, match="closed"):
        io.submit(1, frame(1), None)


def test_a_client_that_never_connected_has_no_thread() -> None:
    def threads() -> int:
        return sum(name.read_text() == "kafkapy-io\n" for name in Path("/proc/self/task").glob("*/comm"))

    before = threads()
    io = ClientIo()
    assert threads() == before
    with pytest.raises(OSError, match="not a descriptor"):
        io.add(-1)
    io.close()


def test_nothing_is_left_of_clients_that_are_dropped() -> None:
    gc.collect()
    fds, threads = count("/proc/self/fd"), count("/proc/self/task")
    response = BytesResponse()
    references = sys.getrefcount(response)
    for turn in range(20):
        io = ClientIo()
        peer = Peer(io)
        io.submit(peer.channel, frame(1), response)
        if turn % 2:
            io.close()
        peer.close()
        del io
    settled(lambda: (count("/proc/self/fd"), count("/proc/self/task")) == (fds, threads))
    assert sys.getrefcount(response) == references


# --- hostile peers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        (answer(2), errno.EBADMSG),
        (answer(1)[:4] + b"\xff\xff\xff\xff", errno.EBADMSG),
        (b"\x00\x00\x00\x03\x00\x00\x00\x01", errno.EBADMSG),
        (b"\x00\x00\x00\x00", errno.EBADMSG),
        (b"\xff\xff\xff\xff", errno.EBADMSG),
        (b"\x80\x00\x00\x00", errno.EBADMSG),
        (b"\x7f\xff\xff\xff", errno.EMSGSIZE),
        ((MAX_RESPONSE + 1).to_bytes(4, "big"), errno.EMSGSIZE),
    ],
)
def test_what_is_no_answer_ends_the_channel(io: ClientIo, peer: Peer, sent: bytes, error: int) -> None:
    ask(io, peer, 1)
    peer.request()
    peer.socket.sendall(sent)
    assert collect(io, 1) == [(peer.channel, None, error)]
    assert io.reason(peer.channel) == ""


@pytest.mark.parametrize(
    ("max_response", "sent", "reason"),
    [
        (MAX_RESPONSE, b"HTTP/1.1 400 Bad Request\r\n", "no Kafka listener"),
        (MAX_RESPONSE, b"\x15\x03\x03\x00\x02\x02\x46", "set security.protocol to SSL or SASL_SSL"),
        (2**31 - 1, b"\x15\x03\x03\x00\x02\x02\x46", "set security.protocol to SSL or SASL_SSL"),
    ],
)
def test_another_protocol_is_named(max_response: int, sent: bytes, reason: str) -> None:
    with contextlib.closing(ClientIo(max_response)) as io:
        peer = Peer(io)
        ask(io, peer, 1)
        peer.request()
        peer.socket.sendall(sent)
        peer.close()
        assert collect(io, 1) == [(peer.channel, None, errno.EPROTO)]
        assert reason in io.reason(peer.channel)
        assert io.reason(peer.channel) == "", "it is forgotten"


def test_an_answer_that_nobody_asked_for_ends_the_channel(io: ClientIo, peer: Peer) -> None:
    peer.answer(0)
    assert collect(io, 1) == [(peer.channel, None, errno.EBADMSG)]


@pytest.mark.skipif("KAFKAPY_ASAN" in os.environ, reason="the sanitizer needs address space of its own")
def test_a_lying_size_gets_little_memory() -> None:
    code = """
import resource, socket, select, sys
from kafkapy._speedups.clients.io.frames import BytesFrame, BytesResponse
from kafkapy._speedups.clients.io.client_io import ClientIo
io = ClientIo(2**31 - 1)
resource.setrlimit(resource.RLIMIT_AS, (int(open('/proc/self/statm').read().split()[0]) * 4096 + (200 << 20),) * 2)
peers = []
for _ in range(50):  # 50 announcements of 2 GB fit into 200 MB
    ours, theirs = socket.socketpair()
    peers.append(theirs)
    channel = io.add(ours.detach())
    io.submit(channel, BytesFrame(bytes(8)), BytesResponse())
    theirs.recv(100)
    theirs.sendall(b'\\x7f\\xff\\xff\\xff' + bytes(1000))
for peer in peers:
    peer.close()
ended = []
while len(ended) < 50:
    select.select([io.fileno()], [], [], 20)
    ended += io.events()
assert all(response is None and error == 0 for _, response, error in ended), ended
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_truncation_at_every_byte(io: ClientIo) -> None:
    stream = b"".join(answer(number, b"x" * number * 7) for number in range(4))
    ends = [sum(8 + number * 7 for number in range(count)) for count in range(1, 5)]
    for cut in range(len(stream)):
        peer = Peer(io)
        responses = [ask(io, peer, number) for number in range(4)]
        peer.exactly(4 * 12)
        peer.socket.sendall(stream[:cut])
        peer.socket.shutdown(socket.SHUT_WR)
        whole = sum(end <= cut for end in ends)
        events = collect(io, whole + 1)
        assert [event[1] for event in events] == [*responses[:whole], None]
        peer.close()


def test_random_bits_never_do_more_than_end_the_channel(io: ClientIo) -> None:
    dice = random.Random(11)
    stream = b"".join(answer(number, bytes(dice.randrange(200))) for number in range(6))
    for _ in range(500):
        damaged = bytearray(stream)
        for _ in range(dice.randint(1, 4)):
            damaged[dice.randrange(len(damaged))] ^= 1 << dice.randrange(8)
        peer = Peer(io)
        for number in range(6):
            ask(io, peer, number)
        peer.exactly(6 * 12)
        peer.socket.sendall(damaged)
        peer.socket.shutdown(socket.SHUT_WR)
        events: list[tuple[int, Any, int]] = []
        while not events or events[-1][1] is not None:
            events += collect(io, 1)
        assert all(error == 0 for _, response, error in events if response is not None)
        assert events[-1][2] in (0, errno.EBADMSG, errno.EMSGSIZE)
        peer.close()


# --- threads, forks, leaks ------------------------------------------------------------------------------------------


def test_several_channels_under_load_with_ends_amid(io: ClientIo) -> None:
    """Peers answer in pieces and go away at random; every request is answered rightly or its channel ends."""
    dice = random.Random(5)

    def serve(peer: Peer, lifetime: int, seed: int) -> None:
        chance = random.Random(seed)
        try:
            for _ in range(lifetime):
                request = peer.request()
                reply = answer(int.from_bytes(request[4:8], "big"), request[8:] * 3)
                middle = chance.randrange(len(reply))
                peer.socket.sendall(reply[:middle])
                peer.socket.sendall(reply[middle:])
        except (AssertionError, OSError):
            pass
        peer.socket.close()

    answered = ended = 0
    servers = []
    waiting: dict[int, list[tuple[BytesResponse, bytes]]] = {}
    for number in range(24):
        peer = Peer(io)
        servers.append(threading.Thread(target=serve, args=(peer, dice.randrange(50, 400), number)))
        servers[-1].start()
        waiting[peer.channel] = []
        for correlation in range(400):
            body = dice.randbytes(dice.choice((0, 10, 1000, 40_000)))
            response = BytesResponse()
            io.submit(peer.channel, frame(correlation, body), response)
            waiting[peer.channel].append((response, body * 3))
        if number % 6 == 5:
            io.close_channel(peer.channel)
    while ended < 24:
        for channel, response, error in collect(io, 1):
            if response is None:
                ended += 1
                del waiting[channel]
                continue
            assert error == 0
            expected, body = waiting[channel].pop(0)
            assert response is expected
            assert response.frame[4:] == body
            answered += 1
            if not waiting[channel]:
                io.close_channel(channel)
    for server in servers:
        server.join(WAIT_S)
    assert answered > 500


def test_a_hundred_thousand_small_requests_leave_nothing(io: ClientIo) -> None:
    peer = Peer(io)

    def echo(number: int) -> None:
        for _ in range(number):
            request = peer.request()
            peer.answer(int.from_bytes(request[4:8], "big"))

    def ping(number: int) -> None:
        server = threading.Thread(target=echo, args=(number,))
        server.start()
        for first in range(0, number, 20):
            for correlation_id in range(first, first + 20):
                ask(io, peer, correlation_id)
            collect(io, 20)
        server.join(WAIT_S)

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    ping(5000)
    gc.collect()
    before, blocks = resident(), sys.getallocatedblocks()
    ping(95_000)
    gc.collect()
    assert sys.getallocatedblocks() - blocks < 2000
    assert resident() - before < 4 << 20
    peer.close()


def test_a_forked_child_has_no_client(io: ClientIo, peer: Peer) -> None:
    response = ask(io, peer, 1)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        said = b""
        for call in (lambda: io.submit(peer.channel, frame(2), None), lambda: io.events(), lambda: io.add(0)):
            try:
                call()
            except IllegalStateError as error:
                said += str(error).encode()[:40] + b"\n"
        io.close()
        os.write(writer, said)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        assert pipe.read() == b"the client belongs to the process that t\n" * 3
    assert os.waitpid(child, 0)[1] == 0
    peer.request()
    peer.answer(1)
    assert collect(io, 1) == [(peer.channel, response, 0)]


def test_python_memory_is_given_back() -> None:
    tracemalloc.start()
    try:
        io = ClientIo()
        peer = Peer(io)
        for number in range(200):
            ask(io, peer, number, bytes(10_000))
            peer.request()
            peer.answer(number, bytes(10_000))
            collect(io, 1)
        assert tracemalloc.get_traced_memory()[0] < 200_000
        io.close()
        peer.close()
    finally:
        tracemalloc.stop()
