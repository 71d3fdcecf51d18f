"""Share partitions of this broker and who waits for them (see entries.pxd)."""

from cython.operator cimport dereference, preincrement
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memset
from libcpp.string cimport string
from libcpp.unordered_map cimport unordered_map
from libcpp.vector cimport vector

from kafkapy._speedups.base.error_codes cimport (
    ERROR_KAFKA_STORAGE_ERROR,
    ERROR_NONE,
    ERROR_NOT_LEADER_OR_FOLLOWER,
    ERROR_UNKNOWN_SERVER_ERROR,
)
from kafkapy._speedups.base.posix cimport (
    atomic_add,
    eventfd_write,
    monotonic_ns,
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)
from kafkapy._speedups.base.seeded_hash cimport SeededHash
from kafkapy._speedups.log.layout cimport (
    WAIT_HIGH_WATERMARK,
    WAIT_LAST_STABLE_OFFSET,
    LogState,
    Waiter,
    wake_function,
)
from kafkapy._speedups.log.state cimport log_ref, log_remove_waiters, log_unref, log_wait
from kafkapy._speedups.requests.fetch_session cimport FINAL_EPOCH, CachedPartition
from kafkapy._speedups.requests.share.lease cimport lease_unref
from kafkapy._speedups.requests.share.session cimport (
    ShareSession,
    ShareSessionPointer,
    share_session_lives,
    share_session_unref,
)
from kafkapy._speedups.share.partition cimport (
    SharePartitionState,
    share_can_fetch,
    share_close,
    share_log_start,
    share_next_deadline,
    share_release_member,
    share_unref,
)

cdef enum:
    TOPIC_ID_SIZE = 16
    NS_PER_MS = 1000000
    RELEASES_A_LOCK = 64
    TAKEN_A_TURN = 2000
    LOOKS = 8                       # at a log that grows faster than the loop looks


cdef int64_t share_clock_ms() noexcept nogil:
    return monotonic_ns() // NS_PER_MS


# ---- entries ---------------------------------------------------------------------------------------------------------

cdef void entry_key(const string& group, const uint8_t* topic_id, int32_t partition, string* key) noexcept nogil:
    key[0] = group
    key.append(<const char*>topic_id, TOPIC_ID_SIZE)
    key.append(<const char*>&partition, sizeof(partition))


cdef void entry_free(ShareEntry* entry) noexcept nogil:
    share_unref(entry.share)
    lease_unref(entry.lease)
    log_unref(entry.log)
    pthread_mutex_destroy(&entry.mutex)
    del entry


cdef ShareEntry* share_entry_find(ShareTableState* table, const string& group, const uint8_t* topic_id,
                                  int32_t partition) noexcept nogil:
    cdef ShareEntry* entry = NULL
    cdef unordered_map[string, EntryPointer, SeededHash].iterator found
    cdef string key
    entry_key(group, topic_id, partition, &key)
    pthread_mutex_lock(&table.mutex)
    found = table.by_key.find(key)
    if found != table.by_key.end():
        entry = entry_ref(dereference(found).second)
    pthread_mutex_unlock(&table.mutex)
    return entry


cdef ShareEntry* entry_of_id(ShareTableState* table, int64_t id) noexcept nogil:
    cdef ShareEntry* entry = NULL
    cdef unordered_map[int64_t, EntryPointer].iterator found
    pthread_mutex_lock(&table.mutex)
    found = table.by_id.find(id)
    if found != table.by_id.end():
        entry = entry_ref(dereference(found).second)
    pthread_mutex_unlock(&table.mutex)
    return entry


cdef int16_t leads(LogState* log, int32_t* leader_id, int32_t* leader_epoch) noexcept nogil:
    """ERROR_NONE, or why this broker does not lead the log."""
    cdef int16_t error = ERROR_NONE
    pthread_mutex_lock(&log.mutex)
    leader_id[0] = log.leader_id
    leader_epoch[0] = log.leader_epoch
    if log.offline_errno:
        error = ERROR_KAFKA_STORAGE_ERROR
    elif log.deleted or not log.leader:
        error = ERROR_NOT_LEADER_OR_FOLLOWER
    pthread_mutex_unlock(&log.mutex)
    return error


