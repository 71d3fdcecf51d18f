"""What appends need of a log's files and do not wait for: the next segment, and the syncs of flush.messages.

Done on the LogWorkers of the log's directory, in C. A log whose storage does not let segments be made here (a storage
backend of a plugin), and one without workers, asks the control plane instead: SEGMENT_WANTED, FLUSH_WANTED.
"""

from kafkapy._speedups.log.layout cimport LogState

# Makes the next segment's file, unless one waits or the log takes no appends any more, and wakes who waits for it. 0 or
# an errno. Without the mutex.
cdef int make_segment(LogState* log) noexcept nogil
# log_work; `log` is a LogState*, whose reference it takes over.
cdef void make_segment_work(void* log) noexcept nogil
cdef void flush_work(void* log) noexcept nogil
