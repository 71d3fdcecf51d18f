"""Quotas of clients at the network: who is asked for them and when, what counts in which sensor, and throttling."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from kafkapy._speedups.network.network_request import ASK_QUOTAS
from kafkapy._speedups.requests.client_quotas import QuotaSensor
from kafkapy.network.socket_server import ListenerSecurity
from kafkapy.protocol.messages.fetch import FetchResponse
from kafkapy.protocol.messages.produce import ProduceResponse

WINDOW_S = 1_000_000
NAMES = ("produce", "fetch", "request", "exempt")


class Quotas:
    """The Python side: gives connections their sensors, and answers what comes to it."""

    def __init__(self, net: Any, **bounds: float | None) -> None:
        self.net, self.asked = net, []
        self.charge: tuple[int, bool] | None = None
        self.charged: list[int] = []
        wanted = dict.fromkeys(NAMES, 1e12) | bounds
        # The sum over two windows that do not end in a test.
        self.sensors = {
            name: None if bound is None else QuotaSensor(bound, 2, WINDOW_S * 1000, 60_000)
            for name, bound in wanted.items()
        }
        net.handler = self.handle
        net.plane.quota_epoch = 1

    def handle(self, request: Any) -> None:
        if request.ask_kind == ASK_QUOTAS:
            with pytest.raises(RuntimeError, match="asks for a decision of kind"):
                request.charge_time(1)
            self.asked.append((request.api_key, request.client_id))
            request.set_quotas(self.net.plane.quota_epoch, *(self.sensors[name] for name in NAMES))
            return
        if self.charge is not None:
            assert request.counts_time
            self.charged.append(request.charge_time(*self.charge))
        request.reply(request.body)

    def sum(self, name: str) -> float:
        """What has been recorded in a sensor since its begin."""
        sensor = self.sensors[name]
        assert sensor is not None
        return float(sensor.measure() * WINDOW_S)


def test_sensors_are_asked_for_once_for_each_connection_client_and_epoch(network):
    net = network()
    net.topic("t")
    quotas = Quotas(net)
    client, other = net.client(), net.client()
    for _ in range(3):
        client.ask(b"x")
        client.send_bytes(net.fetch_frame("t"))
        client.receive()
    assert quotas.asked == [(3, "c")]
    other.send_bytes(net.fetch_frame("t"))
    other.receive()
    assert quotas.asked[1:] == [(1, "c")]
    client.ask(b"x", client_id="d")
    client.ask(b"x", client_id="e")
    client.ask(b"x", client_id="ee")
    client.ask(b"x", client_id="")
    client.ask(b"x", client_id="")
    assert [name for _, name in quotas.asked[2:]] == ["d", "e", "ee", ""]
    net.plane.quota_epoch = 2
    client.ask(b"x", client_id="")
    assert len(quotas.asked) == 7
    net.plane.quota_epoch = -1
    other.ask(b"x", client_id="new")
    assert len(quotas.asked) == 7


def test_large_requests_keep_their_bytes_while_sensors_are_asked_for(network):
    net = network(num_network_threads=1)
    log = net.topic("t")
    Quotas(net)
    clients = [net.client() for _ in range(3)]
    for number, client in enumerate(clients):
        client.send_bytes(net.produce_frame("t", net.batch(b"%d" % number * 50_000)) + client.frame(b"behind"))
    for client in clients:
        assert net.produced(client.receive()[1]).error_code == 0
        assert client.receive()[1] == b"behind"
    data = log.read(0, 1 << 20)[0]
    assert all(b"%d" % number * 50_000 in data for number in range(3))


def test_bytes_count_in_the_quota_of_their_direction(network, eventually):
    net = network()
    net.topic("t")
    quotas = Quotas(net)
    client = net.client()
    frame = net.produce_frame("t", net.batch(b"v" * 1000))
    for _ in range(2):
        client.send_bytes(frame)
        client.receive()
    assert quotas.sum("produce") == pytest.approx(2 * (len(frame) - 4), rel=1e-3)
    assert quotas.sum("fetch") == 0
    client.send_bytes(net.fetch_frame("t"))
    _, payload = client.receive()
    fetched = quotas.sum("fetch")
    assert abs(fetched - len(payload)) < 64
    assert quotas.sum("produce") == pytest.approx(2 * (len(frame) - 4), rel=1e-3)
    # Thread time counts as well, and what no quota bounds is apart.
    eventually(lambda: quotas.sum("request") > 0)
    assert quotas.sum("exempt") == 0
    before = quotas.sum("request")
    client.send_bytes(net.produce_frame("t", net.batch(b"v"), acks=0) + net.fetch_frame("t", 1 << 40))
    client.receive()
    assert quotas.sum("exempt") > 0
    assert quotas.sum("request") > before


@pytest.mark.parametrize("exempt", [False, True])
def test_the_time_of_python_counts_where_it_says(network, eventually, exempt):
    net = network()
    quotas = Quotas(net)
    quotas.charge = (50_000_000_000, exempt)
    client = net.client()
    for _ in range(2):
        client.ask(b"x")
    # 50 s are 5000 % of a second; sending adds some microseconds.
    name, other = ("exempt", "request") if exempt else ("request", "exempt")
    eventually(lambda: quotas.sum(name) == pytest.approx(10_000, rel=0.02))
    assert quotas.sum(other) == pytest.approx(0, abs=1)
    assert quotas.charged == [0, 0]


def test_time_above_the_quota_is_throttled(network):
    net = network()
    quotas = Quotas(net, request=1e-9)
    quotas.charge = (1_000_000_000, False)
    client = net.client()
    client.ask(b"x")
    assert quotas.charged == [60_000], "at most as long as the sensor says"


@pytest.mark.parametrize("kind", ["produce", "fetch"])
def test_a_client_above_its_quota_is_told_and_waits(network, eventually, kind):
    net = network()
    log = net.topic("t")
    log.append_as_leader(net.batch(b"v" * 100))
    quotas = Quotas(net, **{kind: 1e-9})
    client, other = net.client(), net.client()
    client.send_bytes(net.produce_frame("t", net.batch(b"v" * 100)) if kind == "produce" else net.fetch_frame("t"))
    _, payload = client.receive()
    if kind == "produce":
        reply = ProduceResponse.decode(payload[1:], 9)
        assert reply.responses[0].partition_responses[0].error_code == 0
    else:
        reply = FetchResponse.decode(payload[1:], 12)
        # The records come when the client asks again.
        assert not any(each.records for topic in reply.responses for each in topic.partitions)
        assert quotas.sum("fetch") == pytest.approx(0, abs=1e-6)
    assert reply.throttle_time_ms == 60_000
    sensor = quotas.sensors[kind]
    assert sensor is not None and sensor.throttle_time_ms() == 60_000
    request = quotas.sensors["request"]
    assert request is not None and request.throttle_time_ms() is None
    client.send(b"waits")
    assert client.silent()
    assert other.ask(b"x") == b"x"
    eventually(lambda: sum(net.counters()["times"][{"produce": 0, "fetch": 1}[kind]]["throttle"][1]) == 1)


def test_a_throttled_client_that_goes_away_is_not_kept_for_its_time(network, eventually):
    net = network()
    net.topic("t")
    Quotas(net, produce=1e-9)
    client = net.client()
    client.send_bytes(net.produce_frame("t", net.batch(b"v")))
    client.receive()
    client.close()
    eventually(lambda: not net.server.connections())


def test_without_any_sensor_nothing_is_counted(network):
    net = network()
    net.topic("t")
    quotas = Quotas(net, produce=None, fetch=None, request=None, exempt=None)
    seen: list[Any] = []
    client = net.client()
    client.ask(b"x")

    def handler(request: Any) -> None:
        seen.append((request.counts_time, request.charge_time(10**12), request.charge_time(10**12, True)))
        request.reply(b"")

    net.handler = handler
    client.ask(b"x")
    client.send_bytes(net.produce_frame("t", net.batch(b"v")) + net.fetch_frame("t"))
    assert net.produced(client.receive()[1]).error_code == 0
    client.receive()
    assert (seen, len(quotas.asked)) == ([(False, 0, 0)], 1)


@pytest.mark.parametrize(
    ("name", "counts"), [("produce", False), ("fetch", False), ("request", True), ("exempt", True)]
)
def test_time_is_counted_where_a_quota_bounds_or_counts_it(network, name, counts):
    net = network()
    quotas = Quotas(net, **{each: None for each in NAMES if each != name})
    client = net.client()
    client.ask(b"x")
    seen: list[Any] = []
    net.handler = lambda request: (seen.append(request.counts_time), request.reply(b""))
    client.ask(b"x")
    assert (seen, len(quotas.asked)) == ([counts], 1)


def test_before_the_authentication_there_are_no_quotas(network):
    net = network(listeners=("SASL",), listener_security={"SASL": ListenerSecurity(sasl=True)})
    quotas = Quotas(net)
    handle = net.handler

    def handler(request: Any) -> None:
        if request.stage == "sasl":
            request.authenticated("User:a", reply=b"")
        else:
            handle(request)

    net.handler = handler
    client = net.client("SASL")
    client.ask(b"", key=36, version=1)
    assert quotas.asked == []
    client.ask(b"x")
    assert quotas.asked == [(3, "c")]
    # Of another principal the sensors are others.
    net.handler = lambda request: (
        request.authenticated("User:b", reply=b"") if request.api_key == 36 else handle(request)
    )
    client.ask(b"", key=36, version=1)
    client.ask(b"x")
    assert len(quotas.asked) == 2


def test_a_connection_that_goes_while_its_sensors_are_asked_for_leaves_them(network, eventually):
    net = network()
    quotas = Quotas(net)
    kept: list[Any] = []
    net.handler = kept.append
    client = net.client()
    client.send_bytes(struct.pack(">i", 20) + client.frame(b"x" * 9)[4:24])
    request = eventually(lambda: kept).pop()
    assert request.ask_kind == ASK_QUOTAS
    client.reset()
    eventually(lambda: not net.server.connections())
    quotas.handle(request)
    del request
    eventually(lambda: not any(each.is_shared() for each in quotas.sensors.values() if each is not None))


@pytest.mark.parametrize(("throttle_ms", "of_time", "noted"), [(5, True, 5), (5, False, None), (0, True, None)])
def test_a_throttle_time_is_noted_where_it_is_of_the_request_quota(network, throttle_ms, of_time, noted):
    net = network()
    quotas = Quotas(net)
    handle = net.handler

    def handler(request: Any) -> None:
        if request.ask_kind is None:
            request.throttle(throttle_ms, of_time)
        handle(request)

    net.handler = handler
    client = net.client()
    assert client.ask(b"x") == b"x"
    found = {name: sensor.throttle_time_ms() for name, sensor in quotas.sensors.items() if sensor is not None}
    assert found == dict.fromkeys(NAMES) | {"request": noted}
    assert client.ask(b"y") == b"y"


def test_a_throttled_connection_is_not_idle(network, eventually):
    net = network(connections_max_idle_ms=100, num_network_threads=1)
    net.handler = lambda request: (request.throttle(60_000), request.reply(b""))
    while True:
        throttled = net.client()
        try:
            throttled.ask()
            break
        except (EOFError, ConnectionError):  # a machine so busy that it was idle before it asked
            pass
    idle = net.client()
    assert idle.closed_by_broker()
    assert net.counters()["connections"]["closed_idle"] >= 1
    # It is older than the one that was closed.
    assert [each["peer_port"] for each in net.server.connections()] == [throttled.socket.getsockname()[1]]
