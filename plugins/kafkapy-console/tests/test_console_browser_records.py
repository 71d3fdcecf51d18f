"""Records in Chromium: places to begin, filters, formats, masks, downloads, and records that a person produces."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator

import msgpack
import pytest
from console_broker import all_of
from console_browser import OpenTab, Tab
from console_site import Person
from framed_schemas import AVRO, ORDERS, avro, framed
from kafkapy_console.records import protoc
from kafkapy_console.settings import MaskRule, RegistrySettings
from registry_double import Registry, registry

from kafkapy import KafkaProducer, testing

Send = Callable[..., None]
MakeTopic = Callable[..., str]


@pytest.fixture(autouse=True)
def _a_busy_machine_may_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protoc, "TIME_LIMIT_S", 3600.0)


def places(tab: Tab) -> list[tuple[int, int]]:
    """(partition, offset) of the shown records."""
    return [(int(cells[0]), int(cells[1])) for cells in tab.table("Records") if len(cells) == 5]


def show(tab: Tab, start: str, at: str = "", partition: str = "") -> list[tuple[int, int]]:
    """The records of the form's first page with these choices."""
    tab.pick("Begin", start)
    tab.fill("Offset or time", at)
    tab.pick("Partition", partition or "all")
    tab.pick("Records", "20")
    with tab.page.expect_navigation():
        tab.click("Show")
    return places(tab)


def test_records_begin_at_an_offset_a_time_and_of_a_partition(
    tab: Tab, topic: MakeTopic, producer: KafkaProducer, broker: testing.Broker
) -> None:
    name = topic(2)
    for each in range(60):
        producer.send(name, b"%d" % each, partition=0, timestamp_ms=1_700_000_000_000 + each * 1000)
    producer.send(name, b"of partition 1", partition=1, timestamp_ms=1_700_000_100_000)
    producer.flush()
    tab.open(f"/topics/{name}")
    tab.click("Records", "link", "nav.tabs")
    assert show(tab, "at the newest") == [(1, 0), *((0, each) for each in range(59, 40, -1))]
    tab.click("Older records →", "link")
    tab.page.get_by_role("link", name="40", exact=True).wait_for()
    assert places(tab) == [(0, each) for each in range(40, 20, -1)]
    assert show(tab, "at an offset", "40", "0") == [(0, each) for each in range(40, 60)]
    assert show(tab, "at a time", "2023-11-14T22:13:50", "0") == [(0, each) for each in range(30, 50)]
    assert show(tab, "at the oldest", "", "1") == [(1, 0)]
    tab.row("Records", "of partition 1").locator("summary").click()
    assert tab.text("#rows details[open] pre").encode() == all_of(broker, name, 1)[0][1]
    tab.click("Whole record", "link")
    tab.sees("Partition 1, offset 0", "h2")
    tab.sees("(create time, 1700000100000)")


def test_a_filter_counts_the_records_without_a_result(tab: Tab, topic: MakeTopic, send: Send) -> None:
    name = topic()
    send(name, [b'{"a": 1}', b'{"a": 2}', b'{"b": 1}', b"text", None])
    tab.open(f"/topics/{name}/records")
    tab.fill("Search with a filter (CEL)", "value.a == 2")
    tab.press("Enter")
    tab.sees("The search is complete: 1 hit", "#told")
    tab.sees("The filter had no result for 3 records", "#told")
    assert places(tab) == [(0, 1)]
    tab.fill("Search with a filter (CEL)", "value.a ==")
    tab.press("Enter")
    tab.sees("filter", "[role=alert]")
    tab.forgive()


# --- formats ------------------------------------------------------------------------------------------------------


@pytest.fixture
def kept() -> Iterator[Registry]:
    with registry() as started:
        yield started


@pytest.fixture
def with_registry(kept: Registry, console: Callable[..., Person], open_tab: OpenTab) -> Tab:
    """A tab at a console with a schema registry."""
    return open_tab(console(registry=RegistrySettings(kept.url)).url)


