"""The state of a Processor, which its thread owns.

channel_events.pyx, channel_stages.pyx, channel_handler.pyx, left_behind.pyx and gathering.pyx hold the work on it.
"""

from libc.stdint cimport int64_t, uint64_t
from libcpp.deque cimport deque
from libcpp.unordered_map cimport unordered_map
from libcpp.vector cimport vector

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
    MOST_GATHERED = 256

cdef cppclass ProcessorState:
    DataPlaneState* plane
    RequestChannelState* requests
    ConnectionRegistryState* registry
    MemoryPoolState* pool
    const ApiTableState* apis
    WorkerPoolState* workers
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
    # Requests that wait for the others of this turn (gathering.pxd).
    vector[Gathered] gathered
    int64_t gathered_ns                     # the time of the first one
    size_t gather_next                      # the first one whose group had no turn yet
    size_t group_size                       # of the group with its turn, which ends there
    bint shared                             # one of this turn's groups had several requests
    int gather_rest                         # turns without gathering, after one that has found no such group
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

cdef struct Gathered:
    KafkaChannel* channel
    const void* group           # Outcome.group; NULL: it goes on alone

cdef enum Doing:
    DOING_REQUEST = 0
    DOING_SEND = 1
    DOING_GROUP = 2


cdef inline bint may_gather(const ProcessorState* p) noexcept nogil:
    """Whether a request may wait for others of this turn (gathering.pxd): more of them are at hand."""
    if p.gather_rest:
        return False
    if p.gathered.empty():
        return p.event_next < p.selector.ready or p.look_next < p.looking.size()
    return p.gathered.size() < MOST_GATHERED
