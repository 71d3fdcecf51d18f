"""One connection of a Processor (see channel_handler.pxd)."""

from cython.operator cimport dereference
from libc.errno cimport ECONNRESET, EPIPE, ETIMEDOUT
from libc.stdint cimport int64_t, uint64_t
from libc.stdio cimport snprintf
from libc.string cimport memset, strerror
from libcpp.unordered_map cimport unordered_map
from posix.unistd cimport close

from kafkapy._speedups.base.blocking cimport NetworkThread, become_spare, is_alone
from kafkapy._speedups.base.epoll cimport EPOLLIN, EPOLLOUT
from kafkapy._speedups.base.posix cimport (
    atomic_add,
    atomic_count,
    atomic_count_alone,
    atomic_load,
    atomic_store,
    monotonic_ns,
)
from kafkapy._speedups.base.send cimport Send, send_free, send_leave
from kafkapy._speedups.base.time_counter cimport count_time_alone
from kafkapy._speedups.base.transport cimport transport_send, transport_write_event
from kafkapy._speedups.network.channel_login cimport (
    LOGIN_ACCEPTED,
    LOGIN_OF_PYTHON,
    LOGIN_REFUSED,
    login_free,
    login_serve,
)
from kafkapy._speedups.network.channel_quotas cimport (
    quotas_before_reply,
    quotas_count_sending,
    quotas_ready,
    quotas_throttle,
    quotas_use,
)
from kafkapy._speedups.network.connection cimport (
    CLOSED_AT_STOP,
    CLOSED_BY_BROKER,
    CLOSED_BY_PEER,
    LEVEL_INFO,
    LEVEL_WARNING,
    LOGGER_PROCESSOR,
    ListenerSecurity,
    connection_closed,
    network_log,
)
from kafkapy._speedups.network.frame_guard cimport (
    GUARD_EXPIRED,
    GUARD_PASS,
    GuardResult,
    explain_guard,
    explain_header,
    explain_size,
    guard_lift,
    guarded_decode,
    guarded_pass,
)
from kafkapy._speedups.network.frame_reader cimport (
    FRAME_INVALID,
    FRAME_NO_MEMORY,
    FRAME_PARTIAL,
    FRAME_WHOLE,
    PLACE_OWNED,
    PLACE_SCRATCH,
    FrameStatus,
    WholeFrame,
    reader_copy,
    reader_donate,
    reader_next,
    reader_release,
    reader_stash,
)
from kafkapy._speedups.network.left_behind cimport finish_alone, may_be_left, request_leave
from kafkapy._speedups.network.mailbox cimport MAIL_SENT, Mailbox, mailbox_post_token
from kafkapy._speedups.network.pending_request cimport (
    PendingRequest,
    pending_new,
    pending_ref,
    pending_unref,
    pending_unref_keep,
)
from kafkapy._speedups.network.processor_state cimport (
    COPIED_FRAME,
    DOING_REQUEST,
    DOING_SEND,
    FRAMES_A_TURN,
    Due,
    Gathered,
    may_gather,
)
from kafkapy._speedups.network.purgatory cimport purgatory_add, purgatory_remove
from kafkapy._speedups.network.request_channel cimport channel_push
from kafkapy._speedups.network.request_log cimport (
    RequestRecord,
    request_record_free,
    request_record_of,
    request_record_post,
)
from kafkapy._speedups.network.request_times cimport times_count_parts, times_count_total
from kafkapy._speedups.network.selector cimport (
    MUTE_FAILED,
    MUTE_MEMORY,
    MUTE_REQUEST,
    STAGE_FAILED,
    STAGE_READY,
    KafkaChannel,
    selector_remove,
    selector_touch,
    selector_want,
)
from kafkapy._speedups.network.worker_pool cimport worker_pool_submit
from kafkapy._speedups.requests.data_plane cimport (
    API_SASL_AUTHENTICATE,
    ASK_QUOTAS,
    OUTCOME_ASK,
    OUTCOME_GATHERED,
    OUTCOME_NO_REPLY,
    OUTCOME_PARKED,
    OUTCOME_PYTHON,
    OUTCOME_REPLY,
    OUTCOME_RESUME,
    OUTCOME_WORKER,
    ApiCounters,
    Ask,
    Outcome,
    outcome_keeps_frame,
)
from kafkapy._speedups.requests.request_header cimport (
    HEADER_OK,
    HEADER_UNSUPPORTED_API_VERSIONS,
    HeaderStatus,
    request_header_decode,
)

