"""`kafkapy consume`: print records.

Counterpart of kafka-console-consumer.sh and kcat -C.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from kafkapy.errors import KafkaTimeoutError
from kafkapy.tools.options import GROUP, TOPIC, cluster_options, connected, settings_of_admin
from kafkapy.tools.output import INTERRUPTED, Progress, counted, is_regular_file, progress, tell
from kafkapy.tools.record_format import FormatError, as_json_line, compile_format
from kafkapy.types import ListOffsetsTimestamp, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kafkapy.clients.admin.kafka_admin_client import KafkaAdminClient
    from kafkapy.clients.consumer.consumer import KafkaConsumer

__all__ = ["consume"]

AT_ONCE = 5000
"""Records per poll."""
POLL_MS = 200
IDLE_S = 10.0
"""Seconds without a record after which --share ends, once the member has its partitions."""
RESETS = {"beginning": "earliest", "end": "latest"}
"""auto.offset.reset of a group member, by --from."""
Lines = Callable[[Any], bytes]
Offsets = dict[TopicPartition, int]
Polled = dict[TopicPartition, list[Any]]


@click.command("consume")
@click.argument("places", nargs=-1, required=True, metavar="TOPIC[:PARTITIONS]...", type=TOPIC)
@click.option(
    "--from",
    "-o",
    "first",
    default="beginning",
    show_default=True,
    metavar="PLACE",
    help="First place: beginning, end, an offset, -N (N records before the end), @TIME (ISO 8601, or ms).",
)
@click.option("--until", "-u", "last", metavar="PLACE", help="Last place, in the same form; default: end.")
@click.option("--follow", "-F", is_flag=True, help="Continue with new records until Ctrl-C.")
@click.option("--count", "-c", type=click.IntRange(1), metavar="N", help="Largest number of records.")
@click.option("--group", "-G", metavar="GROUP", type=GROUP, help="Join this group, start at its offsets and commit.")
@click.option("--share", "-S", "share", metavar="GROUP", type=GROUP, help="Join this share group, and take records.")
@click.option(
    "--ack",
    "outcome",
    type=click.Choice(["accept", "release", "reject"]),
    help="With --share: the acknowledgement of printed records; default: accept.",
)
@click.option("--format", "-f", "format_", metavar="FORMAT", help=r"kcat's format, such as '%p %o %k %s\n'; see above.")
@click.option("--json", "-J", "as_json", is_flag=True, help="One JSON object per line.")
@click.option("--null", "-Z", "null", default="", metavar="TEXT", help="Text for keys and values that are null.")
@click.option("--committed", is_flag=True, help="Skip records of open and aborted transactions.")
@click.option("--raw", is_flag=True, help="Print raw bytes on a terminal, which obeys escape sequences in them.")
@click.option("--output", type=click.File("wb", lazy=True), default="-", metavar="FILE", help="Write to this file.")
@cluster_options
def consume(
    settings: dict[str, object],
    places: tuple[str, ...],
    first: str,
    last: str | None,
    follow: bool,
    count: int | None,
    group: str | None,
    share: str | None,
    outcome: str | None,
    format_: str | None,
    as_json: bool,
    null: str,
    committed: bool,
    raw: bool,
    output: BinaryIO,
) -> None:
    """Print the records of topics.

    The command ends at the end of the topics; with --follow it waits for new records.
    With --share it ends after ten seconds without a record, because a queue has no end.

    \b
    Formats:  %t topic    %p partition    %o offset    %T timestamp in ms
              %k key      %K its size     %s value     %S its size
              %h headers  %D deliveries in a share group  \\n \\t \\xHH

    Example: kafkapy consume orders:0 --from @2024-05-01T12:00:00 -c 10 -f '%o %k: %s\\n'
    """
    if as_json and format_ is not None:
        raise click.UsageError("--json and --format exclude each other.")
    if follow and last is not None:
        raise click.UsageError("--follow and --until exclude each other.")
    if group is not None and (last is not None or any(":" in place for place in places)):
        raise click.UsageError("The group assigns partitions: --until and TOPIC:PARTITIONS do not work with --group.")
    if group is not None and first not in RESETS:
        raise click.UsageError(
            "With --group, --from is beginning or end: the start of partitions without a committed offset."
        )
    if outcome is not None and share is None:
        raise click.UsageError("--ack belongs to --share.")
    if share is not None and (
        group is not None
        or last is not None
        or committed
        or first != "beginning"
        or any(":" in each for each in places)
    ):
        raise click.UsageError(
            "A share group takes the next records of whole topics: --group, --from, --until, --committed and "
            "TOPIC:PARTITIONS do not work with --share."
        )
    try:
        clean = not raw and output.isatty()
        text = r"%s\n" if format_ is None else format_
        lines = as_json_line if as_json else compile_format(text, null.encode(), clean)
    except FormatError as error:
        raise click.UsageError(str(error)) from None
    wanted = {"isolation.level": "read_committed"} if committed else {}
    configs = settings | wanted | {"enable.auto.commit": False}
    from kafkapy.config.consumer import CONSUMER
    from kafkapy.config.share_consumer import SHARE_CONSUMER
    from kafkapy.tools.named_partitions import partitions_of

    with connected(settings_of_admin(settings, CONSUMER if share is None else SHARE_CONSUMER)) as admin:
        partitions = partitions_of(admin, places)  # nothing is created by a typing error
        if group is None and share is None:
            starts, ends = _range(admin, partitions, first, last, committed)
    if share is not None:
        _from_share_group(settings | {"group.id": share}, places, count, follow, outcome or "accept", lines, output)
        return
    if group is not None:
        _from_group(configs | {"group.id": group}, places, first, count, follow, lines, output)
        return
    _from_partitions(configs, starts, None if follow else ends, count, lines, output)


def _from_partitions(
    configs: Mapping[str, object],
    starts: Offsets,
    ends: Offsets | None,
    count: int | None,
    lines: Lines,
    output: BinaryIO,
) -> None:
    from kafkapy.clients.consumer.consumer import KafkaConsumer

    if ends is not None:
        starts = {partition: offset for partition, offset in starts.items() if offset < ends[partition]}
    if not starts:
        output.write(b"")  # an older file of that name does not stay as it is
        tell(
            "There are no records in that range. --follow waits for new ones, kafkapy topics describe --offsets shows "
            "what is there."
        )
        return
    total = None if ends is None else sum(ends[partition] - offset for partition, offset in starts.items())
    consumer = KafkaConsumer(configs=configs)
    try:
        consumer.assign(list(starts))
        for partition, offset in starts.items():
            consumer.seek(partition, offset)
        with _shown(total if count is None else min(count, total or count), output) as bar:
            _until_interrupted(ends is None, bar, lambda: _copy(consumer, ends, count, lines, output, bar, {}))
    finally:
        consumer.close()


def _from_group(
    configs: dict[str, object],
    topics: tuple[str, ...],
    first: str,
    count: int | None,
    follow: bool,
    lines: Lines,
    output: BinaryIO,
) -> None:
    from kafkapy.clients.consumer.consumer import KafkaConsumer

    printed: Offsets = {}
    # Positions are committed by the polls after those that printed up to them.
    consumer = KafkaConsumer(configs=configs | {"auto.offset.reset": RESETS[first], "enable.auto.commit": follow})

    def copy() -> None:
        early: Polled = {}
        while not consumer.assignment():
            early = consumer.poll(POLL_MS, AT_ONCE if count is None else min(AT_ONCE, count))
        ends = None if follow else dict(consumer.end_offsets(list(consumer.assignment())))
        _copy(consumer, ends, count, lines, output, bar, printed, early)

    try:
        consumer.subscribe(list(topics))
        with _shown(count, output) as bar:
            _until_interrupted(follow, bar, copy)
        if not bar.done and not follow:
            tell(
                f"Group {configs['group.id']} has read all records. --follow waits for new ones, kafkapy groups "
                "reset-offsets goes back."
            )
        # Not the positions: of what the last poll gave, some may have come after the end, or after Ctrl-C.
        mine = consumer.assignment()
        consumer.commit({each: OffsetAndMetadata(offset) for each, offset in printed.items() if each in mine})
    finally:
        consumer.close(autocommit=False)


def _from_share_group(
    configs: Mapping[str, object],
    topics: tuple[str, ...],
    count: int | None,
    follow: bool,
    outcome: str,
    lines: Lines,
    output: BinaryIO,
) -> None:
    from kafkapy.clients.share.consumer import KafkaShareConsumer

    at_once = AT_ONCE if count is None else min(AT_ONCE, count)
    wanted = {
        "share.acknowledgement.mode": "explicit",
        # Records that are not printed would lose one of their deliveries.
        "share.acquire.mode": "batch_optimized" if count is None else "record_limit",
        "max.poll.records": at_once,
    }
    consumer = KafkaShareConsumer(*topics, configs=dict(configs) | wanted)

    def copy() -> None:
        written, last_at, joined = 0, time.monotonic(), False
        while count is None or written < count:
            records = consumer.poll_batch(at_once if count is None else min(at_once, count - written), POLL_MS)
            if not records:
                if not joined and consumer.assignment():
                    joined, last_at = True, time.monotonic()
                idle_s = IDLE_S if joined else consumer.config["default.api.timeout.ms"] / 1000
                if not follow and time.monotonic() - last_at >= idle_s:
                    tell(f"Share group {configs['group.id']} has no more records for this member now.")
                    return
                continue
            output.write(b"".join(map(lines, records)))
            output.flush()
            for record in records:
                consumer.acknowledge(record, outcome)
            for partition, error in consumer.commit_sync().items():
                if error is not None:
                    tell(f"Records of {partition} may be delivered once more: {error}")
            bar.advance(len(records))
            written += len(records)
            last_at = time.monotonic()

    try:
        with _shown(count, output) as bar:
            _until_interrupted(follow, bar, copy)
    finally:
        consumer.close()


def _copy(
    consumer: KafkaConsumer,
    ends: Offsets | None,
    count: int | None,
    lines: Lines,
    output: BinaryIO,
    bar: Progress,
    printed: Offsets,
    early: Polled | None = None,
) -> None:
    """Write records until the ends of all partitions, or until a count.

    `early` are records that were polled before. `printed` has, for each partition, the offset up to which every record
    is written.

    A partition at its end is paused. It may be at its end without records, when only transaction markers are left.
    """
    written = 0
    polled: Polled = early or {}
    while True:
        if ends is not None:
            polled = {
                partition: records if records[-1].offset < ends[partition] else _before(records, ends[partition])
                for partition, records in polled.items()
                if partition in ends
            }
        if polled:
            handed: Polled = {}
            try:
                for partition, records in polled.items():
                    text = b"".join(map(lines, records))
                    handed[partition] = records
                    output.write(text)
                output.flush()
            except KeyboardInterrupt:
                # It may come behind a write: somebody has read the records already.
                output.flush()
                _tally(handed, bar, printed)
                raise
            _tally(handed, bar, printed)
            written += sum(map(len, handed.values()))
        elif ends is None:
            printed |= _positions(consumer)
        if ends is not None:
            reached = _at_the_end(consumer, polled, ends)
            mine = reached & consumer.assignment()
            consumer.pause(*mine)
            printed |= {partition: ends[partition] for partition in mine}
            ends = {partition: end for partition, end in ends.items() if partition not in reached}
            if not ends:
                return
        if count is not None and written >= count:
            return
        polled = consumer.poll(POLL_MS, AT_ONCE if count is None else min(AT_ONCE, count - written))


def _tally(handed: Polled, bar: Progress, printed: Offsets) -> None:
    bar.advance(sum(map(len, handed.values())))
    printed |= {partition: records[-1].offset + 1 for partition, records in handed.items() if records}


def _before(records: list[Any], end: int) -> list[Any]:
    return [record for record in records if record.offset < end]


def _positions(consumer: KafkaConsumer) -> Offsets:
    """The known positions."""
    found: Offsets = {}
    for partition in consumer.assignment():
        with suppress(KafkaTimeoutError):
            found[partition] = consumer.position(partition, timeout_ms=0)
    return found


def _at_the_end(consumer: KafkaConsumer, polled: Polled, ends: Offsets) -> set[TopicPartition]:
    """The partitions without records before their ends, and lost partitions."""
    if polled:
        return {
            partition
            for partition, records in polled.items()
            if not records or records[-1].offset + 1 >= ends[partition]
        }
    mine = consumer.assignment()
    return {
        partition for partition, end in ends.items() if partition not in mine or consumer.position(partition) >= end
    }


def _until_interrupted(follows: bool, bar: Progress, copy: Callable[[], None]) -> None:
    """Ctrl-C ends an endless command; otherwise it gives exit code 130."""
    if follows:
        tell("Waiting for records; Ctrl-C ends.")
    try:
        copy()
    except KeyboardInterrupt:
        if not follows:
            click.echo(f"Interrupted: {counted(bar.done)} printed.", err=True)
            raise SystemExit(INTERRUPTED) from None
        tell(f"{counted(bar.done)} printed.")


@contextmanager
def _shown(total: int | None, output: BinaryIO) -> Iterator[Progress]:
    """A progress bar, unless other output may use the terminal."""
    with progress("consumed", total, shown=is_regular_file(output)) as bar:
        yield bar


# --- places ---------------------------------------------------------------------------------------------------------


def _range(
    admin: KafkaAdminClient, partitions: list[TopicPartition], first: str, last: str | None, committed: bool
) -> tuple[Offsets, Offsets]:
    """(first offset, end offset) of each partition. KafkaError; click.UsageError."""
    level = "read_committed" if committed else "read_uncommitted"
    earliest = admin.list_partition_offsets(dict.fromkeys(partitions, ListOffsetsTimestamp.EARLIEST), level)
    latest = admin.list_partition_offsets(dict.fromkeys(partitions, ListOffsetsTimestamp.LATEST), level)
    lows = {partition: earliest[partition].offset for partition in partitions}
    highs = {partition: latest[partition].offset for partition in partitions}
    starts = _places(admin, first, "--from", lows, highs)
    return starts, highs if last is None else _places(admin, last, "--until", lows, highs)


def _places(admin: KafkaAdminClient, text: str, option: str, lows: Offsets, highs: Offsets) -> Offsets:
    if text == "beginning":
        return lows
    if text == "end":
        return highs
    if text.startswith("@"):
        found = admin.list_partition_offsets(dict.fromkeys(lows, _timestamp(text[1:], option)))
        return {
            partition: found[partition].offset if found[partition].offset >= 0 else highs[partition]
            for partition in lows
        }
    try:
        number = int(text)
    except ValueError:
        raise click.UsageError(
            f"{option} {text!r} is not a place: give beginning, end, an offset, -N or @TIME."
        ) from None
    wanted = {partition: highs[partition] + number if number < 0 else number for partition in lows}
    return {partition: min(max(offset, lows[partition]), highs[partition]) for partition, offset in wanted.items()}


def _timestamp(text: str, option: str) -> int:
    from kafkapy.tools.reset_offsets import parse_datetime

    if text.isdecimal():
        return int(text)
    try:
        return parse_datetime(text)
    except ValueError as error:
        raise click.UsageError(f"{option} {error}") from None
