"""Network threads: pools of Processors whose size may change while they serve. Source: kafka.network.SocketServer."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkapy._speedups.network.processor import Processor

if TYPE_CHECKING:
    from kafkapy._speedups.network.processor import ProcessorCounters

__all__ = ["NetworkThreads", "start_thread", "sum_times"]

Times = dict[str, tuple[int, list[int]]]
"""Total in ns and counts by bucket, by the part of a request's time; see Processor.counters."""
RETIRE_MS: Final = 10_000
"""Time in ms for a retired Processor to answer its requests in flight."""


class _Running(NamedTuple):
    processor: Processor
    thread: threading.Thread


class NetworkThreads:
    """Owns the Processors of some listeners, and their threads.

    Used on the control loop. A smaller pool retires Processors: each answers its requests in flight, closes its
    connections and ends.
    """

    def __init__(self, make: Callable[[], Processor], name: str) -> None:
        self._make = make
        self._name = name
        self._next = 0
        self._running: list[_Running] = []
        self._retired: list[_Running] = []
        self._past: list[dict[int, Times]] = []
        """The times of requests of Processors that have ended."""

    @property
    def processors(self) -> list[Processor]:
        """The Processors that get connections."""
        return [each.processor for each in self._running]

    def __len__(self) -> int:
        return len(self._running)

    def grow(self, count: int) -> None:
        """Start missing threads. OSError when the system allows none."""
        while len(self._running) < count:
            processor = self._make()
            name = f"kafka-network-thread-{self._name}{self._next}"
            self._next += 1
            self._running.append(_Running(processor, start_thread(processor.run, name)))

    def without(self, count: int) -> list[Processor]:
        """The Processors that a pool of `count` keeps."""
        return [each.processor for each in self._running[:count]]

    def shrink(self, count: int) -> None:
        """Retire the Processors beyond `count`. No Acceptor gives them connections any more."""
        ended = [each for each in self._retired if not each.thread.is_alive()]
        self._retired = [each for each in self._retired if each not in ended]
        self._past = [sum_times([*self._past, *(each.processor.counters()["times"] for each in ended)])]
        for each in self._running[count:]:
            each.processor.begin_stop(RETIRE_MS)
            self._retired.append(each)
        del self._running[count:]

    def begin_stop(self, timeout_ms: int) -> None:
        """Read no more requests, and answer those in flight."""
        for each in self._all():
            each.processor.begin_stop(timeout_ms)

    def close_connection(self, connection_id: int) -> None:
        """Close one connection, if a Processor of this pool has it."""
        for each in self._all():
            each.processor.close_connection(connection_id)

    @property
    def stopped(self) -> bool:
        """Whether every thread has ended."""
        return not any(each.thread.is_alive() for each in self._all())

    def join(self, deadline: float, longer_s: float) -> None:
        """Wait for the threads. Blocking; `deadline` is a monotonic time."""
        for each in self._all():
            each.thread.join(max(0.0, deadline - time.monotonic()) + longer_s)

    def clear(self) -> None:
        """Let go of Processors whose threads have ended; their descriptors are closed with them."""
        self._running.clear()
        self._retired.clear()

    def counters(self) -> list[ProcessorCounters]:
        """Processor.counters of every Processor that gets connections. Any thread."""
        return [each.processor.counters() for each in list(self._running)]

    def times(self) -> list[dict[int, Times]]:
        """The times of requests at every Processor that there was, see Processor.counters. Any thread."""
        return [*list(self._past), *(each.processor.counters()["times"] for each in list(self._all()))]

    def _all(self) -> Iterator[_Running]:
        yield from self._running
        yield from self._retired


def start_thread(target: Any, name: str) -> threading.Thread:
    """A started daemon thread. OSError when the system allows none."""
    thread = threading.Thread(target=target, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        raise OSError(errno.EAGAIN, f"{name} cannot be started: {error}") from error
    return thread


def sum_times(each: Iterable[Mapping[int, Times]]) -> dict[int, Times]:
    """The times of requests by API, over several Processors."""
    sums: dict[int, Times] = {}
    for apis in each:
        for key, times in apis.items():
            known = sums.get(key)
            if known is None:
                sums[key] = dict(times)
                continue
            for name, (total_ns, counts) in times.items():
                before_ns, before = known[name]
                known[name] = before_ns + total_ns, [a + b for a, b in zip(before, counts, strict=True)]
    return sums
