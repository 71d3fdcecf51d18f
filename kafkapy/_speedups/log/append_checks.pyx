"""Structure, sizes, CRC and records of an append's batches (see append_checks.pxd)."""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport malloc
from libc.string cimport memcpy
from libcpp.vector cimport vector

from kafkapy._speedups.base.error_codes cimport (
    ERROR_CORRUPT_MESSAGE,
    ERROR_INVALID_RECORD,
    ERROR_INVALID_TIMESTAMP,
    ERROR_MESSAGE_TOO_LARGE,
    ERROR_NONE,
    ERROR_RECORD_LIST_TOO_LARGE,
    ERROR_UNKNOWN_SERVER_ERROR,
    ERROR_UNSUPPORTED_COMPRESSION_TYPE,
)
from kafkapy._speedups.base.wire cimport store_int16
from kafkapy._speedups.log.producer_state cimport ORIGIN_CLIENT, ORIGIN_REPLICATION, control_marker_parse
from kafkapy._speedups.records.compressed_records cimport (
    COMPRESSED_BAD_STRUCTURE,
    COMPRESSED_CORRUPT,
    COMPRESSED_OK,
    COMPRESSED_OVER_BUDGET,
    COMPRESSED_TOO_LARGE,
    MAX_OPENED_BYTES,
    RecordFindings,
    compressed_count_possible,
    compressed_records_check,
)
from kafkapy._speedups.records.record_batch cimport (
    ATTRIBUTES_AT,
    BATCH_BAD_LENGTH,
    BATCH_BAD_MAGIC,
    BATCH_HEADER_SIZE,
    BATCH_OK,
    CODEC_GZIP,
    CODEC_MASK,
    CODEC_NONE,
    CODEC_SNAPPY,
    CODEC_ZSTD,
    CONTROL_FLAG,
    NO_TIMESTAMP,
    RECORD_BAD_TIMESTAMP,
    TIMESTAMP_TYPE_FLAG,
    BatchStatus,
    RecordError,
    batch_check_crc,
    batch_check_records,
    batch_header_parse,
    batch_refresh_crc,
    batch_stamp_append_time,
    batch_stamp_max_timestamp,
)

cdef enum:
    ZSTD_SINCE_VERSION = 7          # of Produce (KIP-110)
    USUAL_RATIO = 2                 # of records to their compressed bytes: the expected cost of a batch
                                    # before its check

# The cost of a decompressed byte; lz4 is 1.
cdef enum:
    COST_GZIP = 14
    COST_SNAPPY = 3
    COST_ZSTD = 3


cdef int refuse(AppendResult* result, int error, const char* message) noexcept nogil:
    result.error = <int16_t>error
    result.message = message
    return error


cdef int check_structure(const uint8_t* data, int64_t available, int origin, CheckedBatch* batch,
                         AppendResult* result) noexcept nogil:
    """Checks that this is one whole v2 batch. 0 or an error."""
    cdef BatchStatus status = batch_header_parse(data, available, &batch.header)
    cdef BatchHeader* header = &batch.header
    if status == BATCH_BAD_MAGIC:
        if header.magic == 0 or header.magic == 1:
            return refuse(result, ERROR_INVALID_RECORD, "Only record batches of magic version 2 are taken.")
        return refuse(result, ERROR_CORRUPT_MESSAGE, "The magic byte is no known message format.")
    if status == BATCH_BAD_LENGTH:
        return refuse(result, ERROR_CORRUPT_MESSAGE, "The batch has an impossible length.")
    if status != BATCH_OK or header.size > available:
        return refuse(result, ERROR_INVALID_RECORD, "The records hold no whole batch.")
    return ERROR_NONE


cdef bint is_message_set(const uint8_t* data, int64_t size, const AppendOptions* options) noexcept nogil:
    """Whether a request that may hold message sets begins with a whole message of v0 or v1, which a worker converts."""
    cdef BatchHeader header
    return (0 <= options.api_version < BATCHES_SINCE_VERSION
            and batch_header_parse(data, size, &header) == BATCH_BAD_MAGIC
            and (header.magic == 0 or header.magic == 1) and header.size <= size)


cdef int refuse_records(const RecordError* errors, int32_t error_count, AppendResult* result) noexcept nogil:
    cdef int32_t i
    cdef bint bad_timestamp = False
    result.record_errors = <RecordError*>malloc(<size_t>error_count * sizeof(RecordError))
    if result.record_errors != NULL:
        memcpy(result.record_errors, errors, <size_t>error_count * sizeof(RecordError))
        result.record_error_count = error_count
    for i in range(error_count):
        if errors[i].problem == RECORD_BAD_TIMESTAMP:
            bad_timestamp = True
    if bad_timestamp:
        return refuse(result, ERROR_INVALID_TIMESTAMP,
                      "One or more records have a timestamp outside the accepted range.")
    return refuse(result, ERROR_INVALID_RECORD,
                  "One or more records were rejected: a compacted topic takes no record without a key.")


