"""Members of groups that stay while a block runs: foreign clients in threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer


def eventually(condition: Callable[[], object], timeout_s: float = 30.0) -> None:
    """Waits until a condition holds."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.05)


@contextmanager
def member(bootstrap: str, group: str, topic: str, **configs: str) -> Iterator[Consumer]:
    """A consumer that has its assignment and polls on until the block ends."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", **configs})
    assigned = threading.Event()
    ended = threading.Event()
    consumer.subscribe([topic], on_assign=lambda *_: assigned.set())

    def poll() -> None:
        while not ended.is_set():
            consumer.poll(0.05)

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        assert assigned.wait(30), "no assignment"
        yield consumer
    finally:
        ended.set()
        thread.join()
        consumer.close()
