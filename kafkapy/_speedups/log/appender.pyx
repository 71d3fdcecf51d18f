"""Appends on worker threads (see appender.pxd)."""

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset
from libcpp.vector cimport vector

from kafkapy._speedups.base.error_codes cimport ERROR_KAFKA_STORAGE_ERROR, ERROR_NONE, ERROR_NOT_LEADER_OR_FOLLOWER
from kafkapy._speedups.base.event_queue cimport EVENT_APPENDED, EventQueue, event_post
from kafkapy._speedups.base.posix cimport (
    atomic_add,
    cond_wait_until,
    monotonic_ns,
    pthread_cond_destroy,
    pthread_cond_init,
    pthread_cond_signal,
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
    wall_clock_ms,
)
from kafkapy._speedups.log.append cimport append_batches
from kafkapy._speedups.log.cut cimport flush_if_due
from kafkapy._speedups.log.layout cimport LOG_APPENDED, LOG_PARK_SEGMENT, WAIT_SEGMENT, AppendStatus
from kafkapy._speedups.log.partition_log cimport PartitionLog
from kafkapy._speedups.log.producer_state cimport ORIGIN_COORDINATOR
from kafkapy._speedups.log.state cimport log_ref, log_remove_waiters, log_unref
from kafkapy._speedups.log.workers cimport (
    LogWorkers,
    log_workers_post,
    log_workers_post_all,
    log_workers_ref,
    log_workers_unref,
)

from kafkapy.errors import error_for

cdef enum:
    PATIENCE_NS = 1_000_000         # without an end of an append
    MOST_PATIENCE_NS = 5_000_000    # in one call of `settle`
    QUICK_NS = 250_000              # such an append shows that its directory does not stall


cdef void appender_unref(AppenderState* appender) noexcept nogil:
    if atomic_add(&appender.references, -1) == 0:
        pthread_cond_destroy(&appender.all_ended)
        pthread_mutex_destroy(&appender.mutex)
        del appender


cdef void free_append(WorkerAppend* append) noexcept nogil:
    log_unref(append.log)
    log_workers_unref(append.workers)
    free(append.data)
    free(append.result.record_errors)
    del append


cdef void end(WorkerAppend* append) noexcept nogil:
    cdef AppenderState* appender = append.appender
    cdef bint wake = False
    pthread_mutex_lock(&appender.mutex)
    if appender.events == NULL:
        free_append(append)
    else:
        append.ended = True
        append.took_ns = monotonic_ns() - append.given_ns
        appender.ended.push_back(append)
        if appender.loop_waits:
            if append.awaited:
                appender.awaited -= 1
                wake = appender.awaited == 0
        elif appender.ended.size() == 1:
            event_post(appender.events, EVENT_APPENDED, 0, 0, NULL, 0)
    pthread_mutex_unlock(&appender.mutex)
    if wake:
        pthread_cond_signal(&appender.all_ended)
    appender_unref(appender)


cdef void append_again(void* owner, uint64_t token) noexcept nogil:
    """Runs the append again: a segment is ready, or the log is closed."""
    cdef WorkerAppend* append = <WorkerAppend*>owner
    if not log_workers_post(append.workers, append_work, append):
        append.result.error = ERROR_NOT_LEADER_OR_FOLLOWER
        log_remove_waiters(append.log, append, 0, False)
        end(append)


cdef void append_work(void* subject) noexcept nogil:
    cdef WorkerAppend* append = <WorkerAppend*>subject
    cdef AppendStatus status
    status = append_batches(append.log, append.data, append.size, &append.options, &append.waiter, ORIGIN_COORDINATOR,
                            &append.result)
    if status == LOG_PARK_SEGMENT:
        return              # append_again has it, perhaps on another thread already
    if status == LOG_APPENDED:
        if flush_if_due(append.log):
            append.result.error = ERROR_KAFKA_STORAGE_ERROR
    elif append.result.error == ERROR_NONE:
        append.result.error = ERROR_KAFKA_STORAGE_ERROR
    end(append)


cdef void give(WorkerAppend** appends, size_t count) noexcept nogil:
    """Gives appends to the threads of one directory."""
    cdef int64_t now = monotonic_ns()
    cdef size_t i
    for i in range(count):
        appends[i].given_ns = now
    if not log_workers_post_all(appends[0].workers, append_work, <void**>appends, count):
        # The threads were stopped, or none can start.
        for i in range(count):
            append_work(appends[i])


cdef bint is_slow(vector[LogWorkersState*]* slow, LogWorkersState* workers) noexcept nogil:
    cdef size_t i
    for i in range(slow.size()):
        if slow[0][i] == workers:
            return True
    return False


cdef void forget_slow(vector[LogWorkersState*]* slow, LogWorkersState* workers) noexcept nogil:
    cdef size_t i
    for i in range(slow.size()):
        if slow[0][i] == workers:
            slow[0][i] = slow.back()
            slow.pop_back()
            return


