"""The TLS TransportLayer (see tls_transport.pxd).

OpenSSL reads and writes the socket through a BIO of this module, because its own one raises SIGPIPE and cannot hold
back short segments. Where the kernel encrypts (kTLS), OpenSSL needs its own BIO for writes, and SSL_sendfile sends
files.

A write encrypts record after record into a buffer of its thread, which goes to the socket in one piece. Bytes that the
socket does not take are kept (`unsent`), and the last record's bytes do not count as written: the caller gives them
again (`owed`), and they count when the socket has taken the rest. With kTLS, OpenSSL keeps that record itself and wants
its bytes again.
"""

from libc.errno cimport EAGAIN, ECONNRESET, EINTR, EIO, ENOMEM, EPIPE, EPROTO, errno
from libc.stdint cimport int64_t, uint8_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, strlen
from libcpp.string cimport string
from posix.unistd cimport close

from kafkapy._speedups.base.blocking cimport NetworkThread, blocking_begin, blocking_end
from kafkapy._speedups.base.openssl cimport *
from kafkapy._speedups.base.posix cimport atomic_count, file_read, recv, send
from kafkapy._speedups.base.tls cimport TlsContextState, TlsPeer, tls_context_ref, tls_context_unref, tls_resume
from kafkapy._speedups.base.transport cimport Transport, TransportFunctions, iovec

cdef extern from "<sys/socket.h>" nogil:
    int MSG_NOSIGNAL, MSG_DONTWAIT, MSG_MORE, SHUT_WR, SHUT_RDWR
    int shutdown(int fd, int how)

cdef extern from * nogil:
    """
    #include <netinet/in.h>
    #include <netinet/tcp.h>
    #include <sys/socket.h>
    static inline void kp_push(int fd) {
        int one = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    }
    static inline void kp_cork(int fd, int on) { setsockopt(fd, IPPROTO_TCP, TCP_CORK, &on, sizeof(on)); }
    enum { KP_GATHER = 64 * 1024, KP_RECORD_OVERHEAD = 2048 };
    static __thread unsigned char kp_gathered[KP_GATHER];
    """
    int GATHER "KP_GATHER"                          # bytes of one send
    int RECORD_OVERHEAD "KP_RECORD_OVERHEAD"        # what TLS may add to a record, with messages of its own before it
    unsigned char* gathered "kp_gathered"           # the thread's buffer; used within one call
    void push "kp_push"(int fd)
    void cork "kp_cork"(int fd, int on)

cdef enum:
    FIRST_BYTES = 8             # of the peer, to say what has come
    READS_AT_THE_END = 64       # of 4 KB each; shut_down drops no more
    REASON_BYTES = 200
    # Received bytes without a byte of data, after the handshake: a record and the part of the next one that came with
    # it are less. A peer that sends only messages of TLS, such as key updates, would keep a thread busy.
    MOST_WITHOUT_DATA = 64 * 1024

cdef cppclass TlsSession:
    TlsPeer peer                # the SSL's app data
    SSL* ssl
    int fd
    bint established
    bint closing                # this side has sent close_notify, or may not
    bint drained                # the socket had no byte more in this call
    bint full                   # the socket had no room more in this call
    bint dry                    # the last read wanted more bytes than there were
    bint held                   # the kernel may hold back the last segment
    bint in_kernel              # the kernel encrypts
    int64_t record              # bytes of plaintext in one record
    bint gathering              # OpenSSL writes to the thread's buffer
    int64_t in_buffer           # bytes there
    uint8_t* unsent             # bytes for the socket, malloc'ed; NULL: none
    int64_t unsent_size
    int64_t unsent_at           # of the next byte
    int64_t owed                # bytes of the last record, which is encrypted and not sent
    int64_t without_data        # bytes received since the last byte of data
    int over                    # 0; 1 at the end of the stream, else minus an errno: every call's result from now on
    int failure                 # errno of the BIO
    bint end_of_stream          # of the socket
    uint8_t first[8]
    int first_size
    char why[200]


# ---- OpenSSL's way to the socket -------------------------------------------------------------------------------------

