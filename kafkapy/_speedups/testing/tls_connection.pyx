"""A TLS transport for tests (see tls_connection.pxd)."""

from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libcpp.string cimport string

from kafkapy._speedups.base.send cimport Send, send_free, send_lend, send_new, send_take_region
from kafkapy._speedups.base.tls cimport TlsContext
from kafkapy._speedups.base.tls_transport cimport (
    tls_cipher_suite,
    tls_in_kernel,
    tls_peer_certificate,
    tls_protocol,
    tls_resumed,
    transport_tls,
)
from kafkapy._speedups.base.transport cimport iovec, transport_send


cdef void keep_open(void* owner) noexcept nogil:
    pass


cdef class TlsConnection:
    """Owns the descriptor. Results are those of the functions in base/transport.pxd: a count, or minus an errno."""

    def __cinit__(self, int fd, TlsContext context not None, str host=None, int port=0):
        cdef bytes name = b"" if host is None else host.encode()
        cdef const char* at = NULL
        cdef int error
        if host is not None:
            at = name
        self.transport.session = NULL
        self.context = context
        error = transport_tls(&self.transport, fd, context.state, at, port)
        if error:
            raise OSError(error, "no TLS connection can be made")

    def __dealloc__(self):
        if self.transport.session != NULL:
            self.transport.functions.close(&self.transport)

    def _check(self):
        if self.transport.session == NULL:
            raise ValueError("closed")

    def handshake(self):
        cdef int result
        self._check()
        with nogil:
            result = self.transport.functions.handshake(&self.transport)
        return result

    def read(self, int64_t size):
        """The bytes, or minus an errno."""
        cdef uint8_t* into
        cdef int64_t n
        self._check()
        into = <uint8_t*>malloc(max(size, 1))
        if into == NULL:
            raise MemoryError
        try:
            with nogil:
                n = self.transport.functions.read(&self.transport, into, size)
            return <bytes>into[:n] if n >= 0 else n
        finally:
            free(into)

    def write(self, pieces, bint more=False):
        cdef list kept = list(pieces)
        cdef iovec[64] vector
        cdef bytes piece
        cdef int count = len(kept)
        cdef int64_t n
        self._check()
        if count > 64:
            raise ValueError("too many pieces")
        for i, piece in enumerate(kept):
            vector[<int>i].iov_base = <char*>piece
            vector[<int>i].iov_len = len(piece)
        with nogil:
            n = self.transport.functions.write(&self.transport, vector, count, more)
        return n

    def send_file(self, int fd, int64_t position, int64_t size):
        cdef int64_t slow = 0
        cdef int64_t n
        self._check()
        with nogil:
            n = self.transport.functions.send_file(&self.transport, fd, position, size, &slow)
        return n

    def send(self, pieces):
        """Of bytes, and (descriptor, position, size) of files; for transport_send."""
        self._check()
        return SendInTurns(self, list(pieces))

    def pending(self):
        self._check()
        return self.transport.functions.pending(&self.transport)

    def ended(self):
        self._check()
        return bool(self.transport.functions.ended(&self.transport))

    def cork(self, bint on):
        self._check()
        self.transport.corked = on
        self.transport.functions.cork(&self.transport, on)

    def shut_down(self):
        self._check()
        self.transport.functions.shut_down(&self.transport)

    def close(self):
        if self.transport.session != NULL:
            self.transport.functions.close(&self.transport)

    @property
    def error(self):
        cdef const char* text
        self._check()
        text = self.transport.functions.error(&self.transport)
        return None if text == NULL else (<bytes>text).decode()

    @property
    def read_wants_write(self):
        return bool(self.transport.read_wants_write)

    @property
    def write_wants_read(self):
        return bool(self.transport.write_wants_read)

    @property
    def protocol(self):
        return (<bytes>tls_protocol(&self.transport)).decode()

    @property
    def cipher_suite(self):
        return (<bytes>tls_cipher_suite(&self.transport)).decode()

    @property
    def resumed(self):
        return bool(tls_resumed(&self.transport))

    @property
    def in_kernel(self):
        """Whether the kernel encrypts."""
        return bool(tls_in_kernel(&self.transport))

    @property
    def peer_certificate(self):
        cdef string der
        return <bytes>der if tls_peer_certificate(&self.transport, &der) else None


cdef class SendInTurns:
    """One reply on its way out, as the Processor sends it."""

    cdef Send* pieces
    cdef TlsConnection connection
    cdef list kept
    cdef int64_t slow
    cdef readonly int64_t written

    def __cinit__(self, TlsConnection connection not None, list pieces not None):
        cdef bytes data
        self.connection = connection
        self.kept = pieces
        self.slow = 0
        self.pieces = send_new()
        for piece in pieces:
            if isinstance(piece, bytes):
                data = piece
                send_lend(self.pieces, <const uint8_t*><char*>data, len(data))
            else:
                fd, position, size = piece
                send_take_region(self.pieces, fd, position, size, NULL, keep_open, &self.slow)

    def __dealloc__(self):
        send_free(self.pieces)

    def turn(self):
        """1 when all is sent, 0 when the socket or the turn is full, or minus an errno."""
        cdef int64_t written = 0
        cdef int status
        self.connection._check()
        with nogil:
            status = transport_send(&self.connection.transport, self.pieces, &written)
        self.written += written
        return status
