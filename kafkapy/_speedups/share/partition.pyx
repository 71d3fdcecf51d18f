"""One share partition: its window behind a mutex (see partition.pxd)."""

from cython.operator cimport dereference
from libc.stdint cimport INT64_MAX, int8_t, int16_t, int32_t, int64_t, uint64_t
from libcpp.vector cimport vector

from kafkapy._speedups.base.error_codes cimport ERROR_NONE
from kafkapy._speedups.base.posix cimport (
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)
from kafkapy._speedups.share.acquire cimport window_acquire
from kafkapy._speedups.share.layout cimport (
    SHARE_ACQUIRED,
    SHARE_ARCHIVED,
    SHARE_AVAILABLE,
    SHARE_FETCH,
    SHARE_FETCH_BUSY,
    SHARE_FETCH_CLOSED,
    SHARE_FETCH_FULL,
    AcquiredRange,
    Acknowledgement,
    AcquireRequest,
    LogBatch,
    RecordRow,
    ShareDescription,
    ShareFetchVerdict,
    ShareLimits,
    ShareWrite,
    StateBatch,
    StateChange,
)
from kafkapy._speedups.share.transitions cimport (
    check_acknowledgements,
    order_changes,
    window_acknowledge,
    window_archiving,
    window_dead_lettered,
    window_expire,
    window_finish,
    window_release_member,
)
from kafkapy._speedups.share.window cimport (
    NO_MEMBER,
    RecordSlot,
    ShareBatch,
    ShareMember,
    Window,
    is_final,
    member_find,
    slot_at,
    window_advance,
    window_append,
    window_drop_below,
    window_first_available,
    window_free,
    window_new,
    window_start_then,
    window_sync,
)

cdef enum:
    NODE_SIZE = 64                  # of an ordered set, as malloc gives it

cdef inline Window* window_of(SharePartitionState* share) noexcept nogil:
    return <Window*>share.window


# ---- life ------------------------------------------------------------------------------------------------------------

cdef bint may_restore(int64_t start_offset, const StateBatch* batches, size_t count) noexcept nogil:
    cdef int64_t next_offset = start_offset
    cdef size_t i
    if start_offset < 0:
        return False
    for i in range(count):
        if (batches[i].first < next_offset or batches[i].last < batches[i].first or batches[i].last == INT64_MAX
                or batches[i].state < SHARE_AVAILABLE or batches[i].state > SHARE_ARCHIVED
                or batches[i].delivery_count < 0):
            return False
        next_offset = batches[i].last + 1
    return True


cdef void restore(Window* window, const StateBatch* batches, size_t count) noexcept nogil:
    cdef ShareBatch* batch
    cdef int64_t width
    cdef size_t i
    for i in range(count):
        if batches[i].first > window.next:
            width = batches[i].first - window.next
            window_sync(window, window_append(window, window.next, batches[i].first - 1, width))
        width = batches[i].last - batches[i].first + 1
        batch = window_append(window, batches[i].first, batches[i].last, width)
        batch.common.delivery_count = batches[i].delivery_count
        # Whoever had acquired them has no lock under this leader.
        batch.common.state = <int8_t>SHARE_AVAILABLE if batches[i].state == SHARE_ACQUIRED else batches[i].state
        if batch.common.state != SHARE_AVAILABLE:
            batch.available = 0
        if is_final(batch.common.state):
            window.delivery_complete += width
        window_sync(window, batch)
    window_advance(window)


cdef SharePartitionState* share_new(int32_t state_epoch, int32_t leader_epoch, const ShareLimits* limits,
                                    int64_t start_offset, const StateBatch* batches, size_t count) noexcept nogil:
    cdef SharePartitionState* share
    if not may_restore(start_offset, batches, count):
        return NULL
    share = new SharePartitionState()
    share.references = 1
    share.error = ERROR_NONE
    pthread_mutex_init(&share.mutex, NULL)
    share.window = window_new(state_epoch, leader_epoch, limits, start_offset)
    restore(window_of(share), batches, count)
    return share


cdef void share_free(SharePartitionState* share) noexcept nogil:
    window_free(window_of(share))
    pthread_mutex_destroy(&share.mutex)
    del share


cdef void share_close(SharePartitionState* share, int16_t error) noexcept nogil:
    pthread_mutex_lock(&share.mutex)
    share.error = error
    pthread_mutex_unlock(&share.mutex)


cdef int16_t share_error(SharePartitionState* share) noexcept nogil:
    cdef int16_t error
    pthread_mutex_lock(&share.mutex)
    error = share.error
    pthread_mutex_unlock(&share.mutex)
    return error


cdef bint share_configure(SharePartitionState* share, const ShareLimits* limits) noexcept nogil:
    cdef bint wider
    pthread_mutex_lock(&share.mutex)
    wider = limits.max_in_flight > window_of(share).limits.max_in_flight
    window_of(share).limits = limits[0]
    pthread_mutex_unlock(&share.mutex)
    return wider