cdef int bio_read(BIO* bio, char* into, size_t size, size_t* got) noexcept nogil:
    cdef TlsSession* s = <TlsSession*>BIO_get_data(bio)
    cdef ssize_t n
    BIO_clear_retry_flags(bio)
    got[0] = 0
    if s.drained:
        BIO_set_retry_read(bio)
        return 0
    if s.without_data > MOST_WITHOUT_DATA:
        return 0
    while True:
        n = recv(s.fd, into, size, MSG_DONTWAIT)
        if n >= 0 or errno != EINTR:
            break
    if n > 0:
        s.drained = n < <ssize_t>size
        if s.first_size < FIRST_BYTES:
            note_first(s, into, n)
        if s.established:
            s.without_data += n
        got[0] = n
        return 1
    if n == 0:
        s.end_of_stream = True
    elif errno == EAGAIN:
        s.drained = True
        BIO_set_retry_read(bio)
    else:
        s.failure = errno
    return 0


cdef void note_first(TlsSession* s, const char* data, int64_t size) noexcept nogil:
    cdef int64_t count = min(size, <int64_t>(FIRST_BYTES - s.first_size))
    memcpy(s.first + s.first_size, data, count)
    s.first_size += <int>count


cdef int64_t send_bytes(TlsSession* s, const uint8_t* data, int64_t size, bint more) noexcept nogil:
    """Bytes that the socket takes. Sets `full` when it has no room for all, or `failure`."""
    cdef int64_t done = 0
    cdef ssize_t n
    while done < size and not s.full:
        n = send(s.fd, data + done, size - done, MSG_NOSIGNAL | MSG_DONTWAIT | (MSG_MORE if more else 0))
        if n >= 0:
            s.full = n < size - done
            s.held = more
            done += n
        elif errno == EAGAIN:
            s.full = True
        elif errno != EINTR:
            s.failure = errno
            return done
    return done


cdef int bio_write(BIO* bio, const char* data, size_t size, size_t* written) noexcept nogil:
    cdef TlsSession* s = <TlsSession*>BIO_get_data(bio)
    BIO_clear_retry_flags(bio)
    written[0] = 0
    if s.gathering:
        if s.in_buffer + <int64_t>size > GATHER:
            s.failure = EIO
            return 0
        memcpy(gathered + s.in_buffer, data, size)
        s.in_buffer += size
        written[0] = size
        return 1
    if s.unsent != NULL:
        s.full = True               # these bytes come after those
    written[0] = send_bytes(s, <const uint8_t*>data, size, False)
    if written[0]:
        return 1
    if not s.failure:
        BIO_set_retry_write(bio)
    return 0


cdef long bio_control(BIO* bio, int command, long number, void* data) noexcept nogil:
    return 1 if command == BIO_CTRL_FLUSH else 0


cdef BIO_METHOD* method = BIO_meth_new(BIO_TYPE_SOURCE_SINK, b"kafkapy socket")
if method == NULL:
    raise MemoryError("no BIO method can be had")
BIO_meth_set_read_ex(method, bio_read)
BIO_meth_set_write_ex(method, bio_write)
BIO_meth_set_ctrl(method, bio_control)


# ---- what went wrong -------------------------------------------------------------------------------------------------

cdef bint begins_with(TlsSession* s, const char* text) noexcept nogil:
    cdef size_t size = strlen(text)
    return s.first_size >= <int>size and memcmp(s.first, text, size) == 0


cdef bint is_http(TlsSession* s) noexcept nogil:
    return (begins_with(s, b"GET ") or begins_with(s, b"POST ") or begins_with(s, b"HEAD ") or begins_with(s, b"PUT ")
            or begins_with(s, b"OPTIONS ") or begins_with(s, b"DELETE ") or begins_with(s, b"CONNECT ")
            or begins_with(s, b"PATCH ") or begins_with(s, b"HTTP/"))