cdef Ask quota_ask
quota_ask.kind = ASK_QUOTAS


cdef void leave_purgatory(ProcessorState* p, PendingRequest* pending) noexcept nogil:
    if pending.wait.place:
        purgatory_remove(&p.purgatory, &pending.wait)
        atomic_count_alone(&p.delayed[pending.frame.api_key], -1)


# ---- closing ---------------------------------------------------------------------------------------------------------

cdef void channel_log_closing(ProcessorState* p, KafkaChannel* channel, int level, const char* why) noexcept nogil:
    cdef char line[512]
    snprintf(line, sizeof(line), b"Connection %lld from %s:%d is closed: %s", <long long>channel.info.id,
             channel.info.peer_host.c_str(),
             channel.info.peer_port, why)
    network_log(p.registry, level, LOGGER_PROCESSOR, line)


cdef void channel_forget_request(ProcessorState* p, KafkaChannel* channel) noexcept nogil:
    """Releases the Processor's reference to the request: its outcome is final, or the connection is gone (then the last
    reference cancels it)."""
    cdef PendingRequest* pending = channel.request
    if pending == NULL:
        return
    channel.request = NULL
    if pending.wait.place:
        leave_purgatory(p, pending)
    if not p.in_flight.empty():
        p.in_flight.erase(pending.frame.token)
    if p.kept != NULL:
        pending_unref(pending)
    elif pending_unref_keep(pending):
        p.kept = pending


cdef void channel_close(ProcessorState* p, KafkaChannel* channel, int reason) noexcept nogil:
    if channel.closed:
        return
    selector_remove(&p.selector, channel)
    purgatory_remove(&p.throttled, &channel.throttle)
    channel.closed = True
    if channel.away:
        # Its descriptor must not become another connection's while a thread still sends to it.
        channel.close_reason = reason
        channel.transport.functions.abort(&channel.transport)
        return
    close_for_good(p, channel, reason)


cdef void close_for_good(ProcessorState* p, KafkaChannel* channel, int reason) noexcept nogil:
    if reason == CLOSED_AT_STOP or channel.close_after_send:
        channel.transport.functions.shut_down(&channel.transport)
    channel.transport.functions.close(&channel.transport)
    channel_forget_request(p, channel)
    request_record_free(channel.record)
    channel.record = NULL
    send_free(channel.send)
    channel.send = NULL
    send_free(channel.farewell)
    channel.farewell = NULL
    login_free(channel)
    reader_release(&p.reader, channel)
    p.channels.erase(channel.info.id)
    p.sending.erase(channel.info.id)
    atomic_store(&p.connections, p.channels.size())
    connection_closed(p.registry, p.plane, channel.info, reason)
    p.closed.push_back(channel)


cdef void channel_fail(ProcessorState* p, KafkaChannel* channel, Send* farewell, int64_t delay_ns) noexcept nogil:
    cdef ListenerSecurity* security = channel.security
    cdef Due due
    if security != NULL:
        atomic_count(&security.reauthentication_failed if channel.stage == STAGE_READY else &security.failed, 1)
        if delay_ns < 0:
            delay_ns = security.failed_delay_ns
    channel.stage = STAGE_FAILED
    channel.guarded = True
    channel.mute |= MUTE_FAILED
    channel.farewell = farewell
    channel_forget_request(p, channel)
    atomic_store(&channel.info.in_flight, 0)
    if delay_ns <= 0:
        channel_say_farewell(p, channel)
        return
    due.at_ns = monotonic_ns() + delay_ns
    due.connection = channel.info.id
    p.farewells.push_back(due)


