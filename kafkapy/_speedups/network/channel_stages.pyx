"""Connections before they are served (see channel_stages.pxd)."""

from cython.operator cimport dereference
from libc.errno cimport EAGAIN, ECONNRESET
from libc.stdint cimport int64_t
from libc.stdio cimport snprintf
from libc.string cimport strerror
from libcpp.string cimport string
from libcpp.unordered_map cimport unordered_map

from kafkapy._speedups.base.epoll cimport EPOLLIN, EPOLLRDHUP
from kafkapy._speedups.base.posix cimport atomic_count, monotonic_ns, pthread_mutex_lock, pthread_mutex_unlock
from kafkapy._speedups.base.tls cimport TlsContextState, tls_context_unref
from kafkapy._speedups.base.tls_transport cimport tls_cipher_suite, tls_peer_certificate, tls_protocol, transport_tls
from kafkapy._speedups.base.transport cimport transport_plaintext, transport_read_event
from kafkapy._speedups.network.channel_handler cimport (
    channel_be_ready,
    channel_close,
    channel_finish,
    channel_forget_request,
    channel_log_closing,
    channel_say_farewell,
    channel_start_reply,
    hand_to_python,
)
from kafkapy._speedups.network.connection cimport (
    CLOSED_BY_BROKER,
    CLOSED_BY_PEER,
    LEVEL_DEBUG,
    LEVEL_INFO,
    listener_tls,
)
from kafkapy._speedups.network.frame_guard cimport guard_lift
from kafkapy._speedups.network.pending_request cimport PendingRequest, pending_new
from kafkapy._speedups.network.processor_state cimport Due
from kafkapy._speedups.network.selector cimport (
    MUTE_REQUEST,
    STAGE_HANDSHAKE,
    STAGE_PRINCIPAL,
    STAGE_READY,
    STAGE_SASL,
    selector_touch,
    selector_want,
)
from kafkapy._speedups.requests.data_plane cimport API_SASL_AUTHENTICATE, ASK_PRINCIPAL, Ask

cdef Ask principal_ask
principal_ask.kind = ASK_PRINCIPAL


cdef KafkaChannel* channel_of(ProcessorState* p, int64_t connection_id) noexcept nogil:
    cdef unordered_map[int64_t, KafkaChannel*].iterator it = p.channels.find(connection_id)
    return dereference(it).second if it != p.channels.end() else NULL


cdef int stage_begin(ProcessorState* p, KafkaChannel* channel, int fd, ListenerSecurity* security) noexcept nogil:
    cdef TlsContextState* tls
    cdef Due due
    cdef int error
    channel.max_frame = p.reader.max_frame
    channel.security = security
    if security == NULL:
        transport_plaintext(&channel.transport, fd)
        return 0
    tls = listener_tls(p.registry, security)
    if tls != NULL:
        error = transport_tls(&channel.transport, fd, tls, NULL, 0)
        tls_context_unref(tls)
        if error:
            return error
        channel.stage = STAGE_HANDSHAKE
        channel.guarded = True
    else:
        transport_plaintext(&channel.transport, fd)
        if security.sasl:
            begin_sasl(p, channel)
        else:
            channel.stage = STAGE_PRINCIPAL     # stage_begun asks, once the channel is in the Selector
            channel.guarded = True
    due.at_ns = monotonic_ns() + security.setup_ns
    due.connection = channel.info.id
    p.setups.push_back(due)
    return 0


cdef void stage_begun(ProcessorState* p, KafkaChannel* channel) noexcept nogil:
    if channel.stage == STAGE_PRINCIPAL:
        ask_for_principal(p, channel)


cdef void begin_sasl(ProcessorState* p, KafkaChannel* channel) noexcept nogil:
    channel.stage = STAGE_SASL
    channel.guarded = True
    channel.max_frame = min(channel.security.max_receive, p.reader.max_frame)


# ---- TLS -------------------------------------------------------------------------------------------------------------

cdef void stage_event(ProcessorState* p, KafkaChannel* channel) noexcept nogil:
    if channel.closed or channel.is_waiting:
        return
    if p.handshakes_ns < HANDSHAKES_NS and p.waiting.empty():
        handshake(p, channel)
        return
    # Its events would fill the Selector's turns.
    selector_want(&p.selector, channel, EPOLLRDHUP)
    channel.is_waiting = True
    p.waiting.push_back(channel.info.id)


cdef void stage_take_turns(ProcessorState* p) noexcept nogil:
    cdef KafkaChannel* channel
    if p.waiting.empty():
        p.handshakes_ns = 0
        return
    # Their first one has waited for a turn.
    while True:
        channel = channel_of(p, p.waiting.front())
        p.waiting.pop_front()
        if channel != NULL:
            channel.is_waiting = False
            handshake(p, channel)
        if p.waiting.empty() or p.handshakes_ns >= HANDSHAKES_NS:
            break
    p.handshakes_ns = 0


