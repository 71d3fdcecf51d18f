"""Connection quotas (see connection_quotas.pxd)."""

from cython.operator cimport dereference, preincrement
from libc.stdint cimport int64_t
from libcpp.string cimport string
from libcpp.unordered_map cimport unordered_map

from kafkapy._speedups.base.posix cimport (
    atomic_load,
    atomic_store,
    eventfd_write,
    monotonic_ns,
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)
from kafkapy._speedups.base.sampled_rate cimport (
    SampledRate,
    rate_init,
    rate_is_over,
    rate_measure,
    rate_record,
    rate_throttle_ms,
)

cdef enum:
    NS_PER_MS = 1000000


cdef int64_t record_creation(ConnectionQuotasState* q, ConnectionRate* creation, int64_t now_ms) noexcept nogil:
    """Counts a connection; ms to wait, at most one window (Kafka's boundedThrottleTime)."""
    rate_record(&creation.rate, 1.0, now_ms)
    if creation.bound <= 0:
        return 0
    return min(rate_throttle_ms(&creation.rate, creation.bound, now_ms), q.window_ms)


cdef int64_t quota_wait(ConnectionQuotasState* q, int listener, int event_fd, int64_t now_ns) noexcept nogil:
    cdef ListenerQuota* own
    cdef int64_t wait
    cdef size_t i
    pthread_mutex_lock(&q.mutex)
    own = &q.listeners[listener]
    if own.count >= own.limit or (q.count >= q.limit and listener != atomic_load(&q.protected_listener)):
        for i in range(q.waiting_fds.size()):
            if q.waiting_fds[i] == event_fd:
                break
        else:
            q.waiting_fds.push_back(event_fd)
        pthread_mutex_unlock(&q.mutex)
        return -1
    wait = max(own.wait_until_ns - now_ns, <int64_t>0)
    pthread_mutex_unlock(&q.mutex)
    return wait


cdef int64_t limit_of(ConnectionQuotasState* q, const string& host) noexcept nogil:
    cdef unordered_map[string, int64_t].iterator it = q.per_ip_overrides.find(host)
    if it != q.per_ip_overrides.end():
        return dereference(it).second
    return q.per_ip_limit


cdef double address_bound(ConnectionQuotasState* q, const string& host) noexcept nogil:
    cdef unordered_map[string, double].iterator it = q.address_rates.find(host)
    if it != q.address_rates.end():
        return dereference(it).second
    return q.address_rate


cdef void forget_addresses(ConnectionQuotasState* q, int64_t now_ms) noexcept nogil:
    """Forgets rates that are zero, and those of all addresses without a connection when that does not help."""
    cdef unordered_map[string, SampledRate].iterator it = q.address_creations.begin()
    while it != q.address_creations.end():
        if rate_is_over(&dereference(it).second, now_ms):
            it = q.address_creations.erase(it)
        else:
            preincrement(it)
    if q.address_creations.size() < MAX_ADDRESS_RATES // 2:
        return
    it = q.address_creations.begin()
    while it != q.address_creations.end():
        if q.per_ip.count(dereference(it).first):
            preincrement(it)
        else:
            it = q.address_creations.erase(it)


cdef int64_t address_throttle_ms(ConnectionQuotasState* q, const string& host, int64_t now_ms) noexcept nogil:
    """Counts a connection of an address with a rate; ms of throttling, and then it does not count."""
    cdef double bound = address_bound(q, host)
    cdef SampledRate* rate
    cdef int64_t throttle_ms
    if bound <= 0:
        return 0
    if q.address_creations.size() >= MAX_ADDRESS_RATES and not q.address_creations.count(host):
        forget_addresses(q, now_ms)
    rate = &q.address_creations[host]
    if rate.windows != q.windows or rate.samples.empty():
        rate_init(rate, q.windows, q.window_ms)
    rate_record(rate, 1.0, now_ms)
    throttle_ms = min(rate_throttle_ms(rate, bound, now_ms), q.window_ms)
    if throttle_ms > 0:
        rate_record(rate, -1.0, now_ms)
    return throttle_ms