cdef void explain(TlsSession* s) noexcept nogil:
    """Says in `why` what OpenSSL's error queue and the peer's first bytes say."""
    cdef unsigned long error = ERR_peek_error()
    cdef int reason = ERR_GET_REASON(error)
    cdef const char* text = ERR_reason_error_string(error)
    cdef long verified
    if text == NULL:
        text = b"the TLS library gives no reason"
    if s.peer.renegotiates:
        snprintf(s.why, REASON_BYTES, b"the peer asked for a renegotiation, which is refused")
    elif s.without_data > MOST_WITHOUT_DATA:
        snprintf(s.why, REASON_BYTES, b"the peer sends messages of TLS without data")
    elif ERR_GET_LIB(error) == ERR_LIB_SSL and reason == SSL_R_CERTIFICATE_VERIFY_FAILED:
        verified = SSL_get_verify_result(s.ssl)
        snprintf(s.why, REASON_BYTES, b"the peer's certificate is refused: %s", X509_verify_cert_error_string(verified))
    elif not s.established and s.first_size >= 5 and is_http(s):
        snprintf(s.why, REASON_BYTES, b"HTTP came instead of TLS")
    elif not s.established and s.first_size >= 5 and s.first[0] == 0:
        # Frames of Kafka's protocol begin with their size.
        snprintf(s.why, REASON_BYTES, b"Kafka's protocol came without TLS")
    elif not s.established and s.first_size >= 3 and (not 20 <= s.first[0] <= 23 or s.first[1] != 3):
        snprintf(s.why, REASON_BYTES, b"bytes that are not TLS came (%02x %02x %02x...)", <int>s.first[0],
                 <int>s.first[1], <int>s.first[2])
    elif (reason == SSL_R_PACKET_LENGTH_TOO_LONG or reason == SSL_R_ENCRYPTED_LENGTH_TOO_LONG
          or reason == SSL_R_DATA_LENGTH_TOO_LONG or reason == SSL_R_EXCESSIVE_MESSAGE_SIZE):
        snprintf(s.why, REASON_BYTES, b"a TLS record or message is larger than TLS allows (%s)", text)
    elif s.established:
        snprintf(s.why, REASON_BYTES, b"TLS failed: %s", text)
    else:
        snprintf(s.why, REASON_BYTES, b"the TLS handshake failed: %s", text)


cdef int finish(TlsSession* s, int result) noexcept nogil:
    s.over = result
    s.closing = s.closing or result != 1
    ERR_clear_error()
    return result


cdef int result_of(Transport* t, TlsSession* s, int result, bint reading) noexcept nogil:
    """Of a call of OpenSSL that did not succeed: -EAGAIN, 1 at the end of the stream, or minus an errno for ever."""
    cdef int code = SSL_get_error(s.ssl, result)
    if code == SSL_ERROR_WANT_READ or code == SSL_ERROR_WANT_WRITE:
        if reading:
            t.read_wants_write = code == SSL_ERROR_WANT_WRITE
        else:
            t.write_wants_read = code == SSL_ERROR_WANT_READ
        return -EAGAIN
    if s.peer.renegotiates or s.without_data > MOST_WITHOUT_DATA:
        explain(s)
        return finish(s, -EPROTO)
    if s.failure:
        return finish(s, -s.failure)
    if code == SSL_ERROR_ZERO_RETURN or s.end_of_stream:
        return finish(s, 1 if s.established else -ECONNRESET)
    if code == SSL_ERROR_SSL:
        explain(s)
        return finish(s, -EPROTO)
    return finish(s, -ECONNRESET)


# ---- the functions of the TransportLayer -----------------------------------------------------------------------------

cdef void begin(TlsSession* s) noexcept nogil:
    ERR_clear_error()
    s.drained = False
    s.full = False


cdef int tls_handshake(Transport* t) noexcept nogil:
    cdef TlsSession* s = <TlsSession*>t.session
    cdef int result
    cdef unsigned char fragment
    if s.established:
        return 1
    if s.over:
        return s.over
    begin(s)
    result = SSL_do_handshake(s.ssl)
    if result != 1:
        result = result_of(t, s, result, True)
        if result == -EPROTO:
            atomic_count(&s.peer.context.failed, 1)
        return result
    s.established = True
    t.read_wants_write = False
    s.in_kernel = BIO_get_ktls_send(SSL_get_wbio(s.ssl))
    fragment = SSL_SESSION_get_max_fragment_length(SSL_get0_session(s.ssl))
    if 1 <= fragment <= 4:
        s.record = 256 << fragment
    atomic_count(&s.peer.context.handshakes, 1)
    if SSL_session_reused(s.ssl):
        atomic_count(&s.peer.context.resumed, 1)
    return 1


cdef int64_t tls_read(Transport* t, uint8_t* into, size_t size) noexcept nogil:
    cdef TlsSession* s = <TlsSession*>t.session
    cdef size_t limit = min(size, <size_t>TLS_READ_AT_ONCE)
    cdef size_t done = 0
    cdef size_t n = 0
    cdef int result
    if s.over:
        return 0 if s.over == 1 else s.over
    begin(s)
    s.dry = False
    t.read_wants_write = False
    while done < limit:
        result = SSL_read_ex(s.ssl, into + done, limit - done, &n)
        if result != 1 or s.peer.renegotiates:
            result = result_of(t, s, result, True)
            s.dry = result == -EAGAIN
            if done:
                return done         # the next read returns the result
            return 0 if result == 1 else result
        s.without_data = 0
        done += n
    return done


