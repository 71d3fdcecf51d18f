"""TLS 1.2 and 1.3 as a TransportLayer (transport.pxd), without the GIL. Contexts: tls.pxd.

    record: int8 type | int16 version | int16 size (at most 16384 + 256) | bytes
    type:   20 change cipher spec, 21 alert, 22 handshake, 23 application data
"""

from libcpp.string cimport string

from kafkapy._speedups.base.tls cimport TlsContextState
from kafkapy._speedups.base.transport cimport Transport

cdef enum:
    TLS_RECORD = 16 * 1024          # bytes of plaintext in one record, at most
    TLS_FILE_BUFFER = 64 * 1024     # bytes of a file in memory at a time
    TLS_READ_AT_ONCE = 256 * 1024   # bytes of one read, at most

# Makes a TLS connection over a connected, non-blocking socket; refers to the context. `host` and `port`: the server as
# the client knows it, for SNI, the check of its certificate, and the resumption of sessions; NULL on a server. The
# caller calls functions.handshake until it returns 1. 0, or an errno: the descriptor stays the caller's then.
cdef int transport_tls(Transport* t, int fd, TlsContextState* context, const char* host, int port) noexcept nogil

# After the handshake; without TLS these find nothing.
# The peer's certificate in DER. False: it has shown none.
cdef bint tls_peer_certificate(Transport* t, string* der) noexcept nogil
cdef const char* tls_cipher_suite(Transport* t) noexcept nogil      # "TLS_AES_256_GCM_SHA384", as in Java; ""
cdef const char* tls_protocol(Transport* t) noexcept nogil          # "TLSv1.3"; ""
cdef bint tls_resumed(Transport* t) noexcept nogil
cdef bint tls_in_kernel(Transport* t) noexcept nogil                # whether the kernel encrypts
