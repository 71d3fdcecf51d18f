"""A client's I/O thread and its channels: requests out, responses in, mails, events (overview: client_io.pxd)."""

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
    IO_SECURED = 3              # the TLS handshake is done

cdef struct IoEvent:
    int kind
    int error                   # errno, or 0
    int64_t channel
    PyObject* request
    PyObject* response

cdef enum:
    REASON_BYTES = 200

cdef enum IoMailKind:
    IO_ADD = 0
    IO_SUBMIT = 1
    IO_CLOSE = 2
    IO_FLUSH = 3                # the loop's thread has written a part of a request
    IO_GIVE = 4                 # another thread takes over the socket

# Takes over the socket and session of a channel, or NULL when the channel has ended or has unread bytes. On the I/O
# thread, or on the thread that closes the client; called once.
ctypedef void (*take_transport)(void* owner, Transport* transport) noexcept nogil

cdef cppclass ClientChannel:
    int64_t id
    int64_t mailed                      # atomic: requests in the mail
    int64_t bytes_in                    # atomic
    int64_t bytes_out                   # atomic
    # Under the mutex, which a writing thread holds.
    pthread_mutex_t mutex
    Transport transport
    deque[ClientRequest] outgoing       # unwritten; the first one may be half written
    deque[ClientRequest] awaiting       # written, in order
    # For the I/O thread only, until IO_GONE.
    char reason[200]                    # why the peer's bytes are refused, as a part of a sentence; empty: not known
    bint handshaking                    # TLS: nothing of the queue is written yet
    uint32_t interest
    uint8_t head[4]                     # of an incomplete size field
    int head_size
    uint8_t* frame                      # the frame being read; NULL: none
    int64_t frame_capacity
    int64_t frame_have
    int64_t frame_size
    int wake_bytes                      # received bytes from which epoll reports the socket as readable

cdef struct ClientRequest:
    int32_t correlation_id
    PyObject* request
    PyObject* response                  # NULL: none is expected
    Send* send                          # once encoded

cdef struct IoMail:
    int kind
    int64_t channel
    ClientChannel* added
    ClientRequest request
    take_transport take
    void* owner                 # its argument

cdef cppclass ClientIoState:
    pthread_mutex_t mutex               # over mails, events, dropped and stop; no thread waits for the GIL while
                                        # holding it
    vector[IoMail] mails
    vector[IoEvent] events
    vector[PyObject*] dropped           # references that only a holder of the GIL may drop
    bint stop
    int epoll_fd
    int wake_fd                         # eventfd, edge-triggered: never read
    int event_fd                        # eventfd of the loop
    int64_t max_response
    pthread_t thread
    bint running
    int pid                             # of the process that owns the thread
    # For the I/O thread only.
    unordered_map[int64_t, ClientChannel*] channels
    vector[IoMail] turn_mails
    vector[IoEvent] turn_events
    vector[int64_t] unread              # channels with decrypted bytes, which epoll cannot see
    uint8_t* scratch

cdef enum:
    SCRATCH_SIZE = 64 * 1024

# The thread's body; the argument is its ClientIoState.
cdef void* io_thread(void* argument) noexcept nogil
# Closes the socket and reports that. On the I/O thread, or without one.
cdef void close_channel(ClientIoState* s, ClientChannel* channel, int error) noexcept nogil
# Writes the first request of the queue, encoded already, with the channel's mutex held: 1 when it is done, 0 when the
# socket is full, or minus an errno. On any thread, for requests with a response.
cdef int write_first(ClientIoState* s, ClientChannel* channel) noexcept nogil
