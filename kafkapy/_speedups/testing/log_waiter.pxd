"""A waiter on a partition log that Python can look at: what a Processor's parked request does, without a Processor."""

from libc.stdint cimport int64_t, uint64_t

from kafkapy._speedups.log.partition_log cimport PartitionLog

cdef class LogWaiter:
    cdef PartitionLog log
    cdef int64_t* fired             # atomic; outlives the object, because a wake may be on its way when the waiter is
                                    # removed
    cdef uint64_t token