cdef int64_t start_writing(Transport* t, TlsSession* s) noexcept nogil:
    """0 when the socket has taken the bytes of earlier calls; else minus an errno."""
    t.write_wants_read = False
    if s.over:
        return -EPIPE if s.over == 1 else s.over
    begin(s)
    if s.unsent == NULL:
        return 0
    s.unsent_at += send_bytes(s, s.unsent + s.unsent_at, s.unsent_size - s.unsent_at, True)
    if s.failure:
        return finish(s, -s.failure)
    if s.unsent_at < s.unsent_size:
        return -EAGAIN
    free(s.unsent)
    s.unsent = NULL
    return 0


cdef void send_gathered(TlsSession* s, bint more) noexcept nogil:
    """Sends what is in the thread's buffer, and keeps what the socket does not take."""
    cdef int64_t done = send_bytes(s, gathered, s.in_buffer, more)
    if not s.failure and done < s.in_buffer:
        s.unsent_size = s.in_buffer - done
        s.unsent_at = 0
        s.unsent = <uint8_t*>malloc(s.unsent_size)
        if s.unsent == NULL:
            s.failure = ENOMEM
        else:
            memcpy(s.unsent, gathered + done, s.unsent_size)
    s.in_buffer = 0
    if s.failure:
        finish(s, -s.failure)


cdef int64_t write_record(Transport* t, TlsSession* s, const uint8_t* data, int64_t size) noexcept nogil:
    """Encrypts at most one record: bytes, or minus an errno. -EAGAIN when the socket has no room for it."""
    cdef size_t n = 0
    cdef int result
    if s.in_buffer + s.record + RECORD_OVERHEAD > GATHER:
        send_gathered(s, True)
        if s.over or s.unsent != NULL:
            return s.over if s.over else -EAGAIN
    s.gathering = not s.in_kernel
    result = SSL_write_ex(s.ssl, data, size, &n)
    s.gathering = False
    if result == 1:
        s.owed = 0
        return n
    result = result_of(t, s, result, False)
    if result == -EAGAIN:
        s.owed = size
        return -EAGAIN
    return -EPIPE if result == 1 else result


cdef int64_t written(TlsSession* s, int64_t done, int64_t last, bint more, int64_t otherwise) noexcept nogil:
    """Ends a write of `done` bytes, `last` of them in its last record. `otherwise`: the result without a byte."""
    if s.over:
        s.in_buffer = 0
    elif s.in_buffer:
        send_gathered(s, more)
    elif s.held and not more:
        push(s.fd)
        s.held = False
    if s.unsent != NULL:
        s.owed = last
        done -= last
        otherwise = -EAGAIN
    if done:
        return done             # the next call returns the error, if any
    return s.over if s.over < 0 else otherwise


cdef int64_t tls_write(Transport* t, iovec* pieces, int count, bint more) noexcept nogil:
    cdef TlsSession* s = <TlsSession*>t.session
    cdef uint8_t joined[TLS_RECORD]
    cdef const uint8_t* record
    cdef int64_t position = 0       # in the first piece
    cdef int64_t left = 0
    cdef int64_t done = 0
    cdef int64_t last = 0
    cdef int64_t size, n, step
    cdef int i
    for i in range(count):
        left += pieces[i].iov_len
    if left < s.owed and not s.over:
        return -EIO                 # the caller has forgotten what it wrote
    n = start_writing(t, s)
    if n < 0:
        return n
    if not s.in_kernel:
        done = position = s.owed
        left -= done
        s.owed = 0
    while left > 0:
        while position >= <int64_t>pieces.iov_len:
            position -= pieces.iov_len
            pieces += 1
        size = min(left, s.owed if s.owed else s.record)
        if <int64_t>pieces.iov_len - position >= size:
            record = <const uint8_t*>pieces.iov_base + position
            position += size
        else:
            record = joined
            n = 0
            while n < size:
                step = min(size - n, <int64_t>pieces.iov_len - position)
                memcpy(joined + n, <const uint8_t*>pieces.iov_base + position, step)
                n += step
                position += step
                if n < size:
                    pieces += 1
                    position = 0
        n = write_record(t, s, record, size)
        if n < 0:
            return written(s, done, last, more, n)
        last = n
        done += n
        left -= n
        if n < size:
            break
    return written(s, done, last, more, 0)


