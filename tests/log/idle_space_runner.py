"""Appends to a log while it gives back its idle disk space, which is slow.

Started by test_reserved_space.py with the library of tests/system/slow_files.c preloaded:

    python idle_space_runner.py <directory>

It appends while the operation is slow: KAFKAPY_SLOW_FILES names the file that tells. Ends with an error when an append
is missing afterwards, in the log or in its files.
"""

from __future__ import annotations

import os
import struct
import sys
import threading
import time
from pathlib import Path

from conftest import Logs, make_batch

from kafkapy._speedups.records.reservation import set_reservation

HITS = 12
"""Place of the number of slow operations in the file."""
BATCH = make_batch(1, value=b"v" * 1000)


def main() -> None:
    set_reservation(1 << 20, start=5000, least_free=0, anywhere=True)
    root = Path(sys.argv[1])
    root.mkdir()
    logs = Logs(root)
    log = logs.open()
    for _ in range(10):
        log.append_as_leader(BATCH, api_version=9)
    log.release_idle_space()
    thread = threading.Thread(target=log.release_idle_space)
    thread.start()
    control = Path(os.environ["KAFKAPY_SLOW_FILES"])
    while not struct.unpack_from("<i", control.read_bytes(), HITS)[0]:
        assert thread.is_alive(), "no space was given back"
        time.sleep(0.005)
    for _ in range(10):
        log.append_as_leader(BATCH, api_version=9)
    thread.join()
    end = log.log_end_offset
    stamped = log.read(0, 1 << 20)[0]
    del log
    again = logs.open(clean=False)
    assert again.log_end_offset == end == 20, (again.log_end_offset, end)
    assert len(stamped) == 20 * len(BATCH)
    assert again.read(0, 1 << 20)[0] == stamped


main()
