"""A reply on its way out: malloc'ed memory and file regions, in order, sent without copying file bytes.

Request handlers (requests/fetch/handle.pyx, requests/produce/handle.pyx) and Python's replies
(network/request_channel.pyx) build a Send. The Processor that owns the connection writes it out and frees it. The first
piece starts with the 4-byte frame size. Client requests travel the same way (clients/io/client_io.pyx); their pieces
may be memory that another object owns.
"""

from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free
from libcpp.vector cimport vector

from kafkapy._speedups.base.wire cimport ByteBuffer, buffer_init

cdef enum PieceKind:
    PIECE_OWNED = 0             # memory, malloc'ed
    PIECE_LENT = 1              # memory that another object owns
    PIECE_FILE = 2              # a file region

# Returns the Send's reference to the owner of an open file.
ctypedef void (*release_function)(void* owner) noexcept nogil

cdef struct Piece:
    int kind                    # PieceKind
    int fd                      # of a file region
    uint8_t* data               # NULL for a file region
    int64_t position            # of the next byte to send, in data or in the file
    int64_t remaining
    size_t capacity             # of memory that is owned
    void* owner                 # of a file region: keeps the file open, until `release` is called with it
    release_function release
    int64_t* slow               # of a file region: count of threads that hang in reads of the file (blocking.pxd)

cdef cppclass Send:
    vector[Piece] pieces
    size_t current              # the piece being sent
    int64_t size                # bytes in total
    int64_t remaining
    uint8_t* spare              # memory of a sent piece, for the next reply (send_leave); or NULL
    size_t spare_capacity


cdef enum:
    LEFT_PIECES = 64            # send_leave keeps at most so many pieces for the next reply
    LEFT_BYTES = 4096           # ... and at most so much memory


cdef inline Send* send_new() noexcept nogil:
    cdef Send* send = new Send()
    send.pieces.reserve(4)
    send.current = 0
    send.size = 0
    send.remaining = 0
    send.spare = NULL
    send.spare_capacity = 0
    return send


cdef inline void send_take_buffer(Send* send, ByteBuffer* buffer) noexcept nogil:
    """Appends the buffer's bytes as a piece and leaves the buffer empty: the Send owns the memory from here."""
    cdef Piece piece
    if buffer.size:
        piece.kind = PIECE_OWNED
        piece.data = buffer.data
        piece.position = 0
        piece.remaining = buffer.size
        piece.capacity = buffer.capacity
        send.pieces.push_back(piece)
        send.size += piece.remaining
        send.remaining += piece.remaining
    elif buffer.data != NULL:
        free(buffer.data)
    buffer_init(buffer)


cdef inline void send_lend(Send* send, const uint8_t* data, int64_t size) noexcept nogil:
    """Appends memory of another owner, which must keep it until the Send is freed."""
    cdef Piece piece
    if size > 0:
        piece.kind = PIECE_LENT
        piece.data = <uint8_t*>data
        piece.position = 0
        piece.remaining = size
        send.pieces.push_back(piece)
        send.size += size
        send.remaining += size


cdef inline void send_take_region(Send* send, int fd, int64_t position, int64_t length, void* owner,
                                  release_function release, int64_t* slow) noexcept nogil:
    """Appends a region of a file that `owner` keeps open; the Send takes over the caller's reference to it."""
    cdef Piece piece
    piece.kind = PIECE_FILE
    piece.fd = fd
    piece.data = NULL
    piece.position = position
    piece.remaining = length
    piece.owner = owner
    piece.release = release
    piece.slow = slow
    send.pieces.push_back(piece)
    send.size += length
    send.remaining += length


cdef inline void send_drop_pieces(Send* send) noexcept nogil:
    cdef size_t i
    cdef Piece* piece
    for i in range(send.pieces.size()):
        piece = &send.pieces[i]
        if piece.kind == PIECE_LENT:
            continue
        if piece.kind == PIECE_FILE:
            piece.release(piece.owner)
        elif send.spare == NULL and 0 < piece.capacity <= LEFT_BYTES:
            send.spare = piece.data
            send.spare_capacity = piece.capacity
        else:
            free(piece.data)
    send.pieces.clear()


cdef inline void send_free(Send* send) noexcept nogil:
    if send == NULL:
        return
    send_drop_pieces(send)
    free(send.spare)
    del send


cdef inline void send_leave(Send* send, Send** left) noexcept nogil:
    """Like send_free, but keeps the memory for the next reply: see send_again."""
    if left[0] != NULL or send.pieces.capacity() > LEFT_PIECES:
        send_free(send)
        return
    send_drop_pieces(send)
    left[0] = send


cdef inline Send* send_again(Send** left) noexcept nogil:
    """Like send_new, in memory that send_leave kept, if any."""
    cdef Send* send = left[0]
    if send == NULL:
        return send_new()
    left[0] = NULL
    send.current = 0
    send.size = 0
    send.remaining = 0
    return send


cdef inline void send_lay_out(Send* send, ByteBuffer* out) noexcept nogil:
    """Makes `out` an empty buffer for the first piece, in memory of an earlier piece if any. The buffer owns that
    memory."""
    out.data = send.spare
    out.size = 0
    out.capacity = send.spare_capacity
    out.error = 0
    send.spare = NULL
    send.spare_capacity = 0
