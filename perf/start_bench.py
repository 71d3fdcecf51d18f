"""Warm start to the first accepted produce, and idle resident memory.

.venv/bin/python perf/start_bench.py [rounds]
"""

from __future__ import annotations

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


def main(rounds: int) -> None:
    started, produced, memory = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        broker = BrokerProcess(Path(folder))
        broker.start()
        ConfluentClient(broker.bootstrap).create_topic("t")
        broker.stop()
        for _ in range(rounds):
            begin = time.perf_counter()
            broker.start()
            started.append(time.perf_counter() - begin)
            client = RawClient(broker.bootstrap)
            while client.call(produce_request("t", batch(b"x")), 9).responses[0].partition_responses[0].error_code:
                time.sleep(0.001)
            produced.append(time.perf_counter() - begin)
            client.close()
            time.sleep(0.5)
            memory.append(broker.rss_bytes() / 1e6)
            broker.stop()
        broker.remove()
    print(
        f"listening {statistics.median(started) * 1000:.0f} ms, "
        f"first accepted produce {statistics.median(produced) * 1000:.0f} ms "
        f"(worst {max(produced) * 1000:.0f} ms), idle RSS {statistics.median(memory):.1f} MB, medians of {rounds}"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 7)
