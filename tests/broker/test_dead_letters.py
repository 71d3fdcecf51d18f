"""Dead letters of share groups: their headers, batches, attempts and order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from waiting import until

from kafkapy.broker import dead_letters
from kafkapy.broker.dead_letters import (
    ATTEMPTS,
    EXHAUSTED,
    REJECTED,
    DeadLetter,
    DeadLetterError,
    DeadLetters,
    DeadLetterTopic,
    Found,
)
from kafkapy.coordinator.group.share.config import ShareGroupConfigs
from kafkapy.errors import ErrorCode, error_for
from kafkapy.records.batches import Record, iter_records
from kafkapy.types import TopicPartition

TOPIC_ID = bytes(range(16))


def letter(first: int, last: int, count: int = 1, partition: int = 0) -> DeadLetter:
    return DeadLetter("workers", "jobs", TOPIC_ID, partition, first, last, count)


class MemoryMail:
    """A cluster with one topic for dead letters."""

    def __init__(self, max_message_bytes: int = 1 << 20) -> None:
        self.written: list[tuple[TopicPartition, list[Record]]] = []
        self.log = {offset: Record(offset, 5, 0, b"k%d" % offset, b"v" * 10, [("h", b"1")]) for offset in range(10)}
        self.failures: list[Exception] = []
        self.refusal: DeadLetterError | None = None
        self.max_message_bytes = max_message_bytes
        self.readable = 100

    async def topic(self, name: str) -> DeadLetterTopic:
        if self.refusal is not None:
            raise self.refusal
        return DeadLetterTopic(name, 3, self.max_message_bytes)

    async def records(self, partition: TopicPartition, first: int, last: int, max_bytes: int) -> Found:
        end = min(last, first + self.readable - 1)
        return Found({offset: self.log[offset] for offset in range(first, end + 1) if offset in self.log}, end)

    async def produce(self, partition: TopicPartition, batch: bytes) -> None:
        if self.failures:
            raise self.failures.pop(0)
        self.written.append((partition, list(iter_records(batch))))


def deliver(mail: MemoryMail, letters: list[DeadLetter], **configs: Any) -> list[DeadLetter]:
    done: list[DeadLetter] = []
    keys: dict[str, Any] = {"dead_letter_topic": "dlq.jobs", **configs}

    async def run() -> None:
        box = DeadLetters(mail, lambda group: ShareGroupConfigs(**keys), done.append)
        for each in letters:
            box.send(each)
        await until(lambda: len(done) == len(letters), "all letters are done")
        await box.stop()

    asyncio.run(run())
    return done


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "FIRST_PAUSE_S", 0.0)


def test_a_letter_names_its_record() -> None:
    mail = MemoryMail()
    deliver(mail, [letter(3, 4, count=2, partition=5)])
    ((partition, records),) = mail.written
    assert partition == TopicPartition("dlq.jobs", 2)
    assert [(record.key, record.value) for record in records] == [(None, None), (None, None)]
    assert list(records[1].headers) == [
        ("__dlq.errors.topic", b"jobs"),
        ("__dlq.errors.partition", b"5"),
        ("__dlq.errors.offset", b"4"),
        ("__dlq.errors.group", b"workers"),
        ("__dlq.errors.delivery.count", b"2"),
        ("__dlq.errors.message", REJECTED.encode()),
    ]


def test_a_copy_has_key_value_and_headers_of_the_record() -> None:
    mail = MemoryMail()
    deliver(mail, [letter(3, 3, count=5)], dead_letter_copy=True)
    ((_, (record,)),) = mail.written
    assert (record.key, record.value, record.headers[0]) == (b"k3", b"v" * 10, ("h", b"1"))
    assert record.headers[-1] == ("__dlq.errors.message", EXHAUSTED.encode())


def test_records_that_are_gone_are_only_named() -> None:
    mail = MemoryMail()
    del mail.log[4]
    deliver(mail, [letter(3, 5)], dead_letter_copy=True)
    ((_, records),) = mail.written
    assert [record.value for record in records] == [b"v" * 10, None, b"v" * 10]


@pytest.mark.parametrize("readable", [1, 2])
def test_a_range_is_sent_as_far_as_it_was_read(readable: int) -> None:
    mail = MemoryMail()
    mail.readable = readable
    deliver(mail, [letter(0, 4)], dead_letter_copy=True)
    assert [record.value for _, records in mail.written for record in records] == [b"v" * 10] * 5
    assert max(len(records) for _, records in mail.written) == readable


def test_batches_fit_the_topic() -> None:
    mail = MemoryMail(max_message_bytes=500)
    deliver(mail, [letter(0, 9)])
    offsets = [dict(record.headers)["__dlq.errors.offset"] for _, records in mail.written for record in records]
    assert offsets == [b"%d" % offset for offset in range(10)]
    assert len(mail.written) > 1


def test_a_record_that_no_batch_takes_is_only_named() -> None:
    mail = MemoryMail(max_message_bytes=500)
    mail.log[0] = Record(0, 5, 0, None, b"v" * 1000, ())
    deliver(mail, [letter(0, 1)], dead_letter_copy=True)
    assert [record.value for _, records in mail.written for record in records] == [None, b"v" * 10]


def test_a_letter_is_tried_again() -> None:
    mail = MemoryMail()
    mail.failures = [error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER)] * (ATTEMPTS - 1)
    deliver(mail, [letter(0, 0), letter(1, 1)])
    assert len(mail.written) == 2


@pytest.mark.parametrize(
    "fail",
    [
        pytest.param(
            lambda mail: setattr(mail, "failures", [error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER)] * ATTEMPTS),
            id="all attempts",
        ),
        pytest.param(lambda mail: setattr(mail, "refusal", DeadLetterError("not allowed")), id="refused"),
    ],
)
def test_a_letter_that_cannot_be_written_is_given_up(
    fail: Callable[[MemoryMail], None], caplog: pytest.LogCaptureFixture
) -> None:
    mail = MemoryMail()
    fail(mail)
    assert deliver(mail, [letter(0, 0)]) == [letter(0, 0)]
    assert mail.written == []
    assert "cannot be written" in caplog.text


def test_without_a_topic_there_are_no_letters() -> None:
    mail = MemoryMail()
    assert deliver(mail, [letter(0, 0)], dead_letter_topic="") == [letter(0, 0)]
    assert mail.written == []


def test_a_stop_ends_a_letter_under_way() -> None:
    mail = MemoryMail()
    mail.failures = [error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER)] * 3
    done: list[DeadLetter] = []

    async def run() -> None:
        box = DeadLetters(mail, lambda group: ShareGroupConfigs(dead_letter_topic="dlq"), done.append)
        box.send(letter(0, 0))
        await asyncio.sleep(0)
        await box.stop()

    asyncio.run(run())
    assert done == []
