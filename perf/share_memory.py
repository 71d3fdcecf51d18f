"""Memory of full windows: one member of a share group holds 2,000 records of each of 1,000 share partitions, over the
wire; then it has accepted every second one, so that each record has a state of its own.

    .venv/bin/python perf/share_memory.py [--partitions 1000] [--window 2000] [--width 100]

`--width`: records of a log batch. Prints the broker's resident memory before the first ShareFetch, and what each step
adds, in MB and in bytes per record.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from uuid import UUID

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(Path(__file__).parent), str(ROOT)]

import measure  # noqa: E402
from client import CheckError, Client, record_batch  # noqa: E402
from work.share import group_keys  # noqa: E402

from kafkapy.protocol.messages.share_acknowledge import ShareAcknowledgeRequest  # noqa: E402
from kafkapy.protocol.messages.share_fetch import ShareFetchRequest  # noqa: E402
from kafkapy.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest  # noqa: E402
from kafkapy.testing.broker_process import BrokerProcess  # noqa: E402

TOPIC, GROUP, MEMBER = "windows", "windows", "the-only-member"
HEARTBEAT, SHARE_FETCH, SHARE_ACKNOWLEDGE = 1, 2, 2
ACCEPT, RENEW = 1, 4
PARTITIONS_AT_ONCE = 100
"""Of one Produce and of one ShareAcknowledge."""
PATIENCE_S = 50.0
"""Locks end after 60 s."""


def parts(count: int) -> Iterable[range]:
    return (range(first, min(first + PARTITIONS_AT_ONCE, count)) for first in range(0, count, PARTITIONS_AT_ONCE))


class Member:
    """The only member of the group, with its share session."""

    def __init__(self, client: Client, partitions: int, window: int) -> None:
        self.client = client
        self.partitions = partitions
        self.window = window
        self.topic_id = UUID(int=0)
        self.epoch = 0

    def join(self) -> None:
        """Returns once the member has all partitions."""
        epoch = 0
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            answer = self.client.call(
                ShareGroupHeartbeatRequest(
                    group_id=GROUP,
                    member_id=MEMBER,
                    member_epoch=epoch,
                    subscribed_topic_names=None if epoch else [TOPIC],
                ),
                HEARTBEAT,
            )
            epoch = answer.member_epoch
            for topic in answer.assignment.topic_partitions if answer.assignment else ():
                if len(topic.partitions) == self.partitions:
                    self.topic_id = topic.topic_id
                    return
            time.sleep(0.1)
        raise CheckError(f"no assignment of {self.partitions} partitions after {PATIENCE_S:.0f} s")

    def fill(self) -> None:
        """Acquire until all windows are full."""
        wanted = self.partitions * self.window
        held = 0
        deadline = time.monotonic() + PATIENCE_S
        while held < wanted:
            if time.monotonic() > deadline:
                raise CheckError(f"{held} of {wanted} records acquired after {PATIENCE_S:.0f} s")
            answer = self.client.call(self._fetch(), SHARE_FETCH)
            self.epoch += 1
            found = [each for topic in answer.responses for each in topic.partitions]
            if codes := {answer.error_code, *(each.error_code for each in found)} - {0}:
                raise CheckError(f"ShareFetch: {codes} {answer.error_message}")
            ranges = [acquired for each in found for acquired in each.acquired_records]
            if any(each.delivery_count > 1 for each in ranges):
                raise CheckError("records are delivered again: their locks have ended")
            held += sum(each.last_offset - each.first_offset + 1 for each in ranges)
        if held > wanted:
            raise CheckError(f"{held} records acquired, the windows hold {wanted}")

    def _fetch(self) -> ShareFetchRequest:
        entry = ShareFetchRequest.Topic.Partition
        every = [entry(partition_index=index, acknowledgement_batches=[]) for index in range(self.partitions)]
        return ShareFetchRequest(
            group_id=GROUP,
            member_id=MEMBER,
            share_session_epoch=self.epoch,
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=50 << 20,
            max_records=100_000,
            batch_size=self.window,
            topics=[] if self.epoch else [ShareFetchRequest.Topic(topic_id=self.topic_id, partitions=every)],
            forgotten_topics_data=[],
        )

    def accept_every_second(self) -> None:
        """The other records are renewed: the first one stays, and with it the window."""
        entry = ShareAcknowledgeRequest.Topic.Partition
        kinds = list(itertools.islice(itertools.cycle((RENEW, ACCEPT)), self.window))
        batch = entry.AcknowledgementBatch(first_offset=0, last_offset=self.window - 1, acknowledge_types=kinds)
        for some in parts(self.partitions):
            topic = ShareAcknowledgeRequest.Topic(
                topic_id=self.topic_id,
                partitions=[entry(partition_index=index, acknowledgement_batches=[batch]) for index in some],
            )
            answer = self.client.call(
                ShareAcknowledgeRequest(
                    group_id=GROUP,
                    member_id=MEMBER,
                    share_session_epoch=self.epoch,
                    is_renew_ack=True,
                    topics=[topic],
                ),
                SHARE_ACKNOWLEDGE,
            )
            self.epoch += 1
            codes = {each.error_code for responses in answer.responses for each in responses.partitions}
            if answer.error_code or codes != {0}:
                raise CheckError(f"ShareAcknowledge: {answer.error_code} {codes} {answer.error_message}")


def fill_topic(client: Client, partitions: int, window: int, width: int) -> None:
    """Twice as many records as the windows take."""
    client.create_topic(TOPIC, partitions)
    batch = record_batch([b"x" * 10] * width)
    for _ in range(2 * window // width):
        for some in parts(partitions):
            if code := client.produce(TOPIC, some, batch):
                raise CheckError(f"Produce: {code}")


def measured(partitions: int, window: int, width: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        broker = BrokerProcess(Path(folder))
        broker.start()
        try:
            _fill_windows(broker, partitions, window, width)
        finally:
            broker.kill()


def _fill_windows(broker: BrokerProcess, partitions: int, window: int, width: int) -> None:
    with Client(broker.port) as client:
        fill_topic(client, partitions, window, width)
        group_keys(client, GROUP, {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": "60000"})
        member = Member(client, partitions, window)
        member.join()
        steps: list[tuple[str, Any]] = [("acquired", member.fill), ("mixed", member.accept_every_second)]
        before = measure.rss_bytes(broker.pid)
        print(f"batches of {width:3d}: {before / 1e6:7.1f} MB before", end="", flush=True)
        for name, step in steps:
            step()
            more = measure.rss_bytes(broker.pid) - before
            text = f"   {name} +{more / 1e6:.1f} MB, {more / partitions / window:.1f} bytes/record"
            print(text, end="", flush=True)
        print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--window", type=int, default=2000, help="share.partition.max.record.locks")
    parser.add_argument("--width", default="100", help="records of a log batch")
    options = parser.parse_args()
    for width in map(int, options.width.split(",")):
        measured(options.partitions, options.window, width)


if __name__ == "__main__":
    main()
