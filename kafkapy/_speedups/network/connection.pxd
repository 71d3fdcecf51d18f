"""One connection as both planes know it, and the registry of all connections.

The Acceptor makes a ConnectionInfo, the Processor that owns the connection uses it, and Python sees it through a
NetworkRequest or `ConnectionRegistry.connections()`. It outlives the socket while anything holds a reference: Python's
work on a request keeps the authorization cache that the answer goes into.
"""

from libc.stdint cimport int16_t, int64_t
from libcpp.string cimport string
from libcpp.unordered_map cimport unordered_map
from libcpp.vector cimport vector

from kafkapy._speedups.base.event_queue cimport EventQueue, EventQueueState
from kafkapy._speedups.base.posix cimport atomic_add, pthread_mutex_t
from kafkapy._speedups.base.scram cimport ScramTableState
from kafkapy._speedups.base.tls cimport TlsContextState
from kafkapy._speedups.network.connection_quotas cimport ConnectionQuotas, ConnectionQuotasState
from kafkapy._speedups.requests.client_quotas cimport ConnectionBuckets
from kafkapy._speedups.requests.data_plane cimport AuthorizationCache, ConnectionEnd, DataPlaneState

cdef enum LogLevel:                 # Python's logging levels
    LEVEL_DEBUG = 10
    LEVEL_INFO = 20
    LEVEL_WARNING = 30
    LEVEL_ERROR = 40

cdef enum LoggerNumber:             # argument of EVENT_LOG_LINE is level * 100 + this
    LOGGER_PROCESSOR = 1            # kafka.network.Processor
    LOGGER_ACCEPTOR = 2             # kafka.network.Acceptor
    LOGGER_REQUEST_CHANNEL = 3      # kafka.network.RequestChannel

cdef enum CloseReason:
    CLOSED_BY_PEER = 0
    CLOSED_BY_BROKER = 1            # bad frame, refused request, or on request of Python
    CLOSED_IDLE = 2
    CLOSED_EXCESS = 3               # made room for an inter-broker connection
    CLOSED_AT_STOP = 4
    CLOSE_REASONS = 5

cdef cppclass ListenerSecurity:
    """What a listener asks of its connections before it serves them. A listener that asks for nothing has none."""
    TlsContextState* tls            # referenced, guarded by the registry's mutex; NULL: no TLS
    bint sasl
    bint raw_tokens                 # a first frame without header is a token: clients of Kafka 0.9 with GSSAPI
    bint ask_principal              # Python gives every connection without SASL its principal
    int64_t max_receive             # sasl.server.max.receive.size
    int64_t setup_ns                # a connection that is not authenticated by then is closed
    int64_t failed_delay_ns         # connection.failed.authentication.delay.ms
    ScramTableState* scram[2]       # by mechanism, once it was served
    string mechanisms               # that are enabled, as SaslHandshake lists them; guarded by the registry's mutex
    int64_t scram_served            # atomics from here; a bit for each mechanism that network threads serve
    int64_t authenticated
    int64_t failed                  # authentications refused, TLS handshakes among them
    int64_t reauthenticated
    int64_t reauthentication_failed
    int64_t expired                 # connections closed after the end of their session
    int64_t timed_out               # connections closed because they were not authenticated in time

cdef cppclass ConnectionInfo:
    int64_t references              # atomic
    int64_t id
    string peer_host
    int peer_port
    string local_host
    int local_port
    int16_t listener_index
    bint privileged                 # of the inter-broker listener
    int64_t created_ms              # wall clock
    int64_t bytes_in                # atomics from here
    int64_t bytes_out
    int64_t requests
    int64_t in_flight               # 1 while a request is being handled
    AuthorizationCache authorization    # the Processor's, or Python's while it has the connection's request
    ConnectionBuckets buckets           # likewise
    ConnectionEnd end                   # likewise
    string software_name            # guarded by the registry's mutex from here
    string software_version
    string principal
    bint token_authenticated
    string tls_protocol             # "TLSv1.3"; "" without TLS
    string cipher_suite
    string peer_certificate         # DER; "": none
    bint announce_close
    bint closed

cdef cppclass ConnectionRegistryState:
    pthread_mutex_t mutex
    unordered_map[int64_t, ConnectionInfo*] connections     # each with a reference
    int64_t next_id
    int64_t created                 # atomics from here
    int64_t closed[5]               # by CloseReason
    int64_t refused_per_ip
    ConnectionQuotasState* quotas
    EventQueueState* events
    vector[ListenerSecurity*] listeners     # by index; NULL: asks for nothing. Complete before connections come
    int64_t line_tokens             # of the log rate limit, guarded by the mutex
    int64_t line_second
    int64_t lines_suppressed

# One log line, rate limited over the whole registry, so that hostile peers cannot flood the log.
cdef void network_log(ConnectionRegistryState* r, int level, int logger, const char* text) noexcept nogil
# Registers an admitted connection; the caller has the one reference besides the registry's.
cdef ConnectionInfo* connection_open(ConnectionRegistryState* r, const string& peer_host, int peer_port,
                                     const string& local_host, int local_port, int16_t listener_index,
                                     bint privileged) noexcept nogil
# What the listener asks of a connection; NULL: nothing.
cdef ListenerSecurity* listener_security(ConnectionRegistryState* r, int16_t listener_index) noexcept nogil
# The listener's present TLS context with a reference for the caller; NULL: no TLS.
cdef TlsContextState* listener_tls(ConnectionRegistryState* r, ListenerSecurity* security) noexcept nogil
# Removes a connection from registry and quotas after its socket is closed, and ends what APIs keep with it; posts the
# event that Python asked for. `plane` may be NULL for a connection that no Processor has had.
cdef void connection_closed(ConnectionRegistryState* r, DataPlaneState* plane, ConnectionInfo* info,
                            int reason) noexcept nogil
cdef inline void connection_ref(ConnectionInfo* info) noexcept nogil:
    atomic_add(&info.references, 1)


cdef inline void connection_unref(ConnectionInfo* info) noexcept nogil:
    if atomic_add(&info.references, -1) == 0:
        connection_free(info)


# Frees a connection after its last reference.
cdef void connection_free(ConnectionInfo* info) noexcept nogil
# Asks for EVENT_CONNECTION_CLOSED; posts it at once for a closed connection.
cdef void connection_announce_close(ConnectionRegistryState* r, ConnectionInfo* info) noexcept nogil

cdef class ConnectionRegistry:
    cdef ConnectionRegistryState* state
    cdef readonly ConnectionQuotas quotas
    cdef readonly EventQueue events
    cdef list scram_tables
