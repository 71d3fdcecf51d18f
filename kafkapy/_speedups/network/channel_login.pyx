"""Logins by SCRAM on the network thread (see channel_login.pxd)."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.string cimport memcmp
from libcpp.string cimport string

from kafkapy._speedups.base.posix cimport (
    atomic_count,
    atomic_load,
    monotonic_ns,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)
from kafkapy._speedups.base.scram cimport (
    SCRAM_MECHANISMS,
    LoginByScram,
    ScramFirst,
    scram_begin,
    scram_finish,
    scram_name,
    scram_read_first,
)
from kafkapy._speedups.base.send cimport Send, send_new, send_take_buffer
from kafkapy._speedups.base.wire cimport (
    ByteBuffer,
    Cursor,
    buffer_free,
    buffer_init,
    cursor_init,
    read_bytes,
    read_string,
    read_unsigned_varint,
    remaining,
    write_int16,
    write_int32,
    write_int64,
    write_raw,
    write_unsigned_varint,
)
from kafkapy._speedups.network.channel_handler cimport (
    channel_close,
    channel_fail,
    channel_log_closing,
    channel_start_reply,
)
from kafkapy._speedups.network.channel_stages cimport stage_authenticated
from kafkapy._speedups.network.connection cimport (
    CLOSED_BY_BROKER,
    LEVEL_INFO,
    LEVEL_WARNING,
    LOGGER_REQUEST_CHANNEL,
    network_log,
)
from kafkapy._speedups.network.pending_request cimport PendingRequest
from kafkapy._speedups.network.request_log cimport REQUEST_LOG_OFF
from kafkapy._speedups.network.selector cimport STAGE_SASL
from kafkapy._speedups.requests.data_plane cimport (
    API_SASL_AUTHENTICATE,
    API_SASL_HANDSHAKE,
    API_VERSIONS,
    Frame,
)
from kafkapy._speedups.requests.request_header cimport response_header_write

cdef enum:
    WITH_REQUESTS = 1           # the version of SaslHandshake whose tokens come in SaslAuthenticate requests
    WITH_LIFETIME = 1           # versions of SaslAuthenticate
    FLEXIBLE = 2
    SASL_AUTHENTICATION_FAILED = 58


cdef void login_free(KafkaChannel* channel) noexcept nogil:
    cdef LoginByScram* login = channel.login
    channel.login = NULL
    del login


cdef bint login_serve(ProcessorState* p, KafkaChannel* channel, int64_t started) noexcept nogil:
    cdef PendingRequest* pending = channel.request
    cdef int api = pending.frame.api_key
    if channel.stage != STAGE_SASL or pending.is_token or channel.login_with_python:
        return False
    if channel.login == NULL:
        if api == API_VERSIONS:
            return False            # may come before a login of either kind
        if api == API_SASL_HANDSHAKE and begin(p, channel, started):
            return True
    elif api == API_SASL_AUTHENTICATE and go_on(p, channel, started):
        return True
    channel.login_with_python = True
    if channel.login != NULL:
        pending.scram = channel.login.table.mechanism + 1
        login_free(channel)
    return False


cdef void count_work(ProcessorState* p, PendingRequest* pending, int64_t started) noexcept nogil:
    p.now_ns = monotonic_ns()
    pending.local_ns = p.now_ns - started
    atomic_count(&p.plane.apis[pending.frame.api_key].local_ns, pending.local_ns)


cdef Send* reply_of(ProcessorState* p, const Frame* frame, ByteBuffer* body) noexcept nogil:
    """The response with that body, which is freed; NULL without memory."""
    cdef ByteBuffer out
    cdef Send* send
    buffer_init(&out)
    response_header_write(p.apis, frame, body.size, &out)
    write_raw(&out, body.data, body.size)
    out.error |= body.error
    buffer_free(body)
    if out.error:
        buffer_free(&out)
        return NULL
    send = send_new()
    send_take_buffer(send, &out)
    return send


cdef void out_of_memory(ProcessorState* p, KafkaChannel* channel) noexcept nogil:
    channel_log_closing(p, channel, LEVEL_WARNING, b"the broker is out of memory")
    channel_close(p, channel, CLOSED_BY_BROKER)


# ---- SaslHandshake ---------------------------------------------------------------------------------------------------

cdef bint begin(ProcessorState* p, KafkaChannel* channel, int64_t started) noexcept nogil:
    cdef PendingRequest* pending = channel.request
    cdef ByteBuffer body
    cdef Cursor c
    cdef Send* reply
    cdef int32_t size
    cdef const uint8_t* name
    cdef int64_t served = atomic_load(&channel.security.scram_served)
    cdef int mechanism
    cursor_init(&c, pending.frame.body, pending.frame.body_size)
    name = read_string(&c, False, &size)
    # Python logs the requests.
    if (name == NULL or remaining(&c) or pending.frame.api_version != WITH_REQUESTS or not served
            or atomic_load(&p.plane.request_log) != REQUEST_LOG_OFF):
        return False
    mechanism = 0
    while mechanism < SCRAM_MECHANISMS:
        if served >> mechanism & 1 and size == 13 and memcmp(name, scram_name(mechanism), 13) == 0:
            break
        mechanism += 1
    if mechanism == SCRAM_MECHANISMS:
        return False
    buffer_init(&body)
    write_int16(&body, 0)
    pthread_mutex_lock(&p.registry.mutex)
    write_raw(&body, channel.security.mechanisms.data(), channel.security.mechanisms.size())
    pthread_mutex_unlock(&p.registry.mutex)
    channel.login = new LoginByScram()
    channel.login.table = channel.security.scram[mechanism]
    reply = reply_of(p, &pending.frame, &body)
    count_work(p, pending, started)
    if reply == NULL:
        out_of_memory(p, channel)
    else:
        channel_start_reply(p, channel, reply)
    return True


# ---- SaslAuthenticate ------------------------------------------------------------------------------------------------

cdef Send* answer(ProcessorState* p, const Frame* frame, int16_t error, const string& message,
                  const string& token) noexcept nogil:
    cdef ByteBuffer body
    cdef bint flexible = frame.api_version >= FLEXIBLE
    buffer_init(&body)
    write_int16(&body, error)
    if flexible:
        write_unsigned_varint(&body, <uint32_t>message.size() + 1)
        write_raw(&body, message.data(), message.size())
        write_unsigned_varint(&body, <uint32_t>token.size() + 1)
    else:
        write_int16(&body, <int16_t>message.size())
        write_raw(&body, message.data(), message.size())
        write_int32(&body, <int32_t>token.size())
    write_raw(&body, token.data(), token.size())
    if frame.api_version >= WITH_LIFETIME:
        write_int64(&body, 0)
    if flexible:
        write_unsigned_varint(&body, 0)
    return reply_of(p, frame, &body)


cdef bint go_on(ProcessorState* p, KafkaChannel* channel, int64_t started) noexcept nogil:
    cdef PendingRequest* pending = channel.request
    cdef LoginByScram* login = channel.login
    cdef bint flexible = pending.frame.api_version >= FLEXIBLE
    cdef Cursor c
    cdef const uint8_t* token
    cdef int32_t size
    cdef const char* refused = NULL
    cdef ScramFirst first
    cdef string made
    cdef string message
    cdef Send* reply
    cursor_init(&c, pending.frame.body, pending.frame.body_size)
    token = read_bytes(&c, flexible, &size)
    if flexible and read_unsigned_varint(&c):
        return False
    if token == NULL or c.error or remaining(&c):
        return False
    if not login.challenged:
        if not scram_read_first(token, size, &first) or first.by_token or first.authzid.size():
            return False
        if not scram_begin(login.table, &first, &login.exchange):
            out_of_memory(p, channel)
            return True
        login.challenged = True
        reply = answer(p, &pending.frame, 0, message, login.exchange.server_first)
        count_work(p, pending, started)
        if reply == NULL:
            out_of_memory(p, channel)
        else:
            channel_start_reply(p, channel, reply)
        return True
    refused = scram_finish(&login.exchange, token, size, &made)
    if refused != NULL:
        message.assign(b"Authentication failed during authentication due to invalid credentials with SASL mechanism ")
        message.append(scram_name(login.table.mechanism))
    reply = answer(p, &pending.frame, SASL_AUTHENTICATION_FAILED if refused != NULL else 0, message, made)
    count_work(p, pending, started)
    if reply == NULL:
        out_of_memory(p, channel)
    elif refused != NULL:
        refuse(p, channel, reply, message, refused)
    else:
        accept(p, channel, reply)
    return True


cdef void refuse(ProcessorState* p, KafkaChannel* channel, Send* reply, const string& message,
                 const char* why) noexcept nogil:
    cdef char line[512]
    snprintf(line, sizeof(line), b"Failed authentication of connection %lld from %s:%d: %s (%s)",
             <long long>channel.info.id, channel.info.peer_host.c_str(), channel.info.peer_port, message.c_str(), why)
    network_log(p.registry, LEVEL_INFO, LOGGER_REQUEST_CHANNEL, line)
    login_free(channel)
    channel_fail(p, channel, reply, -1)


cdef void accept(ProcessorState* p, KafkaChannel* channel, Send* reply) noexcept nogil:
    cdef LoginByScram* login = channel.login
    pthread_mutex_lock(&p.registry.mutex)
    channel.info.principal = login.exchange.credential.principal
    channel.info.token_authenticated = False
    pthread_mutex_unlock(&p.registry.mutex)
    channel.info.authorization.owner = <uint64_t>login.exchange.credential.owner
    channel.request.session_end_ns = 0
    login_free(channel)
    stage_authenticated(p, channel, reply)
