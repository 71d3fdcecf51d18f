"""Fetch sessions belong to the principal that made them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from broker.acting import ActingClient, acl_broker, binding, connected

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.fetch import FetchRequest
from kafkapy.types import AclOperation, ResourceType


@pytest.fixture
def alice(tmp_path: Path) -> Iterator[ActingClient]:
    """A client that may read and write `secret`."""
    with acl_broker(tmp_path) as server:
        admin = connected(server)
        admin.create_topic("secret")
        admin.add(
            binding(ResourceType.TOPIC, "secret", AclOperation.READ),
            binding(ResourceType.TOPIC, "secret", AclOperation.WRITE),
        )
        client = admin.again("alice")
        assert client.append("secret") is ErrorCode.NONE
        yield client
        client.close()
        admin.close()


def fetch(client: ActingClient, session_id: int, epoch: int, *, topics: bool = False) -> Any:
    partition = FetchRequest.Topic.Partition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    asked = [FetchRequest.Topic(topic="secret", partitions=[partition])] if topics else []
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, session_id=session_id, session_epoch=epoch, topics=asked,
        forgotten_topics_data=[],
    )  # fmt: skip
    return client(request, 12)


@pytest.mark.parametrize(
    ("epoch", "error"),
    [
        (1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),  # goes on with it
        (7, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),  # no INVALID_FETCH_SESSION_EPOCH, which tells that the id exists
        (0, ErrorCode.NONE),  # begins another one, and ends it
        (-1, ErrorCode.NONE),  # ends it
    ],
)
def test_another_user_neither_sees_nor_ends_a_session(alice: ActingClient, epoch: int, error: ErrorCode) -> None:
    session_id = fetch(alice, 0, 0, topics=True).session_id
    assert session_id > 0
    bob = alice.again("bob")
    response = fetch(bob, session_id, epoch)
    assert (response.error_code, response.responses) == (error, [])
    bob.close()
    assert fetch(alice, session_id, 1).error_code == ErrorCode.NONE


def test_another_connection_of_the_same_user_goes_on_with_a_session(alice: ActingClient) -> None:
    session_id = fetch(alice, 0, 0, topics=True).session_id
    later = alice.again("alice")
    response = fetch(later, session_id, 1)
    assert (response.error_code, response.session_id) == (ErrorCode.NONE, session_id)
    assert fetch(later, session_id, -1).error_code == ErrorCode.NONE
    assert fetch(later, session_id, 2).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    later.close()
