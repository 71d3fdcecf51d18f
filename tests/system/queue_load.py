"""A queue under load whose workers and broker are killed, and what must hold for each of its records.

A worker writes down every delivery, and every acknowledgement that the broker has taken (queue_worker.py). The broker's
own log of states says what has become of each record. Both together show a lost record, one that came again after it
was done, and one that was put aside too early.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from system.queue_worker import BAD, POISON

from kafkapy import AcknowledgeType, KafkaAdminClient, KafkaConsumer, KafkaProducer, KafkaShareConsumer
from kafkapy.admin import ConfigResource
from kafkapy.coordinator.share.records import SHARE_RECORDS, SNAPSHOT, share_key_of
from kafkapy.errors import KafkaError
from kafkapy.types import TopicPartition

KEYS = {
    "offsets.topic.num.partitions": "2",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "2",
    "group.share.heartbeat.interval.ms": "200",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.session.timeout.ms": "1500",
    "group.share.min.session.timeout.ms": "1000",
    "group.share.record.lock.duration.ms": "600000",
    "group.share.max.record.lock.duration.ms": "600000",
}
"""Dead members end soon. No lock ends: the end of its connection gives a worker's records back, and a worker that
stands still for long on a busy machine keeps them."""
STATES = "__share_group_state"
BACKLOG = 1500
STANDSTILL_S = 120.0
"""Far beyond what a busy machine takes for one step."""
PAUSE_S = 0.01
ACKNOWLEDGED, ARCHIVED = 2, 4
"""Final states of records in the log of states."""

Place = tuple[int, int]
"""(partition, offset)."""


class Line(NamedTuple):
    """One line of a worker; `value` is its count, type or error code."""

    kind: str
    partition: int
    offset: int
    value: int
    time_ns: int

    @property
    def place(self) -> Place:
        """The record."""
        return self.partition, self.offset


class Workers:
    """The workers of a queue, which are started and killed by number, and their lines."""

    def __init__(self, folder: Path, bootstrap: str, queue: str, limit: int) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self.running: list[int] = []
        self.files: list[Path] = []
        self.killed = 0
        self.accepted = 0
        """Lines of accepted records so far."""
        self._read: dict[int, int] = {}
        root = Path(__file__).parents[2]
        program = [sys.executable, str(Path(__file__).with_name("queue_worker.py")), bootstrap, queue, str(limit)]
        self._errors = (folder / "errors.txt").open("w")
        self._program = subprocess.Popen(
            program,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=os.environ | {"PYTHONPATH": str(root)},
        )

    def _order(self, order: str) -> int:
        assert self._program.stdin is not None and self._program.stdout is not None
        self._program.stdin.write(order + "\n")
        self._program.stdin.flush()
        answer = self._program.stdout.readline()
        assert answer, f"the workers' program ended: {self.errors()}"
        return int(answer)

    def errors(self) -> str:
        """What workers have written before they failed."""
        return (self._folder / "errors.txt").read_text()[-4000:]

    def start(self, seed: int) -> None:
        """Starts one more worker."""
        number = len(self.files)
        self.files.append(self._folder / f"worker-{number}")
        self._order(f"start {number} {seed} {self.files[-1]}")
        self.running.append(number)

    def kill(self, number: int) -> None:
        """SIGKILL, for a worker that lives."""
        self.running.remove(number)
        status = self._order(f"kill {number}")
        assert status == -9, f"worker {number} had failed: {self.errors()}"
        self.killed += 1

    def look(self) -> int:
        """The number of records that are accepted until now."""
        for number, file in enumerate(self.files):
            if file.exists():
                with file.open("rb") as stream:
                    stream.seek(self._read.get(number, 0))
                    found = stream.read()
                self._read[number] = self._read.get(number, 0) + len(found)
                self.accepted += found.count(b"A ")
        return self.accepted

    def end(self) -> None:
        """SIGTERM to all; each ends by itself, once it has begun."""
        for number in list(self.running):
            wait_while_it_moves(self.files[number].exists, bool, f"worker {number} begins")
            status = self._order(f"end {number}")
            assert status == 0, f"worker {number} failed: {self.errors()}"
            self.running.remove(number)

    def close(self) -> None:
        """Ends the program, whatever has happened."""
        if self._program.poll() is None:
            for number in self.running:
                self._order(f"kill {number}")
        self.running.clear()
        assert self._program.stdin is not None and self._program.stdout is not None
        self._program.stdin.close()
        self._program.wait()
        self._program.stdout.close()
        self._errors.close()

    def lines(self) -> list[tuple[int, list[Line]]]:
        """The lines by worker. The last one of a killed worker may be cut."""
        found = []
        for number, file in enumerate(self.files):
            lines = []
            for text in file.read_text().splitlines(keepends=True) if file.exists() else ():
                kind, *numbers = text.split()
                if len(numbers) == 4 and text.endswith("\n"):
                    lines.append(Line(kind, *map(int, numbers)))
            found.append((number, lines))
        return found


class Queue:
    """A topic and the share group of the same name, on brokers that run."""

    def __init__(
        self,
        bootstrap: str,
        folder: Path,
        name: str,
        partitions: int,
        limit: int,
        source: random.Random,
        replicas: int = 1,
    ) -> None:
        """`limit`: of deliveries. The workers write below `folder`."""
        self.bootstrap = bootstrap
        self.name = name
        self.partitions = partitions
        self.limit = limit
        self.source = source
        self.values: dict[int, bytes] = {}
        """What was sent, by number."""
        with self.admin() as admin:
            admin.create_topics({name: {"num_partitions": partitions, "replication_factor": replicas}})
            keys = {"share.auto.offset.reset": "earliest", "share.delivery.count.limit": str(limit)}
            admin.alter_configs([ConfigResource("GROUP", name, keys)])
        self.workers = Workers(folder / name, bootstrap, name, limit)
        self.producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            linger_ms=2,
            delivery_timeout_ms=600_000,
            retry_backoff_ms=20,
            reconnect_backoff_ms=10,
            reconnect_backoff_max_ms=50,
        )

    def admin(self) -> KafkaAdminClient:
        """A new client for one task."""
        return KafkaAdminClient(bootstrap_servers=self.bootstrap)

    # --- load ---------------------------------------------------------------------------------------------------------

    def produce(self, count: int) -> None:
        """Sends records; some of them cannot be done by any worker, and some are rejected."""
        for _ in range(count):
            number = len(self.values)
            chance = self.source.random()
            kind = POISON if chance < 0.004 else BAD if chance < 0.01 else b"job"
            self.values[number] = b"%s %d %s" % (kind, number, b"x" * self.source.randrange(200))
            self.producer.send(self.name, self.values[number], partition=self.source.randrange(self.partitions))

    def go_on(self) -> None:
        """One step of the load: more records while few are open."""
        if len(self.values) - self.workers.look() < BACKLOG:
            self.produce(self.source.randrange(1, 60))

    def kill_worker(self) -> None:
        """Kills one of the workers; another one takes its place."""
        self.workers.kill(self.source.choice(self.workers.running))
        self.workers.start(self.source.randrange(1 << 30))

    # --- the end ------------------------------------------------------------------------------------------------------

    def lag(self, admin: KafkaAdminClient) -> int:
        """The records that are neither accepted nor archived; -1 while that is not known."""
        try:
            found = admin.list_share_group_offsets(self.name)[self.name]
        except KafkaError as error:
            assert error.retriable or "GroupIdNotFound" in type(error).__name__, error
            return -1
        lags = [each.lag for each in found.values()]
        if len(lags) < self.partitions or any(each is None or each < 0 for each in lags):
            return -1
        return sum(each or 0 for each in lags)

    def finish(self) -> None:
        """Waits until nothing is left, and ends the workers."""
        self.producer.flush()
        self.producer.close()
        with self.admin() as admin:
            wait_while_it_moves(
                lambda: (self.lag(admin), self.workers.look()), lambda state: state[0] == 0, "(lag, accepted)"
            )
            self.workers.end()
            with KafkaShareConsumer(
                self.name, bootstrap_servers=self.bootstrap, group_id=self.name, fetch_max_wait_ms=100
            ) as another:
                records: list[Any] = []

                def assigned() -> int:
                    records.extend(another.poll_batch(timeout_ms=200))
                    return len(another.assignment())

                wait_while_it_moves(assigned, lambda count: count == self.partitions, "assigned partitions")
                records += another.poll_batch(timeout_ms=500)
                assert records == [], "an empty queue has records"
            assert self.lag(admin) == 0

    def records(self) -> dict[Place, bytes]:
        """Everything in the topic."""
        found: dict[Place, bytes] = {}
        with KafkaConsumer(bootstrap_servers=self.bootstrap, enable_auto_commit=False) as consumer:
            for place, value in read_all(consumer, self.name):
                assert value is not None
                found[place] = value[1]
        return found

    def final_states(self) -> dict[Place, tuple[int, int]]:
        """(state, delivery count) of each record that has its final state, from the broker's log of states."""
        final: dict[Place, tuple[int, int]] = {}
        with self.admin() as admin:
            topic_id = UUID(admin.describe_topics([self.name])[0]["topic_id"])
        with KafkaConsumer(bootstrap_servers=self.bootstrap, enable_auto_commit=False) as consumer:
            for _, (key, value) in read_all(consumer, STATES):
                record = SHARE_RECORDS.decode(key or b"", value)
                assert record is not None and record.key_version in (SNAPSHOT, 1)
                whose = share_key_of(record)
                if (whose.group_id, whose.topic_id) != (self.name, topic_id) or record.value is None:
                    continue
                for batch in record.value.state_batches:  # type: ignore[attr-defined]
                    if batch.delivery_state in (ACKNOWLEDGED, ARCHIVED):
                        for offset in range(batch.first_offset, batch.last_offset + 1):
                            place = whose.partition, offset
                            state = batch.delivery_state, batch.delivery_count
                            assert final.setdefault(place, state) == state, f"a final state of {place} has changed"
        return final

    def check(self, *, leaders_move: bool = False) -> Counter[str]:
        """Everything that must hold at the end; returns what has happened how often.

        `leaders_move`: a leader may take the states anew while workers have records of it. What lies below the start
        offset is done then: whoever had it before, and acknowledges it later, gets no error, as in Kafka.
        """
        records, final = self.records(), self.final_states()
        assert sorted(records.values()) == sorted(self.values.values()), "records lost or doubled by the producer"
        done: dict[Place, Line] = {}
        delivered: dict[Place, int] = defaultdict(int)
        asked: dict[Place, set[int]] = defaultdict(set)
        counted = Counter({"records": len(records), "worker kills": self.workers.killed})
        taken: dict[Place, list[tuple[Line, int]]] = defaultdict(list)
        for _, lines in self.workers.lines():
            sent: dict[Place, int] = {}
            for line in lines:
                counted[line.kind] += 1
                if line.kind == "D":
                    assert 1 <= line.value <= self.limit, f"{line} exceeds the limit of {self.limit} deliveries"
                    delivered[line.place] = max(delivered[line.place], line.value)
                elif line.kind == "S":
                    asked[line.place].add(line.value)
                    sent[line.place] = line.time_ns
                elif line.kind == "A" and line.value != AcknowledgeType.RELEASE:
                    taken[line.place].append((line, sent[line.place]))
        for place, outcomes in taken.items():
            done[place] = min((line for line, _ in outcomes), key=lambda line: line.time_ns)
            for line, sent_ns in outcomes:
                late = leaders_move and sent_ns > done[place].time_ns
                assert line is done[place] or late, f"two outcomes of a record were taken: {done[place]} and {line}"
                counted["late outcomes"] += late
        self._check_new_workers(done)
        for place, value in records.items():
            self._check_record(place, value, done.get(place), asked[place], delivered[place], final.get(place), counted)
        return counted

    def _check_new_workers(self, done: dict[Place, Line]) -> None:
        """A worker that began after a record was done never sees it: whatever it gets, the broker has given it since.

        An older one may read a response from before: its acknowledgement fails.
        """
        for number, lines in self.workers.lines():
            began = next((line.time_ns for line in lines if line.kind == "B"), 0)
            for line in lines:
                if line.kind == "D" and line.place in done:
                    assert done[line.place].time_ns > began, (
                        f"worker {number} began at {began} and got {line}, which was done: {done[line.place]}"
                    )

    def _check_record(
        self,
        place: Place,
        value: bytes,
        done: Line | None,
        asked: set[int],
        delivered: int,
        final: tuple[int, int] | None,
        counted: Counter[str],
    ) -> None:
        wanted = AcknowledgeType.REJECT if value.startswith(BAD) else AcknowledgeType.ACCEPT
        if done is not None:
            assert done.value == wanted
            assert final is None or final[0] == (ARCHIVED if wanted is AcknowledgeType.REJECT else ACKNOWLEDGED)
            return
        story = f"record {place} {value[:20]!r}, delivered {delivered} of {self.limit} times, asked {asked}, {final}"
        if wanted in asked and not value.startswith(POISON):
            # Its worker or the broker died before the outcome was known, and the broker had written it.
            counted["outcomes unknown"] += 1
            assert final is None or final[0] in (ACKNOWLEDGED, ARCHIVED), story
            if final is not None and final[0] == ARCHIVED and wanted is AcknowledgeType.ACCEPT:
                assert final[1] >= self.limit, f"put aside too early: {story}"
            return
        # Nobody ever tried to finish it: it used up its deliveries. A worker that was killed before it could write down
        # one of them has swallowed that.
        counted["archived"] += 1
        assert (final is None and delivered + self.workers.killed >= self.limit) or (
            final is not None and final[0] == ARCHIVED and final[1] >= self.limit
        ), f"lost: {story}"

    def close(self) -> None:
        """Ends what runs."""
        self.workers.close()
        self.producer.close(0)


def read_all(consumer: KafkaConsumer, topic: str) -> list[tuple[Place, tuple[bytes | None, bytes | None]]]:
    """Each record of a topic, with key and value."""
    places = [TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic) or ())]
    assert places
    consumer.assign(places)
    consumer.seek_to_beginning(*places)
    ends = consumer.end_offsets(places)
    found = []
    while any(consumer.position(place) < ends[place] for place in places):
        for place, records in consumer.poll(1000).items():
            found += [((place.partition, each.offset), (each.key, each.value)) for each in records]
    return found


def wait_while_it_moves(state: Callable[[], Any], done: Callable[[Any], bool], what: str) -> None:
    """Returns when the state is done. AssertionError when it has not moved for long."""
    last: Any = None
    end = 0.0
    while True:
        now = state()
        if done(now):
            return
        if now != last or not end:
            last, end = now, time.monotonic() + STANDSTILL_S
        assert time.monotonic() < end, f"no movement for {STANDSTILL_S:.0f} s: {what}: {now}"
        time.sleep(PAUSE_S)
