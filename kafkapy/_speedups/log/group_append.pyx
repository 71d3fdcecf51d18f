"""One write for several clients' appends (see group_append.pxd)."""

from libc.stdint cimport INT64_MAX, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset
from libcpp.vector cimport vector

from kafkapy._speedups.base.blocking cimport NetworkThread, blocking_begin, blocking_end
from kafkapy._speedups.base.error_codes cimport ERROR_KAFKA_STORAGE_ERROR, ERROR_NONE
from kafkapy._speedups.base.posix cimport atomic_count, pthread_mutex_lock, pthread_mutex_unlock
from kafkapy._speedups.log.append cimport append_refused, write_failed_locked, write_in_turn, written_locked
from kafkapy._speedups.log.append_checks cimport INLINE_WORK, CheckedBatch, check_all, refuse
from kafkapy._speedups.log.layout cimport LogConfigState, Waiter
from kafkapy._speedups.log.private cimport LogPrivate, private_of
from kafkapy._speedups.log.producer_state cimport ORIGIN_CLIENT, SEQUENCE_OK, SequenceCheck, producer_check
from kafkapy._speedups.log.segment cimport SegmentState, segment_after_append, segment_should_roll, segment_unref
from kafkapy._speedups.log.state cimport active_segment, check_state_locked, fire
from kafkapy._speedups.log.turns cimport was_slow_locked
from kafkapy._speedups.records.record_batch cimport TRANSACTIONAL_FLAG


cdef bint may_write_locked(LogState* log) noexcept nogil:
    """Whether an append could write now, without a wait, a roll or more work afterwards."""
    cdef LogPrivate* own = private_of(log)
    cdef SegmentState* active
    if check_state_locked(log, -1, True) != ERROR_NONE or log.segments.empty():
        return False
    if own.writing or own.rolling or own.settlers or own.turn_queue or own.next_turn.owner != NULL:
        return False
    if was_slow_locked(log) or log.config.log_append_time or log.config.flush_messages != INT64_MAX:
        return False
    active = log.segments.back()
    return active.fd >= 0 and (active.first_batch_timestamp >= 0 or active.size == 0)


cdef int64_t check_members(const LogConfigState* config, GroupMember* members, size_t count) noexcept nogil:
    """Checks batches without the mutex, and returns the bytes of those that may be written. The group has as much time
    for compressed records as one request."""
    cdef vector[CheckedBatch] batches
    cdef GroupMember* member
    cdef int64_t work = INLINE_WORK, size = 0
    cdef size_t i
    for i in range(count):
        member = &members[i]
        member.options.work = &work
        batches.clear()
        if check_all(member.data, member.size, config, &member.options, ORIGIN_CLIENT, &batches,
                     &member.result) == ERROR_NONE:
            member.checked = True
            member.batch = batches.front()
            size += member.size
        else:
            # Its request finds the error again, with all that belongs to it.
            free(member.result.record_errors)
            member.result.record_errors = NULL
        member.options.work = NULL
    return size


cdef bint is_in_order_locked(LogState* log, const GroupMember* member, const CheckedBatch* batch,
                             const vector[CheckedBatch]* before) noexcept nogil:
    """Whether the batch is the next one of its producer, of which the group has no other."""
    cdef SequenceCheck check
    cdef size_t i
    if batch.header.attributes & TRANSACTIONAL_FLAG:
        return False
    if batch.header.producer_id >= 0:
        for i in range(before.size()):
            if before[0][i].header.producer_id == batch.header.producer_id:
                return False
    return producer_check(private_of(log).history.producers, &batch.header, &batch.marker, ORIGIN_CLIENT,
                          member.options.adds_partitions, &check) == SEQUENCE_OK


