"""The halves of PartitionLog's methods that make, shorten, sync and close files. See the docstrings of those methods.

Worker threads call them with the GIL, which they release before they take the log's mutex. OSError.
"""

from libc.stdint cimport int32_t, int64_t

from kafkapy._speedups.log.layout cimport LogState

cdef class LogFiles:
    cdef LogState* state
    cdef readonly object storage        # LogStorage
    cdef readonly object config         # the current LogConfig

# PartitionLog.prepare_segment
cdef int make_segment_ready(LogFiles log) except -1
# PartitionLog.roll
cdef bint roll_segment(LogFiles log) except -1
# PartitionLog.truncate_to
cdef bint truncate(LogFiles log, int64_t offset, int32_t leader_epoch) except -1
# PartitionLog.truncate_fully_and_start_at
cdef int truncate_fully(LogFiles log, int64_t offset, int32_t leader_epoch) except -1
# PartitionLog.delete_segments_below
cdef list delete_closed_segments(LogFiles log, int64_t offset)
# PartitionLog.flush
cdef int sync_files(LogFiles log) except -1
# PartitionLog.seal_segments
cdef int seal_files(LogFiles log) except -1
# PartitionLog.release_idle_space
cdef int release_space(LogFiles log) except -1
# PartitionLog.close
cdef int close_files(LogFiles log) except -1
