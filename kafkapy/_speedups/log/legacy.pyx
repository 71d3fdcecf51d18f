"""Appending messages of format v0 and v1 (see legacy.pxd)."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libcpp.vector cimport vector

from kafkapy._speedups.base.blocking cimport NetworkThread, blocking_begin, blocking_end
from kafkapy._speedups.base.error_codes cimport (
    ERROR_CORRUPT_MESSAGE,
    ERROR_KAFKA_STORAGE_ERROR,
    ERROR_NONE,
    ERROR_OFFSET_OUT_OF_RANGE,
)
from kafkapy._speedups.base.posix cimport (
    atomic_store,
    pthread_mutex_lock,
    pthread_mutex_unlock,
    wall_clock_ms,
)
from kafkapy._speedups.base.wire cimport load_int64
from kafkapy._speedups.log.layout cimport LogState, Waiter
from kafkapy._speedups.log.private cimport private_of
from kafkapy._speedups.log.segment cimport (
    NEWEST_NOT_KNOWN,
    SegmentState,
    segment_after_append,
    segment_grow,
    segment_open,
    segment_ref,
    segment_should_roll,
    segment_unref,
    segment_write,
)
from kafkapy._speedups.log.state cimport (
    active_segment,
    check_state_locked,
    fire,
    leave_turn_locked,
    set_offline_locked,
    switch_segment_locked,
    take_waiters_locked,
    want_segment_locked,
)
from kafkapy._speedups.log.turns cimport (
    TURN_FREE,
    await_turn_locked,
    begin_turn_locked,
    end_turn_locked,
    patient_waiter,
)
from kafkapy._speedups.records.file_records cimport legacy_check_crc

cdef enum:
    MAGIC_AT = 16
    TIMESTAMP_AT = 18
    TIMESTAMP_END = TIMESTAMP_AT + 8


cdef int ready_locked(LogState* log, int64_t size, int64_t offset, int64_t timestamp, int32_t leader_epoch,
                      Waiter* waiter, bint* waits) noexcept nogil:
    """Waits for the turn and rolls when that is due: 0 or a Kafka error. `waits`: not now."""
    cdef SegmentState* active
    cdef int error
    waits[0] = False
    while True:
        error = check_state_locked(log, leader_epoch, False)
        if error:
            return error
        if private_of(log).rolling:
            waits[0] = True
            return ERROR_NONE
        if await_turn_locked(log, waiter) != TURN_FREE:
            continue
        if offset < log.log_end_offset:
            return ERROR_OFFSET_OUT_OF_RANGE
        active = active_segment(log)
        if active != NULL and not segment_should_roll(active, size, offset, timestamp, wall_clock_ms(),
                                                      log.config.segment_bytes, log.config.segment_ms):
            return ERROR_NONE
        if log.prepared == NULL:
            want_segment_locked(log)
            waits[0] = True
            return ERROR_NONE
        # The offset of a compressed message says nothing of its first record.
        if switch_segment_locked(log, log.log_end_offset, wall_clock_ms()):
            return ERROR_KAFKA_STORAGE_ERROR


cdef LegacyStatus append_legacy(LogState* log, const uint8_t* data, int64_t size, int32_t leader_epoch,
                                int16_t* error) noexcept nogil:
    cdef vector[Waiter] woken
    cdef SegmentState* active
    cdef NetworkThread* thread
    cdef int64_t offset, timestamp = -1
    cdef int failure
    cdef bint waits = False
    cdef Waiter waiter
    error[0] = ERROR_NONE
    if not legacy_check_crc(data, size) or load_int64(data) < 0:
        error[0] = ERROR_CORRUPT_MESSAGE
        return LEGACY_REFUSED
    offset = load_int64(data)
    if size >= TIMESTAMP_END and data[MAGIC_AT] == 1:
        timestamp = load_int64(data + TIMESTAMP_AT)
    patient_waiter(&waiter)
    pthread_mutex_lock(&log.mutex)
    error[0] = <int16_t>ready_locked(log, size, offset, timestamp, leader_epoch, &waiter, &waits)
    if error[0] or waits:
        leave_turn_locked(log, &waiter, &woken)
        take_waiters_locked(log, log.offline_errno != 0, &woken)
        pthread_mutex_unlock(&log.mutex)
        fire(&woken)
        return LEGACY_REFUSED if error[0] else LEGACY_WAITS
    active = active_segment(log)
    segment_ref(active)
    begin_turn_locked(log)
    pthread_mutex_unlock(&log.mutex)
    thread = blocking_begin(NULL)
    failure = segment_open(active)
    if failure < 0:
        failure = -failure
    else:
        failure = segment_write(active, data, size, offset, timestamp, offset, log.config.index_interval_bytes)
    blocking_end(thread)
    pthread_mutex_lock(&log.mutex)
    end_turn_locked(log)
    if failure:
        set_offline_locked(log, failure, "append failed")
        error[0] = ERROR_KAFKA_STORAGE_ERROR
    else:
        segment_grow(active, size, timestamp, offset)
        atomic_store(&active.newest_record, NEWEST_NOT_KNOWN)
        atomic_store(&log.log_end_offset, offset + 1)
        private_of(log).unflushed_messages += 1
        if not private_of(log).history.epochs.empty():
            private_of(log).history.epochs.clear()
            private_of(log).epochs_version += 1
    take_waiters_locked(log, log.offline_errno != 0, &woken)
    pthread_mutex_unlock(&log.mutex)
    fire(&woken)
    if failure == 0:
        segment_after_append(active)
    segment_unref(active)
    return LEGACY_REFUSED if failure else LEGACY_APPENDED
