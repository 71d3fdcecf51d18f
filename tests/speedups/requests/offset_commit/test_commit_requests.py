"""Commits and authorization, quotas, counters, large frames, and many frames at once."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from uuid import UUID

import pytest
from speedups.requests.offset_commit.committing import (
    VERSIONS,
    CommitBroker,
    Connection,
    Offset,
    Terms,
    by_python,
    commit,
    committed,
    entries,
    read,
    success,
    told_of,
    topic_id,
)
from waiting import wait_until

from kafkapy._speedups.log.partition_log import PartitionLog
from kafkapy._speedups.requests.client_quotas import QuotaSensor
from kafkapy.protocol.header import decode_response
from kafkapy.protocol.messages.offset_commit import OffsetCommitRequest

READ = b"\x03"
GROUP, T, U = READ + b"\x02g", READ + b"t", READ + b"u"
BOTH = commit([("t", [Offset(0, 1)]), ("u", [Offset(0, 2)]), ("t", [Offset(1, 3)])])


@pytest.fixture
def log(commits: CommitBroker) -> PartitionLog:
    return commits.log()


# --- authorization ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_group_and_topics_are_asked_once(commits: CommitBroker, log: PartitionLog, version: int) -> None:
    commits.plane.authorizer_epoch = 0
    commits.lend(log)
    commits.check_served(log, BOTH, version)
    assert [sorted(each) for each in commits.questions] == [sorted([GROUP, T, U])]
    commits.check_served(log, BOTH, version)
    commits.check_served(log, commit(), version)
    assert len(commits.questions) == 1
    commits.plane.authorizer_epoch = 1
    commits.check_served(log, commit(), version)
    assert [sorted(each) for each in commits.questions[1:]] == [sorted([GROUP, T])]
    commits.check_served(log, BOTH, version)
    assert commits.questions[2:] == [[U]]
    connection = commits.connect()
    commits.check_served(log, commit(), version, connection=connection)
    assert len(commits.questions) == 4, "each connection has its decisions"


@pytest.mark.parametrize("denied", [GROUP, T, U], ids=["group", "one topic", "other topic"])
@pytest.mark.parametrize("version", [2, 9, 10])
def test_python_refuses_what_is_denied(commits: CommitBroker, log: PartitionLog, version: int, denied: bytes) -> None:
    commits.plane.authorizer_epoch = 0
    commits.allows = lambda question: question != denied
    lease = commits.lend(log)
    commits.check_declined(log, BOTH, version)
    assert [sorted(each) for each in commits.questions] == [sorted([GROUP, T, U])]
    commits.check_declined(log, BOTH, version)
    assert len(commits.questions) == 1, "the decision is known"
    assert len(commits.given) == 2
    if denied == U:
        commits.check_served(log, commit(), version)
    else:
        commits.check_declined(log, commit(), version)
    assert len(commits.questions) == 1
    commits.plane.authorizer_epoch = 1
    commits.allows = lambda question: True
    commits.check_served(log, BOTH, version)
    assert lease.end() is not None


def test_topics_that_the_lease_does_not_know_are_not_asked(commits: CommitBroker, log: PartitionLog) -> None:
    commits.plane.authorizer_epoch = 0
    commits.lend(log)
    commits.check_declined(log, commit([("t", [Offset(0, 1)]), ("v", [Offset(0, 1)])]), 10)
    commits.check_declined(log, commit(group="h"), 10)
    assert commits.questions == []


@pytest.mark.parametrize("version", [2, 10])
def test_a_lease_may_end_while_a_commit_is_asked(commits: CommitBroker, log: PartitionLog, version: int) -> None:
    commits.plane.authorizer_epoch = 0
    lease = commits.lend(log)
    commits.before_answer = lambda: wait_until(lambda: lease.end() is not None, "the lease has ended")
    commits.check_declined(log, BOTH, version)
    assert len(commits.questions) == 1
    commits.before_answer = lambda: None
    again = commits.lend(log)
    commits.check_served(log, BOTH, version)
    assert len(commits.questions) == 1
    assert lease.newest() == []
    assert len(again.newest()) == 3


def test_a_commit_that_was_asked_needs_the_lease_of_that_moment(commits: CommitBroker, log: PartitionLog) -> None:
    """Another lease: with other topics, with another generation, and one that fits."""
    commits.plane.authorizer_epoch = 0
    leases = [commits.lend(log)]

    def lend(terms: Terms) -> Callable[[], None]:
        def again() -> None:
            assert leases[-1].end() is not None
            leases.append(commits.lend(log, terms))

        return again

    for number, (terms, fits) in enumerate([
        (Terms(topics={"t": [0, 1]}), False),
        (Terms(members=[("m", None, 4)]), False),
        (Terms(topics={"u": [0], "v": [0], "t": [1, 0]}), True),
    ]):  # fmt: skip
        commits.before_answer = lend(terms)
        commits.plane.authorizer_epoch = number + 1
        if fits:
            commits.check_served(log, BOTH, 10)
        else:
            commits.check_declined(log, BOTH, 10)
        commits.before_answer = lambda: None
        lend(Terms())()
    assert len(commits.questions) == 3


def test_a_decision_by_old_rules_is_asked_again(commits: CommitBroker, log: PartitionLog) -> None:
    commits.plane.authorizer_epoch = 0
    commits.lend(log)

    def change() -> None:
        commits.plane.authorizer_epoch = min(commits.plane.authorizer_epoch + 1, 2)

    commits.before_answer = change
    commits.check_served(log, BOTH, 10)
    assert [sorted(each) for each in commits.questions] == [sorted([GROUP, T, U])] * 3


def test_a_client_may_leave_while_its_commit_is_asked(commits: CommitBroker, log: PartitionLog) -> None:
    commits.plane.authorizer_epoch = 0
    lease = commits.lend(log)
    client = commits.connect()

    def leave() -> None:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        wait_until(lambda: commits.server.counters()["connections"]["closed_by_peer"], "the connection is closed")

    commits.before_answer = leave
    client.send(BOTH, 10)
    wait_until(lambda: commits.questions, "the commit is asked")
    commits.before_answer = lambda: None
    commits.check_served(log, commit(), 10)
    assert [each[:3] for each in lease.newest()] == [("t", 0, 10)]


# --- quotas -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [2, 3, 10])
def test_a_client_over_its_quota_is_told(commits: CommitBroker, log: PartitionLog, version: int) -> None:
    sensor = QuotaSensor(1e-6, most_throttle_ms=50)
    commits.quotas = (None, None, sensor, None)
    commits.plane.quota_epoch = 0
    commits.lend(log)
    for _ in range(2):
        reply = commits.serve(log, BOTH, version)
        correlation_id, response = decode_response(8, version, reply)
        assert correlation_id == commits.connection.correlation_id
        assert response.throttle_time_ms == (50 if version >= 3 else 0)  # type: ignore[attr-defined]
    assert sensor.measure() > 0


def test_the_metric_of_a_quota_has_the_throttle_times_of_commits(commits: CommitBroker, log: PartitionLog) -> None:
    """As for requests that Python serves; see NetworkRequest.throttle."""
    sensor = QuotaSensor(1e-6, most_throttle_ms=50)
    commits.quotas = (None, None, sensor, None)
    commits.plane.quota_epoch = 0
    commits.lend(log)
    commits.serve(log, BOTH, 10)
    assert sensor.throttle_time_ms() == 50


def test_a_client_below_its_quota_is_not(commits: CommitBroker, log: PartitionLog) -> None:
    sensor, exempt = QuotaSensor(1e9), QuotaSensor(1e9)
    for quotas in ((None, None, sensor, exempt), (sensor, sensor, None, None), (None, None, None, None)):
        commits.quotas = quotas
        commits.plane.quota_epoch += 1
        commits.lend(log).end()
        lease = commits.lend(log)
        commits.check_served(log, BOTH, 10)
        commits.check_declined(log, commit(generation=1), 10)
        lease.end()
    assert sensor.measure() > 0 and sensor.throttle_time_ms() is None and exempt.measure() == 0


# --- counters and the request log ---------------------------------------------------------------------------------


def test_each_request_is_counted_once(commits: CommitBroker, log: PartitionLog) -> None:
    commits.plane.request_log_level = 1
    commits.lend(log)
    connection = commits.connection
    sizes = 0
    for request, version in ((BOTH, 10), (commit(generation=1), 9), (commit(), 2), (commit(group="h"), 2), (BOTH, 8)):
        connection.ask(request, version)
        sizes += len(connection.frame(request, version))
    counters = commits.plane.counters()[8]
    assert (counters["requests"], counters["errors"], counters["request_bytes"]) == (5, 0, sizes)
    served = 5 - len(commits.given)
    wait_until(lambda: commits.logged >= served, "the log has the requests that Python has not seen")
    assert commits.logged == served
    wait_until(lambda: sum(commits.plane.counters()[8]["total_histogram"]) == 5, "all are measured")


# --- frames -------------------------------------------------------------------------------------------------------

WIDE = Terms(topics={"t": range(4), "u": [0], "w": range(400)})
SMALL = commit()
SMALL_DECLINED = commit(generation=1)
LARGE = commit([("w", [Offset(number, number * 3, 7, "meta data") for number in range(400)])])
LARGE_DECLINED = commit([("w", [Offset(number, 1, 7, "meta data") for number in range(400)])], generation=1)
LATE_DECLINED = commit([("w", [Offset(number, 1, 7, "meta data") for number in range(401)])])
HUGE_DECLINED = commit([("w", [Offset(number, 1, 7, "m" * 1000) for number in range(300)])])
NAMES = {UUID(bytes=topic_id(name)): name for name in WIDE.topics}


def test_large_frames_are_served_and_declined(commits: CommitBroker, log: PartitionLog) -> None:
    commits.lend(log, WIDE)
    for version in VERSIONS:
        assert len(LARGE.encode(version)) > 8192
        commits.check_served(log, LARGE, version, WIDE.topics)
        commits.check_declined(log, LARGE_DECLINED, version)
        commits.check_declined(log, LATE_DECLINED, version)
        commits.check_declined(log, HUGE_DECLINED, version)
        commits.check_served(log, LARGE, version, WIDE.topics)


def test_large_frames_are_asked(commits: CommitBroker, log: PartitionLog) -> None:
    commits.lend(log, WIDE)
    commits.allows = lambda question: commits.plane.authorizer_epoch % 2 == 0
    for version in VERSIONS:
        commits.plane.authorizer_epoch += 1
        commits.check_served(log, LARGE, version, WIDE.topics)
        commits.plane.authorizer_epoch += 1
        commits.check_declined(log, LARGE, version)
    assert len(commits.questions) == 2 * len(VERSIONS)


@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_frame_stays_while_others_come(commits: CommitBroker, log: PartitionLog, version: int, asked: bool) -> None:
    """The network thread reads another connection's bytes before Python looks at a request."""
    commits.lend(log, WIDE)

    def read_others() -> None:
        other = Connection(commits.server.bound_port("PLAINTEXT"))
        other.send_bytes(b"\xff" * 30_000)  # no frame: the broker closes the connection
        with contextlib.suppress(ConnectionError), pytest.raises(EOFError):
            other.receive()
        other.close()

    commits.before_answer = read_others
    for number, request in enumerate((LARGE_DECLINED, LATE_DECLINED, SMALL_DECLINED, HUGE_DECLINED)):
        commits.plane.authorizer_epoch = number if asked else -1
        commits.check_declined(log, request, version)
        commits.check_served(log, LARGE, version, WIDE.topics)
    assert len(commits.questions) == (5 if asked else 0)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_frame_may_come_in_parts(commits: CommitBroker, log: PartitionLog, version: int) -> None:
    commits.lend(log, WIDE)
    connection = commits.connection
    for request in (SMALL, LARGE, LARGE_DECLINED, HUGE_DECLINED):
        body = request.encode(version)
        for cut in (3, 9, 40, 41, len(body) // 2, len(body)):
            frame = connection.frame(body, version)
            given, end = len(commits.given), log.log_end_offset
            connection.send_bytes(frame[:cut])
            # The server has read the beginning once it has answered another connection's request.
            assert commits.connect().ask(SMALL_DECLINED, 2)
            connection.send_bytes(frame[cut:])
            reply = connection.receive()
            if request in (SMALL, LARGE) and len(commits.given) == given + 1:
                assert reply == success(request, version, connection.correlation_id)
                assert log.log_end_offset == end + len(committed(request, version, NAMES))
            else:
                assert reply == by_python(body, version, connection.correlation_id)
                assert log.log_end_offset == end
                commits.append_marker(log)


@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("version", VERSIONS)
def test_replies_come_in_the_order_of_the_requests(
    commits: CommitBroker, log: PartitionLog, version: int, asked: bool
) -> None:
    """All come at once: served and declined ones, small and large."""
    commits.plane.authorizer_epoch = 0 if asked else -1
    lease = commits.lend(log, WIDE)
    connection = commits.connection
    bodies: list[bytes] = []
    for number in range(24):
        small = commit([("t", [Offset(0, number), Offset(1, number, 2, "x" * number)])])
        few = (small, SMALL_DECLINED, LARGE, small, LARGE_DECLINED, LATE_DECLINED, SMALL_DECLINED)
        bodies += [request.encode(version) for request in few[number % 4 :]]
    first = connection.correlation_id + 1
    data = b"".join(connection.frame(body, version) for body in bodies)
    received: list[bytes] = []
    # The replies are read while requests are written: neither side waits for the other.
    with Sending(connection, data):
        received = [connection.receive() for _ in bodies]
    stored = []
    served = 0
    for correlation_id, (body, reply) in enumerate(zip(bodies, received, strict=True), first):
        request = OffsetCommitRequest.decode(body, version)
        if reply != by_python(body, version, correlation_id):
            assert reply == success(request, version, correlation_id)
            assert request.generation_id_or_member_epoch == 3 and len(request.topics[0].partitions) != 401
            stored += committed(request, version, NAMES)
            served += 1
    assert served > 0
    assert stored == told_of(entries(read(log)))
    newest = {each[:2]: each for each in stored}
    assert sorted(each[:5] for each in lease.newest()) == sorted(newest.values())
    assert len(commits.given) == len(bodies) - served
    assert len(commits.questions) == (2 if asked else 0)


class Sending:
    """A write that goes on in another thread while the caller reads."""

    def __init__(self, connection: Connection, data: bytes) -> None:
        self.thread = threading.Thread(target=connection.send_bytes, args=(data,))

    def __enter__(self) -> None:
        self.thread.start()

    def __exit__(self, *_: object) -> None:
        self.thread.join()
