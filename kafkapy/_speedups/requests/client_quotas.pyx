"""Quotas of clients in the data plane (see client_quotas.pxd)."""

from libc.string cimport memcmp

from kafkapy._speedups.base.posix cimport (
    atomic_add,
    atomic_load,
    monotonic_ns,
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)
from kafkapy._speedups.base.sampled_rate cimport (
    rate_init,
    rate_is_over,
    rate_measure,
    rate_record,
    rate_sum,
    rate_throttle_ms,
)

cdef enum:
    NS_PER_MS = 1000000
    METRIC_WINDOWS = 2                  # Kafka's metrics.num.samples and metrics.sample.window.ms
    METRIC_WINDOW_MS = 30000


cdef inline int64_t clock_ms() noexcept nogil:
    return monotonic_ns() // NS_PER_MS


# ---- sensors ---------------------------------------------------------------------------------------------------------

cdef void sensor_ref(QuotaSensorState* sensor) noexcept nogil:
    if sensor != NULL:
        atomic_add(&sensor.references, 1)


cdef void sensor_unref(QuotaSensorState* sensor) noexcept nogil:
    if sensor != NULL and atomic_add(&sensor.references, -1) == 0:
        pthread_mutex_destroy(&sensor.mutex)
        del sensor


cdef int64_t sensor_record(QuotaSensorState* sensor, double value, int64_t now_ms, bint check) noexcept nogil:
    cdef int64_t throttle_ms = 0
    if sensor == NULL:
        return 0
    pthread_mutex_lock(&sensor.mutex)
    rate_record(&sensor.rate, value, now_ms)
    if check:
        throttle_ms = rate_throttle_ms(&sensor.rate, sensor.bound, now_ms)
        if sensor.most_throttle_ms and throttle_ms > sensor.most_throttle_ms:
            throttle_ms = sensor.most_throttle_ms
    pthread_mutex_unlock(&sensor.mutex)
    return throttle_ms


cdef void sensor_note_throttle(QuotaSensorState* sensor, int64_t throttle_ms, int64_t now_ms) noexcept nogil:
    pthread_mutex_lock(&sensor.mutex)
    rate_record(&sensor.throttle_sum, <double>throttle_ms, now_ms)
    rate_record(&sensor.throttle_count, 1, now_ms)
    pthread_mutex_unlock(&sensor.mutex)


# ---- connections -----------------------------------------------------------------------------------------------------

cdef void buckets_init(ConnectionBuckets* buckets) noexcept nogil:
    buckets.epoch = QUOTAS_OFF
    buckets.produce = NULL
    buckets.fetch = NULL
    buckets.request = NULL
    buckets.exempt = NULL


cdef void buckets_release(ConnectionBuckets* buckets) noexcept nogil:
    sensor_unref(buckets.produce)
    sensor_unref(buckets.fetch)
    sensor_unref(buckets.request)
    sensor_unref(buckets.exempt)
    buckets_init(buckets)


cdef void buckets_take(ConnectionBuckets* buckets, int64_t epoch, const uint8_t* client_id, int32_t size,
                       QuotaSensorState* produce, QuotaSensorState* fetch, QuotaSensorState* request,
                       QuotaSensorState* exempt) noexcept nogil:
    sensor_ref(produce)
    sensor_ref(fetch)
    sensor_ref(request)
    sensor_ref(exempt)
    buckets_release(buckets)
    buckets.epoch = epoch
    buckets.client_id.assign(<const char*>client_id, <size_t>max(size, 0))
    buckets.produce = produce
    buckets.fetch = fetch
    buckets.request = request
    buckets.exempt = exempt


cdef bint buckets_fit(const ConnectionBuckets* buckets, int64_t epoch, const uint8_t* client_id,
                      int32_t size) noexcept nogil:
    cdef size_t length = <size_t>max(size, 0)
    return (buckets.epoch == epoch and buckets.client_id.size() == length
            and (length == 0 or memcmp(buckets.client_id.data(), client_id, length) == 0))


# ---- requests --------------------------------------------------------------------------------------------------------

cdef double thread_share(int64_t spent_ns) noexcept nogil:
    """The time as a percentage of a second of one thread."""
    return <double>spent_ns * 100.0 / 1e9


cdef inline int64_t spent_so_far(const QuotaUse* use) noexcept nogil:
    return use.spent_ns + monotonic_ns() - use.step_ns


cdef void decide(QuotaUse* use, QuotaSensorState* sensor, int64_t bandwidth_ms, int64_t request_ms,
                 int64_t now_ms) noexcept nogil:
    """The larger throttle time counts, and goes into the metrics of its quota."""
    use.throttle_ms = max(bandwidth_ms, request_ms)
    if use.throttle_ms > 0:
        sensor_note_throttle(sensor if bandwidth_ms > request_ms else use.buckets.request, use.throttle_ms, now_ms)


cdef void quota_charge_produce(QuotaUse* use, bint acknowledged) noexcept nogil:
    cdef int64_t now_ms = clock_ms()
    cdef int64_t bandwidth_ms = sensor_record(use.buckets.produce, <double>use.size, now_ms, True)
    cdef int64_t request_ms = 0
    if not acknowledged:
        quota_charge_exempt(use)
    elif use.buckets.request != NULL:
        request_ms = sensor_record(use.buckets.request, thread_share(spent_so_far(use)), now_ms, True)
    decide(use, use.buckets.produce, bandwidth_ms, request_ms, now_ms)


