"""Share partitions for Python callers: tests and benchmarks."""

from kafkapy._speedups.share.layout cimport ShareWrite
from kafkapy._speedups.share.partition cimport SharePartitionState

cdef class StateWrite:
    cdef ShareWrite* write

cdef class SharePartition:
    cdef SharePartitionState* state
