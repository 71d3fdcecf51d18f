"""W11: queues. Members of a share group on one partition and on twelve, as fast as replies come and at a producer's
pace (native/share.c), beside Apache Kafka 4.x.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import measure
from client import CheckError, Client, batch_of_size, record_batch, value, write_frames
from peers import KAFKAPY, Peer

from kafkapy.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkapy.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from work.session import Metrics, Session

MEMBERS = (1, 8, 64)
PARTITIONS = (1, 12)
RECORD_SIZES = {100: 32 << 20, 1000: 128 << 20}
"""Bytes of the topics that are drained, by size of a record: 64 members take 32,000 records at once."""
BATCH_BYTES = 16 << 10
ALTER_CONFIGS, FIND_COORDINATOR, GROUP_RESOURCE, SET = 1, 1, 32, 0
MOST_RECORDS = 500
"""Records of one ShareFetch: max.poll.records of Kafka's clients."""
QUICK_HEARTBEATS = {"group.share.min.heartbeat.interval.ms": "500", "group.share.heartbeat.interval.ms": "500"}
PACE = 2_000
"""Records per second of the paced cells."""

_groups = itertools.count()


def _brokers(peer: Peer) -> bool:
    """Share groups are in Apache Kafka from 4.0 on."""
    return peer is KAFKAPY or peer.name == "apache-4.x"


def share_groups(session: Session) -> None:
    """1, 8 and 64 members on 1 and 12 partitions; records of 100 bytes and 1 KB; then the latency until a record is
    acknowledged."""
    everybody = session.peers
    session.peers = [peer for peer in everybody if _brokers(peer)]
    try:
        with (
            session.running(with_limit=False, overrides=QUICK_HEARTBEATS) as brokers,
            session.folder("frames") as folder,
        ):
            for size in list(RECORD_SIZES)[: 1 if session.smoke else None]:
                for partitions in PARTITIONS:
                    _drains(session, brokers, size, partitions)
            for partitions in PARTITIONS[:1] if session.smoke else PARTITIONS:
                for members in MEMBERS[:2] if session.smoke else MEMBERS:
                    calls: dict[str, Callable[[], Metrics]] = {
                        name: partial(_paced, session, broker, folder, partitions, members)
                        for name, broker in brokers.items()
                    }
                    session.in_turns(f"paced, {_shape(members, partitions)}", calls)
    finally:
        session.peers = everybody


def _shape(members: int, partitions: int) -> str:
    return f"{members} member{'s' if members > 1 else ''}, {partitions} partition{'s' if partitions > 1 else ''}"


def _drains(session: Session, brokers: dict[str, Any], size: int, partitions: int) -> None:
    topic = f"w11-{size}-{partitions}"
    records: dict[str, int] = {}
    for name, broker in list(brokers.items()):
        try:
            records[name] = _fill(session, broker, topic, partitions, size)
        except Exception as error:
            session.fail(name, f"filling {topic}", error)
            broker.kill()
            del brokers[name]
    for members in MEMBERS[:2] if session.smoke else MEMBERS:
        calls: dict[str, Callable[[], Metrics]] = {
            name: partial(_drain, broker, topic, partitions, members, records[name]) for name, broker in brokers.items()
        }
        session.in_turns(f"{_shape(members, partitions)}, {size} B records", calls)


def _fill(session: Session, broker: Any, topic: str, partitions: int, size: int) -> int:
    """The topic with batches of 16 KB; returns the number of its records."""
    batch, _ = batch_of_size(BATCH_BYTES, size, 11)
    total = int(session.seconds(RECORD_SIZES[size], 2 << 20))
    with Client(broker.port) as client:
        client.create_topic(topic, partitions)
        for number in range(total // BATCH_BYTES):
            if code := client.produce(topic, [number % partitions], batch):
                raise CheckError(f"Produce to {topic}: {code}")
        return sum(client.end_offsets(topic, partitions))


def group_keys(client: Client, group: str, keys: dict[str, str]) -> None:
    """Set configs of a group, and have its coordinator made. Raises CheckError."""
    resource = IncrementalAlterConfigsRequest.Resource(
        resource_type=GROUP_RESOURCE,
        resource_name=group,
        configs=[
            IncrementalAlterConfigsRequest.Resource.Config(name=name, config_operation=SET, value=value)
            for name, value in keys.items()
        ],
    )
    answer = client.call(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), ALTER_CONFIGS)
    if answer.responses[0].error_code:
        raise CheckError(f"configuration of {group}: {answer.responses[0].error_code}")
    client.call(FindCoordinatorRequest(key=group, key_type=0), FIND_COORDINATOR)  # it makes __consumer_offsets


def _new_group(client: Client) -> str:
    """A group that begins at the start of the log."""
    group = f"w11-{next(_groups)}"
    group_keys(client, group, {"share.auto.offset.reset": "earliest"})
    return group


def _measured(answer: dict[str, Any]) -> Metrics:
    return {
        "records_per_s": answer["records"] / answer["seconds"],
        "cpu_us_per_record": answer["broker_cpu_s"] / answer["records"] * 1e6,
        "requests_per_s": answer["requests"] / answer["seconds"],
        "redelivered": answer["redelivered"],
        "p50_us": answer["latency_us"]["p50"],
        "p99_us": answer["latency_us"]["p99"],
        "load_cores": answer["load_cpu_s"] / answer["seconds"],
    }


def _drain(broker: Any, topic: str, partitions: int, members: int, records: int) -> Metrics:
    with Client(broker.port) as client:
        group = _new_group(client)
    named = measure.options(
        port=broker.port,
        group=group,
        topic=topic,
        partitions=partitions,
        members=members,
        max_records=MOST_RECORDS,
        records=records,
        pids=measure.pids(broker.pid),
    )
    return _measured(measure.run_native("share", "drain", *named))


def _paced(session: Session, broker: Any, folder: Path, partitions: int, members: int) -> Metrics:
    topic = f"w11-paced-{next(_groups)}"
    batch = record_batch([b"KAFKAPY!" + bytes(8) + value(1000 - 16, random.Random(11))])
    with Client(broker.port) as client:
        client.create_topic(topic, partitions)
        group = _new_group(client)
        frames = write_frames(folder, topic, [batch] * partitions, 1)
        named = measure.options(
            port=broker.port,
            group=group,
            topic=topic,
            partitions=partitions,
            members=members,
            max_records=MOST_RECORDS,
            rate=PACE,
            seconds=session.seconds(3.0, 0.5),
            pids=measure.pids(broker.pid),
        )
        found = _measured(measure.run_native("share", "paced", *named, *frames))
        client.delete_topic(topic)
    return found
