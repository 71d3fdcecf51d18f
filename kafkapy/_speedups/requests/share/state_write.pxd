"""Writes that the control loop takes to the share coordinator."""

from libc.stdint cimport int16_t

from kafkapy._speedups.requests.share.entries cimport ShareEntry, ShareTableState
from kafkapy._speedups.share.layout cimport ShareWrite

cdef class StateWrite:
    cdef object owner               # keeps the table's ShareTable
    cdef ShareTableState* table
    cdef ShareEntry* entry          # referenced
    cdef ShareWrite* content        # owned
    cdef bint finished
    cdef list changes(self, bint held)
    cdef int end(self, int16_t error, bint close) except -1

# Takes the caller's reference to the entry, and the content.
cdef StateWrite state_write(object owner, ShareTableState* table, ShareEntry* entry, ShareWrite* content)
