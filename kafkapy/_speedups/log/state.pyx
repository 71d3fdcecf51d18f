"""The shared inside of a partition log (see state.pxd)."""

from libc.errno cimport errno
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdio cimport rename, snprintf
from libc.string cimport memset, strerror, strlen
from libcpp.string cimport string
from libcpp.vector cimport vector

from kafkapy._speedups.base.blocking cimport NetworkThread, blocking_begin, blocking_end
from kafkapy._speedups.base.event_queue cimport (
    EVENT_FLUSH_WANTED,
    EVENT_HIGH_WATERMARK,
    EVENT_LOG_OFFLINE,
    EVENT_SEGMENT_ROLLED,
    EVENT_SEGMENT_WANTED,
    event_post,
)
from kafkapy._speedups.base.posix cimport (
    atomic_load,
    atomic_store,
    is_shortage,
    pthread_cond_broadcast,
    pthread_cond_init,
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
    wall_clock_ms,
)
from kafkapy._speedups.base.wire cimport ByteBuffer, buffer_free, buffer_init
from kafkapy._speedups.log.layout cimport (
    WAIT_AT_FOLLOWER,
    WAIT_FLUSHED,
    WAIT_HIGH_WATERMARK,
    WAIT_KIND,
    WAIT_LAST_STABLE_OFFSET,
    WAIT_LOG_END,
    WAIT_SEGMENT,
    WAIT_TURN,
    LogState,
    Waiter,
)
from kafkapy._speedups.log.open_files cimport forget_log, watch_log
from kafkapy._speedups.log.private cimport (
    NEVER_MS,
    Follower,
    LimitPlace,
    LogPrivate,
    ProducerSnapshot,
    RecentBatch,
    private_of,
)
from kafkapy._speedups.log.producer_state cimport (
    Transaction,
    producer_first_unstable,
    producer_first_unstable_offset,
    producer_forget_places,
    producer_high_watermark,
    producer_snapshot_write,
    producer_state_free,
    producer_state_new,
)
from kafkapy._speedups.log.recovery cimport EpochEntry
from kafkapy._speedups.log.replication cimport (
    replication_is_live,
    replication_lag_time_ms,
    replication_now_ms,
    replication_unref,
)
from kafkapy._speedups.log.segment cimport SegmentState, segment_name, segment_unref
from kafkapy._speedups.log.turns cimport (
    call_locked,
    is_called_locked,
    is_fair_locked,
    may_call_locked,
    remove_waiters_locked,
)
from kafkapy._speedups.log.workers cimport LogWorkersState, log_work, log_workers_post, log_workers_unref

from cython.operator cimport dereference as deref, preincrement as inc
from libcpp.unordered_map cimport unordered_map


