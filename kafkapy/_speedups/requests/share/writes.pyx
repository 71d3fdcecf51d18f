"""Writes of share-partitions (see writes.pxd)."""

from libc.stdint cimport int16_t, int64_t

from kafkapy._speedups.base.error_codes cimport ERROR_NONE
from kafkapy._speedups.base.posix cimport (
    atomic_add,
    atomic_count,
    monotonic_ns,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)
from kafkapy._speedups.requests.share.entries cimport (
    ENTRY_READY,
    HandedWrite,
    entry_ref,
    entry_unref,
    share_changed,
    share_clock_ms,
    share_dirty,
    share_ticket_wait_locked,
    share_time,
    signal_python,
    ticket_end,
)
from kafkapy._speedups.requests.share.lease cimport lease_begin, lease_ref, lease_store, lease_unref
from kafkapy._speedups.share.partition cimport share_finish_write, share_has_changes, share_take_write

cdef enum:
    WRITES_A_REQUEST = 4            # of one entry, before Python goes on with what other requests have changed


cdef bint share_take_leased_locked(ShareEntry* entry, LeasedWrite* out) noexcept nogil:
    out.write = NULL
    out.lease = NULL
    if entry.lease == NULL or entry.dirty or entry.writing or entry.status != ENTRY_READY:
        return False
    if not share_has_changes(entry.share):
        return False
    if not lease_begin(entry.lease):
        lease_unref(entry.lease)
        entry.lease = NULL
        return False
    out.write = new ShareWrite()
    out.lease = lease_ref(entry.lease)
    entry.writing = True
    return share_take_write(entry.share, out.write)     # whoever takes or closes holds the entry's mutex


cdef void hand_over(ShareTableState* table, ShareEntry* entry, LeasedWrite* leased,
                    TicketWaiter* waiter) noexcept nogil:
    """Gives a write to Python."""
    cdef HandedWrite handed
    cdef bint open
    handed.entry = entry
    handed.write = leased.write
    pthread_mutex_lock(&entry.mutex)
    open = entry.status == ENTRY_READY
    if entry.lease == leased.lease:
        lease_unref(entry.lease)
        entry.lease = NULL
    if not open:
        entry.writing = False
        if waiter != NULL:
            waiter.error = entry.error
    elif waiter != NULL:
        atomic_add(waiter.unwritten, 1)
        share_ticket_wait_locked(entry, waiter)
    pthread_mutex_unlock(&entry.mutex)
    if open:
        entry_ref(entry)
        pthread_mutex_lock(&table.mutex)
        open = table.open
        if open:
            table.handed.push_back(handed)
        pthread_mutex_unlock(&table.mutex)
        signal_python(table)
        if not open:
            entry_unref(entry)      # the table was closed a moment ago, and ends the tickets
    if not open:
        del leased.write
    leased.write = NULL


cdef bint store(ShareTableState* table, LeasedWrite* leased) noexcept nogil:
    cdef int64_t began = monotonic_ns()
    cdef bint stored = lease_store(leased.lease, leased.write)
    if stored:
        atomic_count(&table.counters.writes, 1)
        atomic_count(&table.counters.leased_writes, 1)
        atomic_count(&table.counters.leased_ns, monotonic_ns() - began)
    return stored


cdef void share_store(ShareTableState* table, ShareEntry* entry, LeasedWrite* leased,
                      TicketWaiter* waiter) noexcept nogil:
    cdef int written
    cdef bint again
    for written in range(1, WRITES_A_REQUEST + 1):
        if not store(table, leased):
            hand_over(table, entry, leased, waiter)
            break
        waiter = NULL
        again = share_write_end(table, entry, leased.write, ERROR_NONE, False)
        del leased.write
        leased.write = NULL
        if not again:
            break
        lease_unref(leased.lease)
        leased.lease = NULL
        if written < WRITES_A_REQUEST:
            pthread_mutex_lock(&entry.mutex)
            share_take_leased_locked(entry, leased)
            pthread_mutex_unlock(&entry.mutex)
        if leased.write == NULL:
            share_dirty(table, entry)
            break
    lease_unref(leased.lease)
    leased.lease = NULL


cdef bint share_write_end(ShareTableState* table, ShareEntry* entry, const ShareWrite* write,
                          int16_t error, bint closes) noexcept nogil:
    cdef TicketWaiter* waiter
    cdef TicketWaiter* following
    cdef bint more = False
    cdef bint again
    if error:
        atomic_count(&table.counters.write_failures, 1)
    pthread_mutex_lock(&entry.mutex)
    if entry.status == ENTRY_READY:
        more = share_finish_write(entry.share, write, error == ERROR_NONE, share_clock_ms())
    waiter = entry.first_ticket
    while waiter != NULL:
        following = waiter.next
        if waiter.ticket == write.number:
            ticket_end(entry, waiter, error)
        waiter = following
    entry.writing = False
    # Not for a start offset alone: the next acknowledgement takes it along.
    again = entry.changed or more
    again = again and entry.status == ENTRY_READY and share_has_changes(entry.share)
    entry.changed = False
    pthread_mutex_unlock(&entry.mutex)
    if closes:
        return False
    if more:
        share_changed(table, entry)
    share_time(table, entry)
    return again
