"""The bytes of OffsetCommit: replies, batches, and requests that are spoiled."""

from __future__ import annotations

import string
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from speedups.requests.offset_commit.committing import (
    VERSIONS,
    CommitBroker,
    Offset,
    Terms,
    by_python,
    check_batch,
    commit,
    committed,
    success,
    topic_id,
)

from kafkapy._speedups.log.partition_log import PartitionLog
from kafkapy.protocol.messages.offset_commit import OffsetCommitRequest
from kafkapy.protocol.schema import DecodeError

NAMES = st.text(string.ascii_letters + string.digits + "._-", min_size=1, max_size=40)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)
GROUPS = TEXTS.map(lambda text: f"{text}!")
"""None of them is the group of LEASE."""
INT32, INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
OFFSETS = st.builds(
    Offset,
    st.integers(0, 2**31 - 1),
    INT64,
    INT32,
    st.none() | st.text(st.characters(max_codepoint=127), max_size=50),
)
TOPICS = st.lists(
    st.tuples(NAMES, st.lists(OFFSETS, min_size=1, max_size=8, unique_by=lambda each: each.partition)),
    min_size=1,
    max_size=5,
    unique_by=lambda each: each[0],
)
MEMBERS = st.none() | st.tuples(TEXTS, st.none() | TEXTS, st.integers(0, 2**31 - 1))


@pytest.fixture(scope="module")
def log(many: CommitBroker) -> PartitionLog:
    return many.log()


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=100)
@given(group=GROUPS, member=MEMBERS, names_instance=st.booleans(), topics=TOPICS, others=TOPICS)
def test_a_commit_has_the_bytes_of_the_coordinator(
    many: CommitBroker,
    log: PartitionLog,
    version: int,
    group: str,
    member: tuple[str, str | None, int] | None,
    names_instance: bool,
    topics: list[tuple[str, list[Offset]]],
    others: list[tuple[str, list[Offset]]],
) -> None:
    known: dict[str, set[int]] = {}
    for name, offsets in (*topics, *others):
        known.setdefault(name, set()).update(each.partition for each in offsets)
    members = [("other", "i", 0)] if member is None else [("other", "i", 0), member]
    terms = Terms(
        group=group,
        members=[] if member is None else members,
        topics={name: sorted(numbers) for name, numbers in known.items()},
        without_member=member is None,
    )
    lease = many.lend(log, terms)
    try:
        request = commit(
            topics,
            group=group,
            member="" if member is None else member[0],
            generation=-1 if member is None else member[2],
            instance=member[1] if member is not None and names_instance and version >= 7 else None,
        )
        offsets_of = many.check_served(log, request, version, known)
    finally:
        told = lease.end()
    assert told is not None
    assert [each[:5] for each in told[0]] == offsets_of
    assert [name for name, _ in told[1]] == ([] if member is None else [member[0]])


LEASE = Terms(members=[("m", None, 3), ("s", "i", 4)], without_member=True)
BODIES = [
    commit(),
    commit([("t", [Offset(0, 1), Offset(1, 2, 3, None)]), ("u", [Offset(0, 5, 6, "seven")])]),
    commit(member="", generation=-1),
    commit(member="s", generation=4, instance="i"),
]
"""Requests that the lease takes. An instance id, which the last one has, is of version 7 and later."""
NAMES_BY_ID = {UUID(bytes=topic_id(name)): name for name in LEASE.topics}


def bodies(version: int) -> int:
    """How many of BODIES a version has."""
    return len(BODIES) if version >= 7 else len(BODIES) - 1


@pytest.fixture(scope="module")
def lent(many: CommitBroker, log: PartitionLog) -> Iterator[Any]:
    lease = many.lend(log, LEASE)
    yield lease
    lease.end()