cdef void give_and_wait(AppenderState* appender, vector[WorkerAppend*]* given, int64_t* patience_ns,
                        vector[LogWorkersState*]* slow) noexcept nogil:
    """Gives appends to their threads, and waits a limited time for appends to directories that are not slow."""
    cdef vector[WorkerAppend*] waited
    cdef LogWorkersState* workers
    cdef WorkerAppend* append
    cdef size_t i, left, first = 0
    cdef int64_t now, began
    for i in range(given.size()):
        append = given[0][i]
        append.awaited = patience_ns[0] > 0 and not is_slow(slow, append.workers)
        if append.awaited:
            waited.push_back(append)
    pthread_mutex_lock(&appender.mutex)
    appender.awaited = waited.size()
    appender.loop_waits = appender.awaited > 0
    pthread_mutex_unlock(&appender.mutex)
    # An append without a waiter may be gone as soon as its thread has it.
    while first < given.size():
        workers = given[0][first].workers
        i = first + 1
        while i < given.size() and given[0][i].workers == workers:
            i += 1
        give(given.data() + first, i - first)
        first = i
    pthread_mutex_lock(&appender.mutex)
    now = began = monotonic_ns()
    while appender.awaited > 0 and now - began < patience_ns[0]:
        left = appender.awaited
        while appender.awaited > 0 and cond_wait_until(&appender.all_ended, &appender.mutex, now + PATIENCE_NS):
            pass
        if appender.awaited == left:
            break
        now = monotonic_ns()
    patience_ns[0] -= now - began
    if appender.awaited > 0:
        for i in range(waited.size()):
            append = waited[i]
            if not append.ended:
                append.awaited = False
                if not is_slow(slow, append.workers):
                    slow.push_back(append.workers)
        appender.awaited = 0
    appender.loop_waits = False
    pthread_mutex_unlock(&appender.mutex)


cdef class LogAppender:
    """Appends for the coordinators. KafkaServer makes the appender; the control loop calls `append` and `take`."""

    def __cinit__(self, EventQueue events not None):
        self.state = new AppenderState()
        pthread_mutex_init(&self.state.mutex, NULL)
        pthread_cond_init(&self.state.all_ended, NULL)
        self.state.references = 1
        self.state.loop_waits = False
        self.state.awaited = 0
        self.state.events = events.state
        self.events = events
        self.next_ticket = 0
        self.waiting = {}
        self.held = False

    def __dealloc__(self):
        cdef vector[WorkerAppend*] ended
        cdef size_t i
        if self.state != NULL:
            with nogil:
                pthread_mutex_lock(&self.state.mutex)
                self.state.events = NULL
                ended.swap(self.state.ended)
                pthread_mutex_unlock(&self.state.mutex)
                for i in range(ended.size()):
                    free_append(ended[i])
                for i in range(self.gathered.size()):
                    free_append(self.gathered[i])
                    appender_unref(self.state)
                appender_unref(self.state)

    def append(self, PartitionLog log not None, bytes batches not None, int leader_epoch, object done):
        """Appends whole batches with acks=all on a thread of the log's directory. `take` calls `done` with the offset
        after the last record, or with the KafkaError. False, without an append, when the log has no threads. After a
        stop of the threads the caller's thread appends."""
        cdef LogWorkers workers = log.append_workers
        cdef WorkerAppend* append
        if workers is None:
            return False
        append = new WorkerAppend()
        append.size = len(batches)
        append.data = <uint8_t*>malloc(<size_t>append.size + 1)
        memset(&append.result, 0, sizeof(append.result))
        if append.data == NULL:
            del append
            raise MemoryError
        memcpy(append.data, PyBytes_AS_STRING(batches), <size_t>append.size)
        append.log = log.state
        append.workers = workers.state
        append.appender = self.state
        log_ref(append.log)
        log_workers_ref(append.workers)
        append.options.required_acks = -1
        append.options.api_version = -1
        append.options.validated = True
        append.options.current_leader_epoch = leader_epoch
        append.options.now_ms = wall_clock_ms()
        append.options.verify = False
        append.options.adds_partitions = False
        append.options.guard = 0
        append.waiter.kind = WAIT_SEGMENT
        append.waiter.threshold = 0
        append.waiter.wake = append_again
        append.waiter.owner = append
        append.waiter.token = 0
        append.awaited = False
        append.ended = False
        self.next_ticket += 1
        append.ticket = self.next_ticket
        self.waiting[append.ticket] = done
        atomic_add(&self.state.references, 1)
        if self.held:
            self.gathered.push_back(append)
        else:
            with nogil:
                give(&append, 1)
        return True

    def hold(self):
        """Gathers appends until `settle`. False when another caller already gathers; that caller then calls
        `settle`."""
        if self.held:
            return False
        self.held = True
        return True

    def settle(self):
        """Runs the gathered appends, and the appends that their `done` gathers; calls `done` of the quick ones, as
        `take` does. Waits a few ms at most. Returns the exceptions of the calls."""
        cdef vector[WorkerAppend*] given
        cdef int64_t patience_ns = MOST_PATIENCE_NS
        failures = []
        try:
            while not self.gathered.empty():
                given.clear()
                given.swap(self.gathered)
                with nogil:
                    give_and_wait(self.state, &given, &patience_ns, &self.slow)
                failures += self.take()
        finally:
            self.held = False
        return failures

    def take(self):
        """Calls `done` of the finished appends: the answer to APPENDED. Returns the exceptions of the calls."""
        cdef vector[WorkerAppend*] ended
        cdef const char* message
        cdef size_t i
        failures = []
        with nogil:
            pthread_mutex_lock(&self.state.mutex)
            ended.swap(self.state.ended)
            pthread_mutex_unlock(&self.state.mutex)
        outcomes = []
        for i in range(ended.size()):
            done = self.waiting.pop(ended[i].ticket)
            if ended[i].took_ns < QUICK_NS:
                forget_slow(&self.slow, ended[i].workers)
            if ended[i].result.error:
                message = ended[i].result.message
                outcomes.append((done, error_for(ended[i].result.error, message.decode() if message != NULL else None)))
            else:
                outcomes.append((done, ended[i].result.last_offset + 1))
        with nogil:
            for i in range(ended.size()):
                free_append(ended[i])
        for done, outcome in outcomes:
            try:
                done(outcome)
            except Exception as error:
                failures.append(error)
        return failures