cdef LogState* log_new(int64_t id, const string& topic, int32_t partition, const string& directory,
                       int64_t producer_expiration_ms) noexcept nogil:
    cdef LogState* log = new LogState()
    cdef LogPrivate* own = new LogPrivate()
    pthread_mutex_init(&log.mutex, NULL)
    log.references = 1
    log.id = id
    log.topic = topic
    memset(log.topic_id, 0, 16)
    log.partition = partition
    memset(&log.config, 0, sizeof(log.config))
    log.leader = False
    log.leader_id = -1
    log.leader_epoch = -1
    log.in_sync_replicas = 0
    log.log_start_offset = 0
    log.log_end_offset = 0
    log.high_watermark = 0
    log.last_stable_offset = 0
    log.recovery_point = 0
    log.offline_errno = 0
    log.deleted = False
    log.prepared = NULL
    log.events = NULL
    log.announce_high_watermark = False
    memset(&log.counters, 0, sizeof(log.counters))
    log.own = own
    own.history.producers = producer_state_new(producer_expiration_ms)
    own.directory = directory
    own.rolling = False
    own.reopens = False
    own.loading = False
    own.writing = False
    own.turn_is_slow = False
    own.turns = 0
    own.turn_waiters = 0
    own.turn_began_ns = 0
    own.fair_until = 0
    own.turn_numbers = 0
    own.turn_queue = 0
    memset(&own.next_turn, 0, sizeof(own.next_turn))
    own.next_turn_until_ns = 0
    own.settlers = 0
    own.slow = 0
    own.slow_appends = 0
    pthread_cond_init(&own.turn_over, NULL)
    own.segment_wanted = False
    own.native_segments = False
    own.segments_made = 0
    own.segment_workers = NULL
    own.flush_workers = NULL
    own.make_segment = NULL
    own.flush = NULL
    own.closed = False
    own.recent_next = 0
    own.limits[0].offset = -1
    own.limits[1].offset = -1
    own.layout = 0
    own.aborted_summed = 0
    own.epochs_version = 0
    own.epochs_written = 0
    own.epochs_empty = 0
    own.unflushed_messages = 0
    own.truncations = 0
    own.flush_due = 0
    own.flushed = 0
    own.flush_wanted = False
    pthread_mutex_init(&own.sealing, NULL)
    pthread_mutex_init(&own.aborted_file, NULL)
    own.replication = NULL
    own.partition_epoch = -1
    own.maximal_in_sync = 0
    own.epoch_start_offset = 0
    own.announce_log_starts = False
    own.leader_throttled = False
    own.random = <uint64_t>wall_clock_ms() * 2862933555777941757ULL + <uint64_t>id * 3037000493ULL
    watch_log(log)
    return log


cdef bint epochs_unwritten_locked(LogState* log) noexcept nogil:
    """Whether the epochs' file lacks something. A last epoch without a record is nothing: a load drops it."""
    cdef LogPrivate* own = private_of(log)
    if own.epochs_written == own.epochs_version:
        return False
    if own.epochs_empty != own.epochs_version or own.history.epochs.empty():
        return True
    return own.history.epochs.back().start_offset < log.log_end_offset


cdef bint log_epochs_unwritten(LogState* log) noexcept nogil:
    cdef bint unwritten
    pthread_mutex_lock(&log.mutex)
    unwritten = epochs_unwritten_locked(log)
    pthread_mutex_unlock(&log.mutex)
    return unwritten


cdef int64_t log_epochs_version(LogState* log) noexcept nogil:
    cdef int64_t version
    pthread_mutex_lock(&log.mutex)
    version = private_of(log).epochs_version
    pthread_mutex_unlock(&log.mutex)
    return version


cdef void log_free(LogState* log) noexcept nogil:
    cdef LogPrivate* own = private_of(log)
    cdef size_t i
    forget_log(log)
    for i in range(log.segments.size()):
        segment_unref(log.segments[i])
    segment_unref(log.prepared)
    producer_state_free(own.history.producers)
    log_workers_unref(own.segment_workers)
    log_workers_unref(own.flush_workers)
    replication_unref(own.replication)
    pthread_mutex_destroy(&own.sealing)
    pthread_mutex_destroy(&own.aborted_file)
    del own
    pthread_mutex_destroy(&log.mutex)
    del log


cdef bint log_was_flush_due(LogState* log) noexcept nogil:
    return atomic_load(&private_of(log).flush_due) > 0


cdef int log_wait(LogState* log, const Waiter* waiter) noexcept nogil:
    cdef int holds
    pthread_mutex_lock(&log.mutex)
    holds = condition_holds_locked(log, waiter)
    if not holds:
        log.waiters.push_back(waiter[0])
    pthread_mutex_unlock(&log.mutex)
    return holds


cdef void log_remove_waiters(LogState* log, void* owner, uint64_t token, bint comes_again) noexcept nogil:
    cdef vector[Waiter] woken
    pthread_mutex_lock(&log.mutex)
    remove_waiters_locked(log, owner, token)
    if not comes_again and is_called_locked(log, owner, token):
        private_of(log).next_turn.owner = NULL
        take_waiters_locked(log, False, &woken)
    pthread_mutex_unlock(&log.mutex)
    fire(&woken)


