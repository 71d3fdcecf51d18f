"""Connections and their registry (see connection.pxd)."""

cimport cython
from cython.operator cimport dereference, preincrement
from libc.stdint cimport int16_t, int32_t, int64_t
from libc.stdio cimport snprintf
from libc.string cimport strlen
from libcpp.string cimport string
from libcpp.unordered_map cimport unordered_map
from libcpp.vector cimport vector

from kafkapy._speedups.base.event_queue cimport EVENT_CONNECTION_CLOSED, EVENT_LOG_LINE, event_post
from kafkapy._speedups.base.posix cimport (
    atomic_count,
    atomic_load,
    atomic_store,
    monotonic_ns,
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
    wall_clock_ms,
)
from kafkapy._speedups.base.scram cimport ScramTable
from kafkapy._speedups.base.tls cimport TlsContext, TlsContextState, tls_context_ref, tls_context_unref
from kafkapy._speedups.base.wire cimport ByteBuffer, buffer_free, buffer_init, write_int16, write_int32, write_raw
from kafkapy._speedups.network.connection_quotas cimport quota_release
from kafkapy._speedups.requests.client_quotas cimport buckets_init, buckets_release

cdef enum:
    LINES_PER_SECOND = 20

LOGGER_NAMES = {
    LOGGER_PROCESSOR: "kafka.network.Processor",
    LOGGER_ACCEPTOR: "kafka.network.Acceptor",
    LOGGER_REQUEST_CHANNEL: "kafka.network.RequestChannel",
}


cdef void network_log(ConnectionRegistryState* r, int level, int logger, const char* text) noexcept nogil:
    cdef int64_t second = monotonic_ns() // 1_000_000_000
    cdef int64_t suppressed = 0
    cdef bint allowed
    cdef char note[64]
    pthread_mutex_lock(&r.mutex)
    if second != r.line_second:
        r.line_second = second
        r.line_tokens = LINES_PER_SECOND
        suppressed = r.lines_suppressed
        r.lines_suppressed = 0
    allowed = r.line_tokens > 0
    if allowed:
        r.line_tokens -= 1
    else:
        r.lines_suppressed += 1
    pthread_mutex_unlock(&r.mutex)
    if suppressed:
        snprintf(note, sizeof(note), b"%lld similar lines were suppressed", <long long>suppressed)
        event_post(r.events, EVENT_LOG_LINE, 0, LEVEL_INFO * 100 + logger, note, strlen(note))
    if allowed:
        event_post(r.events, EVENT_LOG_LINE, 0, level * 100 + logger, text, strlen(text))


cdef ConnectionInfo* connection_open(ConnectionRegistryState* r, const string& peer_host, int peer_port,
                                     const string& local_host, int local_port, int16_t listener_index,
                                     bint privileged) noexcept nogil:
    cdef ConnectionInfo* info = new ConnectionInfo()
    info.references = 2
    info.peer_host = peer_host
    info.peer_port = peer_port
    info.local_host = local_host
    info.local_port = local_port
    info.listener_index = listener_index
    info.privileged = privileged
    info.created_ms = wall_clock_ms()
    info.authorization.epoch = -1
    info.authorization.key_bytes = 0
    info.authorization.owner = 0
    buckets_init(&info.buckets)
    info.end.call = NULL
    info.end.kept = NULL
    info.end.over = False
    atomic_count(&r.created, 1)
    pthread_mutex_lock(&r.mutex)
    r.next_id += 1
    info.id = r.next_id
    r.connections[info.id] = info
    pthread_mutex_unlock(&r.mutex)
    return info


cdef void connection_closed(ConnectionRegistryState* r, DataPlaneState* plane, ConnectionInfo* info,
                            int reason) noexcept nogil:
    cdef bint announce
    info.end.over = True
    if info.end.call != NULL and plane != NULL:
        info.end.call(plane, &info.end)
    pthread_mutex_lock(&r.mutex)
    info.closed = True
    announce = info.announce_close
    r.connections.erase(info.id)
    pthread_mutex_unlock(&r.mutex)
    atomic_count(&r.closed[reason], 1)
    quota_release(r.quotas, info.listener_index, info.peer_host)
    if announce:
        event_post(r.events, EVENT_CONNECTION_CLOSED, info.id, reason, NULL, 0)
    connection_unref(info)


cdef ListenerSecurity* listener_security(ConnectionRegistryState* r, int16_t listener_index) noexcept nogil:
    return r.listeners[listener_index] if <size_t>listener_index < r.listeners.size() else NULL


cdef TlsContextState* listener_tls(ConnectionRegistryState* r, ListenerSecurity* security) noexcept nogil:
    cdef TlsContextState* tls
    pthread_mutex_lock(&r.mutex)
    tls = security.tls
    if tls != NULL:
        tls_context_ref(tls)
    pthread_mutex_unlock(&r.mutex)
    return tls