cdef void handshake(ProcessorState* p, KafkaChannel* channel) noexcept nogil:
    cdef int64_t started = monotonic_ns()
    cdef int result = channel.transport.functions.handshake(&channel.transport)
    cdef const char* reason
    cdef char why[400]
    p.handshakes_ns += monotonic_ns() - started
    if result == 1:
        selector_touch(&p.selector, channel, started)
        selector_want(&p.selector, channel, EPOLLIN | EPOLLRDHUP)
        after_handshake(p, channel)
        return
    if result == -EAGAIN:
        selector_want(&p.selector, channel, transport_read_event(&channel.transport) | EPOLLRDHUP)
        return
    reason = channel.transport.functions.error(&channel.transport)
    if reason != NULL:
        atomic_count(&channel.security.failed, 1)
        channel_log_closing(p, channel, LEVEL_INFO, reason)
        channel.close_after_send = True     # of the alert that tells the peer why
        channel_close(p, channel, CLOSED_BY_BROKER)
        return
    snprintf(why, sizeof(why), b"the peer ended it within the TLS handshake (%s)", strerror(-result))
    channel_log_closing(p, channel, LEVEL_DEBUG if result == -ECONNRESET else LEVEL_INFO, why)
    channel_close(p, channel, CLOSED_BY_PEER)


cdef void after_handshake(ProcessorState* p, KafkaChannel* channel) noexcept nogil:
    cdef string certificate
    cdef bint shown = tls_peer_certificate(&channel.transport, &certificate)
    pthread_mutex_lock(&p.registry.mutex)
    channel.info.tls_protocol.assign(tls_protocol(&channel.transport))
    channel.info.cipher_suite.assign(tls_cipher_suite(&channel.transport))
    channel.info.peer_certificate.swap(certificate)
    pthread_mutex_unlock(&p.registry.mutex)
    if channel.security.sasl:
        begin_sasl(p, channel)
    elif shown or channel.security.ask_principal:
        ask_for_principal(p, channel)
        return
    else:
        atomic_count(&channel.security.authenticated, 1)
        guard_lift(channel, p.reader.max_frame, 0)
    # A first request may have come with the last bytes of the handshake.
    if channel.transport.functions.pending(&channel.transport) > 0:
        channel_be_ready(p, channel)


cdef void ask_for_principal(ProcessorState* p, KafkaChannel* channel) noexcept nogil:
    """Python gives the connection its principal. The question travels as a request without bytes."""
    cdef PendingRequest* pending = pending_new(p.kept, p.plane, p.mailbox, p.pool, channel.info, &p.left)
    p.kept = NULL
    channel.request = pending
    channel.stage = STAGE_PRINCIPAL
    channel.mute |= MUTE_REQUEST
    pending.stage = STAGE_PRINCIPAL
    pending.frame.api_key = API_SASL_AUTHENTICATE
    pending.frame.api_version = -1
    pending.frame.correlation_id = 0
    pending.frame.client_id = NULL
    pending.frame.client_id_size = -1
    pending.frame.body = pending.small
    pending.frame.body_size = 0
    pending.frame.received_ns = monotonic_ns()
    pending.ask = &principal_ask
    hand_to_python(p, channel)


cdef void stage_authenticated(ProcessorState* p, KafkaChannel* channel, Send* reply) noexcept nogil:
    cdef int64_t* counter
    if channel.security != NULL:
        counter = &channel.security.authenticated
        if channel.stage == STAGE_READY:
            counter = &channel.security.reauthenticated
        atomic_count(counter, 1)
    guard_lift(channel, p.reader.max_frame, channel.request.session_end_ns)
    if reply != NULL:
        channel_start_reply(p, channel, reply)
        return
    channel_forget_request(p, channel)
    channel_finish(p, channel)


# ---- time ------------------------------------------------------------------------------------------------------------

cdef bint is_set_up(KafkaChannel* channel) noexcept nogil:
    """Whether its setup time no longer counts."""
    return channel == NULL or channel.stage == STAGE_READY


cdef void stage_expire(ProcessorState* p) noexcept nogil:
    cdef KafkaChannel* channel
    cdef char why[160]
    cdef size_t i = 0
    while not p.setups.empty():
        channel = channel_of(p, p.setups.front().connection)
        if not is_set_up(channel):
            if p.setups.front().at_ns > p.now_ns:
                break
            atomic_count(&channel.security.timed_out, 1)
            snprintf(why, sizeof(why), b"it was not authenticated within %lld ms",
                     <long long>(channel.security.setup_ns // 1_000_000))
            channel_log_closing(p, channel, LEVEL_INFO, why)
            channel_close(p, channel, CLOSED_BY_BROKER)
        p.setups.pop_front()
    while i < p.farewells.size():
        if p.farewells[i].at_ns > p.now_ns:
            i += 1
            continue
        channel = channel_of(p, p.farewells[i].connection)
        p.farewells[i] = p.farewells.back()
        p.farewells.pop_back()
        if channel != NULL:
            channel_say_farewell(p, channel)


cdef int64_t stage_next_due(ProcessorState* p) noexcept nogil:
    cdef int64_t due = -1
    cdef size_t i
    if not p.waiting.empty():
        return 0
    if not p.setups.empty():
        due = p.setups.front().at_ns
    for i in range(p.farewells.size()):
        if due < 0 or p.farewells[i].at_ns < due:
            due = p.farewells[i].at_ns
    return due
