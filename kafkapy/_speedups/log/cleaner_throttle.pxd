"""How fast the cleaner threads may read and write together (log.cleaner.io.max.bytes.per.second), and whether they must
stop.
"""

from libc.stdint cimport int64_t

from kafkapy._speedups.base.posix cimport pthread_mutex_t

cdef cppclass ThrottleState:
    pthread_mutex_t mutex
    double bytes_per_second
    int64_t period_start_ns         # monotonic
    int64_t period_bytes
    int64_t waited_ns               # in all
    int64_t stopped                 # atomic; not 0: whoever waits or works returns at once

# Counts bytes read or written, and sleeps when they were too many for the time they took. Without the GIL and without
# any lock of a log.
cdef void throttle(ThrottleState* state, int64_t size, const int64_t* stop) noexcept nogil

cdef class CleanerThrottle:
    cdef ThrottleState* state
