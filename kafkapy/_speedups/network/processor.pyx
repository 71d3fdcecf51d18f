"""The network thread (see processor.pxd)."""

cimport cython
from cython.operator cimport dereference, preincrement
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memset, strerror
from libcpp.unordered_map cimport unordered_map
from libcpp.vector cimport vector
from posix.unistd cimport close

from kafkapy._speedups.base.blocking cimport start_on_thread, thread_self
from kafkapy._speedups.base.posix cimport (
    atomic_count,
    atomic_count_alone,
    atomic_load,
    atomic_store,
    monotonic_ns,
    pthread_cond_broadcast,
    pthread_cond_init,
    pthread_cond_t,
    pthread_cond_wait,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_t,
    pthread_mutex_unlock,
)
from kafkapy._speedups.base.send cimport send_free
from kafkapy._speedups.network.channel_events cimport channel_event, channel_read
from kafkapy._speedups.network.channel_handler cimport (
    channel_close,
    channel_count,
    channel_fail,
    channel_finish,
    channel_forget_request,
    channel_handle_frames,
    channel_log_closing,
    channel_sent,
    channel_start_reply,
    channel_unmute,
    request_begin,
    request_come_back,
    request_push_backlog,
    request_resume,
    request_wake,
)
from kafkapy._speedups.network.channel_stages cimport (
    stage_authenticated,
    stage_begin,
    stage_begun,
    stage_event,
    stage_expire,
    stage_next_due,
    stage_take_turns,
)
from kafkapy._speedups.network.connection cimport (
    CLOSED_AT_STOP,
    CLOSED_BY_BROKER,
    CLOSED_EXCESS,
    CLOSED_IDLE,
    LEVEL_DEBUG,
    LEVEL_WARNING,
    LOGGER_PROCESSOR,
    ConnectionInfo,
    connection_closed,
    connection_unref,
    listener_security,
    network_log,
)
from kafkapy._speedups.network.connection_quotas cimport quota_exceeded
from kafkapy._speedups.network.frame_reader cimport reader_close, reader_open
from kafkapy._speedups.network.gathering cimport settle_gathered, settle_if_due
from kafkapy._speedups.network.left_behind cimport channel_separate
from kafkapy._speedups.network.mailbox cimport (
    MAIL_AUTHENTICATED,
    MAIL_BEGIN,
    MAIL_CLOSE_CONNECTION,
    MAIL_CONNECTION,
    MAIL_LOOK,
    MAIL_NO_REPLY,
    MAIL_OUTCOME,
    MAIL_REFUSED,
    MAIL_REPLY,
    MAIL_RESUME,
    MAIL_SENT,
    MAIL_WAKE,
    Mail,
    mailbox_attach,
    mailbox_collect,
    mailbox_give_back,
    mailbox_post_token,
    mailbox_take,
)
from kafkapy._speedups.network.memory_pool cimport pool_add_listener, pool_available, pool_remove_listener
from kafkapy._speedups.network.pending_request cimport PendingRequest
from kafkapy._speedups.network.processor_state cimport ProcessorState
from kafkapy._speedups.network.purgatory cimport PurgatoryEntry, purgatory_next_deadline, purgatory_pop_expired
from kafkapy._speedups.network.request_channel cimport RequestChannel, channel_signal
from kafkapy._speedups.network.request_times cimport times_read
from kafkapy._speedups.network.selector cimport (
    MUTE_MEMORY,
    MUTE_STOPPING,
    MUTE_THROTTLED,
    STAGE_HANDSHAKE,
    KafkaChannel,
    selector_add,
    selector_close,
    selector_expired,
    selector_next_expiry,
    selector_open,
    selector_poll,
    selector_timer_rang,
    selector_touch,
)
from kafkapy._speedups.network.worker_pool cimport WorkerPool
from kafkapy._speedups.requests.apis cimport data_plane_forget, data_plane_thread_begin
from kafkapy._speedups.requests.data_plane cimport API_KEY_LIMIT

