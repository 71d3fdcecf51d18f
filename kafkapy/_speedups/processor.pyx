"""The network thread (see processor.pxd)."""

cimport cython
from cython.operator cimport dereference, preincrement
from libc.errno cimport EAGAIN
from libc.stdint cimport int16_t, int64_t, uint8_t, uint64_t
from libc.stdio cimport snprintf
from libc.string cimport memcpy, memset, strerror
from libcpp.unordered_map cimport unordered_map
from libcpp.vector cimport vector
from posix.unistd cimport close

from kafkapy._speedups.connection cimport (
    CLOSED_AT_STOP,
    CLOSED_BY_BROKER,
    CLOSED_BY_PEER,
    CLOSED_EXCESS,
    CLOSED_IDLE,
    LEVEL_DEBUG,
    LEVEL_INFO,
    LEVEL_WARNING,
    LOGGER_PROCESSOR,
    ConnectionInfo,
    connection_closed,
    connection_unref,
    network_log,
)
from kafkapy._speedups.connection_quotas cimport quota_exceeded
from kafkapy._speedups.data_plane cimport (
    API_FETCH,
    API_PRODUCE,
    OUTCOME_ASK,
    OUTCOME_CLOSE,
    OUTCOME_NO_REPLY,
    OUTCOME_PARKED,
    OUTCOME_REPLY,
    ApiCounters,
    Frame,
    Outcome,
)
from kafkapy._speedups.fetch_request cimport fetch_handle, fetch_resume
from kafkapy._speedups.frame_reader cimport (
    FRAME_INVALID,
    FRAME_NO_MEMORY,
    FRAME_PARTIAL,
    FRAME_WHOLE,
    PLACE_OWNED,
    PLACE_SCRATCH,
    FrameStatus,
    WholeFrame,
    reader_close,
    reader_donate,
    reader_fill,
    reader_next,
    reader_open,
    reader_release,
    reader_stash,
)
from kafkapy._speedups.mailbox cimport (
    MAIL_CLOSE,
    MAIL_CLOSE_CONNECTION,
    MAIL_CONNECTION,
    MAIL_LOOK,
    MAIL_NO_REPLY,
    MAIL_REPLY,
    MAIL_RESUME,
    MAIL_WAKE,
    Mail,
    mailbox_attach,
    mailbox_collect,
    mailbox_give_back,
    mailbox_post_token,
    mailbox_take,
)
from kafkapy._speedups.memory_pool cimport buffer_take, pool_add_listener, pool_available, pool_remove_listener, pool_reserve
from kafkapy._speedups.pending_request cimport PendingRequest, pending_new, pending_ref, pending_unref
from kafkapy._speedups.posix cimport atomic_add, atomic_count, atomic_load, atomic_store, monotonic_ns
from kafkapy._speedups.produce_request cimport produce_handle, produce_resume
from kafkapy._speedups.purgatory cimport (
    PurgatoryEntry,
    purgatory_add,
    purgatory_next_deadline,
    purgatory_pop_expired,
    purgatory_remove,
)
from kafkapy._speedups.request_channel cimport RequestChannel, channel_push
from kafkapy._speedups.request_header cimport (
    HEADER_OK,
    HEADER_TRUNCATED,
    HEADER_UNKNOWN_API,
    HEADER_UNSUPPORTED_API_VERSIONS,
    HeaderStatus,
    request_header_decode,
)
from kafkapy._speedups.selector cimport (
    EPOLLERR,
    EPOLLHUP,
    EPOLLIN,
    EPOLLOUT,
    EPOLLRDHUP,
    MUTE_MEMORY,
    MUTE_REQUEST,
    MUTE_STOPPING,
    KafkaChannel,
    selector_add,
    selector_close,
    selector_expired,
    selector_next_expiry,
    selector_open,
    selector_poll,
    selector_remove,
    selector_touch,
    selector_want,
)
from kafkapy._speedups.send cimport Send, send_free
from kafkapy._speedups.transport cimport transport_plaintext, transport_send

