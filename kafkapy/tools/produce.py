"""`kafkapy produce`: send lines, files or JSON as records.

Counterpart of kafka-console-producer.sh and kcat -P.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final, NoReturn

import click

from kafkapy.errors import KafkaError, KafkaTimeoutError
from kafkapy.tools.missing_names import topics_by_name
from kafkapy.tools.named_partitions import no_partition
from kafkapy.tools.options import TOPIC, cluster_options, connected, settings_of_admin
from kafkapy.tools.output import INTERRUPTED, counted, is_regular_file, progress, tell
from kafkapy.tools.record_format import FormatError, from_json_line, unescape
from kafkapy.types import CompressionType

__all__ = ["produce"]

Call = dict[str, Any]
"""Arguments of send (`value`) or of send_many (`values`)."""
Placed = tuple[str, Call]
"""A call, and the source of its records for errors."""
READ_BYTES = 1 << 17
LAST_WAIT_S: Final = 10
"""Time after Ctrl-C for the confirmation of sent records."""
THROUGHPUT: dict[str, object] = {"linger.ms": 20, "batch.size": 262144}
"""In a pipe, full batches matter more than the delay of the first one; -X overrides this."""


@click.command("produce")
@click.argument("topic", metavar="TOPIC", type=TOPIC)
@click.argument("files", nargs=-1, metavar="[FILE]...", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--key-delimiter", "-K", metavar="TEXT", help=r"Separator of key and value in a line, such as : or \t.")
@click.option("--delimiter", "-D", default=r"\n", show_default=True, metavar="TEXT", help="Separator of records.")
@click.option("--key", "-k", metavar="TEXT", help="Key of every record without one.")
@click.option("--header", "-H", "headers", multiple=True, metavar="NAME=VALUE", help="Header of every record.")
@click.option("--partition", "-p", type=click.IntRange(0), help="Partition of every record without one.")
@click.option(
    "--json", "-J", "as_json", is_flag=True, help="Read lines of JSON: key, value, headers, partition, timestamp."
)
@click.option("--whole", "-w", is_flag=True, help="Send each file as the value of one record.")
@click.option("--null", "-Z", is_flag=True, help="Turn empty keys and values into null.")
@click.option(
    "--compression",
    "-z",
    type=click.Choice(CompressionType.config_names()),
    default="none",
    show_default=True,
    help="Codec of batches.",
)
@click.option("--quiet", "-q", is_flag=True, help="Print no progress and no count.")
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
    """Send the lines of files, or of stdin, to a topic.

    \b
    kafkapy produce orders -K : < lines             key:value lines
    kafkapy produce orders --json records.jsonl     the output of kafkapy consume --json
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
    partitions = _Partitions(settings_of_admin(configs, PRODUCER), topic)
    partitions.check(0 if partition is None else partition)
    sources = files or ("-",)
    if whole:
        calls = _whole(sources, every)
    elif as_json:
        calls = _json_lines(sources, between, every, null, partitions)
    else:
        calls = _lines(sources, between, split, every, null)
    if not quiet and "-" in sources and sys.stdin.isatty():
        what = (
            "the value of one record" if whole else "one record per line, as JSON" if as_json else "one record per line"
        )
        tell(f"Type {what}. Ctrl-D at the beginning of a line ends.")
    from_disk = all(is_regular_file(sys.stdin) if name == "-" else Path(name).is_file() for name in sources)
    started = time.monotonic()
    count = _send(configs, topic, calls, from_disk and not quiet)
    if not quiet:
        rate = count / max(time.monotonic() - started, 0.001)
        tell(f"{counted(count)} sent, {rate:,.0f}/s" if from_disk else f"{counted(count)} sent")


class _Partitions:
    """The number of partitions of the topic.

    The command creates no misspelt topic, and no record waits for a missing partition.
    """

    def __init__(self, settings: dict[str, object], topic: str) -> None:
        self._settings = settings
        self._topic = topic
        self._count = 0

    def check(self, partition: int) -> None:
        """KafkaError for a topic or partition that does not exist now."""
        if partition < self._count:
            return
        with connected(self._settings) as admin:
            self._count = len(topics_by_name(admin, [self._topic])[self._topic]["partitions"])
        if partition >= self._count:
            raise KafkaError(no_partition(self._topic, partition, self._count))


