"""Rates of new connections, of broker, listener and address, with windows that do not end in a test."""

from __future__ import annotations

from typing import Any

import pytest

WINDOW_S = 3600
WINDOW_MS = WINDOW_S * 1000
MANY = 1000
TINY = 1e-9


def slow(network: Any, **config: Any) -> Any:
    return network(quota_window_num=2, quota_window_size_seconds=WINDOW_S, **config)


def throttled(net: Any, listener: int = 0) -> tuple[int, int]:
    """Ms of throttling by the rates of broker and listener, and by those of addresses."""
    _, ms, address_ms = net.server.quotas.creation_rates()[1][listener]
    return ms, address_ms


@pytest.mark.parametrize("whose", ["broker", "listener"])
def test_a_rate_that_is_exceeded_makes_the_next_connection_wait_for_a_window(network, eventually, whose):
    net = slow(network)
    quotas = net.server.quotas
    if whose == "broker":
        quotas.set_broker_limits(MANY, TINY)
    else:
        quotas.set_listener_limits(0, MANY, TINY)
    assert net.client().ask(b"x") == b"x"
    assert throttled(net) == (WINDOW_MS, 0), "never longer than a window"
    waiting = net.client()
    waiting.send(b"y")
    assert waiting.silent()
    assert quotas.count == 1
    rate, listeners = quotas.creation_rates()
    assert [rate, listeners[0][0]] == pytest.approx([1 / WINDOW_S] * 2, rel=0.1)
    # Limits that change are limits at once.
    quotas.set_listener_limits(0, MANY)
    assert waiting.receive()[1] == b"y"
    assert throttled(net) == (WINDOW_MS * (2 if whose == "broker" else 1), 0)
    assert quotas.creation_rates()[0] == pytest.approx(2 / WINDOW_S, rel=0.1)


def test_a_rate_that_is_not_exceeded_throttles_nothing(network):
    net = slow(network)
    net.server.quotas.set_broker_limits(MANY, 1.0)
    net.server.quotas.set_listener_limits(0, MANY, 1.0)
    net.server.quotas.set_address_rates(1.0)
    assert all(net.client().ask(b"x") == b"x" for _ in range(20))
    assert throttled(net) == (0, 0)


def test_the_brokers_own_listener_does_not_count_in_the_rate_of_the_broker(network, eventually):
    net = slow(network, listeners=("CLIENTS", "BROKERS"), inter_broker_listener_name="BROKERS")
    quotas = net.server.quotas
    quotas.set_broker_limits(MANY, TINY)
    for _ in range(3):
        assert net.client("BROKERS").ask(b"x") == b"x"
    assert (throttled(net, 1), quotas.creation_rates()[0]) == ((0, 0), 0)
    assert quotas.creation_rates()[1][1][0] == pytest.approx(3 / WINDOW_S, rel=0.1)
    assert net.client("CLIENTS").ask(b"x") == b"x"
    assert throttled(net, 0) == (WINDOW_MS, 0)
    # Another listener is the inter-broker one from now on.
    quotas.protect_listener(0)
    assert net.client("BROKERS").ask(b"x") == b"x"
    assert throttled(net, 1) == (WINDOW_MS, 0)


def test_an_address_above_its_rate_is_not_served_and_does_not_count(network, eventually):
    net = slow(network)
    quotas = net.server.quotas
    quotas.set_address_rates(TINY, {"127.0.0.2": 1.0})
    refused = net.client()
    refused.send(b"x")
    eventually(lambda: throttled(net) == (0, WINDOW_MS))
    assert refused.silent()
    assert (quotas.count, quotas.listener_count(0), net.counters()["connections"]["created"]) == (0, 0, 0)
    for _ in range(3):
        assert net.client(source="127.0.0.2").ask(b"x") == b"x"
    assert throttled(net) == (0, WINDOW_MS)
    # What was refused has not been counted: the address is served as soon as its rate allows it.
    quotas.set_address_rates(0.0)
    assert net.client().ask(b"x") == b"x"
    assert quotas.count == 4
    quotas.set_address_rates(0.0, {"127.0.0.1": 1 / WINDOW_S})
    assert net.client().ask(b"x") == b"x"
    second = net.client()
    eventually(lambda: throttled(net)[1] > WINDOW_MS)
    assert second.silent()


def test_limits_of_addresses_and_listeners_are_told_apart(network, eventually):
    net = slow(network, listeners=("ONE", "TWO"))
    quotas = net.server.quotas
    quotas.set_ip_limits(1, {"127.0.0.2": 2, "127.0.0.3": 0})
    assert net.client("ONE").ask(b"x") == b"x"
    assert net.client("TWO").closed_by_broker(), "an address counts over all listeners"
    two = [net.client("TWO", source="127.0.0.2") for _ in range(2)]
    assert all(each.ask(b"x") == b"x" for each in two)
    assert net.client("ONE", source="127.0.0.2").closed_by_broker()
    assert net.client("ONE", source="127.0.0.3").closed_by_broker()
    assert (quotas.count, quotas.listener_count(0), quotas.listener_count(1)) == (3, 1, 2)
    two[0].close()
    eventually(lambda: quotas.count == 2)
    assert quotas.listener_count(1) == 1
    assert net.client("ONE", source="127.0.0.2").ask(b"x") == b"x"
    assert net.client("ONE", source="127.0.0.2").closed_by_broker()
    quotas.set_ip_limits(2)
    assert net.client("ONE").ask(b"x") == b"x"
    assert net.counters()["connections"]["refused_per_ip"] == 4
