"""The bridge between the planes: a bounded queue of requests to Python with an eventfd.

Any Processor pushes; one thread (the control loop) drains; any thread may reply, through the Mailbox of the Processor.
When the queue is full (queued.max.requests) a Processor keeps the request, its connection stays muted, and a mail tells
it of free room. Requests that the data plane serves itself never wait here.
"""

from libc.stdint cimport int64_t
from libcpp.deque cimport deque
from libcpp.vector cimport vector

from kafkapy._speedups.base.posix cimport pthread_mutex_t
from kafkapy._speedups.network.connection cimport ConnectionRegistry
from kafkapy._speedups.network.mailbox cimport Mailbox
from kafkapy._speedups.network.memory_pool cimport MemoryPool
from kafkapy._speedups.network.pending_request cimport PendingRequest
from kafkapy._speedups.requests.data_plane cimport DataPlane
from kafkapy._speedups.requests.request_header cimport ApiTable

cdef cppclass RequestChannelState:
    pthread_mutex_t mutex
    deque[PendingRequest*] requests     # each with a reference
    size_t limit
    int event_fd
    bint signalled                      # under the mutex: the eventfd is readable
    vector[Mailbox*] waiting            # of Processors that found it full
    int64_t pushed                      # atomics from here
    int64_t full                        # number of pushes that found it full

# Pushes a request. 0 when full: the mailbox gets MAIL_LOOK once there is room. On 1 the queue has taken over a
# reference of the caller; channel_signal then wakes the reader.
cdef bint channel_push(RequestChannelState* channel, PendingRequest* request, Mailbox* mailbox) noexcept nogil

cdef void channel_signal(RequestChannelState* channel) noexcept nogil

cdef class RequestChannel:
    cdef RequestChannelState* state
    cdef readonly DataPlane plane
    cdef readonly ConnectionRegistry registry
    cdef readonly MemoryPool pool
    cdef readonly ApiTable apis
    cdef readonly list listeners
    cdef readonly dict connection_data
