"""One partition of a Fetch response: the append, the high watermark, the log start, the errors.

Nothing here trusts the leader. The batches pass the checks of an append (structure, CRC, order, offsets from the log
end on); the high watermark ends at the own log end; the log start ends at the high watermark. What only the control
loop can do (truncate, ask the leader) parks the partition until the loop resumes it; all other partitions go on.
Source: kafka.server.AbstractFetcherThread.processFetchRequest, ReplicaFetcherThread.processPartitionData.
"""

from libc.stdint cimport int16_t, int64_t
from libc.stdio cimport snprintf
from libc.string cimport strlen

from kafkapy._speedups.base.error_codes cimport (
    ERROR_CORRUPT_MESSAGE,
    ERROR_FENCED_LEADER_EPOCH,
    ERROR_KAFKA_STORAGE_ERROR,
    ERROR_NONE,
    ERROR_NOT_LEADER_OR_FOLLOWER,
    ERROR_OFFSET_MOVED_TO_TIERED_STORAGE,
    ERROR_OFFSET_OUT_OF_RANGE,
    ERROR_UNKNOWN_LEADER_EPOCH,
    ERROR_UNKNOWN_TOPIC_ID,
    ERROR_UNKNOWN_TOPIC_OR_PARTITION,
)
from kafkapy._speedups.base.event_queue cimport event_post
from kafkapy._speedups.base.posix cimport atomic_count, atomic_store
from kafkapy._speedups.log.follow cimport (
    FOLLOW_APPENDED,
    FOLLOW_WAITS,
    FollowerPosition,
    FollowResult,
    FollowStatus,
    follower_advance,
    follower_append,
)
from kafkapy._speedups.replica.state cimport (
    FETCHER_DIVERGED,
    FETCHER_EPOCHS,
    FETCHER_ERROR,
    FETCHER_FAILED,
    FETCHER_OUT_OF_RANGE,
    FETCHER_STRADDLES,
    STATE_FETCHING,
    delay,
    park,
    requeue,
)
from kafkapy._speedups.replica.throttle cimport throttle_record

cdef enum:
    MS = 1_000_000                  # ns
    SOON_NS = 50 * MS               # until the next try while a log makes a segment or changes its files
    FIRST_RETRY_MS = 20             # doubled with each retry, up to replica.fetch.backoff.ms
    MOST_RETRIES = 10               # that count


cdef void tell(FetcherState* f, FetchPartition* p, int kind, int64_t argument, const char* text) noexcept nogil:
    event_post(f.events, kind, p.handle, argument, text, <Py_ssize_t>strlen(text) if text != NULL else 0)


cdef void note_error(FetcherState* f, FetchPartition* p, int error, const char* text) noexcept nogil:
    """Tells the loop of a partition's error once, and of its end."""
    if error == ERROR_NONE:
        p.retries = 0
    if p.last_error != error:
        p.last_error = <int16_t>error
        tell(f, p, FETCHER_ERROR, error, text)


cdef void back_off(FetcherState* f, FetchPartition* p, int error, const char* text, int64_t now_ns) noexcept nogil:
    cdef int64_t pause_ms = f.now.backoff_ms
    note_error(f, p, error, text)
    if (error == ERROR_UNKNOWN_LEADER_EPOCH or error == ERROR_NOT_LEADER_OR_FOLLOWER
            or error == ERROR_UNKNOWN_TOPIC_OR_PARTITION or error == ERROR_UNKNOWN_TOPIC_ID):
        # The controller tells the leader and its followers at the same time: the leader will know in a moment.
        if p.retries < MOST_RETRIES:
            pause_ms = min(pause_ms, <int64_t>FIRST_RETRY_MS << p.retries)
            p.retries += 1
    delay(f, p, now_ns + pause_ms * MS)


cdef void fail(FetcherState* f, FetchPartition* p, int error, const char* text) noexcept nogil:
    park(f, p)
    tell(f, p, FETCHER_FAILED, error, text)


cdef void learn_position(FetchPartition* p, const FollowerPosition* position) noexcept nogil:
    p.fetch_offset = position.log_end_offset
    p.log_start_offset = position.log_start_offset
    p.last_epoch = position.last_epoch


