"""Transactions through KafkaAdminClient, against a broker with foreign producers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import KafkaException, Producer

from kafkapy.admin import AbortTransactionSpec, KafkaAdminClient, OffsetSpec, TransactionState
from kafkapy.errors import InvalidProducerEpochError, TransactionalIdNotFoundError, UnknownTopicOrPartitionError
from kafkapy.structs import TopicPartition
from kafkapy.testing.broker_process import BrokerProcess

Name = Callable[[], str]


@contextmanager
def open_transaction(broker: BrokerProcess, transactional_id: str, topic: str) -> Iterator[Producer]:
    """A producer with one record in an open transaction."""
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": transactional_id, "transaction.timeout.ms": 60000}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"value", partition=0)
    assert producer.flush(20) == 0
    yield producer


def test_transactions_are_listed_and_described(
    admin: KafkaAdminClient, broker: BrokerProcess, topic: str, name: Name
) -> None:
    transactional_id = name()
    place = TopicPartition(topic, 0)
    with open_transaction(broker, transactional_id, topic) as producer:
        listed = admin.list_transactions(state_filters=[TransactionState.ONGOING])
        (mine,) = [each for each in listed[1] if each.transactional_id == transactional_id]
        assert mine.state is TransactionState.ONGOING
        assert admin.list_transactions(producer_id_filters=[mine.producer_id])[1] == [mine]
        assert admin.list_transactions(broker_ids=[1], transactional_id_pattern=f"^{transactional_id}$")[1] == [mine]
        assert mine not in admin.list_transactions(duration_filter_ms=3_600_000)[1]
        described = admin.describe_transactions([transactional_id])[transactional_id]
        assert (described.state, described.coordinator_id, described.topic_partitions) == ("Ongoing", 1, {place})
        assert (described.producer_id, described.transaction_timeout_ms) == (mine.producer_id, 60000)
        assert described.transaction_start_time_ms > 0
        (state,) = admin.describe_producers([place])[place].active_producers
        assert (state.producer_id, state.current_transaction_start_offset) == (mine.producer_id, 0)
        producer.commit_transaction(20)
    assert admin.describe_transactions([transactional_id])[transactional_id].state is TransactionState.COMPLETE_COMMIT
    (state,) = admin.describe_producers([place], broker_id=1)[place].active_producers
    assert state.current_transaction_start_offset == -1


def test_ids_and_partitions_that_are_not_there(admin: KafkaAdminClient, topic: str, name: Name) -> None:
    missing = name()
    with pytest.raises(TransactionalIdNotFoundError, match=f"Transactional id {missing} does not exist"):
        admin.describe_transactions([missing])
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.describe_producers([TopicPartition(topic, 7)])
    assert admin.describe_transactions([]) == {}
    with pytest.raises(ValueError, match="is not a TransactionState"):
        admin.list_transactions(state_filters=["Sleeping"])


def test_a_producer_is_fenced_and_its_transaction_aborted(
    admin: KafkaAdminClient, broker: BrokerProcess, topic: str, name: Name
) -> None:
    transactional_id = name()
    with open_transaction(broker, transactional_id, topic) as producer:
        before = admin.describe_transactions([transactional_id])[transactional_id]
        fenced = admin.fence_producers([transactional_id])[transactional_id]
        assert fenced > (before.producer_id, before.producer_epoch)
        with pytest.raises(KafkaException, match="(?i)fenced"):
            producer.commit_transaction(20)
    last_stable = admin.list_partition_offsets({TopicPartition(topic, 0): OffsetSpec.LATEST}, "read_committed")
    assert last_stable[TopicPartition(topic, 0)].offset == 2  # the record and the marker
    admin.terminate_transaction(transactional_id)


def test_a_hanging_transaction_is_found_and_aborted(
    admin: KafkaAdminClient, broker: BrokerProcess, topic: str, name: Name
) -> None:
    transactional_id = name()
    place = TopicPartition(topic, 0)
    slack = -6 * 60_000  # takes the five minutes that are granted away, so that a new transaction is old enough
    with open_transaction(broker, transactional_id, topic):
        pass  # the next one has a higher epoch
    with open_transaction(broker, transactional_id, topic):
        found = admin.find_hanging_transactions(max_transaction_timeout_ms=slack)
        (mine,) = [each for each in found if each["transactional_id"] == transactional_id]
        assert (mine["state"], mine["topic_partitions"], mine["coordinator_id"]) == ("Ongoing", [place], 1)
        # Its coordinator knows of it and will end it: it does not hang.
        assert admin.find_hanging_producers([place], max_transaction_timeout_ms=slack) == []
        (state,) = admin.describe_producers([place])[place].active_producers
        spec = AbortTransactionSpec(place, state.producer_id, state.producer_epoch, state.coordinator_epoch)
        with pytest.raises(InvalidProducerEpochError):
            admin.abort_transaction(spec._replace(producer_epoch=state.producer_epoch - 1))
        admin.abort_transaction(spec)
        (state,) = admin.describe_producers([place])[place].active_producers
        assert state.current_transaction_start_offset == -1
    assert admin.find_hanging_transactions() == []
