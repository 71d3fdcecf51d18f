"""W4: end-to-end latency. Producers at a fixed rate, a consumer that tails the partition, one clock (native/tail.c)."""

from __future__ import annotations

import itertools
import random
import statistics
from functools import partial
from pathlib import Path
from typing import Any

import measure
from client import Client, record_batch, value, write_frames
from peers import KAFKAPY, OTHER

from work.session import Metrics, Session

RECORD = 1000
CONNECTIONS = 16
SHARES = (25, 50, 75)

_topics = itertools.count()


def _tail(session: Session, folder: Path, broker: Any, rate: float, seconds: float) -> dict[str, Any]:
    topic = f"tail-{next(_topics)}"
    batch = record_batch([b"KAFKAPY!" + bytes(8) + value(RECORD - 16, random.Random(5))])
    with Client(broker.port) as client:
        client.create_topic(topic, 1)
        frame = write_frames(folder, topic, [batch], 1)
        named = measure.options(
            port=broker.port,
            topic=topic,
            rate=rate,
            seconds=seconds,
            warm_up=session.seconds(0.5, 0.2),
            connections=CONNECTIONS,
            pids=measure.pids(broker.pid),
        )
        answer = measure.run_native("tail", *named, *frame)
        client.delete_topic(topic)
    return answer


def _maximum(session: Session, folder: Path, broker: Any) -> float:
    answer = _tail(session, folder, broker, 0, session.seconds(1.5, 0.3))
    return float(answer["requests"] / answer["seconds"])


def end_to_end(session: Session) -> None:
    """Each record of 1 KB is a request of its own; the rates are shares of the slowest compared broker's maximum."""
    with session.running(with_limit=False) as brokers, session.folder("frames") as folder:
        compared = (p.name for p in session.brokers if p in (KAFKAPY, OTHER) or p.is_apache)
        brokers = {name: brokers[name] for name in compared if name in brokers}
        maxima: dict[str, list[float]] = {}
        for _ in range(1 if session.smoke else 3):
            for name, broker in list(brokers.items()):
                try:
                    while not session.smoke and not session.is_warm(name):
                        _maximum(session, folder, broker)
                    reached = _maximum(session, folder, broker)
                except Exception as error:
                    session.fail(name, "maximum", error)
                    del brokers[name]
                    continue
                maxima.setdefault(name, []).append(reached)
        for name, values in maxima.items():
            for each in values:
                session.add(session_peer(session, name), "maximum", {"requests_per_s": each})
        if not brokers:
            return
        slowest = min(statistics.median(values) for values in maxima.values())

        for share in SHARES[1:2] if session.smoke else SHARES:
            rate = slowest * share / 100

            def one(broker: Any, rate: float = rate) -> Metrics:
                answer = _tail(session, folder, broker, rate, session.seconds(2.5, 0.5))
                found = answer["end_to_end_us"]
                return {
                    "p50_us": found["p50"],
                    "p99_us": found["p99"],
                    "p999_us": found["p999"],
                    "max_us": found["max"],
                    "produce_p99_us": answer["produce_us"]["p99"],
                    "requests_per_s": answer["requests"] / answer["seconds"],
                    "cpu_us_per_request": answer["broker_cpu_s"] / answer["requests"] * 1e6,
                }

            session.in_turns(
                f"{share} %", {name: partial(one, broker) for name, broker in brokers.items()}, warm_up=False
            )


def session_peer(session: Session, name: str) -> Any:
    return next(peer for peer in session.peers if peer.name == name)
