"""The follower's side of a log (see follow.pxd)."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport free
from libc.string cimport memset
from libcpp.vector cimport vector

from kafkapy._speedups.base.error_codes cimport (
    ERROR_CORRUPT_MESSAGE,
    ERROR_FENCED_LEADER_EPOCH,
    ERROR_KAFKA_STORAGE_ERROR,
    ERROR_NONE,
    ERROR_OFFSET_OUT_OF_RANGE,
)
from kafkapy._speedups.base.posix cimport pthread_mutex_lock, pthread_mutex_unlock, wall_clock_ms
from kafkapy._speedups.base.wire cimport load_int64
from kafkapy._speedups.log.append cimport append_batches
from kafkapy._speedups.log.background cimport make_segment
from kafkapy._speedups.log.cut cimport flush_if_due, raise_log_start_locked
from kafkapy._speedups.log.layout cimport (
    LOG_APPENDED,
    LOG_PARK_SEGMENT,
    AppendOptions,
    AppendResult,
    AppendStatus,
    LogState,
    Waiter,
)
from kafkapy._speedups.log.legacy cimport LEGACY_APPENDED, LEGACY_WAITS, LegacyStatus, append_legacy
from kafkapy._speedups.log.private cimport private_of
from kafkapy._speedups.log.producer_state cimport ORIGIN_REPLICATION
from kafkapy._speedups.log.state cimport check_state_locked, fire, set_high_watermark_locked, take_waiters_locked
from kafkapy._speedups.records.record_batch cimport (
    BATCH_BAD_MAGIC,
    BATCH_INCOMPLETE,
    BATCH_OK,
    BatchHeader,
    BatchStatus,
    batch_header_parse,
)

cdef enum:
    # An append spans fewer offsets: index entries count from the segment's base in 31 bits.
    MOST_OFFSETS = 0x7FFFFFFF
    # No log gets this far; one more batch must not overflow an offset.
    LARGEST_OFFSET = 0x7FFFFFFF00000000


cdef int state_locked(LogState* log, int32_t leader_epoch) noexcept nogil:
    cdef int error = check_state_locked(log, leader_epoch, False)
    return ERROR_FENCED_LEADER_EPOCH if error == ERROR_NONE and log.leader else error


cdef void describe_locked(LogState* log, FollowerPosition* out) noexcept nogil:
    out.log_start_offset = log.log_start_offset
    out.log_end_offset = log.log_end_offset
    out.high_watermark = log.high_watermark
    out.last_epoch = -1
    if not private_of(log).history.epochs.empty():
        out.last_epoch = private_of(log).history.epochs.back().epoch
    out.epochs_version = private_of(log).epochs_version


cdef int follower_position(LogState* log, int32_t leader_epoch, FollowerPosition* out) noexcept nogil:
    cdef int error
    pthread_mutex_lock(&log.mutex)
    error = state_locked(log, leader_epoch)
    describe_locked(log, out)
    pthread_mutex_unlock(&log.mutex)
    return error


cdef int follower_advance(LogState* log, int32_t leader_epoch, int64_t high_watermark, int64_t log_start_offset,
                          FollowerPosition* out) noexcept nogil:
    cdef vector[Waiter] woken
    cdef int error
    pthread_mutex_lock(&log.mutex)
    error = state_locked(log, leader_epoch)
    if error == ERROR_NONE:
        # A leader that was elected a moment ago may have a lower one, which a follower takes over as well.
        set_high_watermark_locked(log, high_watermark)
        if log.log_start_offset < log_start_offset <= log.high_watermark:
            raise_log_start_locked(log, log_start_offset)
        if not log.waiters.empty():
            take_waiters_locked(log, False, &woken)
    describe_locked(log, out)
    pthread_mutex_unlock(&log.mutex)
    fire(&woken)
    return error


cdef bint is_legacy(const BatchHeader* header) noexcept nogil:
    return header.magic == 0 or header.magic == 1


cdef int64_t group_size(const uint8_t* data, int64_t size, int64_t most, int32_t leader_epoch, bint* legacy,
                        FollowResult* result) noexcept nogil:
    """Bytes of the whole batches that one append takes: of v2, about `most` bytes, or one message of v0 or v1. 0: none
    is whole, or the first is of a newer epoch. -1: the bytes are no batches (result.error)."""
    cdef BatchHeader header
    cdef BatchStatus status
    cdef int64_t at = 0, first = -1, last
    legacy[0] = False
    while at < size:
        status = batch_header_parse(data + at, size - at, &header)
        if status == BATCH_INCOMPLETE or (status == BATCH_OK and header.size > size - at):
            break
        if status == BATCH_BAD_MAGIC and is_legacy(&header):
            if header.size > size - at or at > 0:
                break
            legacy[0] = True
            at = header.size
            break
        if status != BATCH_OK:
            if at > 0:
                break               # the next call refuses it
            result.error = ERROR_CORRUPT_MESSAGE
            result.message = "The leader's bytes are no record batch."
            return -1
        if header.leader_epoch > leader_epoch:
            break
        if not 0 <= header.base_offset <= LARGEST_OFFSET or header.last_offset_delta < 0:
            if at > 0:
                break
            result.error = ERROR_CORRUPT_MESSAGE
            result.message = "The offsets of the leader's batch are impossible."
            return -1
        last = header.base_offset + header.last_offset_delta
        if first < 0:
            first = header.base_offset
        elif last - first >= MOST_OFFSETS or at + header.size > most:
            break
        at += header.size
    return at


cdef FollowStatus put_group(LogState* log, uint8_t* data, int64_t size, int32_t leader_epoch,
                            FollowResult* result) noexcept nogil:
    cdef AppendOptions options
    cdef AppendResult appended
    cdef AppendStatus status
    cdef BatchHeader header
    memset(&options, 0, sizeof(options))
    options.required_acks = 1
    options.api_version = -1
    options.validated = True
    options.current_leader_epoch = leader_epoch
    options.now_ms = wall_clock_ms()
    status = append_batches(log, data, size, &options, NULL, ORIGIN_REPLICATION, &appended)
    free(appended.record_errors)
    if status == LOG_APPENDED:
        result.log_end_offset = appended.last_offset + 1
        return FOLLOW_APPENDED
    if status == LOG_PARK_SEGMENT:
        return FOLLOW_WAITS
    result.error = appended.error
    result.message = appended.message
    if appended.error == ERROR_OFFSET_OUT_OF_RANGE:
        batch_header_parse(data, size, &header)
        result.first_offset = header.base_offset
        result.last_offset = header.base_offset + header.last_offset_delta
    return FOLLOW_REFUSED


cdef FollowStatus put(LogState* log, uint8_t* data, int64_t size, int32_t leader_epoch, bint legacy,
                      FollowResult* result) noexcept nogil:
    cdef LegacyStatus status
    if not legacy:
        return put_group(log, data, size, leader_epoch, result)
    status = append_legacy(log, data, size, leader_epoch, &result.error)
    if status == LEGACY_APPENDED:
        result.log_end_offset = load_int64(data) + 1
        return FOLLOW_APPENDED
    if result.error == ERROR_OFFSET_OUT_OF_RANGE:
        result.first_offset = result.last_offset = load_int64(data)
    return FOLLOW_WAITS if status == LEGACY_WAITS else FOLLOW_REFUSED


cdef FollowStatus follower_append(LogState* log, uint8_t* data, int64_t size, int32_t leader_epoch,
                                  FollowResult* result) noexcept nogil:
    cdef FollowStatus status = FOLLOW_APPENDED
    cdef int64_t at = 0, group, most
    cdef bint legacy
    cdef int error
    memset(result, 0, sizeof(FollowResult))
    pthread_mutex_lock(&log.mutex)
    error = state_locked(log, leader_epoch)
    result.log_end_offset = log.log_end_offset
    most = log.config.segment_bytes
    pthread_mutex_unlock(&log.mutex)
    if error:
        result.error = <int16_t>error
        return FOLLOW_REFUSED
    while at < size:
        group = group_size(data + at, size - at, most, leader_epoch, &legacy, result)
        if group < 0:
            return FOLLOW_REFUSED
        if group == 0:
            break
        status = put(log, data + at, group, leader_epoch, legacy, result)
        if status == FOLLOW_WAITS and private_of(log).native_segments and make_segment(log) == 0:
            status = put(log, data + at, group, leader_epoch, legacy, result)
        if status != FOLLOW_APPENDED:
            break
        at += group
        result.appended += group
    if status == FOLLOW_REFUSED and result.error == ERROR_KAFKA_STORAGE_ERROR:
        pthread_mutex_lock(&log.mutex)
        result.shortage = log.offline_errno == 0
        pthread_mutex_unlock(&log.mutex)
    # With a control plane, a worker syncs what flush.messages makes due.
    if result.appended and log.events == NULL and flush_if_due(log):
        result.error = ERROR_KAFKA_STORAGE_ERROR
        return FOLLOW_REFUSED
    return status
