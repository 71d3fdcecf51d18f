"""The Selector: epoll over the connections of one Processor, with muting and idle expiry. Single-threaded.

A channel is muted while it has a request in flight, while the memory pool is exhausted, while its client is throttled,
and while the broker stops.
Muting is lazy: the Selector drops its interest in EPOLLIN only when bytes arrive on a muted channel, because most
clients send nothing before they have their reply, and then muting costs no system call. EPOLLRDHUP reports a peer that
goes away while its channel is muted, once: the first report drops that interest, so a half-closed peer cannot make the
loop spin.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from kafkapy._speedups.base.epoll cimport epoll_event
from kafkapy._speedups.base.scram cimport LoginByScram
from kafkapy._speedups.base.send cimport Send
from kafkapy._speedups.base.transport cimport Transport
from kafkapy._speedups.network.connection cimport ConnectionInfo, ListenerSecurity
from kafkapy._speedups.network.pending_request cimport PendingRequest
from kafkapy._speedups.network.purgatory cimport PurgatoryEntry
from kafkapy._speedups.network.request_log cimport RequestRecord
from kafkapy._speedups.requests.client_quotas cimport QuotaSensorState

cdef enum MuteReason:
    MUTE_REQUEST = 1            # a request is in flight or its reply is being written
    MUTE_MEMORY = 2             # the memory pool is exhausted
    MUTE_STOPPING = 4           # no new requests are read
    MUTE_FAILED = 8             # the authentication has failed: nothing is read before the close
    MUTE_THROTTLED = 16         # a quota is violated: nothing is read before the throttle time is over

cdef enum ChannelStage:
    STAGE_READY = 0             # requests are served
    STAGE_HANDSHAKE = 1         # of TLS
    STAGE_PRINCIPAL = 2         # Python gives the connection its principal
    STAGE_SASL = 3              # ApiVersions, SaslHandshake, SaslAuthenticate and tokens are served
    STAGE_FAILED = 4            # the last reply waits for its time, then the connection is closed

cdef cppclass KafkaChannel:
    """One connection. Its Processor's thread owns it."""
    Transport transport
    ConnectionInfo* info        # referenced
    uint32_t interest           # the events of epoll
    int mute                    # MuteReason bits
    bint closed                 # removed; freed at the end of the loop's turn
    bint peer_done              # the peer has shut down its side
    bint close_after_send
    bint away                   # a thread left behind sends its reply: no other touches transport and send
    int sent_status             # result of that transport_send, and its bytes
    int64_t sent_bytes
    int close_reason            # of a channel closed meanwhile
    ListenerSecurity* security  # NULL: its listener asks for nothing
    int stage                   # ChannelStage
    bint guarded                # frames are checked: it is not ready, or its session ends
    bint tokens_follow          # frames are SASL tokens without a header
    LoginByScram* login          # by SCRAM, served by this thread; NULL: none
    bint login_with_python      # the login is Python's
    bint is_waiting             # for its turn of the TLS handshake
    int64_t session_end_ns      # monotonic; 0: never
    int64_t max_frame           # bytes
    Send* farewell              # the reply of a failed authentication, until it is sent
    bint is_ready               # in the Processor's list of channels with received bytes
    # the idle list, least recently used first
    KafkaChannel* older
    KafkaChannel* newer
    int64_t active_ns           # monotonic
    # the frame being received, when it does not fit into one read
    uint8_t head[4]             # of an incomplete size field
    int head_size
    uint8_t* frame              # buffer, starting with the size; NULL: none
    size_t frame_capacity
    int64_t frame_have
    int64_t frame_want          # with the 4-byte size
    int64_t frame_reserved
    # bytes that were read together with a request that is still in flight
    uint8_t* ahead
    size_t ahead_capacity
    int64_t ahead_start
    int64_t ahead_end
    # the request in flight, and its reply
    PendingRequest* request
    Send* send
    RequestRecord* record       # of the request with the current reply, for the request log; NULL: not logged
    int send_api                # API of the current reply, for the counters
    int64_t send_received_ns
    QuotaSensorState* send_sensor   # counts the time of sending the current reply; NULL: none
    PurgatoryEntry throttle     # the end of its throttle time; the token is the connection's id

cdef cppclass SelectorState:
    int epoll_fd
    int timer_fd                # wakes the selector; set only to an earlier time, so that few waits cost a system call
    int64_t timer_ns            # its time (monotonic); 0: never
    int64_t max_idle_ns         # -1: never
    KafkaChannel* oldest
    KafkaChannel* newest
    int64_t count
    int64_t idle_ns             # atomic: time spent waiting, for the idle ratio
    int64_t waiting_since_ns    # atomic; 0: not waiting now
    epoll_event events[256]
    int ready                   # events of this turn

cdef enum:
    SELECTOR_EVENTS = 256

# 0 or an errno.
cdef int selector_open(SelectorState* s, int wake_fd, int64_t max_idle_ns) noexcept nogil
cdef void selector_close(SelectorState* s) noexcept nogil
cdef int selector_add(SelectorState* s, KafkaChannel* channel, int64_t now_ns) noexcept nogil
cdef void selector_remove(SelectorState* s, KafkaChannel* channel) noexcept nogil
# Waits until due_ns (monotonic; 0: not at all, -1: no limit) or until a descriptor is ready, sometimes earlier; fills
# events and ready. The event of the eventfd has a NULL pointer, that of the timer the selector's. Returns the time
# (monotonic ns) after the wait.
cdef int64_t selector_poll(SelectorState* s, int64_t due_ns, int64_t now_ns) noexcept nogil
cdef void selector_timer_rang(SelectorState* s) noexcept nogil
cdef inline void selector_want(SelectorState* s, KafkaChannel* channel, uint32_t interest) noexcept nogil:
    if channel.interest != interest and not channel.closed:
        selector_change(s, channel, interest)


cdef void selector_change(SelectorState* s, KafkaChannel* channel, uint32_t interest) noexcept nogil
cdef inline void selector_touch(SelectorState* s, KafkaChannel* channel, int64_t now_ns) noexcept nogil:
    channel.active_ns = now_ns
    if s.newest != channel:
        selector_make_newest(s, channel)


cdef void selector_make_newest(SelectorState* s, KafkaChannel* channel) noexcept nogil
# The least recently used channel if it has been idle for too long, else NULL.
cdef inline KafkaChannel* selector_expired(SelectorState* s, int64_t now_ns) noexcept nogil:
    if s.max_idle_ns < 0 or s.oldest == NULL or now_ns - s.oldest.active_ns < s.max_idle_ns:
        return NULL
    return s.oldest


# Monotonic ns of the next possible expiry; -1: none.
cdef inline int64_t selector_next_expiry(SelectorState* s) noexcept nogil:
    if s.max_idle_ns < 0 or s.oldest == NULL:
        return -1
    return s.oldest.active_ns + s.max_idle_ns
