"""A NetworkClient that is started and closed for a test, and what it asks brokers for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from kafkapy.clients.network_client import NetworkClient
from kafkapy.config.clients import COMMON, ClientConfig
from kafkapy.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse


@asynccontextmanager
async def client(bootstrap: str, **keys: object) -> AsyncIterator[NetworkClient]:
    keys = {"reconnect_backoff_ms": 20, "retry_backoff_ms": 10, "client_id": "tester"} | keys
    network = NetworkClient(ClientConfig(COMMON, bootstrap_servers=bootstrap, **keys))
    try:
        await network.start()
        yield network
    finally:
        await network.close()


def groups(*names: str, throttle_ms: int = 0) -> ListGroupsResponse:
    listed = [ListGroupsResponse.Group(group_id=name, protocol_type="consumer") for name in names]
    return ListGroupsResponse(throttle_time_ms=throttle_ms, groups=listed)


async def list_groups(network: NetworkClient, node_id: int = 1, **keys: Any) -> list[str]:
    response = await network.send(node_id, ListGroupsRequest(), **keys)
    return [group.group_id for group in response.groups]
