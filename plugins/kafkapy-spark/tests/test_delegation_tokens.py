"""Delegation tokens: the driver logs in with its credentials, tasks get a token for it and nothing else."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from kafkapy_spark import delegation_tokens
from kafkapy_spark.options import SourceOptions
from kafkapy_spark.sink_options import SinkOptions

from kafkapy import KafkaAdminClient
from kafkapy.clients.admin.delegation_tokens import DelegationToken
from kafkapy.errors import IllegalArgumentError
from kafkapy.testing import Broker

SECRET = "hunter2-of-ann"
KEYS = {
    "kafka.bootstrap.servers": "broker:9093",
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.plain.username": "ann",
    "kafka.sasl.plain.password": SECRET,
    "kafka.max.partition.fetch.bytes": "1000",
    "delegationToken": "true",
}
HOUR_MS = 3_600_000


def source(**more: str) -> SourceOptions:
    return SourceOptions.parse({**KEYS, "subscribe": "t", **more}, streaming=False)


@pytest.fixture
def created(monkeypatch: pytest.MonkeyPatch) -> list[Mapping[str, str]]:
    """The keys of the clients that have created tokens; nobody is asked for one."""
    asked: list[Mapping[str, str]] = []

    def create(keys: Mapping[str, str]) -> DelegationToken:
        asked.append(keys)
        return DelegationToken(f"id{len(asked)}", b"hmac", "User:ann", "User:ann", 0, HOUR_MS, 7 * HOUR_MS)

    monkeypatch.setattr(delegation_tokens, "_created", create)
    monkeypatch.setattr(delegation_tokens, "_held", {})
    return asked


def test_what_is_pickled_for_tasks_has_no_credentials(created: list[Mapping[str, str]]) -> None:
    read = source()
    sink = delegation_tokens.sink_with_token(
        SinkOptions.parse(
            {name: value for name, value in KEYS.items() if "fetch" not in name} | {"topic": "t"}, streaming=True
        )
    )
    assert read.kafka["sasl.plain.password"] == SECRET
    for options in (read, sink):
        data = pickle.dumps(options)
        assert SECRET.encode() not in data and b"ann" not in data.replace(b"channel", b"")
        copy = pickle.loads(data)
        assert copy.kafka["bootstrap.servers"] == "broker:9093"
    assert not [name for name in pickle.loads(pickle.dumps(read)).kafka if name.startswith("sasl.")]
    assert (
        sink.token is None and 'username="id1" password="aG1hYw==" tokenauth="true"' in sink.kafka["sasl.jaas.config"]
    )


def test_a_token_is_asked_for_with_the_keys_of_an_admin_client_and_kept(created: list[Mapping[str, str]]) -> None:
    first, again = (delegation_tokens.login_of_tasks(source()) for _ in range(2))
    assert (
        first
        == again
        == {
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
            'username="id1" password="aG1hYw==" tokenauth="true";',
        }
    )
    assert "aG1hYw" not in repr(first)
    (keys,) = created
    assert keys["sasl.plain.password"] == SECRET and "max.partition.fetch.bytes" not in keys
    other = delegation_tokens.login_of_tasks(source(**{"kafka.sasl.plain.username": "bob"}))
    assert "id2" in other["sasl.jaas.config"]
    mechanism = {"delegationToken.mechanism": "scram-sha-256"}
    assert delegation_tokens.login_of_tasks(source(**mechanism))["sasl.mechanism"] == "SCRAM-SHA-256"
    assert len(created) == 2


def test_a_token_is_replaced_after_three_quarters_of_its_lifetime(
    created: list[Mapping[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(delegation_tokens.time, "monotonic", lambda: clock[0])
    for now, count in ((1000.0, 1), (1000 + 0.74 * 3600, 1), (1000 + 0.75 * 3600, 2), (1000 + 1.49 * 3600, 2)):
        clock[0] = now
        delegation_tokens.login_of_tasks(source())
        assert len(created) == count


def test_without_the_option_tasks_get_the_credentials(created: list[Mapping[str, str]]) -> None:
    read = source(delegationToken="false")
    assert read.token is None and delegation_tokens.login_of_tasks(read) == {} and not created
    assert pickle.loads(pickle.dumps(read)).kafka["sasl.plain.password"] == SECRET


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"kafka.security.protocol": "SSL"}, "needs kafka.security.protocol to be SASL_SSL or SASL_PLAINTEXT"),
        ({"delegationToken": "yes"}, "delegationToken must be true or false"),
        ({"delegationToken.mechanism": "PLAIN"}, "must be SCRAM-SHA-512 or SCRAM-SHA-256, and is 'PLAIN'"),
        ({"delegationTokens": "true"}, "did you mean delegationToken"),
    ],
)
def test_options_that_are_refused(more: dict[str, str], reason: str) -> None:
    with pytest.raises(IllegalArgumentError, match=reason):
        source(**more)


# --- on a Spark -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def secured() -> Iterator[Broker]:
    keys = {"delegation.token.secret.key": "the broker's secret"}
    with Broker(security="SASL_SSL", users={"ann": SECRET}, **keys) as broker:
        broker.create_topic("rows", 2)
        yield broker


@pytest.fixture
def keys(secured: Broker) -> dict[str, str]:
    """Of the driver: it logs in by PLAIN."""
    config = secured.client_config(mechanism="PLAIN")
    return {f"kafka.{name}": value for name, value in config.items()} | {"delegationToken": "true"}


def tokens(secured: Broker) -> list[DelegationToken]:
    with KafkaAdminClient(secured.client_config()) as admin:
        return list(admin.describe_delegation_token())


def test_reads_and_writes_with_tokens(spark: Any, secured: Broker, keys: dict[str, str], tmp_path: Path) -> None:
    rows = spark.range(100).selectExpr("cast(id as string) as value")
    rows.write.format("kafkapy").options(**keys).option("topic", "rows").mode("append").save()
    found = tokens(secured)
    assert found and {each.owner for each in found} == {"User:ann"}
    exactly = {"delivery": "exactly-once", "txnAppId": "app", "txnVersion": "1"}
    rows.write.format("kafkapy").options(**keys, **exactly).option("topic", "rows").mode("append").save()
    read = spark.read.format("kafkapy").options(**keys).option("subscribe", "rows").load()
    assert sorted(int(row.value) for row in read.select("value").collect()) == sorted([*range(100)] * 2)
    assert SECRET not in read._jdf.queryExecution().toString()


def test_streams_with_tokens(spark: Any, secured: Broker, keys: dict[str, str], tmp_path: Path) -> None:
    secured.create_topic("in", 2)
    secured.create_topic("out", 2)
    rows = spark.range(50).selectExpr("cast(id as string) as value")
    rows.write.format("kafkapy").options(**keys).option("topic", "in").mode("append").save()
    stream = spark.readStream.format("kafkapy").options(**keys).option("subscribe", "in")
    query = (
        stream.option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "20")
        .load()
        .selectExpr("value")
        .writeStream.format("kafkapy")
        .options(**keys)
        .option("topic", "out")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    read = spark.read.format("kafkapy").options(**keys).option("subscribe", "out").load()
    assert sorted(int(row.value) for row in read.select("value").collect()) == list(range(50))


def test_a_broker_without_tokens_fails_the_query_with_its_reason(spark: Any, keys: dict[str, str]) -> None:
    with Broker(security="SASL_SSL", users={"ann": SECRET}) as broker:
        broker.create_topic("rows", 1)
        config = {f"kafka.{name}": value for name, value in broker.client_config().items()}
        read = (
            spark.read.format("kafkapy").options(**config).option("delegationToken", "true").option("subscribe", "rows")
        )
        with pytest.raises(Exception, match="DelegationTokenAuthDisabled|delegation token"):
            read.load().collect()
