"""One request from its whole frame to its final outcome.

A reference count owns it. The Processor has one reference while the connection lives and the outcome is not final; the
RequestChannel and then the NetworkRequest have one while Python has the request, or a worker while it works. One side
works on it at a time: after the Processor has given it to Python or a worker, it waits for the answer by mail. The last
reference cancels a parked request, so a connection that dies frees nothing under a worker that reads its records.
"""

from libc.stdint cimport int64_t, uint8_t

from kafkapy._speedups.network.connection cimport ConnectionInfo
from kafkapy._speedups.network.mailbox cimport Mailbox
from kafkapy._speedups.network.memory_pool cimport MemoryPoolState
from kafkapy._speedups.network.purgatory cimport PurgatoryEntry
from kafkapy._speedups.requests.client_quotas cimport QuotaUse
from kafkapy._speedups.requests.data_plane cimport Ask, DataPlaneApi, DataPlaneState, Frame, LeftMemory, Outcome

cdef cppclass PendingRequest:
    int64_t references          # atomic
    DataPlaneState* plane
    Mailbox* mailbox            # of the Processor that owns the connection
    MemoryPoolState* pool
    ConnectionInfo* connection  # referenced
    const DataPlaneApi* api     # the API that serves it; NULL: Python
    Frame frame
    int64_t frame_size          # without the 4-byte size
    bint unsupported_version    # ApiVersions in an unknown version
    int stage                   # the connection's ChannelStage when the frame came
    bint is_token               # a SASL token without a request header
    bint tokens_follow          # so are the frames behind this one, once it is answered
    int scram                   # SCRAM mechanism + 1 of a login that Python goes on with; 0: none
    int64_t session_end_ns      # monotonic, with MAIL_AUTHENTICATED; 0: never
    int64_t delay_ns            # of the end of the connection, with MAIL_REFUSED; -1: the listener's
    uint8_t small[256]          # memory of a small frame
    uint8_t* memory             # of a larger frame; NULL while it lies in the Processor's scratch buffer
    size_t capacity
    int64_t reserved            # bytes in the pool
    void* parked                # state of its API; NULL: not parked
    Ask* ask                    # the question for Python; NULL: none
    bint away                   # another thread works on it and returns it by MAIL_OUTCOME; the Processor sets and
                                # clears it
    bint woken                  # a wake came while it was away; for the Processor
    Outcome outcome             # of that thread
    PendingRequest* next_work   # in the queue of the worker pool
    PurgatoryEntry wait
    int64_t parked_ns           # monotonic, when it was parked or handed to Python
    int64_t taken_ns            # when Python took it
    int64_t local_ns            # so far, for the request log: being handled
    int64_t remote_ns           # parked
    QuotaUse quota

# A worker's part of an OUTCOME_WORKER.
cdef void pending_work(PendingRequest* p) noexcept nogil
# Ends another thread's work on a request: p.outcome is filled, p.parked is its state (NULL when final). The Processor
# carries the outcome out; without the connection, the last reference drops it.
cdef void pending_return(PendingRequest* p) noexcept nogil
# A new request, in the memory of `kept` unless that is NULL. `left`: see Frame.
cdef PendingRequest* pending_new(PendingRequest* kept, DataPlaneState* plane, Mailbox* mailbox, MemoryPoolState* pool,
                                 ConnectionInfo* connection, LeftMemory* left) noexcept nogil
cdef void pending_ref(PendingRequest* p) noexcept nogil
# Drops a reference. May cancel a parked request, which locks partition mutexes: not with the GIL.
cdef void pending_unref(PendingRequest* p) noexcept nogil
# The same. True for the last reference: the caller keeps the memory, for another request.
cdef bint pending_unref_keep(PendingRequest* p) noexcept nogil
