"""Pages: each one answers, links lead somewhere, nothing is inline, errors are banners."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import pytest
from console_site import Person, links, shown
from waiting import wait_until

from kafkapy import KafkaConsumer, KafkaProducer, testing

MOST_PAGES = 250


@pytest.fixture
def filled(
    broker: testing.Broker, topic: Callable[..., str], send: Callable[..., None], producer: KafkaProducer
) -> str:
    """A topic with records, a group with offsets and a transactional id."""
    name = topic(3)
    for partition in range(3):
        send(name, [b'{"n": %d}' % each for each in range(5)], partition, key=b"key", headers=[("trace", b"1")])
    with KafkaConsumer(
        name, bootstrap_servers=broker.bootstrap_servers, group_id=f"group-of-{name}", auto_offset_reset="earliest"
    ) as consumer:
        consumer.poll(timeout_ms=10_000, max_records=5)
        consumer.commit()
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id=f"txn-of-{name}") as transactional:
        transactional.init_transactions()
        transactional.begin_transaction()
        transactional.send(name, b"committed").get(timeout=30)
        transactional.commit_transaction()
    return name


def test_every_link_of_every_page_leads_to_a_page(person: Person, filled: str) -> None:
    waiting = deque(["/", "/hanging-transactions?look=1", f"/topics/{filled}/records", f"/groups/group-of-{filled}"])
    seen: set[str] = set()
    kinds: set[str] = set()
    while waiting and len(seen) < MOST_PAGES:
        path = waiting.popleft()
        bare = path.partition("?")[0]
        # Pages of the same kind have the same links: a few of each are enough.
        if path in seen or (bare in kinds and "?" in path) or bare.endswith("/after"):
            continue
        seen.add(path)
        kinds.add(bare)
        response = person.http.get(path)
        missing_record = "/records/" in path and response.status_code == 404
        assert response.status_code == 200 or missing_record, (path, response.status_code, shown(response.text))
        assert "Traceback" not in response.text, path
        if "text/html" in response.headers["content-type"]:
            parsed = links(person.url + path, response.text)
            assert parsed.inline == [], path
            others = [each for each in parsed.found if not _of_another_test(each, filled)]
            waiting.extend(others)
    assert len(kinds) > 35, sorted(kinds)


def _of_another_test(path: str, topic: str) -> bool:
    parts = path.partition("?")[0].split("/")
    names = parts[1] in ("topics", "groups", "transactions") and len(parts) > 2 and bool(parts[2])
    return (names and topic not in path) or "/configs/" in path


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/topics/no-such-topic", "There is no topic no-such-topic"),
        ("/groups/no-such-group", "There is no group no-such-group"),
        ("/brokers/77", "Broker 77 is not in the cluster"),
        ("/schemas", "No schema registry is configured"),
        ("/connect/x/y", "No Connect cluster x"),
        ("/nowhere", "There is no such page"),
    ],
)
def test_an_address_of_nothing_says_so(person: Person, path: str, text: str) -> None:
    assert text in person.get(path, 404)


@pytest.mark.parametrize("path", ["/topics?page=x", "/topics?sort=color", "/brokers/abc"])
def test_a_wrong_address_says_what_is_wrong(person: Person, path: str) -> None:
    page = person.get(path, 400)
    assert 'class="banner bad"' in page
    assert "Traceback" not in page


def test_a_cluster_that_is_away_gives_a_banner(console: Callable[..., Person]) -> None:
    away = console(kafka={"bootstrap.servers": "127.0.0.1:1", "bootstrap.timeout.ms": 500})
    for path in ("/", "/topics", "/groups"):
        page = away.get(path, 503)
        assert "The cluster does not answer" in page
        assert "Try again" in page
    assert away.get("/health") == "ok\n"


def test_a_broker_that_goes_away_gives_a_banner_and_its_return_a_page(console: Callable[..., Person]) -> None:
    with testing.BrokerProcess() as broker:
        visitor = console(
            kafka={
                "bootstrap.servers": broker.bootstrap,
                "default.api.timeout.ms": 1500,
                "request.timeout.ms": 1500,
                "bootstrap.timeout.ms": 1500,
            }
        )
        wait_until(lambda: visitor.http.get("/topics").status_code == 200, "the page is there")
        broker.kill()
        # Until the names that the page has already are too old.
        wait_until(lambda: visitor.http.get("/topics").status_code == 503, "the page has no names any more")
        page = visitor.get("/topics", 503)
        assert "The cluster does not answer" in page
        assert "Traceback" not in page
        broker.start()
        wait_until(lambda: visitor.http.get("/topics").status_code == 200, "the page is back")
        assert "Topics" in visitor.get("/topics")


def test_a_page_is_for_people_without_scripts_and_for_screen_readers(person: Person, filled: str) -> None:
    page = person.get(f"/topics/{filled}/records")
    assert '<html lang="en"' in page
    assert '<a class="skip" href="#main">' in page
    assert page.count("<h1") == 1
    assert '<main id="main"' in page
    assert 'aria-current="page"' in page


def test_a_person_chooses_the_theme(person: Person) -> None:
    assert "data-theme" not in person.get("/")
    person.http.cookies.set("theme", "dark")
    assert '<html lang="en" data-theme="dark">' in person.get("/")
    person.http.cookies.set("theme", '"><script>')
    assert "<script>" not in person.get("/")
