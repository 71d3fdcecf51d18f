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
    CHECK_NS = 100_000_000              # the rate is looked at this often
    NAP_US = 20_000                     # a sleeper looks up this often, to see whether it must stop or the rate is
                                        # another


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
            # The next period begins when this one's bytes are paid for, so time in which nothing was done is no credit.
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
        # Who sleeps off a debt of the old rate goes on when the rate is changed.
        while monotonic_ns() < until and not is_stopped(state, stop) and has_pace(state, rate):
            usleep(NAP_US if until - monotonic_ns() > NAP_US * 1000 else 1000)


cdef class CleanerThrottle:
    """One for all cleaner threads of a broker. `bytes_per_second` may be changed at any time, on any thread."""

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
            # What was owed at the old rate is forgiven.
            self.state.period_start_ns = monotonic_ns()
            self.state.period_bytes = 0
        self.state.bytes_per_second = value
        pthread_mutex_unlock(&self.state.mutex)

    @property
    def waited_ms(self):
        """Time that threads were made to wait, ms."""
        return self.state.waited_ns / 1e6

    @property
    def stopped(self):
        return atomic_load(&self.state.stopped) != 0

    def stop(self):
        """The broker stops: cleanings under way end at their next step, without an effect."""
        atomic_store(&self.state.stopped, 1)