cdef ShareEntry* share_entry_open(ShareTableState* table, const string& group, LogState* log, const uint8_t* topic_id,
                                  int16_t* error, int32_t* leader_id, int32_t* leader_epoch) noexcept nogil:
    cdef ShareEntry* entry
    cdef ShareEntry* made
    cdef string key
    cdef unordered_map[string, EntryPointer, SeededHash].iterator found
    error[0] = leads(log, leader_id, leader_epoch)
    if error[0] != ERROR_NONE:
        return NULL
    entry = share_entry_find(table, group, topic_id, log.partition)
    if entry != NULL:
        if entry.leader_epoch == leader_epoch[0] and entry.log == log:
            return entry
        share_entry_close(table, entry, ERROR_NOT_LEADER_OR_FOLLOWER)
        entry_unref(entry)
        entry = NULL
    made = new ShareEntry()
    made.references = 2
    made.group = group
    memcpy(made.topic_id, topic_id, TOPIC_ID_SIZE)
    made.partition = log.partition
    made.leader_epoch = leader_epoch[0]
    pthread_mutex_init(&made.mutex, NULL)
    made.status = ENTRY_LOADING
    made.error = ERROR_NONE
    made.share = NULL
    memset(&made.settings, 0, sizeof(made.settings))
    made.generation = 1
    made.log_waits = False
    made.first_waiter = NULL
    made.last_waiter = NULL
    made.first_ticket = NULL
    made.last_ticket = NULL
    made.lease = NULL
    made.dirty = False
    made.writing = False
    made.changed = False
    made.timed = False
    made.timer_ms = -1
    made.log = log
    log_ref(log)
    entry_key(group, topic_id, log.partition, &key)
    pthread_mutex_lock(&table.mutex)
    found = table.by_key.find(key)
    if found != table.by_key.end():
        entry = entry_ref(dereference(found).second)        # another thread was faster
    elif <int64_t>table.by_key.size() < table.max_entries and table.open:
        table.next_id += 1
        made.id = table.next_id
        table.by_key[key] = made
        table.by_id[made.id] = made
        table.by_group[group].insert(made.id)
        table.loads.push_back(made.id)
        entry = made
    pthread_mutex_unlock(&table.mutex)
    if entry == made:
        signal_python(table)
    else:
        entry_unref(made)
        entry_unref(made)
    if entry == NULL:
        error[0] = ERROR_UNKNOWN_SERVER_ERROR
    return entry


cdef void signal_python(ShareTableState* table) noexcept nogil:
    pthread_mutex_lock(&table.mutex)
    if not table.signalled and table.open:
        table.signalled = True
        eventfd_write(table.event_fd, 1)    # under the mutex: `close` has it when it ends the descriptor
    pthread_mutex_unlock(&table.mutex)


cdef bint take_some(vector[int64_t]* source, vector[int64_t]* taken) noexcept nogil:
    if source.size() <= TAKEN_A_TURN:
        taken.swap(source[0])
        return False
    taken.assign(source.begin(), source.begin() + TAKEN_A_TURN)
    source.erase(source.begin(), source.begin() + TAKEN_A_TURN)
    return True


cdef void share_entry_close(ShareTableState* table, ShareEntry* entry, int16_t error) noexcept nogil:
    cdef bint had
    cdef string key
    cdef SharePartitionState* share
    cdef ShareWaiter* waiter
    cdef bint log_waits
    entry_key(entry.group, entry.topic_id, entry.partition, &key)
    pthread_mutex_lock(&table.mutex)
    had = table.by_id.erase(entry.id) > 0
    if had:
        table.by_key.erase(key)
        table.by_group[entry.group].erase(entry.id)
        if table.by_group[entry.group].empty():
            table.by_group.erase(entry.group)
    pthread_mutex_unlock(&table.mutex)
    if not had:
        return
    pthread_mutex_lock(&entry.mutex)
    entry.status = ENTRY_CLOSED
    entry.error = error
    entry.generation += 1
    log_waits = entry.log_waits
    entry.log_waits = False
    share = entry.share
    if share != NULL:
        share_close(share, error)
    while entry.first_waiter != NULL:
        waiter = entry.first_waiter
        waiter_unlink(entry, waiter)
        waiter.wake(waiter.owner, waiter.token)
    while entry.first_ticket != NULL:
        ticket_end(entry, entry.first_ticket, error)
    pthread_mutex_unlock(&entry.mutex)
    if log_waits:
        log_remove_waiters(entry.log, table, <uint64_t>entry.id, False)
    entry_unref(entry)


