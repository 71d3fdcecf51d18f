"""FindCoordinator as a client sees it."""

from __future__ import annotations

from typing import Any

import pytest

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.find_coordinator import FindCoordinatorRequest

GROUP, TRANSACTION, SHARE = 0, 1, 2


def ask(client: Any, version: int, key_type: int, key: str = "k") -> Any:
    if version < 4:
        return client(FindCoordinatorRequest(key=key, key_type=key_type), version)
    return client(FindCoordinatorRequest(coordinator_keys=[key], key_type=key_type), version).coordinators[0]


@pytest.mark.parametrize("version", range(7))
def test_groups_are_coordinated_here(client: Any, broker: Any, version: int) -> None:
    answer = ask(client, version, GROUP)
    endpoint = broker.endpoints[0]
    assert (answer.error_code, answer.node_id, answer.host, answer.port) == (0, 1, endpoint.host, endpoint.port)


@pytest.mark.parametrize("version", range(1, 7))
def test_transactional_ids_are_coordinated_here(client: Any, broker: Any, version: int) -> None:
    answer = ask(client, version, TRANSACTION)
    endpoint = broker.endpoints[0]
    assert (answer.error_code, answer.node_id, answer.host, answer.port) == (0, 1, endpoint.host, endpoint.port)


def test_many_keys_have_an_answer_each(client: Any) -> None:
    response = client(FindCoordinatorRequest(coordinator_keys=["a", "b"], key_type=GROUP), 4)
    assert [(each.key, each.error_code) for each in response.coordinators] == [("a", 0), ("b", 0)]


@pytest.mark.parametrize(("version", "key_type"), [(5, SHARE), (6, SHARE), (6, 9)])
def test_what_is_not_coordinated_here_is_refused(client: Any, version: int, key_type: int) -> None:
    assert ask(client, version, key_type).error_code == ErrorCode.INVALID_REQUEST
