"""ShareFetch and ShareAcknowledge beside Apache Kafka 4.4: the same answers, field by field."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from broker.handlers import share_groups
from interop.conftest import JAVA
from interop.differential.consumer_groups import Group as ConsumerGroup
from interop.differential.exchanges import Peer, plain
from interop.differential.offsets import T0, records
from interop.share_groups import share_broker
from waiting import wait_until

from kafkapy.protocol.messages.describe_configs import DescribeConfigsRequest
from kafkapy.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest as Request
from kafkapy.protocol.messages.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from kafkapy.protocol.messages.share_fetch import ShareFetchRequest
from kafkapy.types import uuid_to_string

pytestmark = JAVA

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
BATCHES, RECORDS = 6, 3
SECOND = 1 << 40
NOWHERE = UUID(int=0xDEAD)
KEPT = {
    "group.share.session.timeout.ms": "600000",
    "group.share.max.session.timeout.ms": "600000",
    "log.retention.ms": "-1",  # the records are years old
}
GROUP_RESOURCE = 32

MUCH = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 20, "max_records": 500, "batch_size": 500}

WAITING = {"max_wait_ms": 1000, "min_bytes": 1}

Acks = list[tuple[int, int, list[int]]]
Parts = dict[tuple[str, int], Acks]


class Member:
    """A member of a share group on one peer, by requests whose answers are noted."""

    def __init__(self, peer: Peer, version: int, group: str, ids: dict[str, UUID], number: int = 1) -> None:
        self.peer, self.version, self.group, self.ids = peer, version, group, ids
        self.name = uuid_to_string(UUID(int=(number << 64) + 0xBEEF))
        self.epoch = 0

    def join(self, *topics: str) -> Member:
        share_groups.join(Coordinated(self.peer), self.group, *topics, member=self.name)
        return self

    def fetch(self, label: str, parts: Parts, epoch: int | None = None, *, noted: bool = True, **fields: Any) -> Any:
        """One ShareFetch, which reads up to 500 records and does not wait."""
        made = ShareFetchRequest.Topic
        values = {"group_id": self.group, "member_id": self.name, **MUCH, **fields}
        forgotten = [
            ShareFetchRequest.ForgottenTopic(topic_id=self.ids.get(name, NOWHERE), partitions=[number])
            for name, number in values.pop("forgotten", ())
        ]
        request = ShareFetchRequest(
            share_session_epoch=self.epoch if epoch is None else epoch,
            topics=self._topics(made, parts),
            forgotten_topics_data=forgotten,
            **values,
        )
        return self._send(label, request, epoch, noted)

    def acknowledge(self, label: str, parts: Parts, epoch: int | None = None, **fields: Any) -> Any:
        """One ShareAcknowledge."""
        values = {"group_id": self.group, "member_id": self.name} | fields
        request = ShareAcknowledgeRequest(
            share_session_epoch=self.epoch if epoch is None else epoch,
            topics=self._topics(ShareAcknowledgeRequest.Topic, parts),
            **values,
        )
        return self._send(label, request, epoch, True)

    def acquire(self, label: str, parts: Parts, count: int, **fields: Any) -> Any:
        """Fetches until so many records are acquired: a share-partition is loaded after the first request for it."""
        found: list[Any] = []

        def acquired() -> bool:
            answer = self.fetch(label, parts if not self.epoch else {}, noted=False, **({"max_wait_ms": 500} | fields))
            assert answer.error_code == 0, answer
            for topic in answer.responses:
                for each in topic.partitions:
                    assert each.error_code == 0, answer
                    found.extend(
                        (each.partition_index, one.first_offset, one.last_offset, one.delivery_count)
                        for one in each.acquired_records
                    )
            return sum(last - first + 1 for _, first, last, _ in found) >= count

        wait_until(acquired, f"{self.peer.name}: {self.group}: {label}, which has {found}")
        self.peer.note(label, sorted(found))

    def offsets(self, label: str) -> None:
        """The group's lags, when they change no more. Apache Kafka's start offset may be one of before."""

        def read() -> Any:
            found = share_groups.describe_offsets(Coordinated(self.peer), self.group)
            return sorted(
                (each.partition_index, each.lag, each.error_code)
                for topic in found.topics
                for each in topic.partitions
                if each.start_offset > 0  # Apache Kafka stores none before the first acknowledgement
            )

        before: Any = None
        while (now := read()) != before:
            before = now
            time.sleep(1)
        self.peer.note(label, now)

    def _send(self, label: str, request: Any, epoch: int | None, noted: bool) -> Any:
        answer = self.peer.setup(request, self.version)
        if noted:
            self.peer.note(label, self._seen(answer))
        if epoch is None and answer is not None and answer.error_code == 0:
            self.epoch += 1
        return answer

    def _seen(self, answer: Any) -> Any:
        """What an answer says, without partitions of which it says nothing."""
        parts = []
        for topic in answer.responses:
            name = "known" if topic.topic_id in self.ids.values() else "unknown"
            for each in topic.partitions:
                fields = plain(each)
                for field in list(fields):
                    if field.endswith("_message"):
                        fields[field] = "words" if fields[field] else None
                if "records" in fields:
                    # Apache Kafka adds bytes of the next batch.
                    fields["records"] = [batch for batch in fields["records"] if isinstance(batch, dict)]
                says = fields | dict.fromkeys(("partition_index", "current_leader"))
                if any(says.values()) or isinstance(answer, ShareAcknowledgeResponse):
                    parts.append([name, each.partition_index, fields])
        found = {
            "error_code": answer.error_code,
            "error_message": answer.error_message,
            "acquisition_lock_timeout_ms": answer.acquisition_lock_timeout_ms,
            "parts": sorted(parts, key=lambda part: part[:2]),
        }
        return {key: value for key, value in found.items() if value}

    def _topics(self, made: Any, parts: Parts) -> list[Any]:
        topics: dict[str, list[Any]] = {}
        for (name, number), acks in parts.items():
            batches = [
                made.Partition.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
                for first, last, types in acks
            ]
            partition = made.Partition(partition_index=number, acknowledgement_batches=batches)
            topics.setdefault(name, []).append(partition)
        return [made(topic_id=self.ids.get(name, NOWHERE), partitions=each) for name, each in topics.items()]


class Coordinated:
    """A peer as the helpers of share groups want it."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    def __call__(self, request: Any, version: int) -> Any:
        return self._peer.setup(request, version)

    def coordinate(self, group: str) -> None:
        """Wait until the group has a coordinator."""
        ConsumerGroup(self._peer, group, 1)


