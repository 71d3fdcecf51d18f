"""The shared state of the data plane: properties, counters, endpoints, authorization."""

from __future__ import annotations

from typing import Any

import pytest

from kafkapy.errors import ErrorCode


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
        reply = broker.fetch([("t", 0, 0), ("t", 1, 0)], version=version)
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
