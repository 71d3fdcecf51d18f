"""Appending to a partition log (see append.pxd).

1. Without the mutex, against a copy of the configuration: structure, sizes, CRC, records (append_checks.pyx). 2. Under
the mutex: leadership, sequence numbers, a roll when one is due, offsets. 3. In turn, without the mutex: one pwrite. 4.
Under the mutex: the log end and the producer state.

Until the turn is over no other thread appends or changes segments, epochs or leadership (lock_settled), so the checks
before the write hold after it. A log dir that fails meanwhile may take the log offline: the records are in the log all
the same. Source of the order and the error codes: Kafka's UnifiedLog and LogValidator.
"""

from libc.stdint cimport INT64_MAX, int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memset
from libcpp.vector cimport vector



from kafkapy._speedups.base.blocking cimport NetworkThread, blocking_begin, blocking_end
from kafkapy._speedups.base.error_codes cimport (
    ERROR_INVALID_TXN_STATE,
    ERROR_KAFKA_STORAGE_ERROR,
    ERROR_NONE,
    ERROR_NOT_ENOUGH_REPLICAS,
    ERROR_OFFSET_OUT_OF_RANGE,
)
from kafkapy._speedups.base.posix cimport (
    atomic_add,
    atomic_count,
    atomic_store,
    is_shortage,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)
from kafkapy._speedups.base.wire cimport store_int16
from kafkapy._speedups.log.append_checks cimport CHECK_BY_WORKER, CheckedBatch, check_all, refuse
from kafkapy._speedups.log.cut cimport flush_if_due
from kafkapy._speedups.log.layout cimport (
    LOG_APPENDED,
    LOG_PARK_SEGMENT,
    LOG_PARK_VALIDATE,
    LOG_PARK_VERIFY,
    LOG_PARK_WORK,
    LOG_REFUSED,
    WAIT_SEGMENT,
    WAIT_TURN,
    AppendOptions,
    AppendResult,
    AppendStatus,
    LogConfigState,
    LogState,
    Waiter,
)
from kafkapy._speedups.log.private cimport AbortedWrite, private_of
from kafkapy._speedups.log.producer_state cimport (
    ORIGIN_CLIENT,
    ORIGIN_COORDINATOR,
    ORIGIN_REPLICATION,
    SEQUENCE_DUPLICATE,
    SEQUENCE_OK,
    CompletedTransaction,
    SequenceCheck,
    SequenceVerdict,
    producer_apply,
    producer_check,
    producer_in_transaction,
    producer_is_verified,
    producer_place_batch,
    producer_start_verification,
)
from kafkapy._speedups.log.recovery cimport epochs_assign
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
    advance_high_watermark_locked,
    check_state_locked,
    fire,
    leave_turn_locked,
    log_remove_waiters,
    remember_batch_locked,
    set_offline_locked,
    switch_segment_locked,
    take_waiters_locked,
    update_last_stable_offset_locked,
    want_flush_locked,
    want_segment_locked,
)
from kafkapy._speedups.log.transaction_index cimport write_aborted_transactions
from kafkapy._speedups.log.turns cimport (
    TURN_FREE,
    TURN_SLOW,
    Turn,
    await_turn_locked,
    begin_turn_locked,
    end_turn_locked,
    is_called_locked,
    is_fair_locked,
    park_locked,
    patient_waiter,
    was_slow_locked,
)
from kafkapy._speedups.records.file_records cimport SCAN_FOUND, BatchScan, scan_next, scan_start
from kafkapy._speedups.records.record_batch cimport (
    ATTRIBUTES_AT,
    CONTROL_FLAG,
    TIMESTAMP_TYPE_FLAG,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    batch_refresh_crc,
    batch_stamp,
)


cdef AppendStatus park_for_segment_locked(LogState* log, Waiter* waiter) noexcept nogil:
    want_segment_locked(log)
    if waiter.wake != NULL:
        park_locked(log, WAIT_SEGMENT, waiter)
    return LOG_PARK_SEGMENT


cdef int check_sequences_locked(LogState* log, vector[CheckedBatch]* batches, int origin, const AppendOptions* options,
                                AppendResult* result) noexcept nogil:
    """Returns 0 to go on, 1 for a duplicate (result is filled), or a negated error."""
    cdef SequenceCheck check
    cdef SequenceVerdict verdict
    cdef size_t i
    for i in range(batches.size()):
        verdict = producer_check(private_of(log).history.producers, &batches[0][i].header, &batches[0][i].marker,
                                 origin, options.adds_partitions, &check)
        if verdict == SEQUENCE_DUPLICATE:
            result.duplicate = True
            result.base_offset = check.base_offset
            result.last_offset = check.last_offset
            result.required_high_watermark = check.last_offset + 1
            result.log_append_time_ms = check.timestamp if log.config.log_append_time else -1
            return 1
        if verdict != SEQUENCE_OK:
            return -refuse(result, check.error, check.message)
    return 0


