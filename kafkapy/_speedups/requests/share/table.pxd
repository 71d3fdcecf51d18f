"""The table of share partitions and share sessions for Python (entries.pxd has its state)."""

from libc.stdint cimport int16_t, int64_t
from libcpp.vector cimport vector

from kafkapy._speedups.requests.share.entries cimport ShareEntry, ShareTableState
from kafkapy._speedups.share.layout cimport ShareWrite

cdef class StateWrite

cdef class ShareTable:
    cdef ShareTableState* state
    cdef StateWrite next_write(self, int64_t id)
    cdef int ids_of(self, str group, vector[int64_t]* ids) except -1

cdef class StateWrite:
    cdef ShareTable table
    cdef ShareEntry* entry          # referenced
    cdef ShareWrite* content
    cdef bint finished
    cdef int end(self, int16_t error, bint close) except -1
    cdef list changes(self, bint held)
