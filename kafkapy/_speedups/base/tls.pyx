"""TLS contexts (see tls.pxd)."""

cimport cython
from cython.operator cimport dereference, preincrement
from libcpp.string cimport string
from libcpp.unordered_map cimport unordered_map

from kafkapy._speedups.base.openssl cimport *
from kafkapy._speedups.base.posix cimport (
    atomic_add,
    atomic_load,
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)

cdef extern from * nogil:
    """
    #include <errno.h>
    #include <netinet/in.h>
    #include <netinet/tcp.h>
    #include <sys/socket.h>
    #include <unistd.h>
    #ifndef TCP_ULP
    #define TCP_ULP 31
    #endif
    /* A kernel with TLS refuses it to a socket that is not connected; one without does not know its name. */
    static inline int kp_kernel_tls(void) {
    #ifdef OPENSSL_NO_KTLS
        return 0;
    #else
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0) return 0;
        int known = setsockopt(fd, IPPROTO_TCP, TCP_ULP, "tls", sizeof("tls")) == 0 || errno == ENOTCONN;
        close(fd);
        return known;
    #endif
    }
    """
    bint kernel_tls "kp_kernel_tls"()

ctypedef unordered_map[string, SSL_SESSION*] Sessions

cdef enum:
    SERVERS = 1024              # whose sessions a client's context keeps


cdef void note_alert(const SSL* ssl, int where, int value) noexcept nogil:
    cdef TlsPeer* peer
    if where & SSL_CB_WRITE_ALERT and value & 0xFF == SSL_AD_NO_RENEGOTIATION:
        peer = <TlsPeer*>SSL_get_app_data(ssl)
        if peer != NULL:
            peer.renegotiates = True


cdef int check_lists(int fits, X509_STORE_CTX* check) noexcept nogil:
    """Lets an authority pass for which there is no revocation list. 1: the check goes on."""
    cdef int error
    if fits:
        return 1
    error = X509_STORE_CTX_get_error(check)
    if X509_STORE_CTX_get_error_depth(check) > 0 and (
            error == X509_V_ERR_UNABLE_TO_GET_CRL or error == X509_V_ERR_UNABLE_TO_GET_CRL_ISSUER):
        X509_STORE_CTX_set_error(check, <int>X509_V_OK)
        return 1
    return 0


# ---- sessions that a client goes on with -----------------------------------------------------------------------------

cdef int keep_session(SSL* ssl, SSL_SESSION* session) noexcept nogil:
    """Keeps the newest session of each server. Returns 1 when the reference is taken."""
    cdef TlsPeer* peer = <TlsPeer*>SSL_get_app_data(ssl)
    cdef TlsContextState* c
    cdef Sessions* sessions
    cdef Sessions.iterator found
    cdef SSL_SESSION* old = NULL
    cdef bint kept = True
    if peer == NULL or peer.server.empty() or not SSL_SESSION_is_resumable(session):
        return 0
    c = peer.context
    sessions = <Sessions*>c.sessions
    pthread_mutex_lock(&c.mutex)
    found = sessions.find(peer.server)
    if found != sessions.end():
        old = dereference(found).second
        dereference(found).second = session
    elif sessions.size() < SERVERS:
        dereference(sessions)[peer.server] = session
    else:
        kept = False
    pthread_mutex_unlock(&c.mutex)
    if old != NULL:
        SSL_SESSION_free(old)
    return kept


cdef void tls_resume(TlsPeer* peer, SSL* ssl) noexcept nogil:
    cdef TlsContextState* c = peer.context
    cdef Sessions* sessions = <Sessions*>c.sessions
    cdef Sessions.iterator found
    cdef SSL_SESSION* session = NULL
    pthread_mutex_lock(&c.mutex)
    found = sessions.find(peer.server)
    if found != sessions.end():
        session = dereference(found).second
        SSL_SESSION_up_ref(session)
    pthread_mutex_unlock(&c.mutex)
    if session != NULL:
        SSL_set_session(ssl, session)
        SSL_SESSION_free(session)


# ---- contexts --------------------------------------------------------------------------------------------------------

cdef void tls_context_ref(TlsContextState* c) noexcept nogil:
    atomic_add(&c.references, 1)


cdef void tls_context_unref(TlsContextState* c) noexcept nogil:
    cdef Sessions* sessions
    cdef Sessions.iterator it
    if c == NULL or atomic_add(&c.references, -1) > 0:
        return
    sessions = <Sessions*>c.sessions
    it = sessions.begin()
    while it != sessions.end():
        SSL_SESSION_free(dereference(it).second)
        preincrement(it)
    del sessions
    SSL_CTX_free(<SSL_CTX*>c.context)
    pthread_mutex_destroy(&c.mutex)
    del c


