"""Does a busy control loop move the produce latency? A B A B: idle loop, loop busy with 200 ms of pure Python at a
time.

.venv/bin/python perf/isolation_bench.py [rounds]
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from interop.clients import ConfluentClient  # noqa: E402
from system.raw_client import RawClient, batch, produce_request  # noqa: E402

from kafkapy.testing.broker_process import BrokerProcess  # noqa: E402

SECONDS = 4.0
PERIOD_S = 0.005


def latencies_us(client: RawClient) -> list[float]:
    """Produce round trips at a steady 200 per second, in microseconds."""
    taken = []
    start = time.perf_counter()
    for number in range(int(SECONDS / PERIOD_S)):
        time.sleep(max(0.0, start + number * PERIOD_S - time.perf_counter()))
        sent = time.perf_counter()
        client.call(produce_request("t", batch(b"x" * 100)), 9)
        taken.append((time.perf_counter() - sent) * 1e6)
    return taken


def main(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        flag = Path(folder) / "busy"
        plugin = ROOT / "tests" / "system" / "busy_plugin"
        environment = {"PYTHONPATH": f"{plugin}{os.pathsep}{ROOT}", "KAFKAPY_BUSY_FLAG": str(flag)}
        with BrokerProcess(Path(folder) / "broker", environment=environment) as broker:
            ConfluentClient(broker.bootstrap).create_topic("t")
            client = RawClient(broker.bootstrap)
            latencies_us(client)
            results: dict[str, list[list[float]]] = {"idle": [], "busy": []}
            for _ in range(rounds):
                for kind in ("idle", "busy"):
                    flag.touch() if kind == "busy" else flag.unlink(missing_ok=True)
                    time.sleep(0.3)
                    results[kind].append(latencies_us(client))
            client.close()
    for kind, runs in results.items():
        p50 = [statistics.quantiles(run, n=100)[49] for run in runs]
        p99 = [statistics.quantiles(run, n=100)[98] for run in runs]
        print(f"{kind}: p50 {statistics.median(p50):8.0f} us   p99 {statistics.median(p99):8.0f} us   "
              f"p99 of each round: {', '.join(f'{v:.0f}' for v in p99)}")  # fmt: skip


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
