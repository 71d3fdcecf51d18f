"""Compressed batches over real sockets: checked by network threads and the worker pool, whatever the loop does."""

from __future__ import annotations

import random
import struct
import threading

import pytest

from kafkapy._speedups.network.worker_pool import WorkerPool
from kafkapy._speedups.records import record_batch
from kafkapy.errors import ErrorCode
from kafkapy.records.batches import RecordBatchBuilder
from kafkapy.records.compression import compress

CODECS = (1, 2, 3, 4)
NOISE = random.Random(3).randbytes(3_000_000)


def batch(codec, size=3_000_000, count=None):
    """Larger than what a network thread looks at itself, unless told otherwise; `count` is for the header."""
    builder = RecordBatchBuilder()
    for at in range(0, size, 50_000):
        builder.append(1_700_000_000_000, b"k", NOISE[at : min(at + 50_000, size)])
    out = bytearray(builder.build(codec))
    if count is not None:
        struct.pack_into(">i", out, 57, count)
        struct.pack_into(">i", out, 23, count - 1)
        record_batch.refresh_crc(out)
    return bytes(out)


def bomb(size):
    """A small batch of gzip whose one record is that large."""
    builder = RecordBatchBuilder(1 << 30)
    builder.append(1_700_000_000_000, b"k", bytes(size))
    return builder.build(1)


def open_network(network, **config):
    return network(**{"socket_request_max_bytes": 1 << 25, "num_worker_threads": 2} | config)


@pytest.mark.parametrize("codec", CODECS)
def test_large_and_small_batches_are_taken_and_liars_are_not(network, codec):
    net = open_network(network)
    log = net.topic("t", max_message_bytes=1 << 24)
    client = net.client()
    end = 0
    for size, records in ((3_000_000, 60), (100_000, 2), (10, 1)):
        for lie in (None, records + 1):
            client.send_bytes(net.produce_frame("t", batch(codec, size, lie)))
            entry = net.produced(client.receive()[1])
            if lie is None:
                assert (entry.error_code, entry.base_offset) == (ErrorCode.NONE, end)
                end += records
            else:
                assert (entry.error_code, entry.base_offset) == (ErrorCode.INVALID_RECORD, -1)
            assert log.log_end_offset == end
    assert net.counters()["workers"]["done"] == 2


def test_a_control_loop_that_sleeps_delays_no_compressed_produce(network):
    net = open_network(network)
    net.topic("t", max_message_bytes=1 << 24)
    asleep, wake = threading.Event(), threading.Event()

    def sleep(request):
        asleep.set()
        wake.wait(60)
        net.echo(request)

    net.handler = sleep
    sleeper = net.client()
    sleeper.send(b"good night")
    assert asleep.wait(30)
    client = net.client()
    for codec in CODECS:
        for size in (3_000_000, 1000):
            client.send_bytes(net.produce_frame("t", batch(codec, size)))
            assert net.produced(client.receive()[1]).error_code == ErrorCode.NONE
    assert sleeper.silent()
    wake.set()
    assert sleeper.receive()[1] == b"good night"


def test_requests_behind_one_that_a_worker_has_keep_their_order(network):
    net = open_network(network)
    log = net.topic("t", max_message_bytes=1 << 24)
    client = net.client()
    frames = [net.produce_frame("t", batch(3 + i % 2, 3_000_000 if i % 3 else 10), correlation_id=i) for i in range(9)]
    client.send_bytes(b"".join(frames))
    answers = [client.receive() for _ in frames]
    assert [correlation_id for correlation_id, _ in answers] == list(range(9))
    offsets = [net.produced(payload).base_offset for _, payload in answers]
    assert offsets == sorted(offsets)
    assert log.log_end_offset == 6 * 60 + 3


def test_connections_that_die_while_a_worker_has_their_request(network, eventually):
    net = open_network(network, num_worker_threads=1)
    log = net.topic("t", max_message_bytes=1 << 24)
    frame = net.produce_frame("t", bomb(100_000_000))
    clients = [net.client() for _ in range(6)]
    for client in clients:
        client.send_bytes(frame)
    eventually(lambda: net.counters()["workers"]["queued"] >= 3, 60)
    for client in clients:
        client.reset()
    eventually(lambda: not net.server.connections(), 60)
    # The worker gives back what is left of them; a new client is served.
    client = net.client()
    client.send_bytes(net.produce_frame("t", batch(1)))
    assert net.produced(client.receive()[1]).error_code == ErrorCode.NONE
    eventually(lambda: net.counters()["workers"]["queued"] == 0, 60)
    eventually(lambda: net.counters()["memory_pool"]["used"] == 0, 60)
    assert net.counters()["workers"]["done"] == 7
    assert log.log_end_offset < 60 + len(clients)


def test_a_stop_waits_for_the_workers_and_answers(network, eventually):
    net = open_network(network)
    net.topic("t", max_message_bytes=1 << 24)
    clients = [net.client() for _ in range(4)]
    for client in clients:
        client.send_bytes(net.produce_frame("t", batch(1)))
    eventually(lambda: net.counters()["workers"]["done"] >= 1, 60)
    net.server.shutdown(60)
    assert net.server.stopped
    answered = 0
    for client in clients:
        try:
            answered += net.produced(client.receive()[1]).error_code == ErrorCode.NONE
        except EOFError:  # its request had not been read
            pass
    assert answered >= 1


def test_a_pool_starts_and_stops():
    with pytest.raises(ValueError):
        WorkerPool(0)
    pool = WorkerPool(3)
    pool.start()
    pool.start()
    assert pool.counters() == {"threads": 3, "queued": 0, "done": 0, "busy_ns": 0}
    pool.stop()
    pool.stop()


def test_a_bomb_holds_no_network_thread(network):
    net = open_network(network, num_network_threads=1)
    net.topic("t", max_message_bytes=1 << 24)
    data = bomb(200_000_000)
    assert len(data) < 300_000
    sender, other = net.client(), net.client()
    sender.send_bytes(net.produce_frame("t", data))
    answered = 0
    while sender.silent(0):
        assert other.ask(b"still there") == b"still there"
        answered += 1
    assert answered > 2
    assert net.produced(sender.receive()[1]).error_code == ErrorCode.NONE


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_that_opens_to_more_than_is_allowed_is_refused(network, codec):
    net = open_network(network)
    log = net.topic("t", max_message_bytes=1 << 24)
    client = net.client()
    # One record that says it has 300 MB, of which 20 MB are there.
    size = 300 << 20
    head = b"\0\0\0" + b"\x02k" + zigzag(size)
    payload = zigzag(len(head) + size + 1) + head + bytes(20 << 20)
    builder = RecordBatchBuilder()
    builder.append(0, b"k", b"v")
    lie = bytearray(builder.build(codec)[:61] + compress(codec, payload))
    struct.pack_into(">i", lie, 8, len(lie) - 12)
    record_batch.refresh_crc(lie)
    client.send_bytes(net.produce_frame("t", bytes(lie)))
    entry = net.produced(client.receive()[1])
    assert entry.error_code in (ErrorCode.INVALID_RECORD, ErrorCode.MESSAGE_TOO_LARGE)
    assert log.log_end_offset == 0


def zigzag(value):
    value <<= 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