cdef bint must_verify_locked(LogState* log, const BatchHeader* header, const AppendOptions* options,
                             AppendResult* result) noexcept nogil:
    """Whether the coordinator must confirm that this partition is in the batch's transaction. Else the batch may be
    appended, or result.error is set.

    After the first batch of a transaction the other batches need no confirmation: the coordinator knows the partition
    and will write a marker into it. After the marker, the next batch is a first one again. Between the coordinator's
    answer and the first batch, the guard tells whether a marker came."""
    if (not header.attributes & TRANSACTIONAL_FLAG or header.producer_id < 0
            or producer_in_transaction(private_of(log).history.producers, header)):
        return False
    if options.guard == 0:
        result.guard = producer_start_verification(private_of(log).history.producers, header, options.adds_partitions,
                                                   options.now_ms)
        return True
    if not producer_is_verified(private_of(log).history.producers, header, options.guard):
        refuse(result, ERROR_INVALID_TXN_STATE, "The transaction has ended before this batch could be appended.")
    return False


cdef int write_in_turn(LogState* log, SegmentState* active, uint8_t* data, int64_t size, vector[CheckedBatch]* batches,
                       int origin, bint* aborted, int64_t* messages) noexcept nogil:
    cdef int64_t offset = log.log_end_offset, position = active.size
    cdef int64_t max_timestamp = -1, offset_of_max = -1, newest_record = -1
    cdef CheckedBatch* batch
    cdef CompletedTransaction completed
    cdef AbortedWrite unwritten
    cdef NetworkThread* thread
    cdef int64_t* slow = NULL
    cdef int32_t index_interval = log.config.index_interval_bytes
    cdef size_t i
    cdef int failure
    for i in range(batches.size()):
        batch = &batches[0][i]
        if origin != ORIGIN_REPLICATION:
            batch.header.base_offset = offset
            batch.header.leader_epoch = log.leader_epoch
            batch_stamp(data + batch.at, offset, log.leader_epoch)
        offset = batch.header.base_offset + batch.header.last_offset_delta + 1
        if batch.header.max_timestamp > max_timestamp:
            max_timestamp = batch.header.max_timestamp
            offset_of_max = offset - 1
        if not batch.header.attributes & CONTROL_FLAG and batch.header.max_timestamp > newest_record:
            newest_record = batch.header.max_timestamp
        messages[0] += batch.header.record_count if batch.header.record_count > 0 else 0
    if was_slow_locked(log):
        # The disk is slow: a network thread gives its Processor away at once, and later requests come into the queue.
        slow = &private_of(log).slow_appends
        atomic_add(slow, 1)
    begin_turn_locked(log)
    segment_ref(active)
    pthread_mutex_unlock(&log.mutex)
    thread = blocking_begin(slow)
    failure = segment_write(active, data, size, offset - 1, max_timestamp, offset_of_max, index_interval)
    blocking_end(thread)
    if slow != NULL:
        atomic_add(slow, -1)
    pthread_mutex_lock(&log.mutex)
    end_turn_locked(log)
    if failure:
        return failure
    segment_grow(active, size, max_timestamp, offset_of_max)
    if newest_record > active.newest_record != NEWEST_NOT_KNOWN:
        atomic_store(&active.newest_record, newest_record)
    for i in range(batches.size()):
        batch = &batches[0][i]
        if epochs_assign(&private_of(log).history.epochs, batch.header.leader_epoch, batch.header.base_offset):
            private_of(log).epochs_version += 1
        producer_apply(private_of(log).history.producers, &batch.header, &batch.marker, batch.header.base_offset,
                       batch.header.base_offset + batch.header.last_offset_delta, &completed)
        if batch.header.attributes & TRANSACTIONAL_FLAG:
            producer_place_batch(private_of(log).history.producers, batch.header.base_offset, active.base_offset,
                                 position + batch.at)
        if completed.completed and completed.aborted:
            private_of(log).history.aborted.push_back(completed)
            if not private_of(log).directory.empty():
                unwritten.segment_base = active.base_offset
                unwritten.entry = completed
                private_of(log).unwritten.push_back(unwritten)
                aborted[0] = True
        remember_batch_locked(log, batch.header.base_offset, batch.header.base_offset + batch.header.last_offset_delta,
                              position + batch.at, batch.header.size, active.base_offset)
    atomic_store(&log.log_end_offset, offset)
    private_of(log).unflushed_messages += messages[0]
    if private_of(log).unflushed_messages >= log.config.flush_messages:
        private_of(log).flush_due = offset
        want_flush_locked(log)
    if active.size > log.config.segment_bytes // 2:
        want_segment_locked(log)
    return 0


