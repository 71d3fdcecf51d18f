"""The shared state of the data-plane threads: tables, counters, addresses of brokers (see data_plane.pxd).

NodeEndpoints (Produce v10+, Fetch v16+; KIP-951), written here because both replies carry it:

    elements    unsigned varint: count + 1
    each        node id int32 | host compact string | port int32 | rack compact nullable string | tagged fields
"""

cimport cython
from cython.operator cimport dereference, preincrement

from kafkapy._speedups.base.event_queue cimport EventQueue
from kafkapy._speedups.base.posix cimport (
    atomic_load,
    atomic_store,
    pthread_rwlock_destroy,
    pthread_rwlock_rdlock,
    pthread_rwlock_unlock,
    pthread_rwlock_wrlock,
    rwlock_init,
)
from kafkapy._speedups.base.wire cimport (
    buffer_free,
    buffer_init,
    write_array_length,
    write_int32,
    write_raw,
    write_string,
    write_unsigned_varint,
)
from kafkapy._speedups.requests.client_quotas cimport QUOTAS_OFF
from kafkapy._speedups.requests.fetch_session cimport FetchSessionCache
from kafkapy._speedups.requests.partition_table cimport PartitionTable

cdef dict SELECTORS = {"leader": SELECT_LEADER, "rack_aware": SELECT_SAME_RACK, "asked": SELECT_ASKED}

cdef enum:
    NODE_ENDPOINTS_TAG = 0
    HISTOGRAM_BUCKETS = 32
    MIN_FETCH_MAX_BYTES = 1024          # Kafka's lower bound of fetch.max.bytes


cdef void leader_note(vector[int32_t]* leaders, int32_t node_id) noexcept nogil:
    cdef size_t i
    for i in range(leaders.size()):
        if dereference(leaders)[i] == node_id:
            return
    leaders.push_back(node_id)


cdef void leaders_write(DataPlaneState* plane, int16_t listener_index, vector[int32_t]* leaders,
                        ByteBuffer* out) noexcept nogil:
    cdef ByteBuffer endpoints
    buffer_init(&endpoints)
    if leaders.size() and endpoints_write(plane, listener_index, leaders, &endpoints):
        write_unsigned_varint(out, 1)
        write_unsigned_varint(out, NODE_ENDPOINTS_TAG)
        write_unsigned_varint(out, <unsigned int>endpoints.size)
        write_raw(out, endpoints.data, endpoints.size)
    else:
        write_unsigned_varint(out, 0)
    if endpoints.error:
        out.error = endpoints.error
    buffer_free(&endpoints)


cdef void leaders_write_array(DataPlaneState* plane, int16_t listener_index, vector[int32_t]* leaders,
                              ByteBuffer* out) noexcept nogil:
    if not endpoints_write(plane, listener_index, leaders, out):
        write_array_length(out, 0, True)


cdef int32_t endpoints_write(DataPlaneState* plane, int16_t listener_index, vector[int32_t]* node_ids,
                             ByteBuffer* out) noexcept nogil:
    cdef unordered_map[int64_t, NodeEndpoint].iterator found
    cdef NodeEndpoint* endpoint
    cdef int32_t known = 0
    cdef size_t i
    cdef vector[int32_t] present
    pthread_rwlock_rdlock(&plane.endpoints_lock)
    for i in range(node_ids.size()):
        if plane.endpoints.count(endpoint_key(listener_index, dereference(node_ids)[i])):
            present.push_back(dereference(node_ids)[i])
    known = <int32_t>present.size()
    if known:
        write_array_length(out, known, True)
        for i in range(present.size()):
            found = plane.endpoints.find(endpoint_key(listener_index, present[i]))
            endpoint = &dereference(found).second
            write_int32(out, present[i])
            write_string(out, endpoint.host.data(), <int32_t>endpoint.host.size(), True)
            write_int32(out, endpoint.port)
            write_string(out, endpoint.rack.data(), <int32_t>endpoint.rack.size() if endpoint.has_rack else -1, True)
            write_unsigned_varint(out, 0)
    pthread_rwlock_unlock(&plane.endpoints_lock)
    return known


