"""A broker with control.plane.listener.name serves both of its listeners."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from broker.conftest import Client

from kafkapy.broker.server import KafkaServer


def test_both_listeners_are_served(make_config: Any, tmp_path: Path) -> None:
    config = make_config(
        tmp_path,
        listeners="PLAINTEXT://127.0.0.1:0,CONTROL://127.0.0.1:0",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,CONTROL:PLAINTEXT",
        inter_broker_listener_name="PLAINTEXT",
        control_plane_listener_name="CONTROL",
    )
    with KafkaServer(config) as server:
        channels = server.socket_server.request_channels
        assert len(channels) == 2
        for endpoint, channel in zip(server.endpoints, channels, strict=True):
            before = channel.counters()["requests"]
            client = Client(endpoint.host, endpoint.port)
            client.create_topic(f"by-{endpoint.listener_name}")
            client.produce(f"by-{endpoint.listener_name}", [(1, b"v")])
            client.close()
            assert channel.counters()["requests"] > before
