"""What a Processor does with one connection: bytes to frames, frames to requests, outcomes to replies. Only on that
Processor's thread, never with the GIL.

A request goes: whole frame -> header -> Produce and Fetch are called in place, everything else goes to the
RequestChannel -> Outcome (requests/data_plane.pxd) -> reply written at once, the rest when the socket takes it -> next
frame. One request of a connection is handled at a time.

A frame that may be needed after its handler has returned must not lie in the scratch buffer. Small frames are copied
before they are handled; a large Produce is handled where it lies, and if it parks, the whole scratch buffer becomes the
request's and the reader gets a new one.
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
from kafkapy._speedups.network.selector cimport KafkaChannel, SelectorState
from kafkapy._speedups.network.worker_pool cimport WorkerPoolState
from kafkapy._speedups.requests.data_plane cimport DataPlaneState, LeftMemory
from kafkapy._speedups.requests.request_header cimport ApiTableState

cdef enum:
    COPIED_FRAME = 8 * 1024         # bytes; larger ones are handled where they lie
    FRAMES_A_TURN = 64              # of one connection, before the others have their turn
    READ_TURN = 1024 * 1024         # bytes of one connection, likewise

cdef cppclass ProcessorState:
    DataPlaneState* plane
    RequestChannelState* requests
    ConnectionRegistryState* registry
    MemoryPoolState* pool
    const ApiTableState* apis
    WorkerPoolState* workers                # NULL: their work is done in this thread
    Mailbox* mailbox
    SelectorState selector
    FrameReader reader
    PurgatoryState purgatory
    unordered_map[int64_t, KafkaChannel*] channels      # by connection id; owns them
    unordered_map[uint64_t, KafkaChannel*] in_flight    # by token: parked, asked or with Python
    int pushed                              # requests in the RequestChannel that it was not signalled for
    # The steps of a turn that a thread which takes this Processor over goes on with: what each list holds from its
    # number on.
    vector[int64_t] looking                 # from `ready`
    size_t look_next
    size_t mail_next
    size_t wake_next
    vector[int64_t] stopped                 # connections, when a stop begins
    size_t stop_next
    # What can be left behind with the thread that does it (base/blocking.pxd)
    int doing                               # Doing
    KafkaChannel* doing_for
    bint doing_in_place                     # the request's frame lies in the scratch buffer
    int64_t alone                           # atomic: threads that were left behind, and may still read what does not
                                            # change here
    deque[uint64_t] backlog                 # tokens of requests that wait for room in the RequestChannel
    vector[int64_t] ready                   # connections that have bytes at hand and are no longer muted
    vector[int64_t] starving                # connections that wait for the memory pool
    vector[KafkaChannel*] closed            # to be freed at the end of the turn
    vector[Mail] mails
    vector[uint64_t] wakes
    PendingRequest* kept                    # memory of a request that is done, for the next one
    LeftMemory left                         # the same of what else a request needs
    int64_t now_ns                          # the last look at the clock
    bint now_is_now                         # nothing to speak of was done since
    int64_t stop_at_ns                      # atomic; 0: run; else stop, at the latest then (monotonic)
    int64_t started_ns                      # atomic
    int64_t connections                     # atomic, for the metrics
    bint stopping
    bint ended                              # under a mutex of processor.pyx: run_loop is through
    bint last_chance                        # the stop's time is over: parked requests are answered as timed out

cdef enum Doing:
    DOING_REQUEST = 0
    DOING_SEND = 1

# The thread of this Processor hangs in what it does: takes that out. False when memory is out.
cdef bint channel_separate(ProcessorState* p) noexcept nogil
# What another thread has sent.
cdef void channel_sent(ProcessorState* p, KafkaChannel* channel) noexcept nogil
# Freed at the end of the turn (channels_free_closed); reason is a CloseReason.
cdef void channel_close(ProcessorState* p, KafkaChannel* channel, int reason) noexcept nogil
cdef void channel_log_closing(ProcessorState* p, KafkaChannel* channel, int level, const char* why) noexcept nogil
# The outcome is final, or the connection is gone (then the last reference cancels it).
cdef void channel_forget_request(ProcessorState* p, KafkaChannel* channel) noexcept nogil
cdef void channels_free_closed(ProcessorState* p) noexcept nogil
# It has bytes at hand, and is looked at in this turn's end or the next turn.
cdef void channel_be_ready(ProcessorState* p, KafkaChannel* channel) noexcept nogil
cdef void channel_unmute(ProcessorState* p, KafkaChannel* channel, int reason) noexcept nogil
cdef void channel_count_total(ProcessorState* p, int api, int64_t received_ns) noexcept nogil
# The reply is out, or there is none.
cdef void channel_finish(ProcessorState* p, KafkaChannel* channel) noexcept nogil
# Takes over `send`.
cdef void channel_start_reply(ProcessorState* p, KafkaChannel* channel, Send* send) noexcept nogil
# Requests that found the RequestChannel full, as many as it takes now.
cdef void request_push_backlog(ProcessorState* p) noexcept nogil
# A parked or asked request looks again.
cdef void request_resume(ProcessorState* p, KafkaChannel* channel, bint timed_out) noexcept nogil
# A wake of a request that may be parked, asked about or away.
cdef void request_wake(ProcessorState* p, KafkaChannel* channel) noexcept nogil
# Carries out what another thread has left in a request that was away.
cdef void request_come_back(ProcessorState* p, KafkaChannel* channel) noexcept nogil
# Every whole frame that is at hand, until one stays in flight.
cdef void channel_handle_frames(ProcessorState* p, KafkaChannel* channel) noexcept nogil
cdef void channel_read(ProcessorState* p, KafkaChannel* channel) noexcept nogil
cdef void channel_event(ProcessorState* p, KafkaChannel* channel, unsigned int events) noexcept nogil