cdef SharePartitionState* share_entry_state(ShareEntry* entry, int64_t* generation, int16_t* error) noexcept nogil:
    cdef SharePartitionState* share = NULL
    pthread_mutex_lock(&entry.mutex)
    error[0] = entry.error
    if entry.status == ENTRY_READY:
        share = entry.share
    if generation != NULL:
        generation[0] = entry.generation
    pthread_mutex_unlock(&entry.mutex)
    return share


# ---- waiting fetches -------------------------------------------------------------------------------------------------

cdef void waiter_unlink(ShareEntry* entry, ShareWaiter* waiter) noexcept nogil:
    if waiter.previous != NULL:
        waiter.previous.next = waiter.next
    else:
        entry.first_waiter = waiter.next
    if waiter.next != NULL:
        waiter.next.previous = waiter.previous
    else:
        entry.last_waiter = waiter.previous
    waiter.queued = False


cdef bint wake_unseen_locked(ShareEntry* entry) noexcept nogil:
    """Wakes the first fetch that has not looked since the last change. Fetches that have stand at the end."""
    cdef ShareWaiter* waiter = entry.first_waiter
    if waiter == NULL or waiter.seen >= entry.generation:
        return False
    waiter_unlink(entry, waiter)
    waiter.wake(waiter.owner, waiter.token)
    return True


cdef bint share_wait(ShareEntry* entry, ShareWaiter* waiter) noexcept nogil:
    cdef bint same
    pthread_mutex_lock(&entry.mutex)
    same = entry.generation == waiter.seen and entry.status != ENTRY_CLOSED
    if same:
        waiter.next = NULL
        waiter.previous = entry.last_waiter
        if entry.last_waiter != NULL:
            entry.last_waiter.next = waiter
        else:
            entry.first_waiter = waiter
        entry.last_waiter = waiter
        waiter.queued = True
    pthread_mutex_unlock(&entry.mutex)
    return same


cdef void share_leave(ShareEntry* entry, ShareWaiter* waiter) noexcept nogil:
    pthread_mutex_lock(&entry.mutex)
    if waiter.queued:
        waiter_unlink(entry, waiter)
    pthread_mutex_unlock(&entry.mutex)


cdef bint readable_end(ShareEntry* entry, int64_t* end) noexcept nogil:
    """The end of the readable offsets. False when the leadership that the entry belongs to is over."""
    cdef LogState* log = entry.log
    cdef bint good
    pthread_mutex_lock(&log.mutex)
    end[0] = log.last_stable_offset if entry.settings.read_committed else log.high_watermark
    good = (log.leader and not log.deleted and not log.offline_errno and log.leader_epoch == entry.leader_epoch)
    pthread_mutex_unlock(&log.mutex)
    return good


cdef void share_settle(ShareTableState* table, ShareEntry* entry) noexcept nogil:
    """A fetch that is woken finds out itself when the leadership is over."""
    cdef int64_t offset = 0
    cdef int64_t end = 0
    cdef Waiter waiter
    cdef int look
    waiter.wake = share_log_wake
    waiter.owner = table
    waiter.token = <uint64_t>entry.id
    for look in range(LOOKS):
        pthread_mutex_lock(&entry.mutex)
        if entry.first_waiter == NULL or entry.status != ENTRY_READY or not share_can_fetch(entry.share, &offset):
            pthread_mutex_unlock(&entry.mutex)
            return
        if not readable_end(entry, &end) or offset < end:
            if wake_unseen_locked(entry):
                pthread_mutex_unlock(&entry.mutex)
                return
        if entry.log_waits:
            pthread_mutex_unlock(&entry.mutex)
            return
        entry.log_waits = True
        waiter.kind = WAIT_LAST_STABLE_OFFSET if entry.settings.read_committed else WAIT_HIGH_WATERMARK
        waiter.threshold = end
        pthread_mutex_unlock(&entry.mutex)
        if not log_wait(entry.log, &waiter):
            # Leadership that was lost before the registration wakes no waiter, but this look sees it.
            if readable_end(entry, &end):
                return
            log_remove_waiters(entry.log, table, <uint64_t>entry.id, False)
        pthread_mutex_lock(&entry.mutex)
        entry.log_waits = False
        entry.generation += 1
        pthread_mutex_unlock(&entry.mutex)
    # The log is faster than this loop; whoever is woken looks again.
    pthread_mutex_lock(&entry.mutex)
    wake_unseen_locked(entry)
    pthread_mutex_unlock(&entry.mutex)


