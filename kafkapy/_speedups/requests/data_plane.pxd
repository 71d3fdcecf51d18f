"""The state that all data-plane threads share, and the contract between the Processor and an API.

The Processor owns connections and frames. It gives a decoded header and the body to an API of the table (apis.pyx),
whose `handle` returns an `Outcome`. An API keeps its state across parking in an object of its type (`ParkedState`) and
knows nothing of sockets:

    OUTCOME_REPLY      outcome.send is the whole reply frame; the Processor sends it
    OUTCOME_NO_REPLY   acks=0 without an error; the channel is unmuted
    OUTCOME_PARKED     outcome.parked holds the request's state. The API has registered waiters with (frame.wake,
                       frame.wake_owner, frame.token). The Processor keeps the frame and calls resume(parked, timed_out)
                       when that token wakes it or at outcome.deadline_ns (monotonic), or cancel(parked) when the
                       connection is gone. Each resume again ends in an Outcome.
    OUTCOME_ASK        like PARKED without a deadline, but Python must answer outcome.ask first. The Processor posts the
                       frame to the RequestChannel; Python stores its answer as outcome.ask states, and the request is
                       resumed. Only the answer resumes it: a wake that arrives meanwhile is stale and is ignored.
    OUTCOME_CLOSE      the connection is closed; outcome.message is the reason, static text, logged once
    OUTCOME_WORKER     like ASK, but a thread of the worker pool runs `work(parked)`, then the request is resumed. Only
                       its MAIL_OUTCOME resumes it; a wake that arrives meanwhile is remembered.
    OUTCOME_PYTHON     Python serves the request from the start; the API has kept nothing of it
    OUTCOME_RESUME     comes by MAIL_OUTCOME, or from `settle`: the request is resumed
    OUTCOME_GATHERED   like PARKED without a deadline. Of the requests with the same outcome.group that this turn of the
                       Processor finds, several are given to `settle`, which makes one write of their appends; a single
                       one is resumed. Only with frame.gathers

MAIL_OUTCOME carries out the outcome that another thread left in PendingRequest.outcome (network/pending_request.pxd).

Counters are relaxed atomics, which the metrics collector reads.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t
from libcpp.string cimport string
from libcpp.unordered_map cimport unordered_map
from libcpp.vector cimport vector

from kafkapy._speedups.base.blocking cimport thread_self
from kafkapy._speedups.base.event_queue cimport EventQueueState
from kafkapy._speedups.base.posix cimport atomic_load, pthread_rwlock_t
from kafkapy._speedups.base.seeded_hash cimport SeededHash
from kafkapy._speedups.base.send cimport Send
from kafkapy._speedups.base.wire cimport ByteBuffer
from kafkapy._speedups.log.layout cimport LogState, wake_function
from kafkapy._speedups.requests.client_quotas cimport QuotaUse
from kafkapy._speedups.requests.fetch_session cimport FetchSessionCacheState
from kafkapy._speedups.requests.partition_table cimport PartitionTableState

cdef enum ApiKey:
    API_PRODUCE = 0
    API_FETCH = 1
    API_OFFSET_COMMIT = 8
    API_SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    API_SASL_AUTHENTICATE = 36
    API_SHARE_FETCH = 78
    API_SHARE_ACKNOWLEDGE = 79

cdef enum:
    API_KEY_LIMIT = 128             # above all api keys

cdef enum AuthorizedOperation:      # Kafka's AclOperation codes
    OPERATION_READ = 3
    OPERATION_WRITE = 4
    OPERATION_CLUSTER_ACTION = 9
    OPERATION_IDEMPOTENT_WRITE = 12

cdef cppclass AuthorizationCache:
    """The decisions of one connection. Key: one byte operation, then the topic name (or "\\x00cluster" / "\\x01" +
    transactional id / "\\x02" + group id). Dropped when its epoch is not the data plane's."""
    int64_t epoch
    unordered_map[string, bint, SeededHash] decisions
    size_t key_bytes                # of all keys
    string last                     # the key of the latest look-up that found its decision
    bint last_allowed
    uint64_t owner                  # a hash of the connection's principal; 0: it has not authenticated

