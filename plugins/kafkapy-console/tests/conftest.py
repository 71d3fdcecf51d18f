"""One broker for all tests of the console, and consoles on it."""

from __future__ import annotations

import resource
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from typing import Any

import logger_state
import pytest
from console_browser import CHROMIUM, OpenTab, Tab
from waiting import wait_until

from kafkapy import AcknowledgeType, KafkaProducer, KafkaShareConsumer, testing
from kafkapy.admin import ConfigResource, KafkaAdminClient

DONE = {0, 1, 2, 3, 6}
"""Offsets of ten records that a queue's worker accepts: the start offset is 4, and one record after it is done."""

# What `make build` does not install. Without it there is no console, and pytest passes over its tests.
NEEDED = ("cel", "fastavro", "httpx", "jinja2", "msgpack", "starlette", "uvicorn")
MISSING = [name for name in NEEDED if not find_spec(name)]
collect_ignore_glob = ["test_*.py"] if MISSING else []
if not MISSING:
    from console_site import Person, serving
    from kafkapy_console.settings import Settings


def pytest_configure(config: pytest.Config) -> None:
    logger_state.register(config)


def pytest_report_header() -> list[str]:
    return [f"tests of the console are left out without {', '.join(MISSING)}: make test-console"] if MISSING else []


@pytest.fixture(scope="session", autouse=True)
def descriptors() -> Iterator[None]:
    """One process has the broker, consoles with their clients, browsers and people: more than 1,024 descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture(scope="session")
def broker(descriptors: None) -> Iterator[testing.Broker]:
    # Records of tests are of any time: none is too old.
    with testing.Broker(auto_create_topics_enable=False, log_retention_ms=-1) as started:
        yield started


@pytest.fixture(scope="session")
def producer(broker: testing.Broker) -> Iterator[KafkaProducer]:
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers, linger_ms=0) as started:
        yield started


@pytest.fixture(scope="session")
def admin(broker: testing.Broker) -> Iterator[KafkaAdminClient]:
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as started:
        yield started


@pytest.fixture(scope="module")
def secured() -> Iterator[testing.Broker]:
    """A broker with ACLs, where the console may do everything."""
    with testing.Broker(
        authorizer_class_name="acl", super_users="User:ANONYMOUS", delegation_token_secret_key="k"
    ) as broker:
        yield broker


@pytest.fixture(scope="session")
def site(broker: testing.Broker) -> Iterator[str]:
    """A console where everybody may do everything."""
    with serving(Settings(kafka={"bootstrap.servers": broker.bootstrap_servers}, name="tests")) as url:
        yield url


@pytest.fixture(scope="session", autouse=True)
def unhurried() -> Iterator[None]:
    """On a busy machine, too, a page reads all that it shows, other services answer in time, and a pause lasts."""
    from kafkapy_console.records import reader
    from kafkapy_console.security import people

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "DEADLINE_S", 240.0)
        patch.setattr(people, "HTTP_TIMEOUT_S", 120)
        patch.setattr(people, "LOGIN_PAUSE_S", 3600.0)
        yield


@pytest.fixture
def person(site: str) -> Iterator[Person]:
    opened = Person(site)
    yield opened
    opened.close()


@pytest.fixture
def topic(broker: testing.Broker) -> Callable[..., str]:
    """Makes topics: topic(partitions, cleanup_policy="compact") -> name."""

    def make(partitions: int = 1, *, name: str = "", **configs: object) -> str:
        chosen = name or f"t-{uuid.uuid4().hex[:12]}"
        broker.create_topic(chosen, partitions, {key.replace("_", "."): value for key, value in configs.items()})
        return chosen

    return make


@pytest.fixture
def send(producer: KafkaProducer) -> Callable[..., None]:
    """Sends values to a partition, and waits: send(topic, values, partition=0, key=None, headers=None)."""

    def run(topic: str, values: list[bytes | None], partition: int = 0, **more: object) -> None:
        futures = [producer.send(topic, value, partition=partition, **more) for value in values]  # type: ignore[arg-type]
        producer.flush()
        for future in futures:
            future.get(timeout=30)

    return run


@pytest.fixture
def queue(
    broker: testing.Broker, admin: KafkaAdminClient, topic: Callable[..., str], send: Callable[..., None]
) -> Iterator[Callable[..., tuple[str, KafkaShareConsumer]]]:
    """Makes a topic of ten records, and a worker of the share group of its name that accepted five of them."""
    workers: list[KafkaShareConsumer] = []

    def make(prefix: str = "q-") -> tuple[str, KafkaShareConsumer]:
        name = topic(2, name=f"{prefix}{uuid.uuid4().hex[:12]}")
        send(name, [b"job %d" % number for number in range(10)])
        start = ConfigResource("GROUP", name, {"share.auto.offset.reset": "earliest"})
        assert set(admin.alter_configs([start], raise_on_unknown=False)["group"].values()) == {"OK"}
        worker = KafkaShareConsumer(
            name, bootstrap_servers=broker.bootstrap_servers, group_id=name, client_id=f"worker-of-{name}",
            share_acknowledgement_mode="explicit",
        )  # fmt: skip
        workers.append(worker)
        seen: set[int] = set()

        def work() -> bool:
            for records in worker.poll(timeout_ms=1000).values():
                for record in records:
                    seen.add(record.offset)
                    outcome = AcknowledgeType.ACCEPT if record.offset in DONE else AcknowledgeType.RELEASE
                    worker.acknowledge(record, outcome)
            assert not any((worker.commit_sync() or {}).values())
            return len(seen) == 10

        wait_until(work, "the worker has seen all records")
        return name, worker

    yield make
    for each in workers:
        each.close()


@pytest.fixture
def console(broker: testing.Broker) -> Iterator[Callable[..., Person]]:
    """Starts consoles with other settings: console(read_only=True) -> a person there."""
    with ExitStack() as stack:

        def start(**settings: object) -> Person:
            kafka = settings.pop("kafka", {"bootstrap.servers": broker.bootstrap_servers})
            url = stack.enter_context(serving(Settings(kafka=kafka, **settings)))  # type: ignore[arg-type]
            opened = Person(url)
            stack.callback(opened.close)
            return opened

        yield start


# --- Chromium -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """Chromium; its tests are passed over where it is not installed."""
    sync_api = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed")
    # Only for the module: while it runs, this thread has an event loop, which tests with asyncio.run cannot use.
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser
        browser.close()


@pytest.fixture
def open_tab(chromium: Any) -> Iterator[OpenTab]:
    """Opens tabs, each of its own browser: open_tab(url) -> tab. At the end, none has met an error."""
    opened: list[Tab] = []
    with ExitStack() as stack:

        def run(url: str, **options: Any) -> Tab:
            context = chromium.new_context(viewport={"width": 1280, "height": 800}, **options)
            stack.callback(context.close)
            opened.append(Tab(context.new_page(), url))
            return opened[-1]

        yield run
    assert [wrong for tab in opened for wrong in tab.wrong] == []


@pytest.fixture
def tab(open_tab: OpenTab, site: str) -> Tab:
    """A tab at the console where everybody may do everything."""
    return open_tab(site)
