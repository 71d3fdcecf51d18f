"""The leader's state of one share partition (KIP-932; Kafka's SharePartition): which records are in flight, and whose.

The types stand in layout.pxd. The window holds the records between the start offset (SPSO) and the end offset as
batches in the order of offsets. A batch has one state for all of its records, until members acknowledge its records in
different ways: then it has one state for each offset.

    available     acquire: acquired, delivery count + 1
    acquired      accept: acknowledged | reject, gap: archived | release, time-out of the lock: available, or archived
                  when the delivery count has reached its limit | renew: a later time-out | the session ends: as a
                  release
    acknowledged, archived        final; the start offset moves over them
    archiving     what archived is for rejected and exhausted records of a group with dead letters, until
                  `share_dead_lettered`

A transition that a member asks for is pending until its write to the share coordinator ends: the records stay locked,
nobody acquires or acknowledges them, and the start offset stays below them. A failed write takes the transition back.
Time-outs are not pending: they hold although their write fails.

How a request goes:

    ShareFetch          share_begin_fetch, read the log at the offset, share_acquire, share_end_fetch, reply
    ShareAcknowledge    share_acknowledge: an error, or ticket 0 (reply now), or a ticket (reply when the write of this
                        number has ended)
    writer              share_take_write, Persister.write, share_finish_write; then the replies of that ticket. Writes
                        of one partition are taken and finished in the order of their numbers; several may be under way.
    timer               share_expire at share_next_deadline or later

Every function but share_new, share_ref and share_unref takes the partition's mutex and may be called by any thread that
has a reference. None blocks otherwise, none reads a clock. Times are milliseconds of one monotonic clock.

Memory: the window holds at most `max_in_flight` records and the rest of the log batch that passes this bound (at most
WIDEST_BATCH records of it), 16 bytes for each record of a batch with mixed states.
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint64_t
from libcpp.vector cimport vector

from kafkapy._speedups.base.posix cimport atomic_add, pthread_mutex_t
from kafkapy._speedups.share.layout cimport (
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
)


cdef cppclass SharePartitionState:
    int64_t references              # atomic
    pthread_mutex_t mutex
    void* window                    # Window (share/window.pxd)
    int16_t error                   # why it is closed; ERROR_NONE while it serves

# A share partition as the share coordinator knows it, with one reference for the caller. Batches are in order and do
# not overlap. Gaps between them were read once but never acknowledged: their records are available. NULL for batches
# that cannot be (out of order, below the start offset, unknown states, negative counts).
cdef SharePartitionState* share_new(int32_t state_epoch, int32_t leader_epoch, const ShareLimits* limits,
                                    int64_t start_offset, const StateBatch* batches, size_t count) noexcept nogil

cdef inline SharePartitionState* share_ref(SharePartitionState* share) noexcept nogil:
    atomic_add(&share.references, 1)
    return share


cdef inline void share_unref(SharePartitionState* share) noexcept nogil:
    if share != NULL and atomic_add(&share.references, -1) == 0:
        share_free(share)


# Frees it after its last reference.
cdef void share_free(SharePartitionState* share) noexcept nogil
# Ends the service for good (leader change, fenced epoch, deleted group or topic) with an error for whoever calls later.
# Nothing is written any more: another leader has the state.
cdef void share_close(SharePartitionState* share, int16_t error) noexcept nogil
# ERROR_NONE, or why the partition is closed.
cdef int16_t share_error(SharePartitionState* share) noexcept nogil
# Changes limits; records that are acquired keep their locks. True: waiting fetches may find records now.
cdef bint share_configure(SharePartitionState* share, const ShareLimits* limits) noexcept nogil

# The offset where a fetch reads the log: the first available record, else behind the window. One fetch at a time reads;
# the owner (any number but 0) is who may end it.
cdef ShareFetchVerdict share_begin_fetch(SharePartitionState* share, uint64_t owner, int64_t* offset) noexcept nogil
# True: another fetch was refused as busy meanwhile and may come now. No effect for anyone but the owner.
cdef bint share_end_fetch(SharePartitionState* share, uint64_t owner) noexcept nogil
# Whether share_begin_fetch would say SHARE_FETCH, and its offset: for a decision to wait. Takes nothing.
cdef bint share_can_fetch(SharePartitionState* share, int64_t* offset) noexcept nogil
# Acquires available and new records of the batches that were read, and appends their ranges to `out` in the order of
# offsets. Returns the number of records. Available records from the fetch offset to the first batch were removed from
# the log (compaction): they are archived, as records of skipped batches are, and a write may be taken. 0 when the
# partition is closed.
cdef int64_t share_acquire(SharePartitionState* share, const AcquireRequest* request, const LogBatch* batches,
                           size_t count, vector[AcquiredRange]* out) noexcept nogil

# ERROR_NONE, or INVALID_REQUEST: ranges that end before they begin, overlap or are out of order, no types or another
# number than the range has offsets, unknown types (`renew`: whether type 4 is known). Needs no partition; a handler
# calls it for every partition of a request, as Kafka does, before it changes any.
cdef int16_t share_check_acknowledgements(const Acknowledgement* batches, size_t count, bint renew) noexcept nogil
# Acknowledges records of a member, all of the batches or none. INVALID_RECORD_STATE: a record is not acquired, not by
# this member, or pending. INVALID_REQUEST: as share_check_acknowledgements, or offsets behind the window. Offsets below
# the start offset are ignored. Renewals hold at once, everything else when the write of the ticket has ended; ticket 0
# when nothing is to be written. The error of a closed partition.
cdef int16_t share_acknowledge(SharePartitionState* share, const char* member, size_t member_size,
                               const Acknowledgement* batches, size_t count, int64_t now_ms,
                               int64_t* ticket) noexcept nogil
# Releases all records of a member whose session ended; the ticket as above, 0 when it had none.
cdef int64_t share_release_member(SharePartitionState* share, const char* member, size_t member_size) noexcept nogil
# Ends locks whose time is over. True: waiting fetches may find records now, and a write may be taken.
cdef bint share_expire(SharePartitionState* share, int64_t now_ms) noexcept nogil
# When share_expire may have something to do (never too late, at times too early); -1: no record is acquired.
cdef int64_t share_next_deadline(SharePartitionState* share) noexcept nogil
# The log starts at this offset now: records below are archived. True: waiting fetches may find records or room now.
cdef bint share_log_start(SharePartitionState* share, int64_t offset) noexcept nogil
# Dead letters of these offsets are written: "archiving" records become archived. True as above.
cdef bint share_dead_lettered(SharePartitionState* share, int64_t first, int64_t last) noexcept nogil
# The records that wait for dead letters, as ranges with their delivery counts: after a restart the leader sends them.
cdef void share_archiving(SharePartitionState* share, vector[AcquiredRange]* out) noexcept nogil

# Takes the changes since the last write. False when there are none, or the partition is closed.
cdef bint share_take_write(SharePartitionState* share, ShareWrite* out) noexcept nogil
# Whether share_take_write has something to take.
cdef bint share_has_changes(SharePartitionState* share) noexcept nogil
# Ends a write. `stored`: its transitions hold; else they are taken back, and locks that ran out meanwhile end. True:
# waiting fetches may find records or room now, and a write may be taken.
cdef bint share_finish_write(SharePartitionState* share, const ShareWrite* write, bint stored,
                             int64_t now_ms) noexcept nogil
cdef void share_describe(SharePartitionState* share, ShareDescription* out) noexcept nogil
# The records of the window in the order of offsets.
cdef void share_records(SharePartitionState* share, vector[RecordRow]* out) noexcept nogil
