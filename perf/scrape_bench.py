"""What a scrape of many partitions and groups costs, and what other clients notice of it.

.venv/bin/python perf/scrape_bench.py [partitions] [groups] [key=value ...]

Every group has committed an offset of every partition. The keys are the broker's, such as kafkapy.metrics.max.series.
Latencies are of FindCoordinator on the control loop and of Produce in the data plane, each 100 times a second, beside
an idle broker and beside one that is scraped without a pause. The scraper is a process of its own.
"""

from __future__ import annotations

import os
import re
import socket
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from system.raw_client import RawClient, batch, produce_request  # noqa: E402

from kafkapy.protocol.messages.create_topics import CreateTopicsRequest  # noqa: E402
from kafkapy.protocol.messages.find_coordinator import FindCoordinatorRequest  # noqa: E402
from kafkapy.protocol.messages.offset_commit import OffsetCommitRequest  # noqa: E402
from kafkapy.testing.broker_process import BrokerProcess  # noqa: E402

TOPICS = 100
SCRAPES = 3
IDLE_S = 10.0
PERIOD_S = 0.01
MEMORY = {"kafkapy.storage.backend": "memory", "kafkapy.metadata.store": "memory"}
SCRAPER = """
import sys, time, urllib.request
for _ in range(int(sys.argv[2])):
    start = time.perf_counter()
    body = urllib.request.urlopen(sys.argv[1], timeout=600).read()
    print(time.perf_counter() - start, len(body), body.count(b"\\n"), flush=True)
"""


class Probe(threading.Thread):
    """Calls at a steady rate, and the time of each in ms."""

    def __init__(self, bootstrap: str, request: Any, version: int) -> None:
        super().__init__()
        self._client = RawClient(bootstrap)
        self._request, self._version = request, version
        self._ended = threading.Event()
        self.taken_ms: list[float] = []
        self.start()

    def run(self) -> None:
        due = time.perf_counter()
        while not self._ended.is_set():
            sent = time.perf_counter()
            self._client.call(self._request, self._version)
            self.taken_ms.append((time.perf_counter() - sent) * 1000)
            due = max(due + PERIOD_S, time.perf_counter())
            time.sleep(max(0.0, due - time.perf_counter()))
        self._client.close()

    def finish(self) -> str:
        self._ended.set()
        self.join()
        cuts = statistics.quantiles(self.taken_ms, n=1000)
        return f"p50 {cuts[499]:6.2f}  p99 {cuts[989]:6.2f}  p99.9 {cuts[998]:6.2f}  max {max(self.taken_ms):6.2f} ms"


def prepare(client: RawClient, partitions: int, groups: int) -> None:
    each = partitions // TOPICS
    topics = [
        CreateTopicsRequest.Topic(name=f"topic-{number}", num_partitions=each, replication_factor=1)
        for number in range(TOPICS)
    ]
    for start in range(0, TOPICS, 10):
        answer = client.call(CreateTopicsRequest(topics=topics[start : start + 10], timeout_ms=60_000), 4)
        assert not any(topic.error_code for topic in answer.topics), answer
    Topic = OffsetCommitRequest.Topic
    committed = [
        Topic(name=f"topic-{number}", partitions=[
            Topic.Partition(partition_index=index, committed_offset=0, committed_metadata="") for index in range(each)
        ])
        for number in range(TOPICS)
    ]  # fmt: skip
    for number in range(groups):
        for start in range(0, TOPICS, 10):
            commit(client, OffsetCommitRequest(group_id=f"group-{number}", topics=committed[start : start + 10]))


def commit(client: RawClient, request: OffsetCommitRequest) -> None:
    """A tenth of a group's offsets: those of 10,000 partitions do not fit into a batch."""
    until = time.monotonic() + 30
    while True:
        answer = client.call(request, 8)
        codes = {part.error_code for topic in answer.topics for part in topic.partitions}
        if codes == {0}:
            return
        assert time.monotonic() < until, codes
        client.call(FindCoordinatorRequest(key=request.group_id, key_type=0), 2)
        time.sleep(0.05)


def measured(bootstrap: str, work: Any) -> Any:
    """Both probes beside the work."""
    asked = Probe(bootstrap, FindCoordinatorRequest(key="group-0", key_type=0), 2)
    produced = Probe(bootstrap, produce_request("topic-0", batch(b"x" * 100)), 9)
    result = work()
    print(f"  control loop  {asked.finish()}")
    print(f"  data plane    {produced.finish()}")
    return result


def cpu_s(pid: int) -> float:
    """User and system time of a process."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def main(partitions: int, groups: int, keys: dict[str, str]) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        listener = f"127.0.0.1:{probe.getsockname()[1]}"
    with BrokerProcess(overrides={**MEMORY, "metrics.listeners": listener, **keys}) as broker:
        client = RawClient(broker.bootstrap)
        start = time.perf_counter()
        prepare(client, partitions, groups)
        client.close()
        print(f"{partitions} partitions, {groups} groups: {partitions * groups} offsets in "
              f"{time.perf_counter() - start:.0f} s, RSS {broker.rss_bytes() / 1e6:.0f} MB")  # fmt: skip
        time.sleep(2)
        print("idle")
        measured(broker.bootstrap, lambda: time.sleep(IDLE_S))

        def scrape() -> str:
            command = [sys.executable, "-c", SCRAPER, f"http://{listener}/metrics", str(SCRAPES)]
            return subprocess.run(command, check=True, capture_output=True, text=True).stdout

        print("scraped")
        before_s = cpu_s(broker.pid)
        lines = [line.split() for line in measured(broker.bootstrap, scrape).splitlines()]
        each_s = (cpu_s(broker.pid) - before_s) / SCRAPES
        seconds = [float(line[0]) for line in lines]
        print(f"  a scrape      median {statistics.median(seconds):.2f} s, {each_s:.2f} s of CPU with the probes' "
              f"requests, {int(lines[-1][1]) / 1e6:.1f} MB, "
              f"{lines[-1][2]} lines, RSS {broker.rss_bytes() / 1e6:.0f} MB")  # fmt: skip


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:] if re.fullmatch(r"\d+", word)]
    given = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
    main(*(numbers + [10_000, 300][len(numbers) :]), given)