def prepare(peer: Peer, version: int, name: str, filled: int = 1, **configs: str) -> Member:
    """A group with one member, and its topic: 6 batches of 3 records in all partitions but the last."""
    group = f"{name}-{version}"
    ids = {group: peer.create_topic(group, filled + 1)}
    for partition in range(filled):
        for number in range(BATCHES):
            peer.produce(group, records(*(T0 + RECORDS * number + each for each in range(RECORDS))), partition)
    alter(peer, group, {"share.auto.offset.reset": "earliest", **configs})
    peer.scope(f"{name} {version}:")
    return Member(peer, version, group, ids).join(group)


def alter(peer: Peer, group: str, keys: dict[str, str]) -> None:
    made = Request.Resource.Config
    configs = [made(name=key, config_operation=0, value=value) for key, value in keys.items()]
    resource = Request.Resource(resource_type=GROUP_RESOURCE, resource_name=group, configs=configs)
    [answer] = peer.setup(Request(resources=[resource]), 1).responses
    assert answer.error_code == 0, answer

    def told() -> bool:
        asked = DescribeConfigsRequest.Resource(resource_type=GROUP_RESOURCE, resource_name=group)
        [found] = peer.setup(DescribeConfigsRequest(resources=[asked]), 4).results
        return keys.items() <= {each.name: each.value for each in found.configs}.items()

    wait_until(told, f"{peer.name}: the configuration of {group}")


# --- scenarios ----------------------------------------------------------------------------------------------------


