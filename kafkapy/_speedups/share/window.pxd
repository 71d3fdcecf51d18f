"""The in-flight window of one share partition, for the kernels of this room only.

A deque of batches in the order of offsets, which do not overlap. Offsets between two batches do not exist in the log.
A batch is uniform (`common` is the state of all its records) or mixed (`slots` has one state for each offset).
Batches are cut where an acquisition needs a part of them, at most three times in a request; an acknowledgement of a
part makes a batch mixed once, so that a request with a million single offsets costs a look-up for each.

Two ordered sets find work without a walk over the window: `available` has the batches with available records, and
`locks` the batches with locks by the earliest time-out. That time is a lower bound for mixed batches: when it has
passed, their slots are looked through, once for each call of window_expire.

`acquired` records have an owner: one of `members`, which lives as long as it owns records. A pending transition is
written in the record (`pending`), which stays acquired and keeps its owner until the transition ends.
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint64_t
from libcpp.deque cimport deque
from libcpp.pair cimport pair
from libcpp.set cimport set as ordered_set
from libcpp.string cimport string
from libcpp.unordered_map cimport unordered_map
from libcpp.vector cimport vector

from kafkapy._speedups.base.seeded_hash cimport SeededHash
from kafkapy._speedups.share.layout cimport (
    SHARE_ACKNOWLEDGED,
    SHARE_ARCHIVED,
    SHARE_ARCHIVING,
    ShareLimits,
    StateChange,
)

cdef enum:
    NO_MEMBER = -1
    NO_TRANSITION = -1
    LEAST_THROTTLED = 2         # deliveries before the first that may be throttled
    NEVER_MS = -1

cdef struct RecordSlot:         # one record, or all records of a uniform batch
    int64_t deadline_ms         # of the lock
    int32_t member              # its owner while it is acquired, else NO_MEMBER
    int16_t delivery_count
    int8_t state                # ShareRecordState
    int8_t pending              # the state that follows when the write has ended, or NO_TRANSITION

cdef cppclass ShareBatch:
    int64_t first
    int64_t last
    RecordSlot common
    vector[RecordSlot] slots    # of a mixed batch: from `base` to `last`
    int64_t base
    int64_t width               # records of the batch before it was cut
    int64_t available           # number of available records
    int64_t locked              # acquired records without a pending transition
    int64_t first_available     # of a mixed batch: no record below is available
    int64_t due_ms              # the earliest time-out of a lock, or earlier
    bint in_available           # it is in Window.available, by `first`
    int64_t in_locks_ms         # its time in Window.locks, or NEVER_MS

ctypedef ShareBatch* BatchPointer
ctypedef pair[int64_t, int64_t] LockKey

cdef struct ShareMember:
    string* id                  # NULL: a free place
    int64_t held                # records

cdef cppclass Window:
    ShareLimits limits
    int32_t state_epoch
    int32_t leader_epoch
    deque[BatchPointer] batches
    int64_t start
    int64_t next
    int64_t delivery_complete
    int64_t acquired                # records with an owner
    int64_t pending                 # of these, with a pending transition
    ordered_set[int64_t] available
    ordered_set[LockKey] locks
    unordered_map[string, int32_t, SeededHash] member_places
    vector[ShareMember] members
    vector[int32_t] free_places
    vector[StateChange] changes     # since the last write
    int64_t writes                  # number of the last write
    uint64_t reader                 # the fetch that reads, or 0
    bint reader_wanted              # another fetch was refused meanwhile


cdef inline bint is_final(int state) noexcept nogil:
    return state == SHARE_ACKNOWLEDGED or state == SHARE_ARCHIVED


# The state of rejected and exhausted records.
cdef inline int8_t put_aside_state(const Window* window) noexcept nogil:
    return SHARE_ARCHIVING if window.limits.dead_letters else SHARE_ARCHIVED


# Whether a change goes on where another one ends, with the same state.
cdef inline bint continues(const StateChange* before, const StateChange* change) noexcept nogil:
    return (before.last + 1 == change.first and before.state == change.state
            and before.delivery_count == change.delivery_count and before.pending == change.pending)


cdef inline RecordSlot* slot_at(ShareBatch* batch, int64_t offset) noexcept nogil:
    return &batch.slots[<size_t>(offset - batch.base)]


cdef Window* window_new(int32_t state_epoch, int32_t leader_epoch, const ShareLimits* limits,
                        int64_t start_offset) noexcept nogil
cdef void window_free(Window* window) noexcept nogil

# ---- places ----
# The index of the first batch that ends at or behind an offset; the number of batches when none does. `hint`: an index
# from which the search may go on.
cdef size_t window_find(Window* window, int64_t offset, size_t hint) noexcept nogil
# Appends a batch behind the window, available and uniform; its state may be changed before window_sync.
cdef ShareBatch* window_append(Window* window, int64_t first, int64_t last, int64_t width) noexcept nogil
# Cuts a uniform batch in two; the second begins at the offset.
cdef void window_cut(Window* window, size_t index, int64_t offset) noexcept nogil
# Gives a uniform batch one slot for each offset.
cdef void window_mix(ShareBatch* batch) noexcept nogil
# Puts a batch into the ordered sets, or takes it out, after its counts or its due time have changed.
cdef void window_sync(Window* window, ShareBatch* batch) noexcept nogil
# Moves the start offset over final records at the front. True: it moved.
cdef bint window_advance(Window* window) noexcept nogil
# The start offset when all pending transitions have been stored. `passed`: the records from the start offset up to it.
cdef int64_t window_start_then(Window* window, int64_t* passed) noexcept nogil
# Drops the records below an offset, whatever their state.
cdef void window_drop_below(Window* window, int64_t offset) noexcept nogil
# The first available record; -1 when there is none.
cdef int64_t window_first_available(Window* window) noexcept nogil

# ---- members ----
# The place of a member; NO_MEMBER when it owns nothing.
cdef int32_t member_find(Window* window, const char* id, size_t size) noexcept nogil
cdef int32_t member_take(Window* window, const char* id, size_t size) noexcept nogil
# Frees the place of a member that owns nothing.
cdef void member_drop_unused(Window* window, int32_t member) noexcept nogil

# ---- transitions of `count` records with one slot; window_sync follows ----
cdef void slot_acquire(Window* window, ShareBatch* batch, RecordSlot* slot, int64_t count, int32_t member,
                       int64_t deadline_ms) noexcept nogil
cdef void slot_begin(Window* window, ShareBatch* batch, RecordSlot* slot, int64_t count, int8_t state) noexcept nogil
# Ends a pending transition: it holds, or is taken back.
cdef void slot_commit(Window* window, ShareBatch* batch, RecordSlot* slot, int64_t count) noexcept nogil
cdef void slot_roll_back(Window* window, ShareBatch* batch, RecordSlot* slot, int64_t count) noexcept nogil
# Ends the lock of acquired records without a pending transition.
cdef void slot_expire(Window* window, ShareBatch* batch, RecordSlot* slot, int64_t count) noexcept nogil
# Archives available, acquired (not pending) or archiving records.
cdef void slot_archive(Window* window, ShareBatch* batch, RecordSlot* slot, int64_t count) noexcept nogil

# ---- changes for the next write ----
cdef void note_change(Window* window, int64_t first, int64_t last, int state, int16_t delivery_count,
                      bint pending) noexcept nogil
