"""Copying a log into its future log, and the swap of the two (see future_log.pxd). One thread moves one log."""

from libc.errno cimport EAGAIN, EIO, ENOMEM
from libc.stdint cimport int16_t, int64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset, strerror
from libcpp.string cimport string
from libcpp.vector cimport vector

from kafkapy._speedups.base.error_codes cimport (
    ERROR_CORRUPT_MESSAGE,
    ERROR_KAFKA_STORAGE_ERROR,
    ERROR_NOT_LEADER_OR_FOLLOWER,
    ERROR_OFFSET_OUT_OF_RANGE,
)
from kafkapy._speedups.base.posix cimport (
    atomic_load,
    atomic_store,
    file_read,
    pthread_mutex_lock,
    pthread_mutex_unlock,
    wall_clock_ms,
)
from kafkapy._speedups.log.append cimport append_batches
from kafkapy._speedups.log.cleaner_throttle cimport throttle
from kafkapy._speedups.log.cut cimport resume_appends
from kafkapy._speedups.log.layout cimport (
    LOG_APPENDED,
    LOG_PARK_SEGMENT,
    READ_LOG_END,
    WAIT_SEGMENT,
    AppendOptions,
    AppendResult,
    AppendStatus,
    ReadResult,
    Waiter,
)
from kafkapy._speedups.log.legacy cimport LEGACY_APPENDED, LEGACY_WAITS, LegacyStatus, append_legacy
from kafkapy._speedups.log.open_files cimport MOVED_REFERENCES, close_taken, take_files_locked
from kafkapy._speedups.log.private cimport private_of
from kafkapy._speedups.log.producer_state cimport ORIGIN_REPLICATION
from kafkapy._speedups.log.read cimport read_batches
from kafkapy._speedups.log.segment cimport segment_detach, segment_ref, segment_unref
from kafkapy._speedups.log.state cimport (
    fire,
    forget_batches_locked,
    segment_stem,
    take_waiters_locked,
    want_flush_locked,
    want_segment_locked,
)
from kafkapy._speedups.log.swap cimport final_name
from kafkapy._speedups.log.transaction_index cimport write_aborted_transactions
from kafkapy._speedups.log.turns cimport lock_settled
from kafkapy._speedups.records.moved_directories cimport directory_moved, directory_moves
from kafkapy._speedups.records.record_batch cimport (
    BATCH_BAD_MAGIC,
    BATCH_OK,
    BatchHeader,
    BatchStatus,
    batch_header_parse,
)

cdef enum:
    PIECE = 1 << 20                 # bytes read at once
    NO_LIMIT = 0x7FFFFFFFFFFFFFFF

CAUGHT_UP = COPY_CAUGHT_UP
MORE = COPY_MORE
NEEDS_SEGMENT = COPY_NEEDS_SEGMENT
OUT_OF_RANGE = COPY_OUT_OF_RANGE
MISALIGNED = COPY_MISALIGNED
ENDED = COPY_ENDED
CORRUPT = COPY_CORRUPT
FAILED = COPY_FAILED
HOLE = COPY_HOLE