cdef void leave_turn_locked(LogState* log, const Waiter* waiter, vector[Waiter]* out) noexcept nogil:
    cdef bint called = is_called_locked(log, waiter.owner, waiter.token)
    if called:
        private_of(log).next_turn.owner = NULL
    if called or (private_of(log).turn_queue and may_call_locked(log)):
        take_waiters_locked(log, False, out)


cdef SegmentState* active_segment(LogState* log) noexcept nogil:
    return log.segments.back() if not log.segments.empty() else NULL


cdef int64_t floor_before(LogState* log, int64_t offset, int64_t high) noexcept nogil:
    cdef int64_t low = 0, middle, found = -1
    while low <= high:
        middle = low + (high - low) // 2
        if log.segments[<size_t>middle].base_offset <= offset:
            found = middle
            low = middle + 1
        else:
            high = middle - 1
    return found


cdef string segment_stem(const string& directory, int64_t base_offset) noexcept nogil:
    """Returns the files' path without suffix: 20 digits of the base offset, in the partition's directory."""
    cdef char digits[24]
    cdef string stem
    if not directory.empty():
        snprintf(digits, sizeof(digits), "/%020lld", <long long>base_offset)
        stem = directory
        stem.append(<const char*>digits)
    return stem


cdef void update_last_stable_offset_locked(LogState* log) noexcept nogil:
    cdef int64_t unstable = producer_first_unstable_offset(private_of(log).history.producers)
    atomic_store(&log.last_stable_offset, unstable if 0 <= unstable < log.high_watermark else log.high_watermark)


cdef void set_high_watermark_locked(LogState* log, int64_t offset) noexcept nogil:
    if offset > log.log_end_offset:
        offset = log.log_end_offset
    if offset < log.log_start_offset:
        offset = log.log_start_offset
    if offset != log.high_watermark:
        atomic_store(&log.high_watermark, offset)
        if not private_of(log).history.producers.unreplicated.empty():
            producer_high_watermark(private_of(log).history.producers, offset)
        if log.announce_high_watermark and log.events != NULL:
            event_post(log.events, EVENT_HIGH_WATERMARK, log.id, offset, NULL, 0)
    update_last_stable_offset_locked(log)


cdef void advance_high_watermark_locked(LogState* log) noexcept nogil:
    cdef int64_t smallest = log.log_end_offset
    # The committed ISR counts: a record that too few replicas have must stay invisible (Partition.isUnderMinIsr).
    if not log.leader or log.in_sync_replicas < log.config.min_in_sync_replicas:
        return
    if not private_of(log).followers.empty():
        smallest = replicated_end_locked(log)
    # Kafka syncs in the append, before the high watermark moves. Here a worker syncs, and unsynced records stay
    # invisible until then.
    if private_of(log).flush_due > private_of(log).flushed and smallest > private_of(log).flushed:
        smallest = private_of(log).flushed
    if smallest > log.high_watermark:
        set_high_watermark_locked(log, smallest)


cdef int64_t replicated_end_locked(LogState* log) noexcept nogil:
    """Returns the offset below which the maximal ISR has all records, and also every live follower that has been caught
    up within the lag time: that one could never join the ISR behind a moving high watermark. Source:
    Partition.maybeIncrementLeaderHW."""
    cdef LogPrivate* own = private_of(log)
    cdef int64_t smallest = log.log_end_offset, now_ms = NEVER_MS
    cdef unordered_map[int32_t, Follower].iterator at = own.followers.begin()
    cdef const Follower* follower
    while at != own.followers.end():
        follower = &deref(at).second
        if follower.log_end_offset < smallest:
            if not follower.in_sync and follower.caught_up_ms != NEVER_MS and now_ms == NEVER_MS:
                now_ms = replication_now_ms(own.replication)
            if follower.in_sync or (
                follower.caught_up_ms != NEVER_MS
                and now_ms - follower.caught_up_ms <= replication_lag_time_ms(own.replication)
                and replication_is_live(own.replication, deref(at).first)
            ):
                smallest = follower.log_end_offset
        inc(at)
    return smallest


