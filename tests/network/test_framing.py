"""Frames out of streams of bytes, and the frames that close a connection."""

from __future__ import annotations

import struct
import time

import pytest


def test_a_request_cut_at_every_byte_is_answered(network):
    client = network().client()
    body = bytes(range(40))
    data = client.frame(body)
    for cut in range(1, len(data)):
        client.send_bytes(data[:cut])
        time.sleep(0.001)
        client.send_bytes(data[cut:])
        assert client.receive() == (1, body)


def test_a_request_that_comes_byte_by_byte_is_answered_and_slows_nobody(network):
    net = network(num_network_threads=1)
    slow, other = net.client(), net.client()
    data = slow.frame(b"drip" * 5)
    for index in range(len(data)):
        slow.send_bytes(data[index : index + 1])
        assert other.ask(b"swift") == b"swift"
    assert slow.receive() == (1, b"drip" * 5)


def test_pipelined_requests_are_answered_in_order(network):
    net = network()
    net.topic("t")
    client = net.client()
    count = 600
    data = bytearray()
    for index in range(count):
        # By turns one that Python answers, and one that the data plane does.
        data += (
            client.frame(b"x" * (index % 50), correlation_id=index)
            if index % 2
            else net.fetch_frame("t", correlation_id=index)
        )
    client.send_bytes(bytes(data))
    assert [client.receive()[0] for _ in range(count)] == list(range(count))


@pytest.mark.parametrize("size", [0, 1, 8 * 1024, 64 * 1024, 128 * 1024 - 30, 128 * 1024, 300_000, 1_000_000])
def test_bodies_of_every_size_come_through_whole(network, size):
    client = network().client()
    body = bytes(index * 7 % 251 for index in range(1000)) * (size // 1000 + 1)
    body = body[:size]
    client.send_bytes(client.frame(body, correlation_id=1) + client.frame(b"after", correlation_id=2))
    assert client.receive() == (1, body)
    assert client.receive() == (2, b"after")


def test_large_bodies_that_python_has_keep_their_bytes_when_others_come(network, eventually):
    """All of them came through the one read buffer of their thread."""
    net = network(num_network_threads=1)
    requests = []
    net.handler = requests.append
    clients = [net.client() for _ in range(4)]
    for index, client in enumerate(clients):
        client.send(b"%d" % index * 20_000)
        eventually(lambda count=index + 1: len(requests) == count)
    assert [bytes(request.body) for request in requests] == [b"%d" % index * 20_000 for index in range(4)]
    for request in requests:
        request.reply(b"")
    assert [client.receive()[1] for client in clients] == [b""] * 4


def test_a_large_produce_behind_a_small_request_keeps_its_bytes(network):
    net = network()
    log = net.topic("t")
    client = net.client()
    values = [bytes([index]) * 20_000 for index in range(4)]
    data = client.frame(b"first", correlation_id=0)
    for index, value in enumerate(values):
        data += net.produce_frame("t", net.batch(value), correlation_id=index + 1)
    client.send_bytes(data)
    assert [client.receive()[0] for _ in range(5)] == [0, 1, 2, 3, 4]
    records = log.read(0, 1 << 20)[0]
    assert all(value in records for value in values)


@pytest.mark.parametrize("size", [-1, -(2**31), (1 << 20) + 1, 2**31 - 1])
def test_a_size_that_is_negative_or_too_large_closes_the_connection_with_one_line(network, size, eventually):
    net = network()
    client = net.client()
    client.send_bytes(struct.pack(">i", size))
    assert client.closed_by_broker()
    lines = eventually(net.lines)
    assert len(lines) == 1 and "socket.request.max.bytes" in lines[0]
    assert net.client().ask(b"others go on") == b"others go on"


@pytest.mark.parametrize(
    ("came", "protocol"),
    [
        (b"GET / HTTP/1.1\r\nHost: here\r\n\r\n", "HTTP"),
        (b"POST /topics HTTP/1.1\r\n\r\n", "HTTP"),
        (bytes.fromhex("16030100c8010000c40303"), "TLS"),
    ],
)
def test_another_protocol_closes_the_connection_and_is_named(network, came, protocol, eventually):
    net = network()
    client = net.client()
    client.send_bytes(came)
    assert client.closed_by_broker()
    lines = eventually(net.lines)
    assert len(lines) == 1 and f"{protocol} came instead of Kafka's protocol" in lines[0]


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (b"", "truncated"),
        (b"\x00\x03\x00\x05\x00\x00", "truncated"),
        (struct.pack(">hhih", 3, 5, 1, 20) + b"short", "truncated"),
        (struct.pack(">hhih", 3, 5, 1, -2), "truncated"),
        (struct.pack(">hhih", 3, 5, 1, -7), "truncated"),
        (struct.pack(">hhih", 3, 9, 1, -1), "truncated"),
        (struct.pack(">hhih", 3, 9, 1, -1) + b"\xff\xff\xff\xff\x0f", "truncated"),
        (struct.pack(">hhih", 99, 0, 1, -1), "API key 99 is not known"),
        (struct.pack(">hhih", -1, 0, 1, -1), "API key -1 is not known"),
        (struct.pack(">hhih", 127, 0, 1, -1), "API key 127 is not known"),
        (struct.pack(">hhih", 3, 13, 1, -1), "version 13 of API key 3 is not served"),
        (struct.pack(">hhih", 3, -1, 1, -1), "version -1 of API key 3 is not served"),
        (struct.pack(">hhih", 0, 2, 1, -1), "version 2 of API key 0 is not served"),
    ],
)
def test_a_bad_header_closes_the_connection_with_one_line(network, frame, why, eventually):
    net = network()
    client = net.client()
    client.send_bytes(struct.pack(">i", len(frame)) + frame)
    assert client.closed_by_broker()
    lines = eventually(net.lines)
    assert len(lines) == 1 and why in lines[0]


