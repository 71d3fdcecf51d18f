"""Options and columns of the sink, with the names, precedence and texts of Spark's own."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from kafkapy_spark.sink_options import SinkOptions

from kafkapy.errors import ConfigError, IllegalArgumentError

SERVERS = {"kafka.bootstrap.servers": "h:9092"}
ONCE = {"delivery": "exactly-once"}


def parsed(options: dict[str, str], streaming: bool = False) -> SinkOptions:
    return SinkOptions.parse({**SERVERS, **options}, streaming=streaming)


def test_defaults() -> None:
    assert parsed({}, streaming=True) == SinkOptions(kafka={"bootstrap.servers": "h:9092"})
    assert parsed({}) == SinkOptions(kafka={"bootstrap.servers": "h:9092"}, on_known="skip")
    assert (parsed({}).topic, parsed({}).delivery, parsed({}).timestamp_column) == (None, "at-least-once", True)


def test_names_are_case_insensitive() -> None:
    options = parsed(
        {
            "TOPIC": "t",
            "Kafka.Compression.Type": "zstd",
            "kafka.linger_ms": "7",
            "DELIVERY": "Exactly-Once",
            "transactionalidprefix": "p",
            "onlosttransaction": "REPLAY",
            "ignoresinkstate": "True",
            "checkpointlocation": "/c",
            "timestampcolumn": "false",
        },
        streaming=True,
    )
    assert options == SinkOptions(
        kafka={"bootstrap.servers": "h:9092", "compression.type": "zstd", "linger.ms": "7"},
        topic="t",
        delivery="exactly-once",
        transactional_id_prefix="p",
        on_lost_transaction="replay",
        on_known="write",
        checkpoint_location="/c",
        timestamp_column=False,
    )


def test_a_batch_write_has_an_application_and_a_version() -> None:
    options = parsed({**ONCE, "txnAppId": "nightly", "txnVersion": "12"})
    assert (options.txn_app_id, options.txn_version) == ("nightly", 12)


REFUSED: list[tuple[bool, dict[str, str], str]] = [
    (False, {"kafka.bootstrap.servers": ""}, "Option 'kafka.bootstrap.servers' must be specified for configuring"),
    (False, {"kafka.key.serializer": "x"}, "Kafka option 'key.serializer' is not supported as keys are serialized"),
    (True, {"kafka.value.serializer": "x"}, "Kafka option 'value.serializer' is not supported as value are serialized"),
    (True, {"kafka.value_serializer": "x"}, "Kafka option 'value.serializer' is not supported"),
    (True, {"kafka.interceptor.classes": "x"}, "Kafka option 'interceptor.classes' is not supported"),
    (False, {"kafka.transactional.id": "x"}, "Kafka option 'transactional.id' is not supported. Use the options"),
    (True, {"delivery": "at-most-once"}, "delivery must be at-least-once or exactly-once, and is 'at-most-once'"),
    (True, {**ONCE, "onLostTransaction": "x"}, "onLostTransaction must be fail or replay"),
    (True, {**ONCE, "ignoreSinkState": "x"}, "ignoreSinkState must be false or true or skip"),
    (False, {**ONCE, "txnAppId": "a"}, "txnAppId and txnVersion go together"),
    (False, {**ONCE, "txnVersion": "1"}, "txnAppId and txnVersion go together"),
    (False, {**ONCE, "txnAppId": "a", "txnVersion": "x"}, "txnVersion must be a whole number, and is 'x'"),
    (True, {**ONCE, "txnAppId": "a", "txnVersion": "1"}, "txnAppId and txnVersion are not supported in streaming"),
    (True, {"transactionalIdPrefix": "p"}, "'transactionalIdPrefix' needs the option delivery to be exactly-once"),
    (False, {"txnAppId": "a", "txnVersion": "1"}, "'txnAppId' needs the option delivery to be exactly-once"),
    (True, {"ignoreSinkState": "true"}, "'ignoreSinkState' needs the option delivery to be exactly-once"),
    (True, {"onLostTransaction": "fail"}, "'onLostTransaction' needs the option delivery to be exactly-once"),
]


@pytest.mark.parametrize(("streaming", "options", "message"), REFUSED)
def test_what_is_refused(streaming: bool, options: dict[str, str], message: str) -> None:
    with pytest.raises(IllegalArgumentError) as raised:
        parsed(options, streaming)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kafka.compression.type": "lzma"}, "lzma"),
        ({"kafka.acks": "1", "kafka.enable.idempotence": "true"}, "acks"),
    ],
)
def test_values_that_a_producer_does_not_take(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parsed(options)


def test_a_key_that_is_none_of_a_producer_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "kafkapy.spark"):
        options = parsed({"kafka.auto.offset.reset": "latest"})
    assert options.kafka == {"bootstrap.servers": "h:9092"}
    assert "The configuration 'auto.offset.reset' is not a known config of the Kafka producer" in caplog.text


# --- columns ----------------------------------------------------------------------------------------------------------


HEADERS = "array<struct<key:string,value:binary>>"


def check(columns: str, **options: Any) -> None:
    """Columns as "name type; ...": simple types, HEADERS, map."""
    types = pytest.importorskip("pyspark.sql.types")
    from kafkapy_spark.sink_schema import HEADERS as ARRAY
    from kafkapy_spark.sink_schema import check_columns

    schema = types.StructType()
    for column in columns.split("; "):
        name, kind = column.split(" ", 1)
        if kind == HEADERS:
            schema = schema.add(name, ARRAY)
        elif kind == "map":
            schema = schema.add(name, types.MapType(types.StringType(), types.BinaryType()))
        else:
            schema = schema.add(name, {"int": "integer", "bigint": "long"}.get(kind, kind))
    check_columns(schema, SinkOptions(kafka={}, **options))


@pytest.mark.parametrize(
    "columns",
    [
        "topic string; value string",
        "value binary; key string; topic string; partition int; timestamp timestamp",
        f"key binary; value string; headers {HEADERS}; topic string; other map",
        "topic string; value binary; Partition string; VALUE int",
    ],
)
def test_columns_of_records(columns: str) -> None:
    check(columns)


def test_an_option_goes_before_the_column_topic() -> None:
    check("value string; topic int", topic="t")
    check("value string", topic="t")


def test_a_column_timestamp_may_be_left_alone() -> None:
    check("value string; timestamp string", topic="t", timestamp_column=False)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            "value string",
            "topic option required when no 'topic' attribute is present. Use the topic option for setting a topic.",
        ),
        ("topic int; value string", "topic attribute unsupported type int. topic must be a(n) string"),
        ("topic string; key string", "Required attribute 'value' not found"),
        ("topic string; value bigint", "value attribute unsupported type bigint. value must be a(n) string or binary"),
        ("topic string; key int", "key attribute unsupported type int. key must be a(n) string or binary"),
        (
            "topic string; value string; headers map",
            "headers attribute unsupported type map<string,binary>. headers must be a(n) "
            "array<struct<key:string,value:binary>>",
        ),
        (
            "topic string; value string; partition bigint",
            "partition attribute unsupported type bigint. partition must be a(n) int",
        ),
        (
            "topic string; value string; timestamp bigint",
            "timestamp attribute unsupported type bigint. timestamp must be a(n) timestamp",
        ),
    ],
)
def test_columns_that_are_none_of_records(columns: str, message: str) -> None:
    with pytest.raises(IllegalArgumentError) as raised:
        check(columns)
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("name", "meant"),
    [("topics", "topic"), ("txnApId", "txnAppId"), ("kafka.compresion.type", "kafka.compression.type")],
)
def test_a_misspelt_option_is_refused_with_the_nearest_name(name: str, meant: str) -> None:
    with pytest.raises(IllegalArgumentError, match=f"There is no option '{name}'; did you mean {meant}"):
        parsed({name: "x"})


def test_an_option_of_the_source_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    parsed({"subscribe": "t", "startingOffsets": "earliest", "path": "ignored"})
    assert "Option 'startingOffsets' does not apply to a write, and is ignored" in caplog.text
    assert "path" not in caplog.text