cdef bint waits_in_vain_locked(LogState* log, const Waiter* waiter) noexcept nogil:
    if log.offline_errno or log.deleted or private_of(log).closed:
        return True
    return not log.leader and not waiter.kind & WAIT_AT_FOLLOWER


cdef bint condition_holds_locked(LogState* log, const Waiter* waiter) noexcept nogil:
    cdef int kind = waiter.kind & WAIT_KIND
    if waits_in_vain_locked(log, waiter):
        return True
    if kind == WAIT_HIGH_WATERMARK:
        return log.high_watermark > waiter.threshold
    if kind == WAIT_LAST_STABLE_OFFSET:
        return log.last_stable_offset > waiter.threshold
    if kind == WAIT_LOG_END:
        return log.log_end_offset > waiter.threshold
    if kind == WAIT_FLUSHED:
        return is_flushed_locked(log, waiter.threshold)
    if kind == WAIT_TURN:
        return not private_of(log).writing and not private_of(log).rolling
    return log.prepared != NULL and not private_of(log).rolling


cdef bint is_flushed_locked(LogState* log, int64_t offset) noexcept nogil:
    return offset >= private_of(log).flush_due or offset < private_of(log).flushed


cdef void take_waiters_locked(LogState* log, bint every, vector[Waiter]* out) noexcept nogil:
    cdef LogPrivate* own = private_of(log)
    cdef bint fair = not every and is_fair_locked(log), patient = False
    cdef bint may_call = fair and may_call_locked(log)
    cdef const Waiter* waiter
    cdef size_t i, kept = 0
    own.turn_queue = 0
    for i in range(log.waiters.size()):
        waiter = &log.waiters[i]
        if (every or condition_holds_locked(log, waiter)) and (not fair or may_wake_locked(log, waiter, &may_call)):
            if waiter.wake == NULL:
                patient = True
            else:
                out.push_back(waiter[0])
            continue
        if waiter.kind == WAIT_TURN:
            own.turn_queue += 1
        if kept != i:
            log.waiters[kept] = log.waiters[i]
        kept += 1
    log.waiters.resize(kept)
    if patient:
        pthread_cond_broadcast(&own.turn_over)


cdef bint may_wake_locked(LogState* log, const Waiter* waiter, bint* may_call) noexcept nogil:
    """Whether a waiter whose condition holds is woken now, while turns are handed over: one append, and all others."""
    if (waiter.kind != WAIT_TURN and waiter.kind != WAIT_SEGMENT) or waits_in_vain_locked(log, waiter):
        return True
    if not may_call[0]:
        return False
    may_call[0] = False
    call_locked(log, waiter)
    return True


cdef void fire(vector[Waiter]* waiters) noexcept nogil:
    cdef size_t i
    for i in range(waiters.size()):
        waiters[0][i].wake(waiters[0][i].owner, waiters[0][i].token)
    waiters.clear()


cdef void remember_batch_locked(LogState* log, int64_t base_offset, int64_t last_offset, int64_t position, int64_t size,
                                int64_t segment_base) noexcept nogil:
    cdef LogPrivate* own = private_of(log)
    cdef RecentBatch batch
    batch.base_offset = base_offset
    batch.last_offset = last_offset
    batch.position = position
    batch.size = size
    batch.segment_base = segment_base
    if own.recent.size() < RECENT_BATCHES:
        own.recent.push_back(batch)
        own.recent_next = own.recent.size() % RECENT_BATCHES
    else:
        own.recent[own.recent_next] = batch
        own.recent_next = (own.recent_next + 1) % RECENT_BATCHES


