"""Limits of the machine: open files, threads, memory maps, memory, processors, socket buffers."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kafkapy.broker.descriptors import DescriptorBudget
from kafkapy.config.broker import BrokerConfig
from kafkapy.config.config_def import MAX_INT
from kafkapy.tools.host_checks.finding import Finding, Host, Subject, problem, satisfied, unknown, warning
from kafkapy.tools.output import size_text

__all__ = ["check", "threads_of"]

LEAST_FILES: Final = 1024
"""Fewer open files keep the broker from its work."""
ROOMY_FILES: Final = 16_384
ADVISED_FILES: Final = 100_000
FILES_OF_PARTITION: Final = 4
"""Open files that a partition in use may need (docs/scale.md)."""
MAPS_OF_SEGMENT: Final = 2
"""Each segment in use may map its offset index and its time index."""
OTHER_MAPS: Final = 2_000
OTHER_THREADS: Final = 32
"""The control loop, the executor, plugins, the metadata store's client."""
BASE_MEMORY: Final = 128 << 20
"""Bytes of the interpreter, the modules and the caches under load, rounded up (docs/performance.md, W6)."""
MOST_SWAPPINESS: Final = 10


def check(subject: Subject) -> Iterator[Finding]:
    """The findings."""
    config, host = subject.config, subject.host
    partitions, segments = _counts(config)
    yield _open_files(config, partitions)
    yield _threads(config, host)
    yield _maps(host, segments)
    yield _memory(config, host)
    yield from _swap(host)
    yield _processors(host)
    yield from _sockets(config, host)


def _open_files(config: BrokerConfig, partitions: int) -> Finding:
    # The broker raises the soft limit to the hard one at its start.
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard == resource.RLIM_INFINITY:
        return satisfied("open files", "no limit")
    budget = DescriptorBudget.of(hard)
    found = f"{hard:,}: {budget.segment_files:,} for segments, {budget.connections:,} for connections"
    wanted = max(ADVISED_FILES, FILES_OF_PARTITION * partitions)
    change = f"Set LimitNOFILE={wanted} in the systemd unit, or ulimit -Hn {wanted} before the start."
    if hard < LEAST_FILES:
        why = "Segments and connections get half each; the broker refuses connections beyond."
        return problem("open files", found, change, why)
    most = config.get_int("max.connections")
    if most != MAX_INT and most > budget.connections:
        why = f"max.connections={most:,} promises more connections than the limit allows."
        return warning("open files", found, change, why)
    if hard < max(ROOMY_FILES, FILES_OF_PARTITION * partitions):
        why = f"{partitions:,} partitions may need {FILES_OF_PARTITION} files each; a shortage closes and opens files."
        return warning("open files", found, change, why)
    return satisfied("open files", found)


def threads_of(config: BrokerConfig) -> int:
    """The threads that a broker of this configuration may start."""
    count = sum(
        int(config.for_listener(each.listener_name, "num.network.threads")) + 1 for each in config.listeners
    )
    for key in ("num.io.threads", "background.threads", "num.replica.fetchers", "log.cleaner.threads"):
        count += config.get_int(key)
    return count + len(config.log_dirs) * config.get_int("num.recovery.threads.per.data.dir") + OTHER_THREADS


def _threads(config: BrokerConfig, host: Host) -> Finding:
    needed = threads_of(config)
    limits = {"TasksMax of the systemd unit (pids.max)": host.least_of_cgroups("pids.max")}
    hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    if hard != resource.RLIM_INFINITY and os.geteuid() != 0:
        limits["LimitNPROC of the systemd unit (ulimit -u)"] = hard
    small = {name: limit for name, limit in limits.items() if limit is not None and limit < needed}
    if small:
        name, limit = min(small.items(), key=lambda item: item[1])
        why = f"The configured threads are about {needed}; the broker does not start without them."
        return problem("threads", f"at most {limit:,}", f"Raise {name} to {2 * needed} or more.", why)
    return satisfied("threads", f"about {needed} configured")


