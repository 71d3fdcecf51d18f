"""InitProducerId as a client sees it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from broker.conftest import Client, config

from kafkapy.broker.server import KafkaServer
from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.describe_transactions import DescribeTransactionsRequest
from kafkapy.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkapy.security.authorizer.base import AuthorizationResult
from kafkapy.types import AclOperation


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


@pytest.mark.parametrize("version", range(7))
def test_an_empty_transactional_id_is_refused(client: Any, version: int) -> None:
    assert client(request(""), version).error_code == ErrorCode.INVALID_REQUEST


def test_a_transactional_id_keeps_its_producer_id_and_gets_new_epochs(client: Any) -> None:
    client.coordinate_transactions("orders")
    first = client(request("orders"), 4)
    again = client(request("orders"), 4)
    assert (first.error_code, first.producer_epoch) == (ErrorCode.NONE, 0)
    assert (again.error_code, again.producer_id, again.producer_epoch) == (ErrorCode.NONE, first.producer_id, 1)


def test_transactional_ids_and_timeouts_are_checked(client: Any) -> None:
    client.coordinate_transactions("checked")
    assert client(request(""), 4).error_code == ErrorCode.INVALID_REQUEST
    for timeout_ms in (0, -1, 900_001):
        asked = InitProducerIdRequest(transactional_id="checked", transaction_timeout_ms=timeout_ms)
        assert client(asked, 4).error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT


@pytest.mark.parametrize(("version", "error"), [(3, ErrorCode.INVALID_PRODUCER_EPOCH), (4, ErrorCode.PRODUCER_FENCED)])
def test_a_fenced_producer_is_told_so_in_words_it_knows(client: Any, version: int, error: ErrorCode) -> None:
    name = f"fenced-{version}"
    client.coordinate_transactions(name)
    producer_id = client(request(name), 4).producer_id
    client(request(name), 4)
    response = client(request(name, producer_id=producer_id, producer_epoch=0), version)
    assert (response.error_code, response.producer_id) == (error, -1)


def test_two_phase_commit_is_not_allowed(client: Any) -> None:
    client.coordinate_transactions("2pc")
    two_phases, kept = request("2pc"), request("2pc")
    two_phases.enable2_pc = True
    kept.keep_prepared_txn = True
    assert client(two_phases, 6).error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    # Taking a transaction over needs no permission; none is open.
    response = client(kept, 6)
    assert (response.error_code, response.ongoing_txn_producer_id) == (ErrorCode.NONE, -1)


def test_two_phase_commit_where_it_is_allowed(tmp_path: Path) -> None:
    asked = request("2pc")
    asked.enable2_pc = True
    with KafkaServer(config(tmp_path, transaction_two_phase_commit_enable="true")) as server:
        client = Client(server.endpoints[0].host, server.endpoints[0].port)
        client.coordinate_transactions("2pc")
        assert client(asked, 6).error_code == ErrorCode.NONE
        described = client(DescribeTransactionsRequest(transactional_ids=["2pc"]), 0)
        assert described.transaction_states[0].transaction_timeout_ms == 2**31 - 1
        server.context.authorizer = DenyingTwoPhases()  # type: ignore[assignment]
        assert client(asked, 6).error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert client(request("2pc"), 6).error_code == ErrorCode.NONE
        client.close()


class DenyingTwoPhases:
    """Denies TWO_PHASE_COMMIT only."""

    decisions_epoch = 1

    def authorize(self, context: Any, actions: Any) -> list[AuthorizationResult]:
        return [
            AuthorizationResult.DENIED
            if action.operation is AclOperation.TWO_PHASE_COMMIT
            else AuthorizationResult.ALLOWED
            for action in actions
        ]


def test_an_idempotent_producer_can_use_its_id(client: Any, topic_name: str) -> None:
    client.create_topic(topic_name)
    producer_id = client(request(), 4).producer_id
    first = client.produce(topic_name, [(1, b"a")], producer_id=producer_id, producer_epoch=0, base_sequence=0)
    again = client.produce(topic_name, [(1, b"a")], producer_id=producer_id, producer_epoch=0, base_sequence=0)
    assert (first.base_offset, again.base_offset) == (0, 0)
