"""One connection of a Processor: bytes to frames, frames to requests, outcomes to replies.

Everything here runs on the Processor's thread, without the GIL. The way of a request: whole frame -> header -> Produce
and Fetch are called in place, everything else goes to the RequestChannel -> Outcome (requests/data_plane.pxd) -> reply
written at once, the rest when the socket takes it -> next frame. A connection has one request in flight at a time.

A frame that outlives the call of its handler must not lie in the scratch buffer. Small frames are copied before the
call; a large Produce is handled in place, and if it parks, the request takes the whole scratch buffer and the reader
gets a new one.
"""

from libc.stdint cimport int64_t, uint64_t
from libcpp.deque cimport deque
from libcpp.unordered_map cimport unordered_map
from libcpp.vector cimport vector

from kafkapy._speedups.base.send cimport Send
from kafkapy._speedups.network.connection cimport ConnectionRegistryState
from kafkapy._speedups.network.frame_reader cimport FrameReader
from kafkapy._speedups.network.mailbox cimport Mail, Mailbox
from kafkapy._speedups.network.memory_pool cimport MemoryPoolState
from kafkapy._speedups.network.pending_request cimport PendingRequest
from kafkapy._speedups.network.purgatory cimport PurgatoryState
from kafkapy._speedups.network.request_channel cimport RequestChannelState
from kafkapy._speedups.network.request_times cimport ApiTimes
from kafkapy._speedups.network.selector cimport KafkaChannel, SelectorState
from kafkapy._speedups.network.worker_pool cimport WorkerPoolState
from kafkapy._speedups.requests.data_plane cimport API_KEY_LIMIT, DataPlaneState, LeftMemory
from kafkapy._speedups.requests.request_header cimport ApiTableState

cdef enum:
    COPIED_FRAME = 8 * 1024         # bytes; larger frames are handled in place
    FRAMES_A_TURN = 64              # of one connection, before the turn of others
    READ_TURN = 1024 * 1024         # bytes of one connection, likewise

cdef cppclass ProcessorState:
    DataPlaneState* plane
    RequestChannelState* requests
    ConnectionRegistryState* registry
    MemoryPoolState* pool
    const ApiTableState* apis
    WorkerPoolState* workers                # NULL: this thread does their work
    Mailbox* mailbox
    SelectorState selector
    FrameReader reader
    PurgatoryState purgatory
    PurgatoryState throttled                            # connections, until their throttle time is over
    unordered_map[int64_t, KafkaChannel*] channels      # by connection id; owns them
    unordered_map[uint64_t, KafkaChannel*] in_flight    # by token: parked, asked or with Python
    int pushed                              # requests in the RequestChannel without a signal yet
    # The steps of a turn, for a thread that takes this Processor over: each list from its number on.
    int event_next                          # of the Selector's
    bint mailed                             # the Mailbox is to be emptied after these
    vector[int64_t] looking                 # from `ready`
    size_t look_next
    size_t mail_next
    size_t wake_next
    vector[int64_t] stopped                 # connections, when a stop begins
    size_t stop_next
    # Work that can be left behind with its thread (base/blocking.pxd).
    int doing                               # Doing
    KafkaChannel* doing_for
    bint doing_in_place                     # the request's frame lies in the scratch buffer
    int64_t alone                           # atomic: threads left behind, which may still read constant fields
    deque[uint64_t] backlog                 # tokens of requests that wait for room in the RequestChannel
    vector[int64_t] ready                   # unmuted connections with received bytes
    vector[int64_t] starving                # connections that wait for the memory pool
    vector[KafkaChannel*] closed            # to be freed at the end of the turn
    vector[Mail] mails
    vector[uint64_t] wakes
    PendingRequest* kept                    # memory of a finished request, for the next one
    LeftMemory left                         # the same for a request's other memory
    int64_t now_ns                          # the last look at the clock
    bint now_is_now                         # little has happened since
    int64_t stop_at_ns                      # atomic; 0: run; else stop, at the latest then (monotonic)
    int64_t started_ns                      # atomic
    int64_t connections                     # atomic, for the metrics
    int64_t delayed[API_KEY_LIMIT]          # atomic: requests in the purgatory, by API
    ApiTimes times[API_KEY_LIMIT]
    unordered_map[int64_t, int64_t] sending # connection -> start of a reply that the first write did not finish
    # Connections that are not ready (channel_stages.pyx).
    deque[Due] setups                       # in the order of their time
    vector[Due] farewells                   # of failed authentications: few
    deque[int64_t] waiting                  # for their turn of the TLS handshake
    int64_t handshakes_ns                   # time that handshakes have taken in this turn
    bint stopping
    bint ended                              # under a mutex of processor.pyx: run_loop has ended
    bint last_chance                        # the stop's time is over: parked requests time out