cdef class FutureLogCopy:
    """The copy of one log into its future log. Owns a buffer; one thread uses it, but any thread may call `stop`."""

    def __cinit__(self, PartitionLog log not None, PartitionLog future not None, CleanerThrottle pace not None):
        self.log = log
        self.future = future
        self.pace = pace
        self.stopped = 0
        self.buffer = NULL
        self.capacity = 0
        self.swapping = False

    def __dealloc__(self):
        free(self.buffer)

    def stop(self):
        """Ends the running `copy` at its next step, and all later ones. Any thread."""
        atomic_store(&self.stopped, 1)

    def copy(self, int64_t max_bytes):
        """Copies missing batches to the future log, about `max_bytes` at most: (outcome, bytes copied, offset).

        The offset is the future log's new start with MISALIGNED, its new end with HOLE. OSError when the current log
        cannot be read.
        """
        cdef int64_t copied = 0
        cdef int outcome
        with nogil:
            outcome = self.catch_up(max_bytes, True, &copied)
        if outcome == COPY_FAILED:
            raise OSError(self.failure, strerror(self.failure).decode(), self.log.storage.directory)
        return outcome, copied, self.offset

    def skip_hole(self, int64_t offset):
        """Moves the end of the future log to `offset`, over a hole: a new segment begins there. OSError."""
        cdef LogState* future = self.future.state
        if self.future.size == 0:
            self.future.truncate_fully_and_start_at(offset)
            return
        with nogil:
            lock_settled(future)
            if future.log_end_offset < offset:
                future.log_end_offset = offset
            pthread_mutex_unlock(&future.mutex)
        self.future.roll()

    def begin_swap(self):
        """Holds back changes of the log and copies the rest. True: this thread must call `end_swap` or `cancel_swap`.

        False without a change when the two logs cannot meet now. OSError when a file cannot be read or opened.
        """
        cdef int64_t copied = 0
        cdef int outcome = COPY_ENDED, failure = 0
        cdef size_t i
        cdef LogState* log = self.log.state
        with nogil:
            # Flushes and truncation take this lock first and then wait until the log is settled, so the order here must
            # be the same.
            pthread_mutex_lock(&private_of(log).sealing)
            lock_settled(log)
            if private_of(log).closed or log.deleted or log.offline_errno:
                pthread_mutex_unlock(&log.mutex)
                pthread_mutex_unlock(&private_of(log).sealing)
            else:
                self.swapping = True
                private_of(log).rolling = True
                pthread_mutex_unlock(&log.mutex)
                outcome = self.catch_up(NO_LIMIT, False, &copied)
                if outcome == COPY_CAUGHT_UP:
                    # A finished append may still be on its way to the transaction index, and needs the directory.
                    failure = write_aborted_transactions(log)
                elif outcome == COPY_FAILED:
                    failure = self.failure
                if outcome == COPY_CAUGHT_UP and failure == 0:
                    pthread_mutex_lock(&log.mutex)
                    self.replaced = log.segments
                    for i in range(self.replaced.size()):
                        segment_ref(self.replaced[i])
                    pthread_mutex_unlock(&log.mutex)
                    # Readers go on during the renames.
                    self.moving = private_of(log).directory
                    failure = 0 if self.moving.empty() else directory_moves(self.moving)
                    if failure:
                        self.moving.clear()
                    elif not self.moving.empty():
                        pthread_mutex_lock(&log.mutex)
                        private_of(log).reopens = True
                        pthread_mutex_unlock(&log.mutex)
                if outcome != COPY_CAUGHT_UP or failure:
                    self.go_on()
        if failure:
            raise OSError(failure, strerror(failure).decode(), self.log.storage.directory)
        return outcome == COPY_CAUGHT_UP

    def end_swap(self, object storage):
        """Installs the future log's segments after the renames; `storage` becomes the log's. The future log is then
        empty and closed."""
        cdef LogState* log = self.log.state
        cdef LogState* future = self.future.state
        cdef vector[SegmentState*] segments
        cdef SegmentState* prepared
        cdef SegmentState* unused
        cdef vector[Waiter] woken
        cdef vector[int] taken
        cdef string directory = storage.directory.encode()
        cdef string path
        cdef size_t i
        if not self.swapping:
            raise RuntimeError("no swap has begun")
        self.log.storage = storage
        if future.prepared != NULL:
            path = directory + b"/" + (<bytes>future.prepared.path).rpartition(b"/")[2]
        with nogil:
            # Others may look at the future log, under its mutex.
            pthread_mutex_lock(&future.mutex)
            private_of(future).closed = True
            segments.swap(future.segments)
            prepared = future.prepared
            future.prepared = NULL
            pthread_mutex_unlock(&future.mutex)
            for i in range(segments.size()):
                final_name(segments[i], segment_stem(directory, segments[i].base_offset))
            if prepared != NULL:
                prepared.path = path
                prepared.records.path = path
            pthread_mutex_lock(&private_of(log).aborted_file)
            pthread_mutex_lock(&log.mutex)
            # Readers of the new segments may need as many descriptors.
            if private_of(log).reopens:
                take_files_locked(&log.segments, MOVED_REFERENCES, &taken)
            private_of(log).reopens = False
            log.segments.swap(segments)
            unused = log.prepared
            log.prepared = prepared
            private_of(log).directory = directory
            private_of(log).segment_wanted = False
            private_of(log).snapshots.swap(private_of(future).snapshots)
            # Snapshots of the old directory are void.
            private_of(log).history.producers.snapshot_offset = private_of(future).history.producers.snapshot_offset
            log.recovery_point = future.recovery_point
            private_of(log).flushed = future.recovery_point     # in these files
            if private_of(log).flush_due > private_of(log).flushed:
                # flush.messages was removed in between, so the move did not sync the offsets that produces and
                # consumers still wait for.
                private_of(log).unflushed_messages += private_of(log).flush_due - private_of(log).flushed
                want_flush_locked(log)
            forget_batches_locked(log, 0)
            private_of(log).rolling = False
            take_waiters_locked(log, False, &woken)
            for i in range(log.waiters.size()):
                if log.waiters[i].kind == WAIT_SEGMENT:
                    want_segment_locked(log)
            pthread_mutex_unlock(&log.mutex)
            pthread_mutex_unlock(&private_of(log).aborted_file)
            pthread_mutex_unlock(&private_of(log).sealing)
            close_taken(&taken)
            fire(&woken)
            self.swapping = False
            segment_unref(unused)
            self.release_replaced(MOVED_REFERENCES)
            for i in range(segments.size()):
                segment_unref(segments[i])

    def cancel_swap(self, object storage):
        """Ends a swap whose renames were undone; `storage` becomes the log's. Does nothing without a swap."""
        if self.swapping:
            self.log.storage = storage
            with nogil:
                self.go_on()

    cdef void go_on(self) noexcept nogil:
        self.swapping = False
        pthread_mutex_lock(&self.log.state.mutex)
        private_of(self.log.state).reopens = False
        pthread_mutex_unlock(&self.log.state.mutex)
        resume_appends(self.log.state)
        pthread_mutex_unlock(&private_of(self.log.state).sealing)
        self.release_replaced(0)

    cdef void release_replaced(self, int64_t own) noexcept nogil:
        """`own`: the number of references that are not readers', when the segments have left the log; else 0."""
        cdef size_t i
        for i in range(self.replaced.size()):
            if own:
                segment_detach(self.replaced[i], own)
            segment_unref(self.replaced[i])
        self.replaced.clear()
        if not self.moving.empty():
            directory_moved(self.moving)
            self.moving.clear()

    cdef int catch_up(self, int64_t max_bytes, bint paced, int64_t* copied) noexcept nogil:
        cdef int64_t piece
        cdef int outcome = COPY_MORE
        while outcome == COPY_MORE and copied[0] < max_bytes:
            piece = 0
            if atomic_load(&self.stopped):
                return COPY_ENDED
            outcome = self.copy_piece(max_bytes - copied[0], &piece)
            copied[0] += piece
            if paced and piece:
                throttle(self.pace.state, piece, &self.stopped)
        return outcome

    cdef int copy_piece(self, int64_t max_bytes, int64_t* copied) noexcept nogil:
        cdef LogState* log = self.log.state
        cdef LogState* future = self.future.state
        cdef ReadResult result
        cdef uint8_t* larger
        cdef int64_t end, start, got, wanted = PIECE
        pthread_mutex_lock(&future.mutex)
        end = future.log_end_offset
        if wanted > future.config.segment_bytes:
            wanted = future.config.segment_bytes
        pthread_mutex_unlock(&future.mutex)
        if wanted > max_bytes:
            wanted = max_bytes
        pthread_mutex_lock(&log.mutex)
        start = log.log_start_offset
        pthread_mutex_unlock(&log.mutex)
        # Batches below the log start need no copy; the batch that holds the start is copied whole.
        read_batches(log, end if end > start else start, <int>wanted, True, READ_LOG_END, -1, -1, False, &result)
        free(result.aborted)
        if result.error == ERROR_OFFSET_OUT_OF_RANGE:
            return COPY_OUT_OF_RANGE
        if result.error:
            if result.error == ERROR_KAFKA_STORAGE_ERROR and not log.offline_errno:
                self.failure = EAGAIN if result.shortage else EIO
                return COPY_FAILED
            return COPY_ENDED
        if result.segment == NULL:
            self.offset = result.log_end_offset
            return COPY_CAUGHT_UP if result.log_end_offset == end else COPY_HOLE
        if result.length > self.capacity:
            larger = <uint8_t*>realloc(self.buffer, <size_t>result.length)
            if larger == NULL:
                segment_unref(result.segment)
                self.failure = ENOMEM
                return COPY_FAILED
            self.buffer = larger
            self.capacity = result.length
        got = file_read(result.segment.fd, self.buffer, result.length, result.position)
        segment_unref(result.segment)
        if got < 0:
            self.failure = <int>-got
            return COPY_FAILED
        return self.put(got, end if end < start else -1, copied)

    cdef int put(self, int64_t size, int64_t expected, int64_t* copied) noexcept nogil:
        """Appends the whole batches of the buffer, in groups of about one index interval. The first batch must begin at
        `expected`, unless that is -1: a future log that ends below the log start starts again, so that its first
        segment has the name of its first batch."""
        cdef BatchHeader header
        cdef BatchStatus status
        cdef int64_t at = 0, group = 0, interval = self.future.state.config.index_interval_bytes
        cdef int outcome = COPY_MORE
        while at < size and outcome == COPY_MORE:
            status = batch_header_parse(self.buffer + at, size - at, &header)
            if (status != BATCH_OK and status != BATCH_BAD_MAGIC) or header.size > size - at:
                break
            if at == 0:
                self.offset = header.base_offset
                if expected >= 0 and header.base_offset != expected:
                    return COPY_MISALIGNED
            if status == BATCH_BAD_MAGIC:
                if not 0 <= header.magic <= 1:
                    return COPY_CORRUPT
                if at > group:
                    outcome = self.put_group(self.buffer + group, at - group)
                if outcome == COPY_MORE:
                    copied[0] = at
                    outcome = self.put_legacy(self.buffer + at, header.size)
                at += header.size
                group = at
            else:
                at += header.size
                if at - group >= interval:
                    outcome = self.put_group(self.buffer + group, at - group)
                    group = at
            if outcome == COPY_MORE and group == at:
                copied[0] = at
        if outcome == COPY_MORE and at > group:
            outcome = self.put_group(self.buffer + group, at - group)
            if outcome == COPY_MORE:
                copied[0] = at
        # A read returns the first batch whole, so the copy made progress unless the bytes are no batch.
        return COPY_CORRUPT if outcome == COPY_MORE and copied[0] == 0 else outcome

    cdef int put_group(self, uint8_t* data, int64_t size) noexcept nogil:
        cdef AppendOptions options
        cdef AppendResult result
        cdef AppendStatus status
        memset(&options, 0, sizeof(options))
        options.required_acks = 1
        options.api_version = -1
        options.validated = True
        options.checked = False
        options.work = NULL
        options.current_leader_epoch = -1
        options.now_ms = wall_clock_ms()
        status = append_batches(self.future.state, data, size, &options, NULL, ORIGIN_REPLICATION, &result)
        free(result.record_errors)
        if status == LOG_APPENDED:
            return COPY_MORE
        if status == LOG_PARK_SEGMENT:
            return COPY_NEEDS_SEGMENT
        if result.error == ERROR_OFFSET_OUT_OF_RANGE:
            return COPY_MISALIGNED
        if result.error == ERROR_KAFKA_STORAGE_ERROR and not self.future.state.offline_errno:
            self.failure = EAGAIN           # descriptors or memory were short
            return COPY_FAILED
        if result.error == ERROR_KAFKA_STORAGE_ERROR or result.error == ERROR_NOT_LEADER_OR_FOLLOWER:
            return COPY_ENDED
        return COPY_CORRUPT

    cdef int put_legacy(self, const uint8_t* data, int64_t size) noexcept nogil:
        """Appends a message of format v0 or v1, which an old Kafka wrote."""
        cdef int16_t error = 0
        cdef LegacyStatus status = append_legacy(self.future.state, data, size, -1, &error)
        if status == LEGACY_APPENDED:
            return COPY_MORE
        if status == LEGACY_WAITS:
            return COPY_NEEDS_SEGMENT
        if error == ERROR_OFFSET_OUT_OF_RANGE:
            return COPY_MISALIGNED
        if error == ERROR_KAFKA_STORAGE_ERROR and not self.future.state.offline_errno:
            self.failure = EAGAIN           # descriptors or memory were short
            return COPY_FAILED
        return COPY_CORRUPT if error == ERROR_CORRUPT_MESSAGE else COPY_ENDED
