"""The quota of replication traffic (see replication_quota.pxd). Source: kafka.server.ReplicationQuotaManager."""

from kafkapy._speedups.base.posix cimport (
    atomic_load,
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)


cdef ReplicationQuotaState* replication_quota_new(int64_t rate) noexcept nogil:
    cdef ReplicationQuotaState* quota = new ReplicationQuotaState()
    cdef int i
    pthread_mutex_init(&quota.mutex, NULL)
    quota.rate = rate
    for i in range(QUOTA_SAMPLES):
        quota.samples[i].window = -1
        quota.samples[i].bytes = 0
    return quota


cdef void replication_quota_free(ReplicationQuotaState* quota) noexcept nogil:
    if quota != NULL:
        pthread_mutex_destroy(&quota.mutex)
        del quota


cdef void replication_quota_record(ReplicationQuotaState* quota, int64_t bytes, int64_t now_ms) noexcept nogil:
    cdef int64_t window = now_ms // QUOTA_WINDOW_MS
    cdef QuotaSample* sample
    pthread_mutex_lock(&quota.mutex)
    sample = &quota.samples[window % QUOTA_SAMPLES]
    if sample.window != window:
        sample.window = window
        sample.bytes = 0
    sample.bytes += bytes
    pthread_mutex_unlock(&quota.mutex)


cdef double replication_quota_measured(ReplicationQuotaState* quota, int64_t now_ms) noexcept nogil:
    """Returns the bytes of the samples by the time since the oldest one began, at least one window."""
    cdef int64_t newest = now_ms // QUOTA_WINDOW_MS, oldest = newest, bytes = 0, elapsed_ms
    cdef int i
    pthread_mutex_lock(&quota.mutex)
    for i in range(QUOTA_SAMPLES):
        if newest - QUOTA_SAMPLES < quota.samples[i].window <= newest and quota.samples[i].window >= 0:
            bytes += quota.samples[i].bytes
            oldest = min(oldest, quota.samples[i].window)
    pthread_mutex_unlock(&quota.mutex)
    elapsed_ms = max(now_ms - oldest * QUOTA_WINDOW_MS, <int64_t>QUOTA_WINDOW_MS)
    return <double>bytes * 1000.0 / <double>elapsed_ms


cdef bint replication_quota_exceeded(ReplicationQuotaState* quota, int64_t now_ms) noexcept nogil:
    return replication_quota_measured(quota, now_ms) > <double>atomic_load(&quota.rate)
