"""Memory stays bounded whatever clients announce, send or do not read."""

from __future__ import annotations

import struct
import threading
from pathlib import Path

import pytest

MEBIBYTE = 1 << 20


def resident_bytes() -> int:
    """RSS of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_a_lying_size_costs_no_memory(network, eventually):
    net = network(socket_request_max_bytes=100 * MEBIBYTE)
    net.client().ask()
    before = resident_bytes()
    liars = [net.client() for _ in range(200)]
    for client in liars:
        client.send_bytes(struct.pack(">i", 100 * MEBIBYTE) + b"\x00\x03\x00\x05")
    eventually(lambda: net.server.memory_pool.used >= 200 * 100 * MEBIBYTE)
    assert resident_bytes() - before < 40 * MEBIBYTE
    for client in liars:
        client.close()
    eventually(lambda: net.server.memory_pool.used == 0)


def test_an_exhausted_pool_makes_new_frames_wait_and_recovers(network, eventually):
    net = network(queued_max_request_bytes=MEBIBYTE, num_network_threads=2)
    net.topic("t")
    greedy = net.client()
    body = b"g" * 900_000
    whole = greedy.frame(body)
    other_body = b"h" * 300_000
    greedy.send_bytes(whole[:-1])
    eventually(lambda: net.server.memory_pool.used > 900_000)
    second = net.client()
    second.send_bytes(second.frame(other_body)[:-1])  # the pool may be exceeded by one frame
    eventually(lambda: net.server.memory_pool.used > MEBIBYTE)
    waiting = [net.client() for _ in range(6)]
    for client in waiting:
        client.send(b"w" * 10)
    assert all(client.silent() for client in waiting)
    assert net.server.memory_pool.free == 0
    greedy.send_bytes(whole[-1:])
    assert greedy.receive()[1] == body
    for client in waiting:
        assert client.receive()[1] == b"w" * 10
    second.send_bytes(b"h")
    assert second.receive()[1] == other_body
    eventually(lambda: net.server.memory_pool.used == 0)
    assert net.counters()["memory_pool"]["refused"] > 0


def test_small_requests_that_wait_hold_no_buffer(network, eventually):
    """Only a large frame keeps the thread's read buffer while its request waits."""
    net = network(num_network_threads=1)
    log = net.topic("t", isr=(1, 2))
    clients = [net.client() for _ in range(20)]
    for client in clients:
        client.send_bytes(net.fetch_frame("t", max_wait_ms=60_000))
    other = net.client()
    assert other.ask(b"behind them all") == b"behind them all"
    assert net.server.memory_pool.used == 0
    other.send_bytes(net.produce_frame("t", net.batch(b"v" * 1000), acks=-1))
    eventually(lambda: log.log_end_offset == 1)
    assert 1000 < net.server.memory_pool.used < 2000
    log.follower_position(2, 1)
    assert net.produced(other.receive()[1]).error_code == 0
    for client in clients:
        assert net.fetched(client.receive()[1]).records
    eventually(lambda: net.server.memory_pool.used == 0)


def test_a_pool_that_is_smaller_than_one_read_does_not_block_itself(network, eventually):
    net = network(queued_max_request_bytes=2_000)
    client = net.client()
    bodies = [bytes([index]) * 900 for index in range(60)]
    client.send_bytes(b"".join(client.frame(body, correlation_id=index) for index, body in enumerate(bodies)))
    for index, body in enumerate(bodies):
        assert client.receive() == (index, body)
    client.send(b"x" * 500_000)
    assert client.receive()[1] == b"x" * 500_000
    eventually(lambda: net.server.memory_pool.used == 0)


def test_a_reader_that_never_drains_slows_nobody_and_holds_one_reply(network, eventually):
    net = network(num_network_threads=1, socket_send_buffer_bytes=64 * 1024)
    net.topic("t")
    producer = net.client()
    for _ in range(20):
        producer.send_bytes(net.produce_frame("t", net.batch(b"v" * 100_000)))
        producer.receive()
    stuck = net.client()
    stuck.send_bytes(b"".join(net.fetch_frame("t", correlation_id=index) for index in range(500)))
    for index in range(50):
        assert producer.ask(b"%d" % index) == b"%d" % index
    served = net.counters()["apis"][1]["requests"]
    assert served < 50  # one reply at a time, and what the socket's buffers take
    for index in range(500):
        correlation, payload = stuck.receive()
        assert correlation == index
        assert len(payload) > 900_000


def test_a_reply_that_nobody_reads_is_given_up_when_idle(network, eventually):
    net = network(connections_max_idle_ms=200, num_network_threads=1)
    net.handler = lambda request: request.reply(bytes(30 * MEBIBYTE))
    client = net.client()
    client.send()
    eventually(lambda: net.counters()["connections"]["closed_idle"] == 1)
    with pytest.raises(EOFError):
        client.receive()


@pytest.mark.parametrize("size", [100_000, 3 * MEBIBYTE])
def test_replies_larger_than_the_socket_buffer_arrive_whole(network, size):
    net = network()
    answer = bytes(range(256)) * (size // 256)
    net.handler = lambda request: request.reply(answer)
    clients = [net.client() for _ in range(3)]
    for client in clients:
        client.send()
    for client in clients:
        assert client.receive()[1] == answer


@pytest.mark.parametrize("size", [10, 70_000, 300_000])
def test_records_come_whole_through_the_smallest_send_buffer(network, size):
    """Header, file region and trailer are cut wherever the socket happens to be full."""
    net = network(socket_send_buffer_bytes=1)
    net.topic("t")
    batch = net.batch(bytes(range(256)) * (size // 256) + b"end")
    client = net.client()
    client.send_bytes(net.produce_frame("t", batch))
    assert net.produced(client.receive()[1]).error_code == 0
    client.send_bytes(b"".join(net.fetch_frame("t", correlation_id=number) for number in range(5)))
    for number in range(5):
        correlation, payload = client.receive()
        records = bytes(net.fetched(payload).records)
        # The broker fills in offset and leader epoch, neither of which the CRC covers.
        assert (correlation, records[8:12], records[16:]) == (number, batch[8:12], batch[16:])


def test_large_and_small_requests_follow_each_other_whole(network):
    net = network(socket_request_max_bytes=16 * MEBIBYTE)
    client = net.client()
    sizes = [0, 9_000, 130_000, 1, 128 * 1024, 2 * MEBIBYTE - 14, 3, 2 * MEBIBYTE, 5 * MEBIBYTE + 1, 64 * 1024, 7]
    bodies = [bytes([number]) * size for number, size in enumerate(sizes)]
    sender = threading.Thread(
        target=lambda: [client.send_bytes(client.frame(body, correlation_id=n)) for n, body in enumerate(bodies)]
    )
    sender.start()
    for number, body in enumerate(bodies):
        assert client.receive() == (number, body)
    sender.join()
    assert net.server.memory_pool.used == 0
