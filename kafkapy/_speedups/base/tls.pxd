"""TLS contexts over OpenSSL 3: keys, trusted certificates and options of one TLS listener or client.

A TlsContextState is counted: each connection (tls_transport.pxd) has a reference, so a listener may get another context
while its connections keep theirs. Threads may share it. A server's sessions lie with its clients, in tickets that only
this context can read; a client's context keeps the newest session of each server.
"""

from libc.stdint cimport int64_t
from libcpp.string cimport string

from kafkapy._speedups.base.openssl cimport SSL
from kafkapy._speedups.base.posix cimport pthread_mutex_t

cdef cppclass TlsContextState:
    int64_t references              # atomic
    void* context                   # SSL_CTX
    bint server
    bint check_hostname
    bint in_kernel                  # connections ask the kernel to encrypt (kTLS)
    int64_t handshakes              # atomics: finished,
    int64_t resumed                 # ... among them with the session of an earlier connection,
    int64_t failed                  # ... and refused by this side or the peer
    pthread_mutex_t mutex           # over `sessions`
    void* sessions                  # of a client, by server: see tls.pyx

# The part of a connection that OpenSSL's callbacks know: the SSL's app data.
cdef cppclass TlsPeer:
    TlsContextState* context
    string server                   # of a client's connection: "host:port"
    bint renegotiates               # the peer has asked for it

cdef void tls_context_ref(TlsContextState* c) noexcept nogil
cdef void tls_context_unref(TlsContextState* c) noexcept nogil
# Lets a client's connection go on with the session of an earlier one.
cdef void tls_resume(TlsPeer* peer, SSL* ssl) noexcept nogil

cdef class TlsContext:
    cdef TlsContextState* state
    cdef readonly bint server

    cdef int _set_suites(self, list protocols, list suites) except -1
    cdef int _set_key(self, bytes private_key, list chain) except -1
    cdef int _set_trusted(self, trusted) except -1
    cdef int _set_revoked(self, revoked) except -1