cdef void channel_say_farewell(ProcessorState* p, KafkaChannel* channel) noexcept nogil:
    channel.close_after_send = True
    if channel.farewell == NULL:
        channel_close(p, channel, CLOSED_BY_BROKER)
        return
    channel.send = channel.farewell
    channel.farewell = NULL
    channel.send_sensor = NULL
    channel.send_api = API_SASL_AUTHENTICATE
    channel.send_received_ns = monotonic_ns()
    channel_write(p, channel)


# ---- replies ---------------------------------------------------------------------------------------------------------

cdef void channel_be_ready(ProcessorState* p, KafkaChannel* channel) noexcept nogil:
    if not channel.is_ready:
        channel.is_ready = True
        p.ready.push_back(channel.info.id)


cdef void channel_unmute(ProcessorState* p, KafkaChannel* channel, int reason) noexcept nogil:
    channel.mute &= ~reason
    if channel.mute or channel.closed:
        return
    selector_want(&p.selector, channel, channel.interest | EPOLLIN)
    if channel.ahead != NULL or channel.transport.functions.pending(&channel.transport) > 0:
        channel_be_ready(p, channel)


cdef void channel_count(ProcessorState* p, const PendingRequest* pending) noexcept nogil:
    times_count_parts(&p.times[pending.frame.api_key], pending, p.now_ns)
    p.now_ns = monotonic_ns()
    times_count_total(&p.plane.apis[pending.frame.api_key], pending.frame.received_ns, p.now_ns)


cdef void channel_finish(ProcessorState* p, KafkaChannel* channel) noexcept nogil:
    """Finishes a request after its reply, or without one: the next request may come."""
    atomic_store(&channel.info.in_flight, 0)
    if channel.close_after_send:
        channel_close(p, channel, CLOSED_BY_BROKER)
    elif atomic_load(&p.stop_at_ns):
        channel_close(p, channel, CLOSED_AT_STOP)   # also in the turn that has not seen the stop yet
    else:
        selector_touch(&p.selector, channel, p.now_ns)
        channel_unmute(p, channel, MUTE_REQUEST)


cdef void channel_write(ProcessorState* p, KafkaChannel* channel) noexcept nogil:
    cdef int64_t written = 0
    cdef int status
    cdef NetworkThread* thread = NULL
    cdef Mailbox* mailbox = p.mailbox
    cdef uint64_t id = <uint64_t>channel.info.id
    cdef int64_t started = 0 if channel.send_sensor == NULL else monotonic_ns()
    if channel.send.pieces.size() > 1:
        thread = may_be_left(p, channel, DOING_SEND, False)
    status = transport_send(&channel.transport, channel.send, &written)
    if thread != NULL:
        if is_alone(thread):
            channel.sent_status = status
            channel.sent_bytes = written
            mailbox_post_token(mailbox, MAIL_SENT, id, NULL)
            atomic_add(&p.alone, -1)
            become_spare(thread)
        thread.may_leave = False
    if channel.send_sensor != NULL:
        quotas_count_sending(channel, started)
    after_sending(p, channel, status, written)


cdef void channel_sent(ProcessorState* p, KafkaChannel* channel) noexcept nogil:
    channel.away = False
    if channel.closed:
        close_for_good(p, channel, channel.close_reason)
    else:
        after_sending(p, channel, channel.sent_status, channel.sent_bytes)


