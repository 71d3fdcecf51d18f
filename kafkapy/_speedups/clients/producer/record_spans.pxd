"""Where the records of one call went: send_many, send_arrow.

A record with a key goes to another batch than the one before it in most cases, so there are about as many spans as
records: they are kept in C.
"""

from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t
from libcpp.vector cimport vector

from kafkapy._speedups.clients.producer.producer_batch cimport ProducerBatch

# Records that follow each other in one batch. The reference is counted.
cdef struct Span:
    PyObject* batch
    int32_t first           # index in the batch
    int32_t count


cdef class RecordSpans:
    cdef vector[Span] spans
    cdef readonly int64_t count     # of records

    # The next record is record `index` of the batch.
    cdef int add(self, ProducerBatch batch, int32_t index) except -1
