"""The shared inside of a partition log, for append, read and the control plane's calls.

Callers of *_locked functions hold the mutex.
"""

from libc.stdint cimport int32_t, int64_t, uint64_t
from libcpp.string cimport string
from libcpp.vector cimport vector

from kafkapy._speedups.base.error_codes cimport (
    ERROR_FENCED_LEADER_EPOCH,
    ERROR_KAFKA_STORAGE_ERROR,
    ERROR_NONE,
    ERROR_NOT_LEADER_OR_FOLLOWER,
    ERROR_UNKNOWN_LEADER_EPOCH,
)
from kafkapy._speedups.base.posix cimport atomic_add
from kafkapy._speedups.log.layout cimport LogState, Waiter
from kafkapy._speedups.log.private cimport RecentBatch, private_of
from kafkapy._speedups.log.segment cimport SegmentState

cdef enum:
    RECENT_BATCHES = 64
    ABORTED_BLOCK = 256

cdef inline void log_ref(LogState* log) noexcept nogil:
    atomic_add(&log.references, 1)


cdef inline void log_unref(LogState* log) noexcept nogil:
    if log != NULL and atomic_add(&log.references, -1) == 0:
        log_free(log)


# The number of changes of the leader epochs. Not under the mutex.
cdef bint epochs_unwritten_locked(LogState* log) noexcept nogil
cdef bint log_epochs_unwritten(LogState* log) noexcept nogil
cdef int64_t log_epochs_version(LogState* log) noexcept nogil
# Frees a log after its last reference.
cdef void log_free(LogState* log) noexcept nogil
# Whether flush.messages has ever made a flush due here. For a thread that has just appended; without the mutex.
cdef bint log_was_flush_due(LogState* log) noexcept nogil
# 1 when the condition already holds (nothing registered), else 0 and the waiter stays until it fires once or is
# removed.
cdef int log_wait(LogState* log, const Waiter* waiter) noexcept nogil
# `comes_again`: the same append follows at once, so a turn that is kept for it stays; else another append gets it.
cdef void log_remove_waiters(LogState* log, void* owner, uint64_t token, bint comes_again) noexcept nogil
cdef LogState* log_new(int64_t id, const string& topic, int32_t partition, const string& directory,
                       int64_t producer_expiration_ms) noexcept nogil
# 0, or the error for a request in the present state. `leader_only` is false for a follower's own appends.
cdef inline int check_state_locked(LogState* log, int32_t current_leader_epoch, bint leader_only) noexcept nogil:
    if log.offline_errno:
        return ERROR_KAFKA_STORAGE_ERROR
    if log.deleted or private_of(log).closed:
        return ERROR_NOT_LEADER_OR_FOLLOWER
    if current_leader_epoch >= 0:
        if current_leader_epoch < log.leader_epoch:
            return ERROR_FENCED_LEADER_EPOCH
        if current_leader_epoch > log.leader_epoch:
            return ERROR_UNKNOWN_LEADER_EPOCH
    if leader_only and not log.leader:
        return ERROR_NOT_LEADER_OR_FOLLOWER
    return ERROR_NONE


cdef SegmentState* active_segment(LogState* log) noexcept nogil
# Index of the last segment with a base offset <= offset, -1 when there is none.
cdef inline int64_t floor_segment(LogState* log, int64_t offset) noexcept nogil:
    cdef int64_t last = <int64_t>log.segments.size() - 1
    # Most reads are at the tail.
    if last >= 0 and log.segments[<size_t>last].base_offset <= offset:
        return last
    return floor_before(log, offset, last - 1)


# The same among the segments up to an index.
cdef int64_t floor_before(LogState* log, int64_t offset, int64_t high) noexcept nogil
cdef string segment_stem(const string& directory, int64_t base_offset) noexcept nogil
cdef void set_high_watermark_locked(LogState* log, int64_t offset) noexcept nogil
# Raises the high watermark as far as the replicas' positions, and a due flush of flush.messages, allow. It stays while
# the committed ISR is below min.insync.replicas.
cdef void advance_high_watermark_locked(LogState* log) noexcept nogil
cdef void update_last_stable_offset_locked(LogState* log) noexcept nogil
# Moves the waiters whose condition holds (or all of them) to `out`; call fire() with it after the mutex is released.
cdef void take_waiters_locked(LogState* log, bint every, vector[Waiter]* out) noexcept nogil
# Gives back a turn that is kept for the append, which ends or parks, and calls the next one when none is called.
cdef void leave_turn_locked(LogState* log, const Waiter* waiter, vector[Waiter]* out) noexcept nogil
cdef bint condition_holds_locked(LogState* log, const Waiter* waiter) noexcept nogil
# Whether the record at `offset` needs no more flush of flush.messages.
cdef bint is_flushed_locked(LogState* log, int64_t offset) noexcept nogil
cdef void fire(vector[Waiter]* waiters) noexcept nogil
cdef void remember_batch_locked(LogState* log, int64_t base_offset, int64_t last_offset, int64_t position, int64_t size,
                                int64_t segment_base) noexcept nogil
# The remembered batch that holds `offset` in the segment.
cdef bint recall_batch_locked(LogState* log, int64_t offset, int64_t segment_base, RecentBatch* out) noexcept nogil
# Forgets batches at or above `offset`, and all other places, after the files have changed.
cdef void forget_batches_locked(LogState* log, int64_t offset) noexcept nogil
# The remembered end of the readable bytes below `offset` in a segment. `which`: the high watermark (0) or the last
# stable offset (1).
cdef bint limit_position_locked(LogState* log, int which, int64_t offset, int64_t segment_base,
                                int64_t* position) noexcept nogil
# Drops aborted_lowest after a change of history.aborted.
cdef void forget_aborted_summary_locked(LogState* log) noexcept nogil
# Takes the log offline, but not for a lack of descriptors or memory (is_shortage).
cdef void set_offline_locked(LogState* log, int failure, const char* what) noexcept nogil
cdef void want_segment_locked(LogState* log) noexcept nogil
cdef void want_flush_locked(LogState* log) noexcept nogil
# Makes the prepared segment the active one, at `base_offset`. Releases the mutex around the rename and takes it again.
# 0 or an errno.
cdef int switch_segment_locked(LogState* log, int64_t base_offset, int64_t now_ms) noexcept nogil
# The largest epoch <= `epoch` and its end offset (KIP-101); epoch -1 when not known.
cdef void end_offset_for_epoch_locked(LogState* log, int32_t epoch, int32_t* found_epoch,
                                      int64_t* end_offset) noexcept nogil
