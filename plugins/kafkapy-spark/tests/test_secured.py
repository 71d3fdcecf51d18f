"""Reads and writes over TLS and SASL: the keys reach the executors, and no plan, log or error shows a secret."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from kafkapy_spark.options import SourceOptions
from kafkapy_spark.sink_options import SinkOptions

from kafkapy.errors import IllegalArgumentError
from kafkapy.testing import Broker

SECRET = "hunter2-of-ann"
KEYS = {
    "kafka.bootstrap.servers": "broker:9093",
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.ssl.truststore.location": "/on/the/executors.p12",
    "kafka.ssl.truststore.password": SECRET,
}
JAAS = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="ann" password="{SECRET}";'


def test_the_options_have_the_keys_and_do_not_show_their_secrets() -> None:
    for more in ({"kafka.sasl.jaas.config": JAAS}, {"kafka.sasl.username": "ann", "kafka.sasl.password": SECRET}):
        source = SourceOptions.parse({**KEYS, **more, "subscribe": "t"}, streaming=False)
        sink = SinkOptions.parse({**KEYS, **more, "topic": "t"}, streaming=True)
        for options in (source, sink):
            assert SECRET in options.kafka.values() and "[hidden]" in repr(options)
            assert "PLAIN" in repr(options)
            for text in (repr(options), str(options), f"{options.kafka}", repr(pickle.loads(pickle.dumps(options)))):
                assert SECRET not in text


def test_a_misspelt_key_does_not_show_its_value() -> None:
    with pytest.raises(IllegalArgumentError, match=r"did you mean kafka\.sasl\.plain\.password") as raised:
        SourceOptions.parse({**KEYS, "kafka.sasl.plain.pasword": SECRET, "subscribe": "t"}, streaming=False)
    assert SECRET not in str(raised.value)


@pytest.fixture(scope="module")
def secured() -> Iterator[Broker]:
    with Broker(security="SASL_SSL", users={"ann": SECRET}) as broker:
        broker.create_topic("rows", 2)
        yield broker


@pytest.fixture
def keys(secured: Broker) -> Mapping[str, str]:
    return {f"kafka.{name}": value for name, value in secured.client_config().items()}


def test_rows_go_and_come_back(spark: Any, keys: Mapping[str, str], tmp_path: Path) -> None:
    spark.range(100).selectExpr("cast(id as string) as value").write.format("kafkapy").options(**keys).option(
        "topic", "rows"
    ).mode("append").save()
    read = spark.read.format("kafkapy").options(**keys).option("subscribe", "rows").load()
    assert sorted(int(row.value) for row in read.select("value").collect()) == list(range(100))
    shown = read._jdf.queryExecution().toString()
    assert SECRET not in shown
    stream = spark.readStream.format("kafkapy").options(**keys).option("subscribe", "rows")
    query = (
        stream.option("startingOffsets", "earliest")
        .load()
        .writeStream.format("memory")
        .queryName("secured")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert spark.table("secured").count() == 100
    assert all(SECRET not in each.read_text("utf-8", "replace") for each in tmp_path.rglob("*") if each.is_file())


def test_a_wrong_password_fails_the_query_with_the_reason(spark: Any, keys: Mapping[str, str]) -> None:
    wrong = {**keys, "kafka.sasl.plain.password": "wrong-" + SECRET}
    with pytest.raises(Exception, match="refused authentication by SCRAM-SHA-512") as raised:
        spark.read.format("kafkapy").options(**wrong).option("subscribe", "rows").load().collect()
    assert SECRET not in str(raised.value)
