"""Producers with two-phase commit: transactions without a timeout, taken over as they were prepared (KIP-939)."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner
from clients.producer.test_prepared_transactions import committed, state_of
from waiting import wait_until

from kafkapy import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafkapy.admin import ConfigResource, TransactionState
from kafkapy.aio import AIOKafkaProducer
from kafkapy.clients.admin.transactions import TransactionAdmin
from kafkapy.clients.producer.transactional_requests import PreparedTxnState
from kafkapy.coordinator.transaction.metadata import TWO_PHASE_TIMEOUT_MS
from kafkapy.errors import (
    ConfigError,
    IllegalStateError,
    KafkaConnectionError,
    ProducerFencedError,
    TransactionalIdAuthorizationFailedError,
    UnsupportedVersionError,
)
from kafkapy.protocol.messages.end_txn import EndTxnRequest
from kafkapy.testing import Broker
from kafkapy.tools.cli import main as cli
from kafkapy.types import TopicPartition


@pytest.fixture(scope="module")
def cluster() -> Iterator[Broker]:
    with Broker(num_partitions=2, transaction_two_phase_commit_enable=True) as broker:
        yield broker


@pytest.fixture
def name() -> str:
    return uuid.uuid4().hex[:8]


def producer_of(cluster: Broker, name: str) -> KafkaProducer:
    return KafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers,
        transactional_id=name,
        transaction_two_phase_commit_enable=True,
        retry_backoff_ms=20,
    )


def prepared(cluster: Broker, name: str) -> PreparedTxnState:
    """A record in a prepared transaction whose producer is gone."""
    with producer_of(cluster, name) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(name, b"value")
        return producer.prepare_transaction()


def test_contradictions() -> None:
    with pytest.raises(ConfigError, match="needs transactional.id"):
        KafkaProducer(bootstrap_servers="x:1", transaction_two_phase_commit_enable=True)
    with pytest.raises(ConfigError, match="excludes transaction.timeout.ms"):
        KafkaProducer(
            bootstrap_servers="x:1",
            transactional_id="t",
            transaction_two_phase_commit_enable=True,
            transaction_timeout_ms=1000,
        )


def test_the_text_of_a_state() -> None:
    state = PreparedTxnState(73, 2, 2)
    assert str(state) == "73:2"
    assert PreparedTxnState.parse("73:2")[:2] == state[:2]
    for text in ("", "73", "73:", ":2", "73:x", "-1:-1"):
        with pytest.raises(ValueError, match="is not PRODUCER_ID:EPOCH"):
            PreparedTxnState.parse(text)


@pytest.mark.parametrize("same", [True, False])
def test_another_process_completes_what_was_prepared(cluster: Broker, name: str, same: bool) -> None:
    text = str(prepared(cluster, name))
    assert state_of(cluster, name)[0] is TransactionState.ONGOING
    with producer_of(cluster, name) as crashed:
        crashed.init_transactions(keep_prepared_txn=True)
    with producer_of(cluster, name) as producer:
        producer.init_transactions(keep_prepared_txn=True)
        with pytest.raises(IllegalStateError):
            producer.begin_transaction()
        with pytest.raises(IllegalStateError):
            producer.send(name, b"other").get(1)
        producer.complete_transaction(PreparedTxnState.parse(text if same else "1:1"))
        assert committed(cluster, name) == (1 if same else 0)
        producer.begin_transaction()
        producer.send(name, b"next")
        producer.commit_transaction()
    assert committed(cluster, name) == (2 if same else 1)


@pytest.mark.parametrize("commits", [True, False])
def test_what_was_prepared_may_be_ended_at_once(cluster: Broker, name: str, commits: bool) -> None:
    prepared(cluster, name)
    with producer_of(cluster, name) as producer:
        producer.init_transactions(keep_prepared_txn=True)
        if commits:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    assert committed(cluster, name) == int(commits)


def test_a_transaction_that_has_ended_is_not_completed_again(cluster: Broker, name: str) -> None:
    state = prepared(cluster, name)
    for _ in range(2):
        with producer_of(cluster, name) as producer:
            producer.init_transactions(keep_prepared_txn=True)
            producer.complete_transaction(state)
    assert committed(cluster, name) == 1


def test_the_producer_before_is_fenced(cluster: Broker, name: str) -> None:
    with producer_of(cluster, name) as zombie, producer_of(cluster, name) as producer:
        zombie.init_transactions()
        zombie.begin_transaction()
        zombie.send(name, b"value")
        state = zombie.prepare_transaction()
        producer.init_transactions(keep_prepared_txn=True)
        with pytest.raises(ProducerFencedError):
            zombie.commit_transaction()
        producer.complete_transaction(state)
    assert committed(cluster, name) == 1


def test_the_transaction_has_no_timeout(cluster: Broker, name: str) -> None:
    prepared(cluster, name)
    with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        assert admin.describe_transactions([name])[name].transaction_timeout_ms == TWO_PHASE_TIMEOUT_MS
        admin.terminate_transaction(name)
    assert committed(cluster, name) == 0


@pytest.mark.parametrize(
    ("how", "records"), [({"committed": True}, 1), ({"committed": False}, 0), ({"prepared": (1, 1)}, 0), ({}, 1)]
)
def test_an_operator_ends_what_was_prepared(cluster: Broker, name: str, how: dict[str, Any], records: int) -> None:
    state = prepared(cluster, name)
    with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        assert admin.complete_transaction(name, **(how or {"prepared": state[:2]})) is bool(records)
        assert admin.complete_transaction(name) is None
    assert committed(cluster, name) == records


def test_an_operator_ends_what_a_broker_cannot_keep(name: str) -> None:
    with Broker(num_partitions=2, transaction_two_phase_commit_enable=True) as plain:
        with KafkaAdminClient(bootstrap_servers=plain.bootstrap_servers) as admin:
            admin.update_features({"transaction.version": ("safe_downgrade", 0)})
            prepared(plain, name)
            assert admin.complete_transaction(name) is True
        assert committed(plain, name) == 1


def test_an_operator_limits_transactions_without_a_timeout(name: str) -> None:
    """While the broker runs: what was prepared before is aborted too."""
    limit = "kafkapy.transaction.two.phase.commit.max.ms"
    with Broker(
        num_partitions=2,
        transaction_two_phase_commit_enable=True,
        transaction_abort_timed_out_transaction_cleanup_interval_ms=50,
    ) as broker:
        state = prepared(broker, name)
        with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.alter_configs([ConfigResource("broker", "", {limit: "1000000000000"})])
            assert state_of(broker, name)[0] is TransactionState.ONGOING
            admin.alter_configs([ConfigResource("broker", "", {limit: "1"})])
            wait_until(lambda: state_of(broker, name)[0] is TransactionState.COMPLETE_ABORT, "the abort")
        with producer_of(broker, name) as producer:
            producer.init_transactions(keep_prepared_txn=True)
            producer.complete_transaction(state)
        assert committed(broker, name) == 0


def test_the_command_line(cluster: Broker, name: str) -> None:
    state = prepared(cluster, name)
    server = ("-b", cluster.bootstrap_servers)

    def run(*arguments: str) -> Any:
        done = CliRunner().invoke(cli, ["transactions", *arguments, *server, "--json"], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return json.loads(done.output)

    (listed,) = [each for each in run("list", "--two-phase") if each["transactional_id"] == name]
    assert listed["duration_ms"] >= 0 and listed["start_time"].startswith("20")
    assert "duration_ms" not in run("list")[0]
    assert run("describe", name)[0]["timeout_ms"] is None
    about = {"transactional_id": name, "committed": True, "last_committed": None}
    assert run("complete", name, "--if-prepared", str(state)) == about
    assert run("complete", name, "--abort") == about | {"committed": None, "last_committed": True}
    assert name not in {each["transactional_id"] for each in run("list", "--two-phase")}
    again = CliRunner().invoke(cli, ["transactions", "complete", name, "--abort", *server])
    assert again.output == f"Transactional id {name} has no open transaction; its last one is committed.\n"
    for wrong in ((), ("--commit", "--if-prepared", "1:1"), ("--if-prepared", "x")):
        assert CliRunner().invoke(cli, ["transactions", "complete", name, *wrong, *server]).exit_code == 2
    assert committed(cluster, name) == 1


def test_a_producer_without_an_open_transaction_is_left_alone(cluster: Broker, name: str) -> None:
    with producer_of(cluster, name) as producer:
        producer.init_transactions()
        with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
            assert admin.complete_transaction(name) is None
        for _ in range(2):
            producer.begin_transaction()
            producer.send(name, b"value")
            producer.commit_transaction()
            with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
                assert admin.complete_transaction(name, False) is None
    assert committed(cluster, name) == 2


@pytest.mark.parametrize("commits", [True, False])
def test_the_answer_of_the_end_is_lost(
    cluster: Broker, name: str, commits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call is repeated, and knows what it has done."""
    prepared(cluster, name)
    send, lost = TransactionAdmin.send, []

    async def lossy(admin: TransactionAdmin, node: int, request: Any, *arguments: Any, **keywords: Any) -> Any:
        answer = await send(admin, node, request, *arguments, **keywords)
        if isinstance(request, EndTxnRequest) and not lost:
            lost.append(request)
            raise KafkaConnectionError("The connection of a test is closed")
        return answer

    monkeypatch.setattr(TransactionAdmin, "send", lossy)
    with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        assert admin.complete_transaction(name, commits) is commits
        assert admin.complete_transaction(name, not commits) is None
    assert lost
    assert committed(cluster, name) == int(commits)


