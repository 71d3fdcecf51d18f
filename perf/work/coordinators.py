"""W7: what coordinators do: offset commits, transactions, and members that join a group all at once."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import measure
from client import PRODUCE, CheckError, Client, record_batch
from peers import KAFKAPY, LIMIT, Peer

from kafkapy.protocol.header import encode_request, encode_response
from kafkapy.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)
from kafkapy.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from kafkapy.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkapy.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkapy.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kafkapy.protocol.messages.offset_fetch import OffsetFetchRequest
from kafkapy.protocol.messages.produce import ProduceRequest
from kafkapy.protocol.schema import Request
from work.session import Metrics, Session

TOPIC = "w7"
OFFSET = 5
FIND_COORDINATOR, OFFSET_COMMIT, OFFSET_FETCH, INIT_PRODUCER_ID, ADD_PARTITIONS, END_TXN = 1, 7, 5, 1, 2, 2
NOT_YET_CODES = {14, 15, 16, 51}
"""COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, CONCURRENT_TRANSACTIONS."""
RECORDS = 10
TRANSACTIONAL = 0x10
# In a batch: what a producer with an id sets.
_ATTRIBUTES, _PRODUCER_ID, _PRODUCER_EPOCH = slice(21, 23), slice(43, 51), slice(51, 53)
GROUPS = 512
"""As many as there are connections at most; they are in all partitions of __consumer_offsets."""
MEMBERS = (100, 1000)
CONSUMER_GROUPS = {"group.consumer.min.heartbeat.interval.ms": "500", "group.consumer.heartbeat.interval.ms": "500"}
"""By default a member asks every 5 s whether its assignment has changed, which would be all that is seen."""

_numbers = itertools.count()


def coordinators(session: Session) -> None:
    """Commits and transactions as fast as replies come; joins of 100 and 1,000 members in both protocols."""
    with session.running() as everybody, session.folder("frames") as folder:
        connections = (64,) if session.smoke else (1, 64, 512)
        # The limit has no topics, transactions and members. A group of it begins with its first commit.
        limit = {name: b for name, b in everybody.items() if name == LIMIT.name}
        brokers = {name: b for name, b in everybody.items() if name not in limit}
        _each(session, brokers, "coordinators", partial(_prepare, GROUPS))
        for number in connections:
            what = f"offset commits, {number} connection{'s' if number > 1 else ''}"
            commit = {name: _commits(session, b, folder, number) for name, b in (brokers | limit).items()}
            session.in_turns(what, commit)
        for number in connections[:2]:
            what = f"transactions, {number} producer{'s' if number > 1 else ''}"
            session.in_turns(what, {name: _transactions(session, b, folder, number) for name, b in brokers.items()})
        for members in MEMBERS[:1] if session.smoke else MEMBERS:
            calls = {name: _join(b, members) for name, b in brokers.items()}
            session.in_turns(f"join of {members:,} members", calls)
    # The new protocol is an early access of 3.9, and not to be had without unstable features.
    with (
        _only(session, lambda peer: peer is KAFKAPY or peer.name == "apache-4.x"),
        session.running(with_limit=False, overrides=CONSUMER_GROUPS) as brokers,
    ):
        _each(session, brokers, "coordinators", partial(_prepare, GROUPS))
        for members in MEMBERS[:1] if session.smoke else MEMBERS:
            _each(session, brokers, "topic", partial(_members_topic, members))
            calls = {name: _heartbeats(b, members) for name, b in brokers.items()}
            session.in_turns(f"join of {members:,} members, KIP-848", calls)


def _each(session: Session, brokers: dict[str, Any], what: str, call: Callable[[Any], None]) -> None:
    """One that fails is left out from then on."""
    for name, broker in list(brokers.items()):
        try:
            call(broker)
        except Exception as error:
            session.fail(name, what, error)
            broker.kill()
            del brokers[name]


@contextmanager
def _only(session: Session, wanted: Callable[[Peer], bool]) -> Iterator[None]:
    """The session has these peers only, for a while."""
    everybody = session.peers
    session.peers = [peer for peer in everybody if wanted(peer)]
    try:
        yield
    finally:
        session.peers = everybody


# --- what is there before -------------------------------------------------------------------------------------------


def _prepare(groups: int, broker: Any) -> None:
    """The topic, and both coordinators loaded: every group's commit is accepted."""
    with Client(broker.port) as client:
        client.create_topic(TOPIC, 64)
        for number in range(groups):
            _until_ready(client, f"group-{number}", 0, partial(_first_error, client, _commit(number)))