def fits(request: OffsetCommitRequest, version: int) -> bool:
    """Whether the lease may take a request, as far as the request shows."""
    members = {name: (instance, generation) for name, instance, generation in LEASE.members}
    instance, generation = request.group_instance_id, request.generation_id_or_member_epoch
    if request.member_id:
        known = members.get(request.member_id)
        if known is None or generation != known[1] or instance not in (None, known[0]):
            return False
    elif generation >= 0 or instance is not None:
        return False
    if version >= 10 and any(topic.topic_id not in NAMES_BY_ID for topic in request.topics):
        return False
    offsets = committed(request, version, NAMES_BY_ID)
    return (
        request.group_id == LEASE.group
        and request.retention_time_ms == -1
        and len({each[:2] for each in offsets}) == len(offsets) > 0
        and all(each[1] in LEASE.topics.get(each[0], ()) and each[4].isascii() for each in offsets)
    )


def check_either(broker: CommitBroker, log: PartitionLog, body: bytes, version: int) -> bool:
    """Whether a body was served, for what Python reads in it."""
    end, count = log.log_end_offset, broker.table.committed
    reply = broker.connection.ask(body, version)
    if reply == by_python(body, version, broker.connection.correlation_id):
        assert (log.log_end_offset, broker.table.committed) == (end, count)
        return False
    request = OffsetCommitRequest.decode(body, version)
    assert fits(request, version)
    assert reply == success(request, version, broker.connection.correlation_id)
    offsets = committed(request, version, NAMES_BY_ID)
    check_batch(log, end, request.group_id, offsets)
    assert broker.table.committed == count + len(offsets)
    return True


@pytest.mark.parametrize("version", VERSIONS)
def test_a_body_that_is_cut_short_goes_to_python(
    many: CommitBroker, log: PartitionLog, lent: Any, version: int
) -> None:
    for request in BODIES[: bodies(version)]:
        body = request.encode(version)
        for size in range(len(body)):
            many.check_declined(log, body[:size], version)
        many.check_declined(log, body + b"\0", version)
        many.check_served(log, request, version)


def spoiled(body: bytes, edits: list[tuple[int, int, bytes]]) -> bytes:
    """A body with stretches of bytes replaced: (where, how many, by what)."""
    data = bytearray(body)
    for at, size, new in edits:
        at %= len(data) + 1
        data[at : at + size] = new
    return bytes(data)


EDITS = st.lists(
    st.one_of(
        st.binary(min_size=1, max_size=1).flatmap(lambda new: st.tuples(st.integers(0, 200), st.just(1), st.just(new))),
        st.tuples(st.integers(0, 200), st.integers(0, 4), st.binary(max_size=4)),
    ),
    min_size=1,
    max_size=3,
)


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=200)
@given(number=st.integers(0, len(BODIES) - 1), edits=EDITS)
def test_a_spoiled_body_is_served_for_what_it_says_or_goes_to_python(
    many: CommitBroker,
    log: PartitionLog,
    lent: Any,
    version: int,
    number: int,
    edits: list[tuple[int, int, bytes]],
) -> None:
    body = BODIES[number % bodies(version)].encode(version)
    check_either(many, log, spoiled(body, edits), version)


@pytest.mark.parametrize("version", [8, 9, 10])
def test_tagged_fields_that_nobody_knows_are_skipped(
    many: CommitBroker, log: PartitionLog, lent: Any, version: int
) -> None:
    body = commit().encode(version)
    tags = b"\x02\x05\x03abc\x07\x00"
    partition, topic, whole = body[:-3], body[:-2], body[:-1]
    for data in (partition + tags + b"\0\0", topic + tags + b"\0", whole + tags, partition + tags * 3):
        end = log.log_end_offset
        offsets = committed(commit(), version, NAMES_BY_ID)
        reply = many.serve(log, data, version)
        assert reply == success(commit(), version, many.connection.correlation_id)
        check_batch(log, max(end, log.log_end_offset - 1), "g", offsets)
    for data in (whole + b"\x01\x05\x04abc", whole + b"\x03\x05\x03abc\x07\x00", whole + tags + b"\0"):
        with pytest.raises(DecodeError):
            OffsetCommitRequest.decode(data, version)
        many.check_declined(log, data, version)
