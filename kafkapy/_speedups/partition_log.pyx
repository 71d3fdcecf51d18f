"""The partition log: the data plane's functions and the control plane's `PartitionLog` (see partition_log.pxd).

The work is done in log_append.pyx, log_read.pyx, log_state.pyx (shared inside) and log_loading.pyx (start-up).
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cython.operator cimport dereference as deref, preincrement as inc
from libc.errno cimport EIO
from libc.stdlib cimport free
from libc.string cimport memcpy, memset, strerror
from libcpp.unordered_map cimport unordered_map
from libcpp.utility cimport move

from kafkapy._speedups.event_queue cimport EventQueue
from kafkapy._speedups.file_records cimport (
    SCAN_FOUND,
    BatchPosition,
    ScanStatus,
    file_read,
    scan_for_offset,
)
from kafkapy._speedups.log_append cimport append_batches
from kafkapy._speedups.log_cut cimport (
    advance_log_start,
    empty_log,
    flush_log,
    remove_segments_below,
    resume_appends,
    seal_closed_segments,
    truncate_log,
)
from kafkapy._speedups.log_read cimport read_batches
from kafkapy._speedups.log_recovery cimport EpochEntry, epochs_assign
from kafkapy._speedups.log_state cimport (
    RECENT_BATCHES,
    active_segment,
    advance_high_watermark_locked,
    condition_holds_locked,
    end_offset_for_epoch_locked,
    fire,
    floor_segment,
    forget_batches_locked,
    lock_settled,
    log_new,
    set_high_watermark_locked,
    set_offline_locked,
    switch_segment_locked,
    take_waiters_locked,
    update_last_stable_offset_locked,
)
from kafkapy._speedups.posix cimport (
    atomic_add,
    atomic_load,
    pthread_mutex_destroy,
    pthread_mutex_lock,
    pthread_mutex_unlock,
    wall_clock_ms,
)
from kafkapy._speedups.producer_state cimport (
    ORIGIN_CLIENT,
    ORIGIN_COORDINATOR,
    ORIGIN_REPLICATION,
    CompletedTransaction,
    ProducerEntry,
    producer_dict,
    producer_expire,
    producer_snapshot_write,
    producer_state_free,
)
from kafkapy._speedups.segment cimport (
    segment_find,
    segment_find_timestamp,
    segment_new,
    segment_open,
    segment_ref,
    segment_seal,
    segment_trim,
    segment_truncate,
    segment_unref,
)
from kafkapy._speedups.wire cimport ByteBuffer, buffer_free, buffer_init

from kafkapy.errors import error_for

cdef enum:
    ERROR_OFFSET_OUT_OF_RANGE = 1
    FORCE_ROLL_LIMIT = 0x7FFFFFFF

CODECS = {"producer": -1, "uncompressed": 0, "none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


cdef void log_ref(LogState* log) noexcept nogil:
    atomic_add(&log.references, 1)


cdef void log_unref(LogState* log) noexcept nogil:
    cdef size_t i
    if log == NULL or atomic_add(&log.references, -1) != 0:
        return
    for i in range(log.segments.size()):
        segment_unref(log.segments[i])
    segment_unref(log.prepared)
    producer_state_free(log.own.history.producers)
    del log.own
    pthread_mutex_destroy(&log.mutex)
    del log


cdef AppendStatus log_append(LogState* log, uint8_t* data, int64_t size, const AppendOptions* options, const Waiter* waiter,
                             AppendResult* result) noexcept nogil:
    return append_batches(log, data, size, options, waiter, ORIGIN_CLIENT if options.api_version >= 0 else ORIGIN_COORDINATOR, result)


cdef void log_read(LogState* log, int64_t offset, int32_t max_bytes, bint min_one_batch, FetchIsolation isolation,
                   int32_t current_leader_epoch, int32_t last_fetched_epoch, ReadResult* result) noexcept nogil:
    read_batches(log, offset, max_bytes, min_one_batch, isolation, current_leader_epoch, last_fetched_epoch, True, result)


cdef int log_wait(LogState* log, const Waiter* waiter) noexcept nogil:
    cdef int holds
    pthread_mutex_lock(&log.mutex)
    holds = condition_holds_locked(log, waiter)
    if not holds:
        log.waiters.push_back(waiter[0])
    pthread_mutex_unlock(&log.mutex)
    return holds


cdef void log_remove_waiters(LogState* log, void* owner, uint64_t token) noexcept nogil:
    cdef size_t i, kept = 0
    pthread_mutex_lock(&log.mutex)
    for i in range(log.waiters.size()):
        if log.waiters[i].owner != owner or log.waiters[i].token != token:
            log.waiters[kept] = log.waiters[i]
            kept += 1
    log.waiters.resize(kept)
    pthread_mutex_unlock(&log.mutex)


cdef void log_follower_position(LogState* log, int32_t replica_id, int64_t log_end_offset) noexcept nogil:
    cdef vector[Waiter] woken
    cdef unordered_map[int32_t, Follower].iterator found
    cdef Follower fresh
    pthread_mutex_lock(&log.mutex)
    found = log.own.followers.find(replica_id)
    if found == log.own.followers.end():
        fresh.log_end_offset = -1
        fresh.caught_up_ms = 0
        fresh.in_sync = False
        log.own.followers[replica_id] = fresh
        found = log.own.followers.find(replica_id)
    deref(found).second.log_end_offset = log_end_offset
    if log_end_offset >= log.log_end_offset:
        deref(found).second.caught_up_ms = wall_clock_ms()
    if deref(found).second.in_sync:
        advance_high_watermark_locked(log)
        if not log.waiters.empty():
            take_waiters_locked(log, False, &woken)
    pthread_mutex_unlock(&log.mutex)
    fire(&woken)


cdef void wake_changed(LogState* log, bint every) noexcept nogil:
    """Takes the mutex, and wakes those whose condition holds now, or all."""
    cdef vector[Waiter] woken
    pthread_mutex_lock(&log.mutex)
    take_waiters_locked(log, every, &woken)
    pthread_mutex_unlock(&log.mutex)
    fire(&woken)


cdef int64_t next_log_id = 0


cdef class PartitionLog:
    """One partition's log as the control plane sees it. Owns one reference to the state that the data plane shares.

    Made by LogManager (`kafkapy/log/loader.py` fills it). Any thread may call any method; each releases the GIL before it takes
    the mutex. `storage` is a kafkapy.log.backends.base.LogStorage: it names, makes and removes files, and is called without the mutex.
    Offsets are Kafka's; times are ms since the epoch.
    """

    def __cinit__(self, str topic, int partition, object storage, object config, *, EventQueue events=None, bytes topic_id=bytes(16),
                  int64_t producer_id_expiration_ms=86_400_000):
        cdef string directory = storage.directory.encode()
        global next_log_id
        if len(topic_id) != 16:
            raise ValueError(f"a topic id has 16 bytes, not {len(topic_id)}")
        self.state = log_new(atomic_add(&next_log_id, 1), topic.encode(), partition, directory, producer_id_expiration_ms)
        memcpy(self.state.topic_id, <const char*>topic_id, 16)
        if events is not None:
            self.state.events = events.state
        self.events = events
        self.storage = storage
        self.update_config(config)

    def __dealloc__(self):
        if self.state != NULL:
            with nogil:
                log_unref(self.state)

    def __repr__(self):
        return f"<PartitionLog {self.topic}-{self.partition} [{self.log_start_offset}, {self.log_end_offset})>"

    # ---- what it is ----

    @property
    def id(self):
        """The handle that events of this log carry."""
        return self.state.id

    @property
    def topic(self):
        return self.state.topic.decode()

    @property
    def partition(self):
        return self.state.partition

    @property
    def topic_id(self):
        """16 bytes; all zero when not known."""
        return self.state.topic_id[:16]

    @topic_id.setter
    def topic_id(self, bytes value):
        if len(value) != 16:
            raise ValueError(f"a topic id has 16 bytes, not {len(value)}")
        memcpy(self.state.topic_id, <const char*>value, 16)

    @property
    def log_start_offset(self):
        return self.offsets()[0]

    @property
    def log_end_offset(self):
        return self.offsets()[1]

    @property
    def high_watermark(self):
        return self.offsets()[2]

    @property
    def last_stable_offset(self):
        return self.offsets()[3]

    @property
    def recovery_point(self):
        """Everything below is on disk (synced)."""
        return self.offsets()[4]

    def offsets(self):
        """(log start, log end, high watermark, last stable offset, recovery point), all of one moment."""
        cdef int64_t start, end, high_watermark, stable, recovery
        with nogil:
            pthread_mutex_lock(&self.state.mutex)
            start = self.state.log_start_offset
            end = self.state.log_end_offset
            high_watermark = self.state.high_watermark
            stable = self.state.last_stable_offset
            recovery = self.state.recovery_point
            pthread_mutex_unlock(&self.state.mutex)
        return start, end, high_watermark, stable, recovery

    @property
    def is_leader(self):
        return self.state.leader

    @property
    def leader_id(self):
        return self.state.leader_id

    @property
    def leader_epoch(self):
        return self.state.leader_epoch

    @property
    def offline_errno(self):
        """0, or the errno of the failure that took the log offline."""
        return self.state.offline_errno

    @property
    def unflushed_messages(self):
        """Messages appended since the last flush."""
        return self.state.own.unflushed_messages

    @property
    def size(self):
        """Bytes of all segments."""
        return sum(segment[1] for segment in self.segments())

    def segments(self):
        """(base offset, size in bytes, max timestamp in ms or -1, created ms, sealed) of each segment, oldest first."""
        cdef vector[SegmentState*] held
        cdef size_t i
        with nogil:
            self.hold_segments(&held)
        found = [(held[i].base_offset, held[i].size, held[i].max_timestamp, held[i].created_ms, held[i].sealed)
                 for i in range(held.size())]
        for i in range(held.size()):
            segment_unref(held[i])
        return found

    cdef void hold_segments(self, vector[SegmentState*]* out) noexcept nogil:
        cdef size_t i
        pthread_mutex_lock(&self.state.mutex)
        out[0] = self.state.segments
        for i in range(out.size()):
            segment_ref(out[0][i])
        pthread_mutex_unlock(&self.state.mutex)

    def counters(self):
        """The log's counters as a dict; read without a lock, so they may be of slightly different moments."""
        cdef LogCounters* c = &self.state.counters
        return {
            "bytes_in": atomic_load(&c.bytes_in), "bytes_out": atomic_load(&c.bytes_out), "messages_in": atomic_load(&c.messages_in),
            "produce_requests": atomic_load(&c.produce_requests), "fetch_requests": atomic_load(&c.fetch_requests),
            "failed_produce_requests": atomic_load(&c.failed_produce_requests),
            "failed_fetch_requests": atomic_load(&c.failed_fetch_requests), "bytes_rejected": atomic_load(&c.bytes_rejected),
        }

    # ---- configuration and leadership ----

    def update_config(self, object config):
        """Takes over a LogConfig (attributes named like Kafka's topic keys, dots as underscores)."""
        cdef LogConfigState c
        c.max_message_bytes = config.max_message_bytes
        c.segment_bytes = config.segment_bytes
        c.segment_ms = config.segment_ms
        c.segment_jitter_ms = config.segment_jitter_ms
        c.index_interval_bytes = config.index_interval_bytes
        c.segment_index_bytes = config.segment_index_bytes
        c.compression_codec = CODECS[config.compression_type]
        c.log_append_time = config.message_timestamp_type == "LogAppendTime"
        c.compacted = "compact" in config.cleanup_policy
        c.validate_compressed = getattr(config, "kafkapy_validate_compressed", "") == "full"
        c.timestamp_before_max_ms = config.message_timestamp_before_max_ms
        c.timestamp_after_max_ms = config.message_timestamp_after_max_ms
        c.min_in_sync_replicas = config.min_insync_replicas
        c.flush_messages = config.flush_messages
        with nogil:
            pthread_mutex_lock(&self.state.mutex)
            self.state.config = c
            pthread_mutex_unlock(&self.state.mutex)
        self.config = config

    def become_leader(self, int leader_id, int leader_epoch, object in_sync_replicas=()):
        """This broker leads from here. `in_sync_replicas`: ids of the ISR, with or without this broker's own."""
        cdef vector[Waiter] woken
        cdef vector[int32_t] in_sync
        cdef Follower fresh
        cdef size_t i
        cdef bint changed
        cdef unordered_map[int32_t, Follower].iterator at
        for replica in in_sync_replicas:
            if replica != leader_id:
                in_sync.push_back(replica)
        fresh.log_end_offset = -1
        fresh.caught_up_ms = wall_clock_ms()
        fresh.in_sync = True
        with nogil:
            lock_settled(self.state)
            if not self.state.leader or self.state.leader_epoch != leader_epoch:
                # Positions that followers of an earlier leader had are not to be trusted.
                self.state.own.followers.clear()
            at = self.state.own.followers.begin()
            while at != self.state.own.followers.end():
                deref(at).second.in_sync = False
                inc(at)
            for i in range(in_sync.size()):
                at = self.state.own.followers.find(in_sync[i])
                if at == self.state.own.followers.end():
                    self.state.own.followers[in_sync[i]] = fresh
                else:
                    deref(at).second.in_sync = True
            self.state.leader = True
            self.state.leader_id = leader_id
            self.state.leader_epoch = leader_epoch
            self.state.in_sync_replicas = <int32_t>in_sync.size() + 1
            changed = epochs_assign(&self.state.own.history.epochs, leader_epoch, self.state.log_end_offset)
            if changed:
                self.state.own.epochs_version += 1
            advance_high_watermark_locked(self.state)
            take_waiters_locked(self.state, False, &woken)
            pthread_mutex_unlock(&self.state.mutex)
            fire(&woken)
        if changed:
            self.write_leader_epochs()

    def become_follower(self, int leader_id, int leader_epoch):
        """Another broker leads (-1: none). Waiting requests are woken and will be answered NOT_LEADER_OR_FOLLOWER."""
        cdef vector[Waiter] woken
        with nogil:
            lock_settled(self.state)
            self.state.leader = False
            self.state.leader_id = leader_id
            self.state.leader_epoch = leader_epoch
            self.state.in_sync_replicas = 0
            self.state.own.followers.clear()
            take_waiters_locked(self.state, True, &woken)
            pthread_mutex_unlock(&self.state.mutex)
            fire(&woken)

    def set_high_watermark(self, int64_t offset):
        """Follower or start-up: takes over a high watermark, kept within [log start, log end]. Returns what it became."""
        cdef vector[Waiter] woken
        with nogil:
            pthread_mutex_lock(&self.state.mutex)
            set_high_watermark_locked(self.state, offset)
            offset = self.state.high_watermark
            take_waiters_locked(self.state, False, &woken)
            pthread_mutex_unlock(&self.state.mutex)
            fire(&woken)
        return offset

    @property
    def announce_high_watermark(self):
        """Whether each change of the high watermark posts a HIGH_WATERMARK event."""
        return self.state.announce_high_watermark

    @announce_high_watermark.setter
    def announce_high_watermark(self, bint value):
        self.state.announce_high_watermark = value

    def follower_position(self, int replica_id, int64_t log_end_offset):
        """A follower has fetched up to that offset."""
        with nogil:
            log_follower_position(self.state, replica_id, log_end_offset)

    def followers(self):
        """Replica id to (log end offset or -1, ms when it last reached the log end, in sync)."""
        cdef unordered_map[int32_t, Follower] copy
        cdef unordered_map[int32_t, Follower].iterator at
        with nogil:
            pthread_mutex_lock(&self.state.mutex)
            copy = self.state.own.followers
            pthread_mutex_unlock(&self.state.mutex)
        found = {}
        at = copy.begin()
        while at != copy.end():
            found[deref(at).first] = (deref(at).second.log_end_offset, deref(at).second.caught_up_ms, deref(at).second.in_sync)
            inc(at)
        return found

    def leader_epochs(self):
        """[(epoch, start offset), ...], ascending."""
        cdef vector[EpochEntry] copy
        cdef size_t i
        with nogil:
            pthread_mutex_lock(&self.state.mutex)
            copy = self.state.own.history.epochs
            pthread_mutex_unlock(&self.state.mutex)
        return [(copy[i].epoch, copy[i].start_offset) for i in range(copy.size())]

    def offset_for_leader_epoch(self, int epoch):
        """(largest known epoch <= epoch, its end offset); (-1, -1) when unknown (OffsetForLeaderEpoch, KIP-101/279)."""
        cdef int32_t found
        cdef int64_t end
        with nogil:
            pthread_mutex_lock(&self.state.mutex)
            end_offset_for_epoch_locked(self.state, epoch, &found, &end)
            pthread_mutex_unlock(&self.state.mutex)
        return found, end

    def write_leader_epochs(self):
        """Puts the leader epochs into their checkpoint file."""
        self.storage.write_leader_epochs(self.leader_epochs())

    # ---- append and read ----

    def append_as_leader(self, bytes batches, *, int required_acks=1, int leader_epoch=-1, int api_version=-1, bint validated=True,
                         int64_t now_ms=-1):
        """Appends whole batches; returns (base offset, last offset, log append time in ms or -1).

        With api_version -1 (coordinators) several batches and control batches are taken; 0 and above applies the rules of Produce.
        A KafkaError of the code that a client would see is raised. Makes the next segment itself when one is due.
        """
        cdef AppendOptions options
        options.required_acks = <int8_t>required_acks
        options.api_version = <int16_t>api_version
        options.validated = validated
        options.current_leader_epoch = leader_epoch
        options.now_ms = now_ms if now_ms >= 0 else wall_clock_ms()
        return self.append(batches, &options, ORIGIN_CLIENT if api_version >= 0 else ORIGIN_COORDINATOR)

    def append_as_follower(self, bytes batches):
        """Appends what a leader sent, with its offsets and epochs; returns (base offset, last offset, -1)."""
        cdef AppendOptions options
        cdef int64_t epochs
        options.required_acks = 1
        options.api_version = -1
        options.validated = True
        options.current_leader_epoch = -1
        options.now_ms = wall_clock_ms()
        epochs = self.state.own.epochs_version
        appended = self.append(batches, &options, ORIGIN_REPLICATION)
        if self.state.own.epochs_version != epochs:
            self.write_leader_epochs()
        return appended

    cdef object append(self, bytes batches, const AppendOptions* options, int origin):
        # Offsets are patched in place, so the bytes are copied first.
        cdef object copy = PyBytes_FromStringAndSize(PyBytes_AS_STRING(batches), len(batches))
        cdef uint8_t* data
        cdef int64_t size = len(batches)
        cdef AppendResult result
        cdef AppendStatus status
        if size <= 1:
            copy = bytearray(batches)       # short bytes objects are shared by the interpreter
            data = <uint8_t*>(<char*>copy)
        else:
            data = <uint8_t*>PyBytes_AS_STRING(copy)
        while True:
            with nogil:
                status = append_batches(self.state, data, size, options, NULL, origin, &result)
            if status == LOG_PARK_SEGMENT:
                self.prepare_segment()
                continue
            break
        if status == LOG_PARK_VALIDATE:
            raise error_for(76, "the records have to be validated or converted first")
        if status == LOG_REFUSED:
            problems = [(result.record_errors[i].batch_index, result.record_errors[i].problem) for i in range(result.record_error_count)]
            free(result.record_errors)
            error = error_for(result.error, result.message.decode() if result.message != NULL else None)
            error.record_errors = problems
            raise error
        return result.base_offset, result.last_offset, result.log_append_time_ms

    def read(self, int64_t offset, int max_bytes=1 << 20, *, bint min_one_batch=True, int isolation=READ_LOG_END, bint leader_only=False):
        """Whole or cut batches from `offset` on: (bytes, high watermark, last stable offset, log start offset, aborted).

        `isolation`: 0 up to the high watermark, 1 up to the last stable offset, 2 up to the log end. `aborted` is a list of (producer id,
        first offset), or None unless isolation is 1. Raises OffsetOutOfRangeError, NotLeaderOrFollowerError, KafkaStorageError.
        """
        cdef ReadResult result
        cdef int64_t got = 0
        cdef uint8_t* at
        with nogil:
            read_batches(self.state, offset, max_bytes, min_one_batch, <FetchIsolation>isolation, -1, -1, leader_only, &result)
        if result.error:
            raise error_for(result.error)
        aborted = None
        if result.aborted_count >= 0:
            aborted = [(result.aborted[i].producer_id, result.aborted[i].first_offset) for i in range(result.aborted_count)]
        free(result.aborted)
        data = b""
        if result.segment != NULL:
            data = PyBytes_FromStringAndSize(NULL, result.length)
            at = <uint8_t*>PyBytes_AS_STRING(data)
            with nogil:
                got = file_read(result.segment.fd, at, result.length, result.position)
                segment_unref(result.segment)
            if got < 0:
                raise OSError(-got, strerror(<int>-got).decode())
            if got < result.length:
                data = data[:got]
        return data, result.high_watermark, result.last_stable_offset, result.log_start_offset, aborted

    def find_timestamp(self, int64_t timestamp, int64_t end_offset=-1):
        """The first batch at or above the log start whose max timestamp is at least `timestamp` (ms): its bytes, or None.

        The record itself is found by the caller (kafkapy.log.timestamps), because the batch may be compressed. `end_offset`: look below it only.
        """
        cdef vector[SegmentState*] held
        cdef SegmentState* found = NULL
        cdef BatchPosition at
        cdef int64_t start, limit, got
        cdef size_t i
        cdef uint8_t* buffer
        with nogil:
            pthread_mutex_lock(&self.state.mutex)
            start = self.state.log_start_offset
            limit = self.state.log_end_offset if end_offset < 0 else end_offset
            held = self.state.segments
            for i in range(held.size()):
                segment_ref(held[i])
            pthread_mutex_unlock(&self.state.mutex)
            for i in range(held.size()):
                if found == NULL and held[i].max_timestamp >= timestamp and held[i].base_offset < limit:
                    if segment_find_timestamp(held[i], timestamp, start, held[i].size, &at) == SCAN_FOUND and at.base_offset < limit:
                        found = held[i]
                        segment_ref(found)
            for i in range(held.size()):
                segment_unref(held[i])
        if found == NULL:
            return None
        data = PyBytes_FromStringAndSize(NULL, at.size)
        buffer = <uint8_t*>PyBytes_AS_STRING(data)
        with nogil:
            got = file_read(found.fd, buffer, at.size, at.position)
            segment_unref(found)
        if got != at.size:
            raise OSError(-got if got < 0 else EIO, "cannot read the batch")
        return data

    # ---- segments ----

    def prepare_segment(self):
        """Makes the next segment's file, if none waits, so that the next roll only renames it. The answer to SEGMENT_WANTED."""
        cdef SegmentState* segment
        cdef vector[Waiter] woken
        cdef string path
        if self.state.prepared != NULL:
            wake_changed(self.state, False)
            return
        fd, name = self.storage.prepare_segment()
        path = name.encode()
        segment = segment_new(0, fd, path, string(), self.state.config.segment_index_bytes, False, wall_clock_ms())
        with nogil:
            lock_settled(self.state)
            if self.state.prepared == NULL and not self.state.own.closed and not self.state.deleted:
                self.state.prepared = segment
                segment = NULL
            self.state.own.segment_wanted = False
            take_waiters_locked(self.state, False, &woken)
            pthread_mutex_unlock(&self.state.mutex)
            fire(&woken)
        if segment != NULL:
            # Another thread was faster, or the log is closed: this file is not needed.
            segment_unref(segment)
            if name:
                self.storage.remove_file(name.rpartition("/")[2])

    def roll(self):
        """Closes the active segment and starts a new one at the log end, unless the active one is empty. True when it rolled."""
        cdef SegmentState* active
        cdef bint rolled = False, again = True
        cdef int failure = 0
        while again:
            self.prepare_segment()
            with nogil:
                lock_settled(self.state)
                active = active_segment(self.state)
                again = False
                if self.state.offline_errno or self.state.own.closed or self.state.deleted:
                    failure = self.state.offline_errno
                elif active == NULL or active.size > 0:
                    again = self.state.prepared == NULL
                    if not again:
                        failure = switch_segment_locked(self.state, self.state.log_end_offset, wall_clock_ms())
                        rolled = failure == 0
                pthread_mutex_unlock(&self.state.mutex)
        if failure:
            raise OSError(failure, strerror(failure).decode())
        wake_changed(self.state, False)
        return rolled

    # ---- shortening, flushing, closing ----

    def truncate_to(self, int64_t offset):
        """A follower drops what its leader does not have: from the batch that holds `offset` on. True when something was dropped.

        The producer state and the files follow. OSError, then the log is offline.
        """
        cdef vector[int64_t] removed
        cdef int64_t before = self.log_end_offset
        cdef int failure
        if offset >= before:
            return False
        if offset <= self.log_start_offset:
            self.truncate_fully_and_start_at(offset)
            return True
        with nogil:
            failure = truncate_log(self.state, offset, &removed)
        if failure:
            raise OSError(failure, strerror(failure).decode(), self.storage.directory)
        self.storage.delete_segments(list(removed), delay_ms=0)
        self.write_leader_epochs()
        self.reload_producers()
        return True

    def truncate_fully_and_start_at(self, int64_t offset):
        """Drops everything; the log goes on, empty, at `offset`."""
        cdef vector[int64_t] removed
        cdef int failure
        self.prepare_segment()
        with nogil:
            empty_log(self.state, offset, &removed)
        try:
            self.storage.delete_segments(list(removed), delay_ms=0)
            for name in self.storage.names():
                if name.endswith(".snapshot"):
                    self.storage.remove_file(name)
        finally:
            with nogil:
                resume_appends(self.state)
        self.roll()
        self.write_leader_epochs()

    def reload_producers(self):
        """The producer state anew from snapshots and batches; snapshots above the log end are removed."""
        from kafkapy._speedups.log_loading import rebuild_producers

        self.write_rolled_snapshots()
        end = self.log_end_offset
        snapshots = []
        for name in self.storage.names():
            stem, dot, suffix = name.partition(".")
            if suffix == "snapshot" and stem.isdigit():
                if int(stem) > end:
                    self.storage.remove_file(name)
                else:
                    data = self.storage.read_file(name)
                    if data is not None:
                        snapshots.append((int(stem), data))
        rebuild_producers(self, snapshots, wall_clock_ms())

    def delete_records(self, int64_t offset):
        """Moves the log start up to `offset` (-1: the high watermark) and returns it. Segments below go with the next retention run.

        OffsetOutOfRangeError above the high watermark or for another negative number.
        """
        cdef int error
        cdef int64_t epochs = self.state.own.epochs_version
        if offset < 0:
            if offset != -1:
                raise error_for(ERROR_OFFSET_OUT_OF_RANGE)
            offset = self.high_watermark
        with nogil:
            error = advance_log_start(self.state, offset)
        if error:
            raise error_for(error)
        if self.state.own.epochs_version != epochs:
            self.write_leader_epochs()
        return self.log_start_offset

    def delete_segments_below(self, int64_t offset):
        """Removes closed segments that end at or below `offset`, which is kept at or below the high watermark. Their base offsets."""
        cdef vector[int64_t] removed
        offset = min(offset, self.high_watermark)
        with nogil:
            remove_segments_below(self.state, offset, &removed)
        bases = list(removed)
        if bases:
            self.storage.delete_segments(bases, delay_ms=self.config.file_delete_delay_ms)
            self.write_leader_epochs()
        return bases

    def flush(self):
        """Syncs everything up to the log end and moves the recovery point there; returns it. OSError, then the log is offline."""
        cdef int failure
        if self.storage.directory:
            with nogil:
                failure = flush_log(self.state)
            if failure:
                raise OSError(failure, strerror(failure).decode(), self.storage.directory)
        return self.recovery_point

    def seal_segments(self):
        """Cuts the indexes of closed segments to size and writes the snapshots taken at their end: the answer to SEGMENT_ROLLED."""
        cdef int failure
        with nogil:
            failure = seal_closed_segments(self.state)
        if failure:
            raise OSError(failure, strerror(failure).decode(), self.storage.directory)
        self.write_rolled_snapshots()

    def aborted_transactions(self, int64_t start=0, int64_t end=0x7FFFFFFFFFFFFFFF):
        """(producer id, first offset, last offset, last stable offset) of transactions whose abort marker is in [start, end)."""
        cdef vector[CompletedTransaction] copy
        cdef size_t i
        with nogil:
            pthread_mutex_lock(&self.state.mutex)
            copy = self.state.own.history.aborted
            pthread_mutex_unlock(&self.state.mutex)
        return [(copy[i].producer_id, copy[i].first_offset, copy[i].last_offset, copy[i].last_stable_offset)
                for i in range(copy.size()) if start <= copy[i].last_offset < end]

    def producers(self):
        """What is known of each producer, as dicts (DescribeProducers)."""
        cdef unordered_map[int64_t, ProducerEntry] copy
        cdef unordered_map[int64_t, ProducerEntry].iterator at
        with nogil:
            pthread_mutex_lock(&self.state.mutex)
            copy = self.state.own.history.producers.producers
            pthread_mutex_unlock(&self.state.mutex)
        found = []
        at = copy.begin()
        while at != copy.end():
            found.append(producer_dict(&deref(at).second))
            inc(at)
        return found

    def expire_producers(self, int64_t now_ms):
        """Forgets producers idle for producer.id.expiration.ms without an open transaction; how many."""
        cdef int32_t count
        with nogil:
            pthread_mutex_lock(&self.state.mutex)
            count = producer_expire(self.state.own.history.producers, now_ms)
            pthread_mutex_unlock(&self.state.mutex)
        return count

    def take_producer_snapshot(self):
        """Writes `<log end>.snapshot`, unless one of that offset was written; its offset, or None."""
        cdef ByteBuffer buffer
        cdef int64_t offset
        cdef bint taken = False
        if not self.storage.directory:
            return None
        self.write_rolled_snapshots()
        buffer_init(&buffer)
        with nogil:
            pthread_mutex_lock(&self.state.mutex)
            offset = self.state.log_end_offset
            if offset > self.state.own.history.producers.snapshot_offset:
                producer_snapshot_write(self.state.own.history.producers, &buffer)
                self.state.own.history.producers.snapshot_offset = offset
                taken = not buffer.error
            pthread_mutex_unlock(&self.state.mutex)
        try:
            if taken:
                self.storage.write_file(f"{offset:020d}.snapshot", PyBytes_FromStringAndSize(<char*>buffer.data, buffer.size), sync=False)
        finally:
            buffer_free(&buffer)
        return offset if taken else None

    def write_rolled_snapshots(self):
        """Writes the producer snapshots that rolls have left."""
        cdef vector[ProducerSnapshot] taken
        cdef size_t i
        with nogil:
            pthread_mutex_lock(&self.state.mutex)
            taken.swap(self.state.own.snapshots)
            pthread_mutex_unlock(&self.state.mutex)
        for i in range(taken.size()):
            self.storage.write_file(f"{taken[i].offset:020d}.snapshot", <bytes>taken[i].data, sync=False)

    def go_offline(self, int failure):
        """The log directory has failed: every operation answers KAFKA_STORAGE_ERROR from here."""
        cdef vector[Waiter] woken
        with nogil:
            pthread_mutex_lock(&self.state.mutex)
            set_offline_locked(self.state, failure, "the log directory is offline")
            take_waiters_locked(self.state, True, &woken)
            pthread_mutex_unlock(&self.state.mutex)
            fire(&woken)

    def mark_deleted(self):
        """The partition is deleted: requests are answered NOT_LEADER_OR_FOLLOWER. Files are the log manager's business."""
        cdef vector[Waiter] woken
        with nogil:
            lock_settled(self.state)
            self.state.deleted = True
            self.state.leader = False
            take_waiters_locked(self.state, True, &woken)
            pthread_mutex_unlock(&self.state.mutex)
            fire(&woken)

    def close(self):
        """Clean end: nothing is taken any more, indexes are cut to size, a waiting segment is removed. Does not sync; see flush. OSError."""
        cdef vector[Waiter] woken
        cdef vector[SegmentState*] held
        cdef SegmentState* prepared
        cdef size_t i
        cdef int failure = 0
        with nogil:
            lock_settled(self.state)
            self.state.own.closed = True
            self.state.leader = False
            prepared = self.state.prepared
            self.state.prepared = NULL
            take_waiters_locked(self.state, True, &woken)
            pthread_mutex_unlock(&self.state.mutex)
            fire(&woken)
        if prepared != NULL:
            if not prepared.path.empty():
                self.storage.remove_file((<bytes>prepared.path).decode().rpartition("/")[2])
            segment_unref(prepared)
        with nogil:
            self.hold_segments(&held)
            for i in range(held.size()):
                if failure == 0 and not self.state.deleted and not self.state.offline_errno:
                    failure = segment_trim(held[i]) if i + 1 == held.size() else segment_seal(held[i], False)
                segment_unref(held[i])
        if failure:
            raise OSError(failure, strerror(failure).decode(), self.storage.directory)
