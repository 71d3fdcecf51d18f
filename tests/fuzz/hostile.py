"""A broker with limits in force, a well-behaved client beside it, and rounds of perf/native/hostile.c against it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import measure
from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient, NewTopic
from fuzz.corpus import write_corpus
from fuzz.frames import FUZZ_TOPIC, Maker, served_versions

from kafkapy.testing.broker_process import BrokerProcess
from kafkapy.types import ZERO_UUID

MEGABYTE = 1 << 20
LIMITS = ("--nofile=4096:4096", f"--fsize={256 * MEGABYTE}", f"--as={6 * 1024 * MEGABYTE}")
"""Of the broker: descriptors, the size of any file (its own log is one), and address space."""
OVERRIDES = {
    # What is made here lasts in Kafka too: nothing is to be left of it but what hurts.
    "auto.create.topics.enable": "false",
    "socket.request.max.bytes": str(16 * MEGABYTE),
    "log.segment.bytes": str(MEGABYTE),
    "log.retention.bytes": str(4 * MEGABYTE),
    "log.retention.check.interval.ms": "2000",
    "log.segment.delete.delay.ms": "500",
    "offsets.retention.minutes": "1",
    "offsets.retention.check.interval.ms": "5000",
    "producer.id.expiration.ms": "10000",
    "producer.id.expiration.check.interval.ms": "2000",
    "transactional.id.expiration.ms": "20000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "5000",
}


@contextmanager
def limited_broker(folder: Path) -> Iterator[BrokerProcess]:
    """A running broker under LIMITS; they are not those of AddressSanitizer, which needs all of the address space."""
    broker = BrokerProcess(
        folder, OVERRIDES, command=["prlimit", *LIMITS, sys.executable, "-m", "kafkapy.tools.server"]
    )
    try:
        yield broker.start()
    finally:
        broker.remove()


def tidy(broker: BrokerProcess, kept: set[str]) -> None:
    """Deletes the topics that the frames have made, and makes FUZZ_TOPIC again where they have deleted it."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    there = {name for name in admin.list_topics(timeout=60).topics if not name.startswith("__")}
    if doomed := sorted(there - kept - {FUZZ_TOPIC}):
        for gone in admin.delete_topics(doomed, operation_timeout=60).values():
            gone.exception(60)
    if FUZZ_TOPIC not in there:
        admin.create_topics([NewTopic(FUZZ_TOPIC, 2, 1)])[FUZZ_TOPIC].result(60)


def hammer_natively(broker: BrokerProcess, folder: Path, frames: int, seed: int, native: int) -> dict[str, Any]:
    """One round, `native` of a hundred frames for the data plane itself; what perf/native/hostile.c says of it.

    An AssertionError names the command that shows a frame.
    """
    from uuid import UUID

    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    described = admin.describe_topics(TopicCollection([FUZZ_TOPIC]))[FUZZ_TOPIC].result(60).topic_id
    number = (described.get_most_significant_bits() % 2**64) << 64 | described.get_least_significant_bits() % 2**64
    corpus = folder / f"corpus-{seed}"
    write_corpus(corpus, Maker(seed, UUID(int=number) if number else ZERO_UUID), served_versions(broker.bootstrap))
    command = [str(measure.native("hostile")), "--corpus", str(corpus), "--seed", str(seed), "--native", str(native)]
    done = subprocess.run(
        [*command, "--port", str(broker.port), "--frames", str(frames), "--pid", str(broker.pid)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{done.stderr[-2000:]} (a frame: {' '.join(command)} --show N)\n{broker.log_tail()}"
    said: dict[str, Any] = json.loads(done.stdout)
    corpus.unlink()
    return said