cdef enum:
    REQUESTS_HELD = 16      # for the control loop, before it is woken
    ALONE_PAUSE_NS = 10000000

cdef extern from * nogil:
    """
    #include <signal.h>
    #include <pthread.h>
    /* Signals are for the main thread: Python's handlers and the event loop's wake-up descriptor are there. */
    /* Those that a fault of this very thread raises stay: blocked, they would end the process without a report. */
    static inline void kp_block_signals(void) {
        sigset_t set;
        sigfillset(&set);
        sigdelset(&set, SIGSEGV); sigdelset(&set, SIGBUS); sigdelset(&set, SIGFPE); sigdelset(&set, SIGILL);
        sigdelset(&set, SIGTRAP); sigdelset(&set, SIGSYS); sigdelset(&set, SIGABRT);
        pthread_sigmask(SIG_BLOCK, &set, 0);
    }
    """
    void block_signals "kp_block_signals"()


cdef KafkaChannel* channel_of(ProcessorState* p, int64_t connection_id) noexcept nogil:
    cdef unordered_map[int64_t, KafkaChannel*].iterator it = p.channels.find(connection_id)
    return dereference(it).second if it != p.channels.end() else NULL


cdef KafkaChannel* in_flight_of(ProcessorState* p, uint64_t token) noexcept nogil:
    cdef unordered_map[uint64_t, KafkaChannel*].iterator it = p.in_flight.find(token)
    return dereference(it).second if it != p.in_flight.end() else NULL


cdef void free_closed(ProcessorState* p) noexcept nogil:
    cdef size_t i
    cdef KafkaChannel* channel
    for i in range(p.closed.size()):
        channel = p.closed[i]
        connection_unref(channel.info)
        del channel
    p.closed.clear()


cdef void make_room(ProcessorState* p) noexcept nogil:
    """Closes the least recently used connection of another listener (Kafka's closeExcessConnections): the inter-broker
    listener went over max.connections."""
    cdef KafkaChannel* channel = p.selector.oldest
    if not quota_exceeded(p.registry.quotas):
        return
    while channel != NULL and channel.info.listener_index == atomic_load(&p.registry.quotas.protected_listener):
        channel = channel.newer
    if channel != NULL:
        channel_close(p, channel, CLOSED_EXCESS)


cdef void add_connection(ProcessorState* p, ConnectionInfo* info, int fd) noexcept nogil:
    cdef KafkaChannel* channel
    cdef int error
    if p.stopping:
        close(fd)
        connection_closed(p.registry, p.plane, info, CLOSED_AT_STOP)
        connection_unref(info)
        return
    channel = new KafkaChannel()
    channel.info = info
    error = stage_begin(p, channel, fd, listener_security(p.registry, info.listener_index))
    if error:
        close(fd)
    else:
        error = selector_add(&p.selector, channel, p.now_ns)
        if error:
            channel.transport.functions.close(&channel.transport)
    if error:
        network_log(p.registry, LEVEL_WARNING, LOGGER_PROCESSOR, strerror(error))
        connection_closed(p.registry, p.plane, info, CLOSED_BY_BROKER)
        channel.closed = True
        p.closed.push_back(channel)
        return
    p.channels[info.id] = channel
    atomic_store(&p.connections, p.channels.size())
    if info.listener_index == atomic_load(&p.registry.quotas.protected_listener):
        make_room(p)
    stage_begun(p, channel)


