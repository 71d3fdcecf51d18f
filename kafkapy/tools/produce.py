"""`kafkapy produce`: send lines, files or JSON as records. Counterpart of kafka-console-producer.sh and kcat -P."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from kafkapy.errors import KafkaError
from kafkapy.tools.options import TOPIC, cluster_options, connected, settings_of_admin
from kafkapy.tools.output import progress
from kafkapy.tools.record_format import FormatError, from_json_line, unescape

__all__ = ["produce"]

Call = dict[str, Any]
"""Arguments of send (`value`) or of send_many (`values`)."""
Placed = tuple[str, Call]
"""A call, and where its records come from: of an error that one of them makes."""
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
READ_BYTES = 1 << 17
THROUGHPUT: dict[str, object] = {"linger.ms": 20, "batch.size": 262144}
"""For a pipe batches matter more than the milliseconds until the first one; -X says otherwise."""


@click.command("produce")
@click.argument("topic", metavar="TOPIC", type=TOPIC)
@click.argument("files", nargs=-1, metavar="[FILE]...", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option(
    "--key-delimiter", "-K", metavar="TEXT", help=r"What stands between key and value in a line, such as : or \t."
)
@click.option(
    "--delimiter", "-D", default=r"\n", show_default=True, metavar="TEXT", help="What stands between records."
)
@click.option("--key", "-k", metavar="TEXT", help="The key of every record without one.")
@click.option("--header", "-H", "headers", multiple=True, metavar="NAME=VALUE", help="A header of every record.")
@click.option("--partition", "-p", type=click.IntRange(0), help="The partition of every record that names none.")
@click.option(
    "--json", "-J", "as_json", is_flag=True, help="Lines are JSON: key, value, headers, partition, timestamp."
)
@click.option("--whole", "-w", is_flag=True, help="Every file is the value of one record.")
@click.option("--null", "-Z", is_flag=True, help="Empty keys and values are null.")
@click.option("--compression", "-z", type=click.Choice(CODECS), default="none", show_default=True, help="Of batches.")
@click.option("--quiet", "-q", is_flag=True, help="No progress and no count at the end.")
@cluster_options
def produce(
    settings: dict[str, object],
    topic: str,
    files: tuple[str, ...],
    key_delimiter: str | None,
    delimiter: str,
    key: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    as_json: bool,
    whole: bool,
    null: bool,
    compression: str,
    quiet: bool,
) -> None:
    """Send records to a topic: the lines of files, or of stdin.

    \b
    kafkapy produce orders -K : < lines             key:value lines
    kafkapy produce orders --json records.jsonl     what kafkapy consume --json prints
    kafkapy produce pictures --whole *.png          one record per file
    """
    if sum((as_json, whole, key_delimiter is not None)) > 1:
        raise click.UsageError("--json, --whole and --key-delimiter exclude each other.")
    try:
        between = unescape(delimiter)
        split = None if key_delimiter is None else unescape(key_delimiter)
    except FormatError as error:
        raise click.UsageError(str(error)) from None
    if not between or split == b"":
        raise click.UsageError("A delimiter cannot be empty.")
    from kafkapy.config.producer import PRODUCER

    every = _defaults(key, headers, partition)
    configs = THROUGHPUT | settings | {"compression.type": compression}
    with connected(settings_of_admin(configs, PRODUCER)) as admin:
        _check(admin.describe_topics([topic])[0], topic, partition)
    if whole:
        calls = _whole(files or ("-",), every)
    elif as_json:
        calls = _json_lines(files or ("-",), between, every, null)
    else:
        calls = _lines(files or ("-",), between, split, every, null)
    started = time.monotonic()
    count = _send(configs, topic, calls, quiet)
    if not quiet and sys.stderr.isatty():
        rate = count / max(time.monotonic() - started, 0.001)
        click.echo(f"{count:,} records sent, {rate:,.0f}/s", err=True)


def _send(configs: dict[str, object], topic: str, calls: Iterator[Placed], quiet: bool) -> int:
    """How many records were sent: each call is of one record (`value`) or of many (`values`). KafkaError with the first
    failure."""
    from kafkapy.clients.producer.producer import KafkaProducer

    count = 0
    producer = KafkaProducer(configs)
    try:
        with progress("sent", None, shown=not quiet) as bar:
            sent: deque[Any] = deque()
            for where, call in calls:
                more = len(call["values"]) if "values" in call else 1
                try:
                    sent.append(producer.send_many(topic, **call) if "values" in call else producer.send(topic, **call))
                except (KafkaError, ValueError) as error:
                    raise KafkaError(f"{where}: {error}") from None
                count += more
                bar.advance(more)
                while sent and sent[0].is_done:
                    _raise_failure(sent.popleft(), count)
            producer.flush()
            for future in sent:
                _raise_failure(future, count)
    finally:
        producer.close()
    return count


def _raise_failure(future: Any, count: int) -> None:
    if future.exception is not None:
        raise KafkaError(f"Not all of the first {count} records were sent: {future.exception}")


def _defaults(key: str | None, headers: tuple[str, ...], partition: int | None) -> Call:
    pairs = []
    for text in headers:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{text!r} is no NAME=VALUE.")
        pairs.append((name, value.encode()))
    return {"key": None if key is None else key.encode(), "headers": pairs, "partition": partition}


def _check(topic: dict[str, Any], name: str, partition: int | None) -> None:
    """KafkaError where the topic or the partition is not there: nothing is created by a typing error."""
    if topic["error_code"]:
        raise KafkaError(f"The cluster has no topic {name}.")
    if partition is not None and partition >= len(topic["partitions"]):
        raise KafkaError(f"Topic {name} has no partition {partition}; it has 0 to {len(topic['partitions']) - 1}.")


def _whole(files: tuple[str, ...], every: Call) -> Iterator[Placed]:
    for name in files:
        value = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        yield "stdin" if name == "-" else name, every | {"value": value}


def _lines(files: tuple[str, ...], between: bytes, split: bytes | None, every: Call, null: bool) -> Iterator[Placed]:
    key = every["key"]
    rest = {name: value for name, value in every.items() if name != "key"}
    for where, first, block in _blocks(files, between):
        values: list[bytes | None] = []
        keys: list[bytes | None] | None = None if key is None else [key] * len(block)
        if split is None:
            values += block
        else:
            keys = []
            for number, line in enumerate(block, first):
                before, found, value = line.partition(split)
                if not found:
                    shown = split.decode(errors="backslashreplace")
                    raise KafkaError(f"Line {number} of {where}: there is no {shown!r} between a key and a value.")
                keys.append(before)
                values.append(value)
        if null:
            values = [value or None for value in values]
            keys = None if keys is None else [each or key for each in keys]
        numbers = f"Line {first}" if len(block) == 1 else f"Lines {first} to {first + len(block) - 1}"
        yield f"{numbers} of {where}", rest | {"values": values, "keys": keys}


def _json_lines(files: tuple[str, ...], between: bytes, every: Call, null: bool) -> Iterator[Placed]:
    for where, first, block in _blocks(files, between):
        for number, line in enumerate(block, first):
            try:
                record = from_json_line(line)
            except FormatError as error:
                raise KafkaError(f"Line {number} of {where}: {error}.") from None
            record["headers"] += every["headers"]
            if null:
                record["value"] = record["value"] or None
            if record["key"] is None:
                record["key"] = every["key"]
            yield f"Line {number} of {where}", {"partition": every["partition"]} | record


def _blocks(files: tuple[str, ...], between: bytes) -> Iterator[tuple[str, int, list[bytes]]]:
    """(file, number of the first line, lines) as they are read: a slow pipe gives few lines at a time, and they go out
    at once. An empty rest at the end is no record."""
    overlap = len(between) - 1
    for name in files:
        where = "stdin" if name == "-" else name
        with ExitStack() as opened:
            source = sys.stdin.buffer if name == "-" else opened.enter_context(Path(name).open("rb"))
            read = getattr(source, "read1", source.read)
            first = 1
            rest: list[bytes] = []  # pieces of a line that goes on
            seam = b""  # its last bytes, where a delimiter may have begun
            while block := read(READ_BYTES):
                rest.append(block)
                if between in seam + block:
                    *lines, last = b"".join(rest).split(between)
                    yield where, first, lines
                    first += len(lines)
                    rest, seam, block = [last], b"", last
                seam = (seam + block)[-overlap:] if overlap else b""
            if line := b"".join(rest):
                yield where, first, [line]
