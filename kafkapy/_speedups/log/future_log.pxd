"""A partition that moves to another log directory: its future log catches up with the current one and takes its place.

Source: kafka.server.ReplicaAlterLogDirsThread and kafka.log.LogManager.replaceCurrentWithFutureLog. Batches go from
file to file through a buffer, without the GIL and without the interpreter. The swap exchanges the segments inside the
current log, which stays the object that everybody knows: requests that wait, producer state, high watermark and
leadership are not touched. It has three parts. `begin_swap` holds appends, rolls, truncation and flushes back, copies
the rest and opens what readers of the old segments may need; Python renames the two directories; `end_swap` puts the
future log's segments in, under their new paths, and lets the others go on.
"""

from libc.stdint cimport int64_t, uint8_t
from libcpp.vector cimport vector

from kafkapy._speedups.log.cleaner_throttle cimport CleanerThrottle
from kafkapy._speedups.log.layout cimport LogState
from kafkapy._speedups.log.partition_log cimport PartitionLog
from kafkapy._speedups.log.segment cimport SegmentState

cdef enum CopyOutcome:
    COPY_CAUGHT_UP = 0              # the future log ends where the current one does
    COPY_MORE = 1                   # as many bytes as allowed have been copied
    COPY_NEEDS_SEGMENT = 2          # the future log must be given its next segment
    COPY_OUT_OF_RANGE = 3           # the current log ends below the future log
    COPY_MISALIGNED = 4             # the log start has overtaken the future log, which has to begin anew where the
                                    # batch of the start begins
    COPY_ENDED = 5                  # stopped, or one of the logs is closed, deleted or offline
    COPY_CORRUPT = 6                # the current log has bytes that are no batch
    COPY_FAILED = 7                 # a file cannot be read; errno says why
    COPY_HOLE = 8                   # compaction has left nothing between the future log's end and the current one's

cdef class FutureLogCopy:
    cdef readonly PartitionLog log
    cdef readonly PartitionLog future
    cdef CleanerThrottle pace
    cdef int64_t stopped            # atomic
    cdef uint8_t* buffer
    cdef int64_t capacity
    cdef int64_t offset             # of the batch that was not copied, with COPY_MISALIGNED; the log end, with
                                    # COPY_HOLE
    cdef int failure                # errno, with COPY_FAILED
    cdef bint swapping
    cdef vector[SegmentState*] replaced

    cdef int copy_piece(self, int64_t max_bytes, int64_t* copied) noexcept nogil
    cdef int put(self, int64_t size, int64_t expected, int64_t* copied) noexcept nogil
    cdef int put_group(self, uint8_t* data, int64_t size) noexcept nogil
    cdef int put_failed(self, int failure) noexcept nogil
    cdef int put_legacy(self, const uint8_t* data, int64_t size, int64_t offset) noexcept nogil
    cdef int catch_up(self, int64_t max_bytes, bint paced, int64_t* copied) noexcept nogil
    cdef void release_replaced(self, int64_t own) noexcept nogil
    cdef void go_on(self) noexcept nogil
