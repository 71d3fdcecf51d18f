"""The plaintext TransportLayer (see transport.pxd)."""

from libc.errno cimport EAGAIN, EIO, EINTR, errno
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memset
from posix.unistd cimport close

from kafkapy._speedups.base.blocking cimport NetworkThread, blocking_begin, blocking_end
from kafkapy._speedups.base.posix cimport file_read, recv, send, sendfile
from kafkapy._speedups.base.send cimport Piece, Send

cdef extern from "<sys/socket.h>" nogil:
    struct msghdr:
        iovec* msg_iov
        size_t msg_iovlen
    int MSG_NOSIGNAL, MSG_DONTWAIT, MSG_MORE, MSG_PEEK, SHUT_WR, SHUT_RDWR
    int setsockopt(int fd, int level, int name, const void* value, unsigned int size)
    ssize_t sendmsg(int fd, const msghdr* message, int flags)
    int shutdown(int fd, int how)


cdef extern from "<netinet/in.h>" nogil:
    int IPPROTO_TCP

cdef extern from "<netinet/tcp.h>" nogil:
    int TCP_CORK

cdef enum:
    READS_AT_THE_END = 64       # of 4 KB each; shut_down drops no more


cdef int plain_handshake(Transport* t) noexcept nogil:
    return 1


cdef int64_t plain_read(Transport* t, uint8_t* into, size_t size) noexcept nogil:
    cdef ssize_t n
    while True:
        n = recv(t.fd, into, size, MSG_DONTWAIT)
        if n >= 0:
            return n
        if errno != EINTR:
            return -errno


cdef int64_t plain_write(Transport* t, iovec* pieces, int count, bint more) noexcept nogil:
    cdef msghdr message
    cdef ssize_t n
    cdef int flags = MSG_NOSIGNAL | MSG_DONTWAIT | (MSG_MORE if more else 0)
    memset(&message, 0, sizeof(message))
    message.msg_iov = pieces
    message.msg_iovlen = count
    while True:
        n = send(t.fd, pieces.iov_base, pieces.iov_len, flags) if count == 1 else sendmsg(t.fd, &message, flags)
        if n >= 0:
            return n
        if errno != EINTR:
            return -errno


cdef int64_t plain_send_file(Transport* t, int fd, int64_t position, int64_t size, int64_t* slow) noexcept nogil:
    cdef NetworkThread* thread = blocking_begin(slow)
    cdef int64_t n
    while True:
        n = sendfile(t.fd, fd, &position, size)
        if n >= 0:
            break
        n = -errno
        if n != -EINTR:
            break
    blocking_end(thread)
    return n


cdef void plain_cork(Transport* t, bint on) noexcept nogil:
    cdef int value = on
    setsockopt(t.fd, IPPROTO_TCP, TCP_CORK, &value, sizeof(value))


cdef int64_t plain_pending(Transport* t) noexcept nogil:
    return 0


