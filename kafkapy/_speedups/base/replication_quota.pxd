"""A rate of bytes that replication must not pass: Kafka's ReplicationQuotaManager.

The rate is measured over a number of windows (replication.quota.window.num, replication.quota.window.size.seconds). It
bounds nothing by itself: a thread asks whether the
quota is exceeded before it sends or fetches, and records the bytes afterwards. Any thread.
"""

from libc.stdint cimport int64_t
from libcpp.vector cimport vector

from kafkapy._speedups.base.posix cimport pthread_mutex_t

cdef struct QuotaSample:
    int64_t window                  # number of its window, -1: empty
    int64_t bytes

cdef cppclass ReplicationQuotaState:
    pthread_mutex_t mutex
    int64_t rate                    # atomic; bytes per second
    int64_t window_ms
    vector[QuotaSample] samples

cdef ReplicationQuotaState* replication_quota_new(int64_t rate, size_t windows, int64_t window_ms) noexcept nogil
cdef void replication_quota_free(ReplicationQuotaState* quota) noexcept nogil
cdef void replication_quota_record(ReplicationQuotaState* quota, int64_t bytes, int64_t now_ms) noexcept nogil
# Bytes per second at that time.
cdef double replication_quota_measured(ReplicationQuotaState* quota, int64_t now_ms) noexcept nogil
cdef bint replication_quota_exceeded(ReplicationQuotaState* quota, int64_t now_ms) noexcept nogil
