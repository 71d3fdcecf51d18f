"""The source's options: names, defaults, precedence and refusals are those of Spark's own Kafka source."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest
from kafkapy_spark import option_names
from kafkapy_spark.offsets import (
    EarliestOffsets,
    LatestOffsets,
    OffsetsAtTimestamp,
    OffsetsByTimestamp,
    SpecificOffsets,
)
from kafkapy_spark.options import SourceOptions, topic_matcher, wants_headers

from kafkapy.errors import ConfigError, IllegalArgumentError
from kafkapy.types import TopicPartition

SERVERS = {"kafka.bootstrap.servers": "broker:9092"}
GIVEN = SERVERS | {"subscribe": "t"}
T0 = TopicPartition("t", 0)


def batch(**options: str) -> SourceOptions:
    return SourceOptions.parse(GIVEN | options, streaming=False)


def stream(**options: str) -> SourceOptions:
    return SourceOptions.parse(GIVEN | options, streaming=True)


def test_defaults() -> None:
    options = batch()
    assert options.starting == EarliestOffsets() and options.ending == LatestOffsets()
    assert stream().starting == LatestOffsets()
    assert options.fail_on_data_loss and not options.include_headers and not options.read_committed
    assert options.min_partitions is None and options.max_records_per_partition is None
    assert options.max_offsets_per_trigger is None and options.min_offsets_per_trigger is None
    assert options.max_trigger_delay_ms == 900_000 and options.poll_timeout_ms == 120_000
    assert (options.fetch_offset_retries, options.fetch_offset_retry_interval_ms) == (3, 1000)
    assert options.pin_start and options.max_tasks is None
    assert options.kafka == {"bootstrap.servers": "broker:9092"}


@pytest.mark.parametrize("name", ["startingoffsets", "STARTINGOFFSETS", "startingOffsets"])
def test_names_are_case_insensitive(name: str) -> None:
    """Spark hands options over in lower case, and users write them as they like (acceptance 6)."""
    assert stream(**{name: "earliest"}).starting == EarliestOffsets()
    given = {"KAFKA.Bootstrap.Servers": "b:1", "Subscribe": " a , b,,a ", "Kafka.Isolation.Level": "READ_COMMITTED"}
    options = SourceOptions.parse(given, streaming=False)
    assert options.topics == ("a", "b") and options.read_committed


@pytest.mark.parametrize(
    ("options", "starting"),
    [
        ({"startingOffsets": " Earliest "}, EarliestOffsets()),
        ({"startingOffsets": "LATEST"}, LatestOffsets()),
        ({"startingOffsets": '{"t":{"0":23,"1":-1,"2":-2}}'},
         SpecificOffsets({T0: 23, TopicPartition("t", 1): -1, TopicPartition("t", 2): -2})),
        ({"startingOffsetsByTimestamp": '{"t":{"0":99}}', "startingOffsets": "latest"},
         OffsetsByTimestamp({T0: 99}, False)),
        ({"startingTimestamp": "7", "startingOffsetsByTimestamp": '{"t":{"0":99}}', "startingOffsets": "latest"},
         OffsetsAtTimestamp(7, False)),
        ({"startingTimestamp": "7", "startingOffsetsByTimestampStrategy": "Latest"}, OffsetsAtTimestamp(7, True)),
    ],
)  # fmt: skip
def test_where_to_start(options: dict[str, str], starting: object) -> None:
    """A time for all goes before one for each partition, that before offsets."""
    assert stream(**options).starting == starting


def test_where_to_end() -> None:
    assert batch(endingOffsets='{"t":{"0":-1}}').ending == SpecificOffsets({T0: -1})
    by_time = batch(endingOffsetsByTimestamp='{"t":{"0":9}}', endingOffsets="x").ending
    assert by_time == OffsetsByTimestamp({T0: 9}, False)
    assert batch(endingTimestamp="5").ending == OffsetsAtTimestamp(5, False)


@pytest.mark.parametrize(
    ("text", "ms"),
    [("15m", 900_000), ("500", 500), ("2 s", 2000), ("100ms", 100), ("1h", 3_600_000), ("1d", 86_400_000)],
)
def test_durations(text: str, ms: int) -> None:
    assert stream(maxTriggerDelay=text).max_trigger_delay_ms == ms


def test_topics_are_chosen_in_one_of_three_ways() -> None:
    assert batch().topics == ("t",)
    partitions = SourceOptions.parse(SERVERS | {"assign": '{"t":[1,0],"s":[3]}'}, streaming=False).partitions
    assert partitions == (TopicPartition("s", 3), T0, TopicPartition("t", 1))
    assert SourceOptions.parse(SERVERS | {"subscribePattern": " t-.* "}, streaming=False).pattern == "t-.*"


REFUSED = [
    (False, {"kafka.bootstrap.servers": ""}, "Option 'kafka.bootstrap.servers' must be specified"),
    (False, {"assign": '{"t":[0]}'}, "Only one of the following options can be specified for Kafka source: "),
    (False, {"subscribe": " , "}, "No topics to subscribe to as specified value for option 'subscribe' is ' , '"),
    (False, {"kafka.auto.offset.reset": "latest"}, "Kafka option 'auto.offset.reset' is not supported"),
    (False, {"kafka.key.deserializer": "x"}, "Kafka option 'key.deserializer' is not supported"),
    (False, {"kafka.VALUE.deserializer": "x"}, "Kafka option 'value.deserializer' is not supported"),
    (False, {"kafka.enable.auto.commit": "true"}, "Kafka option 'enable.auto.commit' is not supported"),
    (False, {"kafka.interceptor.classes": "x"}, "Kafka option 'interceptor.classes' is not supported"),
    (False, {"readFrom": "segments"}, "readFrom=segments needs the option segments.path"),
    (True, {"readFrom": "files"}, "readFrom must be one of broker, segments, auto, and is 'files'"),
    (False, {"segments.path": "logs,/b"}, "segments.path must be absolute paths of directories"),
    (False, {"segments.path": "s3://bucket/logs"}, "segments.path must be absolute paths of directories"),
    (True, {"offsetcommitgroup": " "}, "offsetCommitGroup must not be empty"),
    (False, {"startingOffsets": "latest"}, "starting offset can't be latest for batch queries"),
    (False, {"startingOffsets": '{"t":{"0":-1}}'}, "startingOffsets for t-0 can't be latest for batch queries"),
    (False, {"endingOffsets": "earliest"}, "ending offset can't be earliest for batch queries"),
    (False, {"endingOffsets": '{"t":{"0":-2}}'}, "ending offset for t-0 can't be earliest for batch queries"),
    (False, {"startingOffsets": '{"t":{"0":5}}', "endingOffsets": '{"t":{"0":4}}'},
     "The specified start offset 5 is greater than the end offset 4 for topic t partition 0."),
    (False, {"startingOffsets": '{"t":{"0":5}}', "endingOffsets": '{"t":{"1":9}}'},
     "The specified start offset and end offset should have the same topic-partitions. Start: [t-0] End: [t-1]"),
    (False, {"startingOffsetsByTimestamp": '{"t":{"0":5}}', "endingOffsetsByTimestamp": '{"t":{"0":4}}'},
     "The specified start timestamp 5 is greater than the end timestamp 4 for topic t partition 0."),
    (False, {"startingOffsets": "first"}, 'Expected e.g. {"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}, got first'),
    (False, {"startingOffsets": '{"t":{"0":true}}'}, "Expected e.g."),
    (False, {"startingOffsets": '{"t":[0]}'}, "Expected e.g."),
    (False, {"startingTimestamp": "now"}, "Expected a single long value, got now"),
    (False, {"startingOffsetsByTimestamp": "{"}, 'Expected e.g. {"topicA": {"0": 123456789'),
    (False, {"startingOffsetsByTimestampStrategy": "skip"}, "must be 'error' or 'latest', and is 'skip'"),
    (False, {"minPartitions": "0"}, "minPartitions must be positive"),
    (False, {"maxRecordsPerPartition": "-1"}, "maxRecordsPerPartition must be positive"),
    (False, {"minPartitions": "two"}, "minPartitions must be a whole number, and is 'two'"),
    (False, {"failOnDataLoss": "yes"}, "failOnDataLoss must be true or false, and is 'yes'"),
    (False, {"maxTasks": "0"}, "maxTasks must be positive"),
    (True, {"endingOffsets": "latest"}, "ending offset not valid in streaming queries"),
    (True, {"endingTimestamp": "1"}, "ending timestamp not valid in streaming queries"),
    (True, {"endingOffsetsByTimestamp": "{}"}, "ending timestamp not valid in streaming queries"),
    (True, {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"},
     "The value of minOffsetPerTrigger(9) is higher than the maxOffsetsPerTrigger(8)."),
    (True, {"maxTriggerDelay": "soon"}, "maxTriggerDelay must be a time such as"),
]  # fmt: skip


@pytest.mark.parametrize(("streaming", "options", "message"), REFUSED)
def test_what_is_refused(streaming: bool, options: dict[str, str], message: str) -> None:
    """Acceptance 5 and 7: what Spark's own source refuses is refused, with as clear a text."""
    with pytest.raises(IllegalArgumentError) as raised:
        SourceOptions.parse(GIVEN | options, streaming=streaming)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "One of the following options must be specified for Kafka source: subscribe, subscribePattern, assign"),
        ({"assign": "t"}, "No topicpartitions to assign as specified value for option 'assign' is 't'"),
        ({"assign": '{"t":["0"]}'}, 'Expected e.g. {"topicA":[0,1],"topicB":[0,1]}, got {"t":["0"]}'),
        ({"subscribePattern": "  "}, "Pattern to subscribe is empty"),
        ({"subscribePattern": "a(?=b)"}, "Look-around, back-references"),
        ({"subscribePattern": "(a)\\1"}, "Look-around, back-references"),
    ],
)
def test_refused_choices_of_topics(options: dict[str, str], message: str) -> None:
    with pytest.raises(IllegalArgumentError) as raised:
        SourceOptions.parse(SERVERS | options, streaming=False)
    assert message in str(raised.value)


