"""A worker of a share group as a program, to be killed at any time.

    python share_worker.py <bootstrap> <group> <topic> <file> [poll | iterate]

It writes a line "partition offset delivery-count" of each record whose acknowledgement was sent well (poll), or whose
work is done (iterate), and ends at SIGTERM.
"""

from __future__ import annotations

import os
import signal
import sys

from kafkapy import KafkaShareConsumer


def main(bootstrap: str, group: str, topic: str, path: str, way: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    stopping = False

    def stop(*_: object) -> None:
        nonlocal stopping
        stopping = True

    signal.signal(signal.SIGTERM, stop)
    os.write(file, b"started\n")
    consumer = KafkaShareConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        max_poll_records=20,
        fetch_max_wait_ms=100,
        consumer_timeout_ms=200,
        share_acknowledgement_mode="implicit" if way == "iterate" else "explicit",
    )
    with consumer:
        while not stopping:
            if way == "iterate":
                for record in consumer:
                    os.write(file, b"%d %d %d\n" % (record.partition, record.offset, record.delivery_count))
                    if stopping:
                        break
                continue
            records = consumer.poll_batch(timeout_ms=200)
            for record in records:
                consumer.acknowledge(record)
            outcomes = consumer.commit_sync()
            lines = [
                b"%d %d %d\n" % (record.partition, record.offset, record.delivery_count)
                for record in records
                if all(error is None for place, error in outcomes.items() if place.partition == record.partition)
            ]
            os.write(file, b"".join(lines))


if __name__ == "__main__":
    main(*sys.argv[1:5], sys.argv[5] if len(sys.argv) > 5 else "poll")
