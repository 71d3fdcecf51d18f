"""Checks the records of a compressed batch while decompressing it piece by piece (decompress_stream.pxd).

The checks are those of `records_check` (record_batch.pxd) and Kafka's LogValidator: the count, offset deltas 0 to count
- 1, lengths, no bytes left over, and the rules of the topic. `record_read` reads a record that lies in one piece; a
record that crosses a border is read field by field, and its key and values are skipped. At most STREAM_KEPT bytes, a
field that the border cuts, are copied to the next piece.

The walk ends at the first invalid record, and at a record larger than all the bytes that may follow. MAX_OPENED_BYTES
bounds the decompressed size, so a batch takes at most a second of one core.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkapy._speedups.records.record_batch cimport BatchHeader, RecordError, ValidationRules

cdef enum:
    MAX_OPENED_BYTES = 256 * 1024 * 1024    # of a decompressed batch (records/compression.py has the same)

cdef enum CompressedStatus:
    COMPRESSED_OK = 0
    COMPRESSED_BAD_STRUCTURE = 1    # the records do not add up
    COMPRESSED_CORRUPT = 2          # the bytes are not valid for that codec
    COMPRESSED_TOO_LARGE = 3        # the records decompress to more than MAX_OPENED_BYTES
    COMPRESSED_NO_MEMORY = 4
    COMPRESSED_OVER_BUDGET = 5      # the records decompress to more than the budget: no finding

cdef struct RecordFindings:
    int32_t error_count
    int32_t max_timestamp_offset_delta  # of the first record with max_timestamp
    int64_t max_timestamp
    int64_t opened                      # decompressed bytes
    RecordError[100] errors             # MAX_RECORD_ERRORS

# Checks one whole batch with a valid CRC and its parsed header. Decompresses at most about `budget` bytes. Findings are
# complete only with COMPRESSED_OK; `opened` is always set.
cdef int compressed_records_check(const uint8_t* batch, const BatchHeader* header, const ValidationRules* rules,
                                  int64_t budget, RecordFindings* findings) noexcept nogil
# Whether the batch's bytes can hold its record count, at the codec's highest ratio.
cdef bint compressed_count_possible(const BatchHeader* header) noexcept nogil
