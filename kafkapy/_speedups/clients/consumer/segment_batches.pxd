"""Record batches of a segment file, for readers of a log without its broker (see segment_batches.pyx)."""

from libc.stdint cimport int32_t, int64_t
from libcpp.vector cimport vector

cdef enum SegmentStatus:
    SEGMENT_MORE = 0            # more batches follow
    SEGMENT_DONE = 1            # a batch begins at or above the end
    SEGMENT_END = 2             # the file ends, perhaps within a batch
    SEGMENT_OLD = 3             # a message of format v0 or v1
    SEGMENT_BAD = 4             # bytes that form no batch

cdef struct AbortedSpan:
    int64_t producer_id
    int64_t first_offset
    int64_t last_offset


cdef class SegmentBatches:
    cdef readonly str topic
    cdef readonly int32_t partition
    cdef readonly int64_t end_offset
    cdef bint check_crcs
    cdef vector[AbortedSpan]* aborted
    cdef bint is_aborted(self, int64_t producer_id, int64_t offset) noexcept nogil
