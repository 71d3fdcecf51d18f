"""The options of the source: those of Spark's own Kafka source, with its names, defaults, precedence and refusals, and
a few of ours.

Names are case-insensitive. Sources: org.apache.spark.sql.kafka010.KafkaSourceProvider; Spark's "Structured Streaming +
Kafka Integration Guide". Imports neither pyspark nor pyarrow.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import re2

from kafkapy.config.clients import ClientConfig
from kafkapy.config.consumer import CONSUMER
from kafkapy.errors import IllegalArgumentError
from kafkapy.types import TopicPartition
from kafkapy_spark.delegation_tokens import DriverConfigs, TokenOptions
from kafkapy_spark.offsets import (
    EARLIEST,
    LATEST,
    EarliestOffsets,
    LatestOffsets,
    OffsetLimit,
    OffsetsAtTimestamp,
    OffsetsByTimestamp,
    SpecificOffsets,
    names,
    parse_offsets,
    parse_partitions,
    parse_timestamps,
)
from kafkapy_spark.option_names import SINK, SOURCE, KafkaConfigs, check_names, kafka_configs
from kafkapy_spark.option_values import boolean, duration_ms, filled, not_negative, option, positive, whole_number

logger = logging.getLogger("kafkapy.spark")

STRATEGIES: Final = ("subscribe", "subscribePattern", "assign")
_STRATEGY_TEXT: Final = ", ".join(STRATEGIES)

_REFUSED: Final = {
    "auto.offset.reset": "Kafka option 'auto.offset.reset' is not supported. Instead set the source option "
    "'startingOffsets' to 'earliest' or 'latest' to specify where to start. Structured Streaming manages which offsets "
    "are consumed internally, rather than relying on the consumer to do it. This ensures that no data is missed when "
    "new topics or partitions are subscribed dynamically. Note that 'startingOffsets' only applies when a new "
    "streaming query is started, and that resuming always picks up from where the query left off.",
    "key.deserializer": "Kafka option 'key.deserializer' is not supported as keys are deserialized as byte arrays with "
    "ByteArrayDeserializer. Use DataFrame operations to explicitly deserialize the keys.",
    "value.deserializer": "Kafka option 'value.deserializer' is not supported as values are deserialized as byte "
    "arrays with ByteArrayDeserializer. Use DataFrame operations to explicitly deserialize the values.",
    "enable.auto.commit": "Kafka option 'enable.auto.commit' is not supported",
    "interceptor.classes": "Kafka option 'interceptor.classes' is not supported",
}

READ_FROM: Final = ("broker", "segments", "auto")

_GROUP_WARNING: Final = (
    "Option '%s' has been set on this query. It is ignored: no group is joined, and offsets are kept in the checkpoint"
)


@dataclass(frozen=True)
class SourceOptions:
    """What a read was asked for. `topics`, `pattern` or `partitions` is set; see `parse` for errors."""

    kafka: dict[str, str]
    """Keys of the consumer, without the prefix kafka."""
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()
    starting: OffsetLimit = field(default_factory=EarliestOffsets)
    ending: OffsetLimit = field(default_factory=LatestOffsets)
    fail_on_data_loss: bool = True
    include_headers: bool = False
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = 15 * 60_000
    poll_timeout_ms: int = 120_000
    fetch_offset_retries: int = 3
    fetch_offset_retry_interval_ms: int = 1000
    # --- ours
    max_tasks: int | None = None
    """Most tasks of a read (without minPartitions)."""
    rows_per_task: int = 250_000
    """Offsets that make another task worth while (without minPartitions)."""
    bytes_per_task: int = 128 << 20
    """Bytes in the log that do."""
    pin_start: bool = True
    """A new query writes its start to the checkpoint, by an empty first batch, before it reads."""
    idle_poll_ms: int = 200
    """How long a query with nothing new waits for news before it says so."""
    offset_commit_group: str | None = None
    """The group that a streaming query's offsets are committed to, for tools that show lag."""
    read_from: str = "broker"
    """One of READ_FROM; kafkapy_spark.segments has what it means."""
    segments_path: tuple[str, ...] = ()
    """Log directories of brokers, as tasks see them."""
    token: TokenOptions | None = None
    """Tasks log in by a delegation token; None: with the credentials in `kafka`."""

    @classmethod
    def parse(cls, given: Mapping[str, str], *, streaming: bool) -> SourceOptions:
        """From the options of a DataFrameReader or DataStreamReader.

        IllegalArgumentError for what is refused; ConfigError for values that a consumer does not take.
        """
        check_names(given, SOURCE, SINK, "read")
        options = {name.lower(): value for name, value in given.items()}
        starting = _offset_limit(options, "starting", LatestOffsets() if streaming else EarliestOffsets())
        ending: OffsetLimit = LatestOffsets()
        if streaming:
            _refuse_ends(options)
        else:
            ending = _offset_limit(options, "ending", LatestOffsets())
            _check_batch_limits(starting, ending)
        chosen = _strategy(options)
        kafka = _consumer_configs(options)
        token = TokenOptions.parse(options, kafka)
        out = cls(
            kafka=kafka if token is None else DriverConfigs(kafka),
            token=token,
            topics=_topics(options["subscribe"]) if chosen == "subscribe" else (),
            pattern=_pattern(options["subscribepattern"]) if chosen == "subscribePattern" else None,
            partitions=_assigned(options["assign"]) if chosen == "assign" else (),
            starting=starting,
            ending=ending,
            fail_on_data_loss=option(options, "failOnDataLoss", boolean, True),
            include_headers=option(options, "includeHeaders", boolean, False),
            min_partitions=option(options, "minPartitions", positive, None),
            max_records_per_partition=option(options, "maxRecordsPerPartition", positive, None),
            max_offsets_per_trigger=option(options, "maxOffsetsPerTrigger", whole_number, None),
            min_offsets_per_trigger=option(options, "minOffsetsPerTrigger", whole_number, None),
            max_trigger_delay_ms=option(options, "maxTriggerDelay", duration_ms, 15 * 60_000),
            poll_timeout_ms=option(options, "kafkaConsumer.pollTimeoutMs", positive, 120_000),
            fetch_offset_retries=option(options, "fetchOffset.numRetries", positive, 3),
            fetch_offset_retry_interval_ms=option(options, "fetchOffset.retryIntervalMs", not_negative, 1000),
            max_tasks=option(options, "maxTasks", positive, None),
            rows_per_task=option(options, "rowsPerTask", positive, 250_000),
            bytes_per_task=option(options, "bytesPerTask", positive, 128 << 20),
            pin_start=option(options, "pinStart", boolean, True),
            idle_poll_ms=option(options, "idlePollMs", not_negative, 200),
            offset_commit_group=option(options, "offsetCommitGroup", filled, None),
            read_from=option(options, "readFrom", _place, "broker"),
            segments_path=option(options, "segments.path", _directories, ()),
        )
        if out.read_from != "broker" and not out.segments_path:
            raise IllegalArgumentError(
                f"readFrom={out.read_from} needs the option segments.path: the log directories of brokers, as the "
                "executors see them"
            )
        least, most = out.min_offsets_per_trigger, out.max_offsets_per_trigger
        if least is not None and most is not None and least > most:
            raise IllegalArgumentError(
                f"The value of minOffsetPerTrigger({least}) is higher than the maxOffsetsPerTrigger({most})."
            )
        if "groupidprefix" in options:
            logger.warning(_GROUP_WARNING, "groupIdPrefix")
        if not streaming:
            for name in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "offsetCommitGroup"):
                if name.lower() in options:
                    logger.warning("%s option ignored in batch queries", name)
        return out

    @property
    def read_committed(self) -> bool:
        """Whether only records of committed transactions are read (kafka.isolation.level)."""
        return self.kafka.get("isolation.level", "").lower() == "read_committed"

    @property
    def default_tasks(self) -> int:
        """Tasks of a read without maxTasks whose partitions are fewer than the processors here."""
        return os.cpu_count() or 1