cdef const char* write_failed_locked(LogState* log, int failure, vector[Waiter]* woken) noexcept nogil:
    cdef const char* message = "Descriptors or memory are short: try again."
    if not is_shortage(failure):
        set_offline_locked(log, failure, "append failed")
        message = "The log directory met a disk error."
    take_waiters_locked(log, log.offline_errno != 0, woken)
    return message


cdef bint written_locked(LogState* log, SegmentState* active, int origin, vector[Waiter]* woken) noexcept nogil:
    cdef bint index_waits = active.index_waits
    active.index_waits = False
    if origin != ORIGIN_REPLICATION:
        advance_high_watermark_locked(log)
    update_last_stable_offset_locked(log)
    if not log.waiters.empty():
        take_waiters_locked(log, False, woken)
    return index_waits


cdef int64_t append_room_at_once(LogState* log) noexcept nogil:
    cdef int64_t room = 0
    pthread_mutex_lock(&log.mutex)
    if (private_of(log).maximal_in_sync == 1 and log.high_watermark == log.log_end_offset
            and log.config.flush_messages == INT64_MAX and not was_slow_locked(log)):
        room = min(log.config.max_message_bytes, log.config.segment_bytes)
    pthread_mutex_unlock(&log.mutex)
    return room


cdef AppendStatus refused(LogState* log, int64_t size, int origin) noexcept nogil:
    # The counters are those of clients' and coordinators' appends: replication has its own.
    return append_refused(log, size) if origin != ORIGIN_REPLICATION else LOG_REFUSED


cdef AppendStatus append_refused(LogState* log, int64_t size) noexcept nogil:
    atomic_count(&log.counters.produce_requests, 1)
    atomic_count(&log.counters.failed_produce_requests, 1)
    atomic_count(&log.counters.bytes_rejected, size)
    return LOG_REFUSED


cdef void take_stamps_back(uint8_t* data, const vector[CheckedBatch]* batches) noexcept nogil:
    """Undoes the stamps: the request appends the batches again after its wait, and the checks refuse a client's batch
    that is marked with LogAppendTime."""
    cdef size_t i
    cdef uint8_t* batch
    for i in range(batches.size()):
        batch = data + batches[0][i].at
        store_int16(batch + ATTRIBUTES_AT, <int16_t>(batches[0][i].header.attributes & ~TIMESTAMP_TYPE_FLAG))
        batch_refresh_crc(batch, batches[0][i].header.size)


cdef void open_active(LogState* log, SegmentState* active, int64_t size) noexcept nogil:
    """Opens the active segment, which has `size` bytes, and reads the write time of its first batch, which may be
    slow."""
    cdef BatchScan scan
    cdef int64_t timestamp = -1
    cdef NetworkThread* thread = blocking_begin(NULL)
    cdef int fd = segment_open(active)
    if fd >= 0 and size > 0:
        scan_start(&scan, fd, 0, size)
        if scan_next(&scan) == SCAN_FOUND:
            timestamp = scan.header.max_timestamp
    blocking_end(thread)
    pthread_mutex_lock(&log.mutex)
    # A truncation may have emptied the segment meanwhile.
    if (not private_of(log).writing and not private_of(log).rolling and active.first_batch_timestamp < 0
            and active.size >= size):
        active.first_batch_timestamp = timestamp
    pthread_mutex_unlock(&log.mutex)
    segment_unref(active)


