"""What the tests of the transaction handlers share: a producer that speaks in declared messages."""

from __future__ import annotations

import time
from typing import Any

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kafkapy.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kafkapy.protocol.messages.describe_transactions import DescribeTransactionsRequest
from kafkapy.protocol.messages.end_txn import EndTxnRequest
from kafkapy.protocol.messages.fetch import FetchRequest
from kafkapy.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkapy.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from kafkapy.records.batches import decode_records, iter_batches

Commit = TxnOffsetCommitRequest.Topic.Partition


class Producer:
    """A transactional producer on a connection; every request is sent in the version named."""

    def __init__(self, client: Any, name: str, timeout_ms: int = 60_000) -> None:
        self.client = client
        self.name = name
        self.sequence = 0
        client.coordinate_transactions(name)
        response = client(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms), 4)
        assert response.error_code == ErrorCode.NONE
        self.producer_id: int = response.producer_id
        self.epoch: int = response.producer_epoch

    def add(self, *topics: tuple[str, list[int]], version: int = 3, verify_only: bool = False) -> Any:
        """AddPartitionsToTxn; {(topic, partition): error}."""
        named = [AddPartitionsToTxnTopic(name=topic, partitions=partitions) for topic, partitions in topics]
        if version < 4:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.name,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=named,
            )
            results = self.client(request, version).results_by_topic_v3_and_below
        else:
            transaction = AddPartitionsToTxnRequest.Transaction(
                transactional_id=self.name,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                verify_only=verify_only,
                topics=named,
            )
            response = self.client(AddPartitionsToTxnRequest(transactions=[transaction]), version)
            assert response.error_code == ErrorCode.NONE
            [answered] = response.results_by_transaction
            assert answered.transactional_id == self.name
            results = answered.topic_results
        return {
            (topic.name, each.partition_index): ErrorCode(each.partition_error_code)
            for topic in results
            for each in topic.results_by_partition
        }

    def add_offsets(self, group: str, version: int = 3) -> ErrorCode:
        """AddOffsetsToTxn."""
        request = AddOffsetsToTxnRequest(
            transactional_id=self.name, producer_id=self.producer_id, producer_epoch=self.epoch, group_id=group
        )
        return ErrorCode(self.client(request, version).error_code)

    def commit_offset(self, group: str, topic: str, offset: int, version: int = 3, **fields: Any) -> ErrorCode:
        """TxnOffsetCommit for partition 0 of a topic."""
        partition = Commit(partition_index=fields.pop("partition", 0), committed_offset=offset, committed_metadata="m")
        named: dict[str, Any] = {"topic_id": self.client.topic_id(topic)} if version >= 6 else {"name": topic}
        request = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequest.Topic(partitions=[partition], **named)],
            **fields,
        )
        return ErrorCode(self.client(request, version).topics[0].partitions[0].error_code)

    def produce(self, topic: str, value: bytes) -> None:
        """One record, after `add`."""
        self.client.produce(
            topic,
            [(1, value)],
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            transactional=True,
        )
        self.sequence += 1

    def end(self, committed: bool = True, version: int = 3) -> Any:
        """EndTxn; the response."""
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=committed,
        )
        return self.client(request, version)

    def describe(self) -> Any:
        """DescribeTransactions of its id."""
        return self.client(DescribeTransactionsRequest(transactional_ids=[self.name]), 0).transaction_states[0]

    def wait_for(self, state: str) -> Any:
        """Its id, described, as soon as it is in a state."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            described = self.describe()
            if described.transaction_state == state:
                return described
            time.sleep(0.01)
        raise TimeoutError(described.transaction_state)


def read_committed(client: Any, topic: str) -> tuple[list[bytes | None], int]:
    """The values below the last stable offset of partition 0 that no marker has aborted, and that offset."""
    partition = FetchRequest.Topic.Partition(
        partition=0, fetch_offset=0, partition_max_bytes=1_000_000, current_leader_epoch=-1, log_start_offset=-1
    )
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1_000_000,
        isolation_level=1,
        session_id=0,
        session_epoch=-1,
        topics=[FetchRequest.Topic(topic=topic, partitions=[partition])],
        forgotten_topics_data=[],
    )
    found = client(request, 11).responses[0].partitions[0]
    assert found.error_code == ErrorCode.NONE
    aborted = sorted((each.first_offset, each.producer_id) for each in found.aborted_transactions or [])
    dropped: set[int] = set()
    values: list[bytes | None] = []
    for batch in iter_batches(bytes(found.records or b"")):
        while aborted and aborted[0][0] <= batch.base_offset:
            dropped.add(aborted.pop(0)[1])
        if batch.is_control:
            dropped.discard(batch.producer_id)
        elif batch.producer_id not in dropped:
            values += [record.value for record in decode_records(batch)]
    return values, found.last_stable_offset