def test_formats_of_records_are_shown_and_chosen(
    with_registry: Tab, kept: Registry, topic: MakeTopic, send: Send, broker: testing.Broker
) -> None:
    tab, name = with_registry, topic()
    of_avro = kept.register(f"{name}-value", {"schema": json.dumps(AVRO)})
    of_protobuf = kept.register("orders", {"schema": ORDERS, "schemaType": "PROTOBUF"})
    values = [
        framed(of_avro, avro({"sku": "by-avro", "count": 7})),
        framed(of_protobuf, b"\0\x0a\x0bby-protobuf"),
        b'{"sku": "by-json"}',
        msgpack.packb({"sku": "by-msgpack", "count": 9}),
        b"\xff\xfe\x00\x01",
    ]
    send(name, values, key=(4711).to_bytes(4, "big"))
    tab.open(f"/topics/{name}/records?start=oldest")
    shown = {cells[1]: cells[4] for cells in tab.table("Records")}
    assert "by-avro" in shown["0"]
    assert "by-protobuf" in shown["1"]
    assert "by-json" in shown["2"]
    for offset, badge in (("0", f"Avro #{of_avro}"), ("1", f"Protobuf #{of_protobuf}"), ("2", "JSON")):
        row = tab.page.locator("#rows tr").filter(has=tab.page.get_by_role("link", name=offset, exact=True))
        row.locator("summary").click()
        assert row.locator("details .badge").first.inner_text().lower() == badge.lower()
    tab.pick("Key", "integer")
    tab.pick("Value", "msgpack")
    with tab.page.expect_navigation():
        tab.click("Show")
    cells = next(cells for cells in tab.table("Records") if cells[1] == "3")
    assert cells[3] == "4711"
    assert json.loads(cells[4]) == {"sku": "by-msgpack", "count": 9}
    tab.click("4", "link", "#rows")
    tab.sees("offset 4", "h2")
    tab.pick("Value as", "hex")
    with tab.page.expect_navigation():
        tab.click("Decode")
    assert "ff fe 00 01" in tab.page.locator("pre.whole").last.inner_text()

    # A value of the schema is typed as JSON.
    tab.click("Produce", "link")
    tab.page.locator("select[name=value_encoding]").select_option("registry")
    tab.page.locator("textarea[name=value]").fill('{"sku": "typed", "count": "many"}')
    tab.click("Produce")
    tab.page.wait_for_selector("main [role=alert]")
    tab.forgive()
    assert len(all_of(broker, name)) == len(values)
    tab.page.locator("textarea[name=value]").fill('{"sku": "typed", "count": 3}')
    tab.click("Produce")
    tab.told("The record is written")
    assert json.loads(tab.page.locator("pre.whole").last.inner_text()) == {"sku": "typed", "count": 3}
    assert all_of(broker, name)[-1][1] == framed(of_avro, avro({"sku": "typed", "count": 3}))


# --- masks --------------------------------------------------------------------------------------------------------


def test_masked_parts_are_on_no_page_and_in_no_file(
    console: Callable[..., Person], open_tab: OpenTab, topic: MakeTopic, send: Send, broker: testing.Broker
) -> None:
    name = topic(name=f"payments.{topic()}")
    secret = "4111111111111111"
    value = {"card": {"number": secret, "holder": "Ann"}, "id": 7}
    send(name, [json.dumps(value).encode()], headers=[("token", b"hush")])
    rule = MaskRule(("payments.*",), (("card", "number"),), re.compile("[0-9]{12,19}"), ("token",))
    tab = open_tab(console(masks=(rule,)).url)

    def is_safe() -> bool:
        html = tab.page.content()
        return secret not in html and "hush" not in html

    tab.open(f"/topics/{name}/records")
    tab.sees("Rules of the console hide parts of these records")
    tab.page.locator("#rows summary").click()
    assert "Ann" in tab.text("#rows details[open] pre")
    assert is_safe()
    files = [tab.download("JSON Lines"), tab.download("CSV")]
    tab.click("Whole record", "link")
    tab.sees("offset 0", "h2")
    for form in ("text", "hex", "base64"):
        tab.pick("Value as", form)
        with tab.page.expect_navigation():
            tab.click("Decode")
        assert is_safe(), form
    assert tab.page.get_by_text("Produce again").count() == 0
    tab.click("Records", "link")
    for expression in (f'value.card.number == "{secret}"', 'headers.token == "hush"'):
        tab.fill("Search with a filter (CEL)", expression)
        tab.press("Enter")
        tab.sees("The search is complete: 0 hits in 1 record", "#told")
    for file in files:
        assert b"Ann" in file
        assert secret.encode() not in file
        assert b"hush" not in file
    assert json.loads(all_of(broker, name)[0][1] or b"") == value


