"""The turn of an append that lasts as long as a test wants, and what waits for it."""

from kafkapy._speedups.log.partition_log cimport PartitionLog

cdef class HeldTurn:
    cdef PartitionLog log
    cdef bint held
