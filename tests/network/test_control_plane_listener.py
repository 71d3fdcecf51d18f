"""control.plane.listener.name: the controller's requests have a network thread and a queue of their own."""

from __future__ import annotations

import threading


def test_the_controllers_requests_wait_behind_no_client(network, eventually):
    net = network(
        listeners=("PLAINTEXT", "CONTROL"),
        control_plane_listener_name="CONTROL",
        num_network_threads=1,
        queued_max_requests=1,
    )
    gate = threading.Event()

    def wait(request):
        gate.wait(30)
        request.reply(request.body)

    net.handler = wait
    clients = [net.client() for _ in range(5)]
    for client in clients:
        client.send(b"data")
    eventually(lambda: net.server.counters()["request_channel"]["full"])
    control = net.client("CONTROL")
    control.send(b"urgent", correlation_id=8)
    (request,) = eventually(net.server.control_channel.drain)
    assert (request.listener_name, bytes(request.body)) == ("CONTROL", b"urgent")
    request.reply(b"done")
    assert control.receive() == (8, b"done")
    gate.set()
    assert [client.receive()[1] for client in clients] == [b"data"] * 5
    assert len(net.server.request_channels) == 2
    names = {thread.name for thread in threading.enumerate()}
    assert {"kafka-network-thread-CONTROL-0", "kafka-socket-acceptor-CONTROL"} <= names


def test_without_the_key_there_is_one_channel(network):
    net = network(listeners=("PLAINTEXT", "CONTROL"))
    assert net.server.control_channel is None
    assert net.server.request_channels == [net.server.request_channel]
    assert net.client("CONTROL").ask(b"x") == b"x"
