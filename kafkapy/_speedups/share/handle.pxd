"""Share partitions for Python callers: the ShareManager and tests."""

from kafkapy._speedups.share.layout cimport ShareWrite
from kafkapy._speedups.share.partition cimport SharePartitionState

cdef class StateWrite:
    cdef ShareWrite* write

cdef class SharePartition:
    cdef SharePartitionState* state

# The Python object over a state, with its own reference.
cdef SharePartition share_partition_of(SharePartitionState* state)