cdef void quota_charge_fetch(QuotaUse* use, int64_t size) noexcept nogil:
    cdef int64_t now_ms = clock_ms()
    cdef int64_t bandwidth_ms
    cdef int64_t request_ms = 0
    if use.buckets.request != NULL:
        request_ms = sensor_record(use.buckets.request, thread_share(spent_so_far(use)), now_ms, True)
    bandwidth_ms = sensor_record(use.buckets.fetch, <double>size, now_ms, True)
    decide(use, use.buckets.fetch, bandwidth_ms, request_ms, now_ms)
    if use.throttle_ms > 0:
        sensor_record(use.buckets.fetch, -<double>size, now_ms, False)


cdef int64_t quota_fetch_limit(QuotaUse* use) noexcept nogil:
    cdef QuotaSensorState* sensor = use.buckets.fetch
    cdef double limit
    if sensor == NULL:
        return INT64_MAX
    pthread_mutex_lock(&sensor.mutex)
    limit = sensor.bound * <double>((sensor.rate.windows - 1) * sensor.rate.window_ms) / 1000.0
    pthread_mutex_unlock(&sensor.mutex)
    return <int64_t>limit if limit < 9e18 else INT64_MAX


cdef void quota_charge_exempt(QuotaUse* use) noexcept nogil:
    use.exempt = True
    if use.buckets.exempt != NULL:
        sensor_record(use.buckets.exempt, thread_share(spent_so_far(use)), clock_ms(), False)


cdef int64_t quota_charge_time(QuotaUse* use, int64_t spent_ns) noexcept nogil:
    return sensor_record(use.buckets.request, thread_share(spent_ns), clock_ms(), True)


cdef void quota_charge_request(QuotaUse* use) noexcept nogil:
    cdef int64_t now_ms = clock_ms()
    decide(use, NULL, 0, sensor_record(use.buckets.request, thread_share(spent_so_far(use)), now_ms, True), now_ms)


cdef class QuotaSensor:
    """The rate of the clients that share a quota, and its bound per second. Python makes it and gives it to
    connections; data-plane threads count in it."""

    def __cinit__(self, double bound, int64_t windows=11, int64_t window_ms=1000, int64_t most_throttle_ms=0):
        """most_throttle_ms: the longest throttle time, 0 without a limit."""
        if windows < 1 or window_ms < 1:
            raise ValueError(f"{windows} windows of {window_ms} ms are no time")
        self.window_seconds = window_ms / 1000.0
        self.state = new QuotaSensorState()
        self.state.references = 1
        self.state.bound = bound
        self.state.most_throttle_ms = most_throttle_ms
        pthread_mutex_init(&self.state.mutex, NULL)
        rate_init(&self.state.rate, windows, window_ms)
        rate_init(&self.state.throttle_sum, METRIC_WINDOWS, METRIC_WINDOW_MS)
        rate_init(&self.state.throttle_count, METRIC_WINDOWS, METRIC_WINDOW_MS)

    def __dealloc__(self):
        sensor_unref(self.state)

    @property
    def bound(self):
        """The quota, per second."""
        pthread_mutex_lock(&self.state.mutex)
        bound = self.state.bound
        pthread_mutex_unlock(&self.state.mutex)
        return bound

    @bound.setter
    def bound(self, double bound):
        pthread_mutex_lock(&self.state.mutex)
        self.state.bound = bound
        pthread_mutex_unlock(&self.state.mutex)

    def record(self, double value, now_ms=None, bint check=True):
        """Counts a value; the throttle time in ms. `now_ms` is of the monotonic clock."""
        cdef int64_t at_ms = clock_ms() if now_ms is None else now_ms
        return sensor_record(self.state, value, at_ms, check)

    def measure(self, now_ms=None):
        """The rate per second."""
        cdef int64_t at_ms = clock_ms() if now_ms is None else now_ms
        pthread_mutex_lock(&self.state.mutex)
        rate = rate_measure(&self.state.rate, at_ms)
        pthread_mutex_unlock(&self.state.mutex)
        return rate

    def note_throttle(self, int64_t throttle_ms):
        """Counts a throttle time of a request that Python has answered."""
        sensor_note_throttle(self.state, throttle_ms, clock_ms())

    def throttle_time_ms(self):
        """The mean of the throttle times of the last minute; None without any."""
        cdef int64_t elapsed
        cdef int64_t now_ms = clock_ms()
        pthread_mutex_lock(&self.state.mutex)
        total = rate_sum(&self.state.throttle_sum, now_ms, &elapsed)
        count = rate_sum(&self.state.throttle_count, now_ms, &elapsed)
        pthread_mutex_unlock(&self.state.mutex)
        return total / count if count else None

    def is_idle(self):
        """Whether no connection has the sensor and its rate is zero: another one in its place would be equal."""
        cdef bint over
        if atomic_load(&self.state.references) > 1:
            return False
        pthread_mutex_lock(&self.state.mutex)
        over = rate_is_over(&self.state.rate, clock_ms())
        pthread_mutex_unlock(&self.state.mutex)
        return over

    def is_shared(self):
        """Whether a connection has the sensor."""
        return atomic_load(&self.state.references) > 1
