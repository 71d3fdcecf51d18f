"""What records cost on their way to Arrow: each stage beside a program in C that does no more than it has to.

    python perf/arrow_bench.py [--sizes 100,1024] [--codecs none,lz4] [--batch 16384] [--rounds 15] [--seconds 3]
                               [--json FILE]

One core each, ns of CPU a record. Keys of 8 bytes, values like JSON, batches of --batch bytes, 8 MiB of records.

From memory, the least of the rounds:

    copy        the response into the client's memory; in a client the kernel does that (it is in `receive` below)
    check       batches are found, checked (CRC) and decompressed, as on the I/O thread
    columns     the records of key and value, or of all columns, into Arrow's buffers
    batch       a RecordBatch of these buffers

Beside them the stages of perf/native/arrow.c: crc, open (lz4), columns (key and value), passes (all of them).

From a broker (storage in memory, in a process of its own), a consumer in a process of its own that polls tables and
drops them, all columns; CPU of its threads:

    receive     the I/O thread without `check`: recv and waking up
    check       the share of `check` above
    table       the caller's thread and the loop's: columns, batch, and Python for each poll and each Fetch
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "clients"))

import measure
from produce import payloads

from kafkapy._speedups.clients.consumer.fetch_frame import FetchResponseFrame
from kafkapy.clients.arrow.tables import TableBuilder
from kafkapy.protocol.messages.fetch import FetchResponse
from kafkapy.records.batches import RecordBatchBuilder
from kafkapy.types import CompressionType

VERSION = 12
RECORD_BYTES = 8 << 20
ROWS_AT_ONCE = 16_384
TOPIC, PARTITIONS = "rows", 6
TOPIC_BYTES = 400 << 20
READ_SHARE = 0.8
"""Of the topic, before the consumer begins again: it never waits for the end."""
WARM_UP_S = 1.0
IO_THREAD = "kafkapy-io"


def records_of(size: int, codec: int, batch: int) -> tuple[bytes, int]:
    """Record batches, and how many records they have."""
    values = payloads(size)
    out, rows, plain = bytearray(), 0, 0
    while plain < RECORD_BYTES:
        builder = RecordBatchBuilder(base_offset=rows)
        for _ in range(max(batch // (size + 16), 1)):
            builder.append(1_700_000_000_000 + rows, b"%08d" % rows, values[rows % len(values)])
            rows += 1
            plain += size + 16
        out += builder.build(codec)
    return bytes(out), rows


# --- from memory --------------------------------------------------------------------------------------------------


def from_memory(records: bytes, rows: int, columns: list[str] | None) -> dict[str, float]:
    """Seconds of each stage for one response; `check` includes another copy."""
    Topic = FetchResponse.TopicResponse
    partition = Topic.Partition(partition_index=0, high_watermark=rows, records=records)
    body = FetchResponse(responses=[Topic(topic=TOPIC, partitions=[partition])]).encode(VERSION)
    frame = b"\0\0\0\1\0" + body
    # Neither checked nor opened: what is left is the copy. The first one only warms what the others find warm.
    FetchResponseFrame(VERSION, False, 0).feed(frame)
    response = FetchResponseFrame(VERSION, False, 0)
    began = time.thread_time()
    response.feed(frame)
    copied = time.thread_time() - began
    del response
    response = FetchResponseFrame(VERSION)
    began = time.thread_time()
    response.feed(frame)
    times = {"copy": copied, "check": time.thread_time() - began, "columns": 0.0, "batch": 0.0}
    (fetched,) = response.partitions()
    fetched.start(TOPIC, 0, False, None, None)
    done = 0
    while done < rows:
        builder = TableBuilder(columns)
        began = time.thread_time()
        done += builder.columns.append(fetched, ROWS_AT_ONCE, True)
        walked = time.thread_time()
        builder.batches()
        times["columns"] += walked - began
        times["batch"] += time.thread_time() - walked
    return times


def least(records: bytes, rows: int, columns: list[str] | None, rounds: int) -> dict[str, float]:
    """The least of the rounds, ns a record."""
    found = [from_memory(records, rows, columns) for _ in range(rounds + 1)][1:]
    out = {stage: min(each[stage] for each in found) / rows * 1e9 for stage in found[0]}
    out["check"] = max(out["check"] - out["copy"], 0.0)
    return out


def bound(records: bytes, rounds: int) -> dict[str, float]:
    """The stages of the C program, ns a record."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(records)
        file.flush()
        command = [str(measure.native("arrow")), "--rounds", str(rounds), "--rows", str(ROWS_AT_ONCE), file.name]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    out: dict[str, float] = json.loads(done.stdout)
    return out


