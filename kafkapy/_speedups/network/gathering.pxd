"""Requests that are gathered over a turn of the Processor, because their API makes one write of several.

A request waits here (OUTCOME_GATHERED) until the events of the turn, or the connections with received bytes, have been
looked at, but not much longer than a millisecond. Then each group, the requests with the same outcome.group, goes on at
once: several by the API's `settle`, a single one by `resume`. Small requests are gathered while more of them are at
hand (may_gather), so a single connection never waits.
"""

from kafkapy._speedups.base.posix cimport monotonic_ns
from kafkapy._speedups.network.processor_state cimport ProcessorState

cdef enum:
    MOST_WAIT_NS = 1_000_000        # for other requests of a turn, which may take long

# Goes on with the gathered requests. A thread that takes the Processor over meanwhile calls it again.
cdef void settle_gathered(ProcessorState* p) noexcept nogil


cdef inline void settle_if_due(ProcessorState* p) noexcept nogil:
    if not p.gathered.empty() and monotonic_ns() - p.gathered_ns > MOST_WAIT_NS:
        settle_gathered(p)
