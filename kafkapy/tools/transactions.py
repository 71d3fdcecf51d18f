"""`kafkapy transactions`: list and describe transactions, end prepared ones, find and abort hanging ones.

Counterpart of kafka-transactions.sh.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from kafkapy.errors import KafkaError, TransactionalIdNotFoundError
from kafkapy.tools.lazy_group import CommandGroup
from kafkapy.tools.missing_names import check_transactional_ids, no_transactional_id
from kafkapy.tools.options import TOPIC, cluster_options, connected, json_option
from kafkapy.tools.output import Column, Output, time_text
from kafkapy.types import TopicPartition

if TYPE_CHECKING:
    from kafkapy.clients.admin.kafka_admin_client import KafkaAdminClient
    from kafkapy.clients.admin.transactions import ProducerState, TransactionDescription, TransactionListing

__all__ = ["transactions"]

Row = dict[str, Any]
MINUTE_MS = 60_000
NO_TIMEOUT_MS = 2**31 - 1
"""The timeout of transactions that only a client ends (KIP-939)."""

LIST_COLUMNS = (
    Column("transactional_id", "transactional id"),
    Column("coordinator", right=True),
    Column("producer_id", right=True),
    Column("state"),
)
AGE_COLUMNS = (Column("start_time", "since"), Column("duration_ms", right=True))
DESCRIBE_COLUMNS = (
    Column("transactional_id", "transactional id"),
    Column("coordinator", right=True),
    Column("producer_id", right=True),
    Column("producer_epoch", "epoch", right=True),
    Column("state"),
    Column("timeout_ms", right=True),
    *AGE_COLUMNS,
    Column("partitions"),
)
PRODUCER_COLUMNS = (
    Column("producer_id", right=True),
    Column("producer_epoch", "epoch", right=True),
    Column("coordinator_epoch", right=True),
    Column("last_sequence", right=True),
    Column("last_timestamp", "last record"),
    Column("start_offset", right=True),
)
HANGING_COLUMNS = (
    Column("topic"),
    Column("partition", right=True),
    Column("producer_id", right=True),
    Column("producer_epoch", "epoch", right=True),
    Column("coordinator_epoch", right=True),
    Column("start_offset", right=True),
    Column("last_timestamp", "last record"),
    Column("duration_ms", right=True),
    Column("transactional_id", "transactional id"),
)


@click.group("transactions", cls=CommandGroup)
def transactions() -> None:
    """List, describe, complete, find and abort transactions."""


@transactions.command("list")
@click.option(
    "--state", "states", multiple=True, metavar="STATE", help="Show only transactions in this state, such as Ongoing."
)
@click.option("--two-phase", is_flag=True, help="Show only open transactions that only a client ends (KIP-939).")
@click.option("--producer-id", "producers", type=int, multiple=True, help="Show only transactions of this producer.")
@click.option(
    "--longer-than",
    metavar="DURATION",
    help="Show only transactions open for longer than this (90s, 15m, PT1H; Kafka 3.8).",
)
@click.option("--pattern", metavar="RE2", help="Show only matching ids (Kafka 4.1).")
@json_option
@cluster_options
def list_(
    settings: dict[str, object],
    states: tuple[str, ...],
    two_phase: bool,
    producers: tuple[int, ...],
    longer_than: str | None,
    pattern: str | None,
    as_json: bool,
) -> None:
    """List the transactional ids of the cluster."""
    from kafkapy.tools.reset_offsets import parse_duration

    try:
        duration = None if longer_than is None else parse_duration(longer_than)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    with connected(settings) as admin:
        found = admin.list_transactions(
            state_filters=("Ongoing",) if two_phase else states,
            producer_id_filters=producers,
            duration_filter_ms=duration,
            transactional_id_pattern=pattern,
        )
        described = _without_timeout(admin, found) if two_phase else {}
    rows = [
        {
            "transactional_id": each.transactional_id,
            "coordinator": broker,
            "producer_id": each.producer_id,
            "state": each.state.value,
            **(_age(described[each.transactional_id]) if two_phase else {}),
        }
        for broker, listings in found.items()
        for each in listings
        if not two_phase or each.transactional_id in described
    ]
    filtered = bool(states or two_phase or producers or duration or pattern)
    other = "No transactional id matches. kafkapy transactions list shows all."
    empty = other if filtered else "No producer of the cluster uses transactions."
    columns = (*LIST_COLUMNS, *AGE_COLUMNS) if two_phase else LIST_COLUMNS
    Output(as_json).rows(sorted(rows, key=lambda row: str(row["transactional_id"])), columns, empty)


def _without_timeout(
    admin: KafkaAdminClient, found: dict[int, list[TransactionListing]]
) -> dict[str, TransactionDescription]:
    """The ids of the listings whose open transactions have no timeout."""
    names = [each.transactional_id for listings in found.values() for each in listings]
    described = admin.describe_transactions(names) if names else {}
    return {
        name: each
        for name, each in described.items()
        if each.transaction_timeout_ms == NO_TIMEOUT_MS and each.state.value == "Ongoing"
    }


def _age(found: TransactionDescription) -> Row:
    start_ms = found.transaction_start_time_ms
    return {
        "start_time": time_text(start_ms),
        "duration_ms": int(time.time() * 1000) - start_ms if start_ms >= 0 else None,
    }


@transactions.command("describe")
@click.argument("ids", nargs=-1, required=True, metavar="TRANSACTIONAL_ID...")
@json_option
@cluster_options
def describe(settings: dict[str, object], ids: tuple[str, ...], as_json: bool) -> None:
    """Show transactional ids with their open transactions."""
    with connected(settings) as admin:
        try:
            found = admin.describe_transactions(ids)
        except TransactionalIdNotFoundError as error:
            raise no_transactional_id(admin, ids) or error from None
    rows = [
        {
            "transactional_id": name,
            "coordinator": each.coordinator_id,
            "producer_id": each.producer_id,
            "producer_epoch": each.producer_epoch,
            "state": each.state.value,
            "timeout_ms": None if each.transaction_timeout_ms == NO_TIMEOUT_MS else each.transaction_timeout_ms,
            **_age(each),
            "partitions": list(map(str, sorted(each.topic_partitions))),
        }
        for name, each in found.items()
    ]
    Output(as_json).rows(rows, DESCRIBE_COLUMNS)


@transactions.command("describe-producers")
@click.argument("topic", metavar="TOPIC", type=TOPIC)
@click.argument("partition", type=click.IntRange(0))
@click.option("--broker", type=int, help="Ask this replica; default: the leader.")
@json_option
@cluster_options
def describe_producers(
    settings: dict[str, object], topic: str, partition: int, broker: int | None, as_json: bool
) -> None:
    """Show the producers in a partition's state."""
    from kafkapy.tools.named_partitions import partitions_of

    with connected(settings) as admin:
        (place,) = partitions_of(admin, [f"{topic}:{partition}"])
        found = admin.describe_producers([place], broker)[place].active_producers
    empty = (
        f"Partition {place} has no producer state: no idempotent or transactional producer has written to it lately."
    )
    Output(as_json).rows([_producer_row(each) for each in sorted(found)], PRODUCER_COLUMNS, empty)