def wants_headers(given: Mapping[str, str]) -> bool:
    """The option includeHeaders, which the schema depends on."""
    return option({name.lower(): value for name, value in given.items()}, "includeHeaders", boolean, False)


# --- what is read -----------------------------------------------------------------------------------------------------


def _strategy(options: Mapping[str, str]) -> str:
    chosen = [name for name in STRATEGIES if name.lower() in options]
    if not chosen:
        raise IllegalArgumentError(
            f"One of the following options must be specified for Kafka source: {_STRATEGY_TEXT}. "
            "See the docs for more details."
        )
    if len(chosen) > 1:
        raise IllegalArgumentError(
            f"Only one of the following options can be specified for Kafka source: {_STRATEGY_TEXT}. "
            "See the docs for more details."
        )
    return chosen[0]


def _topics(text: str) -> tuple[str, ...]:
    topics = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not topics:
        raise IllegalArgumentError(f"No topics to subscribe to as specified value for option 'subscribe' is '{text}'")
    return topics


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    if not text.strip().startswith("{"):
        raise IllegalArgumentError(f"No topicpartitions to assign as specified value for option 'assign' is '{text}'")
    return tuple(sorted(set(parse_partitions(text))))


def _pattern(text: str) -> str:
    pattern = text.strip()
    if not pattern:
        raise IllegalArgumentError(
            f"Pattern to subscribe is empty as specified value for option 'subscribePattern' is '{text}'"
        )
    topic_matcher(pattern)
    return pattern


