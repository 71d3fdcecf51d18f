"""format("kafkapy") beside Spark's own connector, format("kafka"): the same rows, refusals, schema and checkpoints.

The connector's jars come from Maven Central (perf/peers/spark_kafka.py): make interop-spark.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkapy import KafkaAdminClient, KafkaProducer
from kafkapy.types import TopicPartition

pytestmark = [
    pytest.mark.spark,
    pytest.mark.java,
    pytest.mark.skipif(
        not os.environ.get("KAFKAPY_INTEROP_JAVA"), reason="Spark's own connector runs with: make interop-spark"
    ),
]

FORMS = ("kafka", "kafkapy")
TRIES = {"fetchOffset.numRetries": "1"}


@pytest.fixture(scope="module", autouse=True)
def _connector(spark: Any) -> None:
    if "spark-sql-kafka" not in spark.conf.get("spark.jars", ""):
        pytest.skip("Maven Central has not given Spark's own Kafka connector")


@pytest.fixture(scope="module")
def orders(broker: Any, producer: KafkaProducer) -> Iterator[tuple[str, str]]:
    """Two topics: ten records in two partitions, at 1000 to 1009 ms; ten records of which six have been deleted."""
    full, cut = (f"{kind}-{uuid.uuid4().hex[:8]}" for kind in ("full", "cut"))
    broker.create_topic(full, 2)
    broker.create_topic(cut, 1)
    for number in range(10):
        value = str(number).encode()
        headers = [("h", value), ("n", None)] if number % 2 else []
        key = None if number < 2 else value
        producer.send(full, value, key=key, headers=headers, partition=number % 2, timestamp_ms=1000 + number)
        producer.send(cut, value, timestamp_ms=1000 + number)
    producer.flush()
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.delete_records({TopicPartition(cut, 0): 6})
    yield full, cut


class Outcome:
    """The values that a read brings, in order, or all that is said of its error."""

    def __init__(self, read: Callable[[], list[Any]]) -> None:
        self.values: list[str] | None = None
        self.error = ""
        try:
            self.values = sorted(bytes(row.value).decode() for row in read())
        except Exception as error:
            cause = getattr(error, "java_exception", None)
            self.error = f"{error}\n{cause.toString() if cause is not None else ''}"

    def __repr__(self) -> str:
        return repr(self.values) if self.values is not None else self.error


@pytest.fixture
def outcome(spark: Any, broker: Any, orders: tuple[str, str], tmp_path: Path) -> Callable[..., Outcome]:
    """outcome(form, streaming, options): FULL and CUT in texts of options stand for the topics."""
    full, cut = orders

    def run(form: str, streaming: bool, options: dict[str, str]) -> Outcome:
        given = {name: text.replace("FULL", full).replace("CUT", cut) for name, text in options.items()}
        given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "fetchOffset.retryIntervalMs": "10"} | given
        if not streaming:
            return Outcome(lambda: spark.read.format(form).options(**given).load().select("value").collect())
        name = f"q{uuid.uuid4().hex}"

        def stream() -> list[Any]:
            query = (
                spark.readStream.format(form)
                .options(**given)
                .load()
                .select("value")
                .writeStream.format("memory")
                .queryName(name)
                .option("checkpointLocation", str(tmp_path / name))
                .trigger(availableNow=True)
                .start()
            )
            assert query.awaitTermination(120)
            rows: list[Any] = spark.table(name).collect()
            return rows

        return Outcome(stream)

    return run


FULL = {"subscribe": "FULL"}
CUT = {"subscribe": "CUT"}
EACH = '{"FULL":{"0":%s,"1":%s}}'
BATCH, STREAM = False, True
EARLIEST = {"startingOffsets": "earliest"}

SAME_ROWS = [
    (BATCH, FULL, 10),
    (BATCH, {"subscribe": " FULL , CUT "}, 14),
    (BATCH, {"subscribePattern": "FULL|nothing.*"}, 10),
    (BATCH, {"subscribePattern": "nothing.*"}, 0),
    (BATCH, {"assign": '{"FULL":[1]}'}, 5),
    (BATCH, FULL | {"startingOffsets": " Earliest ", "endingOffsets": "LATEST"}, 10),
    (BATCH, FULL | {"startingOffsets": EACH % (1, 2)}, 7),
    (BATCH, FULL | {"startingOffsets": EACH % (-2, 2), "endingOffsets": EACH % (-1, 4)}, 7),
    (BATCH, FULL | {"startingTimestamp": "1004"}, 6),
    (BATCH, FULL | {"startingTimestamp": "1004", "endingTimestamp": "1006"}, 2),
    (BATCH, FULL | {"startingTimestamp": "9999", "startingOffsetsByTimestampStrategy": "LATEST"}, 0),
    (BATCH, FULL | {"endingTimestamp": "9999"}, 10),
    (BATCH, FULL | {"startingOffsetsByTimestamp": EACH % (1004, 1008), "startingOffsets": "latest"}, 4),
    (BATCH, FULL | {"startingOffsetsByTimestamp": EACH % (1004, 1004), "startingTimestamp": "1008"}, 2),
    (BATCH, FULL | {"endingOffsetsByTimestamp": EACH % (1004, 9999)}, 7),
    (BATCH, FULL | {"minPartitions": "5", "maxRecordsPerPartition": "2"}, 10),
    (BATCH, FULL | {"kafka.isolation.level": "read_committed", "kafka.group.id": "g", "includeHeaders": "true"}, 10),
    (BATCH, FULL | {"kafka.no.such.key": "1", "groupIdPrefix": "g", "maxOffsetsPerTrigger": "5"}, 10),
    (BATCH, CUT, 4),
    (BATCH, CUT | {"startingOffsets": '{"CUT":{"0":2}}', "failOnDataLoss": "false"}, 4),
    (BATCH, FULL | {"endingOffsets": EACH % (20, 5), "failOnDataLoss": "false", "kafkaConsumer.pollTimeoutMs": "3000"},
     10),
    (STREAM, FULL, 0),
    (STREAM, FULL | EARLIEST, 10),
    (STREAM, FULL | EARLIEST | {"maxOffsetsPerTrigger": "3"}, 10),
    (STREAM, FULL | {"startingTimestamp": "1004"}, 6),
    (STREAM, FULL | {"startingTimestamp": "9999", "startingOffsetsByTimestampStrategy": "latest"}, 0),
    (STREAM, FULL | {"startingOffsets": EACH % (-1, 0)}, 5),
    (STREAM, FULL | {"startingOffsets": EACH % (20, 0), "failOnDataLoss": "false"}, 5),
    (STREAM, CUT | {"startingOffsets": '{"CUT":{"0":2}}', "failOnDataLoss": "false"}, 4),
]  # fmt: skip


@pytest.mark.parametrize(("streaming", "options", "count"), SAME_ROWS)
def test_the_same_rows(streaming: bool, options: dict[str, str], count: int, outcome: Callable[..., Outcome]) -> None:
    """Acceptance 5 and 15."""
    official, ours = (outcome(form, streaming, options) for form in FORMS)
    assert official.values is not None and len(official.values) == count, official
    assert ours.values == official.values, ours


SAME_ERRORS = [
    (BATCH, {}, "One of the following options must be specified for Kafka source: "),
    (BATCH, FULL | {"assign": '{"FULL":[0]}'}, "Only one of the following options can be specified for Kafka source: "),
    (BATCH, {"subscribe": " , "}, "No topics to subscribe to as specified value for option 'subscribe' is ' , '"),
    (BATCH, {"subscribePattern": " "}, "Pattern to subscribe is empty as specified value for option "),
    (BATCH, {"assign": "t"}, "No topicpartitions to assign as specified value for option 'assign' is 't'"),
    (BATCH, {"assign": '{"t":["0"]}'}, 'Expected e.g. {"topicA":[0,1],"topicB":[0,1]}, got {"t":["0"]}'),
    (BATCH, TRIES | {"subscribe": "nowhere"}, "This server does not host "),
    (BATCH, FULL | {"kafka.auto.offset.reset": "latest"}, "Kafka option 'auto.offset.reset' is not supported."),
    (BATCH, FULL | {"kafka.key.deserializer": "x"}, "Kafka option 'key.deserializer' is not supported as keys are "
     "deserialized as byte arrays with ByteArrayDeserializer. Use DataFrame operations to explicitly deserialize the "
     "keys."),
    (BATCH, FULL | {"kafka.value.deserializer": "x"}, "Kafka option 'value.deserializer' is not supported as values "
     "are deserialized as byte arrays with ByteArrayDeserializer. Use DataFrame operations to explicitly deserialize "
     "the values."),
    (BATCH, FULL | {"kafka.enable.auto.commit": "true"}, "Kafka option 'enable.auto.commit' is not supported"),
    (BATCH, FULL | {"kafka.interceptor.classes": "x"}, "Kafka option 'interceptor.classes' is not supported"),
    (BATCH, FULL | {"kafka.fetch.min.bytes": "x"}, "for configuration fetch.min.bytes"),
    (BATCH, FULL | {"kafka.isolation.level": "x"}, "for configuration isolation.level"),
    (BATCH, FULL | {"startingOffsets": "latest"}, "starting offset can't be latest for batch queries on Kafka"),
    (BATCH, FULL | {"startingOffsets": '{"t":{"0":-1}}'},
     "startingOffsets for t-0 can't be latest for batch queries on Kafka"),
    (BATCH, FULL | {"startingOffsets": '{"FULL":{"0":1}}'},
     "Partitions specified for Kafka start offsets don't match what are assigned. "),
    (BATCH, FULL | {"startingOffsets": EACH % (3, 3), "endingOffsets": EACH % (2, 4)},
     "The specified start offset 3 is greater than the end offset 2 for topic "),
    (BATCH, FULL | {"startingOffsets": EACH % (3, 3), "endingOffsets": '{"FULL":{"1":4}}'},
     "The specified start offset and end offset should have the same topic-partitions."),
    (BATCH, FULL | {"startingOffsets": EACH % (20, 3), "failOnDataLoss": "false"},
     "The resolved start offset 20 is greater than the resolved end offset 5 for topic "),
    (BATCH, FULL | {"endingOffsets": "earliest"}, "ending offset can't be earliest for batch queries on Kafka"),
    (BATCH, FULL | {"endingOffsets": '{"t":{"0":-2}}'},
     "ending offset for t-0 can't be earliest for batch queries on Kafka"),
    (BATCH, FULL | {"startingOffsets": "first"},
     'Expected e.g. {"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}, got first'),
    (BATCH, FULL | {"startingTimestamp": "now"}, "Expected a single long value, got now"),
    (BATCH, FULL | {"startingTimestamp": "9999"}, "No offset matched from request of topic-partition "),
    (BATCH, FULL | {"startingOffsetsByTimestamp": '{"FULL":{"0":1004}}'},
     "Partitions specified for Kafka timestamp based start offsets don't match what are assigned. "),
    (BATCH, FULL | {"startingOffsetsByTimestamp": EACH % (1008, 1004), "endingOffsetsByTimestamp": EACH % (1004, 1009)},
     "The specified start timestamp 1008 is greater than the end timestamp 1004 for topic "),
    (BATCH, FULL | {"startingOffsetsByTimestamp": "{"}, 'Expected e.g. {"topicA": {"0": 123456789, "1": 123456789}'),
    (BATCH, FULL | {"minPartitions": "0"}, "minPartitions must be positive"),
    (BATCH, CUT | {"startingOffsets": '{"CUT":{"0":2}}'}, ""),
    (BATCH, FULL | {"endingOffsets": EACH % (20, 5), "kafkaConsumer.pollTimeoutMs": "3000"}, ""),
    (BATCH, FULL | {"minPartitions": "two"}, ""),
    (BATCH, FULL | {"maxRecordsPerPartition": "-1"}, "must be positive"),
    (BATCH, FULL | {"failOnDataLoss": "yes"}, ""),
    (BATCH, FULL | {"includeHeaders": "1"}, ""),
    (BATCH, FULL | {"startingTimestamp": "9999", "startingOffsetsByTimestampStrategy": "skip"}, ""),
    (BATCH, FULL | {"kafkaConsumer.pollTimeoutMs": "x"}, ""),
    (BATCH, FULL | {"fetchOffset.numRetries": "0"}, ""),
    (BATCH, FULL | {"fetchOffset.retryIntervalMs": "x"}, ""),
    (BATCH, FULL | {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"},
     "The value of minOffsetPerTrigger(9) is higher than the maxOffsetsPerTrigger(8)."),
    (STREAM, FULL | {"endingOffsets": "latest"}, "ending offset not valid in streaming queries"),
    (STREAM, FULL | {"endingOffsetsByTimestamp": "{}"}, "ending timestamp not valid in streaming queries"),
    (STREAM, FULL | {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"},
     "The value of minOffsetPerTrigger(9) is higher than the maxOffsetsPerTrigger(8)."),
    (STREAM, FULL | {"maxOffsetsPerTrigger": "x"}, ""),
    (STREAM, FULL | {"maxTriggerDelay": "soon"}, ""),
    (STREAM, FULL | {"startingTimestamp": "9999"}, "No offset matched from request of topic-partition "),
    (STREAM, FULL | {"startingOffsets": '{"FULL":{"0":1}}'}, "Specified: "),  # its words for batches are others
    (STREAM, FULL | {"startingOffsets": EACH % (20, 0)}, "Some data may have been "),
    (STREAM, CUT | {"startingOffsets": '{"CUT":{"0":2}}'}, "Some data may have been lost because they are not "),
]  # fmt: skip


@pytest.mark.parametrize(("streaming", "options", "words"), SAME_ERRORS)
def test_the_same_errors(streaming: bool, options: dict[str, str], words: str, outcome: Callable[..., Outcome]) -> None:
    """Acceptance 5, 7 and 15: what is refused, and in which words."""
    official, ours = (outcome(form, streaming, options) for form in FORMS)
    assert official.values is None and words in official.error, official
    assert ours.values is None and words in ours.error, ours


def test_the_same_schema_and_columns(spark: Any, broker: Any, orders: tuple[str, str]) -> None:
    """Acceptance 8: types, nulls, headers, times."""
    for headers in ("false", "true"):
        frames = [
            spark.read.format(form)
            .option("kafka.bootstrap.servers", broker.bootstrap_servers)
            .option("subscribe", orders[0])
            .option("includeHeaders", headers)
            .load()
            for form in FORMS
        ]
        official, ours = frames
        assert ours.schema == official.schema
        rows = [frame.orderBy("partition", "offset").collect() for frame in frames]
        assert len(rows[0]) == 10 and rows[0] == rows[1]


def test_the_same_tasks(spark: Any, broker: Any, orders: tuple[str, str]) -> None:
    """Acceptance 11: with Spark's options for it, as many tasks with as many records each. (Where offsets are not given
    in numbers, Spark's source does not divide a batch by maxRecordsPerPartition.)"""
    full, cut = orders
    start = json.dumps({full: {"0": 0, "1": 0}, cut: {"0": 6}})
    end = json.dumps({full: {"0": 5, "1": 5}, cut: {"0": 10}})

    def sizes(form: str, options: dict[str, str]) -> list[int]:
        reader = spark.read.format(form).option("kafka.bootstrap.servers", broker.bootstrap_servers)
        reader = reader.option("startingOffsets", start).option("endingOffsets", end)
        frame = reader.option("subscribe", f"{full},{cut}").options(**options).load()
        return sorted(len(task) for task in frame.select("offset").rdd.glom().collect())

    for options in (
        {"minPartitions": "3"}, {"minPartitions": "7"}, {"minPartitions": "100"}, {"maxRecordsPerPartition": "2"},
        {"maxRecordsPerPartition": "3", "minPartitions": "9"},
    ):  # fmt: skip
        assert sizes("kafkapy", options) == sizes("kafka", options), options