cdef void open_mail(ProcessorState* p, const Mail* mail) noexcept nogil:
    cdef KafkaChannel* channel
    cdef PendingRequest* pending
    if mail.kind == MAIL_CONNECTION:
        add_connection(p, mail.info, mail.fd)
        return
    if mail.kind == MAIL_CLOSE_CONNECTION:
        channel = channel_of(p, <int64_t>mail.token)
        if channel != NULL:
            channel_close(p, channel, CLOSED_BY_BROKER)
        return
    if mail.kind == MAIL_SENT:
        channel = channel_of(p, <int64_t>mail.token)
        if channel != NULL:
            channel_sent(p, channel)
        return
    if mail.kind == MAIL_LOOK:
        return      # the loop checks backlog and memory after every mail
    channel = in_flight_of(p, mail.token)
    if channel == NULL:
        send_free(mail.send)    # the connection is gone
        return
    pending = channel.request
    if mail.kind == MAIL_WAKE:
        request_wake(p, channel)
    elif mail.kind == MAIL_OUTCOME:
        request_come_back(p, channel)
    elif mail.kind == MAIL_RESUME:
        pending.ask = NULL
        request_resume(p, channel, False)
    elif mail.kind == MAIL_AUTHENTICATED:
        stage_authenticated(p, channel, mail.send)
    elif mail.kind == MAIL_REFUSED:
        channel_fail(p, channel, mail.send, pending.delay_ns)
    elif mail.kind == MAIL_REPLY:
        channel.tokens_follow = pending.tokens_follow
        channel_start_reply(p, channel, mail.send)
    elif mail.kind == MAIL_BEGIN:
        request_begin(p, channel)
    elif mail.kind == MAIL_NO_REPLY:
        channel_count(p, pending)
        channel_forget_request(p, channel)
        channel_finish(p, channel)
    else:
        atomic_count(&p.plane.apis[pending.frame.api_key].errors, 1)
        channel_close(p, channel, CLOSED_BY_BROKER)


# ---- the loop --------------------------------------------------------------------------------------------------------

cdef void look_at_ready(ProcessorState* p) noexcept nogil:
    cdef KafkaChannel* channel
    if p.looking.empty():
        p.looking.swap(p.ready)
    while p.look_next < p.looking.size():
        # Before the next one is taken: this thread may be left behind.
        settle_if_due(p)
        channel = channel_of(p, p.looking[p.look_next])
        p.look_next += 1
        if channel == NULL:
            continue
        channel.is_ready = False
        if channel.ahead != NULL and not channel.mute:
            channel_handle_frames(p, channel)
        if channel.closed or channel.mute or channel.ahead != NULL:
            continue
        if channel.transport.functions.pending(&channel.transport) > 0:
            channel_read(p, channel)
    settle_gathered(p)
    p.looking.clear()
    p.look_next = 0


cdef void look_at_starving(ProcessorState* p) noexcept nogil:
    """Resumes as many starving channels as the pool can take; a channel that finds it exhausted again returns to the
    list."""
    cdef vector[int64_t] ids
    cdef size_t i
    cdef KafkaChannel* channel
    if p.starving.empty() or not pool_available(p.pool):
        return
    ids.swap(p.starving)
    for i in range(ids.size()):
        channel = channel_of(p, ids[i])
        if channel != NULL:
            channel_unmute(p, channel, MUTE_MEMORY)


cdef void expire(ProcessorState* p) noexcept nogil:
    cdef PurgatoryEntry* entry
    cdef KafkaChannel* channel
    while True:
        entry = purgatory_pop_expired(&p.purgatory, p.now_ns)
        if entry == NULL:
            break
        channel = in_flight_of(p, entry.token)
        if channel != NULL:
            atomic_count_alone(&p.delayed[channel.request.frame.api_key], -1)
            request_resume(p, channel, True)
    while True:
        entry = purgatory_pop_expired(&p.throttled, p.now_ns)
        if entry == NULL:
            break
        channel = channel_of(p, <int64_t>entry.token)
        if channel != NULL:
            channel_unmute(p, channel, MUTE_THROTTLED)
    if not p.setups.empty() or not p.farewells.empty():
        stage_expire(p)
    while True:
        channel = selector_expired(&p.selector, p.now_ns)
        if channel == NULL:
            break
        if channel.request != NULL or channel.mute & MUTE_THROTTLED:
            # The client waits for the broker, not the reverse; a reply that its peer does not read is another case.
            selector_touch(&p.selector, channel, p.now_ns)
            continue
        channel_log_closing(p, channel, LEVEL_DEBUG, b"it was idle for longer than connections.max.idle.ms")
        channel_close(p, channel, CLOSED_IDLE)