# ---- fetches ---------------------------------------------------------------------------------------------------------

cdef bint can_fetch_locked(Window* window, int64_t* offset) noexcept nogil:
    offset[0] = window_first_available(window)
    if offset[0] >= 0:
        return True
    offset[0] = window.next
    return window.next - window.start < window.limits.max_in_flight


cdef ShareFetchVerdict share_begin_fetch(SharePartitionState* share, uint64_t owner, int64_t* offset) noexcept nogil:
    cdef Window* window = window_of(share)
    cdef ShareFetchVerdict verdict = SHARE_FETCH
    pthread_mutex_lock(&share.mutex)
    if share.error != ERROR_NONE:
        verdict = SHARE_FETCH_CLOSED
    elif not can_fetch_locked(window, offset):
        verdict = SHARE_FETCH_FULL
    elif window.reader != 0 and window.reader != owner:
        window.reader_wanted = True
        verdict = SHARE_FETCH_BUSY
    else:
        window.reader = owner
    pthread_mutex_unlock(&share.mutex)
    return verdict


cdef bint share_end_fetch(SharePartitionState* share, uint64_t owner) noexcept nogil:
    cdef Window* window = window_of(share)
    cdef bint wanted = False
    pthread_mutex_lock(&share.mutex)
    if window.reader == owner:
        wanted = window.reader_wanted
        window.reader = 0
        window.reader_wanted = False
    pthread_mutex_unlock(&share.mutex)
    return wanted


cdef bint share_can_fetch(SharePartitionState* share, int64_t* offset) noexcept nogil:
    cdef bint found
    pthread_mutex_lock(&share.mutex)
    found = can_fetch_locked(window_of(share), offset) and share.error == ERROR_NONE
    pthread_mutex_unlock(&share.mutex)
    return found


cdef int64_t share_acquire(SharePartitionState* share, const AcquireRequest* request, const LogBatch* batches,
                           size_t count, vector[AcquiredRange]* out) noexcept nogil:
    cdef int64_t acquired = 0
    pthread_mutex_lock(&share.mutex)
    if share.error == ERROR_NONE:
        acquired = window_acquire(window_of(share), request, batches, count, out)
    pthread_mutex_unlock(&share.mutex)
    return acquired


# ---- acknowledgements ------------------------------------------------------------------------------------------------

cdef int16_t share_check_acknowledgements(const Acknowledgement* batches, size_t count, bint renew) noexcept nogil:
    return check_acknowledgements(batches, count, renew)


cdef int16_t share_acknowledge(SharePartitionState* share, const char* member, size_t member_size,
                               const Acknowledgement* batches, size_t count, int64_t now_ms,
                               int64_t* ticket) noexcept nogil:
    cdef Window* window = window_of(share)
    cdef int16_t error = check_acknowledgements(batches, count, True)
    cdef int64_t pending
    ticket[0] = 0
    if error != ERROR_NONE:
        return error
    pthread_mutex_lock(&share.mutex)
    error = share.error
    if error == ERROR_NONE:
        pending = window.pending
        error = window_acknowledge(window, member_find(window, member, member_size), batches, count, now_ms)
        if window.pending != pending:
            ticket[0] = window.writes + 1
    pthread_mutex_unlock(&share.mutex)
    return error


cdef int64_t share_release_member(SharePartitionState* share, const char* member, size_t member_size) noexcept nogil:
    cdef Window* window = window_of(share)
    cdef int64_t ticket = 0, pending
    cdef int32_t place
    pthread_mutex_lock(&share.mutex)
    place = member_find(window, member, member_size)
    if share.error == ERROR_NONE and place != NO_MEMBER:
        pending = window.pending
        window_release_member(window, place)
        if window.pending != pending:
            ticket = window.writes + 1
    pthread_mutex_unlock(&share.mutex)
    return ticket


# ---- time and the log ------------------------------------------------------------------------------------------------

cdef bint share_expire(SharePartitionState* share, int64_t now_ms) noexcept nogil:
    cdef bint ended = False
    pthread_mutex_lock(&share.mutex)
    if share.error == ERROR_NONE:
        ended = window_expire(window_of(share), now_ms)
    pthread_mutex_unlock(&share.mutex)
    return ended


cdef int64_t share_next_deadline(SharePartitionState* share) noexcept nogil:
    cdef int64_t deadline_ms = -1
    pthread_mutex_lock(&share.mutex)
    if share.error == ERROR_NONE and not window_of(share).locks.empty():
        deadline_ms = dereference(window_of(share).locks.begin()).first
    pthread_mutex_unlock(&share.mutex)
    return deadline_ms