cdef void after_sending(ProcessorState* p, KafkaChannel* channel, int status, int64_t written) noexcept nogil:
    cdef char why[320]
    cdef const char* reason
    cdef int64_t started = p.now_ns
    cdef unordered_map[int64_t, int64_t].iterator earlier
    if written:
        atomic_count_alone(&channel.info.bytes_out, written)
        selector_touch(&p.selector, channel, p.now_ns)
    if status < 0:
        if status == -EPIPE or status == -ECONNRESET or status == -ETIMEDOUT:
            channel_close(p, channel, CLOSED_BY_PEER)
            return
        # For example, a file is shorter than the reply says.
        reason = channel.transport.functions.error(&channel.transport)
        if reason == NULL:
            reason = strerror(-status)
        snprintf(why, sizeof(why), b"its response cannot be sent: %s", reason)
        channel_log_closing(p, channel, LEVEL_WARNING, why)
        channel_close(p, channel, CLOSED_BY_BROKER)
        return
    if not p.sending.empty():
        earlier = p.sending.find(channel.info.id)
        if earlier != p.sending.end():
            started = dereference(earlier).second
    if status == 0:
        p.sending[channel.info.id] = started
        selector_want(&p.selector, channel, channel.interest | transport_write_event(&channel.transport))
        return
    if not p.sending.empty():
        p.sending.erase(channel.info.id)
    atomic_count(&p.plane.apis[channel.send_api].response_bytes, channel.send.size)
    p.now_ns = monotonic_ns()
    times_count_total(&p.plane.apis[channel.send_api], channel.send_received_ns, p.now_ns)
    count_time_alone(&p.times[channel.send_api].send, p.now_ns - started)
    if channel.record != NULL:
        request_record_post(p.plane.events, channel.record, channel.send.size, p.now_ns - channel.send_received_ns)
        channel.record = NULL
    send_leave(channel.send, &p.left.send)
    channel.send = NULL
    if channel.interest & EPOLLOUT:
        selector_want(&p.selector, channel, channel.interest & ~EPOLLOUT)
    channel_finish(p, channel)


cdef void channel_start_reply(ProcessorState* p, KafkaChannel* channel, Send* send) noexcept nogil:
    """Takes over `send`; the request is done."""
    quotas_before_reply(channel, &p.throttled, &p.times[channel.request.frame.api_key].throttle)
    channel.send = send
    channel.send_api = channel.request.frame.api_key
    channel.send_received_ns = channel.request.frame.received_ns
    times_count_parts(&p.times[channel.send_api], channel.request, p.now_ns)
    channel.record = request_record_of(p.plane, p.registry, channel.request)
    channel_forget_request(p, channel)
    channel_write(p, channel)


# ---- requests --------------------------------------------------------------------------------------------------------

cdef bint request_push(ProcessorState* p, PendingRequest* pending) noexcept nogil:
    pending_ref(pending)
    if channel_push(p.requests, pending, p.mailbox):
        p.pushed += 1
        return True
    pending_unref(pending)
    return False


cdef void hand_to_python(ProcessorState* p, KafkaChannel* channel) noexcept nogil:
    p.in_flight[channel.request.frame.token] = channel
    if not p.backlog.empty() or not request_push(p, channel.request):
        p.backlog.push_back(channel.request.frame.token)


cdef void request_push_backlog(ProcessorState* p) noexcept nogil:
    cdef unordered_map[uint64_t, KafkaChannel*].iterator it
    while not p.backlog.empty():
        it = p.in_flight.find(p.backlog.front())
        if it != p.in_flight.end() and not request_push(p, dereference(it).second.request):
            return
        p.backlog.pop_front()


cdef void hand_to_worker(ProcessorState* p, KafkaChannel* channel) noexcept nogil:
    request_leave(p, channel)
    worker_pool_submit(p.workers, channel.request)


cdef void request_wake(ProcessorState* p, KafkaChannel* channel) noexcept nogil:
    cdef PendingRequest* pending = channel.request
    if pending.away:
        # The event may come from a waiter that this very work registers, so it is not stale.
        pending.woken = True
    elif pending.parked != NULL and pending.ask == NULL:
        request_resume(p, channel, False)


