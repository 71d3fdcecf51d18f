"""Record batch, message format v2 (KIP-98): the header, its checks, and the fields that a broker patches.

    offset size field
         0    8 base offset                    not covered by the CRC; set by the broker
         8    4 batch length                   bytes that follow this field
        12    4 partition leader epoch         not covered by the CRC; set by the broker
        16    1 magic                          2
        17    4 CRC-32C                        of everything from the attributes to the end
        21    2 attributes                     bits 0-2 codec, 3 timestamp type, 4 transactional, 5 control,
                                               6 delete horizon
        23    4 last offset delta
        27    8 base timestamp (ms)
        35    8 max timestamp (ms)
        43    8 producer id
        51    2 producer epoch
        53    4 base sequence
        57    4 record count
        61      records
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kafkapy._speedups.base.wire cimport ByteBuffer, Cursor

cdef enum:
    BASE_OFFSET_AT = 0
    BATCH_LENGTH_AT = BASE_OFFSET_AT + 8
    LEADER_EPOCH_AT = BATCH_LENGTH_AT + 4
    LOG_OVERHEAD = LEADER_EPOCH_AT              # base offset and length: bytes that the length does not count
    MAGIC_AT = LEADER_EPOCH_AT + 4
    CRC_AT = MAGIC_AT + 1
    ATTRIBUTES_AT = CRC_AT + 4
    LAST_OFFSET_DELTA_AT = ATTRIBUTES_AT + 2
    BASE_TIMESTAMP_AT = LAST_OFFSET_DELTA_AT + 4
    MAX_TIMESTAMP_AT = BASE_TIMESTAMP_AT + 8
    PRODUCER_ID_AT = MAX_TIMESTAMP_AT + 8
    PRODUCER_EPOCH_AT = PRODUCER_ID_AT + 8
    BASE_SEQUENCE_AT = PRODUCER_EPOCH_AT + 2
    RECORD_COUNT_AT = BASE_SEQUENCE_AT + 4
    BATCH_HEADER_SIZE = RECORD_COUNT_AT + 4     # 61

cdef enum:
    MAGIC_V2 = 2
    CODEC_MASK = 0x07
    TIMESTAMP_TYPE_FLAG = 0x08
    TRANSACTIONAL_FLAG = 0x10
    CONTROL_FLAG = 0x20
    DELETE_HORIZON_FLAG = 0x40

cdef enum:
    LEGACY_MIN_SIZE = 14                        # the smallest message (v0), by its length field; see records/legacy.py

cdef enum Codec:
    CODEC_NONE = 0
    CODEC_GZIP = 1
    CODEC_SNAPPY = 2
    CODEC_LZ4 = 3
    CODEC_ZSTD = 4

cdef enum BatchStatus:
    BATCH_OK = 0
    BATCH_INCOMPLETE = 1        # fewer bytes than the header or the length field says
    BATCH_BAD_LENGTH = 2        # a length no batch can have (negative, below the header's size)
    BATCH_BAD_MAGIC = 3
    BATCH_BAD_CRC = 4
    BATCH_BAD_STRUCTURE = 5     # counts, deltas, varints, trailing bytes: the records do not add up

cdef struct BatchHeader:
    int64_t base_offset
    int32_t size                # whole batch in bytes, LOG_OVERHEAD included
    int32_t leader_epoch
    int8_t magic
    uint32_t crc
    int16_t attributes
    int32_t last_offset_delta
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t producer_id
    int16_t producer_epoch
    int32_t base_sequence
    int32_t record_count

# Parses the header of the batch that starts at data; `available` bytes may be read. Does not check the CRC and reads
# only the header. Always clears `out` first. BATCH_BAD_MAGIC still gives base_offset, size and magic, so that message
# sets of v0/v1 can be walked. With BATCH_INCOMPLETE the header is filled once its 61 bytes are there (size > 0), else
# all zero.
cdef BatchStatus batch_header_parse(const uint8_t* data, int64_t available, BatchHeader* out) noexcept nogil
# BATCH_OK or BATCH_BAD_CRC for a whole batch of `size` bytes (header.size).
cdef BatchStatus batch_check_crc(const uint8_t* data, int64_t size) noexcept nogil
# Patches what the CRC does not cover.
cdef void batch_stamp(uint8_t* data, int64_t base_offset, int32_t leader_epoch) noexcept nogil
# message.timestamp.type=LogAppendTime: sets the flag and the max timestamp, and computes the CRC again.
cdef void batch_stamp_append_time(uint8_t* data, int64_t size, int64_t append_time_ms) noexcept nogil
# message.timestamp.type=CreateTime: puts the max timestamp that batch_check_records found into the header. The CRC is
# computed again only when the header had another one, so the usual batch costs nothing.
cdef void batch_stamp_max_timestamp(uint8_t* data, int64_t size, int64_t max_timestamp) noexcept nogil

# --- validation of produced records (LogValidator) ---

cdef enum RecordProblem:
    RECORD_NULL_KEY = 1         # compacted topic: INVALID_RECORD
    RECORD_BAD_TIMESTAMP = 2    # outside message.timestamp.before/after.max.ms: INVALID_TIMESTAMP

cdef struct RecordError:
    int32_t batch_index
    int32_t problem             # RecordProblem

cdef struct ValidationRules:
    bint needs_keys             # cleanup.policy contains compact
    bint log_append_time        # message.timestamp.type=LogAppendTime (then record timestamps are not checked)
    int64_t timestamp_before_max_ms
    int64_t timestamp_after_max_ms
    int64_t now_ms

cdef enum:
    MAX_RECORD_ERRORS = 100


cdef inline bint timestamp_out_of_bounds(int64_t timestamp, const ValidationRules* rules) noexcept nogil:
    # Compared in the unsigned distance: the bounds default to 2**63-1, and a hostile timestamp may be as far from now
    # as 2**64-1.
    if timestamp < rules.now_ms:
        return <uint64_t>rules.now_ms - <uint64_t>timestamp > <uint64_t>rules.timestamp_before_max_ms
    return <uint64_t>timestamp - <uint64_t>rules.now_ms > <uint64_t>rules.timestamp_after_max_ms


cdef inline int32_t record_problem(const BatchHeader* header, const ValidationRules* rules, int32_t key_size,
                                   int64_t timestamp) noexcept nogil:
    """The RecordProblem of one record, or 0."""
    if rules.needs_keys and key_size < 0:
        return RECORD_NULL_KEY
    if header.attributes & TIMESTAMP_TYPE_FLAG:
        # Only a broker may set LogAppendTime.
        return RECORD_BAD_TIMESTAMP
    if not rules.log_append_time and timestamp != NO_TIMESTAMP and timestamp_out_of_bounds(timestamp, rules):
        return RECORD_BAD_TIMESTAMP
    return 0


# Walks every record of an UNCOMPRESSED batch (CRC checked before): varints, lengths, offset deltas 0..count-1, header
# counts, no trailing bytes, and the rules. BATCH_OK, or BATCH_BAD_STRUCTURE. Per-record problems (at most
# MAX_RECORD_ERRORS) are written to `errors` and counted in `error_count`. `max_timestamp_offset_delta` is the delta of
# the first record with the max timestamp found.
cdef BatchStatus batch_check_records(const uint8_t* data, int64_t size, const BatchHeader* header,
                                     const ValidationRules* rules, RecordError* errors, int32_t* error_count,
                                     int64_t* max_timestamp, int32_t* max_timestamp_offset_delta) noexcept nogil

# The same walk over a decompressed payload; `header` is the batch's.
cdef BatchStatus records_check(const uint8_t* payload, int64_t size, const BatchHeader* header,
                               const ValidationRules* rules, RecordError* errors, int32_t* error_count,
                               int64_t* max_timestamp, int32_t* max_timestamp_offset_delta) noexcept nogil

# --- one record inside a batch ---
#
#    length varint (bytes that follow), attributes int8, timestamp delta varlong, offset delta varint, key (varint
#    length, -1 null), value (the same), header count varint, then per header: key (varint length), value (varint
#    length, -1 null). All zig-zag.

cdef enum:
    MIN_RECORD_SIZE = 7         # the length byte, attributes and five more one-byte fields
    MIN_HEADER_SIZE = 2         # one byte for each length
    NO_TIMESTAMP = -1

cdef struct RecordView:
    int64_t timestamp_delta
    int32_t offset_delta
    int32_t key_size            # -1: null
    const uint8_t* key          # borrowed, as all pointers here
    int32_t value_size          # -1: null
    const uint8_t* value
    int32_t header_count
    const uint8_t* headers      # the first header
    int64_t headers_size        # bytes of all headers, checked
    int64_t size                # of the record with its length field

# Reads one record and moves the cursor past it: BATCH_OK or BATCH_BAD_STRUCTURE. Checks the headers without keeping
# them.
cdef BatchStatus record_read(Cursor* cursor, RecordView* out) noexcept nogil
# Bytes that record_write takes for such a record. The size depends on headers_size and the two deltas.
cdef int64_t record_size(const RecordView* record) noexcept nogil
# Appends the record. record.headers must hold headers_size bytes of encoded headers.
cdef void record_write(ByteBuffer* out, const RecordView* record) noexcept nogil
# Writes the 61 bytes of a header; header.size and record_count must be final. batch_refresh_crc computes the CRC of the
# whole batch.
cdef void batch_header_write(uint8_t* data, const BatchHeader* header) noexcept nogil
cdef void batch_refresh_crc(uint8_t* data, int64_t size) noexcept nogil
