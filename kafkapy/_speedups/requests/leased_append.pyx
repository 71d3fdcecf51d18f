"""Records that network threads append for coordinators (see leased_append.pxd)."""

from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memset

from kafkapy._speedups.base.posix cimport pthread_mutex_lock, pthread_mutex_unlock
from kafkapy._speedups.base.wire cimport ByteBuffer, extend
from kafkapy._speedups.log.append cimport append_batches
from kafkapy._speedups.log.layout cimport (
    LOG_APPENDED,
    LOG_PARK_SEGMENT,
    WAIT_SEGMENT,
    AppendOptions,
    AppendResult,
    AppendStatus,
    LogState,
    Waiter,
)
from kafkapy._speedups.log.producer_state cimport ORIGIN_COORDINATOR
from kafkapy._speedups.log.state cimport log_remove_waiters
from kafkapy._speedups.records.record_batch cimport (
    BATCH_HEADER_SIZE,
    BatchHeader,
    batch_header_write,
    batch_refresh_crc,
)


cdef bint leased_batch_begin(ByteBuffer* out) noexcept nogil:
    return extend(out, BATCH_HEADER_SIZE) != NULL


cdef void leased_batch_end(ByteBuffer* out, int32_t records, int64_t now_ms) noexcept nogil:
    cdef BatchHeader header
    if out.error:
        return
    memset(&header, 0, sizeof(header))
    header.size = <int32_t>out.size
    header.base_timestamp = header.max_timestamp = now_ms
    header.last_offset_delta = records - 1
    header.producer_id = -1
    header.producer_epoch = -1
    header.base_sequence = -1
    header.record_count = records
    batch_header_write(out.data, &header)
    batch_refresh_crc(out.data, header.size)


cdef void not_again(void* owner, uint64_t token) noexcept nogil:
    """An append that parked is the coordinator's: nobody repeats it here."""


cdef bint leased_append(LogState* log, int32_t leader_epoch, ByteBuffer* batch, int64_t now_ms,
                        int64_t* end_offset) noexcept nogil:
    cdef AppendOptions options
    cdef AppendResult result
    cdef AppendStatus status
    cdef Waiter waiter
    cdef bint committed
    end_offset[0] = 0
    memset(&options, 0, sizeof(options))
    options.required_acks = -1
    options.api_version = -1
    options.validated = True
    options.current_leader_epoch = leader_epoch
    options.now_ms = now_ms
    waiter.kind = WAIT_SEGMENT
    waiter.threshold = 0
    waiter.wake = not_again
    waiter.owner = batch
    waiter.token = 0
    status = append_batches(log, batch.data, <int64_t>batch.size, &options, &waiter, ORIGIN_COORDINATOR, &result)
    free(result.record_errors)
    if status == LOG_PARK_SEGMENT:
        log_remove_waiters(log, batch, 0, False)
    if status != LOG_APPENDED:
        return False
    end_offset[0] = result.last_offset + 1
    pthread_mutex_lock(&log.mutex)
    # Of this leadership: another leader's records may have passed that offset.
    committed = log.high_watermark >= end_offset[0] and log.leader and log.leader_epoch == leader_epoch
    pthread_mutex_unlock(&log.mutex)
    return committed
