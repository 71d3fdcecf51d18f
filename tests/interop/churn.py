"""A group under churn: members of several clients join, leave and are killed at random while records are produced, and
the broker is killed in the middle. Afterwards the group has to settle, and what the members wrote down
(churn_member.py) and what the group's own log says has to fit together. The seed of the dice is printed, and taken from
KAFKAPY_SEED.
"""

from __future__ import annotations

import collections
import itertools
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin

from kafkapy.coordinator.group.records import GROUP_RECORDS
from kafkapy.coordinator.partitioning import partition_of
from kafkapy.coordinator.records import CoordinatorRecord
from kafkapy.protocol.messages.consumer_group_records import ConsumerGroupCurrentMemberAssignmentKey
from kafkapy.protocol.messages.consumer_protocol import ConsumerProtocolAssignment
from kafkapy.protocol.messages.group_metadata_records import GroupMetadataKey, OffsetCommitKey

PARTITIONS = 12
MOST_MEMBERS = 5
SETTLED_S = 60
"""By then the members that are left share all partitions: a few session timeouts and rebalances."""
SETTINGS = {
    "num.partitions": str(PARTITIONS),
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.heartbeat.interval.ms": "300",
    "group.consumer.heartbeat.interval.ms": "300",
}
PROGRAM = Path(__file__).with_name("churn_member.py")
GROUP_TOPIC, GROUP_PARTITIONS = "__consumer_offsets", 50


Command = Callable[[], list[str]]
"""Gives the command line of a member, less its arguments."""


def python_member(kind: str) -> list[str]:
    """The command line of a member of churn_member.py, less its arguments."""
    return [sys.executable, str(PROGRAM), kind]