cdef int64_t tls_send_file(Transport* t, int fd, int64_t position, int64_t size, int64_t* slow) noexcept nogil:
    cdef TlsSession* s = <TlsSession*>t.session
    cdef uint8_t buffer[TLS_FILE_BUFFER]
    cdef NetworkThread* thread
    cdef int64_t done = 0
    cdef int64_t last = 0
    cdef int64_t have = 0
    cdef int64_t at = 0
    cdef int64_t step
    cdef int64_t n = start_writing(t, s)
    if n < 0:
        return n
    if s.in_kernel and not s.owed:
        return send_file_in_kernel(t, s, fd, position, size, slow)
    if not s.in_kernel:
        done = s.owed
        s.owed = 0
    while done < size:
        if at == have:
            step = s.owed if s.owed else min(size - done, <int64_t>TLS_FILE_BUFFER)
            thread = blocking_begin(slow)
            have = file_read(fd, buffer, step, position + done)
            blocking_end(thread)
            if have < step:
                # Shorter than the caller believes, or not to be read.
                return written(s, done, last, t.corked, min(have, <int64_t>0))
            at = 0
        step = s.owed if s.owed else min(have - at, s.record)
        n = write_record(t, s, buffer + at, step)
        if n < 0:
            return written(s, done, last, t.corked, n)
        last = n
        done += n
        at += n
    return written(s, done, last, t.corked, 0)


cdef int64_t send_file_in_kernel(Transport* t, TlsSession* s, int fd, int64_t position, int64_t size,
                                 int64_t* slow) noexcept nogil:
    cdef NetworkThread* thread = blocking_begin(slow)
    cdef long n = SSL_sendfile(s.ssl, fd, position, size, 0)
    blocking_end(thread)
    if n >= 0:
        return n
    n = result_of(t, s, <int>n, False)
    return -EPIPE if n == 1 else n


cdef void tls_cork(Transport* t, bint on) noexcept nogil:
    cdef TlsSession* s = <TlsSession*>t.session
    if s.in_kernel:
        cork(t.fd, on)
    elif not on and s.held:
        push(t.fd)
        s.held = False


cdef int64_t tls_pending(Transport* t) noexcept nogil:
    cdef TlsSession* s = <TlsSession*>t.session
    cdef int64_t n
    if not s.established:
        return 0
    if s.over:
        return 1        # the read that tells
    n = SSL_pending(s.ssl)
    return n if n else not s.dry and SSL_has_pending(s.ssl)


cdef bint tls_ended(Transport* t) noexcept nogil:
    cdef TlsSession* s = <TlsSession*>t.session
    cdef uint8_t byte
    cdef size_t n
    cdef int result
    if s.over:
        return True
    begin(s)
    result = SSL_peek_ex(s.ssl, &byte, 1, &n)
    if result == 1:
        s.dry = False
        return False
    result = result_of(t, s, result, True)
    s.dry = result == -EAGAIN
    return result != -EAGAIN


cdef void say_goodbye(TlsSession* s) noexcept nogil:
    """Sends close_notify, if the socket takes it now."""
    if s.established and not s.closing and not s.owed:
        s.closing = True
        begin(s)
        SSL_shutdown(s.ssl)
        ERR_clear_error()


cdef void tls_shut_down(Transport* t) noexcept nogil:
    cdef uint8_t rest[4096]
    cdef int i
    say_goodbye(<TlsSession*>t.session)
    shutdown(t.fd, SHUT_WR)
    for i in range(READS_AT_THE_END):
        if recv(t.fd, rest, sizeof(rest), MSG_DONTWAIT) <= 0:
            return


cdef void tls_abort(Transport* t) noexcept nogil:
    shutdown(t.fd, SHUT_RDWR)


cdef void tls_close(Transport* t) noexcept nogil:
    cdef TlsSession* s = <TlsSession*>t.session
    if s == NULL:
        return
    say_goodbye(s)
    SSL_free(s.ssl)
    free(s.unsent)
    close(s.fd)
    tls_context_unref(s.peer.context)
    del s
    t.session = NULL
    t.fd = -1


