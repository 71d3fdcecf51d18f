"""Connection quotas (see connection_quotas.pxd)."""

from cython.operator cimport dereference
from libc.stdint cimport int64_t
from libcpp.string cimport string
from libcpp.unordered_map cimport unordered_map

from kafkapy._speedups.base.posix cimport (
    eventfd_write,
    monotonic_ns,
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)


cdef void fill(TokenBucket* bucket, int64_t now_ns) noexcept nogil:
    cdef double burst
    if bucket.rate <= 0:
        return
    burst = bucket.rate if bucket.rate > 1.0 else 1.0
    bucket.tokens += bucket.rate * (now_ns - bucket.filled_ns) / 1e9
    if bucket.tokens > burst:
        bucket.tokens = burst
    bucket.filled_ns = now_ns


cdef int64_t time_to_token(TokenBucket* bucket) noexcept nogil:
    if bucket.rate <= 0 or bucket.tokens >= 1.0:
        return 0
    return <int64_t>((1.0 - bucket.tokens) / bucket.rate * 1e9) + 1


cdef int64_t quota_wait(ConnectionQuotasState* q, int listener, int event_fd, int64_t now_ns) noexcept nogil:
    cdef ListenerQuota* own
    cdef int64_t wait
    pthread_mutex_lock(&q.mutex)
    own = &q.listeners[listener]
    if own.count >= own.limit or (q.count >= q.limit and listener != q.protected_listener):
        q.waiting_fds.push_back(event_fd)
        pthread_mutex_unlock(&q.mutex)
        return -1
    fill(&own.bucket, now_ns)
    wait = time_to_token(&own.bucket)
    if listener != q.protected_listener:
        fill(&q.bucket, now_ns)
        wait = max(wait, time_to_token(&q.bucket))
    if wait == 0:
        if own.bucket.rate > 0:
            own.bucket.tokens -= 1.0
        if q.bucket.rate > 0 and listener != q.protected_listener:
            q.bucket.tokens -= 1.0
    pthread_mutex_unlock(&q.mutex)
    return wait


cdef void quota_put_back(ConnectionQuotasState* q, int listener) noexcept nogil:
    cdef ListenerQuota* own
    pthread_mutex_lock(&q.mutex)
    own = &q.listeners[listener]
    if own.bucket.rate > 0:
        own.bucket.tokens += 1.0
    if q.bucket.rate > 0 and listener != q.protected_listener:
        q.bucket.tokens += 1.0
    pthread_mutex_unlock(&q.mutex)


cdef int64_t limit_of(ConnectionQuotasState* q, const string& host) noexcept nogil:
    cdef unordered_map[string, int64_t].iterator it = q.per_ip_overrides.find(host)
    if it != q.per_ip_overrides.end():
        return dereference(it).second
    return q.per_ip_limit


cdef bint quota_admit(ConnectionQuotasState* q, int listener, const string& host, int64_t* maximum) noexcept nogil:
    cdef unordered_map[string, int64_t].iterator it
    cdef int64_t open_now = 0
    cdef bint admitted
    pthread_mutex_lock(&q.mutex)
    maximum[0] = limit_of(q, host)
    it = q.per_ip.find(host)
    if it != q.per_ip.end():
        open_now = dereference(it).second
    admitted = open_now < maximum[0]
    if admitted:
        q.per_ip[host] = open_now + 1
        q.count += 1
        q.listeners[listener].count += 1
    pthread_mutex_unlock(&q.mutex)
    return admitted


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


cdef void set_rate(TokenBucket* bucket, double rate) noexcept nogil:
    bucket.rate = rate
    bucket.tokens = rate if rate > 1.0 else 1.0
    bucket.filled_ns = monotonic_ns()


cdef class ConnectionQuotas:
    """Owns the counts. Acceptors ask it before they accept, Processors report closed connections; Python may change the
    limits at any time (max.connections and its kin are dynamic), which wakes waiting Acceptors."""

    def __cinit__(self, int listeners, int inter_broker_listener=-1):
        """inter_broker_listener: index of that listener; -1 or a single listener: no listener is exempt."""
        cdef ListenerQuota quota
        cdef int i
        if listeners < 1 or inter_broker_listener >= listeners:
            raise ValueError(f"no such listener: {inter_broker_listener} of {listeners}")
        self.state = new ConnectionQuotasState()
        pthread_mutex_init(&self.state.mutex, NULL)
        self.state.limit = self.state.per_ip_limit = 0x7FFFFFFF
        self.state.protected_listener = inter_broker_listener if listeners > 1 else -1
        quota.limit = 0x7FFFFFFF
        quota.count = 0
        quota.bucket.rate = quota.bucket.tokens = 0
        quota.bucket.filled_ns = 0
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
        set_rate(&self.state.bucket, creation_rate)
        wake_acceptors(self.state)
        pthread_mutex_unlock(&self.state.mutex)

    def set_listener_limits(self, int listener, int64_t max_connections, double creation_rate=0.0):
        """listener.name.<name>.max.connections and .max.connection.creation.rate."""
        if not 0 <= listener < <int>self.state.listeners.size():
            raise IndexError(f"no listener {listener}")
        pthread_mutex_lock(&self.state.mutex)
        self.state.listeners[listener].limit = max_connections
        set_rate(&self.state.listeners[listener].bucket, creation_rate)
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

    def protect_listener(self, int listener):
        """Exempts this listener, the inter-broker one, from the broker-wide limit; -1: no listener."""
        if not -1 <= listener < <int>self.state.listeners.size():
            raise IndexError(f"no listener {listener}")
        pthread_mutex_lock(&self.state.mutex)
        self.state.protected_listener = listener
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
