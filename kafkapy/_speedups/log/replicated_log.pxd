"""The half of PartitionLog that knows replicas: leadership, ISR, followers, high watermark."""

from libc.stdint cimport int32_t, int64_t

from kafkapy._speedups.log.files cimport LogFiles

cdef class ReplicatedLog(LogFiles):
    cdef int32_t replica_count          # of the partition; 0: not known

    cdef int64_t epochs_version(self) noexcept
    cdef int32_t effective_min_in_sync(self, object config) except? -1
