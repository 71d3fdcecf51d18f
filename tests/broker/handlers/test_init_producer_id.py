"""InitProducerId as a client sees it."""

from __future__ import annotations

from typing import Any

import pytest

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.init_producer_id import InitProducerIdRequest


def request(transactional_id: str | None = None, **fields: int) -> InitProducerIdRequest:
    return InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000, **fields)


@pytest.mark.parametrize("version", range(7))
def test_every_version_gives_an_id_with_epoch_0(client: Any, version: int) -> None:
    response = client(request(), version)
    assert (response.error_code, response.producer_epoch) == (ErrorCode.NONE, 0)
    assert response.producer_id >= 0


def test_ids_are_never_given_twice(client: Any) -> None:
    ids = [client(request(), 4).producer_id for _ in range(50)]
    assert len(set(ids)) == 50


def test_id_and_epoch_belong_together(client: Any) -> None:
    assert client(request(producer_id=5), 3).error_code == ErrorCode.INVALID_REQUEST
    assert client(request(producer_epoch=5), 3).error_code == ErrorCode.INVALID_REQUEST


def test_a_transactional_id_is_to_be_tried_again_later(client: Any) -> None:
    response = client(request("orders"), 4)
    assert (response.error_code, response.producer_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
    assert client(request(""), 4).error_code == ErrorCode.INVALID_REQUEST


def test_an_idempotent_producer_can_use_its_id(client: Any, topic_name: str) -> None:
    client.create_topic(topic_name)
    producer_id = client(request(), 4).producer_id
    first = client.produce(topic_name, [(1, b"a")], producer_id=producer_id, producer_epoch=0, base_sequence=0)
    again = client.produce(topic_name, [(1, b"a")], producer_id=producer_id, producer_epoch=0, base_sequence=0)
    assert (first.base_offset, again.base_offset) == (0, 0)