cdef extern from "<sys/socket.h>" nogil:
    int MSG_PEEK, MSG_DONTWAIT, SHUT_WR
    ssize_t recv(int fd, void* into, size_t size, int flags)
    int shutdown(int fd, int how)

cdef extern from * nogil:
    """
    #include <signal.h>
    #include <pthread.h>
    /* Signals are for the main thread: Python's handlers and the event loop's wake-up descriptor are there. */
    static inline void kp_block_signals(void) { sigset_t all; sigfillset(&all); pthread_sigmask(SIG_BLOCK, &all, 0); }
    static inline int kp_bits(uint64_t n) { return n ? 64 - __builtin_clzll(n) : 0; }
    """
    void block_signals "kp_block_signals"()
    int bits_of "kp_bits"(uint64_t n)


# ---- closing -------------------------------------------------------------------------------------------------------------------

cdef void log_closing(ProcessorState* p, KafkaChannel* channel, int level, const char* why) noexcept nogil:
    cdef char line[512]
    snprintf(line, sizeof(line), b"Closing connection %lld from %s:%d: %s", <long long>channel.info.id, channel.info.peer_host.c_str(),
             channel.info.peer_port, why)
    network_log(p.registry, level, LOGGER_PROCESSOR, line)


cdef void forget_request(ProcessorState* p, KafkaChannel* channel) noexcept nogil:
    """The Processor lets go of the request: its outcome is final, or the connection is gone (then the last reference cancels it)."""
    cdef PendingRequest* pending = channel.request
    if pending == NULL:
        return
    channel.request = NULL
    purgatory_remove(&p.purgatory, &pending.wait)
    p.in_flight.erase(pending.frame.token)
    pending_unref(pending)


cdef void close_channel(ProcessorState* p, KafkaChannel* channel, int reason) noexcept nogil:
    cdef uint8_t rest[4096]
    cdef int i
    if channel.closed:
        return
    selector_remove(&p.selector, channel)
    channel.closed = True
    if reason == CLOSED_AT_STOP or channel.close_after_send:
        # Unread bytes would turn the close into a reset that can overtake the last reply.
        shutdown(channel.transport.fd, SHUT_WR)
        for i in range(64):
            if recv(channel.transport.fd, rest, sizeof(rest), MSG_DONTWAIT) <= 0:
                break
    channel.transport.functions.close(&channel.transport)
    forget_request(p, channel)
    send_free(channel.send)
    channel.send = NULL
    reader_release(&p.reader, channel)
    p.channels.erase(channel.info.id)
    atomic_store(&p.connections, p.channels.size())
    connection_closed(p.registry, channel.info, reason)
    p.closed.push_back(channel)


cdef void free_closed(ProcessorState* p) noexcept nogil:
    cdef size_t i
    cdef KafkaChannel* channel
    for i in range(p.closed.size()):
        channel = p.closed[i]
        connection_unref(channel.info)
        del channel
    p.closed.clear()


# ---- replies -------------------------------------------------------------------------------------------------------------------

cdef void unmute(ProcessorState* p, KafkaChannel* channel, int reason) noexcept nogil:
    channel.mute &= ~reason
    if channel.mute or channel.closed:
        return
    selector_want(&p.selector, channel, channel.interest | EPOLLIN)
    if channel.ahead != NULL or channel.transport.functions.pending(&channel.transport) > 0:
        p.ready.push_back(channel.info.id)