_PROTOCOLS = {
    "TLSv1": (TLS1_VERSION, SSL_OP_NO_TLSv1),
    "TLSv1.1": (TLS1_1_VERSION, SSL_OP_NO_TLSv1_1),
    "TLSv1.2": (TLS1_2_VERSION, SSL_OP_NO_TLSv1_2),
    "TLSv1.3": (TLS1_3_VERSION, SSL_OP_NO_TLSv1_3),
}
_CLIENT_AUTH = {
    "none": SSL_VERIFY_NONE,
    "requested": SSL_VERIFY_PEER,
    "required": SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT,
}


cdef str reason():
    """OpenSSL's reason for the last failure; forgets it."""
    cdef const char* text = ERR_reason_error_string(ERR_peek_last_error())
    ERR_clear_error()
    return (<bytes>text).decode("ascii", "replace") if text != NULL else "no reason is known"


cdef X509* certificate_of(bytes der) except NULL:
    cdef const unsigned char* at = <const unsigned char*><char*>der
    cdef const unsigned char* end = at + len(der)
    cdef X509* certificate = d2i_X509(NULL, &at, len(der))
    if certificate == NULL or at != end:
        X509_free(certificate)
        raise ValueError(f"this is no certificate in DER: {reason()}")
    return certificate


def _suites(names):
    """(TLS 1.3 suites, suites of older versions) by OpenSSL's names. ValueError for an unknown suite."""
    cdef const char* known
    cdef bytes text
    newest, older = [], []
    for name in names:
        # Java's oldest names begin with SSL_.
        text = (f"TLS_{name[4:]}" if name.startswith("SSL_") else name).encode()
        known = OPENSSL_cipher_name(text)
        found = (<bytes>known).decode()
        if found == "(NONE)":
            found = name        # by its name in OpenSSL, which SSL_CTX_set_cipher_list knows
        (newest if name.startswith("TLS_") and "_WITH_" not in name else older).append(found)
    return newest, older


