"""The follower's replication throttle (see throttle.pxd)."""

from libc.stdint cimport int64_t

from kafkapy._speedups.base.posix cimport atomic_add, atomic_load, atomic_store, monotonic_ns
from kafkapy._speedups.base.replication_quota cimport (
    replication_quota_exceeded,
    replication_quota_free,
    replication_quota_new,
    replication_quota_record,
)

cdef enum:
    NO_LIMIT = 0x7FFFFFFFFFFFFFFF
    MS = 1_000_000              # ns


cdef void throttle_unref(ReplicationThrottleState* state) noexcept nogil:
    if state != NULL and atomic_add(&state.references, -1) == 0:
        replication_quota_free(state.quota)
        del state


cdef void throttle_record(ReplicationThrottleState* state, int64_t bytes, int64_t now_ns) noexcept nogil:
    replication_quota_record(state.quota, bytes, now_ns // MS)


cdef bint throttle_exceeded(ReplicationThrottleState* state, int64_t now_ns) noexcept nogil:
    return atomic_load(&state.quota.rate) != NO_LIMIT and replication_quota_exceeded(state.quota, now_ns // MS)


cdef class ReplicationThrottle:
    """The limit of a follower's throttled replicas. Any thread may change it."""

    def __cinit__(self, int windows=11, int64_t window_ms=1000):
        """The rate is measured over so many windows (replication.quota.window.*). ValueError."""
        if windows < 1 or window_ms < 1:
            raise ValueError("the throttle needs a window")
        self.state = new ReplicationThrottleState()
        self.state.references = 1
        self.state.quota = replication_quota_new(NO_LIMIT, <size_t>windows, window_ms)

    def __dealloc__(self):
        throttle_unref(self.state)

    @property
    def bytes_per_second(self):
        """follower.replication.throttled.rate; the largest int64: no limit."""
        return atomic_load(&self.state.quota.rate)

    @bytes_per_second.setter
    def bytes_per_second(self, int64_t value):
        atomic_store(&self.state.quota.rate, value)

    @property
    def exceeded(self):
        """Whether throttled replicas wait now."""
        return throttle_exceeded(self.state, monotonic_ns())

    def record(self, int64_t count):
        """Counts bytes of throttled replicas."""
        throttle_record(self.state, count, monotonic_ns())