@transactions.command("find-hanging")
@click.option("--topic", metavar="TOPIC", type=TOPIC, help="Search only this topic.")
@click.option("--partition", type=click.IntRange(0), help="Search only this partition of the topic.")
@click.option("--broker", type=int, help="Search only the replicas of this broker.")
@click.option(
    "--max-transaction-timeout",
    type=click.IntRange(0),
    default=15,
    show_default=True,
    metavar="MINUTES",
    help="The brokers' transaction.max.timeout.ms.",
)
@json_option
@cluster_options
def find_hanging(
    settings: dict[str, object],
    topic: str | None,
    partition: int | None,
    broker: int | None,
    max_transaction_timeout: int,
    as_json: bool,
) -> None:
    """Find hanging transactions.

    A hanging transaction is open in a partition, but no coordinator will end it there.
    """
    from kafkapy.tools.named_partitions import partitions_of

    if partition is not None and topic is None:
        raise click.UsageError("--partition needs --topic.")
    with connected(settings) as admin:
        places = None
        if topic is not None:
            places = partitions_of(admin, [topic if partition is None else f"{topic}:{partition}"])
        found = admin.find_hanging_producers(places, broker, max_transaction_timeout * MINUTE_MS)
    rows = [
        {
            "topic": each.topic_partition.topic,
            "partition": each.topic_partition.partition,
            **_producer_row(each.producer),
            "duration_ms": each.duration_ms,
            "transactional_id": each.transactional_id,
        }
        for each in found
    ]
    Output(as_json).rows(rows, HANGING_COLUMNS, "No transaction hangs.")