cdef void begin_stop(ProcessorState* p) noexcept nogil:
    """Begins the stop: no new requests; parked fetches are answered with the data at hand; idle connections close."""
    cdef unordered_map[int64_t, KafkaChannel*].iterator it = p.channels.begin()
    p.stopping = True
    while it != p.channels.end():
        dereference(it).second.mute |= MUTE_STOPPING
        p.stopped.push_back(dereference(it).first)
        preincrement(it)
    stop_channels(p)


cdef void stop_channels(ProcessorState* p) noexcept nogil:
    cdef KafkaChannel* channel
    while p.stop_next < p.stopped.size():
        channel = channel_of(p, p.stopped[p.stop_next])
        p.stop_next += 1
        if channel == NULL:
            continue
        if channel.request == NULL and channel.send == NULL:
            channel_close(p, channel, CLOSED_AT_STOP)
        elif channel.request != NULL and channel.request.wait.place and channel.request.api.waits_for_records:
            request_resume(p, channel, True)


cdef void end_stop(ProcessorState* p) noexcept nogil:
    """Ends the stop after its time: parked produces are answered as timed out, one write each, and every connection is
    closed."""
    cdef unordered_map[int64_t, KafkaChannel*].iterator it
    cdef KafkaChannel* channel
    p.last_chance = True
    p.now_ns = monotonic_ns()
    while not p.purgatory.heap.empty():
        channel = in_flight_of(p, p.purgatory.heap[0].token)
        request_resume(p, channel, True)
        channel_close(p, channel, CLOSED_AT_STOP)
    while not p.channels.empty():
        it = p.channels.begin()
        channel_close(p, dereference(it).second, CLOSED_AT_STOP)


cdef int64_t next_due(ProcessorState* p) noexcept nogil:
    """Returns the time of the next due work (monotonic ns); 0: now, -1: none."""
    cdef int64_t due = purgatory_next_deadline(&p.purgatory)
    cdef int64_t other = selector_next_expiry(&p.selector)
    if not p.ready.empty() or not p.mailbox.own_wakes.empty():
        return 0
    if other >= 0 and (due < 0 or other < due):
        due = other
    other = purgatory_next_deadline(&p.throttled)
    if other >= 0 and (due < 0 or other < due):
        due = other
    other = stage_next_due(p)
    if other >= 0 and (due < 0 or other < due):
        due = other
    if p.stopping:
        other = atomic_load(&p.stop_at_ns)
        if atomic_load(&p.alone):
            other = max(other, p.now_ns + ALONE_PAUSE_NS)       # the stop waits for them, but does not spin
        if due < 0 or other < due:
            due = other
    return due


cdef void turn(ProcessorState* p) noexcept nogil:
    p.now_ns = selector_poll(&p.selector, next_due(p), p.now_ns if p.now_is_now else monotonic_ns())
    p.now_is_now = False
    take_events(p)
    finish_turn(p)


cdef void take_events(ProcessorState* p) noexcept nogil:
    """Goes on where a thread that was left behind has stopped: epoll would first give the channels before that one
    again, which may have their next requests."""
    cdef KafkaChannel* channel
    cdef unsigned int events
    cdef int64_t looked
    cdef int pushed
    if p.gather_rest:
        p.gather_rest -= 1
    while p.event_next < p.selector.ready:
        settle_if_due(p)
        looked = p.now_ns
        channel = <KafkaChannel*>p.selector.events[p.event_next].data.ptr
        events = p.selector.events[p.event_next].events
        p.event_next += 1
        if channel == NULL:
            p.mailed = True
        elif <void*>channel == <void*>&p.selector:
            selector_timer_rang(&p.selector)
        else:
            pushed = p.pushed
            if channel.stage == STAGE_HANDSHAKE:
                stage_event(p, channel)
            else:
                channel_event(p, channel, events)
            # The control loop is woken for several requests at once, but never waits for a request that is served here.
            if p.pushed and (p.pushed == pushed or p.pushed >= REQUESTS_HELD):
                signal_channel(p)
            # The code that answers a request reads the clock after the reply is out.
            p.now_is_now = p.now_ns != looked
    settle_gathered(p)
    p.selector.ready = 0
    p.event_next = 0
    if p.mailed or not p.ready.empty() or not p.mailbox.own_wakes.empty():
        p.now_is_now = False
    if p.mailed:
        p.mailed = False
        mailbox_collect(p.mailbox, &p.mails)


