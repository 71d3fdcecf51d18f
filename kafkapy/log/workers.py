"""The data plane's threads that wait for a log directory's disk.

No other thread has to.
"""

from __future__ import annotations

from kafkapy._speedups.log.workers import LogWorkers

__all__ = ["DirWorkers"]

THREADS = 4
"""Of each kind: partitions of a directory whose files stall at the same time before the others of it wait as well."""


class DirWorkers:
    """The native threads of one log directory.

    Owned by LogManager, which stops them; a thread starts when it is first needed and sleeps while nothing waits.
    """

    def __init__(self) -> None:
        self.segments = LogWorkers("kafka-segments", THREADS)
        """Make the next segments' files."""
        self.flushes = LogWorkers("kafka-flushes", THREADS)
        """Sync what flush.messages asks for."""
        self.appends = LogWorkers("kafka-appends", THREADS)
        """Append the coordinators' records."""

    def stop(self) -> None:
        """Finishes what waits and ends the threads. Blocking."""
        self.appends.stop()
        self.segments.stop()
        self.flushes.stop()
