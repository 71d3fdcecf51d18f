"""The idempotent and transactional producers of a partition (ProducerStateManager, KIP-98).

Snapshot file (`<offset>.snapshot`, version 1), with all records below the offset applied:

    int16 version | uint32 CRC-32C of all that follows | int32 count | entries

    an entry (46 bytes): int64 producer id | int16 epoch | int32 last sequence | int64 last offset |
                         int32 offset delta of that batch | int64 timestamp (ms) | int32 coordinator epoch |
                         int64 first offset of the current transaction, -1 when none

Callers hold the log's mutex, or are the one thread that loads the log.
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t
from libcpp.map cimport map as ordered_map
from libcpp.unordered_map cimport unordered_map

from kafkapy._speedups.base.seeded_hash cimport SeededHash
from kafkapy._speedups.base.wire cimport ByteBuffer
from kafkapy._speedups.records.record_batch cimport BatchHeader

cdef enum:
    KEPT_BATCHES = 5                # batches per producer in which a duplicate is recognized

cdef struct BatchMetadata:
    int32_t last_sequence
    int64_t last_offset
    int32_t offset_delta
    int64_t timestamp

cdef struct ProducerEntry:
    int64_t producer_id
    int16_t epoch
    int32_t coordinator_epoch
    int64_t last_timestamp          # ms
    int64_t transaction_start       # first offset of the open transaction, -1 when none
    int32_t count                   # of batches, oldest first
    BatchMetadata batches[5]

cdef struct Transaction:
    int64_t producer_id
    int64_t first_offset
    int64_t last_offset             # of its marker; -1 while it is open
    int64_t segment_base            # of the segment that holds its first batch
    int64_t position                # of that batch in the segment's file; -1 when not known

cdef struct Verification:           # of a producer whose first batch waits for the transaction coordinator (KIP-890)
    int64_t guard                   # unique in this process, never 0
    int64_t started_ms              # wall clock
    int32_t lowest_sequence         # of the waiting batches: a higher one must not be appended first
    int16_t epoch
    bint adds_partitions            # each transaction has a new epoch

cdef cppclass ProducerStateManager:
    unordered_map[int64_t, ProducerEntry, SeededHash] producers
    unordered_map[int64_t, Verification, SeededHash] verifications  # by producer id; the batch removes it, or an
                                                                    # earlier marker
    ordered_map[int64_t, Transaction] ongoing           # by first offset
    ordered_map[int64_t, Transaction] unreplicated      # decided, but the marker is not below the high watermark yet
    int64_t end_offset              # everything below is applied
    int64_t snapshot_offset         # of the newest snapshot
    int64_t expiration_ms           # producer.id.expiration.ms

cdef enum AppendOrigin:
    ORIGIN_CLIENT = 0               # sequence numbers and epochs are checked
    ORIGIN_COORDINATOR = 1          # epochs only: offset commits and markers have no sequence
    ORIGIN_REPLICATION = 2          # no checks: the leader has made them

cdef enum ControlType:
    CONTROL_NONE = -1               # a data batch, or an empty or unknown control batch
    CONTROL_ABORT = 0
    CONTROL_COMMIT = 1

cdef struct ControlMarker:
    int8_t type                     # ControlType
    int32_t coordinator_epoch

cdef struct CompletedTransaction:
    bint completed
    bint aborted
    int64_t producer_id
    int64_t first_offset
    int64_t last_offset
    int64_t last_stable_offset      # after this marker, for the transaction index

cdef enum SequenceVerdict:
    SEQUENCE_OK = 0
    SEQUENCE_DUPLICATE = 1
    SEQUENCE_REFUSED = 2

cdef struct SequenceCheck:
    int16_t error                   # Kafka error code with SEQUENCE_REFUSED
    const char* message
    int64_t base_offset             # of the original, with SEQUENCE_DUPLICATE
    int64_t last_offset
    int64_t timestamp

cdef ProducerStateManager* producer_state_new(int64_t expiration_ms) noexcept nogil
cdef void producer_state_free(ProducerStateManager* state) noexcept nogil
# The marker of a control batch; type CONTROL_NONE without a marker. False for bytes that are no control record.
cdef bint control_marker_parse(const uint8_t* data, int64_t size, const BatchHeader* header,
                               ControlMarker* out) noexcept nogil
# Checks epoch and sequence numbers of a batch. `adds_partitions`: the producer has a new epoch in each transaction, so
# an unknown producer starts with sequence number 0.
cdef SequenceVerdict producer_check(ProducerStateManager* state, const BatchHeader* header, const ControlMarker* marker,
                                    int origin, bint adds_partitions, SequenceCheck* out) noexcept nogil
# Whether a batch belongs to an open transaction of this partition.
cdef bint producer_in_transaction(ProducerStateManager* state, const BatchHeader* header) noexcept nogil
# The guard of a producer whose batch would open a transaction here, after `producer_check`. As long as the guard stays
# the same, no marker was written, and the coordinator's answer holds (VerificationStateEntry).
cdef int64_t producer_start_verification(ProducerStateManager* state, const BatchHeader* header, bint adds_partitions,
                                         int64_t now_ms) noexcept nogil
# Whether `guard` is still the producer's.
cdef bint producer_is_verified(ProducerStateManager* state, const BatchHeader* header, int64_t guard) noexcept nogil
# Applies an appended batch. Fills `completed` for a marker that ends a transaction.
cdef void producer_apply(ProducerStateManager* state, const BatchHeader* header, const ControlMarker* marker,
                         int64_t base_offset, int64_t last_offset, CompletedTransaction* completed) noexcept nogil
# Sets the place of the batch at that offset, if it has just opened a transaction.
cdef void producer_place_batch(ProducerStateManager* state, int64_t offset, int64_t segment_base,
                               int64_t position) noexcept nogil
# Forgets the places of all transactions, after files have changed.
cdef void producer_forget_places(ProducerStateManager* state) noexcept nogil
# The transaction that bounds read_committed readers, or NULL. Valid until the state changes.
cdef const Transaction* producer_first_unstable(ProducerStateManager* state) noexcept nogil
# The first offset of the earliest transaction that is open, or decided above the high watermark; -1 when there is none.
cdef int64_t producer_first_unstable_offset(ProducerStateManager* state) noexcept nogil
cdef void producer_high_watermark(ProducerStateManager* state, int64_t high_watermark) noexcept nogil
cdef int32_t producer_expire(ProducerStateManager* state, int64_t now_ms) noexcept nogil
cdef void producer_clear(ProducerStateManager* state, int64_t end_offset) noexcept nogil
cdef void producer_snapshot_write(ProducerStateManager* state, ByteBuffer* out) noexcept nogil
# The entry as a dict, for DescribeProducers.
cdef object producer_dict(ProducerEntry* entry)
# Replaces the state by the snapshot, without expired producers. False for a corrupt snapshot: the state is then empty.
cdef bint producer_snapshot_read(ProducerStateManager* state, const uint8_t* data, int64_t size, int64_t offset,
                                 int64_t now_ms) noexcept nogil
