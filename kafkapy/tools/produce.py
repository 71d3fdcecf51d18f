"""`kafkapy produce`: send lines, files or JSON as records. Counterpart of kafka-console-producer.sh and kcat -P."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

import click

from kafkapy.errors import KafkaError
from kafkapy.tools.options import TOPIC, cluster_options, connected
from kafkapy.tools.output import progress
from kafkapy.tools.record_format import FormatError, from_json_line, unescape

__all__ = ["produce"]

Record = dict[str, Any]
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
READ_BYTES = 1 << 16
SHOWN_EVERY = 500
"""Records between two steps of the progress bar."""
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
    r"""Send records to a topic: the lines of files, or of stdin.

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
    every = _defaults(key, headers, partition)
    configs = THROUGHPUT | settings | {"compression.type": compression}
    with connected(settings) as admin:
        _check(admin.describe_topics([topic])[0], topic, partition)
    records = _whole(files) if whole else _records(files or ("-",), between, split, as_json)
    started = time.monotonic()
    count = _send(configs, topic, (_completed(record, every, null) for record in records), quiet)
    if not quiet and sys.stderr.isatty():
        rate = count / max(time.monotonic() - started, 0.001)
        click.echo(f"{count:,} records sent, {rate:,.0f}/s", err=True)


def _send(configs: dict[str, object], topic: str, records: Iterator[Record], quiet: bool) -> int:
    """How many were sent. KafkaError with the first failure."""
    from kafkapy.clients.producer.producer import KafkaProducer

    failures: list[BaseException] = []
    count = 0
    producer = KafkaProducer(configs)
    try:
        with progress("sent", None, shown=not quiet) as bar:
            for record in records:
                producer.send(topic, **record).add_errback(failures.append)
                count += 1
                if count % SHOWN_EVERY == 0:
                    bar.advance(SHOWN_EVERY)
                    if failures:
                        break
            producer.flush()
            bar.advance(count % SHOWN_EVERY)
    finally:
        producer.close()
    if failures:
        raise KafkaError(f"{len(failures)} of {count} records were not sent: {failures[0]}")
    return count


def _defaults(key: str | None, headers: tuple[str, ...], partition: int | None) -> Record:
    pairs = []
    for text in headers:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{text!r} is no NAME=VALUE.")
        pairs.append((name, value.encode()))
    return {"key": None if key is None else key.encode(), "headers": pairs, "partition": partition}


def _completed(record: Record, every: Record, null: bool) -> Record:
    if null:
        record = {name: None if value == b"" else value for name, value in record.items()}
    if record.get("key") is None:
        record["key"] = every["key"]
    if every["headers"]:
        record["headers"] = [*record.get("headers", ()), *every["headers"]]
    if every["partition"] is not None:
        record.setdefault("partition", every["partition"])
    return record


def _check(topic: dict[str, Any], name: str, partition: int | None) -> None:
    """KafkaError where the topic or the partition is not there: nothing is created by a typing error."""
    if topic["error_code"]:
        raise KafkaError(f"The cluster has no topic {name}.")
    if partition is not None and partition >= len(topic["partitions"]):
        raise KafkaError(f"Topic {name} has no partition {partition}; it has 0 to {len(topic['partitions']) - 1}.")


def _whole(files: tuple[str, ...]) -> Iterator[Record]:
    for name in files or ("-",):
        yield {"value": sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()}


def _records(files: tuple[str, ...], between: bytes, split: bytes | None, as_json: bool) -> Iterator[Record]:
    for name in files:
        with ExitStack() as opened:
            source = sys.stdin.buffer if name == "-" else opened.enter_context(Path(name).open("rb"))
            for number, line in enumerate(_lines(source, between), 1):
                where = f"{'stdin' if name == '-' else name}, line {number}"
                yield _record(line, split, as_json, where)


def _record(line: bytes, split: bytes | None, as_json: bool, where: str) -> Record:
    if as_json:
        try:
            return from_json_line(line)
        except FormatError as error:
            raise KafkaError(f"{where}: {error}.") from None
    if split is None:
        return {"value": line}
    key, found, value = line.partition(split)
    if not found:
        raise KafkaError(f"{where}: there is no {split.decode(errors='backslashreplace')!r} between a key and a value.")
    return {"key": key, "value": value}


def _lines(source: BinaryIO, between: bytes) -> Iterator[bytes]:
    """What stands between delimiters; an empty rest at the end is no record."""
    if between == b"\n":
        for line in source:
            yield line[:-1] if line.endswith(b"\n") else line
        return
    rest = b""
    read = getattr(source, "read1", source.read)
    while block := read(READ_BYTES):
        *complete, rest = (rest + block).split(between)
        yield from complete
    if rest:
        yield rest