cdef void request_come_back(ProcessorState* p, KafkaChannel* channel) noexcept nogil:
    cdef PendingRequest* pending = channel.request
    cdef Outcome outcome
    if not pending.away:
        return
    pending.away = False
    outcome = pending.outcome
    pending.outcome.send = NULL
    if outcome.kind == OUTCOME_RESUME:
        pending.parked = outcome.parked
        request_resume(p, channel, False)
        return
    carry_out(p, channel, &outcome)
    if outcome.kind == OUTCOME_PARKED and pending.woken:
        request_resume(p, channel, False)


cdef void carry_out(ProcessorState* p, KafkaChannel* channel, Outcome* outcome) noexcept nogil:
    cdef PendingRequest* pending = channel.request
    cdef int api = pending.frame.api_key
    cdef RequestRecord* record
    if outcome.kind == OUTCOME_PARKED or outcome.kind == OUTCOME_ASK or outcome.kind == OUTCOME_WORKER:
        pending.parked = outcome.parked
        pending.parked_ns = monotonic_ns()
        if outcome.kind == OUTCOME_ASK:
            pending.ask = outcome.ask
            hand_to_python(p, channel)
            return
        if outcome.kind == OUTCOME_WORKER:
            hand_to_worker(p, channel)
            return
        p.in_flight[pending.frame.token] = channel
        # At a stop, a waiting request gets an answer with the data at hand; a produce may still be acknowledged until
        # the time is over.
        if p.stopping and (pending.api.waits_for_records or p.last_chance):
            outcome.deadline_ns = p.now_ns + 1_000_000
        leave_purgatory(p, pending)
        purgatory_add(&p.purgatory, &pending.wait, outcome.deadline_ns)
        atomic_count_alone(&p.delayed[api], 1)
        return
    if outcome.kind == OUTCOME_GATHERED:
        pending.parked = outcome.parked
        pending.parked_ns = 0
        if p.gathered.empty():
            p.gathered_ns = p.now_ns
        p.gathered.push_back(Gathered(channel, outcome.group))
        return
    pending.parked = NULL
    if outcome.kind == OUTCOME_PYTHON:
        pending.api = NULL
        hand_to_python(p, channel)
        return
    if outcome.kind == OUTCOME_REPLY:
        channel_start_reply(p, channel, outcome.send)
    elif outcome.kind == OUTCOME_NO_REPLY:
        channel_count(p, pending)
        quotas_throttle(channel, &p.throttled, &p.times[api].throttle)
        record = request_record_of(p.plane, p.registry, pending)
        if record != NULL:
            request_record_post(p.plane.events, record, 0, p.now_ns - pending.frame.received_ns)
        channel_forget_request(p, channel)
        channel_finish(p, channel)
    else:
        channel_log_closing(p, channel, LEVEL_INFO,
                            outcome.message if outcome.message != NULL else <const char*>b"the request is refused")
        channel_forget_request(p, channel)
        channel_close(p, channel, CLOSED_BY_BROKER)


cdef void request_resume(ProcessorState* p, KafkaChannel* channel, bint timed_out) noexcept nogil:
    cdef PendingRequest* pending = channel.request
    cdef ApiCounters* counters = &p.plane.apis[pending.frame.api_key]
    cdef int64_t started = monotonic_ns()
    cdef int64_t ended
    cdef Outcome outcome
    cdef NetworkThread* thread
    memset(&outcome, 0, sizeof(outcome))
    leave_purgatory(p, pending)
    if pending.parked_ns:
        pending.remote_ns += started - pending.parked_ns
        atomic_count(&counters.remote_ns, started - pending.parked_ns)
    pending.quota.spent_ns = pending.local_ns
    pending.quota.step_ns = started
    thread = may_be_left(p, channel, DOING_REQUEST, False)
    pending.api.resume(p.plane, pending.parked, timed_out, &outcome)
    ended = monotonic_ns()
    pending.local_ns += ended - started
    atomic_count(&counters.local_ns, ended - started)
    if thread != NULL:
        if is_alone(thread):
            finish_alone(p, pending, &outcome, thread)
        thread.may_leave = False
    p.now_ns = ended
    carry_out(p, channel, &outcome)