cdef void share_log_wake(void* owner, uint64_t token) noexcept nogil:
    """The wake_function of entries at their logs."""
    cdef ShareTableState* table = <ShareTableState*>owner
    cdef ShareEntry* entry = entry_of_id(table, <int64_t>token)
    if entry == NULL:
        return
    pthread_mutex_lock(&entry.mutex)
    entry.log_waits = False
    entry.generation += 1
    wake_unseen_locked(entry)
    pthread_mutex_unlock(&entry.mutex)
    entry_unref(entry)


cdef void share_changed(ShareTableState* table, ShareEntry* entry) noexcept nogil:
    pthread_mutex_lock(&entry.mutex)
    entry.generation += 1
    pthread_mutex_unlock(&entry.mutex)
    share_settle(table, entry)


# ---- tickets and writes ----------------------------------------------------------------------------------------------

cdef void share_ticket_wait_locked(ShareEntry* entry, TicketWaiter* waiter) noexcept nogil:
    waiter.next = NULL
    waiter.previous = entry.last_ticket
    if entry.last_ticket != NULL:
        entry.last_ticket.next = waiter
    else:
        entry.first_ticket = waiter
    entry.last_ticket = waiter
    waiter.queued = True


cdef void ticket_unlink(ShareEntry* entry, TicketWaiter* waiter) noexcept nogil:
    if waiter.previous != NULL:
        waiter.previous.next = waiter.next
    else:
        entry.first_ticket = waiter.next
    if waiter.next != NULL:
        waiter.next.previous = waiter.previous
    else:
        entry.last_ticket = waiter.previous
    waiter.queued = False


cdef void ticket_end(ShareEntry* entry, TicketWaiter* waiter, int16_t error) noexcept nogil:
    """Ends the wait for a write, under the entry's mutex: the request cannot be freed before it is taken."""
    cdef wake_function wake = waiter.wake
    cdef void* owner = waiter.owner
    cdef uint64_t token = waiter.token
    ticket_unlink(entry, waiter)
    waiter.error = error
    if atomic_add(waiter.unwritten, -1) == 0:
        wake(owner, token)


cdef void share_ticket_drop(ShareEntry* entry, TicketWaiter* waiter, int16_t error) noexcept nogil:
    pthread_mutex_lock(&entry.mutex)
    if waiter.queued:
        ticket_unlink(entry, waiter)
        waiter.error = error
        atomic_add(waiter.unwritten, -1)
    pthread_mutex_unlock(&entry.mutex)


cdef void share_dirty(ShareTableState* table, ShareEntry* entry) noexcept nogil:
    cdef bint first = False
    pthread_mutex_lock(&entry.mutex)
    if entry.writing:
        entry.changed = True
    elif not entry.dirty and entry.status == ENTRY_READY:
        entry.dirty = True
        first = True
    pthread_mutex_unlock(&entry.mutex)
    if first:
        pthread_mutex_lock(&table.mutex)
        table.dirty.push_back(entry.id)
        pthread_mutex_unlock(&table.mutex)
        signal_python(table)


cdef void share_time(ShareTableState* table, ShareEntry* entry) noexcept nogil:
    cdef int64_t deadline = -1
    cdef int64_t before = -1
    pthread_mutex_lock(&entry.mutex)
    if entry.status == ENTRY_READY:
        deadline = share_next_deadline(entry.share)
        if entry.timed:
            before = entry.timer_ms
        if deadline >= 0 and (not entry.timed or deadline < before):
            entry.timed = True
            entry.timer_ms = deadline
        else:
            deadline = -1
    pthread_mutex_unlock(&entry.mutex)
    if deadline >= 0:
        pthread_mutex_lock(&table.mutex)
        if before >= 0:
            table.timers.erase(TimerKey(before, entry.id))
        table.timers.insert(TimerKey(deadline, entry.id))
        pthread_mutex_unlock(&table.mutex)


cdef void share_release(ShareTableState* table, const string& group, const uint8_t* topic_id, int32_t partition,
                        const string& member) noexcept nogil:
    cdef ShareEntry* entry = share_entry_find(table, group, topic_id, partition)
    cdef SharePartitionState* share
    cdef int16_t error
    if entry == NULL:
        return
    share = share_entry_state(entry, NULL, &error)
    if share != NULL and share_release_member(share, member.data(), member.size()) > 0:
        share_dirty(table, entry)
        share_changed(table, entry)
    entry_unref(entry)


