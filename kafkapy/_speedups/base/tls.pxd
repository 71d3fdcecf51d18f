"""TLS 1.2 and 1.3 over OpenSSL 3, as a TransportLayer (transport.pxd). Nothing here needs the GIL but the making of a
TlsContext.

    TLSPlaintext / TLSCiphertext: int8 type | int16 version | int16 length (at most 16384 + 256) | bytes
    type: 20 change cipher spec, 21 alert, 22 handshake, 23 application data

A TlsContextState holds keys, trusted certificates and options of one listener or client. It is counted: each connection
has a reference, so a listener may get another context while connections go on with theirs. Threads may share it; a
Transport belongs to one thread at a time.
"""

from libc.stdint cimport int64_t
from libcpp.string cimport string

from kafkapy._speedups.base.posix cimport pthread_mutex_t
from kafkapy._speedups.base.transport cimport Transport

cdef enum:
    TLS_RECORD = 16 * 1024          # bytes of plaintext in one record, at most
    TLS_FILE_BUFFER = 64 * 1024     # bytes of a file in memory at a time

cdef cppclass TlsContextState:
    int64_t references              # atomic
    void* context                   # SSL_CTX
    bint server
    bint check_hostname
    int64_t handshakes              # atomics: complete,
    int64_t resumed                 # ... those of them that went on with an earlier session,
    int64_t failed                  # ... and those that the peer or this side has refused
    pthread_mutex_t mutex
    void* sessions                  # of a client, by server: see tls.pyx

cdef void tls_context_ref(TlsContextState* c) noexcept nogil
cdef void tls_context_unref(TlsContextState* c) noexcept nogil

# Makes a TLS connection over a connected, non-blocking socket; refers to the context. `host` and `port`: of the server
# as the client knows it, for SNI, the check of its certificate and sessions to go on with; NULL on a server. The caller
# calls functions.handshake until it returns 1. 0, or an errno: the descriptor is the caller's then.
cdef int transport_tls(Transport* t, int fd, TlsContextState* context, const char* host, int port) noexcept nogil

# All of these after the handshake; without TLS they find nothing.
# The peer's certificate in DER. False: it has shown none.
cdef bint tls_peer_certificate(Transport* t, string* der) noexcept nogil
cdef const char* tls_cipher_suite(Transport* t) noexcept nogil      # "TLS_AES_256_GCM_SHA384", as in Java; ""
cdef const char* tls_protocol(Transport* t) noexcept nogil          # "TLSv1.3"; ""
cdef bint tls_resumed(Transport* t) noexcept nogil

cdef class TlsContext:
    cdef TlsContextState* state
    cdef readonly bint server
