"""The state of a share partition alone: acquire, acknowledge and end of the write, in ns of one record; and its memory.

    PYTHONPATH=. .venv/bin/python perf/share_bench.py [--rounds 200]

Members fetch and acknowledge in C (kafkapy/_speedups/testing/share_driver.pyx), without a log, a network or a disk:

    batch    one acknowledgement type for each acquired batch
    offsets  one type for each offset, all alike: the batch stays in one piece
    mixed    accepted and rejected in turns: the batch has a state for each offset

A window of `--window` records that are all in flight has the memory in the last table: as acquired, and with a state
for each record.
"""

from __future__ import annotations

import argparse
import threading
import time

from kafkapy._speedups.testing.share_driver import drive
from kafkapy._speedups.testing.share_partition import SharePartition

SHAPES = ((1, 500), (10, 50), (100, 5), (500, 1))
"""Records of a log batch, and batches of a fetch."""
KINDS: dict[str, dict[str, bool]] = {"batch": {}, "offsets": {"per_offset": True}, "mixed": {"mixed": True}}
MEMBERS = (1, 8, 64)
WINDOW_OF_A_BENCH = 1_000_000
REPEATS = 5


def share_partition(window: int = WINDOW_OF_A_BENCH) -> SharePartition:
    return SharePartition(max_in_flight=window, lock_ms=600_000)


def measure(members: int, width: int, count: int, rounds: int, **kind: bool) -> tuple[float, float, float]:
    """The least of several runs: acquire, acknowledge, write; ns per record."""
    names = [b"member-%032d" % number for number in range(members)]
    found = []
    for _ in range(REPEATS):
        times = drive(share_partition(), names, rounds=max(1, rounds // members), width=width, count=count, **kind)
        found.append([times[step] / times["records"] for step in ("acquire", "acknowledge", "write")])
    acquire, acknowledge, write = (min(run[step] for run in found) for step in range(3))
    return acquire, acknowledge, write


def measure_threads(threads: int, width: int, count: int, rounds: int) -> float:
    """Records per second over one share partition, by members in threads of their own."""
    share = share_partition()
    results: list[dict[str, int]] = []

    def run(number: int) -> None:
        results.append(drive(share, [b"member-%d" % number], rounds=rounds, width=width, count=count, number=number))

    workers = [threading.Thread(target=run, args=(number,)) for number in range(1, threads + 1)]
    begin = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(result["records"] for result in results) / (time.perf_counter() - begin)


def memory(window: int, width: int, *, mixed: bool) -> float:
    """Bytes per record of a full window."""
    share = share_partition(window)
    batches = [(first, first + width - 1, False) for first in range(0, window, width)]
    share.acquire(b"member", batches, 0, max_records=window, batch_size=1)
    if mixed:
        renew_and_accept = bytes([4, 1] * (width // 2 + 1))[:width]
        share.acknowledge(b"member", [(first, last, renew_and_accept) for first, last, _ in batches])
        taken = share.take_write()
        if taken is not None:
            share.finish_write(taken, True)
    description = share.describe()
    return description["memory"] / description["records"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=400, help="fetches of 500 records in a run")
    parser.add_argument("--window", type=int, default=2000, help="records of the window whose memory is shown")
    options = parser.parse_args()
    print("ns per record: acquire + acknowledge + end of the write")
    for members in MEMBERS:
        for width, count in SHAPES:
            cells = []
            for kind, how in KINDS.items():
                steps = measure(members, width, count, options.rounds, **how)
                cells.append(f"{kind} {' + '.join(f'{step:6.1f}' for step in steps)} = {sum(steps):6.1f}")
            print(f"{members:3d} members, {count:3d} batches of {width:3d}:  {'   '.join(cells)}")
    print("records per second, members in threads, 5 batches of 100")
    for threads in (1, 2, 4):
        print(f"{threads:3d} threads: {measure_threads(threads, 100, 5, 20 * options.rounds):12,.0f}")
    print(f"bytes per record of a full window of {options.window:,}")
    for width in (1, 10, 100, 500):
        whole, mixed = (memory(options.window, width, mixed=mixed) for mixed in (False, True))
        print(f"batches of {width:3d}: acquired {whole:6.1f}   mixed {mixed:6.1f}")


if __name__ == "__main__":
    main()