KILLED = """
import os, signal, sys
from kafkapy import KafkaProducer

producer = KafkaProducer(
    bootstrap_servers=sys.argv[1], transactional_id=sys.argv[2], transaction_two_phase_commit_enable=True
)
producer.init_transactions()
producer.begin_transaction()
producer.send(sys.argv[2], b"prepared")
print(producer.prepare_transaction(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("by", ["--commit", "--abort", "--if-prepared"])
def test_readers_go_on_when_an_operator_ends_what_a_killed_producer_has_left(
    cluster: Broker, name: str, by: str
) -> None:
    server = cluster.bootstrap_servers
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, server, name], stdout=subprocess.PIPE, text=True, check=False
    )
    assert killed.returncode == -signal.SIGKILL
    with KafkaProducer(bootstrap_servers=server) as other:
        place = TopicPartition(name, 0)
        for partition in range(2):
            other.send(name, b"behind", partition=partition)
        other.flush()
    with KafkaConsumer(
        bootstrap_servers=server, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([place, place._replace(partition=1)])
        # The other partition is free, and this one is not.
        assert read(consumer, 1) == [b"behind"]
        assert sum(consumer.end_offsets(list(consumer.assignment())).values()) == 1
        end = [by, killed.stdout.strip()] if by == "--if-prepared" else [by]
        done = CliRunner().invoke(cli, ["transactions", "complete", name, *end, "-b", server])
        assert done.output == f"The transaction of {name} is {'aborted' if by == '--abort' else 'committed'}.\n"
        assert read(consumer, 1 if by == "--abort" else 2) == [b"prepared", b"behind"][by == "--abort" :]


def read(consumer: KafkaConsumer, count: int) -> list[bytes]:
    """So many records, and no other at once."""
    found: list[bytes] = []

    def polled() -> bool:
        found.extend(record.value for records in consumer.poll(50).values() for record in records)
        return len(found) >= count

    wait_until(polled, f"{count} records")
    assert not consumer.poll(50)
    return found


def test_asyncio(cluster: Broker, name: str) -> None:
    def made() -> AIOKafkaProducer:
        return AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers,
            transactional_id=name,
            transaction_two_phase_commit_enable=True,
        )

    async def test() -> None:
        first = made()
        await first.start()
        await first.begin_transaction()
        await first.send(name, b"value")
        state = await first.prepare_transaction()
        await first.stop()
        second = made()
        await second.start(keep_prepared_txn=True)
        await second.complete_transaction(state)
        await second.stop()

    asyncio.run(test())
    assert committed(cluster, name) == 1


def test_a_broker_that_does_not_allow_it(name: str) -> None:
    with Broker() as plain, producer_of(plain, name) as producer:
        with pytest.raises(TransactionalIdAuthorizationFailedError):
            producer.init_transactions()
        with KafkaProducer(bootstrap_servers=plain.bootstrap_servers, transactional_id=name) as other:
            # Taking over needs no permission.
            other.init_transactions(keep_prepared_txn=True)


def test_a_cluster_that_keeps_nothing(name: str) -> None:
    with Broker() as plain:
        with KafkaAdminClient(bootstrap_servers=plain.bootstrap_servers) as admin:
            admin.update_features({"transaction.version": ("safe_downgrade", 0)})
        producer = KafkaProducer(bootstrap_servers=plain.bootstrap_servers, transactional_id=name)
        with producer, pytest.raises(UnsupportedVersionError):
            producer.init_transactions(keep_prepared_txn=True)
