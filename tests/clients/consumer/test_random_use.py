"""Seeks, pauses, questions and reads in random order: each record is the one at the position, and nothing stalls."""

from __future__ import annotations

import random
import time

import pytest
from confluent_kafka import Producer

from kafkapy import KafkaConsumer
from kafkapy.testing import Broker
from kafkapy.types import TopicPartition

PARTITIONS = 4
STALL_S = 20.0


class Model:
    """A topic, a consumer of it, and where the consumer has to be."""

    def __init__(self, broker: Broker, seed: int) -> None:
        self.random = random.Random(seed)
        self.producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 1, "batch.size": 3000})
        self.topic = f"random-{seed}"
        broker.create_topic(self.topic, PARTITIONS)
        self.ends = [0] * PARTITIONS
        self.positions = [0] * PARTITIONS
        self.paused: set[int] = set()
        self.produce(3000)
        self.consumer = KafkaConsumer(
            bootstrap_servers=broker.bootstrap_servers,
            auto_offset_reset="earliest",
            max_partition_fetch_bytes=self.random.choice([500, 5000, 100_000]),
            fetch_max_bytes=self.random.choice([1000, 20_000, 1_000_000]),
            fetch_max_wait_ms=20,
        )
        self.consumer.assign([self.place(number) for number in range(PARTITIONS)])
        self.moved_at = time.monotonic()

    def place(self, number: int) -> TopicPartition:
        return TopicPartition(self.topic, number)

    def produce(self, count: int) -> None:
        for _ in range(count):
            number = self.random.randrange(PARTITIONS)
            self.producer.produce(self.topic, b"%d" % self.ends[number], partition=number)
            self.ends[number] += 1
        assert self.producer.flush(30) == 0

    def step(self) -> None:
        number = self.random.randrange(PARTITIONS)
        choice = self.random.random()
        if choice < 0.05:
            self.positions[number] = self.random.randrange(self.ends[number] + 1)
            self.consumer.seek(self.place(number), self.positions[number])
        elif choice < 0.08:
            self.consumer.pause(self.place(number))
            self.paused.add(number)
        elif choice < 0.13:
            self.consumer.resume(*(self.place(each) for each in self.paused))
            self.paused.clear()
        elif choice < 0.15:
            self.produce(self.random.randrange(50))
        elif choice < 0.16:
            self.consumer.seek_to_beginning(self.place(number))
            self.positions[number] = 0
        elif choice < 0.17:
            assert self.consumer.position(self.place(number)) == self.positions[number]
        else:
            self.read()

    def read(self) -> None:
        count = self.random.choice([1, 7, 100, 2000])
        timeout_ms = self.random.choice([0, 0, 5])
        if self.random.random() < 0.5:
            by_partition = self.consumer.poll(timeout_ms, count)
            records = [record for found in by_partition.values() for record in found]
        else:
            records = self.consumer.poll_batch(count, timeout_ms)
        assert len(records) <= count
        for record in records:
            assert record.partition not in self.paused
            assert record.offset == self.positions[record.partition] == int(record.value)
            self.positions[record.partition] += 1
        behind = any(
            self.positions[number] < self.ends[number] for number in range(PARTITIONS) if number not in self.paused
        )
        if records or not behind:
            self.moved_at = time.monotonic()
        assert time.monotonic() - self.moved_at < STALL_S, "there is something to read, and nothing comes"


def use(seed: int, seconds: float) -> None:
    with Broker() as broker:
        model = Model(broker, seed)
        with model.consumer:
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                model.step()


def test_random_use() -> None:
    use(5, 1.5)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(30))
def test_random_use_for_long(seed: int) -> None:
    use(seed, 10)