# --- from a broker ------------------------------------------------------------------------------------------------


def thread_seconds() -> dict[str, float]:
    """CPU time of this process' threads, by their names."""
    out: dict[str, float] = {}
    for task in Path("/proc/self/task").iterdir():
        name = (task / "comm").read_text().strip()
        out[name] = out.get(name, 0.0) + int((task / "schedstat").read_text().split()[0]) / 1e9
    return out


def work(options: argparse.Namespace) -> None:
    """One measurement, in this process: polls tables for some seconds."""
    from kafkapy import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=options.bootstrap)
    consumer.assign([TopicPartition(TOPIC, number) for number in range(PARTITIONS)])

    def read(seconds: float) -> int:
        seen, position, end = 0, options.rows, time.monotonic() + seconds
        while time.monotonic() < end:
            if position >= options.rows * READ_SHARE:
                consumer.seek_to_beginning()
                position = 0
            rows = consumer.poll_arrow(1000).num_rows
            position += rows
            seen += rows
        return seen

    read(WARM_UP_S)
    before, began = thread_seconds(), time.monotonic()
    seen = read(options.seconds)
    took = time.monotonic() - began
    spent = {name: seconds - before.get(name, 0.0) for name, seconds in thread_seconds().items()}
    io = spent.get(IO_THREAD, 0.0)
    consumer.close()
    print(json.dumps({"io": io / seen * 1e9, "table": (sum(spent.values()) - io) / seen * 1e9, "per_s": seen / took}))


def from_broker(options: argparse.Namespace, size: int, codec: str) -> dict[str, float]:
    """A consumer's threads, ns a record."""
    from kafkapy import KafkaProducer
    from kafkapy.testing.broker_process import BrokerProcess

    overrides = {"kafkapy.storage.backend": "memory", "num.partitions": str(PARTITIONS)}
    values, rows = payloads(size), TOPIC_BYTES // (size + 16)
    with BrokerProcess(overrides=overrides) as broker:
        with KafkaProducer(
            bootstrap_servers=broker.bootstrap,
            compression_type=None if codec == "none" else codec,
            batch_size=options.batch,
            linger_ms=20,
        ) as producer:
            for number in range(rows):
                producer.send(TOPIC, values[number % len(values)], b"%08d" % number, partition=number % PARTITIONS)
            producer.flush()
        command = [sys.executable, __file__, "--worker", "--bootstrap", broker.bootstrap, "--rows", str(rows)]
        command += ["--seconds", str(options.seconds)]
        # pyarrow brings numpy, whose library would start threads that spin.
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, timeout=300)
    out: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return out


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=lambda text: [int(each) for each in text.split(",")], default=[100, 1024])
    parser.add_argument("--codecs", type=lambda text: text.split(","), default=["none", "lz4"])
    parser.add_argument("--batch", type=int, default=16 << 10, help="bytes of a batch's records")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=3.0, help="of polling a broker; 0 for none")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--bootstrap", help=argparse.SUPPRESS)
    parser.add_argument("--rows", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options)
        return
    results: list[dict[str, Any]] = []
    for size in options.sizes:
        for codec in options.codecs:
            records, rows = records_of(size, CompressionType[codec.upper()], options.batch)
            least_c = bound(records, options.rounds)
            result: dict[str, Any] = {"size": size, "codec": codec, "bound": least_c}
            print(f"{size} bytes, {codec}: ns a record")
            shown = ("crc", "open", "columns", "passes")
            print("  C, key and value  " + "  ".join(f"{stage} {least_c[stage]:6.1f}" for stage in shown))
            for name, columns in (("key and value", ["key", "value"]), ("all columns", None)):
                ours = result[name] = least(records, rows, columns, options.rounds)
                total = ours["check"] + ours["columns"] + ours["batch"]
                stages = "  ".join(f"{stage} {taken:6.1f}" for stage, taken in ours.items())
                print(
                    f"  {name:17} {stages}  without copy {total:6.1f}: {1e3 / total:5.1f} million/s, "
                    f"{total / least_c['passes']:.2f} of C's"
                )
            if options.seconds:
                client = result["client"] = from_broker(options, size, codec)
                check = min(result["all columns"]["check"], client["io"])
                total = client["io"] + client["table"]
                print(
                    f"  poll_arrow        receive {client['io'] - check:6.1f}  check {check:6.1f}  "
                    f"table {client['table']:6.1f}  {total:6.1f}: {1e3 / total:5.1f} million for a second of CPU, "
                    f"{client['per_s'] / 1e6:.1f} million/s"
                )
            results.append(result)
    if options.json:
        options.json.write_text(json.dumps({"batch": options.batch, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
