"""The I/O thread of a client and its channels: what it reads, writes, is told and tells. See client_io.pxd for the
whole.
"""

from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libcpp.deque cimport deque
from libcpp.unordered_map cimport unordered_map
from libcpp.vector cimport vector

from kafkapy._speedups.base.posix cimport pthread_mutex_t
from kafkapy._speedups.base.send cimport Send
from kafkapy._speedups.base.threads cimport pthread_t
from kafkapy._speedups.base.transport cimport Transport


cdef enum IoEventKind:
    IO_RESPONSE = 0             # the response was parsed; or the request failed with `error` and was not sent
    IO_SENT = 1                 # a request without response was written, or failed with `error`
    IO_GONE = 2                 # the channel is closed

cdef struct IoEvent:
    int kind
    int error                   # errno, or 0
    int64_t channel
    PyObject* request
    PyObject* response

cdef enum IoMailKind:
    IO_ADD = 0
    IO_SUBMIT = 1
    IO_CLOSE = 2
    IO_FLUSH = 3                # the loop's thread could not write all of a request

cdef cppclass ClientChannel:
    int64_t id
    int64_t mailed                      # atomic: requests in the mail
    int64_t bytes_in                    # atomic
    int64_t bytes_out                   # atomic
    # Under the mutex, which is held while something is written.
    pthread_mutex_t mutex
    Transport transport
    deque[ClientRequest] outgoing       # not written yet; the first one may be half written
    deque[ClientRequest] awaiting       # written, in order
    # Of the I/O thread.
    uint32_t interest
    uint8_t head[4]                     # of a size that has not come whole
    int head_size
    uint8_t* frame                      # the frame being read; NULL: none
    int64_t frame_capacity
    int64_t frame_have
    int64_t frame_size
    int wake_bytes                      # what has to be there for epoll to report the socket as readable

cdef struct ClientRequest:
    int32_t correlation_id
    PyObject* request
    PyObject* response                  # NULL: none comes
    Send* send                          # once encoded

cdef struct IoMail:
    int kind
    int64_t channel
    ClientChannel* added
    ClientRequest request

cdef cppclass ClientIoState:
    pthread_mutex_t mutex               # over mails, events, dropped and stop; nobody waits for the GIL while holding
                                        # it
    vector[IoMail] mails
    vector[IoEvent] events
    vector[PyObject*] dropped           # references that only the GIL's holder may give up
    bint stop
    int epoll_fd
    int wake_fd                         # eventfd, edge-triggered: never read
    int event_fd                        # eventfd of the loop
    int64_t max_response
    pthread_t thread
    bint running
    int pid                             # of the process that owns the thread
    # Of the I/O thread alone.
    unordered_map[int64_t, ClientChannel*] channels
    vector[IoMail] turn_mails
    vector[IoEvent] turn_events
    uint8_t* scratch

cdef enum:
    SCRATCH_SIZE = 64 * 1024

# The thread's body; the argument is its ClientIoState.
cdef void* io_thread(void* argument) noexcept nogil
# Closes the socket and reports that. On the I/O thread, or when there is none.
cdef void close_channel(ClientIoState* s, ClientChannel* channel, int error) noexcept nogil
# Writes the first request of the queue, encoded already, with the channel's mutex held: 1 when it is done, 0 when the
# socket is full, or minus an errno. On any thread, for requests with a response.
cdef int write_first(ClientIoState* s, ClientChannel* channel) noexcept nogil
