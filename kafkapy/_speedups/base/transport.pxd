"""The TransportLayer: reads and writes the bytes of one socket.

Plaintext here; TLS (tls.pxd) is another table of the same functions, and nobody passes it by. Every function returns a
byte count, 0 at the end of the stream (reads only), or minus an errno; -EAGAIN means "when the socket is ready again":
see transport_read_event and transport_write_event. -EPROTO means that the peer has broken the protocol: see `error`.
No function blocks, and one thread at a time may use a transport; only `abort` may come from another one.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t

from kafkapy._speedups.base.epoll cimport EPOLLIN, EPOLLOUT
from kafkapy._speedups.base.send cimport Send

cdef extern from "<sys/uio.h>" nogil:
    cdef struct iovec:
        void* iov_base
        size_t iov_len

cdef struct Transport:
    const TransportFunctions* functions
    int fd
    bint corked                 # the kernel holds back segments that are not full
    bint read_wants_write       # the handshake or read that returned -EAGAIN waits for room in the socket
    bint write_wants_read       # the write or send_file that returned -EAGAIN waits for received bytes
    void* session               # of TLS; NULL for plaintext

cdef struct TransportFunctions:
    # 1 when bytes may be read and written; -EAGAIN: call it again.
    int (*handshake)(Transport* t) noexcept nogil
    int64_t (*read)(Transport* t, uint8_t* into, size_t size) noexcept nogil
    # `more`: a file region follows at once, so a short segment is not worth sending alone. After -EAGAIN of a write or
    # send_file, the next one begins with the same bytes (at least as many, and from where they were): TLS has encrypted
    # a part of them already.
    int64_t (*write)(Transport* t, iovec* pieces, int count, bint more) noexcept nogil
    # `slow`: see Piece (send.pxd).
    int64_t (*send_file)(Transport* t, int fd, int64_t position, int64_t size, int64_t* slow) noexcept nogil
    # On: only full segments go out; off: the rest goes out at once.
    void (*cork)(Transport* t, bint on) noexcept nogil
    # Decoded bytes, which epoll cannot see. May be more than 0 when a read then returns -EAGAIN.
    int64_t (*pending)(Transport* t) noexcept nogil
    # Whether the peer will send no byte more, and none is unread.
    bint (*ended)(Transport* t) noexcept nogil
    # Ends this side's stream and drops received bytes, which would turn the close into a reset that can overtake the
    # last bytes sent.
    void (*shut_down)(Transport* t) noexcept nogil
    # Ends both directions at once. Any thread, while another one uses the transport.
    void (*abort)(Transport* t) noexcept nogil
    # Closes the descriptor and frees the session.
    void (*close)(Transport* t) noexcept nogil
    # Why a function returned -EPROTO, as a part of a sentence; NULL: no more is known.
    const char* (*error)(Transport* t) noexcept nogil

# The epoll event that a handshake or read waits for after -EAGAIN.
cdef inline uint32_t transport_read_event(const Transport* t) noexcept nogil:
    return EPOLLOUT if t.read_wants_write else EPOLLIN


# The epoll event that a write or send_file waits for after -EAGAIN.
cdef inline uint32_t transport_write_event(const Transport* t) noexcept nogil:
    return EPOLLIN if t.write_wants_read else EPOLLOUT


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
