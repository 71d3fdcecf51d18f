"""Measuring processes: the native programs, CPU time, memory, file descriptors and the cores they may run on."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
NATIVE = Path(__file__).parent / "native"
CACHE = ROOT / ".cache" / "perf"
NICE = -15
"""Of brokers and generators, where only root may have it."""

BROKER_CORE = 0
LOAD_CORE = 1
LIBRARIES = {"limit": ["-llz4", "-lzstd", "-lssl", "-lcrypto"], "load": ["-lssl", "-lcrypto"], "arrow": ["-llz4"]}
CPU_LATENCY = Path("/dev/cpu_dma_latency")
GB = 1e9


class LoadError(RuntimeError):
    """The load generator ended with an error: a wrong reply, or none; the message is its own."""


def native(name: str) -> Path:
    """The compiled program `perf/native/<name>.c`, built again when a source changed.

    Raises RuntimeError without gcc.
    """
    sources = [NATIVE / f"{name}.c", *sorted(NATIVE.glob("*.h"))]
    stamp = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    program = CACHE / f"{name}-{stamp}"
    if not program.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        unfinished = CACHE / f"{name}-{stamp}.{os.getpid()}"
        command = ["gcc", "-O2", "-Wall", "-std=gnu11", "-msse4.2", "-o", str(unfinished), str(sources[0])]
        command += LIBRARIES.get(name, [])
        try:
            built = subprocess.run(command, capture_output=True, text=True)
        except FileNotFoundError:
            raise RuntimeError("gcc is not installed; the load generator is a C program") from None
        if built.returncode != 0:
            raise RuntimeError(f"{name}.c does not compile: {built.stderr[-1000:]}")
        unfinished.rename(program)
    return program


def process_tree(pid: int) -> list[int]:
    """The process and all its descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found, left = [], [pid]
    while left:
        found.append(left.pop())
        left += children.get(found[-1], [])
    return found


def cpu_seconds(pid: int) -> float:
    """User and system time of a process, from its CPU clock: nanosecond steps, ended threads included."""
    process_clock = ~pid << 3 | 2  # as clock_getcpuclockid(3) makes it
    return time.clock_gettime(process_clock)


def rss_bytes(pid: int) -> int:
    """Resident memory of the process tree, bytes."""
    total = 0
    for member in process_tree(pid):
        try:
            found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{member}/status").read_text())
        except OSError:
            continue
        total += int(found[1]) * 1024 if found else 0
    return total


def file_descriptors(pid: int) -> int:
    """Open file descriptors of the process tree."""
    return sum(1 for member in process_tree(pid) for _ in Path(f"/proc/{member}/fd").iterdir())


@contextmanager
def on_cores(cores: set[int]) -> Iterator[None]:
    """What this thread starts meanwhile runs on those cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def all_cores() -> set[int]:
    """The cores that this process was started with."""
    return _CORES


_CORES = os.sched_getaffinity(0)


def broker_cores(pinned: bool) -> set[int]:
    return {BROKER_CORE} if pinned and len(_CORES) > 1 else _CORES


def load_cores(pinned: bool) -> set[int]:
    return {LOAD_CORE} if pinned and len(_CORES) > 1 else _CORES


def polls(pinned: bool) -> int:
    """Whether a load generator that sends as fast as replies come polls for them: 1 when it has a core of its own."""
    return int(load_cores(pinned) != _CORES)


@contextmanager
def kept_awake() -> Iterator[bool]:
    """A core with nothing to do polls meanwhile and does not halt. Gives whether it is so: only root may ask for it.

    The kernel keeps to the wake-up latency written to this file as long as it is open. Source: its documentation,
    power/pm_qos_interface.
    """
    try:
        wish = CPU_LATENCY.open("wb", buffering=0)
    except OSError:
        yield False
        return
    with wish:
        wish.write(bytes(4))  # microseconds, an int
        yield True


def run_native(name: str, *arguments: object, pinned: bool = True, timeout_s: float = 300.0) -> dict[str, Any]:
    """Runs load or tail and gives what it measured. Raises LoadError when it refused a reply or did not end."""
    cores = load_cores(pinned)
    command = [str(native(name)), *map(str, arguments)]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            preexec_fn=lambda: os.sched_setaffinity(0, cores),
        )
    except subprocess.TimeoutExpired:
        raise LoadError(f"{name} did not end within {timeout_s:.0f} s") from None
    if done.returncode != 0:
        raise LoadError(done.stderr.strip()[-500:] or f"{name} ended with {done.returncode}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def options(**named: object) -> list[str]:
    """connections=8 becomes --connections 8."""
    return [part for name, value in named.items() for part in (f"--{name.replace('_', '-')}", str(value))]


def pids(process: int) -> str:
    return ",".join(map(str, process_tree(process)))


def back_pages(folder: Path, size: int) -> None:
    """Writes and deletes a file of that size, so that the next file's pages are memory that the machine already has.

    A virtual machine gives free memory back to its host within seconds and then gets it page by page, at several
    times the cost of writing it: noise which depends on what ran before. So every round of every peer starts with this.
    """
    path = folder / f"pages-{os.getpid()}"
    block = bytes(1 << 20)
    with path.open("wb", buffering=0) as file:
        for _ in range(size >> 20):
            file.write(block)
    path.unlink()


class PeakMemory:
    """Samples a process tree's resident memory every 20 ms on a thread of its own; `peak` in bytes."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.peak = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def _sample(self) -> None:
        while True:
            self.peak = max(self.peak, rss_bytes(self.pid))
            if self._done.wait(0.02):
                return

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()


@contextmanager
def timer() -> Iterator[list[float]]:
    """Puts the seconds that the block took into the list it gives."""
    taken: list[float] = []
    begin = time.perf_counter()
    yield taken
    taken.append(time.perf_counter() - begin)


def run_before_others() -> None:
    """Brokers and generators started from here on get the cores before the machine's own processes, if root asks."""
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, NICE)


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    memory = re.search(r"MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text())
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout
    with kept_awake() as awake:
        pass
    return {
        "cpu": cpu[1] if cpu else "unknown",
        "cores": len(_CORES),
        "memory_gb": round(int(memory[1]) / 1e6, 1) if memory else 0,
        "kernel": os.uname().release,
        "commit": commit.strip(),
        "load_average_at_start": os.getloadavg()[0],
        "may_keep_cores_awake": awake and bool(polls(pinned=True)),
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
    }


def chosen(values: Sequence[str], wanted: str | None) -> list[str]:
    """The values named in a comma-separated option, in their own order; all of them without one."""
    if not wanted:
        return list(values)
    names = [name.strip() for name in wanted.split(",")]
    unknown = set(names) - set(values)
    if unknown:
        raise SystemExit(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(values)}")
    return [value for value in values if value in names]
