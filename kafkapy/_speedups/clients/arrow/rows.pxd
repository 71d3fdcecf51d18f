"""Rows of Apache Arrow record batches on their way into a producer (see rows.pyx)."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from kafkapy._speedups.base.wire cimport ByteBuffer
from kafkapy._speedups.clients.producer.record_accumulator cimport RecordAccumulator
from kafkapy._speedups.clients.producer.record_spans cimport RecordSpans

# Arrow's buffers. NULL `valid`: no row is null. NULL `data`: the column does not exist.
cdef struct BytesColumn:
    const uint8_t* valid
    const uint8_t* ends                 # int32 or int64
    const uint8_t* data
    int64_t first                       # the row of the buffers that is row 0
    bint large                          # ends are int64
    bint present

cdef struct NumberColumn:
    const uint8_t* valid
    const uint8_t* data
    int64_t first
    bint present


cdef class ArrowRows:
    cdef readonly int64_t rows
    cdef object owner                   # of the columns' memory
    cdef BytesColumn key
    cdef BytesColumn value
    cdef BytesColumn header_lists       # `data` is not used: ends among the headers
    cdef BytesColumn header_names
    cdef BytesColumn header_values
    cdef NumberColumn topic             # int32, an index into topics
    cdef list topics
    cdef NumberColumn partition         # int32
    cdef NumberColumn timestamp         # int64, ms
    cdef int32_t encode_headers(self, int64_t row, ByteBuffer* into) except -1
    cdef str topic_of(self, int64_t row, str default)
    cdef int32_t partition_of(self, int64_t row) except? -1
    cdef uint64_t checksum_of(self) noexcept nogil
    cdef list queues_of(self, RecordAccumulator accumulator, str topic)
    cdef int64_t send_open(self, RecordAccumulator accumulator, list queues, bint one_topic, int64_t row, int64_t last,
                           int64_t now_ms, RecordSpans spans, ByteBuffer* headers) except -1
