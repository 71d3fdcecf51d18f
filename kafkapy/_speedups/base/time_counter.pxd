"""A histogram of times for the metrics: threads count, the collector reads."""

from libc.stdint cimport int64_t

from kafkapy._speedups.base.posix cimport atomic_count, atomic_count_alone, atomic_load

cdef enum:
    TIME_BUCKETS = 32

# The sum, and how many took less than 2**i microseconds, and not less than 2**(i-1); the last: or more.
cdef struct TimeCounter:
    int64_t total_ns
    int64_t buckets[TIME_BUCKETS]

cdef extern from * nogil:
    """
    static inline int kp_time_slot(int64_t ns) {
        uint64_t us = ns > 0 ? (uint64_t)ns / 1000 : 0;
        int bits = us ? 64 - __builtin_clzll(us) : 0;
        return bits < 31 ? bits : 31;
    }
    """
    int time_slot "kp_time_slot"(int64_t ns)


cdef inline void count_time(TimeCounter* counter, int64_t took_ns) noexcept nogil:
    if took_ns > 0:
        atomic_count(&counter.total_ns, took_ns)
    atomic_count(&counter.buckets[time_slot(took_ns)], 1)


# The same with one counting thread.
cdef inline void count_time_alone(TimeCounter* counter, int64_t took_ns) noexcept nogil:
    if took_ns > 0:
        atomic_count_alone(&counter.total_ns, took_ns)
    atomic_count_alone(&counter.buckets[time_slot(took_ns)], 1)


cdef inline tuple time_of(TimeCounter* counter):
    """(total in ns, counts by bucket)."""
    cdef int i
    return atomic_load(&counter.total_ns), [atomic_load(&counter.buckets[i]) for i in range(TIME_BUCKETS)]
