"""profile: what is in topics. Rows, bytes, sizes, keys and their skew, gaps in offsets and in time.

Every record is read once, on Spark's executors; what Spark gets are counts. Keys are counted exactly, however many
there are: Spark adds up what its tasks have counted.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import click

from kafkapy.errors import IllegalArgumentError
from kafkapy.tools.options import key_values
from kafkapy.tools.output import Column, Output, size_text, time_text
from kafkapy_spark.jobs.progress import SILENT, JobProgress
from kafkapy_spark.jobs.session import Job, job_options
from kafkapy_spark.jobs.summary import Summary

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, Row, SparkSession

    from kafkapy_spark.jobs.range_profile import RangeProfile
    from kafkapy_spark.planning import OffsetRange

__all__ = ["KeyCount", "PartitionProfile", "Profile", "SizeProfile", "TopicProfile", "profile"]

PERCENTILES: Final = (50, 90, 99, 99.9)


@dataclass(frozen=True)
class SizeProfile:
    """Sizes in bytes of what is not null; `percentiles` by their names, e.g. "p99"."""

    count: int
    bytes: int
    min: int | None
    avg: float | None
    max: int | None
    percentiles: dict[str, int]


@dataclass(frozen=True)
class KeyCount:
    """A key, and its share of the records that have one."""

    key: bytes
    rows: int
    share: float


@dataclass(frozen=True)
class PartitionProfile:
    """Offsets from `start` up to, but without, `end`. Times are ms since 1970."""

    partition: int
    start: int
    end: int
    rows: int
    bytes: int
    share: float
    """Of the topic's rows."""
    null_keys: int
    tombstones: int
    missing_offsets: int
    """Offsets without a record: of markers of transactions, of compacted, aborted and expired records."""
    offset_gaps: int
    """Stretches of them."""
    largest_offset_gap: int
    first_time: int | None
    last_time: int | None
    out_of_order: int
    """Records that are older than the one before."""
    time_gaps: int
    """How often the next record that moves time forward does so by more than the limit."""
    longest_time_gap_ms: int | None
    longest_time_gap_from: int | None


@dataclass(frozen=True)
class TopicProfile:
    """One topic."""

    topic: str
    rows: int
    bytes: int
    null_keys: int
    tombstones: int
    first_time: int | None
    last_time: int | None
    keys: SizeProfile
    values: SizeProfile
    distinct_keys: int | None
    """None where keys were not counted, and so with top_keys."""
    top_keys: list[KeyCount] | None
    partitions: list[PartitionProfile]


@dataclass(kw_only=True)
class Profile(Summary):
    """What a profile has found."""

    topics: list[TopicProfile] = field(default_factory=list)

    def show(self, output: Output) -> None:
        """A table of the topic's values, its keys and its partitions, topic by topic."""
        if output.as_json:
            output.json(self.as_dict())
            return
        for each in self.topics:
            _show(each, output)
        output.say(f"{self.rows:,} records read in {self.seconds:.1f} s.", style="dim")


