"""An exactly-once pipeline under kills: numbered records go in, a worker passes them on in transactions, a reader of
committed records counts what comes out, while worker and broker are killed at random. The seed of the dice is printed,
and taken from KAFKAPY_SEED.
"""

from __future__ import annotations

import collections
import contextlib
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import confluent_kafka
import confluent_kafka.admin
from interop.conftest import make_broker
from interop.exactly_once_worker import ABORTED, FENCED

SOURCE, TARGET = "input", "output"
PARTITIONS = 4
KEYS = 50
STUCK_S = 30
"""Without anything new for so long the worker is replaced, as one who looks after programs would do. It is more than
any of its own timeouts: librdkafka can wait for ever in send_offsets_to_transaction when a broker was killed meanwhile
(confluentinc/librdkafka#5456).
"""
FROZEN_S = 4
"""More than the worker's session timeout."""
SETTINGS = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "group.min.session.timeout.ms": "1000",
    "num.partitions": str(PARTITIONS),
}


@dataclass
class Pipeline:
    """Owns broker, worker and reader. `worker` gives the command line for the address of a broker; `zombies` says that
    a worker ends with FENCED when another one has taken its place, and so may be frozen, replaced and woken up.
    """

    folder: Path
    worker: Callable[[str], list[str]]
    count: int
    kills: int
    zombies: int = 0
    stuck_s: float = STUCK_S
    seed: int = field(default_factory=lambda: int(os.environ.get("KAFKAPY_SEED") or random.randrange(1 << 32)))
    done: collections.Counter[str] = field(default_factory=collections.Counter)

    def run(self) -> None:
        """Pass all records through and check what comes out. Raises AssertionError."""
        print(f"KAFKAPY_SEED={self.seed}", flush=True)
        self.dice = random.Random(self.seed)
        self.broker = make_broker(self.folder, **SETTINGS)
        self.log = self.folder / "worker.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.frozen: list[tuple[int, subprocess.Popen[bytes]]] = []
        """Each with the number of records out of the pipeline at which it wakes up."""
        self.broker.start()
        try:
            self._fill()
            received, took = self._pass_on()
            self._check(received)
            print(f"{self.count} records in {took:.1f} s, {self.count / took:.0f}/s: {dict(self.done)}", flush=True)
        finally:
            for process in [self.process, *(zombie for _, zombie in self.frozen)]:
                if process is not None:
                    process.kill()
                    process.wait()
            self.broker.remove()

    # --- what goes in ---------------------------------------------------------------------------------------------

    def _fill(self) -> None:
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": self.broker.bootstrap})
        topics = [confluent_kafka.admin.NewTopic(name, PARTITIONS, 1) for name in (SOURCE, TARGET)]
        for created in admin.create_topics(topics).values():
            created.result(30)
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": self.broker.bootstrap, "enable.idempotence": True, "linger.ms": 5}
        )
        for number in range(self.count):
            key = number % KEYS
            while True:
                try:
                    producer.produce(SOURCE, b"%d" % number, key=b"%d" % key, partition=key % PARTITIONS)
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(120) == 0

    # --- what happens meanwhile -----------------------------------------------------------------------------------

    def _pass_on(self) -> tuple[list[tuple[bytes, bytes]], float]:
        """Keys and values in the order read, and the seconds that it took."""
        begin = last_at = time.monotonic()
        events = ["kill"] * self.kills + ["freeze"] * self.zombies
        self.dice.shuffle(events)
        # Each comes after another share of the records, wherever the worker is then.
        due = sorted(self.dice.randrange(self.count // 20, self.count * 9 // 10) for _ in events)
        received: list[tuple[bytes, bytes]] = []
        reader = Reader(self.broker.bootstrap, "read_committed")
        while len(received) < self.count:
            self._replace_ended()
            self._look_after_zombies(len(received))
            if found := reader.read():
                received += found
                last_at = time.monotonic()
            elif time.monotonic() - last_at > self.stuck_s:
                self._end_stuck(len(received))
                # A reader may be what is stuck, too.
                reader = reader.successor()
                last_at = time.monotonic()
            if due and len(received) >= due[0]:
                due.pop(0)
                self._disturb(events.pop(), len(received))
        took = time.monotonic() - begin
        assert not due
        # What is left of the zombies has nothing to do but to be fenced, and nothing more may come out.
        received += reader.read(2)
        self._look_after_zombies(self.count)
        reader.close()
        return received, took

    def _replace_ended(self) -> None:
        if self.process is None or self.process.poll() is not None:
            if self.process is not None and self.process.returncode > 0:
                self.done["worker gave up"] += 1
            with self.log.open("ab") as log:
                self.process = subprocess.Popen(self.worker(self.broker.bootstrap), stdout=log, stderr=log)

    def _end_stuck(self, received: int) -> None:
        assert self.process is not None
        assert self.done["stuck"] <= self.kills + self.zombies, f"the pipeline stands still: {self._log_tail()}"
        self.done["stuck"] += 1
        self.process.send_signal(signal.SIGABRT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        self.process.kill()
        self.process.wait()
        for frozen_at, zombie in list(self.frozen):
            # One that is awake may be stuck in the same way. Its heartbeats go on, so the group waits for it to join.
            if received > frozen_at:
                zombie.kill()
                zombie.wait()
                self.frozen.remove((frozen_at, zombie))
                self.done["zombie stuck"] += 1

    def _disturb(self, event: str, received: int) -> None:
        time.sleep(self.dice.random() * 0.2)
        assert self.process is not None
        if event == "freeze":
            self.process.send_signal(signal.SIGSTOP)
            time.sleep(self.dice.random() * FROZEN_S)
            self.frozen.append((received + self.count // 50, self.process))
            self.process = None
            self.done["worker frozen"] += 1
        elif self.dice.random() < 0.5:
            self.broker.kill()
            time.sleep(self.dice.random() * self.dice.choice([0, 0, 3]))
            self.broker.start()
            self.done["broker killed"] += 1
        else:
            self.process.kill()
            self.process.wait()
            self.done["worker killed"] += 1

    def _look_after_zombies(self, received: int) -> None:
        """Once its successor has got on, a frozen worker goes on with what it was doing, and is fenced."""
        for frozen_at, zombie in list(self.frozen):
            if received > frozen_at:
                zombie.send_signal(signal.SIGCONT)
            if zombie.poll() is not None:
                self.done["zombie fenced" if zombie.returncode == FENCED else "zombie gave up"] += 1
                self.frozen.remove((frozen_at, zombie))

    # --- what comes out -------------------------------------------------------------------------------------------

    def _check(self, received: list[tuple[bytes, bytes]]) -> None:
        assert ABORTED not in {value for _, value in received}
        numbers = collections.Counter(int(value) for _, value in received)
        twice = [number for number, times in numbers.items() if times > 1]
        missing = [number for number in range(self.count) if number not in numbers]
        assert (twice[:20], missing[:20]) == ([], []), self._log_tail()
        by_key: dict[bytes, list[int]] = collections.defaultdict(list)
        for key, value in received:
            by_key[key].append(int(value))
        assert by_key.keys() == {b"%d" % key for key in range(KEYS)}
        assert all(found == sorted(found) for found in by_key.values())
        # From the beginning again: nothing else has become visible, and what was aborted is in the log.
        again = Reader(self.broker.bootstrap, "read_committed")
        assert sorted(again.read_all()) == sorted(received)
        again.close()
        everything = Reader(self.broker.bootstrap, "read_uncommitted")
        self.done["aborted records"] = len(everything.read_all()) - len(received)
        everything.close()

    def _log_tail(self) -> str:
        return self.log.read_text(errors="replace")[-4000:] if self.log.exists() else ""


class Reader:
    """Reads all partitions of the output."""

    def __init__(self, bootstrap: str, isolation: str, positions: dict[int, int] | None = None) -> None:
        self.bootstrap = bootstrap
        self.isolation = isolation
        self.positions = positions or dict.fromkeys(range(PARTITIONS), 0)
        self.consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "reader",
                "isolation.level": isolation,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "reconnect.backoff.max.ms": 500,
                "fetch.wait.max.ms": 100,
                "log_level": 0,
            }
        )
        self.consumer.assign([confluent_kafka.TopicPartition(TARGET, *each) for each in self.positions.items()])
        self.ends: set[int] = set()
        """Partitions read to their end."""

    def read(self, seconds: float = 0.05) -> list[tuple[bytes, bytes]]:
        found = []
        for message in self.consumer.consume(1000, seconds):
            error = message.error()
            if error is None:
                found.append((message.key(), message.value()))
                self.positions[message.partition()] = message.offset() + 1
                self.ends.discard(message.partition())
            elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                self.ends.add(message.partition())
        return found

    def read_all(self) -> list[tuple[bytes, bytes]]:
        """Everything up to the end of each partition."""
        found: list[tuple[bytes, bytes]] = []
        deadline = time.monotonic() + 300
        while len(self.ends) < PARTITIONS:
            found += self.read(0.2)
            assert time.monotonic() < deadline, f"{self.isolation}: only the ends of {self.ends} are reached"
        return found

    def successor(self) -> Reader:
        """One that goes on where this one is."""
        self.close()
        return Reader(self.bootstrap, self.isolation, self.positions)

    def close(self) -> None:
        self.consumer.close()
