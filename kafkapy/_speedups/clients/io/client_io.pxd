"""The I/O of one client: a C thread that writes request frames and reads response frames, and never takes the GIL.

The loop's thread (with the GIL) submits sockets and requests; the I/O thread encodes, writes, reads and parses; the
loop collects the events:

    loop's thread                              I/O thread (epoll)
      add(fd), submit(), close_channel()  -->    mail, an eventfd wakes
      events()                            <--    events, `fileno()` is readable

The loop's thread itself writes a small request that Python has encoded (BytesFrame) when no other request waits: waking
the I/O thread costs more than writing. A writing thread holds the channel's mutex; the loop's thread only tries to get
it, because it holds the GIL.

A frame is int32 size, then as many bytes, which start with the int32 correlation id. Requests of a channel are answered
in order, so the I/O thread expects the correlation id of its oldest unanswered request; anything else ends the channel.

Ownership: C holds a reference to a RequestFrame or ResponseFrame in flight; `events()` returns the frame and drops that
reference with the GIL held. Until then only the I/O thread may touch the memory that a frame lends. `events()` also
frees a channel's memory.
"""

from libc.stdint cimport int64_t
from libcpp.unordered_map cimport unordered_map

from kafkapy._speedups.clients.io.channel cimport ClientChannel, ClientIoState, ClientRequest, IoMail, take_transport


cdef class ClientIo:
    cdef ClientIoState* state
    # Under the GIL: every channel until `events()` reports its end and frees it.
    cdef unordered_map[int64_t, ClientChannel*] open
    cdef int64_t next_id
    cdef dict reasons                   # of closed channels, until `reason()` takes them
    cdef int64_t past_bytes_in
    cdef int64_t past_bytes_out
    cdef bint closed
    cdef int check(self) except -1
    cdef void forget(self, int64_t channel) noexcept
    cdef int start_thread(self) except -1
    cdef bint written_at_once(self, ClientChannel* channel, ClientRequest* request) except -1
    cdef int mail(self, IoMail* mail) except -1
    # Gives the socket of an idle channel to another thread, which calls nothing of this module with it. `events()`
    # reports the channel's end.
    cdef int give_channel(self, int64_t channel, take_transport take, void* owner) except -1
    cdef void drop_references(self) noexcept
