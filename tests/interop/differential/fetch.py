"""Exchanges of Fetch: offsets, limits, epochs, isolation levels, sessions."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from interop.differential.exchanges import Peer, scenario
from interop.differential.offsets import T0, delete, records

from kafkapy.protocol.messages.fetch import FetchRequest
from kafkapy.protocol.registry import ApiKeys
from kafkapy.types import ZERO_UUID

NOWHERE = UUID(int=0xDEAD)


class Reader:
    """Asks by name or id, as the version has it."""

    def __init__(self, peer: Peer, version: int, ids: dict[str, UUID]) -> None:
        self.peer, self.version, self.ids = peer, version, ids

    def topic(self, name: str, partitions: list[Any]) -> FetchRequest.Topic:
        if self.version >= 13:
            return FetchRequest.Topic(topic_id=self.ids.get(name, NOWHERE), partitions=partitions)
        return FetchRequest.Topic(topic=name, partitions=partitions)

    def partition(self, offset: int, index: int = 0, size: int = 1 << 20, **more: Any) -> Any:
        return FetchRequest.Topic.Partition(partition=index, fetch_offset=offset, partition_max_bytes=size, **more)

    def ask(self, label: str, *topics: tuple[str, list[Any]], **fields: Any) -> Any:
        values = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 24} | fields
        made = [self.topic(name, partitions) for name, partitions in topics]
        forgotten = [
            FetchRequest.ForgottenTopic(topic=name, partitions=partitions)
            if self.version < 13
            else FetchRequest.ForgottenTopic(topic_id=self.ids.get(name, NOWHERE), partitions=partitions)
            for name, partitions in values.pop("forgotten", [])
        ]
        if self.version >= 15 and "replica_id" in values:
            replica = FetchRequest.ReplicaState(replica_id=values.pop("replica_id"))
            values["replica_state"] = replica
        return self.peer.call(label, FetchRequest(topics=made, forgotten_topics_data=forgotten, **values), self.version)


def topics(peer: Peer, version: int, prefix: str) -> tuple[Reader, str, str]:
    """Two topics of two partitions: four batches of two records in each partition 0, one record in a partition 1."""
    names = f"{prefix}-{version}", f"{prefix}-{version}-other"
    ids = {name: peer.create_topic(name, 2) for name in names}
    for name in names:
        for number in range(4):
            peer.produce(name, records(T0 + number, T0 + number + 1))
    peer.produce(names[0], records(T0), 1)
    return Reader(peer, version, ids), *names


@scenario(ApiKeys.FETCH)
def fetch(peer: Peer, version: int) -> None:
    reader, a, b = topics(peer, version, "f")
    ask, at = reader.ask, reader.partition
    for offset in (0, 1, 3, 7, 8, 9, 100, -1, -2, -3, 2**62):
        ask(f"offset {offset}", (a, [at(offset)]))
    ask("two partitions", (a, [at(0), at(0, 1)]))
    ask("two topics", (a, [at(0), at(0, 1)]), (b, [at(2), at(0, 1)]))
    ask("partition twice", (a, [at(0), at(4)]))
    ask("unknown topic", ("f-missing", [at(0)]))
    ask("unknown topic and a known one", ("f-missing", [at(0)]), (a, [at(0)]))
    ask("empty topic name", ("", [at(0)]))
    ask("unknown partition", (a, [at(0, 9)]))
    ask("unknown and known partition", (a, [at(0, 9), at(0)]))
    ask("negative partition", (a, [at(0, -1)]))
    ask("no topics")
    ask("no partitions", (a, []))
    size = len(records(T0, T0 + 1))
    for limit in (-(2**31), -1, 0, 1, size - 1, size, size + 1, 2 * size, 2 * size + 5, 2**31 - 1):
        ask(f"partition limit {limit}", (a, [at(0, size=limit)]))
        ask(f"partition limit {limit}, two of them", (a, [at(0, size=limit)]), (b, [at(0, size=limit)]))
        ask(f"limit {limit}", (a, [at(0)]), max_bytes=limit)
        ask(f"limit {limit}, two of them", (a, [at(0)]), (b, [at(0)]), max_bytes=limit)
        ask(f"limit {limit}, first at the end", (a, [at(8)]), (b, [at(0)]), max_bytes=limit)
    for low in (-1, 0, 1, 10_000_000):
        for offset in (0, 8):
            ask(f"min bytes {low} from {offset}", (a, [at(offset)]), min_bytes=low, max_wait_ms=20)
    ask("wait negative", (a, [at(8)]), min_bytes=1, max_wait_ms=-5)
    ask("error does not wait", (a, [at(8), at(0, 9)]), min_bytes=1, max_wait_ms=20)
    for level in (0, 1, 2, -1):
        ask(f"isolation {level}", (a, [at(0)]), isolation_level=level)
    if version >= 9:
        for epoch in (-2, -1, 0, 1, 9):
            ask(f"epoch {epoch}", (a, [at(0, current_leader_epoch=epoch)]))
    if version >= 12:
        for epoch in (-2, -1, 0, 1, 9):
            ask(f"last fetched epoch {epoch}", (a, [at(0, last_fetched_epoch=epoch)]))
            ask(f"last fetched epoch {epoch} at the end", (a, [at(8, last_fetched_epoch=epoch)]))
            ask(f"last fetched epoch {epoch} past the end", (a, [at(20, last_fetched_epoch=epoch)]))
            ask(
                f"last fetched epoch {epoch}, current 0", (a, [at(4, last_fetched_epoch=epoch, current_leader_epoch=0)])
            )
        ask("cluster id of another cluster", (a, [at(0)]), cluster_id="other")
    if version >= 13:
        reader.ids["null"] = ZERO_UUID
        ask("null topic id", ("null", [at(0)]))
    ask("rack", (a, [at(0)]), rack_id="r1")
    for replica in (-2, -3, 7):
        ask(f"replica {replica}", (a, [at(0)]), replica_id=replica)
    delete(peer, a, 0, 3)
    for offset in (0, 2, 3, 4, 8):
        ask(f"after deleting, offset {offset}", (a, [at(offset)]))


@scenario(ApiKeys.FETCH)
def fetch_sessions(peer: Peer, version: int) -> None:
    if version < 7:
        return
    reader, a, b = topics(peer, version, "fs")
    ask, at = reader.ask, reader.partition

    for epoch in (-2, -1, 0, 1, 5):
        for session in (-1, 0, 1):
            if (session, epoch) not in ((0, 0), (0, -1)):
                ask(
                    f"session {session} epoch {epoch}, not there", (a, [at(0)]), session_id=session, session_epoch=epoch
                )
    ask("no session", (a, [at(0)]), session_id=0, session_epoch=-1)
    made = ask("new session", (a, [at(0), at(0, 1)]), (b, [at(0)]), session_id=0, session_epoch=0)
    number = made.session_id if made is not None else 0

    def go(label: str, epoch: int, *asked: tuple[str, list[Any]], session: int | None = None, **fields: Any) -> Any:
        wanted = number if session is None else session
        return ask(label, *asked, session_id=wanted, session_epoch=epoch, **fields)

    go("incremental, nothing new asked", 1)
    go("epoch used twice", 1)
    go("epoch too high", 7)
    go("incremental, read on", 2, (a, [at(8), at(1, 1)]), (b, [at(8)]))
    go("incremental, nothing to say", 3)
    peer.produce(a, records(T0))
    go("incremental, something new", 4)
    go("incremental, still there", 5)
    go("forget", 6, forgotten=[(a, [0])])
    go("forget what is not there", 7, forgotten=[(a, [0]), ("fs-missing", [3])])
    go("add again", 8, (a, [at(8)]))
    go("out of range", 9, (b, [at(99)]))
    go("out of range stays", 10)
    go("forget and add", 11, (b, [at(0)]), forgotten=[(b, [0])])
    go("wrong session", 12, session=number + 1)
    go("limits count", 12, (a, [at(0)]), (b, [at(0)]), max_bytes=1)
    go("limits count again", 13, max_bytes=1)
    go("waits and finds nothing", 14, (a, [at(9)]), (b, [at(8)]), min_bytes=1, max_wait_ms=20)
    go("close", -1, (a, [at(0)]))
    go("closed", 15)
    for what, unknown in (("topic", ("fs-missing", [at(0)])), ("partition", (a, [at(0, 9)]))):
        made = ask(f"session for an unknown {what}", (a, [at(9)]), session_id=0, session_epoch=0)
        number = made.session_id if made is not None else 0
        go(f"unknown {what} joins", 1, unknown)
        go(f"unknown {what} stays", 2)
    made = ask("another session", (a, [at(9)]), session_id=0, session_epoch=0)
    number = made.session_id if made is not None else 0
    again = go("full fetch takes its place", 0, (b, [at(0)]))
    go("old one is gone", 1)
    number = again.session_id if again is not None else 0
    go("new one goes on", 1)
    empty = ask("session without partitions", session_id=0, session_epoch=0)
    number = empty.session_id if empty is not None else 0
    if number:
        go("session without partitions goes on", 1)
    delete(peer, a, 0, 5)
    made = ask("session at the end", (a, [at(9)]), (b, [at(8)]), session_id=0, session_epoch=0)
    number = made.session_id if made is not None else 0
    go("nothing", 1)
    delete(peer, a, 0, 6)
    go("log start moved", 2)
    go("nothing again", 3)