cdef AppendStatus append_batches(LogState* log, uint8_t* data, int64_t size, const AppendOptions* options,
                                 Waiter* waiter, int origin, AppendResult* result) noexcept nogil:
    cdef LogConfigState config
    cdef vector[CheckedBatch] batches
    cdef bint aborted = False
    cdef vector[Waiter] woken
    cdef SegmentState* active = NULL
    cdef NetworkThread* thread
    cdef Turn turn
    cdef bint index_waits = False
    cdef int64_t messages = 0, first_offset, last_offset, max_timestamp = -1, active_size = 0
    cdef size_t i
    cdef int verdict
    cdef AppendStatus status = LOG_APPENDED
    cdef Waiter patient
    cdef bint called
    if waiter == NULL:
        patient_waiter(&patient)
        waiter = &patient
    memset(result, 0, sizeof(AppendResult))
    result.base_offset = -1
    result.last_offset = -1
    result.log_append_time_ms = -1
    result.leader_id = -1
    result.leader_epoch = -1
    pthread_mutex_lock(&log.mutex)
    config = log.config
    result.leader_id = log.leader_id
    result.leader_epoch = log.leader_epoch
    result.log_start_offset = log.log_start_offset
    verdict = check_state_locked(log, options.current_leader_epoch, origin != ORIGIN_REPLICATION)
    # The append whose turn it is changes the active segment without the mutex; a later append does the work skipped
    # here.
    if (verdict == ERROR_NONE and not log.segments.empty() and not private_of(log).writing
            and not private_of(log).rolling):
        active = log.segments.back()
        if active.fd < 0 or (active.first_batch_timestamp < 0 and active.size > 0):
            active_size = active.size
            segment_ref(active)
        else:
            active = NULL
    called = is_called_locked(log, waiter.owner, waiter.token)
    pthread_mutex_unlock(&log.mutex)
    if verdict:
        if called:
            log_remove_waiters(log, waiter.owner, waiter.token, False)
        refuse(result, verdict, NULL)
        return refused(log, size, origin)
    # The first request that needs the file of a loaded log opens it here, where no thread waits for the mutex.
    if active != NULL:
        open_active(log, active, active_size)
    verdict = check_all(data, size, &config, options, origin, &batches, result)
    if verdict and called:
        log_remove_waiters(log, waiter.owner, waiter.token, False)
    if verdict < 0:
        return LOG_PARK_WORK if verdict == CHECK_BY_WORKER else LOG_PARK_VALIDATE
    if verdict:
        return refused(log, size, origin)
    result.checked = True
    for i in range(batches.size()):
        if batches[i].header.max_timestamp > max_timestamp:
            max_timestamp = batches[i].header.max_timestamp

    pthread_mutex_lock(&log.mutex)
    while True:
        # The mutex may have been released since the last check, so leadership and sequences are checked again.
        result.log_start_offset = log.log_start_offset
        verdict = check_state_locked(log, options.current_leader_epoch, origin != ORIGIN_REPLICATION)
        if verdict:
            result.leader_id = log.leader_id
            result.leader_epoch = log.leader_epoch
            refuse(result, verdict, NULL)
            status = LOG_REFUSED
            break
        turn = await_turn_locked(log, waiter)
        if turn == TURN_SLOW:
            park_locked(log, WAIT_TURN, waiter)
            status = LOG_PARK_SEGMENT
            break
        if turn != TURN_FREE:
            continue
        if (options.required_acks == -1 and origin != ORIGIN_REPLICATION
                and log.in_sync_replicas < log.config.min_in_sync_replicas):
            refuse(result, ERROR_NOT_ENOUGH_REPLICAS, "The in-sync replicas are fewer than min.insync.replicas.")
            status = LOG_REFUSED
            break
        verdict = check_sequences_locked(log, &batches, origin, options, result)
        if verdict > 0:
            break
        if verdict < 0:
            status = LOG_REFUSED
            break
        if options.verify:
            if must_verify_locked(log, &batches.front().header, options, result):
                status = LOG_PARK_VERIFY
                break
            if result.error != ERROR_NONE:
                status = LOG_REFUSED
                break
        first_offset = log.log_end_offset
        if origin == ORIGIN_REPLICATION:
            first_offset = batches.front().header.base_offset
            if first_offset < log.log_end_offset:
                refuse(result, ERROR_OFFSET_OUT_OF_RANGE, "The leader's batch begins below this log's end.")
                status = LOG_REFUSED
                break
            last_offset = batches.back().header.base_offset + batches.back().header.last_offset_delta
        else:
            last_offset = first_offset - 1
            for i in range(batches.size()):
                last_offset += <int64_t>batches[i].header.last_offset_delta + 1
        active = active_segment(log)
        if private_of(log).rolling:
            status = park_for_segment_locked(log, waiter)
            break
        if active == NULL or segment_should_roll(active, size, last_offset, max_timestamp, options.now_ms,
                                                 log.config.segment_bytes, log.config.segment_ms):
            if log.prepared == NULL:
                status = park_for_segment_locked(log, waiter)
                break
            verdict = switch_segment_locked(log, first_offset, options.now_ms)
            # Appends that parked meanwhile may go on, whether this append succeeds or fails; in order while turns are
            # handed over, so this one goes first.
            if log.offline_errno or not is_fair_locked(log):
                take_waiters_locked(log, log.offline_errno != 0, &woken)
            wake_segment_waiters_locked(log, &woken)
            if is_shortage(verdict):
                refuse(result, ERROR_KAFKA_STORAGE_ERROR, "Descriptors or memory are short: try again.")
                status = LOG_REFUSED
                break
            continue
        if active.fd < 0:
            # This append opened the segment that was active then; another segment replaced it, or the open failed.
            segment_ref(active)
            pthread_mutex_unlock(&log.mutex)
            thread = blocking_begin(NULL)
            verdict = segment_open(active)
            blocking_end(thread)
            pthread_mutex_lock(&log.mutex)
            segment_unref(active)
            if verdict >= 0:
                continue
            if not (log.offline_errno or log.deleted or private_of(log).closed):
                if not is_shortage(-verdict):
                    set_offline_locked(log, -verdict, "cannot open the active segment")
                    take_waiters_locked(log, True, &woken)
            refuse(result, ERROR_KAFKA_STORAGE_ERROR, NULL)
            status = LOG_REFUSED
            break
        verdict = write_in_turn(log, active, data, size, &batches, origin, &aborted, &messages)
        if verdict:
            refuse(result, ERROR_KAFKA_STORAGE_ERROR, write_failed_locked(log, verdict, &woken))
            status = LOG_REFUSED
            segment_unref(active)
            break
        result.base_offset = batches.front().header.base_offset
        result.last_offset = last_offset
        result.required_high_watermark = last_offset + 1
        if config.log_append_time and origin != ORIGIN_REPLICATION:
            result.log_append_time_ms = options.now_ms
        index_waits = written_locked(log, active, origin, &woken)
        break
    if private_of(log).turn_queue or private_of(log).next_turn.owner != NULL:
        leave_turn_locked(log, waiter, &woken)
    pthread_mutex_unlock(&log.mutex)

    if config.log_append_time and origin == ORIGIN_CLIENT and (status == LOG_PARK_SEGMENT or status == LOG_PARK_VERIFY):
        # A thread that wakes this request meanwhile only posts it to this thread.
        take_stamps_back(data, &batches)
    if status == LOG_APPENDED and not result.duplicate:
        if aborted:
            thread = blocking_begin(NULL)
            write_aborted_transactions(log)
            blocking_end(thread)
        if index_waits:
            thread = blocking_begin(NULL)
            segment_after_append(active)
            blocking_end(thread)
        segment_unref(active)
        if origin != ORIGIN_REPLICATION:
            atomic_count(&log.counters.bytes_in, size)
            atomic_count(&log.counters.messages_in, messages)
            atomic_count(&log.counters.produce_requests, 1)
    elif status == LOG_REFUSED:
        refused(log, size, origin)
    fire(&woken)
    return status


