"""Replies of many partitions, small and large regions of files mixed: every byte arrives, however slowly it is read."""

from __future__ import annotations

import itertools
import os
import random
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from interop.clients import ConfluentClient
from interop.conftest import make_broker
from system.raw_client import RawClient, batch, produce_request

from kafkapy.protocol.messages.fetch import FetchRequest

SIZES = (1, 900, 4_000, 4_100, 9_000, 16_000, 16_400, 40_000, 300_000)
"""Bytes of a record: on both sides of what is gathered into one write and what goes by sendfile."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    made = make_broker(tmp_path_factory.mktemp("replies"))
    made.start()
    client = ConfluentClient(made.bootstrap)
    client.create_topic("mixed", len(SIZES))
    client.create_topic("cut", 2)
    yield made
    made.stop()
    made.remove()


@pytest.fixture(scope="module")
def batches(broker: Any) -> list[bytes]:
    """What each partition of the topic holds: one batch, as the broker stores it."""
    client = RawClient(broker.bootstrap)
    stored = [batch(random.Random(size).randbytes(size)) for size in SIZES]
    for partition, records in enumerate(stored):
        answer = client.call(produce_request("mixed", records, partition=partition), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0
    client.close()
    return stored


def fetch_of(topic: str, partitions: tuple[int, ...]) -> FetchRequest:
    entries = [
        FetchRequest.Topic.Partition(partition=p, fetch_offset=0, partition_max_bytes=1 << 20) for p in partitions
    ]
    return FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=16 << 20, topics=[FetchRequest.Topic(topic=topic, partitions=entries)]
    )


def orders() -> list[tuple[int, ...]]:
    """Every pair, and some orders of all."""
    rng = random.Random(11)
    everything = list(range(len(SIZES)))
    found: list[tuple[int, ...]] = [(p,) for p in everything]
    found += itertools.permutations(everything, 2)
    found += [tuple(rng.sample(everything, len(everything))) for _ in range(20)]
    return found


@pytest.mark.parametrize("version", [4, 11, 12])
def test_every_order_of_small_and_large_partitions(broker: Any, batches: list[bytes], version: int) -> None:
    client = RawClient(broker.bootstrap)
    for order in orders():
        answer = client.call(fetch_of("mixed", order), version)
        got = {p.partition_index: p.records for p in answer.responses[0].partitions}
        # The partition leader epoch (4 bytes from 12 on) is the broker's.
        assert {p: (r[:12], r[16:]) for p, r in got.items()} == {p: (batches[p][:12], batches[p][16:]) for p in order}
    client.close()


def test_a_reply_read_in_drops(broker: Any, batches: list[bytes]) -> None:
    slow, swift = RawClient(broker.bootstrap, receive_buffer=4096), RawClient(broker.bootstrap)
    order = orders()[-1]
    request = fetch_of("mixed", order)
    slow.send(request, 12)
    swift.send(request, 12)
    whole = swift.receive_frame()
    size = int.from_bytes(slow.socket.recv(4, socket.MSG_WAITALL), "big")
    got = bytearray()
    rng = random.Random(5)
    while len(got) < size:
        part = slow.socket.recv(min(rng.randrange(1, 5_000), size - len(got)))
        assert part, "the connection was closed in the middle of the reply"
        got += part
    assert bytes(got) == whole
    assert sum(len(batches[p]) for p in order) < size
    slow.close()
    swift.close()


@pytest.mark.parametrize(("partition", "size"), [(0, 100), (1, 100_000)])
def test_a_file_that_is_shorter_than_the_log_closes_only_that_connection(
    broker: Any, partition: int, size: int
) -> None:
    client = RawClient(broker.bootstrap)
    client.call(produce_request("cut", batch(b"x" * size), partition=partition), 9)
    (log,) = Path(broker.data_dir).rglob(f"cut-{partition}/*.log")
    os.truncate(log, log.stat().st_size - 10)
    client.send(fetch_of("cut", (partition,)), 12)
    got = bytearray()
    while part := client.socket.recv(1 << 16):
        got += part
    assert not got or len(got) < 4 + int.from_bytes(got[:4], "big")
    client.close()
    other = RawClient(broker.bootstrap)
    assert other.call(fetch_of("mixed", (0,)), 12).responses[0].partitions[0].error_code == 0
    other.close()
