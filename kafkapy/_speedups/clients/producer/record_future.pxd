"""The futures of a producer: one small object per record, which reads the result of its batch.

A completed batch does no work per record: a future holds its batch and its index in the batch. Source:
org.apache.kafka.clients.producer.internals.FutureRecordMetadata; the methods are kafka-python's.
"""

from libc.stdint cimport int32_t, int64_t

from kafkapy._speedups.clients.producer.producer_batch cimport ProducerBatch
from kafkapy._speedups.clients.producer.record_spans cimport RecordSpans


cdef class FutureRecordMetadata:
    cdef ProducerBatch batch
    cdef int32_t index              # of the record in its first batch
    cdef int32_t key_size           # serialized bytes, -1: null
    cdef int32_t value_size
    cdef int32_t headers_size       # keys and values, -1: no headers
    cdef int64_t timestamp          # of the record, ms

cdef FutureRecordMetadata new_future(ProducerBatch batch, int32_t index, int64_t timestamp, int32_t key_size,
                                     int32_t value_size, int32_t headers_size)


cdef class BulkFuture:
    cdef RecordSpans spans
