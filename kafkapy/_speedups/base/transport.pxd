"""The TransportLayer: how bytes get into and out of one socket. Plaintext here; TLS is another table of the same
functions.

Every function answers a byte count, 0 at the end of the stream (reads only), or minus an errno; -EAGAIN means "when the
socket is ready again". None of them blocks.
"""

from libc.stdint cimport int64_t, uint8_t

from kafkapy._speedups.base.send cimport Send

cdef extern from "<sys/uio.h>" nogil:
    cdef struct iovec:
        void* iov_base
        size_t iov_len

cdef struct Transport:
    const TransportFunctions* functions
    int fd
    bint corked                 # the kernel holds back what does not fill a segment
    void* session               # of TLS; NULL for plaintext

cdef struct TransportFunctions:
    int64_t (*read)(Transport* t, uint8_t* into, size_t size) noexcept nogil
    # `more`: a file region follows at once, so a short segment is not worth sending alone.
    int64_t (*write)(Transport* t, iovec* pieces, int count, bint more) noexcept nogil
    int64_t (*send_file)(Transport* t, int fd, int64_t position, int64_t size) noexcept nogil
    # On: segments go out when they are full; off: the rest goes out at once.
    void (*cork)(Transport* t, bint on) noexcept nogil
    # Bytes that are decoded already and that epoll knows nothing of.
    int64_t (*pending)(Transport* t) noexcept nogil
    void (*close)(Transport* t) noexcept nogil

cdef void transport_plaintext(Transport* t, int fd) noexcept nogil

cdef enum:
    # Bytes of one reply that are sent before other connections have their turn: 1 MB of records with the reply around
    # them, and more.
    WRITE_TURN = 1024 * 1024 + 64 * 1024
    # File regions up to here are read and sent with the memory around them: cheaper than a sendfile and what it takes
    # to join the two.
    SMALL_REGION = 16 * 1024
    SMALL_LAST_REGION = 4 * 1024    # nothing follows that would have to be joined
    GATHERED = 32 * 1024        # bytes of small regions in one write

# Sends what the socket takes: 1 when all is sent, 0 when the socket (or this turn) is full, or minus an errno.
# `written` is added to.
cdef int transport_send(Transport* t, Send* send, int64_t* written) noexcept nogil