# --- downloads ----------------------------------------------------------------------------------------------------


def test_downloads_have_what_the_filter_finds(tab: Tab, topic: MakeTopic, send: Send) -> None:
    name = topic()
    send(name, [b'{"n": 1}', b'{"n": 2}', b'{"n": 3}'], key=b"k", headers=[("h", b"1")])
    tab.open(f"/topics/{name}/records")
    tab.fill("Search with a filter (CEL)", "value.n >= 2")
    tab.press("Enter")
    tab.sees("The search is complete: 2 hits", "#told")
    lines = [json.loads(line) for line in tab.download("JSON Lines").splitlines()]
    assert [(each["offset"], each["key"], each["value"], each["headers"]) for each in lines] == [
        (1, "k", {"n": 2}, [["h", "1"]]), (2, "k", {"n": 3}, [["h", "1"]]),
    ]  # fmt: skip
    tab.fill("up to", "1")
    (row,) = csv.DictReader(io.StringIO(tab.download("CSV").decode()))
    assert (row["offset"], row["key"], row["value"]) == ("1", "k", '{"n": 2}')


def test_a_download_as_parquet_by_a_click(tab: Tab, topic: MakeTopic, send: Send) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    name = topic()
    send(name, [b'{"n": 1}', None], key=b"k")
    tab.open(f"/topics/{name}/records?start=oldest")
    table = parquet.read_table(io.BytesIO(tab.download("Parquet"))).to_pylist()
    assert [(row["offset"], row["key"], row["value"]) for row in table] == [(0, "k", '{"n": 1}'), (1, "k", None)]


# --- produce ------------------------------------------------------------------------------------------------------


def test_a_record_is_produced_again_and_deleted_by_a_tombstone(
    tab: Tab, topic: MakeTopic, send: Send, broker: testing.Broker
) -> None:
    name = topic()
    tab.open(f"/topics/{name}")
    tab.click("Produce", "link")
    tab.page.locator("textarea[name=key]").fill("k")
    tab.page.locator("select[name=value_encoding]").select_option("json")
    tab.page.locator("textarea[name=value]").fill('{"n":')
    tab.fill("Headers", "a: 1\nb: base64:/wA=")
    tab.click("Produce")
    tab.sees("The value is no JSON", "[role=alert]")
    tab.forgive()
    tab.page.locator("textarea[name=value]").fill('{"n": 1}')
    tab.click("Produce")
    tab.told("The record is written; the last one to partition 0 at offset 0.")
    first = (b"k", b'{"n":1}', [("a", b"1"), ("b", b"\xff\0")])
    assert all_of(broker, name) == [first]

    send(name, [b"bytes \xff\0 and more"], key=b"\0key", headers=[("h", b"\xff")])
    tab.click("after →", "link")
    tab.sees("offset 1", "h2")
    tab.click("Produce again", "link")
    tab.sees("Produce the record again", "h2")
    tab.fill("Copies", "2")
    tab.click("Produce")
    tab.told("2 records are written")
    second = (b"\0key", b"bytes \xff\0 and more", [("h", b"\xff")])
    assert all_of(broker, name) == [first, second, second, second]

    tab.click("Produce", "link")
    tab.page.locator("textarea[name=key]").fill("k")
    tab.page.locator("select[name=value_encoding]").select_option("null")
    tab.click("Produce")
    tab.told("The tombstone is written")
    tab.sees("null: a tombstone")
    assert all_of(broker, name)[-1] == (b"k", None, [])
    tab.click("Records", "link")
    tab.row("Records", "tombstone").wait_for()
