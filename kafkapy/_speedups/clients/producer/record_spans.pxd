"""The places of the records of one call: send_many, send_arrow.

Most records with a key go to another batch than the record before, so there are about as many spans as records, and C
keeps them.
"""

from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t
from libcpp.vector cimport vector

from kafkapy._speedups.clients.producer.producer_batch cimport ProducerBatch

# Records that follow each other in one batch, which the span references.
cdef struct Span:
    PyObject* batch
    int32_t first           # index in the batch
    int32_t count


cdef class RecordSpans:
    cdef vector[Span] spans
    cdef readonly int64_t count     # of records

    # Adds record `index` of a batch.
    cdef int add(self, ProducerBatch batch, int32_t index) except -1