cdef void share_group_emptied(ShareTableState* table, const string& group) noexcept nogil:
    pthread_mutex_lock(&table.mutex)
    table.emptied.push_back(group)
    pthread_mutex_unlock(&table.mutex)
    signal_python(table)


cdef void close_entries(ShareTableState* table, vector[int64_t]* ids, int16_t error) noexcept nogil:
    cdef ShareEntry* entry
    cdef size_t i
    for i in range(ids.size()):
        entry = entry_of_id(table, ids[0][i])
        if entry != NULL:
            share_entry_close(table, entry, error)
            entry_unref(entry)


cdef void all_entries(ShareTableState* table, vector[int64_t]* ids) noexcept nogil:
    cdef unordered_map[int64_t, EntryPointer].iterator at
    pthread_mutex_lock(&table.mutex)
    ids.reserve(table.by_id.size())
    at = table.by_id.begin()
    while at != table.by_id.end():
        ids.push_back(dereference(at).first)
        preincrement(at)
    pthread_mutex_unlock(&table.mutex)


cdef void release_session(ShareTableState* table, ShareSession* session, size_t* at_once) noexcept nogil:
    cdef EndedMember* ended = NULL
    cdef SharePartKey key
    cdef CachedPartition* partition
    pthread_mutex_lock(&session.partitions.mutex)
    session.partitions.epoch = FINAL_EPOCH
    partition = session.partitions.first
    while partition != NULL:
        if at_once[0] > 0:
            at_once[0] -= 1
            share_release(table, session.group, partition.topic.topic_id, partition.request.partition, session.member)
        else:
            if ended == NULL:
                ended = new EndedMember()
                ended.group = session.group
                ended.member = session.member
                ended.parts.reserve(session.partitions.by_key.size())
            memcpy(key.topic_id, partition.topic.topic_id, TOPIC_ID_SIZE)
            key.partition = partition.request.partition
            ended.parts.push_back(key)
        partition = partition.next
    pthread_mutex_unlock(&session.partitions.mutex)
    if ended != NULL:
        pthread_mutex_lock(&table.mutex)
        table.ended.push_back(ended)
        pthread_mutex_unlock(&table.mutex)
        signal_python(table)


cdef bint release_some(ShareTableState* table) noexcept nogil:
    cdef EndedMember* ended = NULL
    cdef SharePartKey* key
    cdef bint more
    cdef int count = 0
    cdef int i
    pthread_mutex_lock(&table.mutex)
    if not table.ended.empty():
        ended = table.ended.back()
        table.ended.pop_back()
    pthread_mutex_unlock(&table.mutex)
    if ended == NULL:
        return False
    while count < RELEASES_A_TURN and not ended.parts.empty():
        # Under the mutex: a member with a new session keeps what it acquires; its old locks end in time.
        pthread_mutex_lock(&table.sessions.mutex)
        if share_session_lives(&table.sessions, ended.group, ended.member):
            ended.parts.clear()
        for i in range(RELEASES_A_LOCK):
            if ended.parts.empty():
                break
            key = &ended.parts.back()
            share_release(table, ended.group, key.topic_id, key.partition, ended.member)
            ended.parts.pop_back()
            count += 1
        pthread_mutex_unlock(&table.sessions.mutex)
    more = not ended.parts.empty()
    pthread_mutex_lock(&table.mutex)
    if more:
        table.ended.push_back(ended)
    else:
        more = not table.ended.empty()
        del ended
    pthread_mutex_unlock(&table.mutex)
    return more


cdef void release_sessions(ShareTableState* table, vector[ShareSessionPointer]* sessions,
                           vector[string]* emptied) noexcept nogil:
    cdef size_t at_once = RELEASES_A_TURN
    cdef size_t i
    for i in range(sessions.size()):
        release_session(table, sessions[0][i], &at_once)
        share_session_unref(sessions[0][i])
    for i in range(emptied.size()):
        share_group_emptied(table, emptied[0][i])


cdef void share_move_start(ShareTableState* table, ShareEntry* entry, int64_t offset) noexcept nogil:
    cdef int16_t error
    cdef SharePartitionState* share = share_entry_state(entry, NULL, &error)
    if share != NULL and share_log_start(share, offset):
        share_dirty(table, entry)
        share_changed(table, entry)