def sessions(peer: Peer, version: int) -> None:
    """Epochs and members of share sessions."""
    member = prepare(peer, version, "sessions")
    here = (member.group, 0)
    member.fetch("epoch without a session", {here: []}, 1)
    member.fetch("epoch -1 without a session", {here: []}, -1)
    member.acknowledge("acknowledges without a session", {here: [(0, 0, [ACCEPT])]}, 1)
    member.acknowledge("acknowledges in epoch 0", {here: [(0, 0, [ACCEPT])]}, 0)
    member.acknowledge("closes without a session", {here: [(0, 0, [ACCEPT])]}, -1)
    member.fetch("acknowledges in the first request", {here: [(0, 0, [ACCEPT])]}, 0)
    member.fetch("null as the group", {here: []}, 0, group_id=None)
    member.fetch("no member", {here: []}, 0, member_id="")
    member.fetch("null as the member", {here: []}, 0, member_id=None)
    member.acknowledge("acknowledges, no group", {here: []}, 0, group_id="")
    member.acknowledge("acknowledges, no member", {here: []}, 0, member_id="")
    member.fetch("opens with nothing", {}, 0)
    member.fetch("closes what is empty", {}, -1)

    member.acquire("opens", {here: []}, BATCHES * RECORDS)
    member.fetch("epoch too low", {}, 0 if member.epoch > 1 else 7)
    member.fetch("epoch too high", {}, member.epoch + 5)
    member.acknowledge("acknowledges in a wrong epoch", {here: [(0, 0, [ACCEPT])]}, member.epoch + 5)
    member.fetch("goes on", {})
    member.fetch("adds a partition", {(member.group, 1): []})
    member.fetch("adds unknown partitions", {(member.group, 9): [], (member.group, -1): []})
    member.fetch("goes on with unknown partitions", {})
    member.fetch("forgets unknown partitions", {}, forgotten=[(member.group, 9), (member.group, -1)])
    member.fetch("adds an unknown topic", {("nowhere", 0): []})
    member.fetch("forgets it", {}, forgotten=[("nowhere", 0)])
    member.fetch("forgets what was not there", {}, forgotten=[("nowhere", 3)])
    member.fetch("goes on after all", {})
    member.fetch("epoch -2", {}, -2)
    member.acknowledge("closes, with an acknowledgement", {here: [(0, 2, [ACCEPT])]}, -1)
    member.acknowledge("closes again", {}, -1)
    member.epoch = 0
    member.acquire("opens again", {here: []}, (BATCHES - 1) * RECORDS)
    member.fetch("closes by a fetch", {here: [(3, 5, [ACCEPT])]}, -1)
    member.offsets("offsets")


def acknowledgements(peer: Peer, version: int, how: str) -> None:
    """Good and bad acknowledgements, by each of the two APIs."""
    member = prepare(peer, version, f"acks-{how}")
    send = getattr(member, how)
    here, other = (member.group, 0), (member.group, 1)
    member.acquire("opens", {here: [], other: []}, BATCHES * RECORDS)
    for label, acks in (
        ("not acquired", [(100, 101, [ACCEPT])]),
        ("in part not acquired", [(16, 20, [ACCEPT])]),
        ("ends before it begins", [(2, 1, [ACCEPT])]),
        ("negative", [(-1, 0, [ACCEPT])]),
        ("no type", [(0, 0, [])]),
        ("too few types", [(0, 2, [ACCEPT, ACCEPT])]),
        ("too many types", [(0, 0, [ACCEPT, ACCEPT])]),
        ("unknown type", [(0, 0, [5])]),
        ("negative type", [(0, 0, [-1])]),
        ("renewal", [(0, 0, [RENEW])]),
        ("overlapping", [(0, 2, [ACCEPT]), (2, 3, [ACCEPT])]),
        ("out of order", [(3, 5, [RELEASE]), (0, 2, [RELEASE])]),
        ("a good one and a bad one", [(0, 0, [ACCEPT]), (100, 100, [ACCEPT])]),
    ):
        send(label, {here: acks})
    send("other partition", {other: [(0, 0, [ACCEPT])]})
    send("partition not in the session", {(member.group, 7): [(0, 0, [ACCEPT])]})
    send("unknown topic", {("nowhere", 0): [(0, 0, [ACCEPT])]})
    send("nothing", {here: []})
    # Whatever was refused has changed nothing: these are good.
    send("accepts a batch", {here: [(0, 2, [ACCEPT])]})
    send("accepts it twice", {here: [(0, 2, [ACCEPT])]})
    send("each type", {here: [(3, 5, [ACCEPT, RELEASE, REJECT])]})
    send("a gap", {here: [(6, 6, [GAP])]})
    send("one of a batch", {here: [(7, 7, [ACCEPT])]})
    send("across batches", {here: [(8, 10, [ACCEPT])]})
    send("several", {here: [(11, 11, [ACCEPT]), (12, 14, [RELEASE, RELEASE, ACCEPT]), (15, 15, [ACCEPT])]})
    if how == "acknowledge":
        member.acquire("what was released", {}, 3)
    member.acknowledge("closes", {}, -1)
    member.offsets("offsets")


