"""The partition log: the data plane's functions and the control plane's `PartitionLog` (see partition_log.pxd).

The work is done in append.pyx, read.pyx, cut.pyx, files.pyx, state.pyx (shared inside) and loading.pyx (start-up);
describe.pyx and raw_batches.pyx make the objects that Python asks for.
"""

from libc.errno cimport EAGAIN, EIO, EMFILE, ENFILE, ENOBUFS, ENOMEM
from libc.stdint cimport int8_t, int16_t, int32_t
from libc.string cimport memcpy, strerror
from libcpp.string cimport string

from kafkapy._speedups.base.error_codes cimport ERROR_KAFKA_STORAGE_ERROR, ERROR_OFFSET_OUT_OF_RANGE
from kafkapy._speedups.base.event_queue cimport EventQueue
from kafkapy._speedups.base.posix cimport (
    atomic_add,
    atomic_load,
    pthread_mutex_lock,
    pthread_mutex_unlock,
    wall_clock_ms,
)
from kafkapy._speedups.log.background cimport flush_work, make_segment_work
from kafkapy._speedups.log.cut cimport advance_log_start, flush_if_due
from kafkapy._speedups.log.derived cimport (
    usable_snapshots,
    write_snapshot,
    write_snapshots_of_rolls,
    write_transaction_indexes,
)
from kafkapy._speedups.log.describe cimport (
    describe_aborted,
    describe_counters,
    describe_producers,
    describe_segments,
    hold_segments,
)
from kafkapy._speedups.log.files cimport (
    close_files,
    delete_closed_segments,
    make_segment_ready,
    release_space,
    roll_segment,
    seal_files,
    sync_files,
    truncate,
    truncate_fully,
)
from kafkapy._speedups.log.layout cimport READ_LOG_END, LogConfigState, Waiter
from kafkapy._speedups.log.private cimport private_of
from kafkapy._speedups.log.producer_state cimport ORIGIN_CLIENT, ORIGIN_COORDINATOR, ORIGIN_REPLICATION, producer_expire
from kafkapy._speedups.log.raw_batches cimport append_bytes, find_timestamp_bytes, newest_record_timestamp, read_bytes
from kafkapy._speedups.log.segment cimport segment_detach, segment_ref, segment_unref
from kafkapy._speedups.log.state cimport advance_high_watermark_locked, fire, log_new, log_unref, take_waiters_locked
from kafkapy._speedups.log.turns cimport lock_settled
from kafkapy._speedups.log.workers cimport LogWorkers, LogWorkersState, log_workers_ref, log_workers_unref

from kafkapy.errors import error_for
from kafkapy.types import CompressionType

# Failures that do not mean a broken disk (is_shortage in base/posix.pxd).
NOT_THE_DISK = frozenset((EMFILE, ENFILE, ENOMEM, EAGAIN, ENOBUFS))

CODECS = {"producer": -1, "uncompressed": 0, **{codec.config_name: codec.value for codec in CompressionType}}


cdef int64_t next_log_id = 0


