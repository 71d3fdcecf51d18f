"""Workers of a share group that a test kills at any time; they write down what they see and what they are told.

    python queue_worker.py <bootstrap> <queue> <delivery count limit>

The program forks a worker for each line "start <number> <seed> <file>", and answers with its pid. "kill <number>" and
"end <number>" send SIGKILL and SIGTERM; the answer is the worker's exit status. Group and topic have the queue's name.

A worker's lines, each with the monotonic time in ns at the end:

    B 0 0 0                          the worker begins
    D partition offset count         a record is delivered
    S partition offset type          an acknowledgement is about to be sent
    A partition offset type          the broker has taken it
    F partition offset error-code    it has failed, or nobody knows (0)
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
import traceback
from collections import defaultdict, deque
from typing import Any

from kafkapy import AcknowledgeType, ConsumerRecord, KafkaShareConsumer
from kafkapy.errors import KafkaError, NoBrokersAvailableError
from kafkapy.types import TopicPartition

POISON = b"poison"
"""A record that no worker can do."""
BAD = b"bad"
"""A record that a worker rejects."""
WORK_S = 0.002


class Worker:
    """One worker: polls, does the records, and acknowledges them in a manner that its seed decides."""

    def __init__(self, bootstrap: str, queue: str, limit: int, seed: int, path: str) -> None:
        self._stopping = False
        signal.signal(signal.SIGTERM, self._stop)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._random = random.Random(seed)
        self._limit = limit
        self._sent: dict[tuple[int, int], deque[AcknowledgeType]] = defaultdict(deque)
        """Acknowledgements without an outcome; a released record may come again before the outcome does."""
        self._commits = self._random.random() < 0.5
        """Whether it commits; otherwise the next poll sends the acknowledgements."""
        self._write([("B", 0, 0, 0)])
        self._consumer = self._connected(bootstrap, queue)
        self._consumer.set_acknowledgement_commit_callback(self._answered)

    def _connected(self, bootstrap: str, queue: str) -> KafkaShareConsumer:
        while True:
            try:
                return KafkaShareConsumer(
                    queue,
                    bootstrap_servers=bootstrap,
                    group_id=queue,
                    share_acknowledgement_mode="explicit",
                    share_acquire_mode=self._random.choice(["batch_optimized", "record_limit"]),
                    max_poll_records=self._random.choice([1, 10, 50]),
                    fetch_max_wait_ms=50,
                    retry_backoff_ms=20,
                    reconnect_backoff_ms=10,
                    reconnect_backoff_max_ms=50,
                )
            except NoBrokersAvailableError:
                continue

    def _stop(self, *_: object) -> None:
        self._stopping = True

    def _write(self, lines: list[tuple[str, int, int, int]]) -> None:
        now = time.monotonic_ns()
        os.write(self._file, "".join(f"{a} {b} {c} {d} {now}\n" for a, b, c, d in lines).encode())

    def _answered(self, offsets: dict[TopicPartition, list[int]], error: Exception | None) -> None:
        lines = []
        for place, numbers in offsets.items():
            for offset in numbers:
                sent = self._sent[place.partition, offset]
                if not sent:
                    continue  # the client has given back a record that it had not delivered
                kind = sent.popleft()
                if error is None:
                    lines.append(("A", place.partition, offset, int(kind)))
                else:
                    code = int(error.code) if isinstance(error, KafkaError) else 0
                    lines.append(("F", place.partition, offset, code))
        self._write(lines)

    def _outcome(self, record: ConsumerRecord) -> AcknowledgeType:
        assert record.delivery_count is not None
        if record.value.startswith(POISON):
            return AcknowledgeType.RELEASE
        if record.value.startswith(BAD):
            return AcknowledgeType.REJECT
        if record.delivery_count < self._limit - 1 and self._random.random() < 0.05:
            return AcknowledgeType.RELEASE
        return AcknowledgeType.ACCEPT

    def run(self) -> None:
        """Works until SIGTERM."""
        with self._consumer as consumer:
            while not self._stopping:
                records = consumer.poll_batch(timeout_ms=200)
                if not records:
                    continue
                self._write([("D", each.partition, each.offset, each.delivery_count or 0) for each in records])
                time.sleep(self._random.random() * WORK_S)
                outcomes = [self._outcome(each) for each in records]
                pairs = list(zip(records, outcomes, strict=True))
                self._write([("S", each.partition, each.offset, int(kind)) for each, kind in pairs])
                for record, kind in pairs:
                    self._sent[record.partition, record.offset].append(kind)
                    consumer.acknowledge(record, kind)
                if self._commits:
                    consumer.commit_sync()


def main(bootstrap: str, queue: str, limit: str) -> None:
    """Starts and ends workers as the lines of the standard input say."""
    running: dict[str, int] = {}
    for line in sys.stdin:
        order, number, *rest = line.split()
        if order == "start":
            seed, path = rest
            pid = os.fork()
            if pid == 0:
                child(bootstrap, queue, int(limit), int(seed), path)
            running[number] = pid
            print(pid, flush=True)
        else:
            pid = running.pop(number)
            os.kill(pid, signal.SIGKILL if order == "kill" else signal.SIGTERM)
            print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
    # The test has ended, perhaps in a hurry.
    for pid in running.values():
        os.kill(pid, signal.SIGKILL)


def child(*arguments: Any) -> None:
    """A worker's whole life."""
    status = 1
    try:
        sys.stdin.close()
        Worker(*arguments).run()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


if __name__ == "__main__":
    main(*sys.argv[1:])