class Load:
    """Owns a producer on a thread of its own: a few records for each partition, over and over, until it is closed."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.topic = topic
        self.ends = [0] * PARTITIONS
        """Log end offset of each partition, as far as acknowledged."""
        self.failure: str | None = None
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        )
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _delivered(self, error: object, message: Any) -> None:
        if error is not None:
            self.failure = str(error)
        else:
            self.ends[message.partition()] = max(self.ends[message.partition()], message.offset() + 1)

    def _run(self) -> None:
        for number in itertools.count():
            if self._closing.wait(0.05):
                return
            for partition in range(PARTITIONS):
                self._producer.produce(self.topic, b"%d" % number, partition=partition, on_delivery=self._delivered)
                self._producer.produce(self.topic, b"%d" % number, partition=partition, on_delivery=self._delivered)
            self._producer.poll(0)

    def close(self) -> list[int]:
        """The ends of all partitions."""
        self._closing.set()
        self._thread.join()
        assert self._producer.flush(60) == 0
        assert self.failure is None, self.failure
        return self.ends


@dataclass
class Member:
    """One process and what it wrote down."""

    kind: str
    process: subprocess.Popen[bytes]
    journal: Path
    said: Path
    ended_at: float | None = None
    """When it was killed, or found ended."""
    leaving: bool = False

    def leave(self) -> None:
        """Tell it to end in peace; only once, as Python dies of a second signal while it ends."""
        if not self.leaving:
            self.leaving = True
            self.process.terminate()

    def events(self) -> list[dict[str, Any]]:
        if not self.journal.exists():
            return []
        # The last line may be cut off by a kill.
        lines = self.journal.read_bytes().split(b"\n")[:-1]
        return [json.loads(line) for line in lines]

    def partitions(self) -> set[int]:
        """What it owns now."""
        owned: set[int] = set()
        for event in self.events():
            if event["e"] == "assigned":
                owned |= {*event["p"]}
            elif event["e"] in ("revoked", "lost"):
                owned -= {*event["p"]}
        return owned

    def tail(self) -> str:
        return f"{self.kind}, exit code {self.process.poll()}: {self.said.read_text(errors='replace')[-3000:]}"


@dataclass
class Owned:
    """Somebody owned a partition for a time."""

    member: Member
    member_id: str
    generation: int
    begin: float
    end: float
    how: str
    """revoked, lost, or killed."""


@dataclass
class Churn:
    """Owns members, load and what they left behind. The broker is the caller's. With `classic` all members have the
    classic protocol, and so has the group; else it is of the consumer protocol whenever a member is (KIP-848).
    """

    folder: Path
    broker: Any
    topic: str
    classic: bool
    kinds: dict[str, tuple[Command, str]]
    """What members are there to choose from, by name: how they are started, and which protocol each has."""
    seconds: float
    seed: int = field(default_factory=lambda: int(os.environ.get("KAFKAPY_SEED") or random.randrange(1 << 32)))
    done: collections.Counter[str] = field(default_factory=collections.Counter)
    all: list[Member] = field(default_factory=list)

    @property
    def group(self) -> str:
        return f"group-of-{self.topic}"

    @property
    def live(self) -> list[Member]:
        return [member for member in self.all if member.ended_at is None]

    def run(self) -> None:
        """Churn, settle, check. Raises AssertionError."""
        print(f"KAFKAPY_SEED={self.seed}", flush=True)
        self.dice = random.Random(self.seed)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": self.broker.bootstrap, "log_level": 0})
        self.admin.create_topics([confluent_kafka.admin.NewTopic(self.topic, PARTITIONS, 1)])[self.topic].result(30)
        load = Load(self.broker.bootstrap, self.topic)
        try:
            self._come_and_go()
            begin = time.monotonic()
            self._wait(self._shared, SETTLED_S, "the partitions are not shared")
            settled = time.monotonic() - begin
            ends = load.close()
            self._wait(lambda: not self._unread(ends), SETTLED_S, "records are missing")
            # The last rebalance may still be going on, and who leaves meanwhile has nothing committed (nor in Kafka).
            self._wait(lambda: self._shared() and self._committed() == ends, SETTLED_S, "records are not committed")
            for member in self.live:
                member.leave()
            self._wait(lambda: not self.live, SETTLED_S, "a member does not end")
            self._check(ends)
        finally:
            for member in self.live:
                member.process.kill()
                member.process.wait()
            load.close()
        print(f"{self.topic}: settled after {settled:.1f} s, {sum(ends)} records: {dict(self.done)}", flush=True)

    # --- churn ----------------------------------------------------------------------------------------------------

    def _come_and_go(self) -> None:
        for _ in range(2):
            self._start()
        self._wait(lambda: any(member.partitions() for member in self.all), SETTLED_S, "nobody reads")
        begin = time.monotonic()
        broker_dies_at = begin + self.seconds / 2
        while time.monotonic() < begin + self.seconds:
            if broker_dies_at is not None and time.monotonic() > broker_dies_at:
                broker_dies_at = float("inf")
                self.broker.kill()
                time.sleep(self.dice.random())
                self.broker.start()
                self.done["broker killed"] += 1
            self._reap()
            live = self.live
            if len(live) < 2 or (len(live) < MOST_MEMBERS and self.dice.random() < 0.55):
                self._start()
            else:
                victim = self.dice.choice(live)
                # One that has not begun to write cannot be told to leave yet.
                if self.dice.random() < 0.5 or not victim.events():
                    victim.process.kill()
                    victim.process.wait()
                    victim.ended_at = time.monotonic()
                    self.done["killed"] += 1
                else:
                    victim.leave()
                    self.done["left"] += 1
            time.sleep(self.dice.random() * 2)
        while len(self.live) < 2:
            self._start()

    def _start(self) -> None:
        kind = self.dice.choice(sorted(self.kinds))
        number = len(self.all)
        journal, said = self.folder / f"{number}.events", self.folder / f"{number}.log"
        command, protocol = self.kinds[kind]
        arguments = [str(journal), self.broker.bootstrap, self.group, self.topic, protocol]
        with said.open("wb") as log:
            process = subprocess.Popen([*command(), *arguments], stdout=log, stderr=log)
        self.all.append(Member(kind, process, journal, said))
        self.done[kind] += 1

    def _reap(self) -> None:
        """Members that were told to leave end by themselves; nobody else does."""
        for member in self.live:
            if member.process.poll() is not None:
                events = member.events()
                assert member.process.returncode == 0, member.tail()
                assert events, member.tail()
                assert events[-1]["e"] == "ended", member.tail()
                member.ended_at = events[-1]["t"]

    def _wait(self, condition: Callable[[], object], seconds: float, what: str) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            self._reap()
            owners = [(member.kind, sorted(member.partitions()), member.said.name) for member in self.live]
            assert time.monotonic() < deadline, f"{what} after {seconds} s: {owners} in {self.folder}"
            time.sleep(0.1)

    def _shared(self) -> bool:
        """Every partition has one owner; those that were told to leave are gone."""
        owned = [partition for member in self.live for partition in member.partitions()]
        return sorted(owned) == list(range(PARTITIONS)) and all(member.partitions() for member in self.live)

    def _committed(self) -> list[int]:
        """What the coordinator says is committed for each partition; -1001 where nothing is."""
        everything = [confluent_kafka.TopicPartition(self.topic, partition) for partition in range(PARTITIONS)]
        asked = confluent_kafka.ConsumerGroupTopicPartitions(self.group, everything)
        answer = self.admin.list_consumer_group_offsets([asked])[self.group].result(30)
        found = {each.partition: each.offset for each in answer.topic_partitions}
        return [found[partition] for partition in range(PARTITIONS)]

    # --- checks ---------------------------------------------------------------------------------------------------

    def _unread(self, ends: Sequence[int]) -> dict[int, list[int]]:
        """Offsets of each partition that no member has written down."""
        read: dict[int, set[int]] = collections.defaultdict(set)
        for member in self.all:
            for event in member.events():
                for partition, first, last in event.get("r", ()):
                    read[partition].update(range(first, last + 1))
        missing = {partition: sorted({*range(end)} - read[partition]) for partition, end in enumerate(ends)}
        return {partition: offsets for partition, offsets in missing.items() if offsets}

    def _check(self, ends: Sequence[int]) -> None:
        records = list(group_log(self.broker.bootstrap, self.group))
        self._check_commits(records, ends)
        members = self._check_generations(records)
        self._check_current_assignments(records)
        self._check_owners(members)

    def _check_commits(self, records: Sequence[CoordinatorRecord], ends: Sequence[int]) -> None:
        """Committed offsets only grow, and in the end everything is committed."""
        committed = dict.fromkeys(range(PARTITIONS), 0)
        for record in records:
            if isinstance(record.key, OffsetCommitKey):
                assert record.value is not None, f"a committed offset is gone: {record.key}"
                offset = record.value.offset  # type: ignore[attr-defined]
                before = committed[record.key.partition]
                assert offset >= before, f"{record.key} goes back from {before} to {offset}"
                committed[record.key.partition] = offset
                self.done["commits"] += 1
        behind = {number: (committed[number], end) for number, end in enumerate(ends) if committed[number] != end}
        refused = [event for member in self.all for event in member.events() if event["e"] == "refused"]
        assert not behind, f"{behind} {refused[-4:]} {self.folder}"

    def _check_generations(self, records: Sequence[CoordinatorRecord]) -> dict[int, set[str]]:
        """No generation gives a partition to two members. The members of each generation."""
        members: dict[int, set[str]] = {}
        last = 0
        for record in records:
            if not isinstance(record.key, GroupMetadataKey):
                continue
            value: Any = record.value
            if value is None:
                assert not self.classic, "the group is gone"
                last = 0  # a group of the consumer protocol in place of an empty classic one begins anew, as in Kafka
                continue
            assert value.generation >= last, f"generation {value.generation} after {last}"
            last = value.generation
            owners: dict[int, str] = {}
            for member in value.members:
                if not member.assignment:
                    continue
                _, assignment = ConsumerProtocolAssignment.decode_versioned(member.assignment)
                for topic in assignment.assigned_partitions:
                    for partition in topic.partitions:
                        other = owners.setdefault(partition, member.member_id)
                        assert other == member.member_id, f"{partition} of generation {last} has two owners"
            if value.members:
                members[last] = {member.member_id for member in value.members}
        self.done["generations"] = last
        return members

    def _check_current_assignments(self, records: Sequence[CoordinatorRecord]) -> None:
        """At no point of the log two members have the same partition, assigned or not yet given up (KIP-848)."""
        current: dict[str, set[int]] = {}
        epoch = 0
        for record in records:
            if not isinstance(record.key, ConsumerGroupCurrentMemberAssignmentKey):
                continue
            value: Any = record.value
            if value is None:
                current.pop(record.key.member_id, None)
                continue
            epoch = max(epoch, value.member_epoch)
            current[record.key.member_id] = {
                partition
                for topic in [*value.assigned_partitions, *value.partitions_pending_revocation]
                for partition in topic.partitions
            }
            owned = [partition for partitions in current.values() for partition in partitions]
            assert len(owned) == len({*owned}), f"two members have the same partition: {current}"
        assert (epoch == 0) == self.classic
        self.done["member epoch"] = epoch

    def _check_owners(self, members: dict[int, set[str]]) -> None:
        """Nobody owns a partition while somebody else does, unless the group has gone on without it.

        In a classic group it then was no member of the generation that gave the partition to the other. In one of the
        consumer protocol it is told that it has lost its partitions.
        """
        for partition in range(PARTITIONS):
            owners = sorted(self._owners(partition), key=lambda owned: owned.begin)
            for first, second in itertools.combinations(owners, 2):
                if first.end <= second.begin or first.member is second.member:
                    continue
                self.done["overlaps after a timeout"] += 1
                told = first.how == "lost"
                left_behind = first.member_id not in members[second.generation] if self.classic else told
                assert left_behind, f"partition {partition} has two owners: {first}, {second}"

    def _owners(self, partition: int) -> Iterator[Owned]:
        for member in self.all:
            since: dict[str, Any] | None = None
            for event in member.events():
                if partition not in event.get("p", ()):
                    continue
                if since is not None and since["e"] == "assigned":
                    yield Owned(member, since["m"], since["g"], since["t"], event["t"], event["e"])
                since = event
            if since is not None and since["e"] == "assigned":
                assert member.ended_at is not None
                yield Owned(member, since["m"], since["g"], since["t"], member.ended_at, "killed")


def group_log(bootstrap: str, group: str) -> Iterator[CoordinatorRecord]:
    """All records of a group in the order written."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reads-the-log",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(GROUP_TOPIC, partition_of(group, GROUP_PARTITIONS), 0)])
    deadline = time.monotonic() + SETTLED_S
    try:
        while time.monotonic() < deadline:
            for message in consumer.consume(1_000, 0.2):
                error = message.error()
                if error is None:
                    record = GROUP_RECORDS.decode(message.key(), message.value())
                    key: Any = None if record is None else record.key
                    if record is not None and getattr(key, "group", getattr(key, "group_id", "")) == group:
                        yield record
                elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                    return
                else:
                    raise confluent_kafka.KafkaException(error)
        raise AssertionError("the group's log has no end")
    finally:
        consumer.close()
