"""The state of a partition log as lists and dicts for Python.

Each function takes the mutex without the GIL, copies, and builds objects afterwards.
"""

from libc.stdint cimport int64_t
from libcpp.vector cimport vector

from kafkapy._speedups.log.layout cimport LogCounters, LogState
from kafkapy._speedups.log.segment cimport SegmentState

# Adds a reference to every segment, oldest first; the caller releases them.
cdef void hold_segments(LogState* log, vector[SegmentState*]* out) noexcept nogil
cdef list describe_segments(LogState* log)
cdef dict describe_counters(LogCounters* counters)
cdef list describe_followers(LogState* log)
cdef list describe_epochs(LogState* log)
cdef list describe_aborted(LogState* log, int64_t start, int64_t end)
cdef list describe_producers(LogState* log)
