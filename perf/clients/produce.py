"""How many messages a second, and at what CPU cost, producers hand to the same broker: ours beside others.

    python perf/clients/produce.py [--clients kafkapy,confluent] [--sizes 100,1024] [--codecs none,lz4] [--rounds 2]

One broker (storage in memory, in a process of its own) serves all; each measurement is a process of its own, and the
clients take turns: A B A B. Every client has the same linger, batch size, acks=all and idempotence, and a topic of its
own. Counted from the first send of a warm client until flush() has returned; CPU is that of the client's whole process,
threads and system time included. The table is for people, --json FILE for programs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

LINGER_MS = 5
WARM_UP = 2000
MESSAGES = {
    "kafkapy": 1_000_000,
    "kafkapy-many": 1_000_000,
    "confluent": 1_000_000,
    "kafka-python": 40_000,
    "aiokafka": 40_000,
}
"""Of 100 bytes; fewer of larger ones, so that each measurement takes seconds."""
WORDS = (
    "order",
    "customer",
    "amount",
    "currency",
    "EUR",
    "shipped",
    "pending",
    "Berlin",
    "Paris",
    "2026-11-22",
    "true",
)


def payloads(size: int) -> list[bytes]:
    """A thousand different values that compress about as well as JSON does."""
    rng = random.Random(7)
    values = []
    for number in range(1000):
        text = f'{{"id":{number},'
        while len(text) < size:
            text += f'"{rng.choice(WORDS)}":"{rng.choice(WORDS)}{rng.randrange(10000)}",'
        values.append(text[:size].encode())
    return values


def cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def measured(send: Any, flush: Any, count: int) -> dict[str, float]:
    send(WARM_UP)
    flush()
    wall, cpu = time.perf_counter(), cpu_s()
    send(count)
    flush()
    return {"messages": count, "seconds": time.perf_counter() - wall, "cpu_s": cpu_s() - cpu}


# --- the clients --------------------------------------------------------------------------------------------------


def work_kafkapy(
    options: argparse.Namespace, values: list[bytes], count: int, *, many: bool = False
) -> dict[str, float]:
    from kafkapy import KafkaProducer

    producer = KafkaProducer(
        bootstrap_servers=options.bootstrap,
        linger_ms=LINGER_MS,
        batch_size=options.batch_size,
        compression_type=options.codec,
    )
    topic = options.topic

    def send(count: int) -> None:
        one = producer.send
        for _ in range(count // len(values)):
            for value in values:
                one(topic, value)

    def send_many(count: int) -> None:
        for _ in range(count // len(values)):
            producer.send_many(topic, values)

    result = measured(send_many if many else send, producer.flush, count)
    producer.close()
    return result


def work_confluent(options: argparse.Namespace, values: list[bytes], count: int) -> dict[str, float]:
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": options.bootstrap,
            "linger.ms": LINGER_MS,
            "batch.size": options.batch_size,
            "batch.num.messages": 1_000_000,
            "compression.type": options.codec,
            "acks": "all",
            "enable.idempotence": True,
            "queue.buffering.max.kbytes": 32 * 1024,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    topic = options.topic

    def send(count: int) -> None:
        one = producer.produce
        for _ in range(count // len(values)):
            for value in values:
                while True:
                    try:
                        one(topic, value)
                        break
                    except BufferError:
                        producer.poll(0.01)

    return measured(send, producer.flush, count)


def work_kafka_python(options: argparse.Namespace, values: list[bytes], count: int) -> dict[str, float]:
    from kafka import KafkaProducer

    producer = KafkaProducer(
        bootstrap_servers=options.bootstrap,
        linger_ms=LINGER_MS,
        batch_size=options.batch_size,
        compression_type=None if options.codec == "none" else options.codec,
    )

    def send(count: int) -> None:
        for _ in range(count // len(values)):
            for value in values:
                producer.send(options.topic, value)

    result = measured(send, producer.flush, count)
    producer.close()
    return result


def work_aiokafka(options: argparse.Namespace, values: list[bytes], count: int) -> dict[str, float]:
    from aiokafka import AIOKafkaProducer

    async def work() -> dict[str, float]:
        producer = AIOKafkaProducer(
            bootstrap_servers=options.bootstrap,
            linger_ms=LINGER_MS,
            max_batch_size=options.batch_size,
            compression_type=None if options.codec == "none" else options.codec,
            acks="all",
            enable_idempotence=True,
        )
        await producer.start()

        async def send(count: int) -> None:
            for _ in range(count // len(values)):
                for value in values:
                    await producer.send(options.topic, value)

        await send(WARM_UP)
        await producer.flush()
        wall, cpu = time.perf_counter(), cpu_s()
        await send(count)
        await producer.flush()
        result = {"messages": count, "seconds": time.perf_counter() - wall, "cpu_s": cpu_s() - cpu}
        await producer.stop()
        return result

    return asyncio.run(work())


WORK = {
    "kafkapy": work_kafkapy,
    "kafkapy-many": lambda *args: work_kafkapy(*args, many=True),
    "confluent": work_confluent,
    "kafka-python": work_kafka_python,
    "aiokafka": work_aiokafka,
}


def work(options: argparse.Namespace) -> None:
    """One measurement, in this process."""
    values = payloads(options.size)
    count = int(MESSAGES[options.client] * options.scale / max(1, options.size / 250))
    count = max(count // len(values), 1) * len(values)
    print(json.dumps(WORK[options.client](options, values, count)))


# --- measuring ----------------------------------------------------------------------------------------------------


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Every client, size and codec, in turn."""
    from kafkapy.testing.broker_process import BrokerProcess

    results: dict[tuple[str, int, str], list[dict[str, float]]] = {}
    overrides = {
        "kafkapy.storage.backend": "memory",
        "num.partitions": str(options.partitions),
        "log.retention.bytes": str(64 << 20),
        "log.segment.bytes": str(32 << 20),
        "log.retention.check.interval.ms": "500",
    }
    with BrokerProcess(overrides=overrides) as broker:
        for size in options.sizes:
            for codec in options.codecs:
                for _ in range(options.rounds):
                    for client in options.clients:
                        command = [sys.executable, __file__, "--worker", client, "--bootstrap", broker.bootstrap]
                        command += ["--size", str(size), "--codec", codec, "--batch-size", str(options.batch_size)]
                        command += ["--scale", str(options.scale), "--topic", f"{client}-{size}-{codec}"]
                        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
                        if done.returncode:
                            sys.exit(f"{client} failed:\n{done.stderr}")
                        results.setdefault((client, size, codec), []).append(json.loads(done.stdout.splitlines()[-1]))
    rows = []
    for (client, size, codec), runs in results.items():
        rows.append(
            {
                "client": client,
                "size": size,
                "codec": codec,
                "messages_per_s": statistics.median(run["messages"] / run["seconds"] for run in runs),
                "cpu_us_per_message": statistics.median(run["cpu_s"] / run["messages"] * 1e6 for run in runs),
                "runs": runs,
            }
        )
    return rows


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=lambda text: text.split(","), default=list(WORK))
    parser.add_argument("--sizes", type=lambda text: [int(each) for each in text.split(",")], default=[100, 1024])
    parser.add_argument("--codecs", type=lambda text: text.split(","), default=["none", "lz4"])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=65536)
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of messages")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--worker", dest="client", choices=list(WORK), help=argparse.SUPPRESS)
    for hidden in ("--bootstrap", "--topic", "--codec"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    parser.add_argument("--size", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        work(options)
        return
    rows = measure(options)
    print(f"{'client':14} {'bytes':>5} {'codec':6} {'messages/s':>12} {'CPU us/message':>15}")
    for row in sorted(rows, key=lambda row: (row["size"], row["codec"], row["cpu_us_per_message"])):
        print(
            f"{row['client']:14} {row['size']:5} {row['codec']:6} {row['messages_per_s']:12,.0f} "
            f"{row['cpu_us_per_message']:15.3f}"
        )
    if options.json:
        settings = {"linger_ms": LINGER_MS, "batch_size": options.batch_size, "partitions": options.partitions}
        options.json.write_text(json.dumps({"settings": settings, "results": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
