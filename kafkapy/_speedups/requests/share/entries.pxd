"""The share partitions that this broker leads: (group, topic id, partition) to the kernel's state, and who waits there.

A ShareFetch makes a missing entry, which begins as "loading": Python reads its state from the share coordinator and
gives it to the entry, or an error. Nobody asks Python for anything else on the way of a fetch. Acknowledgements are
stored by the network thread when the entry has a lease (lease.pxd, writes.pxd). Else they make the entry "dirty":
Python takes the writes of all dirty entries at once, and finishes each when it is stored.

    an entry's mutex    status, waiting fetches and tickets, flags. Taken before the mutexes of its SharePartitionState,
                        of its log, of the log of its state, of its lease, of the table and of a Mailbox, never after
                        one of them
    the table's mutex   maps, timers, lists for Python

A parked fetch waits in the queue of each of its entries. One of them is woken when records can be acquired; when it has
taken its part, `share_settle` wakes the next. An entry waits at its log for all of them together. `generation` counts
the changes: a fetch that looked before a change does not sleep through it, and one that found too little is not woken
again before the next change.

Entries live as long as something refers to them. The table lives for ever, as a Mailbox does: a log may call
`share_log_wake` a moment after the entry's waiter was removed.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t
from libcpp.pair cimport pair
from libcpp.set cimport set as ordered_set
from libcpp.string cimport string
from libcpp.unordered_map cimport unordered_map
from libcpp.vector cimport vector

from kafkapy._speedups.base.posix cimport atomic_add, pthread_mutex_t
from kafkapy._speedups.base.seeded_hash cimport SeededHash
from kafkapy._speedups.log.layout cimport LogState, wake_function
from kafkapy._speedups.requests.data_plane cimport DataPlaneState
from kafkapy._speedups.requests.share.lease cimport LeaseState
from kafkapy._speedups.requests.share.session cimport ShareSession, ShareSessionCache, ShareSessionPointer
from kafkapy._speedups.share.layout cimport ShareLimits, ShareWrite
from kafkapy._speedups.share.partition cimport SharePartitionState

cdef enum ShareEntryStatus:
    ENTRY_LOADING = 0
    ENTRY_READY = 1
    ENTRY_CLOSED = 2                # ShareEntry.error says why; the table does not have it any more

cdef struct ShareWaiter:
    # A parked ShareFetch in the queue of one entry.
    ShareWaiter* previous
    ShareWaiter* next
    bint queued
    int64_t seen                    # the entry's generation when the fetch looked
    wake_function wake
    void* owner
    uint64_t token

cdef struct TicketWaiter:
    # Acknowledgements of one request that wait for the end of their write.
    TicketWaiter* previous
    TicketWaiter* next
    bint queued
    int64_t ticket
    int16_t error                   # of the write, once it is not queued any more
    int64_t* unwritten              # atomic: the request's tickets that are not finished
    wake_function wake              # called by the last one
    void* owner
    uint64_t token

cdef struct ShareSettings:          # of a group
    ShareLimits limits
    bint read_committed             # share.isolation.level
    bint renews                     # share.renew.acknowledge.enable

cdef cppclass ShareEntry:
    int64_t references              # atomic
    int64_t id
    string group
    uint8_t topic_id[16]
    int32_t partition
    LogState* log                   # referenced
    int32_t leader_epoch            # of this broker's leadership
    pthread_mutex_t mutex
    # under the mutex
    int status                      # ShareEntryStatus
    int16_t error
    SharePartitionState* share      # referenced; set once, before the status is ready; NULL until then
    ShareSettings settings
    int64_t generation
    bint log_waits                  # a waiter is registered at the log
    ShareWaiter* first_waiter
    ShareWaiter* last_waiter
    TicketWaiter* first_ticket
    TicketWaiter* last_ticket
    LeaseState* lease               # referenced; NULL: acknowledgements are Python's to store
    bint dirty                      # in the table's list
    bint writing                    # a network thread or Python has a write of it
    bint changed                    # meanwhile
    bint timed                      # in the table's timers
    int64_t timer_ms                # when, while timed

ctypedef ShareEntry* EntryPointer
ctypedef pair[int64_t, int64_t] TimerKey
ctypedef ordered_set[int64_t] EntryIds

cdef struct ShareCounters:          # atomics
    int64_t acknowledgements        # ShareAcknowledge requests, and ShareFetch requests with acknowledgements
    int64_t acknowledged[5]         # offsets, by type
    int64_t acquired                # records
    int64_t loads
    int64_t load_failures
    int64_t writes
    int64_t write_failures
    int64_t leased_writes           # of `writes`, those of network threads
    int64_t leased_ns               # their time
    int64_t expired                 # share partitions with time-outs of locks

cdef enum:
    RELEASES_A_TURN = 64

cdef struct SharePartKey:
    uint8_t topic_id[16]
    int32_t partition

cdef cppclass EndedMember:          # a member whose session has ended: these parts are still to be released
    string group
    string member
    vector[SharePartKey] parts

ctypedef EndedMember* EndedMemberPointer

cdef struct HandedWrite:            # that its lease could not store
    ShareEntry* entry               # referenced
    ShareWrite* write               # owned

cdef cppclass ShareTableState:
    int64_t enabled                 # atomic; share.version >= 1
    int64_t lock_ms                 # atomic; group.share.record.lock.duration.ms
    int64_t max_entries
    ShareCounters counters
    ShareSessionCache sessions
    DataPlaneState* plane
    int event_fd
    pthread_mutex_t mutex
    # under the mutex
    unordered_map[string, EntryPointer, SeededHash] by_key     # with a reference
    unordered_map[int64_t, EntryPointer] by_id
    unordered_map[string, EntryIds, SeededHash] by_group
    ordered_set[TimerKey] timers    # (monotonic ms, entry)
    vector[int64_t] loads           # entries for Python
    vector[int64_t] dirty
    vector[HandedWrite] handed
    vector[string] emptied          # groups whose last session here has ended
    vector[EndedMemberPointer] ended        # owned
    bint signalled
    bint open                       # a ShareTable has it
    int64_t next_id

cdef inline ShareTableState* share_table(DataPlaneState* plane) noexcept nogil:
    return <ShareTableState*>plane.shares


cdef inline ShareEntry* entry_ref(ShareEntry* entry) noexcept nogil:
    atomic_add(&entry.references, 1)
    return entry


cdef inline void entry_unref(ShareEntry* entry) noexcept nogil:
    if entry != NULL and atomic_add(&entry.references, -1) == 0:
        entry_free(entry)


# Frees an entry after its last reference.
cdef void entry_free(ShareEntry* entry) noexcept nogil
# The entry of an id, with a reference for the caller; NULL: it is closed.
cdef ShareEntry* entry_of_id(ShareTableState* table, int64_t id) noexcept nogil
# The entry with a reference for the caller; NULL: the table has none.
cdef ShareEntry* share_entry_find(ShareTableState* table, const string& group, const uint8_t* topic_id,
                                  int32_t partition) noexcept nogil
# The same for the leader of a log; a missing entry, or one of an earlier leadership, is made anew and loaded. NULL: the
# table is full. `error`: why this broker does not lead.
cdef ShareEntry* share_entry_open(ShareTableState* table, const string& group, LogState* log, const uint8_t* topic_id,
                                  int16_t* error, int32_t* leader_id, int32_t* leader_epoch) noexcept nogil
# Takes an entry out of the table, with an error for all who wait there or come later.
cdef void share_entry_close(ShareTableState* table, ShareEntry* entry, int16_t error) noexcept nogil
# The partition's state; NULL while it is loading, and for a closed entry, whose error is told. Valid as long as the
# caller's reference to the entry. `generation` may be NULL.
cdef SharePartitionState* share_entry_state(ShareEntry* entry, int64_t* generation, int16_t* error) noexcept nogil

# The end of the readable offsets. False when the leadership that the entry belongs to is over.
cdef bint readable_end(ShareEntry* entry, int64_t* end) noexcept nogil
# Under the entry's mutex: wakes the first fetch that has not looked since the last change; False when none is.
cdef bint wake_unseen_locked(ShareEntry* entry) noexcept nogil
# Puts a fetch that has found nothing into the queue. False: something has changed since it looked, or the entry is
# closed. share_settle follows a True.
cdef bint share_wait(ShareEntry* entry, ShareWaiter* waiter) noexcept nogil
# Takes it out of the queue, if it is there.
cdef void share_leave(ShareEntry* entry, ShareWaiter* waiter) noexcept nogil
# After a fetch has taken its part or has begun to wait: wakes the next one when there is something for it, else waits
# at the log.
cdef void share_settle(ShareTableState* table, ShareEntry* entry) noexcept nogil
# Records may be there that were not before.
cdef void share_changed(ShareTableState* table, ShareEntry* entry) noexcept nogil
# The state has changes for the share coordinator.
cdef void share_dirty(ShareTableState* table, ShareEntry* entry) noexcept nogil
# Locks of acquired records must end in time.
cdef void share_time(ShareTableState* table, ShareEntry* entry) noexcept nogil
# Under the entry's mutex: ends the wait for a write.
cdef void ticket_end(ShareEntry* entry, TicketWaiter* waiter, int16_t error) noexcept nogil
# Takes a ticket out of the list, with an error, if its write is not finished. Whoever ends it has let go of it then.
cdef void share_ticket_drop(ShareEntry* entry, TicketWaiter* waiter, int16_t error) noexcept nogil
# Under the entry's mutex: waits for the end of a write.
cdef void share_ticket_wait_locked(ShareEntry* entry, TicketWaiter* waiter) noexcept nogil
# The log starts at this offset now.
cdef void share_move_start(ShareTableState* table, ShareEntry* entry, int64_t offset) noexcept nogil
# Releases the records of members whose sessions have ended, tells of emptied groups, and drops the caller's references.
cdef void release_sessions(ShareTableState* table, vector[ShareSessionPointer]* sessions,
                           vector[string]* emptied) noexcept nogil
# Ends a session that is in the cache no more. So many parts of it are released at once, the others by release_some; the
# number falls by them.
cdef void release_session(ShareTableState* table, ShareSession* session, size_t* at_once) noexcept nogil
# Moves a bounded number of the first ids. True: there are more.
cdef bint take_some(vector[int64_t]* source, vector[int64_t]* taken) noexcept nogil
# Wakes Python for ShareTable.take.
cdef void signal_python(ShareTableState* table) noexcept nogil
# Releases a bounded number of parts of members whose sessions have ended. False: none are left.
cdef bint release_some(ShareTableState* table) noexcept nogil
# The last session of a group here has ended: Python lets go of its share partitions.
cdef void share_group_emptied(ShareTableState* table, const string& group) noexcept nogil

cdef void close_entries(ShareTableState* table, vector[int64_t]* ids, int16_t error) noexcept nogil
cdef void all_entries(ShareTableState* table, vector[int64_t]* ids) noexcept nogil
cdef int64_t share_clock_ms() noexcept nogil