cdef void finish_turn(ProcessorState* p) noexcept nogil:
    """Does the work of a turn that does not come from epoll. Each step goes on where a thread that was left behind has
    stopped."""
    cdef KafkaChannel* channel
    cdef Mail mail
    if not p.mails.empty():
        while p.mail_next < p.mails.size():
            mail = p.mails[p.mail_next]
            p.mail_next += 1
            open_mail(p, &mail)
        p.mails.clear()
        p.mail_next = 0
        request_push_backlog(p)
    if p.handshakes_ns or not p.waiting.empty():
        stage_take_turns(p)
    look_at_starving(p)
    look_at_ready(p)
    if p.wakes.empty():
        p.wakes.swap(p.mailbox.own_wakes)
    while p.wake_next < p.wakes.size():
        channel = in_flight_of(p, p.wakes[p.wake_next])
        p.wake_next += 1
        if channel != NULL:
            request_wake(p, channel)
    p.wakes.clear()
    p.wake_next = 0
    expire(p)
    if p.pushed:
        signal_channel(p)
    if not p.closed.empty():
        free_closed(p)


cdef void signal_channel(ProcessorState* p) noexcept nogil:
    p.pushed = 0
    channel_signal(p.requests)


cdef bint separate(void* processor, int64_t heir) noexcept nogil:
    cdef ProcessorState* p = <ProcessorState*>processor
    if not channel_separate(p):
        return False
    # Before the hanging thread can go on: its wake-ups and finished work no longer belong to this Processor.
    own_by(p, heir)
    return True


cdef void own_by(ProcessorState* p, int64_t thread) noexcept nogil:
    mailbox_attach(p.mailbox, thread)
    atomic_store(&p.left.owner, thread)


cdef void run_loop(void* processor) noexcept nogil:
    """Runs on the first thread from the start, on each later thread from the point where the earlier one was left
    behind."""
    cdef ProcessorState* p = <ProcessorState*>processor
    cdef int64_t stop_at, alone
    data_plane_thread_begin()
    own_by(p, thread_self())
    if atomic_load(&p.started_ns) == 0:
        atomic_store(&p.started_ns, monotonic_ns())
    else:
        p.now_ns = monotonic_ns()
        p.now_is_now = False
        take_events(p)
        stop_channels(p)
        finish_turn(p)
    while True:
        alone = atomic_load(&p.alone)
        turn(p)
        stop_at = atomic_load(&p.stop_at_ns)
        if stop_at == 0:
            continue
        if not p.stopping:
            begin_stop(p)
        if alone:
            continue            # they still have their outcomes to bring
        if p.channels.empty():
            break
        if monotonic_ns() >= stop_at:
            break
    p.last_chance = True        # from here on no thread is left behind
    if atomic_load(&p.alone):
        await_alone(p)
    mailbox_collect(p.mailbox, &p.mails)
    finish_turn(p)
    end_stop(p)
    free_closed(p)
    own_by(p, 0)
    pthread_mutex_lock(&ends)
    p.ended = True
    pthread_cond_broadcast(&an_end)
    pthread_mutex_unlock(&ends)


cdef void await_alone(ProcessorState* p) noexcept nogil:
    """Waits for threads that were left behind in the very last turn."""
    cdef int64_t alone = 1
    while alone:
        alone = atomic_load(&p.alone)
        turn(p)


cdef void run_to_its_end(ProcessorState* p) noexcept nogil:
    if start_on_thread(p, separate, run_loop):
        # No thread can start: this thread does the work, and no other takes over from it.
        block_signals()
        run_loop(p)
        return
    pthread_mutex_lock(&ends)
    while not p.ended:
        pthread_cond_wait(&an_end, &ends)
    pthread_mutex_unlock(&ends)


