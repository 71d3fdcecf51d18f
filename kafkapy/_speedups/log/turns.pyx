"""The turns of appends (see turns.pxd)."""

from libc.stdint cimport int64_t, uint64_t

from kafkapy._speedups.base.posix cimport (
    cond_wait_until,
    monotonic_ns,
    pthread_cond_broadcast,
    pthread_cond_wait,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)
from kafkapy._speedups.log.layout cimport WAIT_SEGMENT, WAIT_TURN, LogState, Waiter
from kafkapy._speedups.log.private cimport LogPrivate, private_of

cdef extern from "<unistd.h>" nogil:
    int usleep(unsigned int microseconds)

cdef enum:
    SHORTEST_PAUSE_US = 50
    LONGEST_PAUSE_US = 5000
    PATIENCE_NS = 2000000       # with another append, before a request parks: network threads must go on
    CALL_NS = 1000000000        # for a called append, before others pass it
    FAIR_TURNS = 64             # after a slow one


cdef void patient_waiter(Waiter* waiter) noexcept nogil:
    waiter.kind = WAIT_TURN
    waiter.threshold = 0
    waiter.wake = NULL
    waiter.owner = waiter
    waiter.token = 0


cdef void lock_settled(LogState* log) noexcept nogil:
    cdef unsigned int pause_us = SHORTEST_PAUSE_US
    pthread_mutex_lock(&log.mutex)
    while private_of(log).rolling or private_of(log).writing:
        if private_of(log).writing:
            private_of(log).settlers += 1
            private_of(log).turn_waiters += 1
            pthread_cond_wait(&private_of(log).turn_over, &log.mutex)
            private_of(log).turn_waiters -= 1
            private_of(log).settlers -= 1
            continue
        pthread_mutex_unlock(&log.mutex)
        # A roll takes one rename, the swap of a move several syncs.
        usleep(pause_us)
        pause_us = min(2 * pause_us, <unsigned int>LONGEST_PAUSE_US)
        pthread_mutex_lock(&log.mutex)


cdef Turn await_turn_locked(LogState* log, Waiter* waiter) noexcept nogil:
    cdef LogPrivate* own = private_of(log)
    cdef int64_t turn = own.turns
    cdef bint patient = waiter.wake == NULL, in_time = True
    if not own.writing:
        if own.settlers:
            # These threads came earlier, and are on their way to the mutex.
            pthread_mutex_unlock(&log.mutex)
            usleep(SHORTEST_PAUSE_US)
            pthread_mutex_lock(&log.mutex)
            return TURN_LOOK_AGAIN
        if own.next_turn.owner == NULL or is_called_locked(log, waiter.owner, waiter.token):
            return TURN_FREE
        if monotonic_ns() >= own.next_turn_until_ns:
            own.next_turn.owner = NULL
            # A newcomer parks, which calls the oldest.
            return TURN_SLOW if own.turn_queue and not patient and waiter.threshold == 0 else TURN_FREE
        if patient:
            await_call_locked(log, waiter)
            return TURN_LOOK_AGAIN
        return TURN_SLOW
    if patient:
        if is_fair_locked(log):
            await_call_locked(log, waiter)
        else:
            own.turn_waiters += 1
            pthread_cond_wait(&own.turn_over, &log.mutex)
            own.turn_waiters -= 1
        return TURN_LOOK_AGAIN
    if own.turn_is_slow or (own.turn_queue and is_fair_locked(log)):
        return TURN_SLOW
    # Requests that park meanwhile come later.
    number_locked(log, waiter)
    own.turn_waiters += 1
    in_time = cond_wait_until(&own.turn_over, &log.mutex, monotonic_ns() + PATIENCE_NS)
    own.turn_waiters -= 1
    if in_time or not own.writing or own.turns != turn:
        return TURN_LOOK_AGAIN
    own.turn_is_slow = True
    return TURN_SLOW


