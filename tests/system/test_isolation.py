"""The data plane does not wait for Python: produce and fetch are answered while the control loop is busy for 200 ms
at a time, and while it is stuck for good.

The numbers (produce p99 with and without a busy loop, A B A B) are printed by perf/isolation_bench.py.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from interop.clients import ConfluentClient
from system.raw_client import RawClient, batch, fetch_request, produce_request

from kafkapy.testing.broker_process import BrokerProcess

PLUGIN = Path(__file__).parent / "busy_plugin"


def plugin_environment(flag: Path) -> dict[str, str]:
    return {
        "PYTHONPATH": os.pathsep.join([str(PLUGIN), os.environ.get("PYTHONPATH", "")]),
        "KAFKAPY_BUSY_FLAG": str(flag),
    }


def answers_in_spells(flag: Path, answered: list[float]) -> list[int]:
    """How many answers came during each spell in which the plugin kept the loop busy."""
    file = Path(f"{flag}.spells")
    lines = file.read_text().splitlines(keepends=True) if file.exists() else []
    spells = [tuple(map(float, line.split())) for line in lines if line.endswith("\n")]
    return [sum(start < at < finish for at in answered) for start, finish in spells]


def test_produce_and_fetch_are_answered_while_the_control_loop_is_busy(tmp_path: Path) -> None:
    flag = tmp_path / "busy"
    with BrokerProcess(tmp_path / "broker", environment=plugin_environment(flag)) as broker:
        ConfluentClient(broker.bootstrap).create_topic("t")
        client = RawClient(broker.bootstrap)
        assert client.call(produce_request("t", batch(b"first")), 9).responses[0].partition_responses[0].error_code == 0
        flag.touch()
        answered: list[float] = []
        deadline = time.monotonic() + 60
        # A data plane that waits for Python answers between the spells, at most once or twice inside one. How many fit
        # into one depends on the machine.
        while sum(count >= 10 for count in answers_in_spells(flag, answered)) < 3:
            assert time.monotonic() < deadline, answers_in_spells(flag, answered)
            produced = client.call(produce_request("t", batch(b"x")), 9).responses[0].partition_responses[0]
            assert produced.error_code == 0
            fetched = client.call(fetch_request("t", produced.base_offset), 11).responses[0].partitions[0]
            assert fetched.error_code == 0
            assert fetched.records
            answered.append(time.monotonic())
        flag.unlink()
        client.close()


@pytest.mark.parametrize("storage", ["local", "memory"])
@pytest.mark.parametrize("flush_messages", ["1", "1000000"])
def test_rolls_and_flushes_go_on_while_the_control_loop_is_stuck(
    tmp_path: Path, storage: str, flush_messages: str
) -> None:
    flag = tmp_path / "busy"
    stuck = Path(f"{flag}.stuck")
    config = {
        "segment.bytes": "1048576",
        "flush.messages": flush_messages,
        "kafkapy.storage.backend": storage,
    }
    with BrokerProcess(tmp_path / "broker", environment=plugin_environment(flag)) as broker:
        ConfluentClient(broker.bootstrap).create_topic("t", config=config)
        client = RawClient(broker.bootstrap)
        records = batch(bytes(100_000))
        assert client.call(produce_request("t", records), 9).responses[0].partition_responses[0].error_code == 0
        stuck.touch()
        try:
            while not Path(f"{flag}.sleeps").exists():
                time.sleep(0.01)
            # Ten to a segment. Nothing can be asked of Python until the file is gone.
            for number in range(1, 100):
                produced = client.call(produce_request("t", records), 9).responses[0].partition_responses[0]
                assert (produced.error_code, produced.base_offset) == (0, number)
            fetched = client.call(fetch_request("t", 99), 11).responses[0].partitions[0]
            assert fetched.records
        finally:
            stuck.unlink()
        client.close()
        if storage == "local":
            assert len(list((broker.data_dir / "logs" / "t-0").glob("*.log"))) >= 9
