"""A partition that moves to another log directory: its future log catches up with the current log and replaces it.

Source: kafka.server.ReplicaAlterLogDirsThread and kafka.log.LogManager.replaceCurrentWithFutureLog. Batches go from
file to file through a buffer, without the GIL. The swap exchanges the segments inside the current log, whose object,
waiting requests, producer state, high watermark and leadership stay. It has three parts. `begin_swap` holds back
appends, rolls, truncation and flushes, copies the rest and opens the files that readers of the old segments may need;
Python renames the two directories; `end_swap` installs the future log's segments under their new paths, and lets
appends and the rest go on.
"""

from libc.stdint cimport int64_t, uint8_t
from libcpp.string cimport string
from libcpp.vector cimport vector

from kafkapy._speedups.log.cleaner_throttle cimport CleanerThrottle
from kafkapy._speedups.log.layout cimport LogState
from kafkapy._speedups.log.partition_log cimport PartitionLog
from kafkapy._speedups.log.segment cimport SegmentState

cdef enum CopyOutcome:
    COPY_CAUGHT_UP = 0              # the future log ends where the current one does
    COPY_MORE = 1                   # the copy has reached its limit of bytes
    COPY_NEEDS_SEGMENT = 2          # the future log needs its next segment
    COPY_OUT_OF_RANGE = 3           # the current log ends below the future log
    COPY_MISALIGNED = 4             # the log start has overtaken the future log, which must restart at the base
                                    # offset of that batch
    COPY_ENDED = 5                  # stopped, or one of the logs is closed, deleted or offline
    COPY_CORRUPT = 6                # the current log has bytes that form no batch
    COPY_FAILED = 7                 # a file cannot be read; see `failure`
    COPY_HOLE = 8                   # compaction has removed all between the ends of the two logs

cdef class FutureLogCopy:
    cdef readonly PartitionLog log
    cdef readonly PartitionLog future
    cdef CleanerThrottle pace
    cdef int64_t stopped            # atomic
    cdef uint8_t* buffer
    cdef int64_t capacity
    cdef int64_t offset             # of the batch at fault, with COPY_MISALIGNED; the log end, with
                                    # COPY_HOLE
    cdef int failure                # errno, with COPY_FAILED
    cdef bint swapping
    cdef vector[SegmentState*] replaced
    cdef string moving              # the log's directory during a swap; else empty

    cdef int copy_piece(self, int64_t max_bytes, int64_t* copied) noexcept nogil
    cdef int put(self, int64_t size, int64_t expected, int64_t* copied) noexcept nogil
    cdef int put_group(self, uint8_t* data, int64_t size) noexcept nogil
    cdef int put_legacy(self, const uint8_t* data, int64_t size) noexcept nogil
    cdef int catch_up(self, int64_t max_bytes, bint paced, int64_t* copied) noexcept nogil
    cdef void release_replaced(self, int64_t own) noexcept nogil
    cdef void go_on(self) noexcept nogil