class _Sent:
    """The sent records, and the number of confirmed ones."""

    def __init__(self) -> None:
        self.count = 0
        self.confirmed = 0
        self.all_counted = True
        """False while a call passes records on: some may be unconfirmed."""
        self._futures: deque[tuple[Any, int]] = deque()

    def add(self, future: Any, count: int) -> None:
        """Add calls to the sent ones."""
        self._futures.append((future, count))
        self.count += count

    def collect(self) -> None:
        """Count confirmed records. KafkaError with the first failure."""
        while self._futures and self._futures[0][0].is_done:
            future, count = self._futures.popleft()
            if future.exception is not None:
                raise KafkaError(f"Not all of the first {self.count} records were sent: {future.exception}")
            self.confirmed += count


def _send(configs: dict[str, object], topic: str, calls: Iterator[Placed], shown: bool) -> int:
    """Send records, and return their number.

    Each call has one record (`value`) or many (`values`). KafkaError with the first failure. Ctrl-C ends the program
    with exit code 130 and prints the number of confirmed records.
    """
    from kafkapy.clients.producer.producer import KafkaProducer

    sent = _Sent()
    producer = KafkaProducer(configs)
    try:
        with progress("sent", None, shown=shown) as bar:
            for where, call in calls:
                more = len(call["values"]) if "values" in call else 1
                sent.all_counted = False
                try:
                    sent.add(
                        producer.send_many(topic, **call) if "values" in call else producer.send(topic, **call), more
                    )
                except (KafkaError, ValueError) as error:
                    raise KafkaError(f"{where}: {error}") from None
                sent.all_counted = True
                bar.advance(more)
                sent.collect()
            producer.flush()
            sent.collect()
    except KeyboardInterrupt:
        _interrupted(producer, sent)
    finally:
        producer.close()
    return sent.count


def _interrupted(producer: Any, sent: _Sent) -> NoReturn:
    """Wait for unconfirmed records; another Ctrl-C ends the wait. SystemExit."""
    with suppress(KeyboardInterrupt, KafkaTimeoutError):
        producer.flush(LAST_WAIT_S)
    sent.collect()
    arrived = f"{'' if sent.all_counted else 'at least '}{counted(sent.confirmed)} arrived"
    if sent.confirmed < sent.count:
        arrived += f"; whether the other {sent.count - sent.confirmed:,} arrived is unknown"
    click.echo(f"Interrupted: {arrived}.", err=True)
    raise SystemExit(INTERRUPTED)


def _defaults(key: str | None, headers: tuple[str, ...], partition: int | None) -> Call:
    pairs = []
    for text in headers:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{text!r} is not NAME=VALUE.")
        pairs.append((name, value.encode()))
    return {"key": None if key is None else key.encode(), "headers": pairs, "partition": partition}


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
                    raise KafkaError(f"Line {number} of {where}: no {shown!r} separates a key from a value.")
                keys.append(before)
                values.append(value)
        if null:
            values = [value or None for value in values]
            keys = None if keys is None else [each or key for each in keys]
        numbers = f"Line {first}" if len(block) == 1 else f"Lines {first} to {first + len(block) - 1}"
        yield f"{numbers} of {where}", rest | {"values": values, "keys": keys}


def _json_lines(
    files: tuple[str, ...], between: bytes, every: Call, null: bool, partitions: _Partitions
) -> Iterator[Placed]:
    for where, first, block in _blocks(files, between):
        for number, line in enumerate(block, first):
            try:
                record = from_json_line(line)
            except FormatError as error:
                raise KafkaError(f"Line {number} of {where}: {error}.") from None
            if record.get("partition") is not None:
                try:
                    partitions.check(record["partition"])
                except KafkaError as error:
                    raise KafkaError(f"Line {number} of {where}: {error}") from None
            record["headers"] += every["headers"]
            if null:
                record["value"] = record["value"] or None
            if record["key"] is None:
                record["key"] = every["key"]
            yield f"Line {number} of {where}", {"partition": every["partition"]} | record


def _blocks(files: tuple[str, ...], between: bytes) -> Iterator[tuple[str, int, list[bytes]]]:
    """(file, first line number, lines), as they arrive.

    A slow pipe gives few lines at a time, which are sent at once. An empty rest at the end is no record.
    """
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
