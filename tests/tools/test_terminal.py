"""Foreign text never commands a terminal: seen from a program that has one, and by properties of the parts."""

from __future__ import annotations

import io
import json
import logging
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Producer
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from tools.conftest import CommandLine

from kafkapy import KafkaConsumer
from kafkapy.testing.broker import Broker
from kafkapy.tools import dump_log, produce
from kafkapy.tools.log_setup import JsonFormatter, KeyValueFormatter
from kafkapy.tools.output import Column, Output
from kafkapy.tools.record_format import FormatError, as_json_line, from_json_line
from kafkapy.tools.terminal import PrintableFormatter, json_without_controls, printable, printable_bytes

EVIL = "\x1b]0;pwned\x07\x1b[2J\x7f\u009b31m\rover"
OBEYED = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f]")
"""What a terminal would do something for."""
COLOUR = re.compile("\x1b\\[[0-9;]*m")
"""rich's own."""


def on_a_terminal(*arguments: str) -> str:
    """What a command writes to a terminal that is its stdout and stderr."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "kafkapy.tools.cli", *arguments]
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, stdin=subprocess.DEVNULL) as process:
        os.close(theirs)
        got = b""
        while True:
            try:
                block = os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            got += block
        process.wait(30)
    os.close(ours)
    return got.decode(errors="surrogateescape").replace("\r\n", "\n")


def test_records_on_a_terminal(broker: Broker, kafkapy: CommandLine, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for value in (EVIL.encode(), b"\x9b2J\xff", b"two\nlines\tand a tab"):
        producer.produce(topic, value, EVIL.encode(), partition=0, headers={EVIL: EVIL.encode()})
    producer.flush(10)
    command = ("consume", topic, "-b", broker.bootstrap_servers, "-f", r"\x1b[1m%t %k %s %h\n")
    shown = on_a_terminal(*command)
    assert OBEYED.search(shown.replace("\x1b[1m", "")) is None, repr(shown)
    assert shown.count("\x1b[1m") == 3, "the format's own escapes stay"
    assert r"\x1b]0;pwned\x07" in shown and r"\x9b2J\xff" in shown and "two\nlines\tand a tab" in shown
    assert "\x1b]0;pwned\x07" in on_a_terminal(*command, "--raw")
    as_json = on_a_terminal("consume", topic, "-b", broker.bootstrap_servers, "--json")
    assert OBEYED.search(as_json) is None, repr(as_json)
    assert json.loads(as_json.splitlines()[0])["value"] == EVIL
    assert kafkapy("consume", topic, "-c", "1").stdout_bytes == EVIL.encode() + b"\n", "a pipe gets the bytes"


def test_client_ids_on_a_terminal(broker: Broker, topic: str, name: Callable[[], str]) -> None:
    group = name()
    member = KafkaConsumer(
        topic, bootstrap_servers=broker.bootstrap_servers, group_id=group, client_id=EVIL, auto_offset_reset="earliest"
    )
    try:
        while not member.assignment():
            member.poll(100)
        for more in ((), ("--json",)):
            shown = on_a_terminal("groups", "describe", group, "-b", broker.bootstrap_servers, *more)
            assert "pwned" in shown
            assert OBEYED.search(COLOUR.sub("", shown)) is None, repr(shown)
    finally:
        member.close(autocommit=False)


def test_errors_with_foreign_text(kafkapy: CommandLine) -> None:
    result = kafkapy("topics", "describe", EVIL)
    assert result.exit_code == 1
    assert OBEYED.search(result.stderr) is None, repr(result.stderr)


def test_dump_log_shows_brackets_as_they_are() -> None:
    for text in ("[info] started", "[/x]", "[link=x]click[/link]", "[bold]", EVIL):
        shown = io.StringIO()
        console = Console(file=shown, force_terminal=True, width=200)
        dump_log._print_tables(
            SimpleNamespace(path=Path(text), rows=[{"offset": 1, "value": text}], problems=[text]), console, rows=True
        )
        plain = COLOUR.sub("", shown.getvalue())
        assert plain.count(printable(text, one_line=True)) == 3
        assert OBEYED.search(plain) is None


def test_tables_headings_and_sentences() -> None:
    shown = io.StringIO()
    output = Output(console=Console(file=shown, force_terminal=True, width=200, highlight=False))
    output.heading(EVIL, EVIL)
    output.rows([{"name": EVIL, "list": [EVIL, "b"]}], (Column("name"), Column("list")))
    output.say(EVIL)
    assert OBEYED.search(COLOUR.sub("", shown.getvalue())) is None
    assert shown.getvalue().count(r"\x1b]0;pwned\x07") == 5


@pytest.mark.parametrize("formatter", [KeyValueFormatter(), JsonFormatter(), PrintableFormatter("%(message)s")])
def test_logs(formatter: logging.Formatter) -> None:
    try:
        raise ValueError(EVIL)
    except ValueError:
        record = logging.LogRecord("a", logging.INFO, "", 1, "client %s\n%s", (EVIL, "next"), sys.exc_info())
    record.client_id = EVIL
    line = formatter.format(record)
    assert "pwned" in line
    assert OBEYED.search(line) is None, repr(line)


@given(st.text(st.characters()))
def test_printable_text_holds_no_controls_and_plain_text_stays(text: str) -> None:
    shown = printable(text)
    assert OBEYED.search(shown) is None
    shown.encode()
    if OBEYED.search(text) is None and not re.search("[\ud800-\udfff]", text):
        assert shown == text
    assert not set(printable(text, one_line=True)) & set("\t\n")
    assert json.loads(json_without_controls(json.dumps(text, ensure_ascii=False))) == text


@given(st.binary())
def test_printable_bytes(data: bytes) -> None:
    assert OBEYED.search(printable_bytes(data).decode()) is None


binary = st.one_of(st.none(), st.binary(), st.text().map(str.encode), st.just(b'{"base64":"AA=="}'))


@given(
    key=binary,
    value=binary,
    headers=st.lists(st.tuples(st.text(), binary)),
    partition=st.integers(0, 2**31 - 1),
    timestamp=st.integers(-1, 2**63 - 1),
)
def test_what_consume_writes_produce_reads(
    key: bytes | None, value: bytes | None, headers: list[Any], partition: int, timestamp: int
) -> None:
    record = SimpleNamespace(
        topic="t", partition=partition, offset=5, timestamp=timestamp, key=key, value=value, headers=headers
    )
    line = as_json_line(record)
    assert line.count(b"\n") == 1 and line.endswith(b"\n")
    read = from_json_line(line)
    assert (read["key"], read["value"], read["headers"], read["partition"]) == (key, value, headers, partition)
    assert read.get("timestamp_ms", -1) == timestamp


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b'{"value":"\\ud800"}', "half of a surrogate pair"),
        (b'{"headers":[["\\udc00","a"]]}', "half of a surrogate pair"),
        (b'{"value":{"a":"\\ud800"}}', "half of a surrogate pair"),
        (b'{"value":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
        (b'{"timestamp":1e3}', "whole number from 0"),
        (b'{"timestamp":-2}', "whole number from 0"),
        (b'{"timestamp":9223372036854775808}', "whole number from 0"),
        (b'{"partition":-1}', "whole number from 0"),
        (b'{"partition":2147483648}', "whole number from 0"),
        (b'{"partition":true}', "whole number from 0"),
        (b'{"partition":' + b"9" * 5000 + b"}", "not JSON"),
        (b'{"headers":"ab"}', r"array of \[name, value\]"),
        (b'{"headers":[["a","b","c"]]}', r"array of \[name, value\]"),
        (b'{"headers":[[1,"b"]]}', r"array of \[name, value\]"),
        (b"\xff", "not JSON"),
        (b"[]", "not a JSON object"),
    ],
    ids=lambda given: given[:20].decode(errors="replace") if isinstance(given, bytes) else "",
)
def test_odd_lines_are_refused_in_one_sentence(line: bytes, problem: str) -> None:
    with pytest.raises(FormatError, match=problem) as caught:
        from_json_line(line)
    assert len(str(caught.value)) < 200


def test_the_line_is_named(kafkapy: CommandLine, topic: str) -> None:
    good = b'{"value":"a","timestamp":-1,"partition":0}\n'
    error = kafkapy.failure("produce", topic, "--json", stdin=good + b'{"value":"b","timestamp":-5}\n')
    assert error.startswith("Line 2 of stdin: timestamp is a whole number")
    large = b'{"value":"' + b"x" * 2_000_000 + b'"}\n'
    error = kafkapy.failure("produce", topic, "--json", stdin=good + good + large)
    assert error.startswith("Line 3 of stdin: ") and "max.request.size" in error


@given(
    text=st.lists(st.sampled_from([b"a", b";", b";;", b"\n", b"x" * 7]), max_size=40).map(b"".join),
    between=st.sampled_from([b"\n", b";", b";;", b";a;"]),
    size=st.integers(1, 9),
)
def test_lines_of_any_size_and_delimiter(
    text: bytes, between: bytes, size: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "blocks.txt"
    path.write_bytes(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(produce, "READ_BYTES", size)
        found = list(produce._blocks((str(path),), between))
    lines = [line for _, _, block in found for line in block]
    *expected, rest = text.split(between)
    assert lines == expected + ([rest] if rest else [])
    numbers = [first + at for _, first, block in found for at in range(len(block))]
    assert numbers == list(range(1, len(lines) + 1))


def test_a_long_line_is_put_together_once(tmp_path: Path) -> None:
    path = tmp_path / "line.txt"
    path.write_bytes(b"x" * (64 * produce.READ_BYTES))
    called: list[str] = []

    def profile(frame: Any, event: str, function: Any) -> None:
        if event == "c_call" and function.__name__ in ("split", "join") and type(function.__self__) is bytes:
            called.append(function.__name__)

    sys.setprofile(profile)
    try:
        ((_, first, (line,)),) = produce._blocks((str(path),), b"\n")
    finally:
        sys.setprofile(None)
    assert (first, len(line)) == (1, 64 * produce.READ_BYTES)
    assert called == ["join"], "each block of a line that goes on is looked at by itself"
