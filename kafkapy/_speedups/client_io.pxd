"""The I/O of one client: a C thread that writes request frames and reads response frames, and never takes the GIL.

The loop's thread (with the GIL) hands over sockets and requests; the I/O thread encodes, writes, reads and parses; the loop collects what came of it:

    loop's thread                              I/O thread (epoll)
      add(fd), submit(), close_channel()  -->    mail, an eventfd wakes
      events()                            <--    events, `fileno()` is readable

A small request that Python has encoded (BytesFrame) is written by the loop's thread itself when nothing waits before it: waking the I/O thread costs more
than writing. Whoever writes holds the channel's mutex; the loop's thread only tries to get it, as it holds the GIL.

A frame is int32 size, then as many bytes, which start with the int32 correlation id. Requests of a channel are answered in order, so the
I/O thread expects the correlation id of its oldest unanswered request; anything else ends the channel.

Ownership: while a RequestFrame or ResponseFrame is under way, C holds a reference to it; it comes back through `events()`, which drops the reference with
the GIL held. Until then nobody but the I/O thread may touch the memory that a frame lends. A channel's memory is freed by `events()`, too.
"""

from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libcpp.deque cimport deque
from libcpp.unordered_map cimport unordered_map
from libcpp.vector cimport vector

from kafkapy._speedups.posix cimport pthread_mutex_t
from kafkapy._speedups.send cimport Send
from kafkapy._speedups.threads cimport pthread_t
from kafkapy._speedups.transport cimport Transport


cdef class RequestFrame:
    """One request on its way out. Made on the loop's thread; a subclass says in `encode` how it looks on the wire."""
    cdef public int correlation_id      # set by the loop before it is submitted
    # Called once, on the I/O thread, without the GIL: appends the whole frame, its 4-byte size first, to `into`. 0, or minus an errno: the request fails
    # with it and nothing was sent. The object, and memory that it lends, lives until its response was handed out or it failed.
    cdef int64_t encode(self, Send* into) noexcept nogil


cdef class ResponseFrame:
    """What a response is read into."""
    cdef public object context          # of whoever submitted it; not looked at here
    # Called at most once, on the I/O thread, without the GIL. Takes over `memory` (malloc'ed: free() it in the end); the frame without its size is
    # memory[start:start + size], correlation id first. size is at least 4.
    cdef void parse(self, uint8_t* memory, int64_t start, int64_t size) noexcept nogil


cdef class BytesFrame(RequestFrame):
    """A request that Python has encoded: header and body without the size. The correlation id is put in at offset 4."""
    cdef bytes frame
    cdef const uint8_t* data            # of `frame`
    cdef int64_t size


cdef class BytesResponse(ResponseFrame):
    """A response that Python decodes: the frame as it came, correlation id first. Has the buffer interface."""
    cdef uint8_t* memory
    cdef int64_t start
    cdef int64_t size


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
    pthread_mutex_t mutex               # over mails, events, dropped and stop; nobody waits for the GIL while holding it
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


cdef class ClientIo:
    cdef ClientIoState* state
    # Of the GIL: every channel until `events()` has told that it is gone, and then freed it.
    cdef unordered_map[int64_t, ClientChannel*] open
    cdef int64_t next_id
    cdef int64_t past_bytes_in
    cdef int64_t past_bytes_out
    cdef bint closed
    cdef int check(self) except -1
    cdef void forget(self, int64_t channel) noexcept
    cdef int start_thread(self) except -1
    cdef bint written_at_once(self, ClientChannel* channel, ClientRequest* request) except -1
    cdef int mail(self, IoMail* mail) except -1
    cdef void drop_references(self) noexcept