@transactions.command("abort")
@click.argument("topic", metavar="TOPIC", type=TOPIC)
@click.argument("partition", type=click.IntRange(0))
@click.option("--start-offset", type=click.IntRange(0), help="Start offset of the transaction, from find-hanging.")
@click.option("--producer-id", type=int, help="Its producer id, with --producer-epoch, instead of --start-offset.")
@click.option("--producer-epoch", type=int, help="Its producer epoch.")
@click.option("--coordinator-epoch", type=int, default=-1, help="Its coordinator epoch; default: any.")
@json_option
@cluster_options
def abort(
    settings: dict[str, object],
    topic: str,
    partition: int,
    start_offset: int | None,
    producer_id: int | None,
    producer_epoch: int | None,
    coordinator_epoch: int,
    as_json: bool,
) -> None:
    """Abort a transaction in one partition.

    Abort only hanging transactions: a coordinator ends all others.
    """
    from kafkapy.clients.admin.transactions import AbortTransactionSpec

    if (start_offset is None) == (producer_id is None) or (producer_id is None) != (producer_epoch is None):
        raise click.UsageError("Give --start-offset, or --producer-id and --producer-epoch.")
    from kafkapy.tools.named_partitions import partitions_of

    with connected(settings) as admin:
        (place,) = partitions_of(admin, [f"{topic}:{partition}"])
        if producer_id is not None and producer_epoch is not None:
            spec = AbortTransactionSpec(place, producer_id, producer_epoch, coordinator_epoch)
        else:
            spec = _spec_at(admin, place, start_offset or 0)
        admin.abort_transaction(spec)
    output = Output(as_json)
    if as_json:
        output.json({"topic": topic, "partition": partition, "producer_id": spec.producer_id, "aborted": True})
    output.say(f"The transaction of producer {spec.producer_id} in {place} is aborted.")


@transactions.command("terminate")
@click.argument("ids", nargs=-1, required=True, metavar="TRANSACTIONAL_ID...")
@json_option
@cluster_options
def terminate(settings: dict[str, object], ids: tuple[str, ...], as_json: bool) -> None:
    """Abort the open transactions of ids, and fence their producers."""
    with connected(settings) as admin:
        check_transactional_ids(admin, ids)  # one that is new would be made
        fenced = admin.fence_producers(ids)
    rows = [
        {"transactional_id": name, "producer_id": producer, "producer_epoch": epoch}
        for name, (producer, epoch) in fenced.items()
    ]
    columns = (
        Column("transactional_id", "transactional id"),
        Column("producer_id", right=True),
        Column("producer_epoch", right=True),
    )
    Output(as_json).rows(rows, columns)


@transactions.command("complete")
@click.argument("transactional_id", metavar="TRANSACTIONAL_ID")
@click.option("--commit", "outcome", flag_value="commit", help="Commit the open transaction.")
@click.option("--abort", "outcome", flag_value="abort", help="Abort the open transaction.")
@click.option("--if-prepared", metavar="PRODUCER_ID:EPOCH", help="Commit it if it has this state, and abort another.")
@json_option
@cluster_options
def complete(
    settings: dict[str, object], transactional_id: str, outcome: str | None, if_prepared: str | None, as_json: bool
) -> None:
    """Commit or abort the open transaction of an id.

    Its producer is gone, and has left the transaction prepared (KIP-939). A producer that is still there is fenced.
    """
    from kafkapy.clients.admin.transactions import OUTCOMES
    from kafkapy.clients.producer.transactional_requests import PreparedTxnState

    if (outcome is None) == (if_prepared is None):
        raise click.UsageError("Give one of --commit, --abort and --if-prepared.")
    try:
        prepared = None if if_prepared is None else PreparedTxnState.parse(if_prepared)[:2]
    except ValueError as error:
        raise click.UsageError(f"--if-prepared {error}") from None
    with connected(settings) as admin:
        check_transactional_ids(admin, [transactional_id])  # one that is new would be made
        committed = admin.complete_transaction(transactional_id, outcome == "commit", prepared)
        state = admin.describe_transactions([transactional_id])[transactional_id].state if committed is None else None
    last = None if state is None else OUTCOMES.get(state)
    output = Output(as_json)
    if as_json:
        output.json({"transactional_id": transactional_id, "committed": committed, "last_committed": last})
    elif committed is None:
        known = "" if last is None else f"; its last one is {'committed' if last else 'aborted'}"
        output.say(f"Transactional id {transactional_id} has no open transaction{known}.")
    else:
        output.say(f"The transaction of {transactional_id} is {'committed' if committed else 'aborted'}.")


def _producer_row(producer: ProducerState) -> Row:
    start = producer.current_transaction_start_offset
    return {
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "coordinator_epoch": producer.coordinator_epoch,
        "last_sequence": producer.last_sequence,
        "last_timestamp": time_text(producer.last_timestamp),
        "start_offset": start if start >= 0 else None,
    }


def _spec_at(admin: KafkaAdminClient, place: TopicPartition, start_offset: int) -> Any:
    from kafkapy.clients.admin.transactions import AbortTransactionSpec

    for each in admin.describe_producers([place])[place].active_producers:
        if each.current_transaction_start_offset == start_offset:
            # Where no marker was written yet the leader does not know the coordinator's epoch: 0, as Kafka's tool.
            epoch = max(each.coordinator_epoch, 0)
            return AbortTransactionSpec(place, each.producer_id, each.producer_epoch, epoch)
    raise KafkaError(
        f"No open transaction begins at offset {start_offset} in {place}. kafkapy transactions find-hanging shows "
        "hanging transactions with their start offsets."
    )