cdef void refused(FetcherState* f, FetchPartition* p, FetchedData* data, FollowResult* result,
                  int64_t now_ns) noexcept nogil:
    """An append was refused. `p.fetch_offset` is the log end that the leader was asked for."""
    if result.error == ERROR_FENCED_LEADER_EPOCH or result.error == ERROR_UNKNOWN_LEADER_EPOCH:
        # The control loop has another epoch for the log, and will add the partition again, or remove it.
        park(f, p)
    elif result.error == ERROR_NOT_LEADER_OR_FOLLOWER:
        park(f, p)              # closed or deleted
    elif result.error == ERROR_OFFSET_OUT_OF_RANGE and result.appended == 0 and result.first_offset < p.fetch_offset:
        if result.last_offset >= p.fetch_offset and p.fetch_offset == p.log_start_offset:
            # The log start of the leader lies within its batch, and this log is empty (KAFKA-6975).
            park(f, p)
            event_post(f.events, FETCHER_STRADDLES, p.handle, result.first_offset, <const char*>data.records,
                       <Py_ssize_t>data.size)
        else:
            fail(f, p, ERROR_OFFSET_OUT_OF_RANGE, "the leader sent batches from below the fetched offset")
    elif result.error == ERROR_OFFSET_OUT_OF_RANGE:
        fail(f, p, ERROR_OFFSET_OUT_OF_RANGE, "the leader sent batches in no order")
    elif result.error == ERROR_KAFKA_STORAGE_ERROR and not result.shortage:
        fail(f, p, ERROR_KAFKA_STORAGE_ERROR, result.message)
    else:
        # A bad CRC may come from the network; a shortage passes.
        back_off(f, p, result.error, result.message, now_ns)


cdef void take_records(FetcherState* f, FetchPartition* p, FetchedData* data, int64_t now_ns) noexcept nogil:
    cdef FollowResult result
    cdef FollowerPosition position
    cdef FollowStatus status = FOLLOW_APPENDED
    cdef int64_t lag
    cdef int error
    result.appended = 0
    if data.size > 0:
        status = follower_append(p.log, data.records, data.size, p.leader_epoch, &result)
        if result.appended:
            atomic_count(&f.bytes, result.appended)
    if p.throttled:
        throttle_record(f.throttle, data.size, now_ns)
    error = follower_advance(p.log, p.leader_epoch, data.high_watermark, data.log_start_offset, &position)
    if status != FOLLOW_APPENDED and status != FOLLOW_WAITS:
        if result.appended:
            learn_position(p, &position)
            requeue(f, p)
        refused(f, p, data, &result, now_ns)
        return
    learn_position(p, &position)
    requeue(f, p)
    if position.epochs_version != p.epochs_version:
        p.epochs_version = position.epochs_version
        tell(f, p, FETCHER_EPOCHS, 0, NULL)
    if error:
        park(f, p)
        return
    lag = data.high_watermark - position.log_end_offset
    atomic_store(&p.lag, lag if lag > 0 else 0)
    if status == FOLLOW_WAITS:
        delay(f, p, now_ns + SOON_NS)
    elif data.size > 0 and result.appended == 0:
        # No whole batch, or only batches of a later leader: at once it would send the same again.
        back_off(f, p, ERROR_CORRUPT_MESSAGE, "the leader sent no whole batch of its epoch", now_ns)
    else:
        note_error(f, p, ERROR_NONE, NULL)


cdef void take_data(FetcherState* f, FetchPartition* p, FetchedData* data, int64_t now_ns) noexcept nogil:
    cdef char epoch[16]
    if p.state != STATE_FETCHING or p.delayed_until_ns or p.asked_offset != p.fetch_offset:
        return
    if data.error_code == ERROR_OFFSET_OUT_OF_RANGE:
        park(f, p)
        tell(f, p, FETCHER_OUT_OF_RANGE, 0, NULL)
    elif data.error_code == ERROR_FENCED_LEADER_EPOCH:
        # This broker will hear of the newer epoch.
        fail(f, p, data.error_code, "the leader has a newer epoch")
    elif data.error_code == ERROR_OFFSET_MOVED_TO_TIERED_STORAGE:
        fail(f, p, data.error_code, "the leader has moved the records to tiered storage")
    elif data.error_code:
        back_off(f, p, data.error_code, "the leader answers with an error", now_ns)
    elif data.diverges:
        park(f, p)
        snprintf(epoch, sizeof(epoch), "%d", <int>data.diverging_epoch)
        tell(f, p, FETCHER_DIVERGED, data.diverging_end_offset, epoch)
    else:
        take_records(f, p, data, now_ns)
