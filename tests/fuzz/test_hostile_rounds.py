"""Spoiled requests as fast as they are taken, beside a client that must not notice.

The environment of the soak test: KAFKAPY_FUZZ_FRAMES says how many frames are to be decoded, KAFKAPY_FUZZ_SEED the
seed of the first round (each later one has the next number), KAFKAPY_FUZZ_NATIVE how many of a hundred frames are
Produce and Fetch, KAFKAPY_FUZZ_COUNT a file that gets a line for each round: frames decoded, the seed, the broker's
memory (MB) and log (bytes), and what perf/native/hostile.c says, with [decoded, answered] by API key.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest
from fuzz.hostile import MEGABYTE, hammer_natively, limited_broker, tidy
from fuzz.test_hostile_frames import WellBehaved, prepare, rss_bytes

from kafkapy.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.skipif(
    bool(os.environ.get("KAFKAPY_ASAN")), reason="AddressSanitizer needs more address space than the limit leaves"
)
ROUND = 2_000_000
NATIVE = 95
"""Of a hundred frames in the soak test: these are decoded in C by hand, and cost a tenth of one that Python serves."""
EVERY_API = 100_000
"""A round of so many frames has one that is answered for each API."""
GROWTH = 200 * MEGABYTE


def requests_counted(broker: BrokerProcess) -> int:
    """What the log says of connections that the frames have ended; to know that it is not empty."""
    return len(re.findall(rb"Connection \d+ from \S+ is closed: ", broker.log_path.read_bytes()))


def rounds(folder: Path, total: int, seed: int, native: int) -> int:
    """How many frames were decoded, in rounds of at most ROUND with a seed each, until there are `total` of them."""
    decoded, first = 0, 0
    count = Path(os.environ.get("KAFKAPY_FUZZ_COUNT", os.devnull))
    with limited_broker(folder / "broker") as broker:
        served, _ = prepare(broker)
        pid = broker.pid
        neighbour = WellBehaved(broker.bootstrap)
        while decoded < total:
            said = hammer_natively(broker, folder, min(ROUND, total - decoded + 1000), seed, native)
            decoded += said["decoded"]
            assert said["decoded"] > said["frames"] * 0.9, f"seed {seed}: {said}"
            assert said["answered"] > said["frames"] * 0.3, f"seed {seed}: {said}"
            missed = [key for key in served if not said["apis"].get(str(key), [0, 0])[1]]
            assert not missed or said["frames"] < EVERY_API, f"seed {seed}: no frame of API keys {missed} was answered"
            assert broker.process is not None
            assert broker.process.poll() is None, f"seed {seed}"
            assert not neighbour.problems, f"seed {seed}: {neighbour.problems[:3]}"
            tidy(broker, {"well-behaved"})
            rss = rss_bytes(pid)
            first = first or rss
            assert rss - first < GROWTH, f"seed {seed}: {rss / MEGABYTE:.0f} MB, {first / MEGABYTE:.0f} at first"
            with count.open("a") as file:
                log = broker.log_path.stat().st_size
                file.write(f"{said['decoded']} {seed} rss={rss // MEGABYTE} log={log} {said}\n")
            seed += 1
        neighbour.finish()
        assert requests_counted(broker) > 0
    return decoded


@pytest.mark.timeout(900)
def test_many_spoiled_requests_behind_one_another(tmp_path: Path) -> None:
    assert rounds(tmp_path, 100_000, seed=1, native=70) >= 100_000


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_millions_of_spoiled_requests(tmp_path: Path) -> None:
    total = int(os.environ.get("KAFKAPY_FUZZ_FRAMES", "5000000"))
    seed = int(os.environ.get("KAFKAPY_FUZZ_SEED", time.time_ns() % 2**40))
    native = int(os.environ.get("KAFKAPY_FUZZ_NATIVE", NATIVE))
    print(f"KAFKAPY_FUZZ_SEED={seed} KAFKAPY_FUZZ_NATIVE={native}")
    assert rounds(tmp_path, total, seed, native) >= total