cdef void correct_max_timestamp(uint8_t* data, BatchHeader* header, const ValidationRules* rules,
                                int64_t max_timestamp) noexcept nogil:
    if not rules.log_append_time:
        batch_stamp_max_timestamp(data, header.size, max_timestamp)
        header.max_timestamp = max_timestamp


cdef int check_plain(uint8_t* data, BatchHeader* header, AppendResult* result) noexcept nogil:
    cdef RecordError errors[100]
    cdef int32_t error_count = 0, delta = 0
    cdef int64_t max_timestamp = -1
    if batch_check_records(data, header.size, header, &result.rules, errors, &error_count, &max_timestamp,
                           &delta) != BATCH_OK:
        return refuse(result, ERROR_INVALID_RECORD,
                      "The records do not add up: counts, offsets, lengths or trailing bytes.")
    if error_count > 0:
        return refuse_records(errors, error_count, result)
    correct_max_timestamp(data, header, &result.rules, max_timestamp)
    return ERROR_NONE


cdef inline int64_t cost_of(int codec) noexcept nogil:
    if codec == CODEC_GZIP:
        return COST_GZIP
    if codec == CODEC_SNAPPY:
        return COST_SNAPPY
    return COST_ZSTD if codec == CODEC_ZSTD else 1


cdef int check_compressed(uint8_t* data, BatchHeader* header, const ValidationRules* rules, int64_t* work,
                          AppendResult* result) noexcept nogil:
    """`work`: the rest of the caller's time, in COST units; NULL: no limit."""
    cdef RecordFindings findings
    cdef int64_t cost = cost_of(header.attributes & CODEC_MASK)
    cdef int64_t budget = MAX_OPENED_BYTES
    cdef int status
    if work != NULL:
        budget = work[0] // cost
        # A batch that will hardly finish in time is not begun.
        if <int64_t>(header.size - BATCH_HEADER_SIZE) * USUAL_RATIO > budget:
            return CHECK_BY_WORKER
    status = compressed_records_check(data, header, rules, budget, &findings)
    if work != NULL:
        work[0] -= findings.opened * cost
    if status == COMPRESSED_OVER_BUDGET:
        return CHECK_BY_WORKER
    if status == COMPRESSED_CORRUPT:
        return refuse(result, ERROR_CORRUPT_MESSAGE, "The records are not what the batch's codec writes.")
    if status == COMPRESSED_BAD_STRUCTURE:
        return refuse(result, ERROR_INVALID_RECORD,
                      "The compressed records do not add up: counts, offsets, lengths or trailing bytes.")
    if status == COMPRESSED_TOO_LARGE:
        return refuse(result, ERROR_MESSAGE_TOO_LARGE, "The compressed records open to more than 256 MB.")
    if status != COMPRESSED_OK:
        return refuse(result, ERROR_UNKNOWN_SERVER_ERROR, "There is no memory to decompress the records.")
    if findings.error_count > 0:
        return refuse_records(findings.errors, findings.error_count, result)
    correct_max_timestamp(data, header, rules, findings.max_timestamp)
    return ERROR_NONE


cdef int check_by_worker(uint8_t* data, int64_t size, const ValidationRules* rules,
                         AppendResult* result) noexcept nogil:
    cdef BatchHeader header
    if batch_header_parse(data, size, &header) != BATCH_OK:
        return refuse(result, ERROR_CORRUPT_MESSAGE, "The records hold no whole batch.")
    return check_compressed(data, &header, rules, NULL, result)


cdef int check_header_alone(const BatchHeader* header, const LogConfigState* config, const AppendOptions* options,
                            AppendResult* result) noexcept nogil:
    """Checks the header only (kafkapy.validate.compressed=header): it holds the highest and the first timestamp."""
    if not compressed_count_possible(header):
        return refuse(result, ERROR_INVALID_RECORD, "The batch cannot hold as many records as it says.")
    if not config.log_append_time and (out_of_bounds(header.max_timestamp, config, options.now_ms)
                                       or out_of_bounds(header.base_timestamp, config, options.now_ms)):
        return refuse(result, ERROR_INVALID_TIMESTAMP,
                      "One or more records have a timestamp outside the accepted range.")
    return ERROR_NONE


cdef inline bint out_of_bounds(int64_t timestamp, const LogConfigState* config, int64_t now_ms) noexcept nogil:
    if timestamp == NO_TIMESTAMP:
        return False
    if timestamp > now_ms:
        return timestamp - now_ms > config.timestamp_after_max_ms
    # A hostile timestamp may lie 2**64-1 back, so the distance is unsigned.
    return <uint64_t>now_ms - <uint64_t>timestamp > <uint64_t>config.timestamp_before_max_ms


