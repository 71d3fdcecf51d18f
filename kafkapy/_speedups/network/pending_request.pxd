"""One request from the moment its frame is whole until its outcome is final.

Owned by reference count: one reference is the Processor's (as long as the connection lives and the outcome is not
final), one is the RequestChannel's and then the NetworkRequest's while Python has it, or the worker's that works on it.
Only one side works on it at a time: after it was handed to Python or a worker the Processor leaves it alone until the
answer comes back by mail. The last reference cancels what is still parked, so that a connection that dies while a
worker looks into its records pulls nothing from under that worker.
"""

from libc.stdint cimport int64_t, uint8_t

from kafkapy._speedups.network.connection cimport ConnectionInfo
from kafkapy._speedups.network.mailbox cimport Mailbox
from kafkapy._speedups.network.memory_pool cimport MemoryPoolState
from kafkapy._speedups.network.purgatory cimport PurgatoryEntry
from kafkapy._speedups.requests.data_plane cimport Ask, DataPlaneApi, DataPlaneState, Frame, LeftMemory, Outcome

cdef cppclass PendingRequest:
    int64_t references          # atomic
    DataPlaneState* plane
    Mailbox* mailbox            # of the Processor that owns the connection
    MemoryPoolState* pool
    ConnectionInfo* connection  # referenced
    const DataPlaneApi* api     # that serves it; NULL: Python does
    Frame frame
    int64_t frame_size          # without the 4-byte size
    bint unsupported_version    # ApiVersions in a version that is not known
    uint8_t small[256]          # what frame points into, when it is as small as that
    uint8_t* memory             # else, when owned; NULL while it lies in the Processor's scratch buffer
    size_t capacity
    int64_t reserved            # bytes in the pool
    void* parked                # state of the API that has parked it; NULL: not parked
    Ask* ask                    # what Python must answer; NULL: nothing
    bint away                   # another thread works on it, and brings it back by MAIL_OUTCOME; set and cleared by the
                                # Processor
    bint woken                  # a wake came while it was away: the Processor's
    Outcome outcome             # what that thread left
    PendingRequest* next_work   # in the queue of the worker pool
    PurgatoryEntry wait
    int64_t parked_ns           # monotonic, when it was parked or handed to Python
    int64_t taken_ns            # when Python took it
    int64_t local_ns            # so far, for the request log: being handled
    int64_t remote_ns           # parked

# A worker's part of an OUTCOME_WORKER.
cdef void pending_work(PendingRequest* p) noexcept nogil
# The end of another thread's work on a request that is away: p.outcome is filled, p.parked is what it says (NULL when
# final). The Processor carries it out; when the connection is gone, the last reference drops it.
cdef void pending_return(PendingRequest* p) noexcept nogil
# In the memory of `kept`, when it is not NULL. `left`: see Frame.
cdef PendingRequest* pending_new(PendingRequest* kept, DataPlaneState* plane, Mailbox* mailbox, MemoryPoolState* pool,
                                 ConnectionInfo* connection, LeftMemory* left) noexcept nogil
cdef void pending_ref(PendingRequest* p) noexcept nogil
# May cancel a parked request, which locks partition mutexes: not with the GIL.
cdef void pending_unref(PendingRequest* p) noexcept nogil
# The same, and true when that was the last reference and the memory, still the caller's, may be used for another
# request.
cdef bint pending_unref_keep(PendingRequest* p) noexcept nogil