def test_patterns_match_whole_names() -> None:
    matches = topic_matcher("t-\\d+|orders")
    assert [name for name in ("t-1", "t-", "xt-1", "orders", "orders2") if matches(name)] == ["t-1", "orders"]


@pytest.mark.parametrize(
    "name", ["maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "offsetCommitGroup"]
)
def test_options_of_streams_are_ignored_by_batches(name: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "kafkapy.spark"):
        batch(**{name: "5"})
    assert f"{name} option ignored in batch queries" in caplog.text


@pytest.mark.parametrize("name", ["kafka.group.id", "groupIdPrefix"])
def test_a_group_is_warned_about(name: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "kafkapy.spark"):
        assert "group.id" not in batch(**{name: "g"}).kafka
    assert f"'{name}' has been set on this query. It is ignored" in caplog.text


def test_headers_are_wanted_when_asked_for() -> None:
    assert wants_headers({"IncludeHeaders": "TRUE"}) and not wants_headers({})


def test_kafka_keys_that_are_not_known_are_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    """As by Kafka's own clients. A known one has its dotted name, and a value that it can have."""
    with caplog.at_level(logging.WARNING, "kafkapy.spark"):
        kafka = batch(**{"kafka.no.such.key": "1", "kafka.fetch_min_bytes": "7", "kafka.ssl.protocol": "TLSv1.3"}).kafka
    assert kafka == {"bootstrap.servers": "broker:9092", "fetch.min.bytes": "7", "ssl.protocol": "TLSv1.3"}
    assert "The configuration 'no.such.key' is not a known config of the Kafka consumer" in caplog.text
    with pytest.raises(ConfigError, match="Invalid value 'many' for configuration fetch.min.bytes"):
        batch(**{"kafka.fetch.min.bytes": "many"})


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("startingOfsets", "startingOffsets"),
        ("STARTINGOFFSET", "startingOffsets"),
        ("maxOffsetPerTrigger", "maxOffsetsPerTrigger"),
        ("failOnDatLoss", "failOnDataLoss"),
        ("includeHeader", "includeHeaders"),
        ("minPartition", "minPartitions"),
        ("kafkaConsumer.pollTimeout", "kafkaConsumer.pollTimeoutMs"),
        ("segment.path", "segments.path"),
        ("kafka.isolation.levl", "kafka.isolation.level"),
        ("kafka.fetch.min.byte", "kafka.fetch.min.bytes"),
        ("bootstrap.servers", "kafka.bootstrap.servers"),
    ],
)
def test_a_misspelt_option_is_refused_with_the_nearest_name(name: str, meant: str) -> None:
    for parse in (batch, stream):
        with pytest.raises(IllegalArgumentError, match=f"There is no option '{name}'.*did you mean {meant}"):
            parse(**{name: "1"})


