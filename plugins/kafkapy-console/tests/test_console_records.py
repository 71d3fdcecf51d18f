"""Records: pages miss and repeat nothing, contents do no harm, searches, masks, downloads, produce."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from html import unescape
from urllib.parse import quote

import pytest
from console_broker import all_of
from console_site import Person, links
from kafkapy_console.settings import MaskRule

from kafkapy import KafkaProducer, testing

ROW = re.compile(r'<tr><td class="n">(\d+)</td><td class="n"><a href="[^"]*">(\d+)</a>')
NEXT = re.compile(r'<a rel="next" href="([^"]+)">')
HOSTILE = [
    b"<script>alert(1)</script>",
    b'"><img src=x onerror=alert(1)>',
    b"</pre></details></table><h1>owned</h1>",
    b"{{ 7 * 7 }}{% raw %}",
    b"javascript:alert(1)",
    b"'\";--",
    "\u202eright to left\u2028line".encode(),
    b"\xff\xfe\x00binary",
    b"a\rb\r\nevent: end\ndata: forged\n\n",
    b'{"<b>": "<i onmouseover=alert(1)>", "deep": ' + b"[" * 500 + b"]" * 500 + b"}",
    b"[" * 100_000,
    b'"half \\ud800"',
    b'{"\\udfff": ["\\ud800"], "n": NaN}',
    b"\0" + b"\xff" * 4 + b"no such schema",
    b"x" * 300_000,
    b"",
]


def rows(page: str) -> list[tuple[int, int]]:
    """(partition, offset) of the rows of a page."""
    return [(int(partition), int(offset)) for partition, offset in ROW.findall(page)]


def walked(person: Person, path: str) -> list[tuple[int, int]]:
    """All rows of a page and of those after it."""
    found: list[tuple[int, int]] = []
    for _ in range(200):
        page = person.get(path)
        found += rows(page)
        onward = NEXT.search(page)
        if onward is None:
            return found
        path = unescape(onward[1])
    raise AssertionError("the pages have no end")


def test_the_newest_come_first_and_older_pages_miss_nothing(
    person: Person, topic: Callable[..., str], send: Callable[..., None]
) -> None:
    name = topic(3)
    for partition, count in enumerate((70, 5, 0)):
        send(name, [b"%d" % each for each in range(count)], partition)
    found = walked(person, f"/topics/{name}/records?limit=20")
    assert sorted(found) == [(0, each) for each in range(70)] + [(1, each) for each in range(5)]
    of_first = [offset for partition, offset in found if partition == 0]
    assert of_first == sorted(of_first, reverse=True)


def test_times_out_of_order_miss_nothing(person: Person, topic: Callable[..., str], producer: KafkaProducer) -> None:
    name = topic(2)
    for each in range(60):
        producer.send(name, b"x", partition=each % 2, timestamp_ms=1_000_000 + (each * 7919) % 60)
    producer.flush()
    for start in ("newest", "oldest"):
        found = walked(person, f"/topics/{name}/records?limit=20&start={start}")
        assert sorted(found) == sorted((partition, offset) for partition in (0, 1) for offset in range(30))


@pytest.mark.parametrize("start", ["newest", "oldest"])
def test_gaps_of_aborted_transactions_are_no_records(
    broker: testing.Broker, person: Person, topic: Callable[..., str], start: str
) -> None:
    name = topic()
    keys = {"bootstrap_servers": broker.bootstrap_servers, "transactional_id": f"t-{name}"}
    kept = []
    with KafkaProducer(**keys) as producer:
        producer.init_transactions()
        for number in range(30):
            producer.begin_transaction()
            placed = [producer.send(name, b"%d" % number) for _ in range(5)]
            offsets = [each.get(timeout=30).offset for each in placed]
            if number % 3:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
                kept += offsets
    found = walked(person, f"/topics/{name}/records?limit=20&start={start}")
    assert sorted(offset for _, offset in found) == kept
    every = walked(person, f"/topics/{name}/records?limit=20&isolation=read_uncommitted&start={start}")
    assert len(every) == 150


def test_places_to_begin(person: Person, topic: Callable[..., str], producer: KafkaProducer) -> None:
    name = topic()
    for each in range(100):
        producer.send(name, b"x", timestamp_ms=1_700_000_000_000 + each * 1000)
    producer.flush()
    path = f"/topics/{name}/records?limit=20"
    assert rows(person.get(f"{path}&start=offset&at=40"))[0] == (0, 40)
    assert rows(person.get(f"{path}&start=time&at=1700000050000"))[0] == (0, 50)
    assert rows(person.get(f"{path}&start=time&at=2023-11-14T22:13:50"))[0] == (0, 30)
    assert rows(person.get(f"{path}&start=oldest&partition=0"))[0] == (0, 0)
    assert "is no time" in person.get(f"{path}&start=time&at=soon", 400)
    assert "has no partition 7" in person.get(f"{path}&partition=7", 400)


def test_an_empty_topic_says_so(person: Person, topic: Callable[..., str]) -> None:
    assert "No record is here" in person.get(f"/topics/{topic(2)}/records")


# --- hostile contents ---------------------------------------------------------------------------------------------


def test_hostile_contents_do_no_harm(person: Person, topic: Callable[..., str], producer: KafkaProducer) -> None:
    name = topic()
    for each in HOSTILE:
        producer.send(name, each, each[:5000], headers=[("<b>x</b>", each[:5000])])
    producer.flush()
    pages = [person.get(f"/topics/{name}/records"), person.get(f"/topics/{name}/statistics")]
    pages += [person.get(f"/topics/{name}/records/0/{offset}") for offset in range(len(HOSTILE))]
    pages += [person.get(f"/topics/{name}/produce?again=0:{offset}") for offset in range(len(HOSTILE))]
    events = person.events(f"/topics/{name}/search")
    assert events[-1][0] == "end"
    assert [each for each, _ in events].count("end") == 1, "a record forged an event"
    pages += [data for kind, data in events if kind == "record"]
    assert len([kind for kind, _ in events if kind == "record"]) == len(HOSTILE)
    for page in pages:
        parsed = links(person.url, page)
        assert parsed.inline == []
        assert "<script>alert" not in page
        assert "<img src=x" not in page
        assert "<h1>owned" not in page
        assert "<b>x</b>" not in page


@pytest.mark.parametrize("form", ["auto", "json", "text", "registry", "msgpack", "hex", "base64", "integer"])
def test_every_format_shows_every_record(
    person: Person, topic: Callable[..., str], send: Callable[..., None], form: str
) -> None:
    name = topic()
    send(name, HOSTILE)
    page = person.get(f"/topics/{name}/records?key={form}&value={form}")
    assert len(rows(page)) == len(HOSTILE)


# --- searches and live views --------------------------------------------------------------------------------------


def test_a_search_shows_hits_progress_and_its_end(
    person: Person, topic: Callable[..., str], send: Callable[..., None]
) -> None:
    name = topic(2)
    for partition in (0, 1):
        send(name, [json.dumps({"n": each, "odd": each % 2}).encode() for each in range(500)], partition, key=b"k")
    expression = quote('value.n >= 490 && value.odd == 1 && key == "k" && partition == 1')
    page = person.get(f"/topics/{name}/records?filter={expression}")
    assert "data-stream=" in page
    events = person.events(f"/topics/{name}/search?filter={expression}")
    hits = [data for kind, data in events if kind == "record"]
    assert [rows(hit)[0] for hit in hits] == [(1, each) for each in (491, 493, 495, 497, 499)]
    last = json.loads([data for kind, data in events if kind == "progress"][-1])
    assert (last["done"], last["total"], last["read"], last["hits"]) == (1000, 1000, 1000, 5)
    assert events[-1] == ("end", "The search is complete: 5 hits in 1,000 records.")


def test_a_filter_that_fails_says_on_how_many_records(
    person: Person, topic: Callable[..., str], send: Callable[..., None]
) -> None:
    name = topic()
    send(name, [b'{"a": 1}', b'{"b": 1}', b"text", None])
    events = person.events(f"/topics/{name}/search?filter={quote('value.a == 1')}")
    last = json.loads([data for kind, data in events if kind == "progress"][-1])
    assert (last["hits"], last["failed"]) == (1, 3)
    assert last["failure"]


@pytest.mark.parametrize(
    "expression",
    ["value ==", "((((", "x" * 2001, "[1].map (a, [1].map (b, b))", "import os"],
    ids=["syntax", "brackets", "long", "nested", "python"],
)
def test_a_filter_that_is_not_valid_is_refused(person: Person, topic: Callable[..., str], expression: str) -> None:
    page = person.get(f"/topics/{topic()}/records?filter={quote(expression)}", 400)
    assert "filter" in page


def test_a_live_view_shows_what_arrives(person: Person, topic: Callable[..., str], producer: KafkaProducer) -> None:
    name = topic()
    producer.send(name, b"before").get(timeout=30)
    with person.http.stream("GET", f"/topics/{name}/tail") as response:
        lines = response.iter_lines()
        while not next(lines).startswith("event: progress"):
            pass  # the first round is over: the view stands at the end of the log
        producer.send(name, b"while it is live").get(timeout=30)
        text = ""
        for line in lines:
            text += line
            if "while it is live" in text:
                break
    assert "before" not in text


# --- masks --------------------------------------------------------------------------------------------------------


def test_masked_parts_are_on_no_page_in_no_filter_and_in_no_download(
    console: Callable[..., Person], topic: Callable[..., str], send: Callable[..., None]
) -> None:
    name = topic(name=f"payments.{topic()}")
    value = {"card": {"number": "4111111111111111", "holder": "Ann"}, "list": [{"card": {"number": "42"}}], "id": 7}
    send(name, [json.dumps(value).encode()], headers=[("token", b"hush"), ("other", b"4111111111111111")])
    send(name, [b"no json 4111111111111111"])
    rules = (
        MaskRule(
            ("payments.*",), (("card", "number"), ("list", "card", "number")), re.compile("[0-9]{12,19}"), ("token",)
        ),
    )
    visitor = console(masks=rules)
    pages = [visitor.get(f"/topics/{name}/records"), visitor.get(f"/topics/{name}/records/0/0")]
    pages += [
        visitor.get(f"/topics/{name}/records/0/{at}?value={form}")
        for at in (0, 1)
        for form in ("hex", "base64", "text")
    ]
    pages += [visitor.get(f"/topics/{name}/download?format={form}&start=oldest") for form in ("jsonl", "csv")]
    for expression in ('value.card.number == "4111111111111111"', 'headers.token == "hush"', 'value.contains("4111")'):
        events = visitor.events(f"/topics/{name}/search?filter={quote(expression)}")
        assert [kind for kind, _ in events if kind == "record"] == [], expression
        pages += [data for _, data in events]
    for page in pages:
        assert "4111111111111111" not in page
        assert "NDExMTExMTExMTExMTExMQ" not in page
        assert "34 31 31 31 31" not in page
        assert "hush" not in page
    assert "Ann" in pages[1]
    assert "masked" in pages[0]
    assert "are masked" in visitor.get(f"/topics/{name}/produce?again=0:0", 403)


def test_other_formats_and_headers_show_nothing_of_a_masked_topic(
    console: Callable[..., Person], topic: Callable[..., str], send: Callable[..., None]
) -> None:
    name = topic(name=f"payments.{topic()}")
    send(name, [json.dumps('{"card": 12345678}').encode()], key=b"12345678", headers=[("raw", b"\xff12345678")])
    visitor = console(masks=(MaskRule(("payments.*",), (("card",),), re.compile("[0-9]{8}"), ()),))
    for form in ("auto", "integer", "msgpack", "hex", "base64", "json", "text"):
        page = visitor.get(f"/topics/{name}/records/0/0?key={form}&value={form}")
        for secret in ("12345678", str(int.from_bytes(b"12345678", "big")), "31 32 33 34", "MTIzNDU2Nzg"):
            assert secret not in page, form


def test_a_time_that_is_none_is_shown_as_a_number(
    person: Person, topic: Callable[..., str], producer: KafkaProducer
) -> None:
    name = topic(1, message_timestamp_after_max_ms=str(2**63 - 1))
    producer.send(name, b"nanoseconds", timestamp_ms=1_700_000_000_000_000_000).get(timeout=30)
    page = person.get(f"/topics/{name}/records")
    assert "1700000000000000000 ms" in page
    assert "nanoseconds" in page


# --- downloads ----------------------------------------------------------------------------------------------------


def test_downloads(person: Person, topic: Callable[..., str], send: Callable[..., None]) -> None:
    name = topic(2)
    send(name, [b'{"n": 1}', None, b"=HYPERLINK(1)", b"-5", b"\xff\x00"], 0, key=b"k", headers=[("h", b"1")])
    send(name, [b"other"], 1)
    lines = [json.loads(line) for line in person.get(f"/topics/{name}/download?format=jsonl&start=oldest").splitlines()]
    first = next(line for line in lines if (line["partition"], line["offset"]) == (0, 0))
    assert (first["key"], first["value"], first["headers"]) == ("k", {"n": 1}, [["h", "1"]])
    assert len(lines) == 6
    table = list(
        csv.DictReader(io.StringIO(person.get(f"/topics/{name}/download?format=csv&start=oldest&partition=0")))
    )
    assert [row["value"] for row in table[:4]] == ['{"n": 1}', "", "'=HYPERLINK(1)", "-5"]
    found = person.get(f"/topics/{name}/download?format=jsonl&start=oldest&filter={quote('value == null')}")
    assert [json.loads(line)["offset"] for line in found.splitlines()] == [1]
    assert len(person.get(f"/topics/{name}/download?format=jsonl&partition=0&most=2").splitlines()) == 2


def test_the_download_of_a_search_has_what_the_page_shows(
    person: Person, topic: Callable[..., str], send: Callable[..., None]
) -> None:
    name = topic()
    send(name, [b'{"n": 1}', b'{"n": 2}', b'{"n": 3}'])
    found = person.get(f"/topics/{name}/download?format=jsonl&most=1&filter={quote('value.n == 1')}")
    assert [json.loads(line)["offset"] for line in found.splitlines()] == [0]


def test_a_download_as_parquet(person: Person, topic: Callable[..., str], send: Callable[..., None]) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    name = topic()
    send(name, [b'{"n": 1}', None], key=b"k", headers=[("h", b"1")])
    response = person.http.get(f"/topics/{name}/download?format=parquet&start=oldest")
    table = parquet.read_table(io.BytesIO(response.content)).to_pylist()
    assert [(row["offset"], row["key"], row["value"]) for row in table] == [(0, "k", '{"n": 1}'), (1, "k", None)]
    assert table[0]["headers"] == [{"name": "h", "value": "1"}]


# --- produce ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"value": "two\r\nlines", "key": "k"}, (b"k", b"two\nlines", [])),
        ({"value": "", "value_encoding": "null", "key": "k"}, (b"k", None, [])),
        ({"value": "", "key": ""}, (None, b"", [])),
        ({"value": ' {"a": [1, 2]} ', "value_encoding": "json"}, (None, b'{"a":[1,2]}', [])),
        ({"value": "ff 00 01", "value_encoding": "hex"}, (None, b"\xff\0\x01", [])),
        ({"value": "/wAB", "value_encoding": "base64", "key": "", "key_encoding": "null"}, (None, b"\xff\0\x01", [])),
        ({"value": "v", "headers": "a: 1\n\nb: base64:/wA="}, (None, b"v", [("a", b"1"), ("b", b"\xff\0")])),
    ],
    ids=["text", "tombstone", "empty", "json", "hex", "base64", "headers"],
)
def test_a_record_is_written_as_it_was_typed(
    broker: testing.Broker, person: Person, topic: Callable[..., str], fields: dict[str, str], expected: object
) -> None:
    name = topic()
    response = person.send(f"/topics/{name}/produce", fields, page=f"/topics/{name}/produce")
    assert response.headers["location"] == f"/topics/{name}/records/0/0"
    assert "is written" in person.get(response.headers["location"])
    assert all_of(broker, name) == [expected]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"value": "{", "value_encoding": "json"}, "The value is no JSON"),
        ({"value": "xyz", "value_encoding": "hex"}, "The value is no hex"),
        ({"value": "v", "headers": "no colon"}, "is no header"),
        ({"value": "x", "value_encoding": "null"}, "is to be null, but has a text"),
        ({"value": "v", "partition": "9"}, "must be from 0 to 0"),
    ],
    ids=["json", "hex", "header", "null", "partition"],
)
def test_a_wrong_record_is_said_and_the_form_keeps_its_texts(
    person: Person, topic: Callable[..., str], fields: dict[str, str], text: str
) -> None:
    name = topic()
    response = person.send(f"/topics/{name}/produce", fields, page=f"/topics/{name}/produce", status=400)
    assert text in response.text
    assert unescape(fields["value"]) in unescape(response.text)


@pytest.mark.parametrize("value", [b"text\nwith lines", b"\xff\0", b"carriage\r\nreturn", b"", None], ids=repr)
def test_a_record_produced_again_has_the_same_bytes(
    broker: testing.Broker, person: Person, topic: Callable[..., str], send: Callable[..., None], value: bytes | None
) -> None:
    name = topic()
    send(name, [value], key=b"\0key", headers=[("h", b"\xff"), ("plain", b"x")])
    page = person.get(f"/topics/{name}/produce?again=0:0")
    fields = {
        field: unescape(found[1]).removeprefix("\n")
        for field in ("key", "value", "headers")
        if (found := re.search(rf'<textarea name="{field}"[^>]*>(.*?)</textarea>', page, re.DOTALL))
    }
    for part in ("key", "value"):
        select = re.search(rf'<select name="{part}_encoding">(.*?)</select>', page, re.DOTALL)
        assert select
        chosen = re.search(r'value="(\w+)" selected', select[1])
        assert chosen
        fields[f"{part}_encoding"] = chosen[1]
    person.send(f"/topics/{name}/produce", fields, page=f"/topics/{name}/produce")
    first, second = all_of(broker, name)
    assert first == second