cdef class PartitionLog(ReplicatedLog):
    """The control plane's log of one partition. Owns one reference to the state that the data plane shares.

    LogManager makes it and `kafkapy/log/loader.py` fills it. Any thread may call any method; each method releases the
    GIL before it takes the mutex. `storage` is a kafkapy.log.backends.base.LogStorage, which names, makes and removes
    files without the mutex. Offsets are Kafka's; times are ms since the epoch.
    """

    def __cinit__(self, str topic, int partition, object storage, object config, *, EventQueue events=None,
                  bytes topic_id=bytes(16), int64_t producer_id_expiration_ms=86_400_000):
        cdef string directory = storage.directory.encode()
        global next_log_id
        if len(topic_id) != 16:
            raise ValueError(f"a topic id has 16 bytes, not {len(topic_id)}")
        self.state = log_new(atomic_add(&next_log_id, 1), topic.encode(), partition, directory,
                             producer_id_expiration_ms)
        memcpy(self.state.topic_id, <const char*>topic_id, 16)
        if events is not None:
            self.state.events = events.state
        self.events = events
        self.storage = storage
        private_of(self.state).native_segments = getattr(storage, "native_segments", False)
        self.update_config(config)

    def __dealloc__(self):
        if self.state != NULL:
            with nogil:
                log_unref(self.state)

    def __repr__(self):
        return f"<PartitionLog {self.topic}-{self.partition} [{self.log_start_offset}, {self.log_end_offset})>"

    # ---- identity and state ----

    @property
    def id(self):
        """The handle of this log in events."""
        return self.state.id

    @property
    def topic(self):
        return self.state.topic.decode()

    @property
    def partition(self):
        return self.state.partition

    @property
    def topic_id(self):
        """The topic id, 16 bytes; all zero when it is unknown."""
        return self.state.topic_id[:16]

    @topic_id.setter
    def topic_id(self, bytes value):
        if len(value) != 16:
            raise ValueError(f"a topic id has 16 bytes, not {len(value)}")
        memcpy(self.state.topic_id, <const char*>value, 16)

    # The getter reads one offset without the mutex: the control loop must not wait for an append that holds the mutex
    # while a disk stalls.

    @property
    def log_start_offset(self):
        return atomic_load(&self.state.log_start_offset)

    @property
    def log_end_offset(self):
        return atomic_load(&self.state.log_end_offset)

    @property
    def high_watermark(self):
        return atomic_load(&self.state.high_watermark)

    @property
    def last_stable_offset(self):
        return atomic_load(&self.state.last_stable_offset)

    @property
    def recovery_point(self):
        """The recovery point: all records below it are synced to disk."""
        return self.offsets()[4]

    def offsets(self):
        """(log start, log end, high watermark, last stable offset, recovery point) at one moment."""
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
    def offline_errno(self):
        """0, or the errno of the failure that took the log offline."""
        cdef int error
        with nogil:
            pthread_mutex_lock(&self.state.mutex)
            error = self.state.offline_errno
            pthread_mutex_unlock(&self.state.mutex)
        return error

    @property
    def unflushed_messages(self):
        """Messages appended since the last flush."""
        return private_of(self.state).unflushed_messages

    @property
    def size(self):
        """Bytes of all segments."""
        return sum(segment[1] for segment in self.segments())

    def segments(self):
        """(base offset, size in bytes, max timestamp in ms or -1, created ms, sealed) of each segment, oldest first."""
        return describe_segments(self.state)

    cdef void hold_segments(self, vector[SegmentState*]* out) noexcept nogil:
        hold_segments(self.state, out)

    def counters(self):
        """The log's counters as a dict; read without a lock, so not exactly of one moment."""
        return describe_counters(&self.state.counters)

    # ---- configuration ----

    def use_workers(self, LogWorkers segments not None, LogWorkers flushes not None, LogWorkers appends=None):
        """Sets the threads that make the log's segments, if its storage has `native_segments`, and that sync for
        flush.messages; `appends` runs the coordinators' appends (LogAppender)."""
        cdef LogWorkersState* old_segments
        cdef LogWorkersState* old_flushes
        self.append_workers = appends
        with nogil:
            log_workers_ref(segments.state)
            log_workers_ref(flushes.state)
            pthread_mutex_lock(&self.state.mutex)
            old_segments = private_of(self.state).segment_workers
            old_flushes = private_of(self.state).flush_workers
            private_of(self.state).segment_workers = segments.state
            private_of(self.state).flush_workers = flushes.state
            private_of(self.state).make_segment = make_segment_work
            private_of(self.state).flush = flush_work
            pthread_mutex_unlock(&self.state.mutex)
            log_workers_unref(old_segments)
            log_workers_unref(old_flushes)

    def update_config(self, object config):
        """Applies a LogConfig (attributes named like Kafka's topic keys, dots as underscores)."""
        cdef LogConfigState c
        cdef vector[Waiter] woken
        c.max_message_bytes = config.max_message_bytes
        c.segment_bytes = config.segment_bytes
        c.segment_ms = config.segment_ms
        if "compact" in config.cleanup_policy:
            # The cleaner can clean closed segments only (LogConfig.maxSegmentMs, KIP-354).
            c.segment_ms = min(config.segment_ms, config.max_compaction_lag_ms)
        c.segment_jitter_ms = config.segment_jitter_ms
        c.index_interval_bytes = config.index_interval_bytes
        c.segment_index_bytes = config.segment_index_bytes
        c.compression_codec = CODECS[config.compression_type]
        c.log_append_time = config.message_timestamp_type == "LogAppendTime"
        c.compacted = "compact" in config.cleanup_policy
        c.validate_compressed = getattr(config, "kafkapy_validate_compressed", "") == "full"
        c.timestamp_before_max_ms = config.timestamp_before_max_ms
        c.timestamp_after_max_ms = config.timestamp_after_max_ms
        c.min_in_sync_replicas = self.effective_min_in_sync(config)
        c.flush_messages = config.flush_messages
        with nogil:
            pthread_mutex_lock(&self.state.mutex)
            self.state.config = c
            # A lower min.insync.replicas may let it move.
            advance_high_watermark_locked(self.state)
            take_waiters_locked(self.state, False, &woken)
            pthread_mutex_unlock(&self.state.mutex)
            fire(&woken)
        self.config = config

    # ---- append and read ----

    def append_as_leader(self, bytes batches, *, int required_acks=1, int leader_epoch=-1, int api_version=-1,
                         bint validated=True, int64_t now_ms=-1):
        """Appends whole batches; returns (base offset, last offset, log append time in ms or -1).

        api_version -1 (coordinators) allows several batches and control batches; 0 and above applies the rules of
        Produce. Raises the KafkaError with the code that a client would get. Makes the next segment itself when one is
        due.
        """
        cdef AppendOptions options
        options.required_acks = <int8_t>required_acks
        options.api_version = <int16_t>api_version
        options.validated = validated
        options.checked = False
        options.work = NULL
        options.current_leader_epoch = leader_epoch
        options.now_ms = now_ms if now_ms >= 0 else wall_clock_ms()
        options.verify = False
        options.adds_partitions = False
        options.guard = 0
        return self.append(batches, &options, ORIGIN_CLIENT if api_version >= 0 else ORIGIN_COORDINATOR)

    def append_as_follower(self, bytes batches, *, int leader_epoch=-1):
        """Appends a leader's batches with their offsets and epochs; returns (base offset, last offset, -1).

        `leader_epoch`: the followed epoch, FENCED_LEADER_EPOCH in another one; -1: not checked.
        """
        cdef AppendOptions options
        cdef int64_t epochs
        options.required_acks = 1
        options.api_version = -1
        options.validated = True
        options.checked = False
        options.work = NULL
        options.current_leader_epoch = leader_epoch
        options.now_ms = wall_clock_ms()
        options.verify = False
        options.adds_partitions = False
        options.guard = 0
        epochs = self.epochs_version()
        appended = self.append(batches, &options, ORIGIN_REPLICATION)
        if self.epochs_version() != epochs:
            self.write_leader_epochs()
        return appended

    cdef object append(self, bytes batches, const AppendOptions* options, int origin):
        cdef int failure
        while True:
            appended = append_bytes(self.state, batches, options, origin)
            if appended is not None:
                with nogil:
                    failure = flush_if_due(self.state)
                if failure:
                    raise error_for(ERROR_KAFKA_STORAGE_ERROR)
                return appended
            try:
                self.prepare_segment()
            except OSError as error:
                if error.errno not in NOT_THE_DISK:
                    self.go_offline(error.errno or EIO)
                raise error_for(ERROR_KAFKA_STORAGE_ERROR, f"{self.storage.directory}: {error.strerror}") from error
            with nogil:
                # The segment may exist already, and a truncation or a move holds appends back.
                lock_settled(self.state)
                pthread_mutex_unlock(&self.state.mutex)

    def read(self, int64_t offset, int max_bytes=1 << 20, *, bint min_one_batch=True, int isolation=READ_LOG_END,
             bint leader_only=False):
        """Whole or cut batches from `offset` on: (bytes, high watermark, last stable offset, log start offset,
        aborted).

        `isolation`: 0 up to the high watermark, 1 up to the last stable offset, 2 up to the log end. `aborted` is a
        list of (producer id, first offset), or None unless isolation is 1. Raises OffsetOutOfRangeError,
        NotLeaderOrFollowerError, KafkaStorageError.
        """
        return read_bytes(self.state, offset, max_bytes, min_one_batch, isolation, leader_only)

    def find_timestamp(self, int64_t timestamp, int64_t end_offset=-1, int64_t start_offset=-1):
        """The first batch of records at or above the log start whose max timestamp is at least `timestamp` (ms): its
        bytes, or None.

        The caller finds the record (kafkapy.log.timestamps), because the batch may be compressed. `end_offset`: only
        offsets below it count; `start_offset`: only batches that reach it.
        """
        return find_timestamp_bytes(self.state, timestamp, end_offset, start_offset)

    def newest_record_timestamp(self):
        """The highest timestamp (ms) of the records, -1 without any. Transaction markers do not count; segments()
        counts them, as Kafka does for retention."""
        cdef int64_t newest
        with nogil:
            newest = newest_record_timestamp(self.state)
        return newest

    # ---- segments ----

    def prepare_segment(self):
        """Makes the next segment's file, if none is ready, so that the next roll only renames it. Answers
        SEGMENT_WANTED. OSError."""
        make_segment_ready(self)

    def roll(self):
        """Closes the active segment and starts a new one at the log end, unless the active one is empty. True when it
        rolled."""
        return roll_segment(self)

    # ---- shortening, flushing, closing ----

    def truncate_to(self, int64_t offset, *, int leader_epoch=-1):
        """Drops all records from the batch that holds `offset` on, for a follower that follows its leader's log. True
        when it dropped something.

        Updates the producer state and the files; leader epochs that begin at or above `offset` go in any case.
        `leader_epoch`: the followed one, FENCED_LEADER_EPOCH when the log leads or follows another one; -1: not
        checked. OSError, then the log is offline.
        """
        return truncate(self, offset, leader_epoch)

    def truncate_fully_and_start_at(self, int64_t offset, *, int leader_epoch=-1):
        """Empties the log, which goes on at `offset`. OSError; if files were already changed, the log is offline.
        `leader_epoch` as in truncate_to."""
        truncate_fully(self, offset, leader_epoch)

    def reload_producers(self, bint truncating=False):
        """Rebuilds the producer state from snapshots and batches; removes snapshots above the log end. `truncating`: a
        truncation holds back appends."""
        from kafkapy._speedups.log.loading import rebuild_producers

        self.write_rolled_snapshots()
        rebuild_producers(self, usable_snapshots(self.storage, self.log_end_offset), wall_clock_ms(), truncating)

    def delete_records(self, int64_t offset):
        """Moves the log start up to `offset` (-1: the high watermark) and returns it. The next retention run removes
        the segments below.

        OffsetOutOfRangeError above the high watermark or for another negative number.
        """
        cdef int error
        cdef int64_t epochs = self.epochs_version()
        if offset < 0:
            if offset != -1:
                raise error_for(ERROR_OFFSET_OUT_OF_RANGE)
            offset = self.high_watermark
        with nogil:
            error = advance_log_start(self.state, offset)
        if error:
            raise error_for(error)
        if self.epochs_version() != epochs:
            self.write_leader_epochs()
        return self.log_start_offset

    def delete_segments_below(self, int64_t offset):
        """Removes closed segments that end at or below `offset` and the high watermark. Returns their base offsets.

        OSError, then the log is offline: a later deletion would leave a hole.
        """
        return delete_closed_segments(self, offset)

    def flush(self):
        """Syncs the log up to its end and moves the recovery point there; returns it. OSError, then the log is offline.

        After a crash, recovery reads nothing below the recovery point. So flush first writes data derived from there,
        leader epochs first of all, to disk.
        """
        sync_files(self)
        return self.recovery_point

    def flush_due(self):
        """Syncs the messages that flush.messages made due, and wakes the appends that wait for the sync. Answers
        FLUSH_WANTED. OSError, then the log is offline. The recovery point stays."""
        cdef int failure
        with nogil:
            failure = flush_if_due(self.state)
        if failure:
            raise OSError(failure, strerror(failure).decode(), self.storage.directory)

    def seal_segments(self):
        """Cuts the indexes of closed segments to size and writes the snapshots of their ends. Answers SEGMENT_ROLLED.
        OSError."""
        seal_files(self)

    def release_idle_space(self):
        """Gives back the disk space that the active segment holds ahead of appends, when it has not grown since the
        last call. OSError, then the log is offline."""
        release_space(self)

    def aborted_transactions(self, int64_t start=0, int64_t end=0x7FFFFFFFFFFFFFFF):
        """(producer id, first offset, last offset, last stable offset) of transactions whose abort marker is in [start,
        end)."""
        return describe_aborted(self.state, start, end)

    def producers(self):
        """The state of each producer, as dicts (DescribeProducers)."""
        return describe_producers(self.state)

    @property
    def producer_id_expiration_ms(self):
        """producer.id.expiration.ms: the life of an idle producer's state."""
        cdef int64_t expiration_ms
        with nogil:
            # A truncation replaces this state.
            pthread_mutex_lock(&self.state.mutex)
            expiration_ms = private_of(self.state).history.producers.expiration_ms
            pthread_mutex_unlock(&self.state.mutex)
        return expiration_ms

    @producer_id_expiration_ms.setter
    def producer_id_expiration_ms(self, int64_t value):
        with nogil:
            pthread_mutex_lock(&self.state.mutex)
            private_of(self.state).history.producers.expiration_ms = value
            pthread_mutex_unlock(&self.state.mutex)

    def expire_producers(self, int64_t now_ms):
        """Forgets producers idle for producer.id.expiration.ms without an open transaction; returns their number."""
        cdef int32_t count
        with nogil:
            pthread_mutex_lock(&self.state.mutex)
            count = producer_expire(private_of(self.state).history.producers, now_ms)
            pthread_mutex_unlock(&self.state.mutex)
        return count

    def rewrite_transaction_indexes(self, int64_t first_base):
        """Writes the known aborted transactions into the .txnindex of segments from `first_base` on, after a truncation
        or recovery. OSError."""
        if self.storage.directory:
            write_transaction_indexes(self.state, self.storage, first_base)

    def take_producer_snapshot(self):
        """Writes `<log end>.snapshot`, unless that snapshot exists; returns its offset, or None."""
        if not self.storage.directory:
            return None
        self.write_rolled_snapshots()
        return write_snapshot(self.state, self.storage)

    def write_rolled_snapshots(self):
        """Writes the producer snapshots of past rolls."""
        write_snapshots_of_rolls(self.state, self.storage)

    def mark_deleted(self):
        """Marks the partition as deleted: requests get NOT_LEADER_OR_FOLLOWER. The log manager removes the files."""
        cdef vector[Waiter] woken
        cdef vector[SegmentState*] held
        cdef size_t i
        with nogil:
            lock_settled(self.state)
            self.state.deleted = True
            self.state.leader = False
            private_of(self.state).unwritten.clear()
            take_waiters_locked(self.state, True, &woken)
            held = self.state.segments
            for i in range(held.size()):
                segment_ref(held[i])
            pthread_mutex_unlock(&self.state.mutex)
            fire(&woken)
            for i in range(held.size()):
                # A new topic may get the name, and with it these paths.
                segment_detach(held[i], 2)
                segment_unref(held[i])

    def close(self):
        """Closes the log cleanly: ends appends, cuts indexes to size, removes a prepared segment. Does not sync; see
        flush. OSError."""
        close_files(self)