cdef int64_t gather_locked(LogState* log, GroupMember* members, size_t count, vector[CheckedBatch]* batches,
                           uint8_t* data) noexcept nogil:
    """Decides who is in the write, and copies these batches behind each other. Returns their bytes."""
    cdef SegmentState* active = active_segment(log)
    cdef GroupMember* member
    cdef CheckedBatch* batch
    cdef int64_t size = 0, max_timestamp = -1, last_offset = log.log_end_offset - 1
    cdef size_t i
    for i in range(count):
        member = &members[i]
        batch = &member.batch
        if not member.checked or not is_in_order_locked(log, member, batch, batches):
            continue
        if member.options.required_acks == -1 and log.in_sync_replicas < log.config.min_in_sync_replicas:
            continue
        if active.size == 0 and size > 0:
            break           # an empty segment takes its first batch whatever its size and time
        if segment_should_roll(active, size + member.size, last_offset + batch.header.last_offset_delta + 1,
                               max(max_timestamp, batch.header.max_timestamp), member.options.now_ms,
                               log.config.segment_bytes, log.config.segment_ms):
            break
        memcpy(data + size, member.data, <size_t>member.size)
        batch.at = size
        batches.push_back(batch[0])
        member.decided = True
        size += member.size
        last_offset += <int64_t>batch.header.last_offset_delta + 1
        max_timestamp = max(max_timestamp, batch.header.max_timestamp)
    return size


cdef void write_group(LogState* log, GroupMember* members, size_t count, uint8_t* data) noexcept nogil:
    cdef vector[CheckedBatch] batches
    cdef vector[Waiter] woken
    cdef SegmentState* active
    cdef NetworkThread* thread
    cdef bint aborted = False, index_waits = False
    cdef int64_t messages = 0, size
    cdef const char* reason = NULL
    cdef int failure
    pthread_mutex_lock(&log.mutex)
    if not may_write_locked(log):
        pthread_mutex_unlock(&log.mutex)
        return
    size = gather_locked(log, members, count, &batches, data)
    if size == 0:
        pthread_mutex_unlock(&log.mutex)
        return
    active = active_segment(log)
    failure = write_in_turn(log, active, data, size, &batches, ORIGIN_CLIENT, &aborted, &messages)
    if failure:
        reason = write_failed_locked(log, failure, &woken)
    else:
        index_waits = written_locked(log, active, ORIGIN_CLIENT, &woken)
    answer_locked(log, members, count, &batches, reason)
    pthread_mutex_unlock(&log.mutex)
    if index_waits:
        thread = blocking_begin(NULL)
        segment_after_append(active)
        blocking_end(thread)
    segment_unref(active)
    if not failure:
        atomic_count(&log.counters.bytes_in, size)
        atomic_count(&log.counters.messages_in, messages)
        atomic_count(&log.counters.produce_requests, <int64_t>batches.size())
    fire(&woken)


cdef void answer_locked(LogState* log, GroupMember* members, size_t count, const vector[CheckedBatch]* batches,
                        const char* reason) noexcept nogil:
    """Fills the results: offsets, or the reason why the write failed."""
    cdef AppendResult* result
    cdef size_t i, next = 0
    for i in range(count):
        if not members[i].decided:
            continue
        result = &members[i].result
        result.leader_id = log.leader_id
        result.leader_epoch = log.leader_epoch
        result.log_start_offset = log.log_start_offset
        if reason != NULL:
            refuse(result, ERROR_KAFKA_STORAGE_ERROR, reason)
            append_refused(log, members[i].size)
            continue
        result.base_offset = batches[0][next].header.base_offset
        result.last_offset = result.base_offset + batches[0][next].header.last_offset_delta
        result.required_high_watermark = result.last_offset + 1
        next += 1


cdef void log_append_group(LogState* log, GroupMember* members, size_t count) noexcept nogil:
    cdef LogConfigState config
    cdef uint8_t* data
    cdef bint may
    cdef size_t i
    for i in range(count):
        memset(&members[i].result, 0, sizeof(AppendResult))
        members[i].result.base_offset = -1
        members[i].result.last_offset = -1
        members[i].result.log_append_time_ms = -1
        members[i].decided = False
        members[i].checked = False
    pthread_mutex_lock(&log.mutex)
    may = may_write_locked(log)
    config = log.config
    pthread_mutex_unlock(&log.mutex)
    if not may:
        return
    data = <uint8_t*>malloc(<size_t>check_members(&config, members, count) + 1)
    if data == NULL:
        return
    write_group(log, members, count, data)
    free(data)