cdef bint log_in(ProcessorState* p, KafkaChannel* channel, int64_t started) noexcept nogil:
    """Serves a request of a login by SCRAM. False: it is Python's."""
    cdef PendingRequest* pending = channel.request
    cdef Send* reply = NULL
    cdef int result = login_serve(p.plane, p.registry, p.apis, channel, &reply)
    if result == LOGIN_OF_PYTHON:
        return False
    p.now_ns = monotonic_ns()
    pending.local_ns = p.now_ns - started
    atomic_count(&p.plane.apis[pending.frame.api_key].local_ns, pending.local_ns)
    if reply == NULL:
        channel_log_closing(p, channel, LEVEL_WARNING, b"the broker is out of memory")
        channel_close(p, channel, CLOSED_BY_BROKER)
    elif result == LOGIN_REFUSED:
        channel_fail(p, channel, reply, -1)
    else:
        if result == LOGIN_ACCEPTED:
            atomic_count(&channel.security.authenticated, 1)
            guard_lift(channel, p.reader.max_frame, 0)
        channel_start_reply(p, channel, reply)
    return True


cdef void handle_frame(ProcessorState* p, KafkaChannel* channel, WholeFrame* frame) noexcept nogil:
    cdef PendingRequest* pending = pending_new(p.kept, p.plane, p.mailbox, p.pool, channel.info, &p.left)
    cdef bint in_place = False
    cdef HeaderStatus status
    cdef GuardResult guard
    cdef ApiCounters* counters
    cdef char why[160]
    cdef int64_t started = p.now_ns
    p.kept = NULL
    channel.request = pending
    if frame.place == PLACE_OWNED:
        pending.memory = frame.memory
        pending.capacity = frame.capacity
        pending.reserved = frame.reserved
    elif frame.place == PLACE_SCRATCH and frame.size > COPIED_FRAME:
        in_place = True
    elif not reader_copy(p.pool, pending, frame):
        channel_close(p, channel, CLOSED_BY_BROKER)
        return
    if channel.guarded:
        status = guarded_decode(p.apis, channel, frame.data, frame.size, pending)
    else:
        status = request_header_decode(p.apis, frame.data, frame.size, &pending.frame)
    if status != HEADER_OK and status != HEADER_UNSUPPORTED_API_VERSIONS:
        explain_header(status, &pending.frame, why, sizeof(why))
        channel_log_closing(p, channel, LEVEL_INFO, why)
        channel_close(p, channel, CLOSED_BY_BROKER)
        return
    if channel.guarded:
        guard = guarded_pass(channel, pending, started)
        if guard != GUARD_PASS:
            explain_guard(channel, pending, guard, why, sizeof(why))
            channel_log_closing(p, channel, LEVEL_INFO, why)
            if guard == GUARD_EXPIRED:
                channel_close(p, channel, CLOSED_BY_BROKER)
            else:
                channel_fail(p, channel, NULL, -1)
            return
    pending.api = p.apis.apis[pending.frame.api_key].served
    if in_place and (pending.api == NULL or pending.api.may_be_python):
        in_place = False
        if not reader_copy(p.pool, pending, frame):
            channel_close(p, channel, CLOSED_BY_BROKER)
            return
        if channel.guarded:
            guarded_decode(p.apis, channel, frame.data, frame.size, pending)
        else:
            request_header_decode(p.apis, frame.data, frame.size, &pending.frame)
    pending.unsupported_version = status == HEADER_UNSUPPORTED_API_VERSIONS
    pending.frame_size = frame.size
    pending.frame.received_ns = started
    counters = &p.plane.apis[pending.frame.api_key]
    atomic_count(&counters.requests, 1)
    atomic_count(&counters.request_bytes, frame.size + 4)
    atomic_count_alone(&channel.info.requests, 1)
    atomic_store(&channel.info.in_flight, 1)
    channel.mute |= MUTE_REQUEST
    if quotas_ready(atomic_load(&p.plane.quota_epoch), pending):
        serve(p, channel, in_place, started)
    elif in_place and reader_donate(&p.reader, channel, pending) < 0:
        channel_close(p, channel, CLOSED_BY_BROKER)
    else:
        pending.ask = &quota_ask
        hand_to_python(p, channel)