def profile(
    spark: SparkSession,
    topics: str | Sequence[str],
    *,
    kafka: Mapping[str, str],
    options: Mapping[str, str] | None = None,
    top: int = 10,
    count_keys: bool = True,
    gap_ms: int = 60_000,
    progress: JobProgress = SILENT,
) -> Profile:
    """Reads topics from end to end, or what `options` say, and profiles them.

    kafka       keys of the Kafka clients; isolation.level=read_committed leaves aborted records out
    options     of a batch read of Spark's (startingTimestamp, maxTasks, ...)
    top         so many of the most frequent keys
    count_keys  False: keys are not counted, which needs no memory or disk for them
    gap_ms      what counts as a gap in time
    IllegalArgumentError, KafkaError; errors of tasks are Spark's.
    """
    from kafkapy_spark.jobs.range_profile import COLUMNS, SCHEMA, profile_range
    from kafkapy_spark.jobs.topic_scan import TopicScan

    names = [topics] if isinstance(topics, str) else list(dict.fromkeys(topics))
    if not names:
        raise IllegalArgumentError("No topics are given")
    if top < 0 or gap_ms < 0:
        raise IllegalArgumentError("top and gap_ms must not be negative")
    started = time.monotonic()
    progress.step("looking up offsets")
    # What expires while it is read counts as missing.
    scan = TopicScan(spark, kafka, names, {"failOnDataLoss": "false", **(options or {})})

    def work(each: OffsetRange, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return profile_range(each, batches, gap_ms, count_keys)

    counted = scan.frame(COLUMNS, work, SCHEMA).persist()
    try:
        progress.step(f"reading {scan.size:,} offsets of {len(scan.ranges):,} partitions")
        partitions = _partitions(counted, scan.ranges, gap_ms)
        progress.step("counting sizes")
        sizes = counted.where("number IS NOT NULL").groupBy("topic", "kind", "number").sum("count").collect()
        progress.step("counting keys")
        found = [
            _topic_profile(
                topic,
                [each for each in partitions if each.topic == topic],
                [row for row in sizes if row.topic == topic],
                _top_keys(counted, topic, top) if count_keys else (None, None),
            )
            for topic in names
        ]
    finally:
        counted.unpersist()
    return Profile(
        job=f"profile {', '.join(names)}",
        rows=sum(each.rows for each in found),
        bytes=sum(each.bytes for each in found),
        seconds=time.monotonic() - started,
        topics=found,
    )


# --- from counts to a profile -----------------------------------------------------------------------------------------


def _partitions(counted: DataFrame, ranges: Sequence[OffsetRange], gap_ms: int) -> list[RangeProfile]:
    """One for each partition, in order; those without offsets are not among the rows."""
    from kafkapy_spark.jobs.range_profile import RangeProfile

    texts = [row.text for row in counted.where("kind = 'range'").select("text").collect()]
    pieces: dict[tuple[str, int], RangeProfile] = {}
    for piece in sorted((RangeProfile(**json.loads(text)) for text in texts), key=lambda each: each.start):
        whole = pieces.setdefault((piece.topic, piece.partition), piece)
        if whole is not piece:
            whole.merge(piece, gap_ms)
    for (topic, partition), start, end in ranges:
        pieces.setdefault((topic, partition), RangeProfile(topic, partition, start, end))
    return [pieces[each] for each in sorted(pieces)]


def _top_keys(counted: DataFrame, topic: str, top: int) -> tuple[int, list[KeyCount]]:
    """(different keys, the most frequent ones)."""
    from pyspark.sql import functions

    keys = counted.where((functions.col("kind") == "key") & (functions.col("topic") == topic))
    counts = keys.groupBy("key").agg(functions.sum("count").alias("rows"))
    totals = counts.agg(functions.count("*").alias("distinct"), functions.sum("rows").alias("rows")).collect()[0]
    first = counts.orderBy(functions.desc("rows"), "key").limit(top).collect() if top else []
    return totals.distinct, [KeyCount(bytes(row.key), row.rows, row.rows / totals.rows) for row in first]


def _topic_profile(
    topic: str, partitions: Sequence[RangeProfile], sizes: Sequence[Row], keys: tuple[int | None, list[KeyCount] | None]
) -> TopicProfile:
    rows = sum(each.rows for each in partitions)
    firsts = [each.first_time for each in partitions if each.first_time is not None]
    lasts = [each.last_time for each in partitions if each.last_time is not None]
    return TopicProfile(
        topic=topic,
        rows=rows,
        bytes=sum(each.key_bytes + each.value_bytes for each in partitions),
        null_keys=sum(each.null_keys for each in partitions),
        tombstones=sum(each.tombstones for each in partitions),
        first_time=min(firsts, default=None),
        last_time=max(lasts, default=None),
        keys=_sizes({row.number: row["sum(count)"] for row in sizes if row.kind == "key_size"}),
        values=_sizes({row.number: row["sum(count)"] for row in sizes if row.kind == "value_size"}),
        distinct_keys=keys[0],
        top_keys=keys[1],
        partitions=[_partition_profile(each, rows) for each in partitions],
    )


def _partition_profile(found: RangeProfile, topic_rows: int) -> PartitionProfile:
    gaps, largest = found.whole()
    longest = max(found.time_gaps, key=lambda gap: gap[1] - gap[0], default=None)
    return PartitionProfile(
        partition=found.partition,
        start=found.start,
        end=found.end,
        rows=found.rows,
        bytes=found.key_bytes + found.value_bytes,
        share=found.rows / topic_rows if topic_rows else 0.0,
        null_keys=found.null_keys,
        tombstones=found.tombstones,
        missing_offsets=found.end - found.start - found.rows,
        offset_gaps=gaps,
        largest_offset_gap=largest,
        first_time=found.first_time,
        last_time=found.last_time,
        out_of_order=found.out_of_order,
        time_gaps=len(found.time_gaps),
        longest_time_gap_ms=None if longest is None else longest[1] - longest[0],
        longest_time_gap_from=None if longest is None else longest[0],
    )


def _sizes(counts: Mapping[int, int]) -> SizeProfile:
    """Percentiles by nearest rank: the smallest size that so many percent are not larger than."""
    number, total = sum(counts.values()), sum(size * count for size, count in counts.items())
    percentiles: dict[str, int] = {}
    seen = 0
    for size in sorted(counts):
        seen += counts[size]
        percentiles = {f"p{percent:g}": size for percent in PERCENTILES if seen * 100 >= percent * number} | percentiles
    return SizeProfile(
        count=number,
        bytes=total,
        min=min(counts, default=None),
        avg=total / number if number else None,
        max=max(counts, default=None),
        percentiles=percentiles,
    )


# --- for people -------------------------------------------------------------------------------------------------------

_SIZE_COLUMNS = (
    Column("what"),
    Column("count", "not null", right=True),
    Column("size", "bytes", right=True),
    *(Column(name, right=True) for name in ("min", "avg", *(f"p{each:g}" for each in PERCENTILES), "max")),
)
_KEY_COLUMNS = (Column("key"), Column("rows", right=True), Column("share", right=True, style="bold"))
_PARTITION_COLUMNS = (
    Column("partition", right=True),
    Column("offsets", right=True),
    Column("rows", right=True),
    Column("size", "bytes", right=True),
    Column("share", right=True, style="bold"),
    Column("null_keys", right=True, quiet=True),
    Column("tombstones", right=True, quiet=True),
    Column("missing", "missing offsets", right=True),
    Column("offset_gaps", "gaps", right=True, quiet=True),
    Column("largest_gap", right=True, quiet=True),
    Column("first_time", quiet=True),
    Column("last_time", quiet=True),
    Column("time_gaps", right=True),
    Column("longest_time_gap", "longest"),
    Column("longest_time_gap_from", "from", quiet=True),
    Column("out_of_order", right=True, quiet=True),
)


def _show(topic: TopicProfile, output: Output) -> None:
    keys = "" if topic.distinct_keys is None else f"{topic.distinct_keys:,} keys"
    span = f"{time_text(topic.first_time)} to {time_text(topic.last_time)}" if topic.first_time is not None else ""
    details = [f"{topic.rows:,} rows", size_text(topic.bytes), keys, f"{topic.null_keys:,} without key"]
    output.heading(topic.topic, *filter(None, [*details, f"{topic.tombstones:,} tombstones", span]))
    output.rows([_size_row("key", topic.keys), _size_row("value", topic.values)], _SIZE_COLUMNS)
    if topic.top_keys:
        output.heading(f"{topic.topic}: most frequent keys")
        output.rows(
            [
                {"key": _key_text(each.key), "rows": f"{each.rows:,}", "share": f"{each.share:.2%}"}
                for each in topic.top_keys
            ],
            _KEY_COLUMNS,
        )
    output.heading(f"{topic.topic}: partitions")
    output.rows([_partition_row(each) for each in topic.partitions], _PARTITION_COLUMNS)


def _size_row(what: str, sizes: SizeProfile) -> dict[str, Any]:
    return {
        "what": what,
        "count": f"{sizes.count:,}",
        "size": size_text(sizes.bytes),
        "min": sizes.min,
        "avg": None if sizes.avg is None else f"{sizes.avg:.1f}",
        "max": sizes.max,
        **sizes.percentiles,
    }


def _partition_row(each: PartitionProfile) -> dict[str, Any]:
    longest = each.longest_time_gap_ms
    return {
        "partition": each.partition,
        "offsets": f"{each.start} to {each.end}",
        "rows": f"{each.rows:,}",
        "size": size_text(each.bytes),
        "share": f"{each.share:.1%}",
        "null_keys": each.null_keys,
        "tombstones": each.tombstones,
        "missing": each.missing_offsets,
        "offset_gaps": each.offset_gaps,
        "largest_gap": each.largest_offset_gap,
        "first_time": time_text(each.first_time),
        "last_time": time_text(each.last_time),
        "time_gaps": each.time_gaps,
        "longest_time_gap": None if longest is None else f"{longest / 1000:,.1f} s",
        "longest_time_gap_from": time_text(each.longest_time_gap_from),
        "out_of_order": each.out_of_order,
    }


def _key_text(key: bytes) -> str:
    text = key.decode(errors="backslashreplace")
    return text if text.isprintable() else key.hex(" ")


@click.command("profile")
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@click.option(
    "--top", default=10, show_default=True, type=click.IntRange(0), help="Number of the most frequent keys to show."
)
@click.option("--no-keys", is_flag=True, help="Do not count keys.")
@click.option(
    "--gap",
    default="1m",
    show_default=True,
    metavar="TIME",
    help="Shortest silence that counts as a gap: 500ms, 30s, 5m.",
)
@click.option("--since", metavar="TIME", help="Read records from this time on: 2024-05-01T12:00:00, UTC or +hh:mm.")
@click.option("--until", metavar="TIME", help="Read records before this time.")
@click.option("--option", multiple=True, metavar="KEY=VALUE", help="Option of the read (maxTasks, ...).")
@job_options
def command(
    job: Job,
    topics: tuple[str, ...],
    top: int,
    no_keys: bool,
    gap: str,
    since: str | None,
    until: str | None,
    option: tuple[str, ...],
) -> None:
    """Profile topics: rows, bytes, sizes, the most frequent keys, gaps.

    Offsets have gaps at the ends of transactions and at compacted, aborted or expired records. A gap in time is a
    silence of at least --gap between the timestamps of records.
    """
    from kafkapy.tools.reset_offsets import parse_datetime
    from kafkapy_spark.jobs.topic_scan import time_options
    from kafkapy_spark.option_values import duration_ms

    times = [None if text is None else parse_datetime(text) for text in (since, until)]
    try:
        gap_ms = duration_ms(gap)
    except ValueError as error:
        raise IllegalArgumentError(f"--gap {error}, and is '{gap}'") from None
    job.run(
        f"profile {', '.join(topics)}",
        profile,
        topics,
        options=time_options(*times) | key_values(option),
        top=top,
        count_keys=not no_keys,
        gap_ms=gap_ms,
    )