cdef void connection_free(ConnectionInfo* info) noexcept nogil:
    buckets_release(&info.buckets)
    del info


cdef void connection_announce_close(ConnectionRegistryState* r, ConnectionInfo* info) noexcept nogil:
    """Announces the close. The Processor may close the connection while Python stores data for it: both check under the
    mutex, so exactly one of them posts the event."""
    cdef bint late
    pthread_mutex_lock(&r.mutex)
    late = info.closed and not info.announce_close
    info.announce_close = True
    pthread_mutex_unlock(&r.mutex)
    if late:
        event_post(r.events, EVENT_CONNECTION_CLOSED, info.id, CLOSED_BY_PEER, NULL, 0)


@cython.no_gc_clear
cdef class ConnectionRegistry:
    """Owns the table of open connections and its counters. Acceptors add connections, Processors remove them, Python
    reads the table."""

    def __cinit__(self, ConnectionQuotas quotas not None, EventQueue events not None):
        self.quotas = quotas
        self.events = events
        self.state = new ConnectionRegistryState()
        self.state.quotas = quotas.state
        self.state.events = events.state
        self.scram_tables = []
        # Never resized while Processors read it: a listener that is added later finds its slot.
        self.state.listeners.resize(quotas.state.listeners.size(), NULL)
        pthread_mutex_init(&self.state.mutex, NULL)

    def __dealloc__(self):
        cdef unordered_map[int64_t, ConnectionInfo*].iterator it
        cdef size_t i
        if self.state != NULL:
            it = self.state.connections.begin()
            while it != self.state.connections.end():
                connection_unref(dereference(it).second)
                preincrement(it)
            for i in range(self.state.listeners.size()):
                if self.state.listeners[i] != NULL:
                    tls_context_unref(self.state.listeners[i].tls)
                    del self.state.listeners[i]
            pthread_mutex_destroy(&self.state.mutex)
            del self.state

    def secure_listener(self, int16_t listener_index, TlsContext tls=None, bint sasl=False, bint raw_tokens=False,
                        int64_t max_receive_bytes=524288, int64_t setup_timeout_ms=30_000,
                        int64_t failed_delay_ms=100, bint ask_principal=False):
        """Makes the connections of a listener wait for a TLS handshake, a SASL exchange or a principal before they
        are served. Called before the listener accepts connections.

        raw_tokens: the first frame may be a token without header. max_receive_bytes: sasl.server.max.receive.size.
        setup_timeout_ms: the time for all of it. failed_delay_ms: connection.failed.authentication.delay.ms.
        ask_principal: Python gives every connection without SASL its principal, also one without a certificate."""
        cdef ListenerSecurity* security
        if not 0 <= listener_index < <int>self.state.listeners.size():
            raise ValueError(f"{listener_index} is no listener")
        if tls is None and not sasl and not ask_principal:
            raise ValueError("a listener without TLS, SASL and questions for principals asks for nothing")
        if tls is not None and not tls.server:
            raise ValueError("a listener needs the TLS context of a server")
        if self.state.listeners[listener_index] != NULL:
            raise ValueError(f"listener {listener_index} is secured already")
        security = new ListenerSecurity()
        security.sasl = sasl
        security.raw_tokens = raw_tokens
        security.ask_principal = ask_principal
        security.max_receive = max_receive_bytes
        security.setup_ns = setup_timeout_ms * 1_000_000
        security.failed_delay_ns = failed_delay_ms * 1_000_000
        if tls is not None:
            tls_context_ref(tls.state)
            security.tls = tls.state
        self.state.listeners[listener_index] = security

    def replace_tls(self, int16_t listener_index, TlsContext tls not None):
        """Gives a TLS listener another context. New connections get it; open ones keep theirs."""
        cdef ListenerSecurity* security = listener_security(self.state, listener_index)
        cdef TlsContextState* old
        if security == NULL or security.tls == NULL:
            raise ValueError(f"listener {listener_index} has no TLS")
        if not tls.server:
            raise ValueError("a listener needs the TLS context of a server")
        tls_context_ref(tls.state)
        with nogil:
            pthread_mutex_lock(&self.state.mutex)
            old = security.tls
            security.tls = tls.state
            pthread_mutex_unlock(&self.state.mutex)
            tls_context_unref(old)

    def serve_scram(self, int16_t listener_index, tables, mechanisms):
        """Lets network threads log in the users of these ScramTables, one for each mechanism that they serve.
        mechanisms: the names of all that the SASL listener enables."""
        cdef ListenerSecurity* security = listener_security(self.state, listener_index)
        cdef ScramTable table
        cdef ByteBuffer names
        cdef bytes encoded
        cdef int64_t served = 0
        if security == NULL or not security.sasl:
            raise ValueError(f"{listener_index} is no SASL listener")
        for table in tables:
            if table not in self.scram_tables:
                self.scram_tables.append(table)         # a login under way may have it
            security.scram[table.state.mechanism] = table.state
            served |= 1 << table.state.mechanism
        buffer_init(&names)
        write_int32(&names, <int32_t>len(mechanisms))
        for name in mechanisms:
            encoded = name.encode()
            write_int16(&names, <int16_t>len(encoded))
            write_raw(&names, <const char*>encoded, len(encoded))
        pthread_mutex_lock(&self.state.mutex)
        security.mechanisms.assign(<const char*>names.data, names.size)
        pthread_mutex_unlock(&self.state.mutex)
        buffer_free(&names)
        atomic_store(&security.scram_served, served)

    def authentication_counters(self, int16_t listener_index):
        """Of a listener's connections since the start: authenticated, failed (TLS handshakes among them),
        reauthenticated, reauthentication_failed, expired (closed after the end of their session), timed_out (not
        authenticated in time). None when it asks for nothing."""
        cdef ListenerSecurity* security = listener_security(self.state, listener_index)
        if security == NULL:
            return None
        return {
            "authenticated": atomic_load(&security.authenticated),
            "failed": atomic_load(&security.failed),
            "reauthenticated": atomic_load(&security.reauthenticated),
            "reauthentication_failed": atomic_load(&security.reauthentication_failed),
            "expired": atomic_load(&security.expired),
            "timed_out": atomic_load(&security.timed_out),
        }

    def connections(self):
        """The open connections, a dict each: id, peer_host, peer_port, local_host, local_port, listener_index,
        privileged, created_ms (wall clock), bytes_in, bytes_out, requests, in_flight, software_name, software_version,
        principal ("" when unknown), tls_protocol and cipher_suite ("" without TLS)."""
        cdef list infos = []
        cdef ConnectionInfo* info
        cdef vector[ConnectionInfo*] found
        cdef size_t i
        cdef string software_name
        cdef string software_version
        cdef string principal
        cdef string tls_protocol
        cdef string cipher_suite
        cdef unordered_map[int64_t, ConnectionInfo*].iterator it
        # No Python object is made under the mutex: that could run the garbage collector, and a request that it drops
        # writes a log line.
        with nogil:
            pthread_mutex_lock(&self.state.mutex)
            it = self.state.connections.begin()
            while it != self.state.connections.end():
                connection_ref(dereference(it).second)
                found.push_back(dereference(it).second)
                preincrement(it)
            pthread_mutex_unlock(&self.state.mutex)
        try:
            for i in range(found.size()):
                info = found[i]
                pthread_mutex_lock(&self.state.mutex)
                software_name = info.software_name
                software_version = info.software_version
                principal = info.principal
                tls_protocol = info.tls_protocol
                cipher_suite = info.cipher_suite
                pthread_mutex_unlock(&self.state.mutex)
                infos.append({
                    "id": info.id,
                    "peer_host": (<bytes>info.peer_host).decode(),
                    "peer_port": info.peer_port,
                    "local_host": (<bytes>info.local_host).decode(),
                    "local_port": info.local_port,
                    "listener_index": info.listener_index,
                    "privileged": bool(info.privileged),
                    "created_ms": info.created_ms,
                    "bytes_in": atomic_load(&info.bytes_in),
                    "bytes_out": atomic_load(&info.bytes_out),
                    "requests": atomic_load(&info.requests),
                    "in_flight": bool(atomic_load(&info.in_flight)),
                    "software_name": (<bytes>software_name).decode("utf-8", "replace"),
                    "software_version": (<bytes>software_version).decode("utf-8", "replace"),
                    "principal": (<bytes>principal).decode("utf-8", "replace"),
                    "tls_protocol": (<bytes>tls_protocol).decode(),
                    "cipher_suite": (<bytes>cipher_suite).decode(),
                })
        finally:
            for i in range(found.size()):
                connection_unref(found[i])
        return infos

    def counters(self):
        """Connection counts since the start: current, created, refused_per_ip, closed_by_peer, closed_by_broker,
        closed_idle, closed_excess, closed_at_stop."""
        cdef size_t current
        pthread_mutex_lock(&self.state.mutex)
        current = self.state.connections.size()
        pthread_mutex_unlock(&self.state.mutex)
        return {
            "current": current,
            "created": atomic_load(&self.state.created),
            "refused_per_ip": atomic_load(&self.state.refused_per_ip),
            "closed_by_peer": atomic_load(&self.state.closed[<int>CLOSED_BY_PEER]),
            "closed_by_broker": atomic_load(&self.state.closed[<int>CLOSED_BY_BROKER]),
            "closed_idle": atomic_load(&self.state.closed[<int>CLOSED_IDLE]),
            "closed_excess": atomic_load(&self.state.closed[<int>CLOSED_EXCESS]),
            "closed_at_stop": atomic_load(&self.state.closed[<int>CLOSED_AT_STOP]),
        }