def test_a_checkpoint_moves_to_and_fro(
    spark: Any, broker: Any, topic: Callable[..., str], send: Callable[..., None], tmp_path: Path
) -> None:
    """Acceptance 21: one query goes on under the one and the other format, and each record is read once."""
    name = topic(3)
    checkpoint = tmp_path / "checkpoint"
    seen: list[str] = []

    def run(form: str) -> Any:
        def sink(frame: Any, batch_id: int) -> None:
            seen.extend(row.value for row in frame.selectExpr("CAST(value AS STRING) AS value").collect())

        query = (
            spark.readStream.format(form)
            .option("kafka.bootstrap.servers", broker.bootstrap_servers)
            .option("subscribe", name)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", "4")
            .load()
            .writeStream.foreachBatch(sink)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)

    sent: list[str] = []
    for turn, form in enumerate(["kafka", "kafkapy", "kafka", "kafkapy", "kafkapy", "kafka"]):
        for partition in range(3):
            values = [f"{turn}-{partition}-{number}" for number in range(2 + partition)]
            send(name, values, partition)
            sent += values
        run(form)
        assert sorted(seen) == sorted(sent), (turn, form)
    last = max((checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    assert json.loads(last.read_text().splitlines()[-1]) == {name: {"0": 12, "1": 18, "2": 24}}


def test_a_checkpoint_that_kafkapy_began(
    spark: Any, broker: Any, topic: Callable[..., str], send: Callable[..., None], tmp_path: Path
) -> None:
    """Acceptance 21: Spark's source finds no file of its own with the first offsets, and goes on by the batches'."""
    name = topic()
    seen: list[str] = []
    for turn, form in enumerate(FORMS[::-1]):
        send(name, [str(turn)])

        def sink(frame: Any, batch_id: int) -> None:
            seen.extend(row.value for row in frame.selectExpr("CAST(value AS STRING) AS value").collect())

        query = (
            spark.readStream.format(form)
            .option("kafka.bootstrap.servers", broker.bootstrap_servers)
            .option("subscribe", name)
            .option("startingOffsets", "earliest")
            .load()
            .writeStream.foreachBatch(sink)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
    assert seen == ["0", "1"]


def test_every_key_of_javas_consumer_is_taken(spark: Any) -> None:
    """Acceptance 7: none is warned about as unknown, but for parts of Java and of Kafka Streams."""
    from kafkapy.config.consumer import CONSUMER

    names = spark.sparkContext._jvm.java.util.ArrayList(
        spark.sparkContext._jvm.org.apache.kafka.clients.consumer.ConsumerConfig.configNames()
    )
    unknown = []
    for name in names:
        try:
            CONSUMER.key_of(name)
        except ValueError:
            unknown.append(name)
    assert len(list(names)) > 80
    assert set(unknown) <= {
        "auto.include.jmx.reporter",
        "internal.throw.on.fetch.stable.offset.unsupported",
        "security.providers",
    }
