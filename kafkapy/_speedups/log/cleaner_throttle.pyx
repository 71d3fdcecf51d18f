"""The rate of the cleaner threads (see cleaner_throttle.pxd). Source: org.apache.kafka...utils.Throttler."""

from libc.stdint cimport int64_t

from kafkapy._speedups.base.posix cimport (
    atomic_load,
    atomic_store,
    monotonic_ns,
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)

cdef extern from "<unistd.h>" nogil:
    int usleep(unsigned int microseconds)

cdef enum:
    CHECK_NS = 100_000_000              # interval of the checks of the rate
    NAP_US = 20_000                     # a sleeper checks this often whether it must stop or the rate has
                                        # changed


cdef bint has_pace(ThrottleState* state, double rate) noexcept nogil:
    cdef bint same
    pthread_mutex_lock(&state.mutex)
    same = state.bytes_per_second == rate
    pthread_mutex_unlock(&state.mutex)
    return same


cdef bint is_stopped(ThrottleState* state, const int64_t* stop) noexcept nogil:
    return atomic_load(&state.stopped) or (stop != NULL and atomic_load(<int64_t*>stop))


cdef void throttle(ThrottleState* state, int64_t size, const int64_t* stop) noexcept nogil:
    cdef int64_t now = monotonic_ns(), elapsed, until
    cdef double rate, due = 0
    pthread_mutex_lock(&state.mutex)
    rate = state.bytes_per_second
    state.period_bytes += size
    elapsed = now - state.period_start_ns
    if rate > 0 and rate < 1e18:
        if elapsed >= CHECK_NS or <double>state.period_bytes * 1e9 >= rate * CHECK_NS:
            due = <double>state.period_bytes * 1e9 / rate - <double>elapsed
            # The next period begins when this one's bytes are paid for, so idle time gives no credit.
            state.period_start_ns = now + (<int64_t>due if due > 0 else 0)
            state.period_bytes = 0
            if due > 0:
                state.waited_ns += <int64_t>due
    elif elapsed >= CHECK_NS:
        state.period_start_ns = now
        state.period_bytes = 0
    pthread_mutex_unlock(&state.mutex)
    if due > 0:
        until = now + <int64_t>due
        # A thread that sleeps off a debt of the old rate goes on when the rate changes.
        while monotonic_ns() < until and not is_stopped(state, stop) and has_pace(state, rate):
            usleep(NAP_US if until - monotonic_ns() > NAP_US * 1000 else 1000)


cdef class CleanerThrottle:
    """The rate limit of all cleaner threads of a broker. Any thread may change `bytes_per_second` at any time."""

    def __cinit__(self, double bytes_per_second=1.7976931348623157e308):
        self.state = new ThrottleState()
        pthread_mutex_init(&self.state.mutex, NULL)
        self.state.bytes_per_second = bytes_per_second
        self.state.period_start_ns = monotonic_ns()
        self.state.period_bytes = 0
        self.state.waited_ns = 0
        self.state.stopped = 0

    def __init__(self, bytes_per_second=1.7976931348623157e308):
        pass

    def __dealloc__(self):
        if self.state != NULL:
            pthread_mutex_destroy(&self.state.mutex)
            del self.state

    @property
    def bytes_per_second(self):
        return self.state.bytes_per_second

    @bytes_per_second.setter
    def bytes_per_second(self, double value):
        pthread_mutex_lock(&self.state.mutex)
        if self.state.bytes_per_second != value:
            # A debt at the old rate is forgiven.
            self.state.period_start_ns = monotonic_ns()
            self.state.period_bytes = 0
        self.state.bytes_per_second = value
        pthread_mutex_unlock(&self.state.mutex)

    @property
    def waited_ms(self):
        """The total wait of all threads, ms."""
        return self.state.waited_ns / 1e6

    @property
    def stopped(self):
        return atomic_load(&self.state.stopped) != 0

    def stop(self):
        """Stops the throttle with the broker: running cleanings end at their next step, without an effect."""
        atomic_store(&self.state.stopped, 1)
