"""Decodes a Fetch body."""

from libc.stdlib cimport free

from kafkapy._speedups.log.segment cimport segment_unref
from kafkapy._speedups.requests.fetch.state cimport FetchPartition, FetchState

# Fills the state from state.frame. False when the bytes are not exactly one Fetch of that version; the caller frees the
# state in any case.
cdef bint fetch_decode(FetchState* state) noexcept nogil
# Sets a partition to its state before the first read; takes no reference.
cdef void fetch_partition_init(FetchPartition* partition) noexcept nogil
# Drops all references of the partitions and forgotten partitions.
cdef void fetch_partitions_release(FetchState* state) noexcept nogil
# Releases the results of the last read: segment and aborted transactions.
cdef inline void fetch_read_release(FetchPartition* partition) noexcept nogil:
    if partition.read.segment != NULL:
        segment_unref(partition.read.segment)
        partition.read.segment = NULL
    if partition.read.aborted != NULL:
        free(partition.read.aborted)
        partition.read.aborted = NULL
    if partition.converted != NULL:
        free(partition.converted)
        partition.converted = NULL
    partition.converted_size = 0
    partition.converted_end = -1
