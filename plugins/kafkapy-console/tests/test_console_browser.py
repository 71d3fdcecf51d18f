"""The console in Chromium: pages work, nothing breaks the policy, axe finds no serious fault, pictures for the docs.

With KAFKAPY_CONSOLE_PICTURES=DIRECTORY the pictures are written there.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from connect_double import worker
from console_browser import OpenTab, Tab
from console_site import PATIENT, serving
from kafkapy_console.security.passwords import hashed
from kafkapy_console.settings import ConnectSettings, RegistrySettings, Settings
from registry_double import registry

from kafkapy import AcknowledgeType, KafkaConsumer, KafkaProducer, KafkaShareConsumer, testing

HOSTILE = [
    b"<script>document.title='owned'</script>",
    b"<img src=x onerror=\"document.title='owned'\">",
    b"</code></summary></details></table><svg onload=\"document.title='owned'\">",
    b'{"html": "<iframe srcdoc=\'<script>parent.document.title=1</script>\'>"}',
]


def _sell(servers: str) -> None:
    """Orders, and payments of some."""
    with KafkaProducer(bootstrap_servers=servers, linger_ms=5) as producer:
        for number in range(3000):
            value = {
                "order": number, "customer": f"c-{number % 97}", "amount": number * 7919 % 500 / 2,
                "currency": ("EUR", "USD", "GBP")[number % 3],
                "items": [{"sku": f"A-{number % 31}", "count": 1 + number % 4}],
            }  # fmt: skip
            key = str(value["customer"]).encode()
            producer.send("shop.orders", json.dumps(value).encode(), key, headers=[("trace-id", b"%08x" % number)])
            if number % 3 == 0:
                producer.send("shop.payments", json.dumps({"order": number, "paid": True}).encode(), key)
        producer.flush()


def _pack(servers: str) -> KafkaShareConsumer:
    """A worker of the share group `packing`: it accepted some payments, and left some before them."""
    from kafkapy.admin import ConfigResource, KafkaAdminClient

    with KafkaAdminClient(bootstrap_servers=servers) as admin:
        admin.alter_configs(
            [ConfigResource("GROUP", "packing", {"share.auto.offset.reset": "earliest"})], raise_on_unknown=False
        )
    worker = KafkaShareConsumer(
        "shop.payments", bootstrap_servers=servers, group_id="packing", client_id="packing-1",
        share_acknowledgement_mode="explicit",
    )  # fmt: skip
    accepted = 0
    while accepted < 100:
        for records in worker.poll(timeout_ms=1000).values():
            for record in records:
                done = record.offset < 40 or record.offset % 2
                accepted += bool(done)
                worker.acknowledge(record, AcknowledgeType.ACCEPT if done else AcknowledgeType.RELEASE)
        worker.commit_sync()
    return worker


@pytest.fixture(scope="module")
def shop(broker: testing.Broker) -> Iterator[dict[str, str]]:
    """Topics of a small shop, groups that lag, a schema registry, and a console on them."""
    from kafkapy.admin import KafkaAdminClient, NewTopic

    with registry() as kept, worker() as connect, KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        order = {"type": "record", "name": "Order", "fields": [{"name": "sku", "type": "string"}]}
        kept.register("shop.orders-value", {"schema": json.dumps(order)})
        # A worker of the tests may come back to this module: the broker lives longer than this fixture.
        is_new = "shop.orders" not in admin.list_topics()
        if is_new:
            names = {"shop.orders": 6, "shop.payments": 3, "shop.shipments": 3, "shop.customers": 1}
            admin.create_topics(
                [NewTopic(name, partitions, 1) for name, partitions in names.items()], wait_for_metadata=True
            )
            _sell(broker.bootstrap_servers)
        reader = KafkaConsumer(
            "shop.orders", bootstrap_servers=broker.bootstrap_servers, group_id="billing", client_id="billing-1",
            auto_offset_reset="earliest", enable_auto_commit=False, max_poll_records=400,
        )  # fmt: skip
        left = 1200 if is_new else 1
        while left > 0:
            left -= sum(map(len, reader.poll(timeout_ms=1000).values()))
        if is_new:
            reader.commit()
        packer = _pack(broker.bootstrap_servers) if is_new else None
        settings = Settings(
            kafka={"bootstrap.servers": broker.bootstrap_servers},
            name="shop",
            registry=RegistrySettings(kept.url),
            connect=(ConnectSettings("main", connect.url),),
        )
        with serving(settings) as url:
            yield {"url": url}
        reader.close()
        if packer is not None:
            packer.close()


@pytest.fixture
def tab(shop: dict[str, str], open_tab: OpenTab) -> Tab:
    """A tab at the console of the shop."""
    return open_tab(shop["url"])


PAGES = {
    "cluster": "/",
    "broker": "/brokers/1?q=retention",
    "topics": "/topics",
    "topic": "/topics/shop.orders",
    "configs": "/topics/shop.orders/configs?q=retention",
    "config": "/topics/shop.orders/configs/retention.ms",
    "records": "/topics/shop.orders/records",
    "record": "/topics/shop.orders/records/0/0",
    "statistics": "/topics/shop.orders/statistics",
    "produce": "/topics/shop.orders/produce?again=0:0",
    "delete-topic": "/topics/shop.customers/delete",
    "delete-records": "/topics/shop.orders/delete-records?way=offset&at=100",
    "groups": "/groups",
    "group": "/groups/billing",
    "reset": "/groups/billing/reset?way=earliest",
    "share-group": "/groups/packing",
    "share-reset": "/groups/packing/reset?way=earliest",
    "share-delete-offsets": "/groups/packing/delete-offsets?topic=shop.payments",
    "transactions": "/transactions",
    "acls": "/acls",
    "rights": "/rights?principal=ann",
    "users": "/users",
    "quotas": "/quotas",
    "tokens": "/tokens",
    "schemas": "/schemas",
    "schema": "/schemas/shop.orders-value",
    "jobs": "/jobs",
    "audit": "/audit",
    "create-topic": "/create-topic",
    "log-dirs": "/brokers/1/log-dirs",
    "versions": "/brokers/1/versions",
    "loggers": "/brokers/1/loggers",
    "features": "/features",
    "reassignments": "/reassignments",
    "replicas": "/topics/shop.orders/partitions/0?replicas=1",
    "producers": "/topics/shop.orders/producers",
    "readers": "/topics/shop.orders/groups",
    "copy": "/topics/shop.orders/copy",
    "grow": "/topics/shop.orders/grow",
    "delete-group": "/groups/billing/delete",
    "connect": "/connect",
    "connector": "/connect/main/files",
}


FIRST = {
    "acls",
    "cluster",
    "configs",
    "group",
    "groups",
    "produce",
    "records",
    "reset",
    "share-group",
    "topic",
    "topics",
}
"""The screens that people see first and most; the others are looked at in the long runs."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in FIRST else pytest.mark.soak) for name in sorted(PAGES)]
)
def test_axe_finds_no_serious_fault(chromium: Any, shop: dict[str, str], name: str) -> None:
    """All rules in the light theme; in the dark one, which differs in colours only, those about contrast."""
    axe_playwright = pytest.importorskip("axe_playwright_python.sync_playwright")
    # axe itself is put into the page, which the policy forbids to everybody else.
    context = chromium.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light", bypass_csp=True)
    tab = Tab(context.new_page(), shop["url"])
    page = tab.open(PAGES[name])
    axe = axe_playwright.Axe()
    faults = serious(axe.run(page))
    tab.picture(f"{name}-light")
    page.emulate_media(color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark"
    faults += serious(axe.run(page, options={"runOnly": ["color-contrast", "link-in-text-block"]}))
    tab.picture(f"{name}-dark")
    context.close()
    assert faults == []
    assert tab.wrong == []


def serious(result: Any) -> list[str]:
    """The serious faults of a run of axe. A run without a rule that passed looked at nothing."""
    assert result.response["passes"]
    return [
        f"{each['id']}: {node['html'][:160]} {node.get('failureSummary', '')[:200]}"
        for each in result.response["violations"]
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"][:3]
    ]


def test_pages_are_readable_on_a_phone(chromium: Any, shop: dict[str, str]) -> None:
    context = chromium.new_context(viewport={"width": 390, "height": 844}, device_scale_factor=2, is_mobile=True)
    tab = Tab(context.new_page(), shop["url"])
    for name, path in sorted(PAGES.items()):
        page = tab.open(path)
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= 390, f"{name} is {width} pixels wide"
        if name in ("cluster", "records", "group"):
            tab.picture(f"{name}-phone")
    page.get_by_role("button", name="Menu").click()
    page.get_by_role("link", name="Groups", exact=True).click()
    page.wait_for_url("**/groups")
    context.close()
    assert tab.wrong == []


def test_the_login_is_accessible(chromium: Any, broker: testing.Broker) -> None:
    axe_playwright = pytest.importorskip("axe_playwright_python.sync_playwright")
    settings = Settings(
        kafka={"bootstrap.servers": broker.bootstrap_servers}, login="users", users={"ann": hashed("a")}
    )
    with serving(settings) as url:
        context = chromium.new_context(bypass_csp=True)
        page = context.new_page()
        page.goto(url + "/topics")
        page.wait_for_selector("input[type=password]")
        assert serious(axe_playwright.Axe().run(page)) == []
        context.close()


def test_a_search_is_stopped_by_a_key(tab: Tab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hits are on the page while the search runs; a key ends it, in the console too."""
    from kafkapy_console.pages import streams

    ended = threading.Event()
    whole = streams.scan

    async def held(*arguments: Any) -> AsyncIterator[Any]:
        """Stands still behind the first records."""
        try:
            async for batch in whole(*arguments):
                # Few enough that the page's most hits do not end the search.
                yield replace(batch, records=batch.records[:10])
                if batch.records:
                    await asyncio.Event().wait()
        finally:
            ended.set()

    monkeypatch.setattr(streams, "scan", held)
    page = tab.open("/topics/shop.orders/records?filter=value.amount%20%3E%3D%200.0")
    page.wait_for_selector("#rows tr")
    assert "complete" not in page.locator("#told").inner_text()
    page.keyboard.press("Escape")
    page.wait_for_selector("#told:has-text('Stopped.')")
    assert ended.wait(240)
    assert page.locator("#rows tr").count() >= 1


def test_a_search_shows_hits_as_they_come(tab: Tab) -> None:
    page = tab.open("/topics/shop.orders/records")
    page.get_by_label("Search with a filter (CEL)").fill('value.amount > 200.0 && value.currency == "EUR"')
    page.keyboard.press("Enter")
    page.wait_for_selector("#told:has-text('The search is complete')")
    assert page.locator("#rows tr").count() > 50
    page.locator("#rows details.value summary").first.click()
    assert page.locator("#rows details[open] pre").first.inner_text().startswith("{")
    tab.picture("search")


def test_a_live_view_shows_a_record_that_arrives(tab: Tab, broker: testing.Broker) -> None:
    page = tab.open("/topics/shop.customers/records?live=1")
    page.wait_for_selector("#told:has-text('0 records in')")
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("shop.customers", b"a customer who is new").get(timeout=30)
    page.wait_for_selector("#rows:has-text('a customer who is new')")
    page.keyboard.press("Escape")
    page.wait_for_selector("#told:has-text('Stopped.')")


def test_records_full_of_html_do_no_harm(tab: Tab, broker: testing.Broker, topic: Callable[..., str]) -> None:
    name = topic()
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for each in HOSTILE:
            producer.send(name, each, each, headers=[(each.decode(), each)])
    for path in ("records", "records?filter=true", "records/0/0", "records/0/2", "statistics", "produce?again=0:1"):
        page = tab.open(f"/topics/{name}/{path}")
        if "filter" in path:
            page.wait_for_selector("#told:has-text('complete')")
        for summary in page.locator("details.value > summary").all():
            summary.click()
        page.wait_for_timeout(200)
        assert "owned" not in page.title()
        assert page.locator("main iframe, main img, main svg[onload], main script").count() == 0
        assert page.evaluate("document.querySelectorAll('main [onerror], main [onload]').length") == 0


def test_the_policy_stops_a_script_that_gets_into_a_page(chromium: Any, shop: dict[str, str]) -> None:
    """The second wall: contents that nobody escaped."""
    context = chromium.new_context()
    page = context.new_page()
    page.goto(shop["url"] + "/")
    page.evaluate(
        "document.querySelector('main').insertAdjacentHTML('beforeend', "
        '\'<img src="data:,x" onerror="document.title=1"><div onclick="document.title=1" id=bad>x</div>\')'
    )
    page.evaluate(
        "const s = document.createElement('script'); s.textContent = 'document.title=1'; document.body.append(s)"
    )
    page.locator("#bad").click()
    page.wait_for_timeout(300)
    assert page.title() != "1"
    context.close()


def test_a_topic_is_created_and_deleted_with_the_keyboard(tab: Tab) -> None:
    page = tab.open("/topics")
    page.keyboard.press("/")
    page.wait_for_selector("input:focus")
    page.keyboard.type("shop.pay")
    page.wait_for_selector("#list [role=status]:has-text('1 topic')")
    page.goto(tab.url + "/create-topic")
    page.wait_for_selector("input[name=name]:focus")
    page.keyboard.type("made-by-keys")
    page.keyboard.press("Enter")
    page.wait_for_selector("h1:has-text('made-by-keys')")
    page.goto(tab.url + "/topics/made-by-keys/delete")
    button = page.get_by_role("button", name="Delete the topic")
    assert button.is_disabled()
    page.get_by_label("Type the name").fill("made-by-keys")
    assert button.is_enabled()
    page.keyboard.press("Enter")
    page.wait_for_selector("#flashes:has-text('is deleted')")


def test_keys_lead_to_pages(tab: Tab) -> None:
    page = tab.open("/")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("g")
    page.keyboard.press("g")
    page.wait_for_url("**/groups")
    page.keyboard.press("?")
    assert page.get_by_role("dialog").is_visible()
    page.keyboard.press("Escape")


def test_the_theme_is_kept(tab: Tab) -> None:
    page = tab.open("/")
    before = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    page.get_by_role("button", name="Switch between light and dark").click()
    after = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert before != after
    tab.open("/topics")
    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == after


def test_charts_are_drawn_and_renewed(tab: Tab, broker: testing.Broker) -> None:
    page = tab.open("/topics/shop.orders")
    page.wait_for_selector(".chart canvas")
    page.wait_for_selector(".chart output:has-text('/s')")
    tab.picture("topic-chart")


def test_the_group_says_why_it_lags(tab: Tab) -> None:
    page = tab.open("/groups/billing")
    assert page.locator(".reasons li").count() >= 1
    page.wait_for_selector(".chart output:has-text('records')")


# --- several clusters -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fleet(shop: dict[str, str], broker: testing.Broker) -> Iterator[str]:
    """A console of three clusters, one of which is away."""
    kafka = {**PATIENT, "bootstrap.servers": broker.bootstrap_servers}
    clusters = (
        Settings(kafka=kafka, name="production", read_only=True),
        Settings(kafka=kafka, name="staging"),
        Settings(kafka={"bootstrap.servers": "127.0.0.1:1", "bootstrap.timeout.ms": 500}, name="recovery"),
    )
    with serving(Settings(clusters=clusters, name="shop")) as url:
        yield url


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_no_serious_fault_in_the_pages_of_several_clusters(chromium: Any, fleet: str, theme: str) -> None:
    axe_playwright = pytest.importorskip("axe_playwright_python.sync_playwright")
    context = chromium.new_context(viewport={"width": 1280, "height": 800}, color_scheme=theme, bypass_csp=True)
    tab = Tab(context.new_page(), fleet)
    page = tab.open("/")
    # The list renews itself until all clusters have answered.
    page.wait_for_selector("#list tr:has-text('recovery'):has-text('away')")
    page.wait_for_selector("#list tr:has-text('staging') .badge.ok")
    axe = axe_playwright.Axe()
    faults = serious(axe.run(page))
    tab.picture(f"clusters-{theme}")
    page = tab.open("/staging/topics")
    page.locator(".menu.clusters summary").click()
    faults += serious(axe.run(page))
    tab.picture(f"picker-{theme}")
    context.close()
    assert faults == []
    assert tab.wrong == []


def test_the_picker_leads_to_the_same_part_of_another_cluster(chromium: Any, fleet: str) -> None:
    context = chromium.new_context(viewport={"width": 1280, "height": 800})
    tab = Tab(context.new_page(), fleet)
    page = tab.open("/staging/topics")
    page.locator(".menu.clusters summary").click()
    page.get_by_role("link", name="production").click()
    page.wait_for_url("**/production/topics")
    page.wait_for_selector(".badge:has-text('read-only')")
    page.keyboard.press("g")
    page.keyboard.press("g")
    page.wait_for_url("**/production/groups")
    page.locator("select[name=kind]").select_option("classic")
    page.wait_for_url("**/production/groups?*kind=classic*")
    tab.open("/production/topics/shop.orders")
    page.wait_for_selector(".chart output:has-text('/s')")
    tab.open("/production/topics/shop.orders/records?filter=true")
    page.wait_for_selector("#rows tr")
    page.keyboard.press("Escape")
    page.locator(".menu.clusters summary").click()
    page.get_by_role("link", name="All clusters").click()
    page.wait_for_selector("h1:has-text('Clusters')")
    context.close()
    assert tab.wrong == []


def test_the_pages_of_several_clusters_are_readable_on_a_phone(chromium: Any, fleet: str) -> None:
    context = chromium.new_context(viewport={"width": 375, "height": 740}, has_touch=True, is_mobile=True)
    tab = Tab(context.new_page(), fleet)
    for path, name in (("/", "clusters"), ("/staging/topics", "picker")):
        page = tab.open(path)
        page.locator(".menu.clusters summary").click()
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), path
        tab.picture(f"{name}-phone")
    context.close()
    assert tab.wrong == []
