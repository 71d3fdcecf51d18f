"""Work on a log's files ahead of its appends: the next segment, and the syncs of flush.messages.

The LogWorkers of the log's directory do it, in C. A log without workers, or whose storage makes its own segments (a
plugin's storage backend), asks the control plane instead: SEGMENT_WANTED, FLUSH_WANTED.
"""

from kafkapy._speedups.log.layout cimport LogState

# Makes the next segment's file and wakes the waiters for it, unless one is ready or the log takes no more appends. 0 or
# an errno. Without the mutex.
cdef int make_segment(LogState* log) noexcept nogil
# A log_work; takes over the reference of `log`, a LogState*.
cdef void make_segment_work(void* log) noexcept nogil
cdef void flush_work(void* log) noexcept nogil
