"""Dead letters of share groups (KIP-1191): rejected and exhausted records go to a topic of the group's choice.

A share group with errors.deadletterqueue.topic.name has dead letters. The name begins with
errors.deadletterqueue.topic.name.prefix, and the topic allows them by errors.deadletterqueue.group.enable. A missing
topic is created with errors.deadletterqueue.auto.create.topics.enable. A dead letter names its record in headers; with
errors.deadletterqueue.copy.record.enable it has the record's key, value and headers too. The partition has the number
of the record's partition, modulo the number of partitions. Source: ShareGroupDLQStateManager.

A dead letter that cannot be written after all attempts is given up with an error in the log, and its record is archived
all the same: the group goes on.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from kafkapy.errors import KafkaError
from kafkapy.records.batches import RecordBatchBuilder
from kafkapy.types import TopicPartition

if TYPE_CHECKING:
    from kafkapy._speedups.records.memory_records import Record
    from kafkapy.coordinator.group.share.config import ShareGroupConfigs

logger = logging.getLogger("kafka.server.share.ShareGroupDLQManager")

ATTEMPTS: Final = 5
FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 30.0
BATCH_OVERHEAD: Final = 61

TOPIC, PARTITION, OFFSET = "__dlq.errors.topic", "__dlq.errors.partition", "__dlq.errors.offset"
GROUP, DELIVERY_COUNT, MESSAGE = "__dlq.errors.group", "__dlq.errors.delivery.count", "__dlq.errors.message"

REJECTED: Final = "The consumer rejected the record"
EXHAUSTED: Final = "The record was delivered as often as the group allows"


class DeadLetter(NamedTuple):
    """Records of one share partition that become dead letters, from the first offset to the last."""

    group_id: str
    topic: str
    topic_id: bytes
    partition: int
    first: int
    last: int
    delivery_count: int


class Found(NamedTuple):
    """Records of a log by their offsets; all offsets up to `last` were looked at."""

    records: Mapping[int, Record]
    last: int


class DeadLetterTopic(NamedTuple):
    """A topic that takes dead letters."""

    name: str
    partitions: int
    max_message_bytes: int


class DeadLetterError(Exception):
    """A group's dead letters are configured so that none can be written."""


class Mail(Protocol):
    """The cluster as dead letters need it."""

    async def topic(self, name: str) -> DeadLetterTopic:
        """The topic, which may be created first. DeadLetterError when it takes no dead letters; KafkaError."""

    async def records(self, partition: TopicPartition, first: int, last: int, max_bytes: int) -> Found:
        """Records of a log from an offset on, some or all of them. KafkaError, OSError."""

    async def produce(self, partition: TopicPartition, batch: bytes) -> None:
        """Append a batch with acks=all. KafkaError."""


class DeadLetters:
    """Writes dead letters, those of one share partition one after the other. On the control loop.

    `done` is told of each letter that is written or given up.
    """

    def __init__(
        self, mail: Mail, configs: Callable[[str], ShareGroupConfigs], done: Callable[[DeadLetter], None]
    ) -> None:
        self._mail = mail
        self._configs = configs
        self._done = done
        self._queues: dict[tuple[str, bytes, int], deque[DeadLetter]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def send(self, letter: DeadLetter) -> None:
        """Write a letter behind the earlier ones of its share partition."""
        key = letter[0], letter[2], letter[3]
        queue = self._queues.get(key)
        if queue is not None:
            queue.append(letter)
            return
        self._queues[key] = deque([letter])
        task = asyncio.get_running_loop().create_task(self._work(key))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Write no more. Unwritten letters are sent by the next leader of their share partition."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._queues.clear()

    async def _work(self, key: tuple[str, bytes, int]) -> None:
        queue = self._queues[key]
        try:
            while queue:
                letter = queue.popleft()
                await self._deliver(letter)
                self._done(letter)
        finally:
            self._queues.pop(key, None)

    async def _deliver(self, letter: DeadLetter) -> None:
        offset, attempt = letter.first, 0
        while offset <= letter.last:
            configs = self._configs(letter.group_id)
            if not configs.dead_letter_topic:
                return
            try:
                topic = await self._mail.topic(configs.dead_letter_topic)
                offset = await self._send_some(letter, offset, topic, configs)
                attempt = 0
            except DeadLetterError as error:
                _give_up(letter, error)
                return
            except (KafkaError, OSError) as error:
                attempt += 1
                if attempt == ATTEMPTS:
                    _give_up(letter, error)
                    return
                await asyncio.sleep(min(FIRST_PAUSE_S * 2 ** (attempt - 1), LONGEST_PAUSE_S))

    async def _send_some(
        self, letter: DeadLetter, offset: int, topic: DeadLetterTopic, configs: ShareGroupConfigs
    ) -> int:
        """Send one batch; the offset behind its letters."""
        found = Found({}, letter.last)
        if configs.dead_letter_copy:
            source = TopicPartition(letter.topic, letter.partition)
            found = await self._mail.records(source, offset, letter.last, topic.max_message_bytes)
        builder = RecordBatchBuilder(topic.max_message_bytes)
        reason = EXHAUSTED if letter.delivery_count >= configs.delivery_count_limit else REJECTED
        now_ms = time.time_ns() // 1_000_000
        for each in range(offset, max(min(letter.last, found.last), offset) + 1):
            headers = _headers(letter, each, reason)
            record = found.records.get(each)
            if record is not None:
                headers = [*record.headers, *headers]
            key, value = (None, None) if record is None else (record.key, record.value)
            if builder.append(now_ms, key, value, headers) is None:
                break
            if builder.size > topic.max_message_bytes:
                # No batch of the topic takes the whole record: the letter only names it.
                builder = RecordBatchBuilder(topic.max_message_bytes)
                builder.append(now_ms, None, None, _headers(letter, each, reason))
                if builder.size > topic.max_message_bytes:
                    raise DeadLetterError(f"topic {topic.name} takes no batch of this size")
            offset = each + 1
        await self._mail.produce(TopicPartition(topic.name, letter.partition % topic.partitions), builder.build())
        return offset


def _headers(letter: DeadLetter, offset: int, reason: str) -> list[tuple[str, bytes | None]]:
    """The headers that name a record."""
    return [
        (TOPIC, letter.topic.encode()),
        (PARTITION, str(letter.partition).encode()),
        (OFFSET, str(offset).encode()),
        (GROUP, letter.group_id.encode()),
        (DELIVERY_COUNT, str(letter.delivery_count).encode()),
        (MESSAGE, reason.encode()),
    ]


def _give_up(letter: DeadLetter, error: Exception) -> None:
    logger.error(
        "Dead letters of share group %s for %s-%d, offsets %d to %d, cannot be written; the records are archived: %s",
        letter.group_id,
        letter.topic,
        letter.partition,
        letter.first,
        letter.last,
        error,
    )