cdef bint recall_batch_locked(LogState* log, int64_t offset, int64_t segment_base, RecentBatch* out) noexcept nogil:
    """Searches the ring by bisection: its entries ascend from the oldest, which is at recent_next in a full ring."""
    cdef LogPrivate* own = private_of(log)
    cdef size_t n = own.recent.size()
    cdef size_t start = own.recent_next if n == RECENT_BATCHES else 0
    cdef size_t low = 0, high = n, middle
    cdef RecentBatch* at
    if n == 0 or offset < own.recent[start].base_offset:
        return False
    while low < high:
        middle = (low + high) // 2
        if own.recent[(start + middle) % RECENT_BATCHES].last_offset < offset:
            low = middle + 1
        else:
            high = middle
    if low == n:
        return False
    at = &own.recent[(start + low) % RECENT_BATCHES]
    if at.segment_base != segment_base or at.base_offset > offset:
        return False
    out[0] = at[0]
    return True


cdef void forget_batches_locked(LogState* log, int64_t offset) noexcept nogil:
    # Truncation is rare: to forget all entries is simplest and right.
    private_of(log).recent.clear()
    private_of(log).recent_next = 0
    private_of(log).limits[0].offset = -1
    private_of(log).limits[1].offset = -1
    producer_forget_places(private_of(log).history.producers)
    forget_aborted_summary_locked(log)


cdef void forget_aborted_summary_locked(LogState* log) noexcept nogil:
    private_of(log).layout += 1
    private_of(log).aborted_lowest.clear()
    private_of(log).aborted_summed = 0


cdef bint limit_position_locked(LogState* log, int which, int64_t offset, int64_t segment_base,
                                int64_t* position) noexcept nogil:
    """Finds the position of the last request, of a recent batch, or of the first batch of the open transaction that
    holds readers back."""
    cdef LimitPlace* known = &private_of(log).limits[which]
    cdef const Transaction* unstable
    cdef RecentBatch recent
    if known.offset == offset and known.segment_base == segment_base:
        position[0] = known.position
        return True
    if recall_batch_locked(log, offset, segment_base, &recent):
        position[0] = recent.position
    else:
        unstable = producer_first_unstable(private_of(log).history.producers)
        if (unstable == NULL or unstable.first_offset != offset or unstable.segment_base != segment_base
                or unstable.position < 0):
            return False
        position[0] = unstable.position
    known.offset = offset
    known.segment_base = segment_base
    known.position = position[0]
    return True


cdef void set_offline_locked(LogState* log, int failure, const char* what) noexcept nogil:
    cdef char text[512]
    if log.offline_errno or is_shortage(failure):
        return
    log.offline_errno = failure
    if log.events != NULL:
        snprintf(text, sizeof(text), "%s-%d: %s: %s", log.topic.c_str(), log.partition, what, strerror(failure))
        event_post(log.events, EVENT_LOG_OFFLINE, log.id, failure, text, <Py_ssize_t>strlen(text))


cdef bint post_locked(LogState* log, LogWorkersState* workers, log_work work) noexcept nogil:
    """Gives work to the threads; it takes over a reference to the log."""
    log_ref(log)
    if log_workers_post(workers, work, log):
        return True
    log_unref(log)
    return False


cdef void want_segment_locked(LogState* log) noexcept nogil:
    if not private_of(log).segment_wanted and log.prepared == NULL:
        private_of(log).segment_wanted = True
        if (private_of(log).native_segments and private_of(log).segment_workers != NULL
                and post_locked(log, private_of(log).segment_workers, private_of(log).make_segment)):
            return
        if log.events != NULL:
            event_post(log.events, EVENT_SEGMENT_WANTED, log.id, log.log_end_offset, NULL, 0)


cdef void want_flush_locked(LogState* log) noexcept nogil:
    if not private_of(log).flush_wanted and log.events != NULL:
        private_of(log).flush_wanted = True
        if (private_of(log).flush_workers != NULL
                and post_locked(log, private_of(log).flush_workers, private_of(log).flush)):
            return
        event_post(log.events, EVENT_FLUSH_WANTED, log.id, log.log_end_offset, NULL, 0)


