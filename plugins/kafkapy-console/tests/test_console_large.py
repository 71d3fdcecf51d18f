"""Topics of more partitions than a page sums: the console asks for the offsets of the rows that it shows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

import httpx
import pytest
from kafkapy_console.app import create_app
from kafkapy_console.pages.topics import MOST_SHOWN_PARTITIONS
from kafkapy_console.services.clients import Clients
from kafkapy_console.services.topics import MOST_COUNTED
from kafkapy_console.settings import Settings

from kafkapy.types import OffsetAndTimestamp, TopicPartition

SIZES = {"large": MOST_COUNTED + 1, "small": 3}


class Brokers:
    """An admin client of brokers with the topics of SIZES; it keeps the partitions whose offsets were asked."""

    def __init__(self) -> None:
        self.asked: list[TopicPartition] = []

    async def describe_topics(self, names: Iterable[str] | None = None) -> list[dict[str, Any]]:
        return [_described(name, SIZES[name]) for name in (names or SIZES)]

    async def describe_log_dirs(self) -> list[dict[str, Any]]:
        return []

    async def describe_configs(self, *_: object, **__: object) -> dict[str, dict[str, dict[str, Any]]]:
        return {"topic": {name: {} for name in SIZES}}

    async def list_partition_offsets(
        self, specs: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        self.asked += specs
        return {each: OffsetAndTimestamp(7, -1, None) for each in specs}

    async def close(self) -> None: ...


def _described(name: str, count: int) -> dict[str, Any]:
    partitions = [
        {"partition_index": n, "leader_id": 0, "leader_epoch": 0, "replica_nodes": [0], "isr_nodes": [0]}
        for n in range(count)
    ]
    return {"error_code": 0, "name": name, "is_internal": False, "partitions": partitions}


def visited(path: str, patch: pytest.MonkeyPatch) -> tuple[httpx.Response, set[TopicPartition]]:
    """A page of the console, and the partitions whose offsets it asked for."""
    brokers = Brokers()

    async def admin(self: Clients) -> Brokers:
        return brokers

    patch.setattr(Clients, "admin", admin)

    async def get() -> httpx.Response:
        app = create_app(Settings(kafka={"bootstrap.servers": "nowhere:1"}))
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            return await http.get(path)

    response = asyncio.run(get())
    assert response.status_code == 200, response.text[-1000:]
    return response, set(brokers.asked)


@pytest.mark.parametrize("number", [1, 2])
def test_a_page_of_a_large_topic_asks_for_its_rows(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    page, asked = visited(f"/topics/large?page={number}", monkeypatch)
    first = (number - 1) * MOST_SHOWN_PARTITIONS
    assert {each.partition for each in asked} == set(range(first, first + MOST_SHOWN_PARTITIONS))
    assert page.text.count("?partition=") == MOST_SHOWN_PARTITIONS
    assert "Offsets are summed for up to 5,000 partitions." in page.text
    assert "data-chart" not in page.text


def test_a_page_of_a_small_topic_sums_its_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    page, asked = visited("/topics/small", monkeypatch)
    assert {tuple(each) for each in asked} == {("small", number) for number in range(3)}
    assert "Offsets are summed" not in page.text
    assert "data-chart" in page.text


def test_the_list_of_topics_leaves_offsets_of_a_large_topic_out(monkeypatch: pytest.MonkeyPatch) -> None:
    page, asked = visited("/topics", monkeypatch)
    assert {each.topic for each in asked} == {"small"}
    assert 'href="/topics/large"' in page.text


def test_the_chart_of_a_large_topic_asks_for_no_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    answer, asked = visited("/topics/large/live.json", monkeypatch)
    assert (answer.json()["values"], asked) == ({}, set())