cdef bint plain_ended(Transport* t) noexcept nogil:
    cdef uint8_t byte
    return recv(t.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0


cdef void plain_shut_down(Transport* t) noexcept nogil:
    cdef uint8_t rest[4096]
    cdef int i
    shutdown(t.fd, SHUT_WR)
    for i in range(READS_AT_THE_END):
        if recv(t.fd, rest, sizeof(rest), MSG_DONTWAIT) <= 0:
            return


cdef void plain_abort(Transport* t) noexcept nogil:
    shutdown(t.fd, SHUT_RDWR)


cdef void plain_close(Transport* t) noexcept nogil:
    if t.fd >= 0:
        close(t.fd)
        t.fd = -1


cdef const char* plain_error(Transport* t) noexcept nogil:
    return NULL


cdef TransportFunctions plaintext
plaintext.handshake = plain_handshake
plaintext.read = plain_read
plaintext.write = plain_write
plaintext.send_file = plain_send_file
plaintext.cork = plain_cork
plaintext.pending = plain_pending
plaintext.ended = plain_ended
plaintext.shut_down = plain_shut_down
plaintext.abort = plain_abort
plaintext.close = plain_close
plaintext.error = plain_error


cdef void transport_plaintext(Transport* t, int fd) noexcept nogil:
    t.functions = &plaintext
    t.fd = fd
    t.corked = False
    t.read_wants_write = False
    t.write_wants_read = False
    t.session = NULL


cdef enum:
    PIECES_AT_ONCE = 64


cdef inline bint gathered(Send* send, size_t i) noexcept nogil:
    """Whether the piece is memory, or a file region not worth a sendfile."""
    cdef Piece* piece = &send.pieces[i]
    return piece.data != NULL or piece.remaining <= (SMALL_REGION if i + 1 < send.pieces.size() else SMALL_LAST_REGION)


cdef int64_t send_gathered(Transport* t, Send* send) noexcept nogil:
    """One write of the memory pieces and small file regions that come next."""
    cdef iovec pieces[64]
    cdef uint8_t regions[32 * 1024]
    cdef int64_t filled = 0, got
    cdef int count = 0
    cdef size_t i = send.current
    cdef NetworkThread* thread
    cdef Piece* piece
    while i < send.pieces.size() and count < PIECES_AT_ONCE:
        piece = &send.pieces[i]
        if piece.data != NULL:
            pieces[count].iov_base = piece.data + piece.position
        elif gathered(send, i) and filled + piece.remaining <= GATHERED:
            thread = blocking_begin(piece.slow)
            got = file_read(piece.fd, regions + filled, piece.remaining, piece.position)
            blocking_end(thread)
            if got != piece.remaining:
                # The file is shorter than the reply says, or cannot be read: the frame cannot be completed.
                return got if got < 0 else -EIO
            pieces[count].iov_base = regions + filled
            filled += got
        else:
            break
        pieces[count].iov_len = piece.remaining
        count += 1
        i += 1
    return t.functions.write(t, pieces, count, i < send.pieces.size())


cdef int64_t send_memory(Transport* t, Send* send) noexcept nogil:
    """Writes one piece of memory alone: most replies have one piece, or one before a large file region."""
    cdef Piece* piece = &send.pieces[send.current]
    cdef iovec one
    one.iov_base = piece.data + piece.position
    one.iov_len = piece.remaining
    return t.functions.write(t, &one, 1, send.current + 1 < send.pieces.size())


cdef void set_cork(Transport* t, bint on) noexcept nogil:
    if t.corked != on:
        t.corked = on
        t.functions.cork(t, on)


cdef void advance(Send* send, int64_t n) noexcept nogil:
    cdef Piece* piece
    cdef int64_t step
    send.remaining -= n
    while send.current < send.pieces.size():
        piece = &send.pieces[send.current]
        step = min(n, piece.remaining)
        piece.position += step
        piece.remaining -= step
        n -= step
        if piece.remaining > 0:
            return
        send.current += 1


cdef int transport_send(Transport* t, Send* send, int64_t* written) noexcept nogil:
    cdef int64_t turn = WRITE_TURN
    cdef int64_t n
    cdef Piece* piece
    advance(send, 0)        # over empty pieces
    while send.current < send.pieces.size():
        if turn <= 0:
            return 0
        piece = &send.pieces[send.current]
        if gathered(send, send.current):
            if piece.data != NULL and (send.current + 1 == send.pieces.size() or not gathered(send, send.current + 1)):
                n = send_memory(t, send)
            else:
                n = send_gathered(t, send)
        else:
            if send.current + 1 < send.pieces.size():
                # A sendfile pushes out its bytes; the few bytes that follow would need another packet.
                set_cork(t, True)
            n = t.functions.send_file(t, piece.fd, piece.position, min(piece.remaining, turn), piece.slow)
            if n == 0:
                return -EIO     # the file is shorter than the reply says: the frame cannot be completed
        if n < 0:
            return 0 if n == -EAGAIN else <int>n
        advance(send, n)
        written[0] += n
        turn -= n
    set_cork(t, False)
    return 1