def _first_error(client: Client, commit: OffsetCommitRequest) -> int:
    return int(client.call(commit, OFFSET_COMMIT).topics[0].partitions[0].error_code)


def _until_ready(client: Client, key: str, key_type: int, call: Callable[[], int]) -> None:
    """Makes the coordinator of a key known, and calls until there is no error. Raises CheckError."""
    deadline = time.monotonic() + 60
    while True:
        code = call()
        if code == 0:
            return
        if code not in NOT_YET_CODES or time.monotonic() > deadline:
            raise CheckError(f"the coordinator of {key} answers {code}")
        client.call(FindCoordinatorRequest(key=key, key_type=key_type), FIND_COORDINATOR)
        time.sleep(0.02)


def _members_topic(members: int, broker: Any) -> None:
    with Client(broker.port) as client:
        client.create_topic(f"{TOPIC}-{members}", members)


def _write(folder: Path, name: str, frame: bytes) -> str:
    path = folder / name
    path.write_bytes(frame)
    return str(path)


def _request(folder: Path, name: str, request: Request, version: int) -> str:
    return _write(folder, name, encode_request(request.API_KEY, version, 0, "load", request))


# --- what is measured -----------------------------------------------------------------------------------------------


def _run(broker: Any, mode: str, *files: str, **named: object) -> dict[str, Any]:
    options = measure.options(port=broker.port, pids=measure.pids(broker.pid), **named)
    return measure.run_native("coordinator", mode, *options, *files)


def _commit(number: int) -> OffsetCommitRequest:
    partition = OffsetCommitRequest.Topic.Partition(
        partition_index=0, committed_offset=OFFSET, committed_leader_epoch=-1, committed_metadata=""
    )
    topics = [OffsetCommitRequest.Topic(name=TOPIC, partitions=[partition])]
    return OffsetCommitRequest(group_id=f"group-{number}", topics=topics)


def _commits(session: Session, broker: Any, folder: Path, connections: int) -> Callable[[], Metrics]:
    """Each connection for a group of its own."""
    answer = OffsetCommitResponse.Topic.Partition(partition_index=0, error_code=0)
    expected = OffsetCommitResponse(topics=[OffsetCommitResponse.Topic(name=TOPIC, partitions=[answer])])
    reply = _write(folder, "committed", encode_response(8, OFFSET_COMMIT, 0, expected))
    frames = [_request(folder, f"commit-{n}", _commit(n), OFFSET_COMMIT) for n in range(connections)]

    def measured() -> Metrics:
        seconds = session.seconds(2.0, 0.3)
        answer = _run(broker, "commits", *frames, connections=connections, seconds=seconds, expected=reply)
        with Client(broker.port) as client:
            topic = OffsetFetchRequest.Topic(name=TOPIC, partition_indexes=[0])
            request = OffsetFetchRequest(group_id=f"group-{connections - 1}", topics=[topic])
            found = client.call(request, OFFSET_FETCH).topics[0].partitions[0].committed_offset
            if found != OFFSET:
                raise CheckError(f"offset {found} is committed, expected {OFFSET}")
        return {
            "commits_per_s": answer["requests"] / answer["seconds"],
            "cpu_us_per_commit": answer["broker_cpu_s"] / answer["requests"] * 1e6,
        } | _shared(answer)

    return measured


def _shared(answer: dict[str, Any]) -> Metrics:
    return {
        "p50_us": answer["latency_us"]["p50"],
        "p99_us": answer["latency_us"]["p99"],
        "load_cores": answer["load_cpu_s"] / answer["seconds"],
    }


