"""What Python asks a partition log about itself, as lists and dicts. Each function takes the mutex without the GIL,
copies, and builds objects after.
"""

from libc.stdint cimport int64_t
from libcpp.vector cimport vector

from kafkapy._speedups.log.layout cimport LogCounters, LogState
from kafkapy._speedups.log.segment cimport SegmentState

# A reference to every segment, oldest first; the caller gives them back.
cdef void hold_segments(LogState* log, vector[SegmentState*]* out) noexcept nogil
cdef list describe_segments(LogState* log)
cdef dict describe_counters(LogCounters* counters)
cdef dict describe_followers(LogState* log)
cdef list describe_epochs(LogState* log)
cdef list describe_aborted(LogState* log, int64_t start, int64_t end)
cdef list describe_producers(LogState* log)
