"""The limits on connections: broker-wide, per listener, per IP address, and their rate.

As in Kafka's ConnectionQuotas, an address over its limit is refused at once; a full broker or listener makes the
Acceptor wait, so clients queue in the listen backlog. The inter-broker listener, when it is not the only one, is exempt
from the broker-wide limit and rate, and each of its connections over the limit closes the least recently used
connection of another listener.

Rates (KIP-612) are measured over the windows of client quotas. A connection above the rate of the broker or of its
listener makes the Acceptor wait, at most one window at a time, before it accepts the next one. A connection above the
rate of its address is not counted and is closed after the throttle time. `quotas` of addresses come from the metadata
store.
"""

from libc.stdint cimport int64_t
from libcpp.string cimport string
from libcpp.unordered_map cimport unordered_map
from libcpp.vector cimport vector

from kafkapy._speedups.base.posix cimport pthread_mutex_t
from kafkapy._speedups.base.sampled_rate cimport SampledRate

cdef enum:
    MAX_ADDRESS_RATES = 10000   # addresses whose rate is known; of more, those without an open connection are forgotten

cdef enum Admission:
    CONNECTION_ADMITTED = 0
    ADDRESS_IS_FULL = 1         # it has its maximum of connections
    ADDRESS_IS_THROTTLED = 2    # it makes connections too often

cdef cppclass ConnectionRate:
    double bound                # connections per second; 0: unlimited
    SampledRate rate

cdef cppclass ListenerQuota:
    int64_t limit
    int64_t count
    ConnectionRate creation
    int64_t wait_until_ns       # the end of its throttle time
    int64_t throttled_ms        # of it, for the metrics: sums of the throttle times
    int64_t throttled_address_ms

cdef cppclass ConnectionQuotasState:
    pthread_mutex_t mutex       # guards all of it
    int64_t limit
    int64_t count
    ConnectionRate creation
    int64_t windows
    int64_t window_ms
    vector[ListenerQuota] listeners
    int64_t protected_listener  # atomic; index of the inter-broker listener when exempt, else -1
    int64_t per_ip_limit
    unordered_map[string, int64_t] per_ip_overrides
    unordered_map[string, int64_t] per_ip
    double address_rate                                     # of addresses without their own; 0: unlimited
    unordered_map[string, double] address_rates
    unordered_map[string, SampledRate] address_creations    # of addresses with a bound
    vector[int] waiting_fds     # eventfds of Acceptors that wait for a slot

# 0: accept a connection now; -1: wait until a connection closes, which writes to event_fd; else ns to wait for the
# rate.
cdef int64_t quota_wait(ConnectionQuotasState* q, int listener, int event_fd, int64_t now_ns) noexcept nogil
# Counts a connection, which must be closed unless it is admitted. `detail`: the address's maximum of connections, or ms
# until the close.
cdef Admission quota_admit(ConnectionQuotasState* q, int listener, const string& host, int64_t now_ns,
                           int64_t* detail) noexcept nogil
cdef void quota_release(ConnectionQuotasState* q, int listener, const string& host) noexcept nogil
# Forgets the eventfd of an Acceptor that ends.
cdef void quota_forget(ConnectionQuotasState* q, int event_fd) noexcept nogil
cdef bint quota_exceeded(ConnectionQuotasState* q) noexcept nogil

cdef class ConnectionQuotas:
    cdef ConnectionQuotasState* state
