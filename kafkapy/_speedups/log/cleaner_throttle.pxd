"""The common rate of the cleaner threads (log.cleaner.io.max.bytes.per.second), and their signal to stop."""

from libc.stdint cimport int64_t

from kafkapy._speedups.base.posix cimport pthread_mutex_t

cdef cppclass ThrottleState:
    pthread_mutex_t mutex
    double bytes_per_second
    int64_t period_start_ns         # monotonic
    int64_t period_bytes
    int64_t waited_ns               # total
    int64_t stopped                 # atomic; not 0: all threads return at once

# Counts bytes read or written, and sleeps when the rate is above the limit. Without the GIL and without any lock of a
# log.
cdef void throttle(ThrottleState* state, int64_t size, const int64_t* stop) noexcept nogil

cdef class CleanerThrottle:
    cdef ThrottleState* state
