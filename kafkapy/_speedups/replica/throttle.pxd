"""The follower's replication throttle (KIP-73): bytes of throttled replicas in a sliding window.

Source: kafka.server.ReplicationQuotaManager, org.apache.kafka.common.metrics.stats.SimpleRate.
"""

from libc.stdint cimport int64_t

from kafkapy._speedups.base.posix cimport pthread_mutex_t

cdef enum:
    MAX_SAMPLES = 128

cdef struct ThrottleSample:
    int64_t began_ns
    int64_t bytes

cdef cppclass ReplicationThrottleState:
    pthread_mutex_t mutex
    int64_t references          # atomic
    int64_t bytes_per_second    # 0x7FFFFFFFFFFFFFFF: no limit
    int64_t sample_ns
    int samples                 # number of samples in the window
    int newest
    int filled
    ThrottleSample ring[128]

cdef void throttle_unref(ReplicationThrottleState* state) noexcept nogil
cdef void throttle_record(ReplicationThrottleState* state, int64_t bytes, int64_t now_ns) noexcept nogil
# Whether the rate of the window is above the limit.
cdef bint throttle_exceeded(ReplicationThrottleState* state, int64_t now_ns) noexcept nogil


cdef class ReplicationThrottle:
    cdef ReplicationThrottleState* state
