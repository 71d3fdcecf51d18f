"""One Spark session and one broker for all tests. Those that use no session need neither pyspark nor a JVM."""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import logger_state
import pytest
import spark_jvm
from clients.transaction_protocol import protocol as protocol
from hypothesis import HealthCheck, settings

from kafkapy import KafkaProducer, testing
from kafkapy.types import TopicPartition

settings.register_profile("untimed", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


def pytest_configure(config: pytest.Config) -> None:
    logger_state.register(config)
    spark_jvm.choose(os.environ)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    sql = pytest.importorskip("pyspark.sql")
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = (
        sql.SparkSession.builder.master("local[2]")
        .appName("kafkapy-spark tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .config("spark.jars", ",".join(map(str, official_jars())))
    )
    with pytest.MonkeyPatch.context() as patch:
        # The JVM's Python processes: a busy machine cannot fail them (warm/sitecustomize.py).
        patch.setenv("PYTHONPATH", str(Path(__file__).with_name("warm")), prepend=os.pathsep)
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


def official_jars() -> list[Path]:
    """The jars of Spark's own connector, where tests that compare with it are wanted and the jars can be had."""
    if not os.environ.get("KAFKAPY_INTEROP_JAVA"):
        return []
    from peers import spark_kafka
    from peers.apache_kafka import PeerMissingError

    try:
        return spark_kafka.jars(metadata.version("pyspark"))[1]
    except PeerMissingError:
        return []


@pytest.fixture(scope="session")
def broker() -> Iterator[testing.Broker]:
    # Records of tests are of any time: none is too old.
    with testing.Broker(auto_create_topics_enable=False, log_retention_ms=-1) as started:
        yield started


@pytest.fixture(scope="session")
def producer(broker: testing.Broker) -> Iterator[KafkaProducer]:
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers, linger_ms=0) as started:
        yield started


@pytest.fixture
def topic(broker: testing.Broker) -> Callable[..., str]:
    """Makes topics: topic(partitions, configs) -> name."""

    def make(partitions: int = 1, **configs: object) -> str:
        name = f"t-{uuid.uuid4().hex[:12]}"
        broker.create_topic(name, partitions, {key.replace("_", "."): value for key, value in configs.items()})
        return name

    return make


@pytest.fixture
def wait_for_markers(broker: testing.Broker) -> Callable[[str, int], None]:
    """Waits until a partition's log decides every transaction that ended: a broker replies before it writes markers."""

    def wait(topic: str, partition: int) -> None:
        log = broker.server.context.log_manager.get(at(topic, partition))
        deadline = time.monotonic() + 60
        while log.last_stable_offset < log.high_watermark:
            assert time.monotonic() < deadline, f"{topic}-{partition} has an open transaction"
            time.sleep(0.02)

    return wait


@pytest.fixture
def send(producer: KafkaProducer) -> Callable[..., None]:
    """Sends values to a partition, and waits: send(topic, values, partition=0)."""

    def run(topic: str, values: Sequence[bytes | str], partition: int = 0) -> None:
        for value in values:
            producer.send(topic, value.encode() if isinstance(value, str) else value, partition=partition)
        producer.flush()

    return run


@pytest.fixture
def read(spark: Any, broker: testing.Broker) -> Callable[..., Any]:
    """A batch read: read(topic, schema=None, **options). Names of options have _ for dots."""

    def run(topic: str, schema: str | None = None, **options: object) -> Any:
        reader = spark.read.format("kafkapy").option("kafka.bootstrap.servers", broker.bootstrap_servers)
        if topic:
            reader = reader.option("subscribe", topic)
        if schema:
            reader = reader.schema(schema)
        return reader.options(**{name.replace("__", "."): value for name, value in options.items()}).load()

    return run


@pytest.fixture
def records(broker: testing.Broker) -> Callable[..., list[tuple[Any, ...]]]:
    """All of a topic by partition and offset, read by a client that is not ours: records(topic, committed=False) ->
    [(partition, key, value, headers, timestamp in ms)]."""

    def run(topic: str, committed: bool = False) -> list[tuple[Any, ...]]:
        from confluent_kafka import Consumer
        from confluent_kafka import TopicPartition as Partition

        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": "none",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed" if committed else "read_uncommitted",
            }
        )
        try:
            left = set(consumer.list_topics(topic, timeout=10).topics[topic].partitions)
            consumer.assign([Partition(topic, number, 0) for number in left])
            found = []
            while left:
                for message in consumer.consume(10_000, timeout=0.2):
                    if message.error():
                        assert message.error().name() == "_PARTITION_EOF", message.error()
                        left.discard(message.partition())
                    else:
                        found.append(message)
        finally:
            consumer.close()
        found.sort(key=lambda message: (message.partition(), message.offset()))
        return [
            (each.partition(), each.key(), each.value(), each.headers() or [], each.timestamp()[1]) for each in found
        ]

    return run


def at(topic: str, partition: int = 0) -> TopicPartition:
    """A partition's name."""
    return TopicPartition(topic, partition)
