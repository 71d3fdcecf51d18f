"""The quota of replication traffic (see replication_quota.pxd). Source: kafka.server.ReplicationQuotaManager."""

from kafkapy._speedups.base.posix cimport (
    atomic_load,
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)


cdef ReplicationQuotaState* replication_quota_new(int64_t rate, size_t windows, int64_t window_ms) noexcept nogil:
    cdef ReplicationQuotaState* quota = new ReplicationQuotaState()
    cdef QuotaSample empty
    pthread_mutex_init(&quota.mutex, NULL)
    quota.rate = rate
    quota.window_ms = window_ms
    empty.window = -1
    empty.bytes = 0
    quota.samples.assign(windows, empty)
    return quota


cdef void replication_quota_free(ReplicationQuotaState* quota) noexcept nogil:
    if quota != NULL:
        pthread_mutex_destroy(&quota.mutex)
        del quota


cdef void replication_quota_record(ReplicationQuotaState* quota, int64_t bytes, int64_t now_ms) noexcept nogil:
    cdef int64_t window = now_ms // quota.window_ms
    cdef QuotaSample* sample
    pthread_mutex_lock(&quota.mutex)
    sample = &quota.samples[<size_t>window % quota.samples.size()]
    if sample.window != window:
        sample.window = window
        sample.bytes = 0
    sample.bytes += bytes
    pthread_mutex_unlock(&quota.mutex)


cdef double replication_quota_measured(ReplicationQuotaState* quota, int64_t now_ms) noexcept nogil:
    """Returns the bytes of the samples by the time since the oldest one began, at least one window."""
    cdef int64_t newest = now_ms // quota.window_ms, oldest = newest, bytes = 0, elapsed_ms
    cdef int64_t windows = <int64_t>quota.samples.size()
    cdef size_t i
    pthread_mutex_lock(&quota.mutex)
    for i in range(quota.samples.size()):
        if newest - windows < quota.samples[i].window <= newest and quota.samples[i].window >= 0:
            bytes += quota.samples[i].bytes
            oldest = min(oldest, quota.samples[i].window)
    pthread_mutex_unlock(&quota.mutex)
    elapsed_ms = max(now_ms - oldest * quota.window_ms, quota.window_ms)
    return <double>bytes * 1000.0 / <double>elapsed_ms


cdef bint replication_quota_exceeded(ReplicationQuotaState* quota, int64_t now_ms) noexcept nogil:
    return replication_quota_measured(quota, now_ms) > <double>atomic_load(&quota.rate)