def limits(peer: Peer, version: int) -> None:
    """How many records a fetch acquires: each case has a partition of its own."""
    cases: list[tuple[str, dict[str, int]]] = [
        *((f"at most {most} records", {"max_records": most}) for most in (1, 2, 3, 4, 7, 100)),
        *((f"batches of {size}", {"batch_size": size}) for size in (1, 2, 3, 4)),
        *((f"at most {size} bytes", {"max_bytes": size}) for size in (1, 100, 200, 300)),
    ]
    if version >= 2:
        modes = {"share_acquire_mode": 1}
        cases += [(f"exactly {most} records", {"max_records": most, **modes}) for most in (1, 2, 3, 4, 8, 100)]
    member = prepare(peer, version, "limits", len(cases))
    for number, (label, fields) in enumerate(cases):
        member.epoch = 0
        member.fetch(label, {(member.group, number): []}, **fields, **WAITING)
        for turn in range(BATCHES):
            answer = member.fetch(f"{label}, more {turn}", {}, **fields, **WAITING)
            if not any(each.acquired_records for topic in answer.responses for each in topic.partitions):
                break
        member.acknowledge(f"{label}, closes", {}, -1)
    here = (member.group, 0)
    for label, fields in (
        ("at most 0 records", {"max_records": 0}),
        ("at most -1 records", {"max_records": -1}),
    ):
        member.epoch = 0
        member.fetch(label, {here: []}, **fields)


def deliveries(peer: Peer, version: int) -> None:
    """Delivery counts up to the limit; two members of a group."""
    member = prepare(peer, version, "deliveries", **{"share.delivery.count.limit": "3"})
    here = (member.group, 0)
    other = Member(peer, version, member.group, member.ids, 2)
    member.acquire("opens", {here: []}, BATCHES * RECORDS)
    other.fetch("another member finds nothing", {here: []})
    member.acknowledge("releases two", {here: [(0, 1, [RELEASE])]})
    other.acquire("the other one gets them", {}, 2)
    member.acknowledge("acknowledges what it has no more", {here: [(0, 1, [ACCEPT])]})
    other.acknowledge("releases again", {here: [(0, 1, [RELEASE])]})
    other.acquire("for the last time", {}, 2)
    other.acknowledge("releases for the last time", {here: [(0, 1, [RELEASE])]})
    other.fetch("there are none", {})
    member.acknowledge("accepts the others", {here: [(2, 17, [ACCEPT])]})
    member.offsets("offsets")
    other.acknowledge("the other one closes", {}, -1)
    member.acknowledge("closes", {}, -1)


def renewals(peer: Peer, version: int) -> None:
    """Locks that are renewed (KIP-1222)."""
    member = prepare(peer, version, "renewals")
    here = (member.group, 0)
    member.acquire("opens", {here: []}, BATCHES * RECORDS)
    if version < 2:
        member.acknowledge("renews", {here: [(0, 2, [RENEW])]})
        return
    nothing = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0, "batch_size": 0}
    member.acknowledge("renews without saying so", {here: [(0, 2, [RENEW])]})
    member.acknowledge("renews", {here: [(0, 2, [RENEW])]}, is_renew_ack=True)
    member.acknowledge("renews and accepts", {here: [(0, 2, [RENEW, ACCEPT, RENEW])]}, is_renew_ack=True)
    member.acknowledge("renews what is accepted", {here: [(1, 1, [RENEW])]}, is_renew_ack=True)
    member.acknowledge("says so and accepts", {here: [(3, 3, [ACCEPT])]}, is_renew_ack=True)
    member.fetch("renews and fetches", {here: [(4, 4, [RENEW])]}, is_renew_ack=True)
    member.fetch("renews by a fetch", {here: [(4, 4, [RENEW])]}, is_renew_ack=True, **nothing)
    member.fetch("renews by a fetch without saying so", {here: [(4, 4, [RENEW])]}, **nothing)
    for name, value in (("max_wait_ms", 1), ("min_bytes", 1), ("max_bytes", 1), ("max_records", 1), ("batch_size", 1)):
        fields = nothing | {name: value}
        member.fetch(f"renews with {name}", {here: [(4, 4, [RENEW])]}, is_renew_ack=True, **fields)
    member.acknowledge("closes", {}, -1)


def fill(peer: Peer) -> None:
    for version in (1, 2):
        sessions(peer, version)
        acknowledgements(peer, version, "acknowledge")
        acknowledgements(peer, version, "fetch")
        limits(peer, version)
        deliveries(peer, version)
        renewals(peer, version)


@pytest.mark.timeout(900)
def test_answers_are_those_of_apache_kafka(tmp_path: Path) -> None:
    found = []
    for kind in ("kafkapy", "apache-kafka"):
        broker = share_broker(kind, tmp_path / kind, **KEPT)
        broker.start()
        try:
            peer = Peer("kafkapy" if kind == "kafkapy" else "apache", broker.bootstrap)
            fill(peer)
            found.append(peer.answers)
            peer.close()
        finally:
            broker.remove()
    ours, theirs = found
    different = [
        f"{label}\n  ours   {ours.get(label)}\n  theirs {theirs.get(label)}"
        for label in ours | theirs
        if ours.get(label) != theirs.get(label)
    ]
    assert not different, f"{len(different)} of {len(ours)} answers differ\n" + "\n".join(different)
