"""Types of share partitions, shared by their kernels and by those who call them (see partition.pxd)."""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t
from libcpp.vector cimport vector

cdef enum:
    WIDEST_BATCH = 1 << 17          # records of a log batch that one acquisition takes although the window is full

cdef enum ShareRecordState:         # Kafka's numbers, as persisted
    SHARE_AVAILABLE = 0
    SHARE_ACQUIRED = 1              # never persisted
    SHARE_ACKNOWLEDGED = 2
    SHARE_ARCHIVING = 3             # waits for its dead letter (KIP-1191)
    SHARE_ARCHIVED = 4

cdef enum AcknowledgeType:          # on the wire
    ACKNOWLEDGE_GAP = 0             # no record at this offset
    ACKNOWLEDGE_ACCEPT = 1
    ACKNOWLEDGE_RELEASE = 2
    ACKNOWLEDGE_REJECT = 3
    ACKNOWLEDGE_RENEW = 4           # version 2

cdef enum AcquireMode:              # on the wire (ShareFetch 2)
    ACQUIRE_BATCH_OPTIMIZED = 0     # whole log batches: the rest of a batch passes max_records
    ACQUIRE_RECORD_LIMIT = 1        # never more than max_records

cdef enum ShareFetchVerdict:
    SHARE_FETCH = 0                 # read at the offset; share_end_fetch follows
    SHARE_FETCH_BUSY = 1            # another request reads: wait for its share_end_fetch
    SHARE_FETCH_FULL = 2            # no record is available and the window is full: wait until records are released
    SHARE_FETCH_CLOSED = 3          # share_error says why

cdef struct ShareLimits:
    int64_t lock_ms                 # share.record.lock.duration.ms
    int32_t max_in_flight           # share.partition.max.record.locks
    int32_t delivery_limit          # share.delivery.count.limit
    bint dead_letters               # rejected and exhausted records become "archiving"

cdef struct LogBatch:               # of the log, as read
    int64_t first
    int64_t last
    bint skipped                    # aborted, for a group that reads committed records: archived instead of acquired

cdef struct AcquireRequest:
    const char* member              # id; copied when records are acquired
    size_t member_size
    int8_t mode                     # AcquireMode
    int32_t max_records
    int32_t batch_size              # records of one acquired range, in whole log batches
    int64_t fetch_offset            # where the log was read
    int64_t now_ms

cdef struct AcquiredRange:          # AcquiredRecords of the reply
    int64_t first
    int64_t last
    int16_t delivery_count          # this delivery included

cdef struct Acknowledgement:        # one of AcknowledgementBatches
    int64_t first
    int64_t last
    const int8_t* types             # one for all offsets, or one for each
    int64_t type_count

cdef struct StateBatch:             # of a ShareState that was read from the coordinator
    int64_t first
    int64_t last
    int8_t state
    int16_t delivery_count

cdef struct StateChange:
    int64_t first
    int64_t last
    int8_t state                    # SHARE_ARCHIVING: send dead letters when the write has ended
    int16_t delivery_count
    bint pending                    # until share_finish_write; a time-out is not

cdef cppclass ShareWrite:
    """One Persister.write: the changes since the last one, in the order of offsets, without overlaps."""
    int64_t number                  # 1, 2, ...; the ticket of the acknowledgements in it
    int32_t state_epoch
    int32_t leader_epoch
    int64_t start_offset
    int64_t delivery_complete       # acknowledged and archived records of the window, pending ones included
    vector[StateChange] changes

cdef struct ShareDescription:
    int64_t start_offset
    int64_t next_offset             # behind the window: where records are read that nobody has read
    int64_t delivery_complete
    int64_t records                 # in the window, with gaps
    int64_t batches
    int64_t acquired                # records with an owner
    int64_t pending                 # of these, those with a pending transition
    int64_t members                 # that own records
    int64_t memory                  # bytes, roughly