cdef cppclass ApiCounters:
    int64_t requests
    int64_t errors
    int64_t request_bytes
    int64_t response_bytes
    int64_t queue_ns                # in the RequestChannel, waiting for Python
    int64_t local_ns                # in the handler
    int64_t remote_ns               # parked
    int64_t total_ns                # frame complete to last byte of the reply given to the kernel
    int64_t total_histogram[32]     # count of requests with total time < 2**i microseconds

cdef cppclass NodeEndpoint:
    """The address of a broker for the clients of one listener."""
    string host
    int32_t port
    string rack
    bint has_rack

cdef cppclass DataPlaneState:
    int32_t node_id
    PartitionTableState* partitions
    FetchSessionCacheState* sessions
    EventQueueState* events
    int64_t authorizer_epoch        # atomic; -1: everything is allowed (no authorizer that can deny)
    int32_t fetch_max_bytes
    string advertised_host          # for node endpoints in Produce v10+/Fetch v16+ replies (per listener: see Frame)
    ApiCounters apis[API_KEY_LIMIT]
    pthread_rwlock_t endpoints_lock
    unordered_map[int64_t, NodeEndpoint] endpoints      # key: listener index << 32 | node id
    void* shares                    # ShareTableState (requests/share/entries.pxd)
    void* commits                   # CommitTableState (requests/offset_commit/lease.pxd)
    int64_t request_log             # atomic; RequestLogLevel (network/request_log.pxd)
    int64_t verify_transactions     # atomic; transaction.partition.verification.enable
    int64_t replica_selector        # atomic; SelectorKind
    int64_t quota_epoch             # atomic; QUOTAS_OFF: nobody has a quota

cdef struct ConnectionEnd:
    # What an API keeps with a connection. At the end of the connection the network sets `over` and calls once.
    void (*call)(DataPlaneState* plane, ConnectionEnd* end) noexcept nogil      # NULL: no API has anything to end
    void* kept                      # the API's own
    bint over

cdef enum AskKind:
    ASK_AUTHORIZE = 0               # questions: keys as in AuthorizationCache; answers go into the connection's cache
    ASK_VALIDATE = 1                # questions: index of the partition inside the parked state; answers by
                                    # produce_replace_records / produce_refuse_records
    ASK_CONVERT = 2                 # the same of a parked fetch; answers by fetch_give_records / fetch_refuse_records
    ASK_VERIFY = 3                  # as ASK_VALIDATE; answers by produce_confirm_transaction / produce_refuse_records
    ASK_PRINCIPAL = 4               # of the Processor, after a TLS handshake with a client's certificate; no questions;
                                    # answers by MAIL_AUTHENTICATED / MAIL_REFUSED (network/mailbox.pxd)

    ASK_SELECT = 5                  # a replica selector of Python names the replica that a consumer should read from;
                                    # questions: index of the partition in a parked fetch; answers by
                                    # fetch_select_replica
    ASK_QUOTAS = 6                  # of the Processor, before a request whose connection has no buckets of this epoch
                                    # and client id; no questions; answers by MAIL_BEGIN (network/mailbox.pxd)

cdef enum SelectorKind:             # of replica.selector.class
    SELECT_LEADER = 0
    SELECT_SAME_RACK = 1            # RackAwareReplicaSelector
    SELECT_ASKED = 2                # another one, which Python runs

cdef cppclass Ask:
    int kind
    vector[string] questions

# One request as the Processor hands it over. Valid until the outcome is final (reply, no reply, close) or cancelled.
cdef struct LeftMemory:
    # Memory that finished requests keep for the next one of the same thread; NULL: none.
    void* fetch                     # owned by requests/fetch/handle.pyx
    Send* send
    int64_t owner                   # atomic: the thread that runs the Processor (thread_self); 0: any

cdef struct Frame:
    int16_t api_key
    int16_t api_version
    int32_t correlation_id
    const uint8_t* client_id        # borrowed from the frame buffer
    int32_t client_id_size          # -1: null
    uint8_t* body                   # in the frame's buffer, owned by this request: Produce patches offsets there
    int64_t body_size
    int64_t received_ns             # monotonic, when the frame was whole
    uint64_t token                  # of this request, unique in its Processor
    wake_function wake
    void* wake_owner
    AuthorizationCache* authorization
    LeftMemory* left                # its Processor's; only for that Processor's thread
    int16_t listener_index          # the connection's listener
    bint privileged                 # inter-broker listener
    QuotaUse* quota                 # the connection's quotas; NULL: none counts this request
    ConnectionEnd* end              # of its connection
    bint gathers                    # the Processor has more requests at hand: OUTCOME_GATHERED may pay