cdef void await_call_locked(LogState* log, Waiter* waiter) noexcept nogil:
    """Waits in the queue for a change. The waiter's number keeps the place between two such waits."""
    cdef LogPrivate* own = private_of(log)
    park_locked(log, WAIT_TURN, waiter)
    own.turn_waiters += 1
    cond_wait_until(&own.turn_over, &log.mutex, monotonic_ns() + CALL_NS)
    own.turn_waiters -= 1
    remove_waiters_locked(log, waiter.owner, waiter.token)


cdef void begin_turn_locked(LogState* log) noexcept nogil:
    cdef LogPrivate* own = private_of(log)
    own.turn_began_ns = monotonic_ns()
    own.writing = True
    own.turns += 1
    own.next_turn.owner = NULL


cdef void end_turn_locked(LogState* log) noexcept nogil:
    cdef LogPrivate* own = private_of(log)
    cdef bint slow = monotonic_ns() - own.turn_began_ns > PATIENCE_NS
    own.writing = False
    # Nobody may have waited: the only network thread may have been in the write. One such turn shows only that the
    # machine is busy.
    if own.turn_is_slow or (slow and own.turns <= own.fair_until + 1):
        own.turn_is_slow = False
        own.fair_until = own.turns + FAIR_TURNS
    elif slow:
        own.fair_until = own.turns
    if own.turn_waiters:
        pthread_cond_broadcast(&own.turn_over)


cdef bint is_fair_locked(LogState* log) noexcept nogil:
    return private_of(log).turns < private_of(log).fair_until


cdef bint was_slow_locked(LogState* log) noexcept nogil:
    return private_of(log).fair_until == private_of(log).turns + FAIR_TURNS


cdef bint is_called_locked(LogState* log, const void* owner, uint64_t token) noexcept nogil:
    return private_of(log).next_turn.owner == owner and private_of(log).next_turn.token == token


cdef bint may_call_locked(LogState* log) noexcept nogil:
    cdef LogPrivate* own = private_of(log)
    return (not own.writing and not own.rolling
            and (own.next_turn.owner == NULL or monotonic_ns() >= own.next_turn_until_ns))


cdef void call_locked(LogState* log, const Waiter* waiter) noexcept nogil:
    private_of(log).next_turn = waiter[0]
    private_of(log).next_turn_until_ns = monotonic_ns() + CALL_NS


cdef bint number_locked(LogState* log, Waiter* waiter) noexcept nogil:
    """Gives an append its place, unless it has one."""
    if waiter.threshold != 0:
        return False
    private_of(log).turn_numbers += 1
    waiter.threshold = private_of(log).turn_numbers
    return True


cdef void park_locked(LogState* log, int kind, Waiter* waiter) noexcept nogil:
    cdef LogPrivate* own = private_of(log)
    cdef size_t at = log.waiters.size(), i = 0
    cdef Waiter entry
    cdef const Waiter* other
    if not number_locked(log, waiter):
        i = at
    entry = waiter[0]
    entry.kind = kind
    while i > 0:
        i -= 1
        other = &log.waiters[i]
        if other.kind != WAIT_TURN and other.kind != WAIT_SEGMENT:
            continue
        if other.threshold < entry.threshold:
            break
        at = i
    log.waiters.insert(log.waiters.begin() + <int64_t>at, entry)
    if kind == WAIT_TURN:
        own.turn_queue += 1


cdef void remove_waiters_locked(LogState* log, const void* owner, uint64_t token) noexcept nogil:
    cdef size_t i, kept = 0
    for i in range(log.waiters.size()):
        if log.waiters[i].owner == owner and log.waiters[i].token == token:
            if log.waiters[i].kind == WAIT_TURN:
                private_of(log).turn_queue -= 1
            continue
        if kept != i:
            log.waiters[kept] = log.waiters[i]
        kept += 1
    log.waiters.resize(kept)
