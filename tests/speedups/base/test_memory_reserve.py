"""What is left when the system has no more memory, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import resource, threading
from kafkapy._speedups.base import memory_reserve
from kafkapy._speedups.base.event_queue import EventQueue

memory_reserve.install()
queue = EventQueue()
assert not memory_reserve.is_short()
text = b"x" * 100_000
pages = int(open("/proc/self/statm").read().split()[0]) + 512      # room for Python's own objects
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize(), resource.RLIM_INFINITY))
posted = 0
while memory_reserve.counters()["taken"] == 0:      # the queue takes what it is given: C++ objects
    queue.post(3, 0, 0, text)
    posted += 1
for _ in range(20):
    queue.post(3, 0, 0, text)
    posted += 1
short = memory_reserve.is_short()
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert short, "the reserve is there again although there is no memory"
assert not memory_reserve.is_short()
assert len(queue.drain()) == posted
"""


@pytest.mark.skipif(
    "KAFKAPY_ASAN" in os.environ or "KAFKAPY_TSAN" in os.environ, reason="a sanitizer takes all of the address space"
)
def test_small_allocations_go_on_and_the_reserve_comes_back() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
