"""Building record batches for Python (see batch_builder.pyx)."""

from libc.stdint cimport int32_t, int64_t

from kafkapy._speedups.base.wire cimport ByteBuffer
from kafkapy._speedups.records.record_batch cimport BatchHeader


cdef class RecordBatchBuilder:
    cdef ByteBuffer payload
    cdef ByteBuffer scratch
    cdef BatchHeader header
    cdef int64_t limit
    cdef int64_t last_offset_used
    cdef readonly int64_t offset_of_max_timestamp
    cdef bint base_known
    cdef int32_t encode_headers(self, headers) except -1
