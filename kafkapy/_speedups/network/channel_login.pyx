"""Logins by SCRAM on the network thread (see channel_login.pxd)."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.string cimport memcmp
from libcpp.string cimport string

from kafkapy._speedups.base.error_codes cimport ERROR_NONE, ERROR_SASL_AUTHENTICATION_FAILED
from kafkapy._speedups.base.posix cimport atomic_load, pthread_mutex_lock, pthread_mutex_unlock
from kafkapy._speedups.base.scram cimport (
    SCRAM_MECHANISMS,
    LoginByScram,
    ScramCredential,
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
from kafkapy._speedups.network.connection cimport LEVEL_INFO, LOGGER_REQUEST_CHANNEL, network_log
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
    NAME_BYTES = 13             # of SCRAM-SHA-256 and SCRAM-SHA-512
    WITH_REQUESTS = 1           # the version of SaslHandshake whose tokens come in SaslAuthenticate requests
    WITH_LIFETIME = 1           # versions of SaslAuthenticate
    FLEXIBLE = 2


cdef void login_free(KafkaChannel* channel) noexcept nogil:
    cdef LoginByScram* login = channel.login
    channel.login = NULL
    del login


cdef LoginResult login_serve(DataPlaneState* plane, ConnectionRegistryState* registry, const ApiTableState* apis,
                             KafkaChannel* channel, Send** reply) noexcept nogil:
    cdef PendingRequest* pending = channel.request
    cdef int api = pending.frame.api_key
    cdef LoginResult result = LOGIN_OF_PYTHON
    if channel.stage != STAGE_SASL or pending.is_token or channel.login_with_python:
        return LOGIN_OF_PYTHON
    if channel.login == NULL:
        if api == API_VERSIONS:
            return LOGIN_OF_PYTHON      # may come before a login of either kind
        # Python logs the requests.
        if api == API_SASL_HANDSHAKE and atomic_load(&plane.request_log) == REQUEST_LOG_OFF:
            result = begin(registry, apis, channel, reply)
    elif api == API_SASL_AUTHENTICATE:
        result = go_on(registry, apis, channel, reply)
    if result == LOGIN_OF_PYTHON:
        channel.login_with_python = True
        if channel.login != NULL:
            pending.scram = channel.login.table.mechanism + 1
    if result != LOGIN_GOES_ON:
        login_free(channel)
    return result


cdef Send* reply_of(const ApiTableState* apis, const Frame* frame, ByteBuffer* body) noexcept nogil:
    """The response with that body, which is freed; NULL without memory."""
    cdef ByteBuffer out
    cdef Send* send
    buffer_init(&out)
    response_header_write(apis, frame, body.size, &out)
    write_raw(&out, body.data, body.size)
    out.error |= body.error
    buffer_free(body)
    if out.error:
        buffer_free(&out)
        return NULL
    send = send_new()
    send_take_buffer(send, &out)
    return send


# ---- SaslHandshake ---------------------------------------------------------------------------------------------------

cdef LoginResult begin(ConnectionRegistryState* registry, const ApiTableState* apis, KafkaChannel* channel,
                       Send** reply) noexcept nogil:
    cdef const Frame* frame = &channel.request.frame
    cdef int64_t served = atomic_load(&channel.security.scram_served)
    cdef ByteBuffer body
    cdef Cursor c
    cdef const uint8_t* name
    cdef int32_t size
    cdef int mechanism = 0
    cursor_init(&c, frame.body, frame.body_size)
    name = read_string(&c, False, &size)
    if name == NULL or remaining(&c) or frame.api_version != WITH_REQUESTS or size != NAME_BYTES:
        return LOGIN_OF_PYTHON
    while not (served >> mechanism & 1 and memcmp(name, scram_name(mechanism), NAME_BYTES) == 0):
        mechanism += 1
        if mechanism == SCRAM_MECHANISMS:
            return LOGIN_OF_PYTHON
    channel.login = new LoginByScram()
    channel.login.table = channel.security.scram[mechanism]
    buffer_init(&body)
    write_int16(&body, ERROR_NONE)
    pthread_mutex_lock(&registry.mutex)
    write_raw(&body, channel.security.mechanisms.data(), channel.security.mechanisms.size())
    pthread_mutex_unlock(&registry.mutex)
    reply[0] = reply_of(apis, frame, &body)
    return LOGIN_GOES_ON


# ---- SaslAuthenticate ------------------------------------------------------------------------------------------------

cdef Send* answer(const ApiTableState* apis, const Frame* frame, int16_t error, const string& message,
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
    return reply_of(apis, frame, &body)


cdef LoginResult go_on(ConnectionRegistryState* registry, const ApiTableState* apis, KafkaChannel* channel,
                       Send** reply) noexcept nogil:
    cdef const Frame* frame = &channel.request.frame
    cdef LoginByScram* login = channel.login
    cdef bint flexible = frame.api_version >= FLEXIBLE
    cdef Cursor c
    cdef const uint8_t* token
    cdef int32_t size
    cdef ScramFirst first
    cdef const char* why
    cdef string message
    cdef string made
    cursor_init(&c, frame.body, frame.body_size)
    token = read_bytes(&c, flexible, &size)
    if flexible and read_unsigned_varint(&c):
        return LOGIN_OF_PYTHON
    if token == NULL or c.error or remaining(&c):
        return LOGIN_OF_PYTHON
    if not login.challenged:
        if not scram_read_first(token, size, &first) or first.by_token or first.authzid.size():
            return LOGIN_OF_PYTHON
        login.challenged = True
        if scram_begin(login.table, &first, &login.exchange):
            reply[0] = answer(apis, frame, ERROR_NONE, message, login.exchange.server_first)
        return LOGIN_GOES_ON
    why = scram_finish(&login.exchange, token, size, &made)
    if why == NULL:
        accept(registry, channel)
        reply[0] = answer(apis, frame, ERROR_NONE, message, made)
        return LOGIN_ACCEPTED
    message.assign(b"Authentication failed during authentication due to invalid credentials with SASL mechanism ")
    message.append(scram_name(login.table.mechanism))
    refuse(registry, channel, message, why)
    reply[0] = answer(apis, frame, ERROR_SASL_AUTHENTICATION_FAILED, message, made)
    return LOGIN_REFUSED


cdef void accept(ConnectionRegistryState* registry, KafkaChannel* channel) noexcept nogil:
    cdef const ScramCredential* credential = &channel.login.exchange.credential
    pthread_mutex_lock(&registry.mutex)
    channel.info.principal = credential.principal
    channel.info.token_authenticated = False
    pthread_mutex_unlock(&registry.mutex)
    channel.info.authorization.owner = <uint64_t>credential.owner


cdef void refuse(ConnectionRegistryState* registry, KafkaChannel* channel, const string& message,
                 const char* why) noexcept nogil:
    cdef char line[512]
    snprintf(line, sizeof(line), b"Failed authentication of connection %lld from %s:%d: %s (%s)",
             <long long>channel.info.id, channel.info.peer_host.c_str(), channel.info.peer_port, message.c_str(), why)
    network_log(registry, LEVEL_INFO, LOGGER_REQUEST_CHANNEL, line)
