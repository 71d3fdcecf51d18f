"""The data plane does not wait for Python: produce and fetch are answered while the control loop is busy for 200 ms
at a time.

The numbers (produce p99 with and without a busy loop, A B A B) are printed by perf/isolation_bench.py.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from interop.clients import ConfluentClient
from system.raw_client import RawClient, batch, fetch_request, produce_request

from kafkapy.testing.broker_process import BrokerProcess

PLUGIN = Path(__file__).parent / "busy_plugin"


def test_produce_and_fetch_are_answered_while_the_control_loop_is_busy(tmp_path: Path) -> None:
    flag = tmp_path / "busy"
    environment = {
        "PYTHONPATH": os.pathsep.join([str(PLUGIN), os.environ.get("PYTHONPATH", "")]),
        "KAFKAPY_BUSY_FLAG": str(flag),
    }
    with BrokerProcess(tmp_path / "broker", environment=environment) as broker:
        ConfluentClient(broker.bootstrap).create_topic("t")
        client = RawClient(broker.bootstrap)
        assert client.call(produce_request("t", batch(b"first")), 9).responses[0].partition_responses[0].error_code == 0
        flag.touch()
        answered = []
        end = time.monotonic() + 3
        while time.monotonic() < end:
            produced = client.call(produce_request("t", batch(b"x")), 9).responses[0].partition_responses[0]
            assert produced.error_code == 0
            fetched = client.call(fetch_request("t", produced.base_offset), 11).responses[0].partitions[0]
            assert fetched.error_code == 0
            assert fetched.records
            answered.append(time.monotonic())
        flag.unlink()
        client.close()
        spells = [tuple(map(float, line.split())) for line in Path(f"{flag}.spells").read_text().splitlines()]
    assert len(spells) >= 3, "the plugin did not keep the loop busy"
    # A data plane that waits for Python would answer between the spells, at most once or twice inside one.
    for start, finish in spells[1:-1]:
        assert sum(start < at < finish for at in answered) >= 10
