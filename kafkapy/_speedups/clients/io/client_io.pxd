"""The I/O of one client: a C thread that writes request frames and reads response frames, and never takes the GIL.

The loop's thread (with the GIL) hands over sockets and requests; the I/O thread encodes, writes, reads and parses; the
loop collects what came of it:

    loop's thread                              I/O thread (epoll)
      add(fd), submit(), close_channel()  -->    mail, an eventfd wakes
      events()                            <--    events, `fileno()` is readable

A small request that Python has encoded (BytesFrame) is written by the loop's thread itself when nothing waits before
it: waking the I/O thread costs more than writing. Whoever writes holds the channel's mutex; the loop's thread only
tries to get it, as it holds the GIL.

A frame is int32 size, then as many bytes, which start with the int32 correlation id. Requests of a channel are answered
in order, so the I/O thread expects the correlation id of its oldest unanswered request; anything else ends the channel.

Ownership: while a RequestFrame or ResponseFrame is under way, C holds a reference to it; it comes back through
`events()`, which drops the reference with the GIL held. Until then nobody but the I/O thread may touch the memory that
a frame lends. A channel's memory is freed by `events()`, too.
"""

from libc.stdint cimport int64_t
from libcpp.unordered_map cimport unordered_map

from kafkapy._speedups.clients.io.channel cimport ClientChannel, ClientIoState, ClientRequest, IoMail


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