cdef void request_begin(ProcessorState* p, KafkaChannel* channel) noexcept nogil:
    cdef int64_t started = monotonic_ns()
    channel.request.ask = NULL
    quotas_use(channel.request, started)
    serve(p, channel, False, started)


cdef void serve(ProcessorState* p, KafkaChannel* channel, bint in_place, int64_t started) noexcept nogil:
    """Gives a request to its API, or to Python."""
    cdef PendingRequest* pending = channel.request
    cdef ApiCounters* counters = &p.plane.apis[pending.frame.api_key]
    cdef Outcome outcome
    cdef NetworkThread* thread
    if pending.api == NULL:
        if not (channel.guarded and log_in(p, channel, started)):
            hand_to_python(p, channel)
        return
    memset(&outcome, 0, sizeof(outcome))
    # A small frame, behind which no other is at hand, among the events of several connections.
    pending.frame.gathers = pending.frame_size <= COPIED_FRAME and p.reader.start == p.reader.end and may_gather(p)
    thread = may_be_left(p, channel, DOING_REQUEST, in_place)
    pending.api.handle(p.plane, &pending.frame, &outcome)
    if thread != NULL:
        if is_alone(thread):
            pending.local_ns = monotonic_ns() - started
            atomic_count(&counters.local_ns, pending.local_ns)
            finish_alone(p, pending, &outcome, thread)
        thread.may_leave = False
    p.now_ns = monotonic_ns()
    pending.local_ns = p.now_ns - started
    atomic_count(&counters.local_ns, pending.local_ns)
    if in_place and outcome_keeps_frame(&outcome):
        # The donation precedes carry_out: Python or a worker may have the request a moment later.
        if reader_donate(&p.reader, channel, pending) < 0:
            pending.parked = outcome.parked
            channel_close(p, channel, CLOSED_BY_BROKER)
            return
    carry_out(p, channel, &outcome)


cdef void channel_handle_frames(ProcessorState* p, KafkaChannel* channel) noexcept nogil:
    """Handles every whole frame at hand, until one stays in flight or the connection has had its turn."""
    cdef int left = FRAMES_A_TURN
    cdef WholeFrame frame
    cdef FrameStatus status
    cdef char why[160]
    while not channel.closed and not channel.mute:
        if left == 0:
            channel_be_ready(p, channel)
            break
        left -= 1
        status = reader_next(&p.reader, channel, &frame)
        if status == FRAME_WHOLE:
            handle_frame(p, channel, &frame)
            continue
        if status == FRAME_NO_MEMORY:
            channel.mute |= MUTE_MEMORY
            p.starving.push_back(channel.info.id)
        elif status == FRAME_INVALID:
            explain_size(channel, frame.size, why, sizeof(why))
            channel_log_closing(p, channel, LEVEL_WARNING, why)
            channel_close(p, channel, CLOSED_BY_BROKER)
        elif status != FRAME_PARTIAL:
            channel_log_closing(p, channel, LEVEL_WARNING, b"the broker is out of memory")
            channel_close(p, channel, CLOSED_BY_BROKER)
        break
    if not channel.closed and p.reader.start != p.reader.end and reader_stash(&p.reader, channel) < 0:
        channel_close(p, channel, CLOSED_BY_BROKER)
    p.reader.start = p.reader.end = 0
