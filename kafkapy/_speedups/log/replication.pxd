"""What all partition logs of one broker share about replication: the lag time, the clock, the live brokers.

One thread of Python changes it; data-plane threads read it, also under a log's mutex.
"""

from libc.stdint cimport int32_t, int64_t
from libcpp.unordered_set cimport unordered_set

from kafkapy._speedups.base.posix cimport atomic_add, pthread_rwlock_t
from kafkapy._speedups.base.replication_quota cimport ReplicationQuotaState

cdef enum:
    DEFAULT_LAG_TIME_MS = 30000     # of replica.lag.time.max.ms

cdef cppclass ReplicationState:
    int64_t references              # atomic; one of Replication, one of each log
    int64_t lag_time_ms             # atomic; replica.lag.time.max.ms
    int64_t clock_ms                # atomic; the time that a simulation sets, -1: the monotonic clock
    int64_t knows_live              # atomic; not 0: `live` counts
    pthread_rwlock_t lock           # of `live`
    unordered_set[int32_t] live     # ids of brokers that may join an ISR
    ReplicationQuotaState* leader_quota     # owned; leader.replication.throttled.rate

cdef inline void replication_ref(ReplicationState* replication) noexcept nogil:
    if replication != NULL:
        atomic_add(&replication.references, 1)


cdef inline void replication_unref(ReplicationState* replication) noexcept nogil:
    if replication != NULL and atomic_add(&replication.references, -1) == 0:
        replication_free(replication)


# Frees the state after its last reference.
cdef void replication_free(ReplicationState* replication) noexcept nogil
# The time for lags in ms, of a clock that never goes back. `replication` may be NULL here and below.
cdef int64_t replication_now_ms(ReplicationState* replication) noexcept nogil
cdef int64_t replication_lag_time_ms(ReplicationState* replication) noexcept nogil
# Whether a broker is alive, or nothing is known of brokers.
cdef bint replication_is_live(ReplicationState* replication, int32_t broker_id) noexcept nogil

cdef class Replication:
    cdef ReplicationState* state