cdef enum OutcomeKind:
    OUTCOME_REPLY = 0
    OUTCOME_NO_REPLY = 1
    OUTCOME_PARKED = 2
    OUTCOME_ASK = 3
    OUTCOME_CLOSE = 4
    OUTCOME_WORKER = 5
    OUTCOME_RESUME = 6
    OUTCOME_PYTHON = 7
    OUTCOME_GATHERED = 8

cdef struct Outcome:
    int kind
    Send* send
    void* parked
    int64_t deadline_ns
    Ask* ask                        # owned by the parked state; valid until it is resumed or cancelled
    const char* message
    const void* group               # of OUTCOME_GATHERED

# The outcome that a handler starts from: the connection is closed without a message.
cdef inline void outcome_clear(Outcome* outcome) noexcept nogil:
    outcome.kind = OUTCOME_CLOSE
    outcome.send = NULL
    outcome.parked = NULL
    outcome.deadline_ns = 0
    outcome.ask = NULL
    outcome.message = NULL
    outcome.group = NULL

cdef inline bint outcome_keeps_frame(const Outcome* outcome) noexcept nogil:
    """Whether the request goes on with its frame after this turn."""
    return outcome.kind == OUTCOME_PARKED or outcome.kind == OUTCOME_ASK or outcome.kind == OUTCOME_WORKER


cdef enum:
    GROUP_MEMBERS = 64              # of gathered requests that go on together

# The partition of a parked request's question. Borrowed from its log.
cdef struct PartitionName:
    int64_t log_id
    const char* topic
    int32_t partition

# Names a log's partition. False without a log.
cdef inline bint name_partition(const LogState* log, PartitionName* name) noexcept nogil:
    if log == NULL:
        return False
    name.log_id = log.id
    name.topic = log.topic.c_str()
    name.partition = log.partition
    return True


# One API that the data plane serves: a line of the table in apis.pyx.
cdef struct DataPlaneApi:
    void (*handle)(DataPlaneState* plane, Frame* frame, Outcome* outcome) noexcept nogil
    void (*resume)(DataPlaneState* plane, void* parked, bint timed_out, Outcome* outcome) noexcept nogil
    void (*cancel)(DataPlaneState* plane, void* parked) noexcept nogil
    void (*work)(void* parked) noexcept nogil       # a worker's part of an OUTCOME_WORKER; NULL: there is none
    # Goes on with gathered requests of one group, at most GROUP_MEMBERS. NULL: there are none
    void (*settle)(DataPlaneState* plane, void** parked, size_t count, Outcome* outcomes) noexcept nogil
    bint waits_for_records      # a long poll: a stop of the broker answers it with the present records, and a client
                                # that has shut down its side ends it
    bint may_be_python          # its outcome may be OUTCOME_PYTHON

# Whether the calling thread may use that memory: a thread left behind with its request may not.
cdef inline bint left_is_mine(LeftMemory* left) noexcept nogil:
    cdef int64_t owner = atomic_load(&left.owner)
    return owner == 0 or owner == thread_self()


cdef inline int64_t endpoint_key(int16_t listener_index, int32_t node_id) noexcept nogil:
    return (<int64_t>listener_index << 32) | <int64_t><unsigned int>node_id


# Adds a leader that the reply names, once.
cdef void leader_note(vector[int32_t]* leaders, int32_t node_id) noexcept nogil
# Writes the NodeEndpoints of those leaders that the listener knows, as an array.
cdef void leaders_write_array(DataPlaneState* plane, int16_t listener_index, vector[int32_t]* leaders,
                              ByteBuffer* out) noexcept nogil
# Writes a reply's tagged fields: NodeEndpoints of those leaders that the listener knows, or none.
cdef void leaders_write(DataPlaneState* plane, int16_t listener_index, vector[int32_t]* leaders,
                        ByteBuffer* out) noexcept nogil

cdef class DataPlane:
    cdef DataPlaneState* state
    cdef object partitions, sessions, events      # Python owners, kept alive
    cdef object shares              # the ShareTable, likewise, or None
    cdef object commits             # the CommitTable, likewise, or None
