"""ListTransactions as a client sees it."""

from __future__ import annotations

from typing import Any

import pytest
from broker.handlers.transactions import Producer

from kafkapy.coordinator.group import subscription_patterns
from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.list_transactions import ListTransactionsRequest


def listed(client: Any, version: int = 0, **filters: Any) -> dict[str, str]:
    request = ListTransactionsRequest(**({"state_filters": [], "producer_id_filters": []} | filters))
    response = client(request, version)
    assert response.error_code == ErrorCode.NONE
    return {each.transactional_id: each.transaction_state for each in response.transaction_states}


@pytest.mark.parametrize("version", range(3))
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


def test_ids_are_listed_by_pattern(client: Any, topic_name: str) -> None:
    for name in (f"{topic_name}-a1", f"{topic_name}-b2"):
        Producer(client, name)
    mine = f"{topic_name}-[ab][0-9]"
    assert set(listed(client, 2, transactional_id_pattern=mine)) == {f"{topic_name}-a1", f"{topic_name}-b2"}
    assert set(listed(client, 2, transactional_id_pattern=f"{topic_name}-a.*")) == {f"{topic_name}-a1"}
    assert listed(client, 2, transactional_id_pattern=f"{topic_name}-a") == {}, "the whole id has to match"
    assert len(listed(client, 2, transactional_id_pattern="")) >= 2, "an empty one is none"


@pytest.mark.parametrize("pattern", ["(", "a{2000}", "(?=a)b", "[ab]{1000}" * 100])
def test_patterns_that_are_not_valid_are_refused(client: Any, pattern: str) -> None:
    request = ListTransactionsRequest(state_filters=[], producer_id_filters=[], transactional_id_pattern=pattern)
    response = client(request, 2)
    assert (response.error_code, response.transaction_states) == (ErrorCode.INVALID_REGULAR_EXPRESSION, [])


def test_a_pattern_that_takes_too_long_is_given_up(
    client: Any, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Producer(client, topic_name)
    monkeypatch.setattr(subscription_patterns, "MAX_SECONDS", -1.0)
    request = ListTransactionsRequest(state_filters=[], producer_id_filters=[], transactional_id_pattern=topic_name)
    response = client(request, 2)
    assert (response.error_code, response.transaction_states) == (ErrorCode.REQUEST_TIMED_OUT, [])