cdef Admission quota_admit(ConnectionQuotasState* q, int listener, const string& host, int64_t now_ns,
                           int64_t* detail) noexcept nogil:
    cdef unordered_map[string, int64_t].iterator it
    cdef ListenerQuota* own
    cdef int64_t now_ms = now_ns // NS_PER_MS
    cdef int64_t open_now = 0
    cdef int64_t throttle_ms = 0
    cdef Admission admission = CONNECTION_ADMITTED
    pthread_mutex_lock(&q.mutex)
    own = &q.listeners[listener]
    if listener != atomic_load(&q.protected_listener):
        throttle_ms = record_creation(q, &q.creation, now_ms)
    throttle_ms = max(throttle_ms, record_creation(q, &own.creation, now_ms))
    if throttle_ms > 0:
        own.wait_until_ns = now_ns + throttle_ms * NS_PER_MS
        own.throttled_ms += throttle_ms
    throttle_ms = address_throttle_ms(q, host, now_ms)
    if throttle_ms > 0:
        own.throttled_address_ms += throttle_ms
        detail[0] = throttle_ms
        admission = ADDRESS_IS_THROTTLED
    else:
        detail[0] = limit_of(q, host)
        it = q.per_ip.find(host)
        if it != q.per_ip.end():
            open_now = dereference(it).second
        if open_now >= detail[0]:
            admission = ADDRESS_IS_FULL
        else:
            q.per_ip[host] = open_now + 1
            q.count += 1
            own.count += 1
    pthread_mutex_unlock(&q.mutex)
    return admission


cdef void wake_acceptors(ConnectionQuotasState* q) noexcept nogil:
    """Wakes the acceptors, with the mutex held."""
    cdef size_t i
    for i in range(q.waiting_fds.size()):
        eventfd_write(q.waiting_fds[i], 1)
    q.waiting_fds.clear()


cdef void quota_release(ConnectionQuotasState* q, int listener, const string& host) noexcept nogil:
    cdef unordered_map[string, int64_t].iterator it
    pthread_mutex_lock(&q.mutex)
    q.count -= 1
    q.listeners[listener].count -= 1
    it = q.per_ip.find(host)
    if it != q.per_ip.end():
        if dereference(it).second <= 1:
            q.per_ip.erase(it)
        else:
            q.per_ip[host] = dereference(it).second - 1
    wake_acceptors(q)
    pthread_mutex_unlock(&q.mutex)


cdef void quota_forget(ConnectionQuotasState* q, int event_fd) noexcept nogil:
    cdef size_t i = 0
    pthread_mutex_lock(&q.mutex)
    while i < q.waiting_fds.size():
        if q.waiting_fds[i] == event_fd:
            q.waiting_fds[i] = q.waiting_fds.back()
            q.waiting_fds.pop_back()
        else:
            i += 1
    pthread_mutex_unlock(&q.mutex)


cdef bint quota_exceeded(ConnectionQuotasState* q) noexcept nogil:
    cdef bint exceeded
    pthread_mutex_lock(&q.mutex)
    exceeded = q.count > q.limit
    pthread_mutex_unlock(&q.mutex)
    return exceeded


cdef double measured(ConnectionRate* creation, int64_t now_ms) noexcept nogil:
    return rate_measure(&creation.rate, now_ms)


