"""The clock: is it synchronised, plausible and cheap to read?"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import kafkapy
from kafkapy.broker.meta_properties import FILE_NAME
from kafkapy.log.checkpoints import HIGH_WATERMARK_FILE, LOG_START_OFFSET_FILE, RECOVERY_POINT_FILE
from kafkapy.tools.host_checks.finding import Finding, Host, Subject, problem, satisfied, unknown, warning

__all__ = ["check", "kernel_clock"]

UNSYNCHRONISED: Final = 0x40
"""STA_UNSYNC of adjtimex(2)."""
CLOCK_ERROR: Final = 5
"""TIME_ERROR of adjtimex(2)."""
LARGE_ERROR_MS: Final = 1000
FUTURE_S: Final = 60
DAY_S: Final = 86_400
FAST_SOURCES: Final = frozenset(
    ("tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page", "timebase", "tod", "riscv_clocksource")
)
"""Clock sources that a process reads without a system call."""
WRITTEN_FILES: Final = (RECOVERY_POINT_FILE, LOG_START_OFFSET_FILE, HIGH_WATERMARK_FILE, FILE_NAME)


class KernelClock(NamedTuple):
    """The kernel's view of its clock: synchronised or not, and the largest error."""

    synchronised: bool
    error_ms: float


class _Timex(ctypes.Structure):
    """The beginning of struct timex, and room for the rest."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_char * 256),
    )


def kernel_clock() -> KernelClock:
    """The state of the clock. OSError when this process may not ask."""
    state = _Timex()
    answer = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(state))
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return KernelClock(answer != CLOCK_ERROR and not state.status & UNSYNCHRONISED, state.maxerror / 1000)


def check(subject: Subject) -> Iterator[Finding]:
    """The findings."""
    yield _synchronised()
    yield from _plausible(subject)
    yield from _source(subject.host)


def _synchronised() -> Finding:
    change = "Run chrony or systemd-timesyncd on the machine (for a container: on its host)."
    why = "Retention, timestamps of records, tokens and certificates depend on the time, and so do brokers together."
    try:
        clock = kernel_clock()
    except OSError as error:
        return unknown("synchronisation", f"the kernel does not tell: {error.strerror}")
    if not clock.synchronised:
        return warning("synchronisation", "no daemon keeps the clock right", change, why)
    if clock.error_ms > LARGE_ERROR_MS:
        return warning("synchronisation", f"the clock may be wrong by {clock.error_ms:,.0f} ms", change, why)
    return satisfied("synchronisation", f"the clock is right to {clock.error_ms:,.1f} ms")


def _plausible(subject: Subject) -> Iterator[Finding]:
    """The clock against files that were written in the past."""
    why = "A clock behind its own files delays retention, and a jump of the clock expires records and sessions at once."
    files = [Path(kafkapy.__file__)]
    files += [Path(directory) / name for directory in subject.config.log_dirs for name in WRITTEN_FILES]
    newest, file = max((_written(each), each) for each in files)
    ahead = newest - time.time()
    if ahead > FUTURE_S:
        found = f"{file} was written {ahead:,.0f} s in the future"
        change = "Set the clock right before the broker starts."
        finding = problem if ahead > DAY_S else warning
        yield finding("time", found, change, why)


def _written(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _source(host: Host) -> Iterator[Finding]:
    source = host.text("sys/devices/system/clocksource/clocksource0/current_clocksource")
    if source is not None and source not in FAST_SOURCES:
        change = "Choose a source of /sys/devices/system/clocksource/clocksource0/available_clocksource, such as tsc."
        why = "Each request reads the clock several times, and this source needs a system call or slow hardware."
        yield warning("clock source", source, change, why)
