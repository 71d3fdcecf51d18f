"""Quotas of clients: byte rates and thread time, counted where the request is served.

A QuotaSensor holds the rate that all clients with the same quota tags share, and its bound. Python decides which
sensors a connection has (broker/client_quotas.py) and puts them into its ConnectionBuckets, once for each quota epoch
and client id; a request only follows these pointers. A request that violates a quota is answered at once with its
throttle time, and the Processor mutes the channel for that time (KIP-219).

Produce counts the bytes of the request frame, Fetch those of the response, both count the time of threads as a
percentage of one thread. A violated Fetch is taken back and answered without records. Sources:
kafka.server.ClientQuotaManager, kafka.server.ClientRequestQuotaManager.
"""

from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t
from libcpp.string cimport string

from kafkapy._speedups.base.posix cimport pthread_mutex_t
from kafkapy._speedups.base.sampled_rate cimport SampledRate

cdef enum:
    QUOTAS_OFF = -1                 # in place of the epoch: nobody has a quota

cdef cppclass QuotaSensorState:
    int64_t references              # atomic
    pthread_mutex_t mutex           # guards the rest
    SampledRate rate
    double bound                    # per second
    int64_t most_throttle_ms        # 0: no limit
    SampledRate throttle_sum        # of the throttle times, for the metrics
    SampledRate throttle_count

cdef cppclass ConnectionBuckets:
    """The sensors of one connection, each with a reference; NULL: no quota. The Processor's, or Python's while it has
    the connection's request."""
    int64_t epoch                   # of the quotas when Python decided; -1: never
    string client_id                # for which it decided
    QuotaSensorState* produce
    QuotaSensorState* fetch
    QuotaSensorState* request
    QuotaSensorState* exempt        # thread time of requests that no quota bounds

cdef struct QuotaUse:
    # One request's use of its connection's quotas.
    ConnectionBuckets* buckets
    int64_t size                    # bytes of the frame, without its size field
    int64_t spent_ns                # thread time of the steps before the present one
    int64_t step_ns                 # monotonic begin of the present step
    int64_t throttle_ms             # what came of it; 0: not throttled
    bint exempt                     # it is only counted

cdef void buckets_init(ConnectionBuckets* buckets) noexcept nogil
cdef void buckets_release(ConnectionBuckets* buckets) noexcept nogil
# Replaces the sensors. NULL: no quota.
cdef void buckets_take(ConnectionBuckets* buckets, int64_t epoch, const uint8_t* client_id, int32_t size,
                       QuotaSensorState* produce, QuotaSensorState* fetch, QuotaSensorState* request,
                       QuotaSensorState* exempt) noexcept nogil
# Whether Python has decided for this epoch and client id.
cdef bint buckets_fit(const ConnectionBuckets* buckets, int64_t epoch, const uint8_t* client_id,
                      int32_t size) noexcept nogil
# Count a value. Ms of throttling with `check`, else 0. NULL: nothing.
cdef int64_t sensor_record(QuotaSensorState* sensor, double value, int64_t now_ms, bint check) noexcept nogil
cdef void sensor_note_throttle(QuotaSensorState* sensor, int64_t throttle_ms, int64_t now_ms) noexcept nogil
cdef double thread_share(int64_t spent_ns) noexcept nogil
# At the end of a Produce.
cdef void quota_charge_produce(QuotaUse* use, bint acknowledged) noexcept nogil
# At the end of a consumer's Fetch with a response of that size, before it changes its session.
cdef void quota_charge_fetch(QuotaUse* use, int64_t size) noexcept nogil
# The most bytes that a Fetch may have without a sure violation.
cdef int64_t quota_fetch_limit(QuotaUse* use) noexcept nogil
# Of a request that is only counted.
cdef void quota_charge_exempt(QuotaUse* use) noexcept nogil
# Of a request that took this thread time; the throttle time of the request quota.
cdef int64_t quota_charge_time(QuotaUse* use, int64_t spent_ns) noexcept nogil
# At the end of any other request of the data plane.
cdef void quota_charge_request(QuotaUse* use) noexcept nogil

cdef class QuotaSensor:
    cdef QuotaSensorState* state
    cdef readonly double window_seconds


# NULL without a sensor.
cdef inline QuotaSensorState* sensor_state(QuotaSensor sensor) noexcept:
    cdef QuotaSensorState* state = NULL
    if sensor is not None:
        state = sensor.state
    return state