cdef const char* tls_error(Transport* t) noexcept nogil:
    cdef TlsSession* s = <TlsSession*>t.session
    if s == NULL or not s.why[0]:
        return NULL
    return <const char*>s.why


cdef TransportFunctions functions
functions.handshake = tls_handshake
functions.read = tls_read
functions.write = tls_write
functions.send_file = tls_send_file
functions.cork = tls_cork
functions.pending = tls_pending
functions.ended = tls_ended
functions.shut_down = tls_shut_down
functions.abort = tls_abort
functions.close = tls_close
functions.error = tls_error


# ---- a connection ----------------------------------------------------------------------------------------------------

cdef bint set_up(TlsSession* s, const char* host) noexcept nogil:
    """Gives the SSL its ways to the socket, and a client's one the server's name. False when memory is out."""
    cdef BIO* reads = BIO_new(method)
    cdef BIO* writes = reads
    if reads == NULL:
        return False
    BIO_set_data(reads, s)
    BIO_set_init(reads, 1)
    if s.peer.context.in_kernel:
        writes = BIO_new_socket(s.fd, BIO_NOCLOSE)
        if writes == NULL:
            BIO_free(reads)
            return False
    SSL_set_bio(s.ssl, reads, writes)
    SSL_set_app_data(s.ssl, &s.peer)
    if s.peer.context.server:
        SSL_set_accept_state(s.ssl)
        return True
    SSL_set_connect_state(s.ssl)
    if host == NULL:
        return True
    # An address stands in no SNI; the certificate must name it as an address.
    if X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(s.ssl), host):
        if not s.peer.context.check_hostname:
            X509_VERIFY_PARAM_set1_ip(SSL_get0_param(s.ssl), NULL, 0)
    else:
        if not SSL_set_tlsext_host_name(s.ssl, host):
            return False
        if s.peer.context.check_hostname:
            SSL_set_hostflags(s.ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS)
            if not SSL_set1_host(s.ssl, host):
                return False
    tls_resume(&s.peer, s.ssl)
    return True


cdef int transport_tls(Transport* t, int fd, TlsContextState* context, const char* host, int port) noexcept nogil:
    cdef char text[16]
    cdef TlsSession* s = new TlsSession()
    s.peer.context = context
    s.fd = fd
    s.record = TLS_RECORD
    if host != NULL:
        snprintf(text, sizeof(text), b":%d", port)
        s.peer.server.assign(host)
        s.peer.server.append(<const char*>text)
    s.ssl = SSL_new(<SSL_CTX*>context.context)
    if s.ssl == NULL or not set_up(s, host):
        ERR_clear_error()
        SSL_free(s.ssl)
        del s
        return ENOMEM
    tls_context_ref(context)
    t.functions = &functions
    t.fd = fd
    t.corked = False
    t.read_wants_write = False
    t.write_wants_read = False
    t.session = s
    return 0


cdef bint is_tls(Transport* t) noexcept nogil:
    return t.functions == &functions and t.session != NULL


cdef bint tls_peer_certificate(Transport* t, string* der) noexcept nogil:
    cdef X509* certificate
    cdef unsigned char* data = NULL
    cdef int size
    if not is_tls(t):
        return False
    certificate = SSL_get0_peer_certificate((<TlsSession*>t.session).ssl)
    if certificate == NULL:
        return False
    size = i2d_X509(certificate, &data)
    if size <= 0:
        ERR_clear_error()
        return False
    der.assign(<const char*>data, size)
    OPENSSL_free(data)
    return True


cdef const char* tls_cipher_suite(Transport* t) noexcept nogil:
    cdef const char* name = NULL
    if is_tls(t):
        name = SSL_CIPHER_standard_name(SSL_get_current_cipher((<TlsSession*>t.session).ssl))
    return name if name != NULL else <const char*>b""


cdef const char* tls_protocol(Transport* t) noexcept nogil:
    return SSL_get_version((<TlsSession*>t.session).ssl) if is_tls(t) else <const char*>b""


cdef bint tls_resumed(Transport* t) noexcept nogil:
    return is_tls(t) and SSL_session_reused((<TlsSession*>t.session).ssl)


cdef bint tls_in_kernel(Transport* t) noexcept nogil:
    return is_tls(t) and (<TlsSession*>t.session).in_kernel