def _transaction(client: Client, folder: Path, number: int) -> tuple[list[str], int]:
    """The three frames of a producer that has just got its id, and the size of its batch."""
    name = f"producer-{number}"
    granted: list[Any] = []

    def grant() -> int:
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
        granted.append(client.call(request, INIT_PRODUCER_ID))
        return int(granted[-1].error_code)

    _until_ready(client, name, 1, grant)
    producer_id, epoch = granted[-1].producer_id, granted[-1].producer_epoch
    batch = bytearray(record_batch([bytes(100)] * RECORDS))
    batch[_ATTRIBUTES] = TRANSACTIONAL.to_bytes(2, "big")
    batch[_PRODUCER_ID] = producer_id.to_bytes(8, "big")
    batch[_PRODUCER_EPOCH] = epoch.to_bytes(2, "big")
    partition = number % 64
    add = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=[partition])],
    )
    data = [ProduceRequest.Topic.Partition(index=partition, records=bytes(batch))]
    produce = ProduceRequest(
        transactional_id=name,
        acks=-1,
        timeout_ms=30_000,
        topic_data=[ProduceRequest.Topic(name=TOPIC, partition_data=data)],
    )
    end = EndTxnRequest(transactional_id=name, producer_id=producer_id, producer_epoch=epoch, committed=True)
    steps: list[tuple[Request, int]] = [(add, ADD_PARTITIONS), (produce, PRODUCE), (end, END_TXN)]
    frames = [_request(folder, f"transaction-{number}-{i}", *step) for i, step in enumerate(steps)]
    return frames, len(batch)


def _transactions(session: Session, broker: Any, folder: Path, producers: int) -> Callable[[], Metrics]:
    """Each connection has a transactional id and a partition of its own; 10 records of 100 bytes a transaction."""

    def measured() -> Metrics:
        frames: list[str] = []
        with Client(broker.port) as client:
            before = sum(client.end_offsets(TOPIC, 64))
            for number in range(producers):
                made, batch_bytes = _transaction(client, folder, number)
                frames += made
            # The generator puts the number of each producer's partition in.
            added = AddPartitionsToTxnTopicResult.PartitionResult(partition_index=0, partition_error_code=0)
            result = AddPartitionsToTxnTopicResult(name=TOPIC, results_by_partition=[added])
            reply = AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[result])
            answer = _run(
                broker,
                "transactions",
                *frames,
                connections=producers,
                seconds=session.seconds(2.0, 0.3),
                batch_bytes=batch_bytes,
                records=RECORDS,
                added=_write(folder, "added", encode_response(24, ADD_PARTITIONS, 0, reply)),
                ended=_write(folder, "ended", encode_response(26, END_TXN, 0, EndTxnResponse())),
            )
            # A marker ends each; that of the last may still be on its way.
            wanted = before + answer["transactions"] * (RECORDS + 1)
            deadline = time.monotonic() + 10
            while (found := sum(client.end_offsets(TOPIC, 64))) != wanted:
                if time.monotonic() > deadline:
                    raise CheckError(f"{found} records and markers in the log, expected {wanted}")
                time.sleep(0.01)
        return {
            "transactions_per_s": answer["transactions"] / answer["seconds"],
            "cpu_us_per_transaction": answer["broker_cpu_s"] / answer["transactions"] * 1e6,
            "retries_per_transaction": answer["retries"] / answer["transactions"],
        } | _shared(answer)

    return measured


def _settled(answer: dict[str, Any]) -> Metrics:
    return {
        "settled_s": answer["seconds"],
        "cpu_s": answer["broker_cpu_s"],
        "requests": answer["requests"],
        "generation": answer["generation"],
        "load_cores": answer["load_cpu_s"] / answer["seconds"],
    }


def _join(broker: Any, members: int) -> Callable[[], Metrics]:
    """A new group each time."""

    def measured() -> Metrics:
        return _settled(_run(broker, "join", connections=members, group=f"join-{next(_numbers)}"))

    return measured


def _heartbeats(broker: Any, members: int) -> Callable[[], Metrics]:
    """A partition for each member."""

    def measured() -> Metrics:
        named = {"connections": members, "topic": f"{TOPIC}-{members}", "partitions": members}
        return _settled(_run(broker, "heartbeats", group=f"beat-{next(_numbers)}", **named))

    return measured
