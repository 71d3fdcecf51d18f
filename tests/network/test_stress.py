"""Everything at once for a few seconds (for minutes with `-m soak`): nothing is lost, mixed up or left over."""

from __future__ import annotations

import random
import struct
import threading
import time

import pytest


def run(net, seconds, eventually):
    log = net.topic("t")
    end = time.monotonic() + seconds
    problems = []
    produced = [0] * 3

    def producer(index):
        rng = random.Random(index)
        client = net.client()
        while time.monotonic() < end:
            count = rng.randrange(1, 6)
            client.send_bytes(
                b"".join(
                    net.produce_frame(
                        "t",
                        net.batch(b"p" * rng.choice([10, 1000, 30_000])),
                        acks=rng.choice([1, -1]),
                        correlation_id=k,
                    )
                    for k in range(count)
                )
            )
            for k in range(count):
                correlation, payload = client.receive()
                assert correlation == k and net.produced(payload).error_code == 0
                produced[index] += 1

    def consumer(index):
        client = net.client()
        offset = 0
        while time.monotonic() < end:
            client.send_bytes(net.fetch_frame("t", offset, max_wait_ms=50, min_bytes=1 if index else 1 << 20))
            partition = net.fetched(client.receive()[1])
            assert partition.error_code == 0
            offset = log.log_end_offset if partition.records else offset

    def asker(index):
        rng = random.Random(index)
        client = net.client()
        while time.monotonic() < end:
            bodies = [rng.randbytes(rng.choice([0, 5, 9_000, 200_000])) for _ in range(rng.randrange(1, 4))]
            client.send_bytes(b"".join(client.frame(body, correlation_id=k) for k, body in enumerate(bodies)))
            for k, body in enumerate(bodies):
                assert client.receive() == (k, body)

    def nuisance(index):
        rng = random.Random(index)
        while time.monotonic() < end:
            client = net.client()
            net.clients.remove(client)
            good = rng.choice(
                [
                    net.fetch_frame("t", 10**9, max_wait_ms=5_000),
                    net.produce_frame("t", net.batch(b"n" * 20_000), acks=0),
                    client.frame(b"n" * 50_000),
                ]
            )
            what = rng.randrange(5)
            try:
                if what == 0:
                    client.send_bytes(good[: rng.randrange(1, len(good))])
                elif what == 1:
                    client.send_bytes(struct.pack(">i", rng.choice([-1, 0, 3, 2**31 - 1])) + rng.randbytes(40))
                elif what == 2:
                    flipped = bytearray(good)
                    flipped[rng.randrange(4, len(good))] ^= 1 << rng.randrange(8)
                    client.send_bytes(bytes(flipped) * 2)
                elif what == 3:
                    client.send_bytes(good * 3)
                time.sleep(rng.random() * 0.01)
            except OSError:
                pass
            client.reset() if rng.randrange(2) else client.close()

    def guarded(work, index):
        try:
            work(index)
        except BaseException as error:
            problems.append(f"{work.__name__} {index}: {error!r}")

    works = [
        (producer, 0),
        (producer, 1),
        (producer, 2),
        (consumer, 0),
        (consumer, 1),
        (asker, 0),
        (asker, 1),
        (nuisance, 0),
        (nuisance, 1),
    ]
    threads = [threading.Thread(target=guarded, args=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds + 30)
    assert not problems
    assert log.log_end_offset >= sum(produced) > 0
    for client in net.clients:
        client.close()
    eventually(lambda: net.counters()["connections"]["current"] == 0)
    eventually(lambda: net.server.memory_pool.used == 0)
    counters = net.counters()["connections"]
    assert counters["created"] == sum(value for name, value in counters.items() if name.startswith("closed"))


def test_three_seconds_of_everything(network, eventually):
    run(network(num_network_threads=2, queued_max_requests=4), 3, eventually)


def test_everything_under_a_small_memory_pool(network, eventually):
    run(network(num_network_threads=2, queued_max_request_bytes=1 << 20), 2, eventually)


@pytest.mark.soak
@pytest.mark.timeout(400)
def test_minutes_of_everything(network, eventually):
    run(network(num_network_threads=3, queued_max_request_bytes=4 << 20), 120, eventually)