cdef bint share_log_start(SharePartitionState* share, int64_t offset) noexcept nogil:
    cdef Window* window = window_of(share)
    cdef bint moved = False
    pthread_mutex_lock(&share.mutex)
    if share.error == ERROR_NONE and offset > window.start:
        window_drop_below(window, offset)
        window_advance(window)
        moved = True
    pthread_mutex_unlock(&share.mutex)
    return moved


cdef bint share_dead_lettered(SharePartitionState* share, int64_t first, int64_t last) noexcept nogil:
    cdef bint moved = False
    pthread_mutex_lock(&share.mutex)
    if share.error == ERROR_NONE:
        moved = window_dead_lettered(window_of(share), first, last)
    pthread_mutex_unlock(&share.mutex)
    return moved


cdef void share_archiving(SharePartitionState* share, vector[AcquiredRange]* out) noexcept nogil:
    pthread_mutex_lock(&share.mutex)
    if share.error == ERROR_NONE:
        window_archiving(window_of(share), out)
    pthread_mutex_unlock(&share.mutex)


# ---- writes ----------------------------------------------------------------------------------------------------------

cdef bint share_take_write(SharePartitionState* share, ShareWrite* out) noexcept nogil:
    cdef Window* window = window_of(share)
    cdef bint taken = False
    cdef int64_t pending = 0, passed
    cdef size_t i
    out.changes.clear()
    pthread_mutex_lock(&share.mutex)
    if share.error == ERROR_NONE and not window.changes.empty():
        out.changes.swap(window.changes)
        window.writes += 1
        out.number = window.writes
        out.state_epoch = window.state_epoch
        out.leader_epoch = window.leader_epoch
        out.start_offset = window.start
        out.delivery_complete = window.delivery_complete
        for i in range(out.changes.size()):
            if out.changes[i].pending and out.changes[i].last >= window.start:
                pending += out.changes[i].last - max(out.changes[i].first, window.start) + 1
        if pending == window.pending:
            # No other write is under way: with this one, the start offset moves.
            out.start_offset = window_start_then(window, &passed)
            out.delivery_complete -= passed
        taken = True
    pthread_mutex_unlock(&share.mutex)
    if taken:
        order_changes(&out.changes)
    return taken


cdef bint share_has_changes(SharePartitionState* share) noexcept nogil:
    cdef bint found
    pthread_mutex_lock(&share.mutex)
    found = share.error == ERROR_NONE and not window_of(share).changes.empty()
    pthread_mutex_unlock(&share.mutex)
    return found


cdef bint share_finish_write(SharePartitionState* share, const ShareWrite* write, bint stored,
                             int64_t now_ms) noexcept nogil:
    cdef bint found
    pthread_mutex_lock(&share.mutex)
    found = window_finish(window_of(share), &write.changes, stored, now_ms)
    pthread_mutex_unlock(&share.mutex)
    return found


cdef void share_describe(SharePartitionState* share, ShareDescription* out) noexcept nogil:
    cdef Window* window = window_of(share)
    cdef size_t i
    pthread_mutex_lock(&share.mutex)
    out.start_offset = window.start
    out.next_offset = window.next
    out.delivery_complete = window.delivery_complete
    out.records = window.next - window.start
    out.batches = <int64_t>window.batches.size()
    out.acquired = window.acquired
    out.pending = window.pending
    out.members = <int64_t>window.member_places.size()
    out.memory = <int64_t>(sizeof(SharePartitionState) + sizeof(Window)
                           + window.members.capacity() * sizeof(ShareMember)
                           + window.changes.capacity() * sizeof(StateChange)
                           + window.batches.size() * (sizeof(ShareBatch) + sizeof(void*))
                           + (window.available.size() + window.locks.size()) * NODE_SIZE)
    for i in range(window.batches.size()):
        out.memory += <int64_t>(window.batches[i].slots.capacity() * sizeof(RecordSlot))
    pthread_mutex_unlock(&share.mutex)


cdef void add_row(Window* window, const RecordSlot* slot, int64_t first, int64_t last,
                  vector[RecordRow]* out) noexcept nogil:
    cdef RecordRow row
    row.first = first
    row.last = last
    row.state = slot.state
    row.delivery_count = slot.delivery_count
    row.pending = slot.pending
    if slot.member != NO_MEMBER:
        row.member = window.members[slot.member].id[0]
    out.push_back(row)


cdef void share_records(SharePartitionState* share, vector[RecordRow]* out) noexcept nogil:
    cdef Window* window = window_of(share)
    cdef ShareBatch* batch
    cdef size_t i
    cdef int64_t offset
    pthread_mutex_lock(&share.mutex)
    for i in range(window.batches.size()):
        batch = window.batches[i]
        if batch.slots.empty():
            add_row(window, &batch.common, batch.first, batch.last, out)
        else:
            for offset in range(batch.first, batch.last + 1):
                add_row(window, slot_at(batch, offset), offset, offset, out)
    pthread_mutex_unlock(&share.mutex)
