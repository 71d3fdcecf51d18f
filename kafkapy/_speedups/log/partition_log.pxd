"""One partition's log: the object that both planes share.

Data-plane threads call the `log_*` functions without the GIL. Python holds a `PartitionLog`, which owns one reference. Every function
locks the log's mutex itself, holds it for memory work only, and never calls into Python. Appends take turns: the one whose turn it is (`writing`) writes
without the mutex. What would have to wait for a slow disk, or for a new segment, parks the caller: see LOG_PARK_SEGMENT.
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint64_t
from libcpp.string cimport string
from libcpp.unordered_map cimport unordered_map
from libcpp.vector cimport vector

from kafkapy._speedups.base.event_queue cimport EventQueueState
from kafkapy._speedups.base.posix cimport atomic_add, pthread_cond_t, pthread_mutex_t
from kafkapy._speedups.log.producer_state cimport CompletedTransaction
from kafkapy._speedups.log.recovery cimport LogHistory
from kafkapy._speedups.log.segment cimport SegmentState
from kafkapy._speedups.log.workers cimport LogWorkers, LogWorkersState
from kafkapy._speedups.records.record_batch cimport RecordError, ValidationRules

# ---- waiting --------------------------------------------------------------------------------------------------------------------

cdef enum WaitKind:
    WAIT_HIGH_WATERMARK = 0     # until high watermark > threshold (or LSO for read_committed: use WAIT_LAST_STABLE_OFFSET)
    WAIT_LAST_STABLE_OFFSET = 1
    WAIT_LOG_END = 2            # follower fetch: until log end offset > threshold
    WAIT_SEGMENT = 3            # until a prepared segment is installed
    WAIT_FLUSHED = 4            # until no flush is due (flush.messages) for the offset `threshold`
    WAIT_TURN = 5               # until the append that is being written is through

# Called outside the mutex, from whichever thread made the condition true; also when the log goes offline, is deleted, or loses
# leadership, so a woken request must look again. Must not block and must not call log_* functions.
ctypedef void (*wake_function)(void* owner, uint64_t token) noexcept nogil

cdef struct Waiter:
    int kind                    # WaitKind
    int64_t threshold
    wake_function wake
    void* owner
    uint64_t token

# ---- append ---------------------------------------------------------------------------------------------------------------------

cdef enum AppendStatus:
    LOG_APPENDED = 0            # result is filled; duplicate of an idempotent batch too (result.duplicate)
    LOG_REFUSED = 1             # result.error says why; nothing was written
    LOG_PARK_SEGMENT = 2        # full and no segment prepared, SEGMENT_WANTED was posted; or another append hangs in its write. The waiter given
                                # was registered; run again when woken
    LOG_PARK_VALIDATE = 3       # Python must convert the records first (another codec, an old message format)
    LOG_PARK_VERIFY = 4         # the transaction coordinator must be asked first; run again with result.guard when it has said yes
    LOG_PARK_WORK = 5           # a worker is to check compressed records (check_by_worker, result.rules); run again with `checked`

cdef struct AppendOptions:
    int8_t required_acks        # with -1: refused with NOT_ENOUGH_REPLICAS when the ISR is below min.insync.replicas
    int16_t api_version         # of Produce, for zstd (7+) and one-batch (3+) rules; -1 for internal appends (several batches, control allowed)
    bint validated              # a worker has validated or converted the records already: skip LOG_PARK_VALIDATE
    bint checked                # this very append has checked CRC and records before it was parked: skip both
    int64_t* work               # what of INLINE_WORK (append_checks.pxd) is left for records, counted down; NULL: as much as it takes
    int32_t current_leader_epoch    # -1: not checked
    int64_t now_ms
    bint verify                 # a client's batch that opens a transaction needs the coordinator's word (KIP-890)
    bint adds_partitions        # ... which is to add the partition itself (Produce 12+)
    int64_t guard               # from LOG_PARK_VERIFY; 0: the coordinator was not asked

cdef struct AppendResult:
    int16_t error               # Kafka error code
    bint duplicate
    int64_t base_offset
    int64_t last_offset
    int64_t log_append_time_ms  # -1 with CreateTime
    int64_t log_start_offset
    int32_t leader_id           # with NOT_LEADER_OR_FOLLOWER and epoch errors: for the response's current leader
    int32_t leader_epoch
    int64_t required_high_watermark     # acks=-1 is satisfied when the high watermark reaches this (== last_offset + 1)
    const char* message         # static text or NULL
    RecordError* record_errors  # malloc'ed (free() by the caller) or NULL
    int32_t record_error_count
    int64_t guard               # with LOG_PARK_VERIFY
    bint checked                # with LOG_PARK_SEGMENT and LOG_PARK_VERIFY: CRC and records are right
    ValidationRules rules       # with LOG_PARK_WORK

# ---- read -----------------------------------------------------------------------------------------------------------------------

cdef enum FetchIsolation:
    READ_UNCOMMITTED = 0        # up to the high watermark
    READ_COMMITTED = 1          # up to the last stable offset
    READ_LOG_END = 2            # followers

cdef struct AbortedTransaction:
    int64_t producer_id
    int64_t first_offset

cdef struct ReadResult:
    int16_t error               # OFFSET_OUT_OF_RANGE, NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, KAFKA_STORAGE_ERROR, 0
    SegmentState* segment       # referenced for the caller (segment_unref when sent), NULL when there are no bytes
    int64_t position            # in segment.fd
    int64_t length              # bytes; whole batches unless cut by max_bytes (never below the first batch when min_one_batch)
    int64_t high_watermark
    int64_t last_stable_offset
    int64_t log_start_offset
    int64_t log_end_offset
    int32_t leader_id
    int32_t leader_epoch
    int32_t diverging_epoch     # -1 when not diverging (KIP-595)
    int64_t diverging_end_offset
    AbortedTransaction* aborted # malloc'ed (free() by the caller) or NULL
    int32_t aborted_count       # -1: null array (READ_UNCOMMITTED)
    bint shortage               # with KAFKA_STORAGE_ERROR: descriptors or memory were short, and the log is as it was

# ---- the state -------------------------------------------------------------------------------------------------------------------

cdef struct LogCounters:        # atomics, read by the metrics collector
    int64_t bytes_in
    int64_t bytes_out
    int64_t messages_in
    int64_t produce_requests
    int64_t fetch_requests
    int64_t failed_produce_requests
    int64_t failed_fetch_requests
    int64_t bytes_rejected

cdef struct LogConfigState:     # replaced under the mutex by PartitionLog.update_config
    int32_t max_message_bytes
    int64_t segment_bytes
    int64_t segment_ms
    int64_t segment_jitter_ms
    int32_t index_interval_bytes
    int32_t segment_index_bytes
    int8_t compression_codec    # Codec, or -1 for "producer"
    bint log_append_time
    bint compacted
    bint validate_compressed    # kafkapy.validate.compressed=full
    int64_t timestamp_before_max_ms
    int64_t timestamp_after_max_ms
    int32_t min_in_sync_replicas
    int64_t flush_messages

cdef struct RecentBatch:        # where a batch that was appended lately stands, so that reads at the tail need no index
    int64_t base_offset
    int64_t last_offset
    int64_t position
    int64_t size
    int64_t segment_base

cdef struct LimitPlace:         # where the first batch stands that reaches to a high watermark or last stable offset: what is below may be sent
    int64_t offset              # -1: none is known
    int64_t segment_base
    int64_t position

cdef struct Follower:
    int64_t log_end_offset      # -1 until its first fetch
    int64_t caught_up_ms        # wall clock, when it last reached the log end
    bint in_sync

cdef cppclass ProducerSnapshot: # taken at a roll, to be written by a worker
    int64_t offset
    string data

cdef struct AbortedWrite:        # an entry for a .txnindex file
    int64_t segment_base
    CompletedTransaction entry

cdef cppclass LogPrivate:       # of the log_*.pyx kernels and partition_log.pyx only
    LogHistory history          # producer state, leader epochs, aborted transactions
    string directory            # of the segment files; empty when the backend has none
    bint loading                # files are being looked at, by who made the log
    size_t watched_at           # place in the table of open_files.pyx
    bint rolling                # a roll renames its file outside the mutex: appends park, others wait
    bint writing                # an append has its turn: it writes outside the mutex, whose state it changes afterwards
    bint turn_is_slow           # somebody has waited for that turn for too long: who comes now parks at once
    int64_t turns               # counts them
    int64_t turn_waiters        # threads that wait for turn_over
    int64_t settlers            # of these in lock_settled: appends let them go first
    pthread_cond_t turn_over
    int64_t slow                # atomic; threads that hang in a read of this log (blocking.pxd)
    bint segment_wanted         # asked for, of the workers or by SEGMENT_WANTED, and not answered yet
    bint native_segments        # segments are made here (log_background.pyx), not by the storage
    int64_t segments_made
    LogWorkersState* segment_workers    # referenced; NULL: the control plane is asked
    LogWorkersState* flush_workers
    bint closed
    vector[RecentBatch] recent  # ring
    size_t recent_next
    LimitPlace limits[2]        # of the high watermark and the last stable offset that were asked for last
    int64_t layout              # counts changes of where batches stand, and aborted transactions forgotten: who has looked before must look again
    vector[int64_t] aborted_lowest  # lowest first offset in each ABORTED_BLOCK of history.aborted; made when a read needs it
    size_t aborted_summed       # how many of those it covers
    unordered_map[int32_t, Follower] followers
    vector[ProducerSnapshot] snapshots
    int64_t epochs_version      # counts changes of the leader epochs
    int64_t unflushed_messages  # since the last flush
    uint64_t random             # for roll jitter
    int64_t truncations         # a flush that a truncation overtook must not move the recovery point
    pthread_mutex_t sealing     # held while closed segments are cut to size and synced, so that no truncation opens one again meanwhile
    pthread_mutex_t aborted_file    # held while .txnindex is written; taken before the log's mutex
    vector[AbortedWrite] unwritten  # aborted transactions not in .txnindex yet
    int64_t flush_due           # what is below has to be on disk before it is acknowledged or visible: flush.messages was reached there
    int64_t flushed             # what is below is on disk; the recovery point may be lower, because files that Python writes belong to it
    bint flush_wanted           # asked for, of the workers or by FLUSH_WANTED, and not answered yet

cdef cppclass LogState:
    pthread_mutex_t mutex
    int64_t references          # atomic
    int64_t id                  # handle in events
    string topic
    uint8_t topic_id[16]
    int32_t partition
    LogConfigState config
    # leadership, set by the control plane
    bint leader
    int32_t leader_id
    int32_t leader_epoch
    int32_t in_sync_replicas    # size of the ISR; 1 means the high watermark follows the log end
    # offsets
    int64_t log_start_offset
    int64_t log_end_offset
    int64_t high_watermark
    int64_t last_stable_offset
    int64_t recovery_point
    int32_t offline_errno       # not 0: every operation answers KAFKA_STORAGE_ERROR
    bint deleted
    vector[SegmentState*] segments      # by base offset; the last one is active
    SegmentState* prepared      # next active segment, or NULL
    vector[Waiter] waiters
    EventQueueState* events
    bint announce_high_watermark
    LogCounters counters
    LogPrivate* own

cdef inline void log_ref(LogState* log) noexcept nogil:
    atomic_add(&log.references, 1)


cdef inline void log_unref(LogState* log) noexcept nogil:
    if log != NULL and atomic_add(&log.references, -1) == 0:
        log_free(log)


# The last reference is gone.
cdef void log_free(LogState* log) noexcept nogil

# Validates the one (or, for internal appends, each) batch in data, patches offset, epoch and append time in place, writes it, advances the log end
# and, when this broker is the whole ISR, the high watermark; then wakes waiters. `waiter` is used only for LOG_PARK_SEGMENT.
cdef AppendStatus log_append(LogState* log, uint8_t* data, int64_t size, const AppendOptions* options, const Waiter* waiter,
                             AppendResult* result) noexcept nogil

# Whether flush.messages has ever made a flush due here; without the mutex, for who has just appended.
cdef bint log_was_flush_due(LogState* log) noexcept nogil
# Mutex held: whether the record at that offset may be acknowledged as far as flush.messages is concerned.
cdef bint log_is_flushed_locked(LogState* log, int64_t offset) noexcept nogil

# 1 when the condition already holds (nothing registered), else 0 and the waiter stays until it fires once or is removed.
cdef int log_wait(LogState* log, const Waiter* waiter) noexcept nogil
cdef void log_remove_waiters(LogState* log, void* owner, uint64_t token) noexcept nogil

# A follower's fetch position (replica fetch); advances the high watermark to the smallest position in the ISR.
cdef void log_follower_position(LogState* log, int32_t replica_id, int64_t log_end_offset) noexcept nogil

cdef class PartitionLog:
    cdef LogState* state
    cdef readonly object events         # EventQueue, kept alive
    cdef readonly object storage        # LogStorage
    cdef readonly object config         # the LogConfig last given
    cdef readonly LogWorkers append_workers     # of the log's directory, or None
    cdef int32_t replica_count          # of the partition; 0: not known
    cdef object __weakref__

    cdef int32_t effective_min_in_sync(self, object config) except? -1
    cdef void hold_segments(self, vector[SegmentState*]* out) noexcept nogil
    cdef object append(self, bytes batches, const AppendOptions* options, int origin)