@cython.no_gc_clear     # the state's targets must outlive every request, also in a garbage cycle
cdef class DataPlane:
    """Owns the shared state; keeps the Python owners of the tables alive.

    Created once by the server before any Processor, and outlives all of them. Its properties are set on the control
    loop and read by every data-plane thread.
    """

    def __cinit__(self, int32_t node_id, PartitionTable partitions not None, FetchSessionCache sessions not None,
                  EventQueue events not None, int32_t fetch_max_bytes=57671680):
        cdef int i
        cdef int j
        self.state = new DataPlaneState()
        self.partitions = partitions
        self.sessions = sessions
        self.events = events
        self.state.node_id = node_id
        self.state.partitions = partitions.state
        self.state.sessions = sessions.state
        self.state.events = events.state
        self.state.authorizer_epoch = -1
        self.state.fetch_max_bytes = fetch_max_bytes
        self.state.request_log = 0
        self.state.verify_transactions = 1
        self.state.replica_selector = SELECT_LEADER
        self.state.quota_epoch = QUOTAS_OFF
        self.state.shares = NULL
        self.state.commits = NULL
        rwlock_init(&self.state.endpoints_lock)
        for i in range(API_KEY_LIMIT):
            self.state.apis[i].requests = 0
            self.state.apis[i].errors = 0
            self.state.apis[i].request_bytes = 0
            self.state.apis[i].response_bytes = 0
            self.state.apis[i].queue_ns = 0
            self.state.apis[i].local_ns = 0
            self.state.apis[i].remote_ns = 0
            self.state.apis[i].total_ns = 0
            for j in range(HISTOGRAM_BUCKETS):
                self.state.apis[i].total_histogram[j] = 0

    def __dealloc__(self):
        if self.state != NULL:
            pthread_rwlock_destroy(&self.state.endpoints_lock)
            del self.state

    @property
    def node_id(self):
        """This broker's id."""
        return self.state.node_id

    @property
    def partition_table(self):
        """The PartitionTable of the constructor."""
        return self.partitions

    @property
    def fetch_session_cache(self):
        """The FetchSessionCache of the constructor."""
        return self.sessions

    @property
    def event_queue(self):
        """The EventQueue of the constructor."""
        return self.events

    @property
    def share_table(self):
        """The ShareTable (requests/share/table.pyx), or None."""
        return self.shares

    @property
    def commit_table(self):
        """The CommitTable (requests/offset_commit/lease.pyx), or None."""
        return self.commits

    @property
    def authorizer_epoch(self):
        """The epoch of valid authorization decisions; -1 when everything is allowed."""
        return atomic_load(&self.state.authorizer_epoch)

    @authorizer_epoch.setter
    def authorizer_epoch(self, int64_t epoch):
        atomic_store(&self.state.authorizer_epoch, epoch)

    @property
    def fetch_max_bytes(self):
        """fetch.max.bytes of the broker: the limit of a Fetch reply, except for a larger first batch."""
        return self.state.fetch_max_bytes

    @fetch_max_bytes.setter
    def fetch_max_bytes(self, int32_t limit):
        if limit < MIN_FETCH_MAX_BYTES:
            raise ValueError(f"fetch.max.bytes must be at least {MIN_FETCH_MAX_BYTES}, not {limit}")
        self.state.fetch_max_bytes = limit

    @property
    def request_log_level(self):
        """The log level of Produce and Fetch for the EventQueue: 0 nothing, 1 every request (DEBUG), 2 request bodies
        too (TRACE)."""
        return atomic_load(&self.state.request_log)

    @request_log_level.setter
    def request_log_level(self, int64_t level):
        atomic_store(&self.state.request_log, level)

    @property
    def verify_transactions(self):
        """transaction.partition.verification.enable: whether Produce before version 12 may write only into transactions
        that the coordinator knows."""
        return bool(atomic_load(&self.state.verify_transactions))

    @verify_transactions.setter
    def verify_transactions(self, bint enabled):
        atomic_store(&self.state.verify_transactions, enabled)

    @property
    def replica_selector(self):
        """The selector of consumers' replicas: "leader", "rack_aware", or "asked": Python's (ASK_SELECT)."""
        cdef int64_t kind = atomic_load(&self.state.replica_selector)
        return next(name for name, value in SELECTORS.items() if value == kind)

    @replica_selector.setter
    def replica_selector(self, str name):
        if name not in SELECTORS:
            raise ValueError(f"unknown replica selector {name!r}")
        atomic_store(&self.state.replica_selector, <int64_t>SELECTORS[name])

    @property
    def quota_epoch(self):
        """The epoch of valid quota decisions; -1 when nobody has a quota."""
        return atomic_load(&self.state.quota_epoch)

    @quota_epoch.setter
    def quota_epoch(self, int64_t epoch):
        atomic_store(&self.state.quota_epoch, epoch)

    def set_endpoints(self, int16_t listener_index, nodes):
        """Replaces the broker addresses for one listener's clients: {node id: (host, port, rack or None)}."""
        cdef unordered_map[int64_t, NodeEndpoint] fresh
        cdef NodeEndpoint endpoint
        cdef int32_t node_id
        for node_id, (host, port, rack) in nodes.items():
            endpoint.host = (<str>host).encode()
            endpoint.port = port
            endpoint.has_rack = rack is not None
            endpoint.rack = (<str>rack).encode() if rack is not None else b""
            fresh[endpoint_key(listener_index, node_id)] = endpoint
        cdef unordered_map[int64_t, NodeEndpoint].iterator it
        cdef vector[int64_t] stale
        cdef size_t i
        with nogil:
            pthread_rwlock_wrlock(&self.state.endpoints_lock)
            it = self.state.endpoints.begin()
            while it != self.state.endpoints.end():
                if dereference(it).first >> 32 == listener_index:
                    stale.push_back(dereference(it).first)
                preincrement(it)
            for i in range(stale.size()):
                self.state.endpoints.erase(stale[i])
            it = fresh.begin()
            while it != fresh.end():
                self.state.endpoints[dereference(it).first] = dereference(it).second
                preincrement(it)
            pthread_rwlock_unlock(&self.state.endpoints_lock)

    def counters(self):
        """{api key: {counter: value}} of the APIs with at least one request; times in nanoseconds. `total_histogram[i]`
        counts requests whose total time was below 2**i microseconds (and not below 2**(i-1))."""
        cdef int i
        cdef int j
        cdef ApiCounters* api
        out = {}
        for i in range(API_KEY_LIMIT):
            api = &self.state.apis[i]
            if not atomic_load(&api.requests) and not atomic_load(&api.errors):
                continue
            out[i] = {
                "requests": atomic_load(&api.requests),
                "errors": atomic_load(&api.errors),
                "request_bytes": atomic_load(&api.request_bytes),
                "response_bytes": atomic_load(&api.response_bytes),
                "queue_ns": atomic_load(&api.queue_ns),
                "local_ns": atomic_load(&api.local_ns),
                "remote_ns": atomic_load(&api.remote_ns),
                "total_ns": atomic_load(&api.total_ns),
                "total_histogram": [atomic_load(&api.total_histogram[j]) for j in range(HISTOGRAM_BUCKETS)],
            }
        return out
