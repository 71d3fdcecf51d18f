"""The TransportLayer: reads and writes the bytes of one socket.

Plaintext here; TLS is another table of the same functions. Every function returns a byte count, 0 at the end of the
stream (reads only), or minus an errno; -EAGAIN means "when the socket is ready again". No function blocks.
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
    bint corked                 # the kernel holds back segments that are not full
    void* session               # of TLS; NULL for plaintext

cdef struct TransportFunctions:
    int64_t (*read)(Transport* t, uint8_t* into, size_t size) noexcept nogil
    # `more`: a file region follows at once, so a short segment is not worth sending alone.
    int64_t (*write)(Transport* t, iovec* pieces, int count, bint more) noexcept nogil
    int64_t (*send_file)(Transport* t, int fd, int64_t position, int64_t size) noexcept nogil
    # On: only full segments go out; off: the rest goes out at once.
    void (*cork)(Transport* t, bint on) noexcept nogil
    # Decoded bytes, which epoll cannot see.
    int64_t (*pending)(Transport* t) noexcept nogil
    void (*close)(Transport* t) noexcept nogil

cdef void transport_plaintext(Transport* t, int fd) noexcept nogil

cdef enum:
    # Bytes of one reply before other connections have their turn: 1 MB of records with the reply around
    # them, and more.
    WRITE_TURN = 1024 * 1024 + 64 * 1024
    # File regions up to this size are read and sent with the memory around them: cheaper than a sendfile and joining
    # the two.
    SMALL_REGION = 16 * 1024
    SMALL_LAST_REGION = 4 * 1024    # the same for the last piece, which needs no joining
    GATHERED = 32 * 1024        # bytes of small regions in one write

# Sends as much as the socket takes: 1 when all is sent, 0 when the socket (or this turn) is full, or minus an errno.
# Adds the bytes to `written`.
cdef int transport_send(Transport* t, Send* send, int64_t* written) noexcept nogil