cdef class ConnectionQuotas:
    """Owns the counts. Acceptors ask it before they accept, Processors report closed connections; Python may change the
    limits at any time (max.connections and its kin are dynamic), which wakes waiting Acceptors."""

    def __cinit__(self, int listeners, int inter_broker_listener=-1, int64_t windows=11, int64_t window_ms=1000):
        """inter_broker_listener: index of that listener; -1 or a single listener: no listener is exempt. windows,
        window_ms: of the measured rates."""
        cdef ListenerQuota quota
        cdef int i
        if listeners < 1 or inter_broker_listener >= listeners:
            raise ValueError(f"no such listener: {inter_broker_listener} of {listeners}")
        self.state = new ConnectionQuotasState()
        pthread_mutex_init(&self.state.mutex, NULL)
        self.state.limit = self.state.per_ip_limit = 0x7FFFFFFF
        atomic_store(&self.state.protected_listener, inter_broker_listener if listeners > 1 else -1)
        quota.limit = 0x7FFFFFFF
        quota.count = 0
        quota.wait_until_ns = quota.throttled_ms = quota.throttled_address_ms = 0
        quota.creation.bound = 0
        rate_init(&quota.creation.rate, windows, window_ms)
        self.state.creation.bound = self.state.address_rate = 0
        rate_init(&self.state.creation.rate, windows, window_ms)
        self.state.windows = windows
        self.state.window_ms = window_ms
        for i in range(listeners):
            self.state.listeners.push_back(quota)

    def __dealloc__(self):
        if self.state != NULL:
            pthread_mutex_destroy(&self.state.mutex)
            del self.state

    def set_broker_limits(self, int64_t max_connections, double creation_rate=0.0):
        """max.connections and max.connection.creation.rate (per second; 0 is unlimited)."""
        pthread_mutex_lock(&self.state.mutex)
        self.state.limit = max_connections
        self.state.creation.bound = creation_rate
        wake_acceptors(self.state)
        pthread_mutex_unlock(&self.state.mutex)

    def set_listener_limits(self, int listener, int64_t max_connections, double creation_rate=0.0):
        """listener.name.<name>.max.connections and .max.connection.creation.rate."""
        if not 0 <= listener < <int>self.state.listeners.size():
            raise IndexError(f"no listener {listener}")
        pthread_mutex_lock(&self.state.mutex)
        self.state.listeners[listener].limit = max_connections
        self.state.listeners[listener].creation.bound = creation_rate
        self.state.listeners[listener].wait_until_ns = 0
        wake_acceptors(self.state)
        pthread_mutex_unlock(&self.state.mutex)

    def set_ip_limits(self, int64_t per_ip, dict overrides=None):
        """max.connections.per.ip and max.connections.per.ip.overrides (address text to limit)."""
        cdef unordered_map[string, int64_t] table
        for address, maximum in (overrides or {}).items():
            table[<string>(<str>address).encode()] = maximum
        pthread_mutex_lock(&self.state.mutex)
        self.state.per_ip_limit = per_ip
        self.state.per_ip_overrides = table
        pthread_mutex_unlock(&self.state.mutex)

    def set_address_rates(self, double default=0.0, dict rates=None):
        """connection_creation_rate of addresses, per second: the default (0: unlimited), and by address text."""
        cdef unordered_map[string, double] table
        for address, rate in (rates or {}).items():
            table[<string>(<str>address).encode()] = rate
        pthread_mutex_lock(&self.state.mutex)
        self.state.address_rate = default
        self.state.address_rates = table
        pthread_mutex_unlock(&self.state.mutex)

    def creation_rates(self):
        """(connections per second of the broker, [(connections per second, sum of ms of throttling by the rates of
        broker and listener, the same by the rates of addresses) of each listener])."""
        cdef int64_t now_ms = monotonic_ns() // NS_PER_MS
        cdef double broker
        cdef size_t i
        cdef list listeners = []
        pthread_mutex_lock(&self.state.mutex)
        broker = measured(&self.state.creation, now_ms)
        pthread_mutex_unlock(&self.state.mutex)
        for i in range(self.state.listeners.size()):
            pthread_mutex_lock(&self.state.mutex)
            rate = measured(&self.state.listeners[i].creation, now_ms)
            throttled = self.state.listeners[i].throttled_ms
            throttled_address = self.state.listeners[i].throttled_address_ms
            pthread_mutex_unlock(&self.state.mutex)
            listeners.append((rate, throttled, throttled_address))
        return broker, listeners

    def protect_listener(self, int listener):
        """Exempts this listener, the inter-broker one, from the broker-wide limit; -1: no listener."""
        if not -1 <= listener < <int>self.state.listeners.size():
            raise IndexError(f"no listener {listener}")
        pthread_mutex_lock(&self.state.mutex)
        atomic_store(&self.state.protected_listener, listener)
        wake_acceptors(self.state)
        pthread_mutex_unlock(&self.state.mutex)

    @property
    def count(self):
        """The number of open connections."""
        cdef int64_t count
        pthread_mutex_lock(&self.state.mutex)
        count = self.state.count
        pthread_mutex_unlock(&self.state.mutex)
        return count

    def listener_count(self, int listener):
        """The number of open connections of that listener."""
        if not 0 <= listener < <int>self.state.listeners.size():
            raise IndexError(f"no listener {listener}")
        cdef int64_t count
        pthread_mutex_lock(&self.state.mutex)
        count = self.state.listeners[listener].count
        pthread_mutex_unlock(&self.state.mutex)
        return count