@cython.no_gc_clear
cdef class TlsContext:
    """The keys, trusted certificates and options of a TLS listener or client. Immutable; any thread may use it.

    Connections keep their context, so a new one replaces it at any time.
    """

    def __cinit__(self, bint server, private_key=None, chain=(), trusted=None, str client_auth not None="none",
                  protocols=("TLSv1.2", "TLSv1.3"), cipher_suites=(), bint check_hostname=True, bint verify=True,
                  revoked=()):
        """private_key: PKCS#8 in DER. chain: certificates in DER, this side's own first. trusted: certificates in DER;
        None: those of the system. client_auth: what a server does without a certificate of the client: "none" does not
        ask for one, "requested" does, "required" refuses the client. protocols: "TLSv1.2", "TLSv1.3". cipher_suites:
        names of IANA (Java's) or OpenSSL's; empty: OpenSSL's choice. check_hostname: whether a client compares the
        server's name with its certificate. verify: False for a client that accepts every certificate. revoked:
        revocation lists in DER; when there is one, a peer's own certificate needs the list of its issuer, and the
        authorities above it must not stand in a list.

        ValueError with the reason for keys, certificates and names that are unfit."""
        cdef TlsContextState* c
        cdef SSL_CTX* context
        self.server = server
        if server and (private_key is None or not chain):
            raise ValueError("a TLS server needs a private key and a certificate")
        if client_auth not in _CLIENT_AUTH:
            raise ValueError(f"{client_auth!r} is not one of {', '.join(_CLIENT_AUTH)}")
        context = SSL_CTX_new(TLS_server_method() if server else TLS_client_method())
        if context == NULL:
            raise MemoryError(f"no TLS context can be had: {reason()}")
        c = self.state = new TlsContextState()
        c.references = 1
        c.context = context
        c.server = server
        c.check_hostname = check_hostname
        c.sessions = new Sessions()
        pthread_mutex_init(&c.mutex, NULL)
        c.in_kernel = server and kernel_tls()
        SSL_CTX_set_options(context, SSL_OP_ALL | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION
                            | SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA | SSL_OP_IGNORE_UNEXPECTED_EOF)
        if c.in_kernel:
            SSL_CTX_set_options(context, SSL_OP_ENABLE_KTLS)
        SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER
                         | SSL_MODE_RELEASE_BUFFERS | SSL_MODE_NO_AUTO_CHAIN)
        SSL_CTX_set_read_ahead(context, 1)
        SSL_CTX_set_info_callback(context, note_alert)
        self._set_suites(list(protocols), list(cipher_suites))
        if private_key is not None:
            self._set_key(private_key, list(chain))
        self._set_trusted(trusted)
        self._set_revoked(revoked)
        if server:
            SSL_CTX_set_verify(context, _CLIENT_AUTH[client_auth], check_lists)
            SSL_CTX_set_dh_auto(context, 1)
            # Sessions lie with the clients, encrypted with a key of this context.
            SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF)
            SSL_CTX_set_session_id_context(context, b"kafkapy", 7)
            SSL_CTX_set_num_tickets(context, 1)
        else:
            SSL_CTX_set_verify(context, SSL_VERIFY_PEER if verify else SSL_VERIFY_NONE, check_lists)
            SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL)
            SSL_CTX_sess_set_new_cb(context, keep_session)

    def __dealloc__(self):
        with nogil:
            tls_context_unref(self.state)

    cdef int _set_suites(self, list protocols, list suites) except -1:
        cdef SSL_CTX* context = <SSL_CTX*>self.state.context
        newest, older = _suites(suites)
        unknown = [name for name in protocols if name not in _PROTOCOLS]
        if unknown:
            raise ValueError(f"{unknown[0]!r} is not one of {', '.join(_PROTOCOLS)}")
        if suites:
            # A version without a suite is not offered, as in Java.
            protocols = [name for name in protocols if (newest if name == "TLSv1.3" else older)]
        if not protocols:
            raise ValueError("no cipher suite fits a TLS version" if suites else "no TLS version is allowed")
        versions = sorted(_PROTOCOLS[name][0] for name in protocols)
        SSL_CTX_set_min_proto_version(context, versions[0])
        SSL_CTX_set_max_proto_version(context, versions[len(versions) - 1])
        for name in _PROTOCOLS:
            if name not in protocols:
                SSL_CTX_set_options(context, _PROTOCOLS[name][1])
        for name in newest:
            if not SSL_CTX_set_ciphersuites(context, name.encode()):
                raise ValueError(f"the cipher suite {name} is not known: {reason()}")
        for name in older:
            if not SSL_CTX_set_cipher_list(context, name.encode()):
                raise ValueError(f"the cipher suite {name} is not known: {reason()}")
        if newest and not SSL_CTX_set_ciphersuites(context, ":".join(newest).encode()):
            raise ValueError(f"these cipher suites cannot be set: {reason()}")
        if older and not SSL_CTX_set_cipher_list(context, ":".join(older).encode()):
            raise ValueError(f"these cipher suites cannot be set: {reason()}")
        return 0

    cdef int _set_key(self, bytes private_key, list chain) except -1:
        cdef SSL_CTX* context = <SSL_CTX*>self.state.context
        cdef const unsigned char* at = <const unsigned char*><char*>private_key
        cdef EVP_PKEY* key
        cdef X509* certificate
        cdef bint done
        if not chain:
            raise ValueError("a private key needs a certificate")
        for index, der in enumerate(chain):
            certificate = certificate_of(der)
            if index == 0:
                done = SSL_CTX_use_certificate(context, certificate)
            else:
                done = SSL_CTX_add1_chain_cert(context, certificate)
            X509_free(certificate)
            if not done:
                raise ValueError(f"a certificate cannot be used: {reason()}")
        key = d2i_AutoPrivateKey(NULL, &at, len(private_key))
        if key == NULL:
            raise ValueError(f"the private key cannot be read: {reason()}")
        done = SSL_CTX_use_PrivateKey(context, key)
        EVP_PKEY_free(key)
        if not done or not SSL_CTX_check_private_key(context):
            raise ValueError(f"the private key does not fit the certificate: {reason()}")
        return 0

    cdef int _set_trusted(self, trusted) except -1:
        cdef SSL_CTX* context = <SSL_CTX*>self.state.context
        cdef X509_STORE* store = SSL_CTX_get_cert_store(context)
        cdef X509* certificate
        cdef bint done
        # A trusted certificate need not be a root, as in Java.
        X509_STORE_set_flags(store, X509_V_FLAG_PARTIAL_CHAIN)
        if trusted is None:
            if not SSL_CTX_set_default_verify_paths(context):
                raise ValueError(f"the system's trusted certificates cannot be used: {reason()}")
            return 0
        for der in trusted:
            certificate = certificate_of(der)
            done = X509_STORE_add_cert(store, certificate)
            if done and self.server:
                done = SSL_CTX_add_client_CA(context, certificate)
            X509_free(certificate)
            if not done:
                raise ValueError(f"a trusted certificate cannot be used: {reason()}")
        return 0

    cdef int _set_revoked(self, revoked) except -1:
        cdef X509_STORE* store = SSL_CTX_get_cert_store(<SSL_CTX*>self.state.context)
        cdef const unsigned char* at
        cdef X509_CRL* crl
        cdef bint done
        for der in revoked:
            at = <const unsigned char*><char*>der
            crl = d2i_X509_CRL(NULL, &at, len(der))
            if crl == NULL:
                raise ValueError(f"a revocation list cannot be read: {reason()}")
            done = X509_STORE_add_crl(store, crl)
            X509_CRL_free(crl)
            if not done:
                raise ValueError(f"a revocation list cannot be used: {reason()}")
        if revoked:
            X509_STORE_set_flags(store, X509_V_FLAG_CRL_CHECK | X509_V_FLAG_CRL_CHECK_ALL)
        return 0

    def counters(self):
        """Of its connections since it was made: handshakes (finished), resumed (among them), failed."""
        return {
            "handshakes": atomic_load(&self.state.handshakes),
            "resumed": atomic_load(&self.state.resumed),
            "failed": atomic_load(&self.state.failed),
        }
