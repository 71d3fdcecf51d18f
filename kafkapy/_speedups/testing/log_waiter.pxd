"""A waiter on a partition log for Python: the waiting of a Processor's parked request, without a Processor."""

from libc.stdint cimport int64_t, uint64_t

from kafkapy._speedups.log.partition_log cimport PartitionLog

cdef class LogWaiter:
    cdef PartitionLog log
    cdef int64_t* fired             # atomic; outlives the object, because a wake may be on its way when the waiter is
                                    # removed
    cdef uint64_t token