def test_truncated_bodies_of_the_data_plane_close_the_connection(network):
    net = network()
    net.topic("t")
    produce, fetch = net.produce_frame("t", net.batch(b"v")), net.fetch_frame("t")
    for whole in (produce, fetch):
        for cut in range(14, len(whole) - 4, 3):
            client = net.client()
            client.send_bytes(struct.pack(">i", cut) + whole[4 : 4 + cut])
            assert client.closed_by_broker()
            client.close()


def test_api_versions_in_an_unknown_version_comes_to_python_with_a_mark(network):
    net = network()
    seen = []

    def handler(request):
        seen.append((request.unsupported_version, request.api_version, request.client_id))
        request.reply(b"v0")

    net.handler = handler
    client = net.client()
    assert client.ask(b"whatever", key=18, version=77) == b"v0"
    assert client.ask(b"", key=18, version=3) == b"v0"
    assert seen == [(True, 77, "c"), (False, 3, "c")]


@pytest.mark.parametrize(("version", "tags"), [(5, b""), (9, b"\0")])
def test_a_request_may_have_an_empty_client_id_or_none(network, version, tags):
    net = network()
    seen = []

    def handler(request):
        seen.append((request.client_id, bytes(request.body)))
        request.reply(b"served")

    net.handler = handler
    client = net.client()
    for size in (-1, 0):
        frame = struct.pack(">hhih", 3, version, 7, size) + tags + b"body"
        client.send_bytes(struct.pack(">i", len(frame)) + frame)
        assert client.receive() == (7, tags + b"served")
    assert seen == [(None, b"body"), ("", b"body")]


def test_flexible_responses_get_a_header_with_tags_but_api_versions_never_does(network):
    client = network().client()
    assert client.ask(b"b", version=8) == b"b"
    assert client.ask(b"b", version=9) == b"\0b"
    assert client.ask(b"b", key=18, version=4) == b"b"


def test_log_lines_of_hostile_peers_are_limited(network, eventually):
    net = network()
    for _ in range(150):
        client = net.client()
        client.send_bytes(struct.pack(">i", -1))
        assert client.closed_by_broker()
        client.close()
    assert len(net.lines()) < 150
