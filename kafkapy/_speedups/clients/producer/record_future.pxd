"""The futures of a producer: one small object per record, which looks at its batch when somebody asks.

Nothing is done per record when a batch completes: a future holds its batch and its place in it. Source:
org.apache.kafka.clients.producer.internals.FutureRecordMetadata; the methods are those of kafka-python's.
"""

from libc.stdint cimport int32_t, int64_t

from kafkapy._speedups.clients.producer.producer_batch cimport ProducerBatch
from kafkapy._speedups.clients.producer.record_spans cimport RecordSpans


cdef class FutureRecordMetadata:
    cdef ProducerBatch batch
    cdef int32_t index              # in the batch it was appended to
    cdef int32_t key_size           # serialized bytes, -1: null
    cdef int32_t value_size
    cdef int32_t headers_size       # keys and values, -1: no headers
    cdef int64_t timestamp          # ms, as the record carries it

cdef FutureRecordMetadata new_future(ProducerBatch batch, int32_t index, int64_t timestamp, int32_t key_size,
                                     int32_t value_size, int32_t headers_size)


cdef class BulkFuture:
    cdef RecordSpans spans
