"""The follower's replication throttle (KIP-73): one quota that all fetchers of a broker share."""

from libc.stdint cimport int64_t

from kafkapy._speedups.base.replication_quota cimport ReplicationQuotaState

cdef cppclass ReplicationThrottleState:
    int64_t references          # atomic; one of ReplicationThrottle, one of each fetcher
    ReplicationQuotaState* quota

cdef void throttle_unref(ReplicationThrottleState* state) noexcept nogil
cdef void throttle_record(ReplicationThrottleState* state, int64_t bytes, int64_t now_ns) noexcept nogil
# Whether throttled replicas wait.
cdef bint throttle_exceeded(ReplicationThrottleState* state, int64_t now_ns) noexcept nogil


cdef class ReplicationThrottle:
    cdef ReplicationThrottleState* state