cdef pthread_mutex_t ends
pthread_mutex_init(&ends, NULL)
cdef pthread_cond_t an_end          # a Processor has ended
pthread_cond_init(&an_end, NULL)


@cython.no_gc_clear
cdef class Processor:
    """Owns one network thread's connections. The SocketServer makes it, and starts a thread on `run`; any thread may
    call the other methods."""

    def __cinit__(self, RequestChannel channel not None, WorkerPool workers not None,
                  int64_t max_frame_bytes, int64_t max_idle_ms):
        """max_frame_bytes: socket.request.max.bytes; max_idle_ms: connections.max.idle.ms (negative: never). The worker
        pool outlives `run`."""
        cdef int error
        self.channel = channel
        self.state = new ProcessorState()
        memset(&self.state.delayed[0], 0, sizeof(self.state.delayed))
        memset(&self.state.times[0], 0, sizeof(self.state.times))
        self.state.selector.epoll_fd = -1
        self.state.selector.timer_fd = -1
        self.state.plane = channel.plane.state
        self.state.requests = channel.state
        self.state.registry = channel.registry.state
        self.state.pool = channel.pool.state
        self.state.apis = channel.apis.state
        self.workers = workers
        self.state.workers = workers.state
        self.state.mailbox = mailbox_take(self.state.registry)
        if self.state.mailbox == NULL:
            raise OSError("no eventfd can be had for a processor")
        error = selector_open(&self.state.selector, self.state.mailbox.event_fd,
                              max_idle_ms * 1_000_000 if max_idle_ms >= 0 else -1)
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
                data_plane_forget(&self.state.left)
                del self.state.kept
            selector_close(&self.state.selector)
            if self.state.reader.scratch != NULL:
                reader_close(&self.state.reader)
        del self.state

    def run(self):
        """The thread's body: returns after a stop. Releases the GIL at once and for good. Once per Processor."""
        if self.started:
            raise RuntimeError("this processor has run already")
        self.started = True
        with nogil:
            run_to_its_end(self.state)

    def begin_stop(self, int64_t timeout_ms):
        """Reads no more requests, answers requests in flight for at most timeout_ms, closes everything, ends `run`."""
        cdef int64_t at = monotonic_ns() + max(timeout_ms, 0) * 1_000_000
        atomic_store(&self.state.stop_at_ns, at)
        with nogil:
            mailbox_post_token(self.state.mailbox, MAIL_LOOK, 0, NULL)

    def close_connection(self, int64_t connection_id):
        """Closes that connection if this Processor has it."""
        with nogil:
            mailbox_post_token(self.state.mailbox, MAIL_CLOSE_CONNECTION, <uint64_t>connection_id, NULL)

    def counters(self):
        """connections (open now), idle_ns (time spent waiting), running_ns (time since the thread started; 0
        before), delayed (requests in the purgatory, by API key), times ({API key: {part: (total in ns, counts)}}, for
        each part of a request's time a list whose number i counts requests that took less than 2**i microseconds,
        and not less than 2**(i-1); all but local and send without the requests that have no such time)."""
        cdef int i
        cdef int64_t started = atomic_load(&self.state.started_ns)
        cdef int64_t waiting = atomic_load(&self.state.selector.waiting_since_ns)
        cdef int64_t now = monotonic_ns()
        return {
            "connections": atomic_load(&self.state.connections),
            "idle_ns": atomic_load(&self.state.selector.idle_ns) + (now - waiting if waiting else 0),
            "running_ns": now - started if started else 0,
            "delayed": {
                i: atomic_load(&self.state.delayed[i])
                for i in range(API_KEY_LIMIT)
                if self.state.apis.apis[i].served != NULL
            },
            "times": {
                i: times_read(&self.state.times[i])
                for i in range(API_KEY_LIMIT)
                if atomic_load(&self.state.plane.apis[i].requests)
            },
        }
