"""The shared state of a broker's replication (see replication.pxd)."""

from kafkapy._speedups.base.posix cimport (
    atomic_load,
    atomic_store,
    monotonic_ns,
    pthread_rwlock_destroy,
    pthread_rwlock_rdlock,
    pthread_rwlock_unlock,
    pthread_rwlock_wrlock,
    rwlock_init,
)
from kafkapy._speedups.base.replication_quota cimport (
    replication_quota_free,
    replication_quota_measured,
    replication_quota_new,
    replication_quota_record,
)

cdef enum:
    NS_PER_MS = 1000000

cdef int64_t UNLIMITED = 0x7FFFFFFFFFFFFFFF


cdef void replication_free(ReplicationState* replication) noexcept nogil:
    pthread_rwlock_destroy(&replication.lock)
    replication_quota_free(replication.leader_quota)
    del replication


cdef int64_t replication_now_ms(ReplicationState* replication) noexcept nogil:
    cdef int64_t simulated = -1
    if replication != NULL:
        simulated = atomic_load(&replication.clock_ms)
    return simulated if simulated >= 0 else monotonic_ns() // NS_PER_MS


cdef int64_t replication_lag_time_ms(ReplicationState* replication) noexcept nogil:
    if replication == NULL:
        return DEFAULT_LAG_TIME_MS
    return atomic_load(&replication.lag_time_ms)


cdef bint replication_is_live(ReplicationState* replication, int32_t broker_id) noexcept nogil:
    cdef bint live
    if replication == NULL or not atomic_load(&replication.knows_live):
        return True
    pthread_rwlock_rdlock(&replication.lock)
    live = replication.live.count(broker_id) > 0
    pthread_rwlock_unlock(&replication.lock)
    return live


cdef class Replication:
    """The lag time, the clock and the live brokers of one broker's replication; PartitionLog.use_replication.

    Owned by ReplicaManager. Times are ms of a monotonic clock, unless `clock_ms` is set.
    """

    def __cinit__(self, int64_t lag_time_ms=DEFAULT_LAG_TIME_MS, *, int quota_windows=11, int64_t quota_window_ms=1000):
        if lag_time_ms < 0 or quota_windows < 1 or quota_window_ms < 1:
            raise ValueError("the lag time must not be negative, and the quota needs a window")
        self.state = new ReplicationState()
        self.state.references = 1
        self.state.lag_time_ms = lag_time_ms
        self.state.clock_ms = -1
        self.state.knows_live = 0
        rwlock_init(&self.state.lock)
        self.state.leader_quota = replication_quota_new(UNLIMITED, <size_t>quota_windows, quota_window_ms)

    def __dealloc__(self):
        replication_unref(self.state)

    @property
    def lag_time_ms(self):
        """replica.lag.time.max.ms: a follower that has not caught up for longer leaves the ISR."""
        return atomic_load(&self.state.lag_time_ms)

    @lag_time_ms.setter
    def lag_time_ms(self, int64_t value):
        atomic_store(&self.state.lag_time_ms, value)

    @property
    def clock_ms(self):
        """The simulated time in ms; -1: the monotonic clock counts."""
        return atomic_load(&self.state.clock_ms)

    @clock_ms.setter
    def clock_ms(self, int64_t value):
        atomic_store(&self.state.clock_ms, value)

    @property
    def leader_rate(self):
        """leader.replication.throttled.rate in bytes per second."""
        return atomic_load(&self.state.leader_quota.rate)

    @leader_rate.setter
    def leader_rate(self, int64_t value):
        atomic_store(&self.state.leader_quota.rate, value)

    def leader_throughput(self):
        """Bytes per second that throttled followers have got lately."""
        return replication_quota_measured(self.state.leader_quota, self.now_ms())

    def record_leader_bytes(self, int64_t count):
        """Counts bytes sent to throttled followers."""
        replication_quota_record(self.state.leader_quota, count, self.now_ms())

    def now_ms(self):
        """The time that lags are measured with."""
        return replication_now_ms(self.state)

    def set_live_brokers(self, object broker_ids):
        """Sets the brokers that are alive, as the controller's last UpdateMetadata lists them. A dead follower neither
        holds back a high watermark outside the ISR nor joins an ISR. Before the first call all brokers count as
        alive."""
        cdef unordered_set[int32_t] live
        for broker_id in broker_ids:
            live.insert(<int32_t>broker_id)
        with nogil:
            pthread_rwlock_wrlock(&self.state.lock)
            self.state.live.swap(live)
            pthread_rwlock_unlock(&self.state.lock)
            atomic_store(&self.state.knows_live, 1)

    def is_live(self, int32_t broker_id):
        """Whether a broker is alive, or nothing is known of brokers yet."""
        cdef bint live
        with nogil:
            live = replication_is_live(self.state, broker_id)
        return live
