"""The table of share partitions and share sessions for Python (entries.pxd has its state)."""

from libc.stdint cimport int64_t
from libcpp.vector cimport vector

from kafkapy._speedups.requests.share.entries cimport ShareTableState
from kafkapy._speedups.requests.share.state_write cimport StateWrite

cdef class ShareTable:
    cdef ShareTableState* state
    cdef vector[int64_t] unswept    # entries that this sweep has not looked at
    cdef int take_handed(self, list writes) except -1
    cdef StateWrite next_write(self, int64_t id)
    cdef int ids_of(self, str group, vector[int64_t]* ids) except -1
