"""The records of a batch that survive compaction, and the batch rewritten with them (MemoryRecords.filterTo).

A batch keeps its base offset, last offset, producer fields and base sequence whatever records it loses, so offsets
never change and a restarted broker reads the same producer state from it. KIP-534: the first pass that keeps a
tombstone, or a marker of a transaction without data, writes the delete horizon (the time of its removal) into the base
timestamp and sets bit 6 of the attributes.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libcpp.vector cimport vector

from kafkapy._speedups.base.wire cimport ByteBuffer
from kafkapy._speedups.log.offset_map cimport OffsetMapState
from kafkapy._speedups.records.record_batch cimport BatchHeader, BatchStatus

cdef struct FilterRules:
    OffsetMapState* map
    int64_t now_ms
    int64_t delete_retention_ms

cdef struct FilterVerdict:
    int32_t kept                    # records
    int32_t without_key             # records without a key, which a compacted topic drops
    bint as_is                      # the batch may be copied
    bint sets_horizon               # the batch is written with a delete horizon, which its base timestamp becomes
    int64_t base_timestamp          # of the rewritten batch
    int64_t max_timestamp

# Decides on the records (`payload`, decompressed) of one batch; `keep` gets a byte per record. `discard`: of an aborted
# transaction, or an obsolete control batch. `empty_marker`: a control batch whose transaction has no data left.
# BATCH_OK or BATCH_BAD_STRUCTURE.
cdef BatchStatus filter_records(const uint8_t* payload, int64_t size, const BatchHeader* header,
                                const FilterRules* rules, bint discard, bint empty_marker, vector[uint8_t]* keep,
                                FilterVerdict* out) noexcept nogil
# Appends the kept records, with timestamp deltas against verdict.base_timestamp.
cdef void filter_write(ByteBuffer* out, const uint8_t* payload, int64_t size, const BatchHeader* header,
                       const vector[uint8_t]* keep, const FilterVerdict* verdict) noexcept nogil
# Writes the header and checksum at `at`, in front of `payload_size` bytes of records.
cdef void filter_header(uint8_t* at, const BatchHeader* header, const FilterVerdict* verdict,
                        int64_t payload_size) noexcept nogil
# Appends a batch without records, which keeps its producer's last sequence (DefaultRecordBatch.writeEmptyHeader).
cdef void filter_empty(ByteBuffer* out, const BatchHeader* header) noexcept nogil
