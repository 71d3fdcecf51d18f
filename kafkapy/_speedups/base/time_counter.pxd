"""A histogram of times for the metrics: threads count, the collector reads."""

from libc.stdint cimport int64_t, uint64_t

from kafkapy._speedups.base.posix cimport atomic_count, atomic_load

cdef enum:
    TIME_BUCKETS = 32

# The sum, and how many took less than 2**i microseconds, and not less than 2**(i-1); the last: or more.
cdef struct TimeCounter:
    int64_t total_ns
    int64_t buckets[TIME_BUCKETS]

cdef extern from * nogil:
    """
    static inline int kp_bits(uint64_t n) { return n ? 64 - __builtin_clzll(n) : 0; }
    """
    int bits_of "kp_bits"(uint64_t n)


cdef inline void count_time(TimeCounter* counter, int64_t took_ns) noexcept nogil:
    cdef int slot = bits_of(<uint64_t>took_ns // 1000) if took_ns > 0 else 0
    atomic_count(&counter.total_ns, took_ns if took_ns > 0 else 0)
    atomic_count(&counter.buckets[slot if slot < TIME_BUCKETS - 1 else TIME_BUCKETS - 1], 1)


# A time that most requests do not have: they cost nothing, and the reader adds them to the lowest bucket.
cdef inline void count_some_time(TimeCounter* counter, int64_t took_ns) noexcept nogil:
    if took_ns > 0:
        count_time(counter, took_ns)


cdef inline tuple time_of(TimeCounter* counter):
    """(total in ns, counts by bucket)."""
    cdef int i
    return atomic_load(&counter.total_ns), [atomic_load(&counter.buckets[i]) for i in range(TIME_BUCKETS)]