cdef void count_total(ProcessorState* p, int api, int64_t received_ns) noexcept nogil:
    cdef ApiCounters* counters = &p.plane.apis[api]
    cdef int64_t took = monotonic_ns() - received_ns
    cdef int slot = bits_of(<uint64_t>(took // 1000))
    atomic_count(&counters.total_ns, took)
    atomic_count(&counters.total_histogram[slot if slot < 31 else 31], 1)


cdef void finish(ProcessorState* p, KafkaChannel* channel) noexcept nogil:
    """The reply is out, or there is none: the next request may come."""
    atomic_store(&channel.info.in_flight, 0)
    if channel.close_after_send:
        close_channel(p, channel, CLOSED_BY_BROKER)
    elif atomic_load(&p.stop_at_ns):
        close_channel(p, channel, CLOSED_AT_STOP)   # also in the turn that has not seen the stop yet
    else:
        selector_touch(&p.selector, channel, p.now_ns)
        unmute(p, channel, MUTE_REQUEST)


cdef void write_reply(ProcessorState* p, KafkaChannel* channel) noexcept nogil:
    cdef int64_t written = 0
    cdef int status = transport_send(&channel.transport, channel.send, &written)
    if written:
        atomic_count(&channel.info.bytes_out, written)
        selector_touch(&p.selector, channel, p.now_ns)
    if status < 0:
        close_channel(p, channel, CLOSED_BY_PEER)
        return
    if status == 0:
        selector_want(&p.selector, channel, channel.interest | EPOLLOUT)
        return
    atomic_count(&p.plane.apis[channel.send_api].response_bytes, channel.send.size)
    count_total(p, channel.send_api, channel.send_received_ns)
    send_free(channel.send)
    channel.send = NULL
    if channel.interest & EPOLLOUT:
        selector_want(&p.selector, channel, channel.interest & ~EPOLLOUT)
    finish(p, channel)


cdef void start_reply(ProcessorState* p, KafkaChannel* channel, Send* send) noexcept nogil:
    """Takes over `send`; the request is done."""
    channel.send = send
    channel.send_api = channel.request.frame.api_key
    channel.send_received_ns = channel.request.frame.received_ns
    forget_request(p, channel)
    write_reply(p, channel)


# ---- requests ------------------------------------------------------------------------------------------------------------------

cdef bint push_to_python(ProcessorState* p, PendingRequest* pending) noexcept nogil:
    pending_ref(pending)
    if channel_push(p.requests, pending, p.mailbox):
        return True
    pending_unref(pending)
    return False


cdef void hand_to_python(ProcessorState* p, KafkaChannel* channel) noexcept nogil:
    p.in_flight[channel.request.frame.token] = channel
    if not p.backlog.empty() or not push_to_python(p, channel.request):
        p.backlog.push_back(channel.request.frame.token)


cdef void push_backlog(ProcessorState* p) noexcept nogil:
    cdef unordered_map[uint64_t, KafkaChannel*].iterator it
    while not p.backlog.empty():
        it = p.in_flight.find(p.backlog.front())
        if it != p.in_flight.end() and not push_to_python(p, dereference(it).second.request):
            return
        p.backlog.pop_front()


cdef void carry_out(ProcessorState* p, KafkaChannel* channel, Outcome* outcome) noexcept nogil:
    cdef PendingRequest* pending = channel.request
    cdef int api = pending.frame.api_key
    if outcome.kind == OUTCOME_PARKED or outcome.kind == OUTCOME_ASK:
        pending.parked = outcome.parked
        pending.parked_ns = monotonic_ns()
        if outcome.kind == OUTCOME_ASK:
            pending.ask = outcome.ask
            hand_to_python(p, channel)
            return
        p.in_flight[pending.frame.token] = channel
        # At a stop, what waits is answered with what there is; a produce may still be acknowledged until the time is over.
        if p.stopping and (api == API_FETCH or p.last_chance):
            outcome.deadline_ns = p.now_ns + 1_000_000
        purgatory_add(&p.purgatory, &pending.wait, outcome.deadline_ns)
        return
    pending.parked = NULL
    if outcome.kind == OUTCOME_REPLY:
        start_reply(p, channel, outcome.send)
    elif outcome.kind == OUTCOME_NO_REPLY:
        count_total(p, api, pending.frame.received_ns)
        forget_request(p, channel)
        finish(p, channel)
    else:
        log_closing(p, channel, LEVEL_INFO, outcome.message if outcome.message != NULL else <const char*>b"the request is refused")
        forget_request(p, channel)
        close_channel(p, channel, CLOSED_BY_BROKER)


cdef void resume(ProcessorState* p, KafkaChannel* channel, bint timed_out) noexcept nogil:
    cdef PendingRequest* pending = channel.request
    cdef ApiCounters* counters = &p.plane.apis[pending.frame.api_key]
    cdef int64_t started = monotonic_ns()
    cdef Outcome outcome
    memset(&outcome, 0, sizeof(outcome))
    purgatory_remove(&p.purgatory, &pending.wait)
    atomic_count(&counters.remote_ns, started - pending.parked_ns)
    if pending.frame.api_key == API_PRODUCE:
        produce_resume(p.plane, pending.parked, timed_out, &outcome)
    else:
        fetch_resume(p.plane, pending.parked, timed_out, &outcome)
    atomic_count(&counters.local_ns, monotonic_ns() - started)
    carry_out(p, channel, &outcome)


cdef bint own_the_frame(ProcessorState* p, PendingRequest* pending, WholeFrame* frame) noexcept nogil:
    """A copy of a frame that lies where the next read or frame will overwrite it. False when memory is out."""
    pending.memory = buffer_take(p.pool, frame.size, &pending.capacity)
    if pending.memory == NULL:
        return False
    memcpy(pending.memory, frame.data, frame.size)
    pending.reserved = frame.size
    pool_reserve(p.pool, frame.size)
    frame.data = pending.memory
    return True


cdef void refuse_header(ProcessorState* p, KafkaChannel* channel, HeaderStatus status, const Frame* frame) noexcept nogil:
    cdef char why[160]
    if status == HEADER_TRUNCATED:
        snprintf(why, sizeof(why), b"the request header is truncated")
    elif status == HEADER_UNKNOWN_API:
        snprintf(why, sizeof(why), b"API key %d is not known", <int>frame.api_key)
    else:
        snprintf(why, sizeof(why), b"version %d of API key %d is not served", <int>frame.api_version, <int>frame.api_key)
    log_closing(p, channel, LEVEL_INFO, why)
    close_channel(p, channel, CLOSED_BY_BROKER)


cdef void handle_frame(ProcessorState* p, KafkaChannel* channel, WholeFrame* frame) noexcept nogil:
    cdef PendingRequest* pending = pending_new(p.plane, p.mailbox, p.pool, channel.info)
    cdef bint in_place = False
    cdef bint here
    cdef HeaderStatus status
    cdef ApiCounters* counters
    cdef Outcome outcome
    cdef int64_t started = monotonic_ns()
    channel.request = pending
    if frame.place == PLACE_OWNED:
        pending.memory = frame.memory
        pending.capacity = frame.capacity
        pending.reserved = frame.reserved
    elif frame.place == PLACE_SCRATCH and frame.size > COPIED_FRAME:
        in_place = True
    elif not own_the_frame(p, pending, frame):
        close_channel(p, channel, CLOSED_BY_BROKER)
        return
    status = request_header_decode(p.apis, frame.data, frame.size, &pending.frame)
    if status != HEADER_OK and status != HEADER_UNSUPPORTED_API_VERSIONS:
        refuse_header(p, channel, status, &pending.frame)
        return
    here = p.apis.apis[pending.frame.api_key].served_here
    if in_place and not here:
        in_place = False
        if not own_the_frame(p, pending, frame):
            close_channel(p, channel, CLOSED_BY_BROKER)
            return
        request_header_decode(p.apis, frame.data, frame.size, &pending.frame)
    pending.unsupported_version = status == HEADER_UNSUPPORTED_API_VERSIONS
    pending.frame_size = frame.size
    pending.frame.received_ns = started
    counters = &p.plane.apis[pending.frame.api_key]
    atomic_count(&counters.requests, 1)
    atomic_count(&counters.request_bytes, frame.size + 4)
    atomic_count(&channel.info.requests, 1)
    atomic_store(&channel.info.in_flight, 1)
    channel.mute |= MUTE_REQUEST
    if not here:
        hand_to_python(p, channel)
        return
    memset(&outcome, 0, sizeof(outcome))
    if pending.frame.api_key == API_PRODUCE:
        produce_handle(p.plane, &pending.frame, &outcome)
    else:
        fetch_handle(p.plane, &pending.frame, &outcome)
    atomic_count(&counters.local_ns, monotonic_ns() - started)
    if in_place and (outcome.kind == OUTCOME_PARKED or outcome.kind == OUTCOME_ASK):
        # Before carry_out: an ask may be with Python a moment later.
        if reader_donate(&p.reader, channel, &pending.memory, &pending.capacity) < 0:
            pending.parked = outcome.parked
            close_channel(p, channel, CLOSED_BY_BROKER)
            return
        pending.reserved = pending.capacity
        pool_reserve(p.pool, pending.reserved)
    carry_out(p, channel, &outcome)


cdef void handle_frames(ProcessorState* p, KafkaChannel* channel) noexcept nogil:
    """Every whole frame that is at hand, until one stays in flight."""
    cdef WholeFrame frame
    cdef FrameStatus status
    cdef char why[160]
    while not channel.closed and not channel.mute:
        status = reader_next(&p.reader, channel, &frame)
        if status == FRAME_WHOLE:
            handle_frame(p, channel, &frame)
            continue
        if status == FRAME_NO_MEMORY:
            channel.mute |= MUTE_MEMORY
            p.starving.push_back(channel.info.id)
        elif status == FRAME_INVALID:
            snprintf(why, sizeof(why), b"a request of %lld bytes is not between 0 and %lld (socket.request.max.bytes)",
                     <long long>frame.size, <long long>p.reader.max_frame)
            log_closing(p, channel, LEVEL_WARNING, why)
            close_channel(p, channel, CLOSED_BY_BROKER)
        elif status != FRAME_PARTIAL:
            log_closing(p, channel, LEVEL_WARNING, b"memory is out")
            close_channel(p, channel, CLOSED_BY_BROKER)
        break
    if not channel.closed and reader_stash(&p.reader, channel) < 0:
        close_channel(p, channel, CLOSED_BY_BROKER)
    p.reader.start = p.reader.end = 0


# ---- events --------------------------------------------------------------------------------------------------------------------

cdef void read_channel(ProcessorState* p, KafkaChannel* channel) noexcept nogil:
    cdef int64_t n
    if channel.frame == NULL and channel.head_size == 0 and not pool_available(p.pool):
        channel.mute |= MUTE_MEMORY
        p.starving.push_back(channel.info.id)
        selector_want(&p.selector, channel, channel.interest & ~EPOLLIN)
        return
    n = reader_fill(&p.reader, channel)
    if n > 0:
        atomic_count(&channel.info.bytes_in, n)
        selector_touch(&p.selector, channel, p.now_ns)
        handle_frames(p, channel)
        if not channel.closed and not channel.mute and channel.transport.functions.pending(&channel.transport) > 0:
            p.ready.push_back(channel.info.id)
    elif n != -EAGAIN:
        close_channel(p, channel, CLOSED_BY_PEER)


cdef void peer_shut_down(ProcessorState* p, KafkaChannel* channel) noexcept nogil:
    """The peer will send no more while its channel is muted. It may still read its reply (a half-closed socket), so only a parked Fetch,
    which nobody sends half-closed, is given up; and only when no later request lies behind it."""
    cdef uint8_t byte
    selector_want(&p.selector, channel, channel.interest & ~EPOLLRDHUP)
    channel.peer_done = True
    if (channel.request != NULL and channel.request.parked != NULL and channel.request.frame.api_key == API_FETCH
            and channel.ahead == NULL and recv(channel.transport.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0):
        close_channel(p, channel, CLOSED_BY_PEER)


cdef void channel_event(ProcessorState* p, KafkaChannel* channel, unsigned int events) noexcept nogil:
    if channel.closed:
        return
    if events & EPOLLOUT and channel.send != NULL:
        write_reply(p, channel)
        if channel.closed:
            return
    if not channel.mute:
        if events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR) and channel.ahead == NULL:
            read_channel(p, channel)
        return
    if events & (EPOLLHUP | EPOLLERR):
        close_channel(p, channel, CLOSED_BY_PEER)
        return
    if events & EPOLLIN:
        selector_want(&p.selector, channel, channel.interest & ~EPOLLIN)
    if events & EPOLLRDHUP:
        peer_shut_down(p, channel)


cdef KafkaChannel* channel_of(ProcessorState* p, int64_t connection_id) noexcept nogil:
    cdef unordered_map[int64_t, KafkaChannel*].iterator it = p.channels.find(connection_id)
    return dereference(it).second if it != p.channels.end() else NULL


cdef KafkaChannel* in_flight_of(ProcessorState* p, uint64_t token) noexcept nogil:
    cdef unordered_map[uint64_t, KafkaChannel*].iterator it = p.in_flight.find(token)
    return dereference(it).second if it != p.in_flight.end() else NULL


cdef void make_room(ProcessorState* p) noexcept nogil:
    """The inter-broker listener went over max.connections: the least recently used connection of another one goes (Kafka's
    closeExcessConnections)."""
    cdef KafkaChannel* channel = p.selector.oldest
    if not quota_exceeded(p.registry.quotas):
        return
    while channel != NULL and channel.info.listener_index == p.registry.quotas.protected_listener:
        channel = channel.newer
    if channel != NULL:
        close_channel(p, channel, CLOSED_EXCESS)


cdef void add_connection(ProcessorState* p, ConnectionInfo* info, int fd) noexcept nogil:
    cdef KafkaChannel* channel
    cdef int error
    if p.stopping:
        close(fd)
        connection_closed(p.registry, info, CLOSED_AT_STOP)
        connection_unref(info)
        return
    channel = new KafkaChannel()
    transport_plaintext(&channel.transport, fd)
    channel.info = info
    error = selector_add(&p.selector, channel, p.now_ns)
    if error:
        network_log(p.registry, LEVEL_WARNING, LOGGER_PROCESSOR, strerror(error))
        channel.transport.functions.close(&channel.transport)
        connection_closed(p.registry, info, CLOSED_BY_BROKER)
        channel.closed = True
        p.closed.push_back(channel)
        return
    p.channels[info.id] = channel
    atomic_store(&p.connections, p.channels.size())
    if info.listener_index == p.registry.quotas.protected_listener:
        make_room(p)


cdef void open_mail(ProcessorState* p, const Mail* mail) noexcept nogil:
    cdef KafkaChannel* channel
    cdef PendingRequest* pending
    if mail.kind == MAIL_CONNECTION:
        add_connection(p, mail.info, mail.fd)
        return
    if mail.kind == MAIL_CLOSE_CONNECTION:
        channel = channel_of(p, <int64_t>mail.token)
        if channel != NULL:
            close_channel(p, channel, CLOSED_BY_BROKER)
        return
    if mail.kind == MAIL_LOOK:
        return      # the loop looks at backlog and memory after every mail
    channel = in_flight_of(p, mail.token)
    if channel == NULL:
        send_free(mail.send)    # the connection is gone
        return
    pending = channel.request
    if mail.kind == MAIL_WAKE:
        if pending.parked != NULL and pending.ask == NULL:
            resume(p, channel, False)
    elif mail.kind == MAIL_RESUME:
        pending.ask = NULL
        resume(p, channel, False)
    elif mail.kind == MAIL_REPLY:
        start_reply(p, channel, mail.send)
    elif mail.kind == MAIL_NO_REPLY:
        count_total(p, pending.frame.api_key, pending.frame.received_ns)
        forget_request(p, channel)
        finish(p, channel)
    else:
        atomic_count(&p.plane.apis[pending.frame.api_key].errors, 1)
        close_channel(p, channel, CLOSED_BY_BROKER)


# ---- the loop ------------------------------------------------------------------------------------------------------------------

cdef void look_at_ready(ProcessorState* p) noexcept nogil:
    cdef vector[int64_t] ids
    cdef size_t i
    cdef KafkaChannel* channel
    ids.swap(p.ready)
    for i in range(ids.size()):
        channel = channel_of(p, ids[i])
        if channel == NULL or channel.mute:
            continue
        if channel.ahead != NULL:
            handle_frames(p, channel)
        if channel.closed or channel.mute:
            continue
        if channel.transport.functions.pending(&channel.transport) > 0:
            read_channel(p, channel)


cdef void look_at_starving(ProcessorState* p) noexcept nogil:
    """As many as the pool can take; those that find it exhausted again come back to the list."""
    cdef vector[int64_t] ids
    cdef size_t i
    cdef KafkaChannel* channel
    if p.starving.empty() or not pool_available(p.pool):
        return
    ids.swap(p.starving)
    for i in range(ids.size()):
        channel = channel_of(p, ids[i])
        if channel != NULL:
            unmute(p, channel, MUTE_MEMORY)


cdef void expire(ProcessorState* p) noexcept nogil:
    cdef PurgatoryEntry* entry
    cdef KafkaChannel* channel
    while True:
        entry = purgatory_pop_expired(&p.purgatory, p.now_ns)
        if entry == NULL:
            break
        channel = in_flight_of(p, entry.token)
        if channel != NULL:
            resume(p, channel, True)
    while True:
        channel = selector_expired(&p.selector, p.now_ns)
        if channel == NULL:
            break
        if channel.request != NULL:
            # It waits for us, not we for it; a reply that its peer does not read is another matter.
            selector_touch(&p.selector, channel, p.now_ns)
            continue
        log_closing(p, channel, LEVEL_DEBUG, b"it was idle for longer than connections.max.idle.ms")
        close_channel(p, channel, CLOSED_IDLE)


cdef void begin_stop(ProcessorState* p) noexcept nogil:
    """No new requests; parked fetches are answered with what they have; idle connections go."""
    cdef vector[int64_t] ids
    cdef unordered_map[int64_t, KafkaChannel*].iterator it = p.channels.begin()
    cdef KafkaChannel* channel
    cdef size_t i
    p.stopping = True
    while it != p.channels.end():
        ids.push_back(dereference(it).first)
        preincrement(it)
    for i in range(ids.size()):
        channel = channel_of(p, ids[i])
        if channel == NULL:
            continue
        channel.mute |= MUTE_STOPPING
        if channel.request == NULL and channel.send == NULL:
            close_channel(p, channel, CLOSED_AT_STOP)
        elif channel.request != NULL and channel.request.wait.place and channel.request.frame.api_key == API_FETCH:
            resume(p, channel, True)


cdef void end_stop(ProcessorState* p) noexcept nogil:
    """The time is over: parked produces are answered as timed out, one write each, and every connection is closed."""
    cdef unordered_map[int64_t, KafkaChannel*].iterator it
    cdef KafkaChannel* channel
    p.last_chance = True
    p.now_ns = monotonic_ns()
    while not p.purgatory.heap.empty():
        channel = in_flight_of(p, p.purgatory.heap[0].token)
        resume(p, channel, True)
        close_channel(p, channel, CLOSED_AT_STOP)
    while not p.channels.empty():
        it = p.channels.begin()
        close_channel(p, dereference(it).second, CLOSED_AT_STOP)


cdef int64_t time_to_wait(ProcessorState* p) noexcept nogil:
    """Ns until something is due; -1: nothing is."""
    cdef int64_t due = purgatory_next_deadline(&p.purgatory)
    cdef int64_t other = selector_next_expiry(&p.selector)
    if not p.ready.empty() or not p.mailbox.own_wakes.empty():
        return 0
    if other >= 0 and (due < 0 or other < due):
        due = other
    if p.stopping:
        other = atomic_load(&p.stop_at_ns)
        if due < 0 or other < due:
            due = other
    if due < 0:
        return -1
    other = due - monotonic_ns()
    return other if other > 0 else 0


cdef void turn(ProcessorState* p) noexcept nogil:
    cdef int i
    cdef size_t k
    cdef KafkaChannel* channel
    cdef bint mail = False
    selector_poll(&p.selector, time_to_wait(p))
    p.now_ns = monotonic_ns()
    for i in range(p.selector.ready):
        channel = <KafkaChannel*>p.selector.events[i].data.ptr
        if channel == NULL:
            mail = True
        else:
            channel_event(p, channel, p.selector.events[i].events)
    if mail:
        mailbox_collect(p.mailbox, &p.mails)
        for k in range(p.mails.size()):
            open_mail(p, &p.mails[k])
        p.mails.clear()
        push_backlog(p)
    look_at_starving(p)
    look_at_ready(p)
    p.wakes.swap(p.mailbox.own_wakes)
    for k in range(p.wakes.size()):
        channel = in_flight_of(p, p.wakes[k])
        if channel != NULL and channel.request.parked != NULL and channel.request.ask == NULL:
            resume(p, channel, False)
    p.wakes.clear()
    expire(p)
    free_closed(p)


cdef void run_loop(ProcessorState* p) noexcept nogil:
    cdef int64_t stop_at
    block_signals()
    mailbox_attach(p.mailbox)
    atomic_store(&p.started_ns, monotonic_ns())
    while True:
        turn(p)
        stop_at = atomic_load(&p.stop_at_ns)
        if stop_at == 0:
            continue
        if not p.stopping:
            begin_stop(p)
        if p.channels.empty():
            break
        if monotonic_ns() >= stop_at:
            break
    end_stop(p)
    free_closed(p)
    mailbox_attach(NULL)


@cython.no_gc_clear
cdef class Processor:
    """Owns one network thread's connections. Made by the SocketServer, which starts a thread on `run`; everything else here may be
    called from any thread."""

    def __cinit__(self, RequestChannel channel not None, int64_t max_frame_bytes=100 * 1024 * 1024, int64_t max_idle_ms=600_000):
        """max_frame_bytes: socket.request.max.bytes; max_idle_ms: connections.max.idle.ms (negative: never)."""
        cdef int error
        self.channel = channel
        self.state = new ProcessorState()
        self.state.selector.epoll_fd = -1
        self.state.plane = channel.plane.state
        self.state.requests = channel.state
        self.state.registry = channel.registry.state
        self.state.pool = channel.pool.state
        self.state.apis = channel.apis.state
        self.state.mailbox = mailbox_take(self.state.registry)
        if self.state.mailbox == NULL:
            raise OSError("no eventfd can be had for a processor")
        error = selector_open(&self.state.selector, self.state.mailbox.event_fd, max_idle_ms * 1_000_000 if max_idle_ms >= 0 else -1)
        if error:
            raise OSError(error, "no epoll descriptor can be had for a processor")
        if reader_open(&self.state.reader, self.state.pool, max_frame_bytes) < 0:
            raise MemoryError
        pool_add_listener(self.state.pool, self.state.mailbox.event_fd)

    def __dealloc__(self):
        if self.state == NULL:
            return
        if self.state.mailbox != NULL:
            with nogil:
                end_stop(self.state)
                free_closed(self.state)
                pool_remove_listener(self.state.pool, self.state.mailbox.event_fd)
                mailbox_give_back(self.state.mailbox)
            selector_close(&self.state.selector)
            if self.state.reader.scratch != NULL:
                reader_close(&self.state.reader)
        del self.state

    def run(self):
        """The thread's body: returns when a stop has been carried out. Releases the GIL at once and for good. Once per Processor."""
        if self.started:
            raise RuntimeError("this processor has run already")
        self.started = True
        with nogil:
            run_loop(self.state)

    def begin_stop(self, int64_t timeout_ms):
        """Reads no more requests, answers what is in flight for at most timeout_ms, closes everything, ends `run`."""
        cdef int64_t at = monotonic_ns() + max(timeout_ms, 0) * 1_000_000
        atomic_store(&self.state.stop_at_ns, at)
        with nogil:
            mailbox_post_token(self.state.mailbox, MAIL_LOOK, 0, NULL)

    def close_connection(self, int64_t connection_id):
        """Closes that connection if it is one of this Processor's."""
        with nogil:
            mailbox_post_token(self.state.mailbox, MAIL_CLOSE_CONNECTION, <uint64_t>connection_id, NULL)

    def counters(self):
        """connections (open now), idle_ns (time spent waiting), running_ns (time since the thread started; 0 before)."""
        cdef int64_t started = atomic_load(&self.state.started_ns)
        cdef int64_t waiting = atomic_load(&self.state.selector.waiting_since_ns)
        cdef int64_t now = monotonic_ns()
        return {
            "connections": atomic_load(&self.state.connections),
            "idle_ns": atomic_load(&self.state.selector.idle_ns) + (now - waiting if waiting else 0),
            "running_ns": now - started if started else 0,
        }
