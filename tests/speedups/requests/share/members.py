"""A broker's share partitions without sockets: members are drivers, the share coordinator is a dict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from speedups.conftest import MemoryBroker

from kafkapy._speedups.requests.share.state_write import StateWrite
from kafkapy._speedups.requests.share.table import ShareTable
from kafkapy._speedups.testing.request_driver import Exchange, RequestDriver
from kafkapy.protocol.messages.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from kafkapy.protocol.messages.share_fetch import ShareFetchRequest, ShareFetchResponse

SHARE_FETCH, SHARE_ACKNOWLEDGE = 78, 79
SETTINGS = (30_000, 2000, 5, False, False, True)

Batches = Sequence[tuple[int, int, Sequence[int]]]


class ShareBroker(MemoryBroker):
    """The table of share partitions, and what Python does for it."""

    def __init__(self, *, max_sessions: int = 100, max_partitions: int = 1000, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.shares = ShareTable(self.plane, max_sessions, max_partitions)
        self.shares.enabled = True
        self.settings: tuple[int, int, int, bool, bool, bool] = SETTINGS
        self.states: dict[tuple[str, bytes, int], tuple[int, list[tuple[int, int, int, int]]]] = {}
        self.writes: list[StateWrite] = []
        self.emptied: list[str] = []
        self.held = False
        """Whether writes stay under way."""

    def serve(self) -> None:
        """Load, write and hear what the data plane wants."""
        while True:
            loads, writes, emptied = self.shares.take()
            self.emptied += emptied
            for each in loads:
                key = (each[1], each[3], each[4])
                start, batches = self.states.get(key, (0, []))
                self.shares.loaded(each[0], 0, self.settings, start, batches)
            self.writes += writes
            if not self.held:
                for write in self.writes:
                    start, batches = self.states.get(write.key, (0, []))
                    start = max(start, write.start_offset)
                    kept = [(max(each[0], start), *each[1:]) for each in [*batches, *write.batches] if each[1] >= start]
                    self.states[write.key] = (start, kept)
                    write.finish()
                self.writes.clear()
            if not loads and not writes:
                return

    def member(self, name: str, group: str = "g") -> Member:
        return Member(self, name, group)

    def share(self, topic: str, partition: int = 0, group: str = "g") -> dict[str, Any]:
        found = self.shares.describe(group, self.topic_id(topic), partition)
        assert found is not None
        return found


class Member:
    """One member of a share group with a connection and a session."""

    def __init__(self, broker: ShareBroker, name: str, group: str) -> None:
        self.broker = broker
        self.name = name
        self.group = group
        self.driver = RequestDriver(broker.plane)
        self.epoch = 0

    def fetch_exchange(
        self,
        topics: Sequence[tuple[str, int]] = (),
        *,
        epoch: int | None = None,
        version: int = 2,
        acks: dict[tuple[str, int], Batches] | None = None,
        forgotten: Sequence[tuple[str, int]] = (),
        max_records: int = 500,
        max_wait_ms: int = 60_000,
        min_bytes: int = 1,
        max_bytes: int = 1 << 20,
        batch_size: int = 500,
        **fields: Any,
    ) -> Exchange:
        partition = ShareFetchRequest.Topic.Partition
        acks = acks or {}
        request = ShareFetchRequest(
            group_id=self.group,
            member_id=self.name,
            share_session_epoch=self.epoch if epoch is None else epoch,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            max_records=max_records,
            batch_size=batch_size,
            topics=[
                ShareFetchRequest.Topic(
                    topic_id=self.broker.uuid(name),
                    partitions=[
                        partition(
                            partition_index=index,
                            acknowledgement_batches=[
                                partition.AcknowledgementBatch(
                                    first_offset=first, last_offset=last, acknowledge_types=list(types)
                                )
                                for first, last, types in acks.get((name, index), ())
                            ],
                        )
                    ],
                )
                for name, index in [*topics, *(each for each in acks if each not in topics)]
            ],
            forgotten_topics_data=[
                ShareFetchRequest.ForgottenTopic(topic_id=self.broker.uuid(name), partitions=[index])
                for name, index in forgotten
            ],
            **fields,
        )
        if epoch is None:
            self.epoch += 1
        self.broker.correlation_id += 1
        return self.driver.handle(SHARE_FETCH, version, self.broker.correlation_id, "test", request.encode(version))

    def fetch(self, topics: Sequence[tuple[str, int]] = (), *, version: int = 2, **fields: Any) -> ShareFetchResponse:
        """Sends a ShareFetch; when nobody wakes it, its max wait is over."""
        exchange = self.fetch_exchange(topics, version=version, **fields)
        return self.answer(exchange, version)

    def answer(self, exchange: Exchange, version: int = 2) -> ShareFetchResponse:
        for _ in range(100):
            self.broker.serve()
            if exchange.kind != "parked":
                break
            exchange.resume(timed_out=not exchange.wakes)
        return self.reply(exchange, version)

    def reply(self, exchange: Exchange, version: int = 2) -> ShareFetchResponse:
        assert exchange.kind == "reply", (exchange.kind, exchange.message)
        assert exchange.reply is not None
        body = exchange.reply[9:]
        response = ShareFetchResponse.decode(body, version)
        assert response.encode(version) == body
        return response

    def acknowledge_exchange(
        self,
        acks: dict[tuple[str, int], Batches],
        *,
        epoch: int | None = None,
        version: int = 2,
        **fields: Any,
    ) -> Exchange:
        partition = ShareAcknowledgeRequest.Topic.Partition
        request = ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.name,
            share_session_epoch=self.epoch if epoch is None else epoch,
            topics=[
                ShareAcknowledgeRequest.Topic(
                    topic_id=self.broker.uuid(name),
                    partitions=[
                        partition(
                            partition_index=index,
                            acknowledgement_batches=[
                                partition.AcknowledgementBatch(
                                    first_offset=first, last_offset=last, acknowledge_types=list(types)
                                )
                                for first, last, types in batches
                            ],
                        )
                    ],
                )
                for (name, index), batches in acks.items()
            ],
            **fields,
        )
        if epoch is None:
            self.epoch += 1
        self.broker.correlation_id += 1
        return self.driver.handle(
            SHARE_ACKNOWLEDGE, version, self.broker.correlation_id, "test", request.encode(version)
        )

    def acknowledge(
        self, acks: dict[tuple[str, int], Batches], *, version: int = 2, **fields: Any
    ) -> ShareAcknowledgeResponse:
        exchange = self.acknowledge_exchange(acks, version=version, **fields)
        for _ in range(100):
            self.broker.serve()
            if exchange.kind != "parked":
                break
            if exchange.wakes:
                exchange.resume()
        return self.acknowledge_reply(exchange, version)

    @staticmethod
    def acknowledge_reply(exchange: Exchange, version: int = 2) -> ShareAcknowledgeResponse:
        assert exchange.kind == "reply", (exchange.kind, exchange.message)
        assert exchange.reply is not None
        body = exchange.reply[9:]
        response = ShareAcknowledgeResponse.decode(body, version)
        assert response.encode(version) == body
        return response


def acquired(response: ShareFetchResponse) -> dict[tuple[UUID, int], list[tuple[int, int, int]]]:
    """{(topic id, partition): [(first, last, delivery count), ...]} of partitions with acquired records."""
    return {
        (topic.topic_id, entry.partition_index): [
            (each.first_offset, each.last_offset, each.delivery_count) for each in entry.acquired_records
        ]
        for topic in response.responses
        for entry in topic.partitions
        if entry.acquired_records
    }


def ranges(response: ShareFetchResponse) -> list[tuple[int, int, int]]:
    """The acquired records of the one partition that has any; [] for none."""
    found = acquired(response)
    assert len(found) <= 1
    return next(iter(found.values()), [])


def acknowledged(response: Any) -> dict[int, int]:
    """{partition: error} of a ShareAcknowledge."""
    return {entry.partition_index: entry.error_code for topic in response.responses for entry in topic.partitions}