cdef int64_t roll_jitter(LogState* log) noexcept nogil:
    """Returns less than segment.ms, or every append would roll (LogConfig.randomSegmentJitter)."""
    cdef uint64_t x = private_of(log).random
    cdef int64_t bound = log.config.segment_jitter_ms
    if bound > log.config.segment_ms:
        bound = log.config.segment_ms
    if bound <= 0:
        return 0
    x ^= x << 13
    x ^= x >> 7
    x ^= x << 17
    private_of(log).random = x
    return <int64_t>(x % <uint64_t>bound)


cdef void keep_snapshot_locked(LogState* log, int64_t offset) noexcept nogil:
    """Keeps the producer state of a roll; PartitionLog.write_rolled_snapshots writes it to disk later."""
    cdef ByteBuffer buffer
    cdef ProducerSnapshot snapshot
    if private_of(log).directory.empty() or private_of(log).history.producers.snapshot_offset >= offset:
        return
    buffer_init(&buffer)
    producer_snapshot_write(private_of(log).history.producers, &buffer)
    if not buffer.error:
        snapshot.offset = offset
        snapshot.data.assign(<const char*>buffer.data, buffer.size)
        private_of(log).snapshots.push_back(snapshot)
        private_of(log).history.producers.snapshot_offset = offset
    buffer_free(&buffer)


cdef int switch_segment_locked(LogState* log, int64_t base_offset, int64_t now_ms) noexcept nogil:
    cdef SegmentState* next = log.prepared
    cdef string old_path, stem, new_path
    cdef NetworkThread* thread
    cdef int failure = 0
    log.prepared = NULL
    private_of(log).segment_wanted = False
    private_of(log).rolling = True
    keep_snapshot_locked(log, base_offset)
    stem = segment_stem(private_of(log).directory, base_offset)
    old_path = next.path
    pthread_mutex_unlock(&log.mutex)
    # While `rolling` is set, appends park and truncation waits; readers go on, because they do not know the new segment
    # yet.
    if not stem.empty():
        new_path = stem
        new_path.append(<const char*>".log")
        thread = blocking_begin(NULL)
        if rename(old_path.c_str(), new_path.c_str()) != 0:
            failure = errno
        blocking_end(thread)
    if is_shortage(failure):
        # The next append tries again.
        pthread_mutex_lock(&log.mutex)
        private_of(log).rolling = False
        log.prepared = next
        return failure
    segment_name(next, base_offset, stem)
    next.created_ms = now_ms
    next.newest_record = -1
    pthread_mutex_lock(&log.mutex)
    next.roll_jitter_ms = roll_jitter(log)
    private_of(log).rolling = False
    if failure:
        set_offline_locked(log, failure, "cannot name a new segment")
    log.segments.push_back(next)
    if log.events != NULL and not failure:
        event_post(log.events, EVENT_SEGMENT_ROLLED, log.id, base_offset, NULL, 0)
    return failure


cdef void end_offset_for_epoch_locked(LogState* log, int32_t epoch, int32_t* found_epoch,
                                      int64_t* end_offset) noexcept nogil:
    cdef vector[EpochEntry]* epochs = &private_of(log).history.epochs
    cdef int64_t i = <int64_t>epochs.size() - 1
    found_epoch[0] = -1
    end_offset[0] = -1
    if epochs.empty() or epoch < 0:
        return
    if epoch == epochs.back().epoch:
        found_epoch[0] = epoch
        end_offset[0] = log.log_end_offset
        return
    if epoch > epochs.back().epoch:
        return
    if epoch < epochs.front().epoch:
        # The requested epoch is older than all known epochs: it ended where the first known epoch starts.
        found_epoch[0] = epoch
        end_offset[0] = epochs.front().start_offset
        return
    while i >= 0 and epochs[0][<size_t>i].epoch > epoch:
        i -= 1
    found_epoch[0] = epochs[0][<size_t>i].epoch
    end_offset[0] = epochs[0][<size_t>(i + 1)].start_offset
