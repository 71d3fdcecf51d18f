"""The replication throttle (see throttle.pxd)."""

from libc.stdint cimport int64_t

from kafkapy._speedups.base.posix cimport (
    atomic_add,
    monotonic_ns,
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)

cdef enum:
    NO_LIMIT = 0x7FFFFFFFFFFFFFFF
    SECOND_NS = 1_000_000_000


cdef void throttle_unref(ReplicationThrottleState* state) noexcept nogil:
    if state != NULL and atomic_add(&state.references, -1) == 0:
        pthread_mutex_destroy(&state.mutex)
        del state


cdef void throttle_record(ReplicationThrottleState* state, int64_t bytes, int64_t now_ns) noexcept nogil:
    pthread_mutex_lock(&state.mutex)
    if state.filled == 0 or now_ns - state.ring[state.newest].began_ns >= state.sample_ns:
        state.newest = (state.newest + 1) % state.samples
        state.ring[state.newest].began_ns = now_ns
        state.ring[state.newest].bytes = 0
        if state.filled < state.samples:
            state.filled += 1
    state.ring[state.newest].bytes += bytes
    pthread_mutex_unlock(&state.mutex)


cdef bint throttle_exceeded(ReplicationThrottleState* state, int64_t now_ns) noexcept nogil:
    cdef int64_t window = state.samples * state.sample_ns
    cdef int64_t oldest = now_ns, total = 0, elapsed
    cdef ThrottleSample* sample
    cdef bint exceeded
    cdef int i
    pthread_mutex_lock(&state.mutex)
    for i in range(state.filled):
        sample = &state.ring[(state.newest - i + state.samples) % state.samples]
        if now_ns - sample.began_ns >= window:
            break
        total += sample.bytes
        oldest = sample.began_ns
    # The first seconds count as one sample, so that a burst of one answer is no rate.
    elapsed = max(now_ns - oldest, state.sample_ns)
    exceeded = (state.bytes_per_second < NO_LIMIT
                and <double>total * SECOND_NS > <double>state.bytes_per_second * elapsed)
    pthread_mutex_unlock(&state.mutex)
    return exceeded


cdef class ReplicationThrottle:
    """The limit of a follower's throttled replicas. All fetchers share it; any thread may change it."""

    def __cinit__(self, *, int samples=11, int64_t sample_ms=1000):
        """A window of `samples` samples of `sample_ms` each (replication.quota.window.*)."""
        if not 1 <= samples <= MAX_SAMPLES or sample_ms < 1:
            raise ValueError(f"a window of {samples} samples of {sample_ms} ms cannot be kept")
        self.state = new ReplicationThrottleState()
        pthread_mutex_init(&self.state.mutex, NULL)
        self.state.references = 1
        self.state.bytes_per_second = NO_LIMIT
        self.state.sample_ns = sample_ms * 1_000_000
        self.state.samples = samples
        self.state.newest = 0
        self.state.filled = 0

    def __dealloc__(self):
        throttle_unref(self.state)

    @property
    def bytes_per_second(self):
        """follower.replication.throttled.rate; the largest int64: no limit."""
        return self.state.bytes_per_second

    @bytes_per_second.setter
    def bytes_per_second(self, int64_t value):
        pthread_mutex_lock(&self.state.mutex)
        self.state.bytes_per_second = value
        pthread_mutex_unlock(&self.state.mutex)

    @property
    def exceeded(self):
        """Whether throttled replicas wait now."""
        return throttle_exceeded(self.state, monotonic_ns())

    def record(self, int64_t count):
        """Counts bytes of throttled replicas."""
        throttle_record(self.state, count, monotonic_ns())
