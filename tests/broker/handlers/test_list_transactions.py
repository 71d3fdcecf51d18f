"""ListTransactions as a client sees it."""

from __future__ import annotations

from typing import Any

import pytest
from broker.handlers.transactions import Producer

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.list_transactions import ListTransactionsRequest


def listed(client: Any, version: int = 0, **filters: Any) -> dict[str, str]:
    request = ListTransactionsRequest(**({"state_filters": [], "producer_id_filters": []} | filters))
    response = client(request, version)
    assert response.error_code == ErrorCode.NONE
    return {each.transactional_id: each.transaction_state for each in response.transaction_states}


@pytest.mark.parametrize("version", range(2))
def test_ids_are_listed_by_state_and_producer(client: Any, topic_name: str, version: int) -> None:
    client.create_topic(topic_name)
    idle = Producer(client, f"idle-{topic_name}")
    busy = Producer(client, f"busy-{topic_name}")
    busy.add((topic_name, [0]))
    everything = listed(client, version)
    assert (everything[idle.name], everything[busy.name]) == ("Empty", "Ongoing")
    assert idle.name not in listed(client, version, state_filters=["Ongoing", "PrepareAbort"])
    assert listed(client, version, producer_id_filters=[idle.producer_id]) == {idle.name: "Empty"}
    assert listed(client, version, producer_id_filters=[busy.producer_id], state_filters=["Empty"]) == {}


def test_unknown_states_are_given_back(client: Any) -> None:
    request = ListTransactionsRequest(state_filters=["Ongoing", "Dancing"], producer_id_filters=[])
    response = client(request, 0)
    assert response.unknown_state_filters == ["Dancing"]
    assert listed(client, state_filters=["Dancing"]) == {}


def test_young_transactions_can_be_left_out(client: Any, topic_name: str) -> None:
    client.create_topic(topic_name)
    producer = Producer(client, f"young-{topic_name}")
    producer.add((topic_name, [0]))
    mine = {"producer_id_filters": [producer.producer_id]}
    assert listed(client, 1, duration_filter=3_600_000, **mine) == {}
    assert listed(client, 1, duration_filter=-1, **mine) == {producer.name: "Ongoing"}
