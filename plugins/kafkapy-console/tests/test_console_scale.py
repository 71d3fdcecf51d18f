"""Many topics, many people, many records: a bounded number of requests for each page."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
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


def test_fifty_people_at_once(site: str, topic: Callable[..., str], send: Callable[..., None]) -> None:
    name = topic(3)
    for partition in range(3):
        send(name, [json.dumps({"n": number}).encode() for number in range(300)], partition)
    failures: list[str] = []
    paths = ("/", "/topics", f"/topics/{name}/records", "/groups", f"/topics/{name}")

    def visit(number: int) -> None:
        person = Person(site)
        try:
            for path in paths[number % 5 :] + paths[: number % 5]:
                person.get(path)
            if number % 10 == 0:
                events = person.events(f"/topics/{name}/search?filter=value.n%20%3D%3D%207")
                assert events[-1] == ("end", "The search is complete: 3 hits in 900 records.")
        except BaseException as error:
            failures.append(f"{number}: {error!r}")
        finally:
            person.close()

    threads = [threading.Thread(target=visit, args=(number,)) for number in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    assert failures == []


def test_a_search_that_is_left_ends(person: Person, topic: Callable[..., str], send: Callable[..., None]) -> None:
    """The reader of a closed page goes away, and its place among the streams is free again."""
    name = topic()
    send(name, [b"x"] * 100)
    for _ in range(230):  # more than may run at the same time
        events = person.events(f"/topics/{name}/tail", most=1)
        assert events[0][0] == "begin", events