def _maps(host: Host, segments: int) -> Finding:
    most = host.number("proc/sys/vm/max_map_count")
    needed = MAPS_OF_SEGMENT * segments + OTHER_MAPS
    if most is None:
        return unknown("memory maps", "vm.max_map_count cannot be read")
    if most < needed:
        change = f"sysctl vm.max_map_count={max(262_144, 2 * needed)}"
        why = f"{segments:,} segments map {MAPS_OF_SEGMENT} indexes each when they are read; reads fail at the limit."
        return warning("memory maps", f"{most:,} for {segments:,} segments", change, why)
    return satisfied("memory maps", f"{most:,} for {segments:,} segments")


def _memory(config: BrokerConfig, host: Host) -> Finding:
    total = _of_meminfo(host, "MemTotal")
    limit = host.least_of_cgroups("memory.max")
    have = min((each for each in (total, limit) if each is not None), default=None)
    if have is None:
        return unknown("memory", "/proc/meminfo cannot be read")
    cleaner = config.get_int("log.cleaner.dedupe.buffer.size") if config.get_bool("log.cleaner.enable") else 0
    request = config.get_int("socket.request.max.bytes")
    needed = BASE_MEMORY + cleaner + request
    where = " (limit of the cgroup)" if have == limit else ""
    if have < needed:
        change = (
            f"Give the broker {size_text(2 * needed)}, or lower log.cleaner.dedupe.buffer.size ({size_text(cleaner)}) "
            f"and socket.request.max.bytes ({size_text(request)})."
        )
        why = "The cleaner's buffer and one largest request do not fit, and the kernel kills processes without memory."
        return warning("memory", f"{size_text(have)}{where}", change, why)
    return satisfied("memory", f"{size_text(have)}{where}; the broker needs about {size_text(needed)}")


def _swap(host: Host) -> Iterator[Finding]:
    if not _of_meminfo(host, "SwapTotal"):
        return
    swappiness = host.number("proc/sys/vm/swappiness")
    if swappiness is not None and swappiness > MOST_SWAPPINESS:
        why = "The kernel swaps memory of the broker out to cache files; a network thread then waits for a disk."
        yield warning("swap", f"vm.swappiness is {swappiness}", "sysctl vm.swappiness=1", why)


def _processors(host: Host) -> Finding:
    cores = float(len(os.sched_getaffinity(0)))
    for quota, _, period in (text.partition(" ") for text in host.of_cgroups("cpu.max")):
        if quota.isdigit() and period.isdigit() and int(period):
            cores = min(cores, int(quota) / int(period))
    if cores < 1:
        why = "The kernel stops all threads of the broker for the rest of each period, and requests wait so long."
        return warning("processors", f"{cores:g} cores", "Give the broker one core or more (CPUQuota, --cpus).", why)
    return satisfied("processors", f"{cores:g} cores")


def _sockets(config: BrokerConfig, host: Host) -> Iterator[Finding]:
    for key, setting, kernel in (
        ("socket.listen.backlog.size", "backlog", "net/core/somaxconn"),
        ("socket.receive.buffer.bytes", "receive buffer", "net/core/rmem_max"),
        ("socket.send.buffer.bytes", "send buffer", "net/core/wmem_max"),
    ):
        wanted, most = config.get_int(key), host.number(f"proc/sys/{kernel}")
        if most is not None and wanted > most:
            name = kernel.replace("/", ".")
            why = f"The kernel silently lowers the {setting} of each listener to {name}."
            yield warning(setting, f"{key} is {wanted:,}, {name} is {most:,}", f"sysctl {name}={wanted}", why)


def _of_meminfo(host: Host, name: str) -> int | None:
    """Bytes of a line of /proc/meminfo."""
    for line in (host.text("proc/meminfo") or "").splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return int(value.split()[0]) * 1024
    return None


def _counts(config: BrokerConfig) -> tuple[int, int]:
    """(partitions, segments) in the log directories; unreadable ones count as empty."""
    from kafkapy.log.dir_scan import parse_directory_name

    partitions = segments = 0
    for directory in config.log_dirs:
        for entry in _entries(Path(directory)):
            if entry.is_dir() and parse_directory_name(entry.name) is not None:
                partitions += 1
                segments += sum(each.name.endswith(".log") for each in _entries(Path(entry.path)))
    return partitions, segments


def _entries(path: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(path) as found:
            yield from found
    except OSError:
        return