def topic_matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a Java regular expression matches a whole topic name.

    IllegalArgumentError for what Java has and RE2 has not (look-around, back-references, possessive quantifiers): it
    would mean something else, or nothing.
    """
    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        raise IllegalArgumentError(
            f"The option 'subscribePattern' is '{pattern}', which is no regular expression that is supported here: "
            f"{error}. Look-around, back-references and possessive quantifiers of Java are not."
        ) from error
    return lambda name: compiled.fullmatch(name) is not None


def _place(text: str) -> str:
    if text.lower() not in READ_FROM:
        raise ValueError(f"must be one of {', '.join(READ_FROM)}")
    return text.lower()


def _directories(text: str) -> tuple[str, ...]:
    paths = tuple(path.strip().removeprefix("file://") for path in text.split(",") if path.strip())
    if not all(path.startswith("/") for path in paths):
        raise ValueError("must be absolute paths of directories, separated by commas")
    return paths


# --- offsets ----------------------------------------------------------------------------------------------------------


def _offset_limit(options: Mapping[str, str], side: str, default: OffsetLimit) -> OffsetLimit:
    """A time for all goes before a time for each, that before offsets."""
    strategy = options.get("startingoffsetsbytimestampstrategy", "error").strip().lower()
    if strategy not in ("error", "latest"):
        raise IllegalArgumentError(
            f"startingOffsetsByTimestampStrategy must be 'error' or 'latest', and is '{strategy}'"
        )
    time = options.get(f"{side}timestamp")
    if time is not None:
        try:
            return OffsetsAtTimestamp(int(time.strip()), strategy == "latest")
        except ValueError:
            raise IllegalArgumentError(f"Expected a single long value, got {time.strip()}") from None
    times = options.get(f"{side}offsetsbytimestamp")
    if times is not None:
        return OffsetsByTimestamp(parse_timestamps(times.strip()), strategy == "latest")
    text = options.get(f"{side}offsets")
    if text is None:
        return default
    word = text.strip().lower()
    if word == "latest":
        return LatestOffsets()
    if word == "earliest":
        return EarliestOffsets()
    return SpecificOffsets(parse_offsets(text.strip()))


def _refuse_ends(options: Mapping[str, str]) -> None:
    if "endingoffsets" in options:
        raise IllegalArgumentError("ending offset not valid in streaming queries")
    if "endingoffsetsbytimestamp" in options or "endingtimestamp" in options:
        raise IllegalArgumentError("ending timestamp not valid in streaming queries")


def _check_batch_limits(starting: OffsetLimit, ending: OffsetLimit) -> None:
    if isinstance(starting, LatestOffsets):
        raise IllegalArgumentError("starting offset can't be latest for batch queries on Kafka")
    if isinstance(ending, EarliestOffsets):
        raise IllegalArgumentError("ending offset can't be earliest for batch queries on Kafka")
    if isinstance(starting, SpecificOffsets):
        for partition, offset in starting.offsets.items():
            if offset == LATEST:
                raise IllegalArgumentError(
                    f"startingOffsets for {partition} can't be latest for batch queries on Kafka"
                )
    if isinstance(ending, SpecificOffsets):
        for partition, offset in ending.offsets.items():
            if offset == EARLIEST:
                raise IllegalArgumentError(
                    f"ending offset for {partition} can't be earliest for batch queries on Kafka"
                )
    if isinstance(starting, SpecificOffsets) and isinstance(ending, SpecificOffsets):
        _check_order("offset", starting.offsets, ending.offsets)
    if isinstance(starting, OffsetsByTimestamp) and isinstance(ending, OffsetsByTimestamp):
        _check_order("timestamp", starting.timestamps, ending.timestamps)


def _check_order(kind: str, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> None:
    if start.keys() != end.keys():
        raise IllegalArgumentError(
            f"The specified start {kind} and end {kind} should have the same topic-partitions. "
            f"Start: [{names(start)}] End: [{names(end)}]"
        )
    for partition, first in start.items():
        if first > end[partition] >= 0:
            raise IllegalArgumentError(
                f"The specified start {kind} {first} is greater than the end {kind} {end[partition]} for topic "
                f"{partition.topic} partition {partition.partition}."
            )


# --- values -----------------------------------------------------------------------------------------------------------


def _consumer_configs(options: Mapping[str, str]) -> KafkaConfigs:
    configs = kafka_configs(options, CONSUMER, _REFUSED, "Kafka consumer")
    if configs.pop("group.id", None) is not None:
        logger.warning(_GROUP_WARNING, "kafka.group.id")
    ClientConfig(CONSUMER, configs)
    return configs
