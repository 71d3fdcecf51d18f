"""The console on a large cluster: pages of many topics, and a search of many records beside other pages.

    .venv/bin/python perf/console_bench.py [--topics 10000] [--records 10000000]

Prints the milliseconds until each page is whole (median of some), then the records a second of a search that is read to
its end, its first hit, its progress events, and another page's time meanwhile.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(Path(__file__).parent), str(ROOT)]

import httpx  # noqa: E402
from kafkapy_console.server import ConsoleThread  # noqa: E402
from kafkapy_console.settings import Settings  # noqa: E402

from kafkapy import KafkaProducer  # noqa: E402
from kafkapy.admin import KafkaAdminClient, NewTopic  # noqa: E402
from kafkapy.testing.broker_process import BrokerProcess  # noqa: E402

TOPIC, PARTITIONS = "search", 4
TRIES = 5
TOPICS_AT_ONCE = 500
FILTER = "value.n == 7 || value.n > 9999990"
"""One of the first records, and some of the last ones."""
PATIENCE_MS = 600_000


def fill(bootstrap: str, topics: int, records: int) -> None:
    keys = {"request_timeout_ms": PATIENCE_MS, "default_api_timeout_ms": PATIENCE_MS}
    with KafkaAdminClient(bootstrap_servers=bootstrap, **keys) as admin:
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])
        for start in range(0, topics, TOPICS_AT_ONCE):
            names = [NewTopic(f"topic-{n:05}", 1, 1) for n in range(start, min(topics, start + TOPICS_AT_ONCE))]
            admin.create_topics(names, timeout_ms=PATIENCE_MS)
    with KafkaProducer(bootstrap_servers=bootstrap, batch_size=1 << 18, linger_ms=20) as producer:
        for number in range(records):
            producer.send(TOPIC, b'{"n": %d, "name": "somebody", "city": "somewhere"}' % number)


@contextmanager
def console(bootstrap: str) -> Iterator[str]:
    patient = {"default.api.timeout.ms": PATIENCE_MS, "request.timeout.ms": PATIENCE_MS}
    thread = ConsoleThread(Settings(kafka={"bootstrap.servers": bootstrap, **patient}), ["127.0.0.1:0"])
    thread.start()
    try:
        yield f"http://127.0.0.1:{thread.ports[0]}"
    finally:
        thread.stop()


def page_ms(http: httpx.Client, path: str) -> float:
    started = time.perf_counter()
    http.get(path).raise_for_status()
    return (time.perf_counter() - started) * 1000


def events(http: httpx.Client) -> Iterator[tuple[float, str, str]]:
    """(seconds since the request, name, data) of a search's events."""
    started, name = time.perf_counter(), ""
    query = {"filter": FILTER, "start": "oldest"}
    with http.stream("GET", f"/topics/{TOPIC}/search", params=query) as response:
        response.raise_for_status()
        for line in response.iter_lines():
            if line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: "):
                yield time.perf_counter() - started, name, line[6:]


def search(url: str) -> None:
    pages: list[float] = []
    over = threading.Event()

    def look() -> None:
        with httpx.Client(base_url=url, timeout=600) as http:
            pages.append(page_ms(http, "/topics"))
            while not over.wait(1):
                pages.append(page_ms(http, "/topics"))

    beside = threading.Thread(target=look)
    beside.start()
    first, told, longest, before, last = 0.0, 0, 0.0, 0.0, {"rate": 0}
    try:
        with httpx.Client(base_url=url, timeout=600) as http:
            for at, name, data in events(http):
                if name == "record" and not first:
                    first = at
                if name == "progress":
                    told += 1
                    longest, before, last = max(longest, at - before), at, json.loads(data)
                if name == "end":
                    print(f"search: {data} {last['rate']:,} records/s, first hit after {first:.2f} s,")
                    print(f"  {told} times progress, at most {longest:.2f} s apart")
    finally:
        over.set()
        beside.join()
    print(f"  page of topics meanwhile: median {statistics.median(pages):.0f} ms, longest {max(pages):.0f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--records", type=int, default=10_000_000)
    asked = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="kafkapy-console-") as folder,
        BrokerProcess(Path(folder)) as broker,
    ):
        fill(broker.bootstrap, asked.topics, asked.records)
        with console(broker.bootstrap) as url, httpx.Client(base_url=url, timeout=600) as http:
            page_ms(http, "/")
            paths = ("/", "/topics", f"/topics?page={asked.topics // 50}", "/topics?q=topic-0077", f"/topics/{TOPIC}")
            for path in paths:
                times = [page_ms(http, path) for _ in range(TRIES)]
                print(f"{path}: {statistics.median(times):.0f} ms, longest {max(times):.0f}")
            search(url)


if __name__ == "__main__":
    main()