cdef int check_records(uint8_t* data, const LogConfigState* config, const AppendOptions* options, int origin,
                       CheckedBatch* batch, AppendResult* result) noexcept nogil:
    """Returns 0, an error, or a CheckVerdict. May patch the max timestamp, and the append time with LogAppendTime."""
    cdef BatchHeader* header = &batch.header
    cdef int8_t codec = <int8_t>(header.attributes & CODEC_MASK)
    cdef bint unchecked = origin == ORIGIN_CLIENT and not options.validated and not options.checked
    cdef int verdict
    if not options.checked and batch_check_crc(data, header.size) != BATCH_OK:
        return refuse(result, ERROR_CORRUPT_MESSAGE, "The batch fails its CRC check.")
    if header.last_offset_delta < 0:
        return refuse(result, ERROR_INVALID_RECORD, "The last offset delta is negative.")
    if origin == ORIGIN_CLIENT:
        if header.base_offset != 0:
            return refuse(result, ERROR_INVALID_RECORD, "The base offset of a produced batch must be 0.")
        if header.record_count <= 0 or header.last_offset_delta != header.record_count - 1:
            return refuse(result, ERROR_INVALID_RECORD, "The record count does not agree with the offsets.")
        if header.attributes & CONTROL_FLAG:
            return refuse(result, ERROR_INVALID_RECORD, "Clients are not allowed to write control records.")
        if header.producer_id >= 0 and header.base_sequence < 0:
            return refuse(result, ERROR_INVALID_RECORD, "A batch with a producer id needs a sequence number.")
        if codec > CODEC_ZSTD:
            return refuse(result, ERROR_CORRUPT_MESSAGE, "The compression codec is not known.")
        # A validated batch has the codec of the topic, whatever codec the client sent.
        if codec == CODEC_ZSTD and 0 <= options.api_version < ZSTD_SINCE_VERSION and not options.validated:
            return refuse(result, ERROR_UNSUPPORTED_COMPRESSION_TYPE, "Produce before version 7 may not use zstd.")
        if header.attributes & TIMESTAMP_TYPE_FLAG and not config.log_append_time:
            # The batch was read from a topic with LogAppendTime: it gets the timestamp type of this topic, as in Kafka.
            header.attributes = <int16_t>(header.attributes & ~TIMESTAMP_TYPE_FLAG)
            store_int16(data + ATTRIBUTES_AT, header.attributes)
            batch_refresh_crc(data, header.size)
    if not control_marker_parse(data, header.size, header, &batch.marker):
        return refuse(result, ERROR_INVALID_RECORD, "The control record is malformed.")
    if origin == ORIGIN_REPLICATION:
        return ERROR_NONE
    if unchecked:
        if config.compression_codec >= 0 and config.compression_codec != codec:
            return CHECK_BY_PYTHON
        result.rules.needs_keys = config.compacted
        result.rules.log_append_time = config.log_append_time
        result.rules.timestamp_before_max_ms = config.timestamp_before_max_ms
        result.rules.timestamp_after_max_ms = config.timestamp_after_max_ms
        result.rules.now_ms = options.now_ms
        if codec == CODEC_NONE:
            verdict = check_plain(data, header, result)
        elif config.compacted or config.validate_compressed:
            verdict = check_compressed(data, header, &result.rules, options.work, result)
        else:
            verdict = check_header_alone(header, config, options, result)
        if verdict:
            return verdict
    if config.log_append_time:
        batch_stamp_append_time(data, header.size, options.now_ms)
        header.max_timestamp = options.now_ms
        header.attributes = header.attributes | TIMESTAMP_TYPE_FLAG
    return ERROR_NONE


cdef int check_all(uint8_t* data, int64_t size, const LogConfigState* config, const AppendOptions* options, int origin,
                   vector[CheckedBatch]* batches, AppendResult* result) noexcept nogil:
    cdef CheckedBatch batch
    cdef int64_t at = 0, next_offset = -1
    cdef int verdict
    if (origin == ORIGIN_CLIENT and not options.validated and not options.checked
            and is_message_set(data, size, options)):
        return CHECK_BY_PYTHON
    while at < size:
        verdict = check_structure(data + at, size - at, origin, &batch, result)
        if verdict:
            return verdict
        if batches.size() == 1 and origin == ORIGIN_CLIENT:
            return refuse(result, ERROR_INVALID_RECORD, "A produce request holds exactly one batch per partition.")
        if origin != ORIGIN_REPLICATION and batch.header.size > config.max_message_bytes:
            return refuse(result, ERROR_MESSAGE_TOO_LARGE, "The batch is larger than max.message.bytes.")
        batch.at = at
        at += batch.header.size
        # A second batch is refused before the first one is checked in depth.
        if origin == ORIGIN_CLIENT and at != size:
            return refuse(result, ERROR_INVALID_RECORD, "A produce request holds exactly one batch per partition.")
        verdict = check_records(data + batch.at, config, options, origin, &batch, result)
        if verdict:
            return verdict
        if origin == ORIGIN_REPLICATION:
            if batch.header.base_offset < next_offset:
                return refuse(result, ERROR_CORRUPT_MESSAGE, "The offsets of the batches do not ascend.")
            next_offset = batch.header.base_offset + batch.header.last_offset_delta + 1
        batches.push_back(batch)
    if batches.empty():
        return refuse(result, ERROR_INVALID_RECORD, "The records hold no whole batch.")
    if origin != ORIGIN_REPLICATION and size > config.segment_bytes:
        return refuse(result, ERROR_RECORD_LIST_TOO_LARGE, "The records are larger than segment.bytes.")
    return ERROR_NONE