# A connection, and when something is due for it.
cdef struct Due:
    int64_t at_ns               # monotonic
    int64_t connection

cdef enum Doing:
    DOING_REQUEST = 0
    DOING_SEND = 1

# Separates the hanging thread's work from this Processor. False when memory is out.
cdef bint channel_separate(ProcessorState* p) noexcept nogil
# Goes on after another thread has sent a reply.
cdef void channel_sent(ProcessorState* p, KafkaChannel* channel) noexcept nogil
# Closes a connection, which is freed at the end of the turn (channels_free_closed); reason is a CloseReason.
cdef void channel_close(ProcessorState* p, KafkaChannel* channel, int reason) noexcept nogil
cdef void channel_log_closing(ProcessorState* p, KafkaChannel* channel, int level, const char* why) noexcept nogil
# Drops a request after its final outcome, or with its connection (then the last reference cancels it).
cdef void channel_forget_request(ProcessorState* p, KafkaChannel* channel) noexcept nogil
# Ends an authentication: the connection gets no more requests, sends that reply (NULL: none) after the delay, and is
# closed.
cdef void channel_fail(ProcessorState* p, KafkaChannel* channel, Send* farewell, int64_t delay_ns) noexcept nogil
# Sends the last reply of such a connection.
cdef void channel_say_farewell(ProcessorState* p, KafkaChannel* channel) noexcept nogil
# Gives a request to Python.
cdef void hand_to_python(ProcessorState* p, KafkaChannel* channel) noexcept nogil
# Queues a connection with received bytes for the end of this turn or the next.
cdef void channel_be_ready(ProcessorState* p, KafkaChannel* channel) noexcept nogil
cdef void channel_unmute(ProcessorState* p, KafkaChannel* channel, int reason) noexcept nogil
# Counts the times of a request that ends without a reply.
cdef void channel_count(ProcessorState* p, const PendingRequest* pending) noexcept nogil
# Takes a request out of the purgatory, before its deadline.
cdef void leave_purgatory(ProcessorState* p, PendingRequest* pending) noexcept nogil
# Ends a request, after its reply or without one.
cdef void channel_finish(ProcessorState* p, KafkaChannel* channel) noexcept nogil
# Starts to send a reply; takes over `send`.
cdef void channel_start_reply(ProcessorState* p, KafkaChannel* channel, Send* send) noexcept nogil
# Pushes requests that found the RequestChannel full, as many as fit now.
cdef void request_push_backlog(ProcessorState* p) noexcept nogil
# Begins a request whose connection has its quotas now.
cdef void request_begin(ProcessorState* p, KafkaChannel* channel) noexcept nogil
# Resumes a parked or asked request.
cdef void request_resume(ProcessorState* p, KafkaChannel* channel, bint timed_out) noexcept nogil
# Wakes a request that may be parked, asked about or away.
cdef void request_wake(ProcessorState* p, KafkaChannel* channel) noexcept nogil
# Carries out the outcome that another thread left in a request.
cdef void request_come_back(ProcessorState* p, KafkaChannel* channel) noexcept nogil
# Handles the received whole frames, until one stays in flight.
cdef void channel_handle_frames(ProcessorState* p, KafkaChannel* channel) noexcept nogil
# Writes as much of the reply as the socket takes.
cdef void channel_write(ProcessorState* p, KafkaChannel* channel) noexcept nogil
