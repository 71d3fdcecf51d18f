"""The state of one partition's log, which both planes share, and the types of append, read and wait.

Data-plane threads call the `log_*` functions without the GIL. Python holds a `PartitionLog` (partition_log.pxd), which
owns one reference. Every function locks the log's mutex itself, holds it for memory work only, and never calls into
Python. Appends take turns: the append with the turn (`writing`) writes without the mutex. An append that would wait for
a slow disk or a new segment parks instead: see LOG_PARK_SEGMENT.
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint64_t
from libcpp.string cimport string
from libcpp.vector cimport vector

from kafkapy._speedups.base.event_queue cimport EventQueueState
from kafkapy._speedups.base.posix cimport pthread_mutex_t
from kafkapy._speedups.log.segment cimport SegmentState
from kafkapy._speedups.records.record_batch cimport RecordError, ValidationRules

# ---- waiting ---------------------------------------------------------------------------------------------------------

cdef enum WaitKind:
    WAIT_HIGH_WATERMARK = 0     # until high watermark > threshold (or LSO for read_committed: use
                                # WAIT_LAST_STABLE_OFFSET)
    WAIT_LAST_STABLE_OFFSET = 1
    WAIT_LOG_END = 2            # follower fetch: until log end offset > threshold
    WAIT_SEGMENT = 3            # until a prepared segment is installed
    WAIT_FLUSHED = 4            # until no flush is due (flush.messages) for the offset `threshold`
    WAIT_TURN = 5               # until the current write of an append has ended
    WAIT_KIND = 15              # the bits of the above
    WAIT_AT_FOLLOWER = 16       # added to one of the above: this broker need not lead (KIP-392)

# The thread that makes the condition true calls it outside the mutex; also when the log goes offline, is deleted or
# loses leadership, so a woken request must check again. It must not block and must not call log_* functions.
ctypedef void (*wake_function)(void* owner, uint64_t token) noexcept nogil

cdef struct Waiter:
    int kind                    # WaitKind bits
    int64_t threshold
    wake_function wake
    void* owner
    uint64_t token

# ---- append ----------------------------------------------------------------------------------------------------------

cdef enum AppendStatus:
    LOG_APPENDED = 0            # result is filled; also for a duplicate of an idempotent batch (result.duplicate)
    LOG_REFUSED = 1             # result.error is the reason; nothing was written
    LOG_PARK_SEGMENT = 2        # full and no segment prepared, SEGMENT_WANTED was posted; or another append hangs in
                                # its write. The waiter is registered; run again when woken
    LOG_PARK_VALIDATE = 3       # Python must convert the records first (another codec, an old message format)
    LOG_PARK_VERIFY = 4         # the transaction coordinator must confirm first; then run again with result.guard
    LOG_PARK_WORK = 5           # a worker must check compressed records (check_by_worker, result.rules); then run
                                # again with `checked`

cdef struct AppendOptions:
    int8_t required_acks        # with -1: refused with NOT_ENOUGH_REPLICAS when the ISR is below min.insync.replicas
    int16_t api_version         # of Produce, for zstd (7+) and one-batch (3+) rules; -1 for internal appends (several
                                # batches, control allowed)
    bint validated              # a worker has validated or converted the records already: skip LOG_PARK_VALIDATE
    bint checked                # CRC and records were checked before this append parked: skip both
    int64_t* work               # the rest of INLINE_WORK (append_checks.pxd), counted down; NULL: no limit
    int32_t current_leader_epoch    # -1: not checked
    int64_t now_ms
    bint verify                 # a client's first batch of a transaction needs the coordinator's consent (KIP-890)
    bint adds_partitions        # ... and the coordinator adds the partition itself (Produce 12+)
    int64_t guard               # from LOG_PARK_VERIFY; 0: not asked yet

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

# ---- read ------------------------------------------------------------------------------------------------------------

cdef enum FetchIsolation:
    READ_UNCOMMITTED = 0        # up to the high watermark
    READ_COMMITTED = 1          # up to the last stable offset
    READ_LOG_END = 2            # followers

cdef struct AbortedTransaction:
    int64_t producer_id
    int64_t first_offset

cdef struct ReadResult:
    int16_t error               # OFFSET_OUT_OF_RANGE, NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH,
                                # UNKNOWN_LEADER_EPOCH, KAFKA_STORAGE_ERROR, 0
    SegmentState* segment       # referenced for the caller (segment_unref when sent), NULL when there are no bytes
    int64_t position            # in segment.fd
    int64_t length              # bytes; whole batches unless cut by max_bytes (never below the first batch when
                                # min_one_batch)
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
    bint shortage               # with KAFKA_STORAGE_ERROR: a lack of descriptors or memory; the log is unchanged

# ---- the state -------------------------------------------------------------------------------------------------------

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
    int32_t in_sync_replicas    # size of the committed ISR
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
    void* own                   # LogPrivate (private.pxd)
