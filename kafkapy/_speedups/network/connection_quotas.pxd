"""The limits on connections: broker-wide, per listener, per IP address, and their rate.

As in Kafka's ConnectionQuotas, an address over its limit is refused at once; a full broker or listener makes the
Acceptor wait, so clients queue in the listen backlog. The inter-broker listener, when it is not the only one, is exempt
from the broker-wide limit, and each of its connections over the limit closes the least recently used connection of
another listener.
"""

from libc.stdint cimport int64_t
from libcpp.string cimport string
from libcpp.unordered_map cimport unordered_map
from libcpp.vector cimport vector

from kafkapy._speedups.base.posix cimport pthread_mutex_t

cdef cppclass TokenBucket:
    double rate                 # connections per second; 0: unlimited
    double tokens               # at most one second's worth
    int64_t filled_ns

cdef cppclass ListenerQuota:
    int64_t limit
    int64_t count
    TokenBucket bucket

cdef cppclass ConnectionQuotasState:
    pthread_mutex_t mutex       # guards all of it
    int64_t limit
    int64_t count
    TokenBucket bucket
    vector[ListenerQuota] listeners
    int protected_listener      # index of the inter-broker listener when exempt, else -1
    int64_t per_ip_limit
    unordered_map[string, int64_t] per_ip_overrides
    unordered_map[string, int64_t] per_ip
    vector[int] waiting_fds     # eventfds of Acceptors that wait for a slot

# 0: accept a connection now (its rate token is taken); -1: wait until a connection closes, which writes to event_fd;
# else ns to wait for the rate limit.
cdef int64_t quota_wait(ConnectionQuotasState* q, int listener, int event_fd, int64_t now_ns) noexcept nogil
# Returns the rate token when no connection came.
cdef void quota_put_back(ConnectionQuotasState* q, int listener) noexcept nogil
# Counts a connection. 0, without counting, when its address has its maximum, which `maximum` gets.
cdef bint quota_admit(ConnectionQuotasState* q, int listener, const string& host, int64_t* maximum) noexcept nogil
cdef void quota_release(ConnectionQuotasState* q, int listener, const string& host) noexcept nogil
# Forgets the eventfd of an Acceptor that ends.
cdef void quota_forget(ConnectionQuotasState* q, int event_fd) noexcept nogil
cdef bint quota_exceeded(ConnectionQuotasState* q) noexcept nogil

cdef class ConnectionQuotas:
    cdef ConnectionQuotasState* state