cdef void wake_segment_waiters_locked(LogState* log, vector[Waiter]* out) noexcept nogil:
    """Takes out the appends that wait for a segment, although the prepared one is used up now: the new active segment
    has room. While turns are handed over, these appends wait for their turns instead."""
    cdef bint fair = is_fair_locked(log)
    cdef size_t i, kept = 0
    for i in range(log.waiters.size()):
        if log.waiters[i].kind == WAIT_SEGMENT and not fair:
            out.push_back(log.waiters[i])
            continue
        if log.waiters[i].kind == WAIT_SEGMENT:
            log.waiters[i].kind = WAIT_TURN
            private_of(log).turn_queue += 1
        log.waiters[kept] = log.waiters[i]
        kept += 1
    log.waiters.resize(kept)


cdef AppendStatus log_append(LogState* log, uint8_t* data, int64_t size, const AppendOptions* options,
                             Waiter* waiter, AppendResult* result) noexcept nogil:
    cdef AppendStatus status = append_batches(log, data, size, options, waiter,
                                              ORIGIN_CLIENT if options.api_version >= 0 else ORIGIN_COORDINATOR, result)
    # With a control plane, a worker syncs, and a request that needs the acknowledgement waits for WAIT_FLUSHED.
    if status == LOG_APPENDED and log.events == NULL and flush_if_due(log):
        result.error = ERROR_KAFKA_STORAGE_ERROR
        result.message = "The log directory met a disk error."
        return LOG_REFUSED
    return status
