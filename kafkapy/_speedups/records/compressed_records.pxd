"""Are the records of a compressed batch what its header says? A walk over them while they are decompressed piece by
piece (decompress_stream.pxd).

The checks are those of `records_check` (record_batch.pxd), which Kafka's LogValidator makes too: the count, offset
deltas 0 to count - 1, lengths, no bytes left over, and the rules of the topic. A record that lies in one piece is read
by `record_read`; one that crosses a border is read field by field, its key and values are skipped. At most STREAM_KEPT
bytes, a field that the border cuts, are copied to the next piece.

The walk ends at the first record that cannot be right, and at a record that says it is larger than all that may come.
What a batch may open to is bounded, so its bytes explain the work: MAX_OPENED_BYTES is at most a second of one core.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkapy._speedups.records.record_batch cimport BatchHeader, RecordError, ValidationRules

cdef enum:
    MAX_OPENED_BYTES = 256 * 1024 * 1024    # what a batch may open to (records/compression.py has the same)

cdef enum CompressedStatus:
    COMPRESSED_OK = 0
    COMPRESSED_BAD_STRUCTURE = 1    # the records do not add up
    COMPRESSED_CORRUPT = 2          # not the bytes of that codec
    COMPRESSED_TOO_LARGE = 3        # they open to more than MAX_OPENED_BYTES
    COMPRESSED_NO_MEMORY = 4
    COMPRESSED_OVER_BUDGET = 5      # they open to more than the budget: nothing is known yet

cdef struct RecordFindings:
    int32_t error_count
    int32_t max_timestamp_offset_delta  # of the first record with it
    int64_t max_timestamp
    int64_t opened                      # bytes that were decompressed
    RecordError[100] errors             # MAX_RECORD_ERRORS

# `batch` is one whole batch with a right CRC, of which header was parsed. Decompresses at most about `budget` bytes.
# Findings are whole with COMPRESSED_OK alone; `opened` always.
cdef int compressed_records_check(const uint8_t* batch, const BatchHeader* header, const ValidationRules* rules,
                                  int64_t budget, RecordFindings* findings) noexcept nogil
# Whether that many records could be in that many bytes at all, were they compressed as far as the codec goes.
cdef bint compressed_count_possible(const BatchHeader* header) noexcept nogil
