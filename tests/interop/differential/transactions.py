"""Exchanges of transactional producers: what is answered in every state, to those in step and to those that are not.

AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit, EndTxn, ListTransactions, and Produce with transactional records.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from interop.differential.exchanges import Peer, scenario

from kafkapy.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kafkapy.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kafkapy.protocol.messages.describe_transactions import DescribeTransactionsRequest
from kafkapy.protocol.messages.end_txn import EndTxnRequest
from kafkapy.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkapy.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkapy.protocol.messages.list_transactions import ListTransactionsRequest
from kafkapy.protocol.messages.produce import ProduceRequest
from kafkapy.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from kafkapy.protocol.registry import ApiKeys
from kafkapy.records.batches import RecordBatchBuilder

T0 = 1_700_000_000_000
FIRST_THAT_ADDS = 12
FIRST_BETWEEN_BROKERS = 4
WAIT_S = 60
GROUP, TRANSACTION = 0, 1


def until(ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not ready():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def coordinated(peer: Peer, key: str, kind: int) -> None:
    find = FindCoordinatorRequest(coordinator_keys=[key], key_type=kind)
    until(lambda: bool(peer.setup(find, 4).coordinators[0].error_code == 0))


class Transactional:
    """A transactional id on one broker, with the producer that it was given; `epoch` and `producer_id` may be bent."""

    def __init__(self, peer: Peer, name: str) -> None:
        self.peer, self.name, self.sequences = peer, name, 0
        coordinated(peer, name, TRANSACTION)
        self.producer_id = self.epoch = -1
        self.init()

    def init(self) -> None:
        """A new epoch; an open transaction is aborted."""
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=60_000)

        def given() -> bool:
            answer = self.peer.setup(request, 4)
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            return bool(answer.error_code == 0)

        until(given)
        self.sequences = 0

    def settled(self) -> str:
        """Its state when no outcome is on its way any more."""
        states: list[str] = []

        def resting() -> bool:
            asked = DescribeTransactionsRequest(transactional_ids=[self.name])
            states.append(self.peer.setup(asked, 0).transaction_states[0].transaction_state)
            return not states[-1].startswith("Prepare")

        until(resting)
        return states[-1]

    def add(self, version: int, *names: tuple[str, list[int]], verify_only: bool = False) -> Any:
        """AddPartitionsToTxn; the error of each partition, or of all."""
        topics = [AddPartitionsToTxnTopic(name=name, partitions=partitions) for name, partitions in names]
        if version < FIRST_BETWEEN_BROKERS:
            answer = self.peer.setup(
                AddPartitionsToTxnRequest(
                    v3_and_below_transactional_id=self.name,
                    v3_and_below_producer_id=self.producer_id,
                    v3_and_below_producer_epoch=self.epoch,
                    v3_and_below_topics=topics,
                ),
                version,
            )
            results = answer.results_by_topic_v3_and_below
        else:
            transaction = AddPartitionsToTxnRequest.Transaction(
                transactional_id=self.name,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                verify_only=verify_only,
                topics=topics,
            )
            answer = self.peer.setup(AddPartitionsToTxnRequest(transactions=[transaction]), version)
            results = [each for one in answer.results_by_transaction for each in one.topic_results]
        return [
            answer.error_code,
            sorted((each.name, one.partition_index, one.partition_error_code)
                   for each in results for one in each.results_by_partition),
        ]  # fmt: skip

    def end(self, version: int, committed: bool) -> tuple[int, int | None, bool | None]:
        """EndTxn, asked again while another outcome is on its way: error, and what became of epoch and producer id."""
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=committed,
        )
        self.settled()
        answer = self.peer.setup(request, version)
        self.settled()
        if answer.error_code or version < 5:
            return answer.error_code, None, None
        return answer.error_code, answer.producer_epoch - self.epoch, answer.producer_id == self.producer_id

    def batch(self, sequence: int, **other: Any) -> bytes:
        builder = RecordBatchBuilder()
        builder.append(T0, b"k", b"v")
        stamp = {"producer_id": self.producer_id, "producer_epoch": self.epoch, "base_sequence": sequence}
        return builder.build(0, transactional=True, **(stamp | other))


@scenario(ApiKeys.END_TXN)
def end_txn(peer: Peer, version: int) -> None:
    peer.create_topic(f"end-{version}")

    def brought_to(state: str, number: int) -> Transactional:
        made = Transactional(peer, f"end-{version}-{number}")
        if state != "Empty":
            made.add(3, (f"end-{version}", [0]))
        if state.startswith("Complete"):
            assert made.end(version, state == "CompleteCommit")[0] == 0
            if version >= 5:
                made.epoch += 1
        assert made.settled() == state
        return made

    number = 0
    for state in ("Empty", "Ongoing", "CompleteCommit", "CompleteAbort"):
        for committed in (True, False):
            for bent, epochs, ids in (
                ("current", 0, 0), ("retry", -1, 0), ("older", -2, 0), ("newer", 1, 0), ("other id", 0, 1),
            ):  # fmt: skip
                number += 1
                made = brought_to(state, number)
                made.epoch += epochs
                made.producer_id += ids
                label = f"{state} {'commit' if committed else 'abort'} {bent}"
                peer.note(label, made.end(version, committed))
                peer.note(f"{label}, then", made.settled())
                peer.note(f"{label}, again", made.end(version, committed))
    nobody = brought_to("Empty", 0)
    nobody.name = f"end-nobody-{version}"
    request = EndTxnRequest(transactional_id=nobody.name, producer_id=1, producer_epoch=0, committed=True)
    peer.note("nobody", peer.setup(request, version).error_code)


@scenario(ApiKeys.ADD_PARTITIONS_TO_TXN)
def add_partitions_to_txn(peer: Peer, version: int) -> None:
    name = f"apt-{version}"
    peer.create_topic(name, 3)
    producer = Transactional(peer, name)

    def note(label: str, *topics: tuple[str, list[int]], **how: Any) -> None:
        peer.note(label, producer.add(version, *topics, **how))
        peer.note(f"{label}, then", producer.settled())

    note("unknown topic", ("apt-missing", [0]))
    note("unknown partition", (name, [0, 9]))
    if version >= FIRST_BETWEEN_BROKERS:
        note("verified before", (name, [0]), verify_only=True)
    note("one", (name, [0]))
    note("the same", (name, [0]))
    note("two more", (name, [1, 2]))
    if version >= FIRST_BETWEEN_BROKERS:
        note("verified", (name, [0, 2]), verify_only=True)
    producer.epoch += 1
    note("newer epoch", (name, [0]))
    producer.epoch -= 2
    note("older epoch", (name, [0]))
    producer.epoch += 1
    producer.producer_id += 1
    note("other id", (name, [0]))
    producer.producer_id -= 1
    if version < FIRST_BETWEEN_BROKERS:
        producer.end(3, False)
    else:
        bumps = peer.can(ApiKeys.END_TXN, 5)
        producer.end(5 if bumps else 3, False)
        note("verified afterwards, old epoch", (name, [0]), verify_only=True)
        producer.epoch += bumps
        note("verified afterwards", (name, [0]), verify_only=True)


@scenario(ApiKeys.ADD_OFFSETS_TO_TXN)
def add_offsets_to_txn(peer: Peer, version: int) -> None:
    name = f"aot-{version}"
    coordinated(peer, name, GROUP)
    producer = Transactional(peer, name)
    for label, epochs, ids in (("current", 0, 0), ("older", -1, 0), ("newer", 1, 0), ("other id", 0, 1)):
        request = AddOffsetsToTxnRequest(
            transactional_id=name,
            producer_id=producer.producer_id + ids,
            producer_epoch=producer.epoch + epochs,
            group_id=name,
        )
        peer.note(label, peer.setup(request, version).error_code)
        peer.note(f"{label}, then", producer.settled())


@scenario(ApiKeys.TXN_OFFSET_COMMIT)
def txn_offset_commit(peer: Peer, version: int) -> None:
    name = f"toc-{version}"
    peer.create_topic(name)
    coordinated(peer, name, GROUP)
    producer = Transactional(peer, name)
    Topic = TxnOffsetCommitRequest.Topic

    def note(label: str, epochs: int = 0, ids: int = 0, topic: str = name, group: str = name) -> None:
        asked = Topic.Partition(partition_index=0, committed_offset=5, committed_metadata="m")
        request = TxnOffsetCommitRequest(
            transactional_id=name,
            group_id=group,
            producer_id=producer.producer_id + ids,
            producer_epoch=producer.epoch + epochs,
            topics=[Topic(name=topic, partitions=[asked])],
        )
        codes: list[int] = []

        def answered() -> bool:
            codes.append(peer.setup(request, version).topics[0].partitions[0].error_code)
            return codes[-1] not in (14, 15, 16)

        until(answered)
        peer.note(label, codes[-1])

    note("nothing was added")
    add = AddOffsetsToTxnRequest(
        transactional_id=name, producer_id=producer.producer_id, producer_epoch=producer.epoch, group_id=name
    )
    peer.setup(add, 3)
    note("added")
    note("older", -1)
    # A newer epoch is left out: Kafka 3.9 takes it, and then never gets its marker written.
    note("other id", 0, 1)
    note("unknown topic", topic="toc-missing")
    note("no group", group="")
    peer.note("then", producer.end(3, True)[0])
    producer.settled()


@scenario(ApiKeys.PRODUCE)
def produce_transactional(peer: Peer, version: int) -> None:
    if version < 3:
        return  # message sets are in no transaction
    name = f"pt-{version}"
    topic_id = peer.create_topic(name, 3)
    producer = Transactional(peer, name)

    def note(label: str, *batches: bytes, transactional_id: str = name) -> None:
        entries = [ProduceRequest.Topic.Partition(index=index, records=data) for index, data in enumerate(batches)]
        topic = ProduceRequest.Topic(partition_data=entries)
        if version >= 13:
            topic.topic_id = topic_id
        else:
            topic.name = name
        request = ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=10_000, topic_data=[topic])
        answer = peer.setup(request, version)
        found = sorted((each.index, each.error_code, each.base_offset)
                       for topic in answer.responses for each in topic.partition_responses)  # fmt: skip
        peer.note(label, found)
        peer.note(f"{label}, then", producer.settled())

    note("nobody", producer.batch(0), transactional_id="pt-nobody")
    note("older epoch", producer.batch(0, producer_epoch=producer.epoch - 1 if producer.epoch else 32_000))
    note("other id", producer.batch(0, producer_id=producer.producer_id + 1))
    note("two producers", producer.batch(0), producer.batch(0, producer_id=producer.producer_id + 1))
    note("two epochs", producer.batch(0), producer.batch(0, producer_epoch=producer.epoch + 1))
    if version < FIRST_THAT_ADDS:
        note("nothing was added", producer.batch(0))
        producer.add(3, (name, [0, 1]))
    else:
        note("first sequence 5", producer.batch(0), producer.batch(5))
    note("first", producer.batch(0))
    note("again", producer.batch(0))
    note("next", producer.batch(1), producer.batch(0))
    end = 5 if version >= FIRST_THAT_ADDS else 3
    peer.note("commit", producer.end(end, True))
    note("after the end", producer.batch(2), producer.batch(1))
    if version >= FIRST_THAT_ADDS:
        producer.epoch += 1
        note("next transaction", producer.batch(0))
        peer.note("abort", producer.end(end, False))


@scenario(ApiKeys.LIST_TRANSACTIONS)
def list_transactions(peer: Peer, version: int) -> None:
    peer.create_topic(f"lt-{version}")
    names = [f"lt-{version}-{kind}" for kind in ("empty", "ongoing", "committed")]
    producers = [Transactional(peer, name) for name in names]
    for producer in producers[1:]:
        producer.add(3, (f"lt-{version}", [0]))
    producers[2].end(3, True)

    def note(label: str, **filters: Any) -> None:
        request = ListTransactionsRequest(**({"state_filters": [], "producer_id_filters": []} | filters))
        answer = peer.setup(request, version)
        mine = {each.transactional_id: each.transaction_state for each in answer.transaction_states}
        shown = {name: state for name, state in mine.items() if name in names}
        peer.note(label, [answer.error_code, sorted(answer.unknown_state_filters), shown])

    note("all")
    note("ongoing", state_filters=["Ongoing"])
    note("unknown state", state_filters=["Ongoing", "Dancing"])
    note("by id", producer_id_filters=[producers[0].producer_id])
    if version >= 1:
        note("older than an hour", duration_filter=3_600_000)
        note("older than nothing", duration_filter=0, producer_id_filters=[producers[2].producer_id])
    if version >= 2:
        for pattern in (f"lt-{version}-.*", "lt", ".*ongoing", "", "(", "[", "*", f"lt-{version}-(empty|ongoing)"):
            note(f"pattern {pattern!r}", transactional_id_pattern=pattern)
    producers[1].end(3, False)
