"""A rate over a number of windows, as Kafka's Rate over a SampledStat: quotas of clients and of connections use it.

Source: org.apache.kafka.common.metrics.stats.{Rate,SampledStat}. A sample takes records for one window from its first
record on. The rate is the sum of the samples with a record within the last `windows` windows, divided by the time since
the oldest of them began, at least `windows - 1` whole windows. Not thread-safe.
"""

from libc.stdint cimport int64_t
from libcpp.vector cimport vector

cdef struct RateSample:
    int64_t start_ms
    int64_t last_ms                 # of the latest record
    double value

cdef cppclass SampledRate:
    int64_t windows
    int64_t window_ms
    size_t current
    vector[RateSample] samples      # at most windows + 1

cdef void rate_init(SampledRate* rate, int64_t windows, int64_t window_ms) noexcept nogil
cdef void rate_record(SampledRate* rate, double value, int64_t now_ms) noexcept nogil
# The sum of the live samples, and the measured time in ms that it is divided by.
cdef double rate_sum(SampledRate* rate, int64_t now_ms, int64_t* elapsed_ms) noexcept nogil
# Per second.
cdef double rate_measure(SampledRate* rate, int64_t now_ms) noexcept nogil
# Ms until the rate is back at the bound, 0 when it is not above: Kafka's QuotaUtils.throttleTime.
cdef int64_t rate_throttle_ms(SampledRate* rate, double bound, int64_t now_ms) noexcept nogil
# Whether no sample is live: forgetting the rate changes nothing.
cdef bint rate_is_over(SampledRate* rate, int64_t now_ms) noexcept nogil