def test_a_misspelt_server_list_is_named() -> None:
    with pytest.raises(
        IllegalArgumentError, match=r"'kafka\.bootstap\.servers'.*did you mean kafka\.bootstrap\.servers"
    ):
        SourceOptions.parse({"kafka.bootstap.servers": "b:1", "subscribe": "t"}, streaming=False)


@pytest.mark.parametrize("name", ["topic", "delivery", "transactionalIdPrefix"])
def test_an_option_of_the_sink_is_a_warning(name: str, caplog: pytest.LogCaptureFixture) -> None:
    batch(**{name: "x"})
    assert f"Option '{name}' does not apply to a read, and is ignored" in caplog.text


def test_what_is_like_no_option_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    batch(**{"inferSchema": "true", "kafka.acks": "all", "kafka.no.such.thing": "1"})
    assert "Option 'inferSchema' is not known to a read, and is ignored" in caplog.text
    assert "The configuration 'acks' is not a known config of the Kafka consumer" in caplog.text
    assert "The configuration 'no.such.thing' is not a known config of the Kafka consumer" in caplog.text


def test_every_option_that_is_read_is_known(caplog: pytest.LogCaptureFixture) -> None:
    """An option that is taken and not in the table of names would be warned about."""
    source = (Path(option_names.__file__).parent / "options.py").read_text()
    sink = (Path(option_names.__file__).parent / "sink_options.py").read_text()
    for text, known in ((source, option_names.SOURCE), (sink, option_names.SINK)):
        read = set(re.findall(r'option\(options, "([^"]+)"', text))
        assert len(read) > 8
        assert read <= set(known)
