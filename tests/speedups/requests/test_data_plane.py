"""The shared state of the data plane: properties, counters, endpoints, authorization."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from threading import Thread
from typing import Any

import pytest

from kafkapy._speedups.requests.data_plane import DataPlane
from kafkapy._speedups.requests.fetch_session import FetchSessionCache
from kafkapy._speedups.testing.request_driver import RequestDriver
from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.fetch import FetchResponse


def test_properties_are_those_it_was_made_with(broker: Any) -> None:
    plane = broker.plane
    assert plane.node_id == 1
    assert plane.partition_table is broker.table
    assert plane.fetch_session_cache is broker.sessions
    assert plane.event_queue is broker.events
    assert plane.authorizer_epoch == -1
    plane.fetch_max_bytes = 4096
    assert plane.fetch_max_bytes == 4096
    with pytest.raises(ValueError):
        plane.fetch_max_bytes = 1000


def test_counters_count_requests_and_failed_ones(broker: Any) -> None:
    broker.topic("t")
    assert broker.plane.counters() == {}
    broker.produce({"t": [(0, broker.batch())]})
    broker.produce({"t": [(7, broker.batch())]})
    broker.fetch([("t", 0, 0)])
    counters = broker.plane.counters()
    assert set(counters) == {0, 1}
    assert counters[0]["requests"] == 2
    assert counters[0]["errors"] == 1
    assert counters[1]["requests"] == 1
    assert counters[1]["errors"] == 0
    assert counters[1]["response_bytes"] > len(broker.batch())
    assert len(counters[0]["total_histogram"]) == 32


def test_what_is_not_set_is_what_kafka_has(broker: Any) -> None:
    plane = DataPlane(7, broker.table, broker.sessions, broker.events)
    assert (plane.node_id, plane.fetch_max_bytes) == (7, 55 * 1024 * 1024)
    assert (plane.authorizer_epoch, plane.quota_epoch, plane.request_log_level) == (-1, -1, 0)
    assert (plane.verify_transactions, plane.replica_selector) == (True, "leader")
    assert (plane.share_table, plane.commit_table) == (None, None)
    for name in ("rack_aware", "asked", "leader"):
        plane.replica_selector = name
        assert plane.replica_selector == name
    plane.verify_transactions = False
    assert plane.verify_transactions is False
    plane.quota_epoch, plane.request_log_level = 5, 2
    assert (plane.quota_epoch, plane.request_log_level) == (5, 2)
    plane.fetch_max_bytes = 1024
    with pytest.raises(ValueError, match="must be at least 1024, not 1023"):
        plane.fetch_max_bytes = 1023
    assert plane.fetch_max_bytes == 1024
    assert FetchSessionCache().counters() == {"sessions": 0, "partitions": 0, "evictions": 0}


@pytest.mark.parametrize(
    ("name", "possible"),
    [
        *((each, True) for each in ("a", "z", "A", "Z", "0", "9", "_", "-", "a.", ".a", "...", "t" * 249)),
        *((each, False) for each in ("", ".", "..", "t" * 250)),
        # The neighbours of letters, digits and signs.
        *((f"t{each}", False) for each in "@[`{/:,^ \x7f\N{LATIN SMALL LETTER E WITH ACUTE}"),
    ],
)
def test_only_a_name_that_kafka_allows_is_asked_about(broker: Any, name: str, possible: bool) -> None:
    broker.plane.authorizer_epoch = 1
    exchange = broker.fetch_exchange([(name, 0, 0)])
    if possible:
        assert (exchange.kind, exchange.questions) == ("ask", [b"\x03" + name.encode()])
        exchange.cancel()
    else:
        entry = broker.only(broker.fetch_reply(exchange, 12))
        assert entry.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize("produce", [True, False])
@pytest.mark.parametrize("newest", [True, False])
def test_a_client_at_the_wrong_broker_is_told_the_leader_and_where_it_is(
    broker: Any, produce: bool, newest: bool
) -> None:
    (log,) = broker.topic("t", 2)[:1]
    log.become_follower(2, 5)
    broker.table.remove_log("t", 1)
    broker.table.set_leader("t", 1, 3, 7)
    broker.plane.set_endpoints(
        0, {2: ("two.example", 9092, "rack-a"), 3: ("three.example", 9093, None), 4: ("four", 1, None)}
    )
    broker.plane.set_endpoints(1, {2: ("inside", 1, None)})
    if produce:
        version = 10 if newest else 9
        reply = broker.produce({"t": [(0, broker.batch()), (1, broker.batch())]}, version=version)
    else:
        version = 16 if newest else 15
        reply = broker.fetch([("t", 0, 0), ("t", 1, 0)], version=version, replica_id=4)
    entries = {index: entry for (_, index), entry in broker.by_partition(reply).items()}
    assert [entries[i].error_code for i in (0, 1)] == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    leaders = [(entries[i].current_leader.leader_id, entries[i].current_leader.leader_epoch) for i in (0, 1)]
    endpoints = [(node.node_id, node.host, node.port, node.rack) for node in reply.node_endpoints]
    if newest:
        assert leaders == [(2, 5), (3, 7)]
        assert endpoints == [(2, "two.example", 9092, "rack-a"), (3, "three.example", 9093, None)]
    else:
        assert leaders == [(-1, -1)] * 2
        assert endpoints == []


def test_endpoints_are_replaced_per_listener(broker: Any) -> None:
    broker.topic("t")[0].become_follower(2, 5)
    broker.plane.set_endpoints(0, {2: ("old", 1, None)})
    broker.plane.set_endpoints(0, {3: ("three", 3, None)})
    reply = broker.produce({"t": [(0, broker.batch())]}, version=11)
    assert broker.only(reply).current_leader.leader_id == 2
    assert reply.node_endpoints == []


def test_decisions_of_another_epoch_are_asked_anew(broker: Any) -> None:
    broker.topic("t")
    broker.plane.authorizer_epoch = 1
    exchange = broker.fetch_exchange([("t", 0, 0)])
    assert exchange.kind == "ask"
    assert not exchange.asks_validation
    assert exchange.questions == [b"\x03t"]
    broker.driver.decide({b"\x03t": True})
    assert broker.only(broker.fetch_reply(exchange.resume(), 12)).error_code == ErrorCode.NONE
    assert broker.only(broker.fetch([("t", 0, 0)])).error_code == ErrorCode.NONE
    broker.plane.authorizer_epoch = 2
    exchange = broker.fetch_exchange([("t", 0, 0)])
    assert exchange.questions == [b"\x03t"]
    broker.driver.decide({b"\x03t": False})
    assert broker.only(broker.fetch_reply(exchange.resume(), 12)).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    broker.plane.authorizer_epoch = -1
    assert broker.only(broker.fetch([("t", 0, 0)])).error_code == ErrorCode.NONE


def test_each_topic_and_operation_has_its_own_decision(broker: Any) -> None:
    """Also when it is looked up right after another one, in any order, and again after it has changed."""
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    for name in ("t", "tt", "u"):
        broker.topic(name)
    broker.plane.authorizer_epoch = 1
    decisions = {b"\x03t": True, b"\x03tt": False, b"\x03u": False, b"\x04t": False, b"\x04tt": True, b"\x04u": True}
    for _ in range(2):
        broker.driver.decide(decisions)
        for name in ("t", "t", "tt", "t", "u", "tt", "u", "u"):
            reading, writing = decisions[b"\x03" + name.encode()], decisions[b"\x04" + name.encode()]
            for _ in range(2):
                assert broker.only(broker.fetch([(name, 0, 0)])).error_code == (ErrorCode.NONE if reading else denied)
            reply = broker.produce({name: [(0, broker.batch())]}, version=9)
            assert broker.only(reply).error_code == (ErrorCode.NONE if writing else denied)
        decisions = {key: not allowed for key, allowed in decisions.items()}


def test_a_question_without_answer_is_asked_again(broker: Any) -> None:
    broker.topic("t")
    broker.plane.authorizer_epoch = 1
    exchange = broker.send(broker.produce_request({"t": [(0, broker.batch())]}, version=9), 9)
    assert exchange.resume().kind == "ask"
    assert exchange.questions == [b"\x04t"]
    exchange.cancel()
    exchange.cancel()
    with pytest.raises(RuntimeError):
        exchange.resume()


def test_the_driver_serves_only_produce_and_fetch(broker: Any) -> None:
    with pytest.raises(ValueError):
        broker.driver.handle(3, 0, 1, None, b"")


def test_connections_on_many_threads_share_logs_and_sessions(broker: Any) -> None:
    producers, each, partitions = 3, 150, 2
    logs = broker.topic("t", partitions)
    failures: list[BaseException] = []
    read: list[list[int]] = []

    def produce() -> None:
        driver = RequestDriver(broker.plane)
        for turn in range(each):
            request = broker.produce_request({"t": [(turn % partitions, broker.batch(b"x" * 50))]}, version=9, acks=-1)
            exchange = driver.handle(0, 9, 1, None, request.encode(9))
            finish(exchange)  # it may have to wait for its turn at the log
            assert exchange.kind == "reply", exchange.message

    def finish(exchange: Any) -> None:
        while exchange.kind == "parked":
            while not exchange.wakes:
                assert not failures, "another thread has failed"
                time.sleep(0.0005)
            exchange.resume()

    def consume() -> None:
        driver = RequestDriver(broker.plane)
        session, epoch = 0, 0
        offsets = [0] * partitions
        while sum(offsets) < producers * each:
            changed = [("t", index, offset) for index, offset in enumerate(offsets)]
            request = broker.fetch_request(
                changed, version=12, session_id=session, session_epoch=epoch, max_wait_ms=1000, partition_max_bytes=2000
            )
            exchange = driver.handle(1, 12, 1, None, request.encode(12))
            finish(exchange)
            reply = FetchResponse.decode(exchange.reply[9:], 12)
            assert reply.error_code == 0
            session, epoch = reply.session_id, epoch + 1
            for entry in broker.by_partition(reply).values():
                for batch in iterate_batches(bytes(entry.records)):
                    assert batch == offsets[entry.partition_index]
                    offsets[entry.partition_index] += 1
        read.append(offsets)

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as failure:
            failures.append(failure)

    threads = [Thread(target=guarded, args=(work,)) for work in [produce] * producers + [consume] * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert read == [[log.log_end_offset for log in logs]] * 3
    assert len(broker.sessions) == 3


def iterate_batches(data: bytes) -> Iterator[int]:
    """Base offsets of the whole batches."""
    at = 0
    while at + 12 <= len(data):
        offset, length = struct.unpack_from(">qi", data, at)
        at += 12 + length
        if at <= len(data):
            yield offset
