"""The control loop's side of a fetcher (see fetcher.pyx)."""

from kafkapy._speedups.log.partition_log cimport PartitionLog
from kafkapy._speedups.replica.state cimport FetcherMail, FetcherState, FetchPartition


cdef class FollowedPartition:
    cdef FetchPartition* state
    cdef readonly PartitionLog log


cdef class ReplicaFetcher:
    cdef FetcherState* state
    cdef object events              # EventQueue, kept alive
    cdef bint running

    cdef int mail(self, int kind, FollowedPartition partition, object argument) except -1
