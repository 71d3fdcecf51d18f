"""Thousands of topics, in Chromium and in the requests of the console: a page asks for its rows only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from console_browser import OpenTab
from console_site import Person, serving
from kafkapy_console.settings import Settings

from kafkapy.admin import KafkaAdminClient, NewTopic
from kafkapy.testing.broker_process import BrokerProcess


@dataclass(frozen=True)
class Large:
    """A broker with many topics."""

    bootstrap_servers: str
    topics: int


@pytest.fixture(scope="module", params=[1000, pytest.param(10_000, marks=pytest.mark.soak)])
def large(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Large]:
    # A process of its own has descriptors for so many logs.
    with BrokerProcess(tmp_path_factory.mktemp("large"), {"auto.create.topics.enable": "false"}) as broker:
        # An answer may take long: a request that is sent again would find its topics there.
        keys = {"request_timeout_ms": 600_000, "default_api_timeout_ms": 600_000}
        with KafkaAdminClient(bootstrap_servers=broker.bootstrap, **keys) as admin:
            for start in range(0, request.param, 500):
                names = [NewTopic(f"topic-{number:05}", 1, 1) for number in range(start, start + 500)]
                admin.create_topics(names, timeout_ms=600_000)
        yield Large(broker.bootstrap, request.param)


@pytest.mark.timeout(900)
def test_pages_of_thousands_of_topics(large: Large) -> None:
    last = f"topic-{large.topics - 1:05}"
    with serving(Settings(kafka={"bootstrap.servers": large.bootstrap_servers})) as url:
        person = Person(url)
        page = person.get("/topics")
        assert f"{large.topics:,} topics" in page
        assert f"Page 1 of {large.topics // 50}" in page
        assert page.count('href="/topics/topic-') == 50
        assert len(page) < 100_000
        assert last in person.get(f"/topics?page={large.topics // 50}")
        assert last in person.get("/topics?page=999")
        assert person.get("/topics?q=topic-0077").count('href="/topics/topic-0077') == 10
        assert last in person.get("/topics?sort=name&dir=desc")
        assert f"{large.topics:,}" in person.get("/")
        person.close()


def test_a_page_asks_a_bounded_number_of_requests(large: Large, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many topics there are: metadata, log directories, and both ends of the logs of the page's rows."""
    from kafkapy.clients.admin.routing import AdminRouting

    sent: list[str] = []
    original = AdminRouting.send_built

    async def counted(self: AdminRouting, node: int, api: type, *arguments: object, **more: object) -> object:
        sent.append(api.__name__)
        return await original(self, node, api, *arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(AdminRouting, "send_built", counted)
    with serving(Settings(kafka={"bootstrap.servers": large.bootstrap_servers})) as url:
        person = Person(url)
        person.get("/topics")
        sent.clear()
        person.get("/topics?page=2")
        person.close()
    # What the console asks for in the background may come in between, too.
    assert sent.count("MetadataRequest") <= 6
    assert sent.count("ListOffsetsRequest") <= 8
    assert len(sent) <= 24, sent


@pytest.mark.timeout(900)
def test_thousands_of_topics_are_paged_sorted_and_searched(large: Large, open_tab: OpenTab) -> None:
    pages = large.topics // 50
    with serving(Settings(kafka={"bootstrap.servers": large.bootstrap_servers})) as url:
        tab = open_tab(url)

        def names() -> list[str]:
            return [cells[0] for cells in tab.table("Topics")]

        tab.open("/")
        tab.click(f"{large.topics:,}", "link", "dl.tiles dt:text-is('Topics') + dd")
        tab.sees(f"Page 1 of {pages}")
        assert names() == [f"topic-{number:05}" for number in range(50)]
        tab.click("Next →", "link")
        tab.sees(f"Page 2 of {pages}")
        assert names() == [f"topic-{number:05}" for number in range(50, 100)]
        tab.page.locator("main thead a").first.click()
        tab.page.locator("th[aria-sort=descending]").wait_for()
        last = large.topics - 1
        assert names() == [f"topic-{number:05}" for number in range(last, last - 50, -1)]
        tab.page.keyboard.press("/")
        tab.page.wait_for_selector("input:focus")
        tab.page.keyboard.type("topic-0077")
        tab.sees("10 topics")
        assert sorted(names()) == [f"topic-0077{digit}" for digit in range(10)]
        assert "q=topic-0077" in tab.page.url
        tab.click("topic-00777", "link")
        tab.sees("topic-00777", "h1")
        # The console must not go away while the page asks it for its chart.
        tab.page.close()
