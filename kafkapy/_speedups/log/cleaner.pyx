"""One cleaning of one log (see cleaner.pxd)."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory
from cython.operator cimport dereference as deref, preincrement as inc
from libc.errno cimport EIO, ENOMEM
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset, strerror
from libcpp.string cimport string
from libcpp.unordered_map cimport unordered_map
from libcpp.vector cimport vector

from kafkapy._speedups.base.posix cimport atomic_load, atomic_store, file_read, pthread_mutex_lock, pthread_mutex_unlock
from kafkapy._speedups.base.seeded_hash cimport SeededHash
from kafkapy._speedups.base.wire cimport Cursor, buffer_free, buffer_init, cursor_init, extend, remaining, write_raw
from kafkapy._speedups.log.cleaned_transactions cimport (
    transactions_on_batch,
    transactions_on_control,
    transactions_start,
)
from kafkapy._speedups.log.cleaner_throttle cimport CleanerThrottle, throttle
from kafkapy._speedups.log.index cimport offset_index_append, offset_index_lookup, time_index_append
from kafkapy._speedups.log.layout cimport LogState
from kafkapy._speedups.log.offset_map cimport OffsetMap, offset_map_put, offset_map_reset
from kafkapy._speedups.log.partition_log cimport PartitionLog
from kafkapy._speedups.log.private cimport private_of
from kafkapy._speedups.log.producer_state cimport ControlMarker, ProducerEntry, control_marker_parse
from kafkapy._speedups.log.record_filter cimport (
    FilterVerdict,
    filter_empty,
    filter_header,
    filter_records,
    filter_write,
)
from kafkapy._speedups.log.segment cimport SegmentState, segment_open, segment_seal, segment_unref
from kafkapy._speedups.log.state cimport segment_stem
from kafkapy._speedups.log.swap cimport (
    cleaned_segment,
    final_name,
    let_close,
    still_current,
    swap_begin,
    swap_end,
    swap_pin,
)
from kafkapy._speedups.records.file_records cimport (
    SCAN_FOUND,
    BatchScan,
    file_append,
    legacy_check_crc,
    scan_next,
    scan_start,
)
from kafkapy._speedups.records.record_batch cimport (
    BATCH_HEADER_SIZE,
    BATCH_OK,
    CODEC_MASK,
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    MAGIC_AT,
    MIN_RECORD_SIZE,
    BatchHeader,
    RecordView,
    batch_check_crc,
    batch_header_parse,
    record_read,
)

from kafkapy.errors import CorruptMessageError

cdef extern from "<Python.h>":
    enum:
        PyBUF_READ

cdef enum:
    READ_PIECE = 1 << 20            # bytes read at once
    WRITE_PIECE = 1 << 20           # bytes gathered before a write

cdef enum WalkStatus:
    WALK_END = 0
    WALK_BATCH = 1
    WALK_CORRUPT = 2
    WALK_ERROR = 3                  # errno in `failure`
    WALK_STOPPED = 4
    WALK_FULL = 5                   # the map is full
    WALK_OVERFLOW = 6               # the segment would grow over 2 GiB


class CleaningStopped(Exception):
    """The cleaning ended without an effect: the broker stops, or the log was truncated or deleted."""


cdef class CleanedSegment:
    """A cleaned segment before its swap. Owns a reference; its file is open under a `.cleaned` name."""

    def __cinit__(self):
        self.segment = NULL

    def __dealloc__(self):
        segment_unref(self.segment)

    @property
    def base_offset(self):
        return self.segment.base_offset

    @property
    def size(self):
        """Bytes of the data file."""
        return self.segment.size

    def aborted_transactions(self):
        """(producer id, first offset, last offset, last stable offset) of each entry of its transaction index."""
        return [(self.retained[i].producer_id, self.retained[i].first_offset, self.retained[i].last_offset,
                 self.retained[i].last_stable_offset)
                for i in range(self.retained.size())]


cdef class LogCleaning:
    """The cleaning of one log. Owns references to the log's segments as they were at its start, and its buffers. One
    cleaner thread uses it; any thread may call `stop`.

    The order: build_map once, begin once, then clean and swap for each group of segments. A method that reads or writes
    files raises OSError, CorruptMessageError for malformed batches, and CleaningStopped.
    """

    def __cinit__(self, PartitionLog log not None, OffsetMap map not None, CleanerThrottle pace not None, *, compress,
                  decompress, upgrade):
        cdef LogState* state = log.state
        cdef unordered_map[int64_t, ProducerEntry, SeededHash].iterator at
        cdef LastRecord last
        cdef size_t i
        self.log = log
        self.map = map
        self.pace = pace
        self.compress = compress
        self.decompress = decompress
        self.upgrade = upgrade
        self.has_opened = False
        self.buffer = NULL
        self.capacity = 0
        self.stopped = 0
        memset(&self.figures, 0, sizeof(self.figures))
        buffer_init(&self.out)
        buffer_init(&self.scratch)
        self.rules.map = map.state
        self.rules.now_ms = 0
        self.rules.delete_retention_ms = 0
        log.hold_segments(&self.held)
        for i in range(self.held.size()):
            self.sizes.push_back(self.held[i].size)
        with nogil:
            pthread_mutex_lock(&state.mutex)
            self.aborted = private_of(state).history.aborted
            at = private_of(state).history.producers.producers.begin()
            while at != private_of(state).history.producers.producers.end():
                last.epoch = deref(at).second.epoch
                last.last_data_offset = -1
                if deref(at).second.count:
                    last.last_data_offset = deref(at).second.batches[deref(at).second.count - 1].last_offset
                self.producers[deref(at).first] = last
                inc(at)
            pthread_mutex_unlock(&state.mutex)

    def __init__(self, log, map, pace, *, compress, decompress, upgrade):
        pass

    def __dealloc__(self):
        cdef size_t i
        if self.has_opened:
            PyBuffer_Release(&self.opened_view)
        for i in range(self.held.size()):
            segment_unref(self.held[i])
        free(self.buffer)
        buffer_free(&self.out)
        buffer_free(&self.scratch)

    def segments(self):
        """(base offset, size, offset index bytes, time index bytes, max timestamp ms, created ms) of each segment; the
        active one is last."""
        found = []
        for i in range(self.held.size()):
            s = self.held[i]
            if s != NULL:
                found.append((s.base_offset, s.size,
                              8 * (s.offset_index.file.entries + <int64_t>s.offset_index.file.pending.size()),
                              12 * (s.time_index.file.entries + <int64_t>s.time_index.file.pending.size()),
                              s.max_timestamp, s.created_ms))
        return found

    def stop(self):
        """Ends the cleaning with CleaningStopped at its next step."""
        atomic_store(&self.stopped, 1)


    def stats(self):
        """Bytes and records that the cleaning has read, written and dropped so far."""
        return <dict>self.figures

    def is_current(self):
        """Whether the log still has all segments that wait for their swap, unchanged."""
        cdef vector[SegmentState*] left
        cdef vector[int64_t] sizes
        cdef bint same
        cdef size_t i
        for i in range(self.held.size() - 1 if self.held.size() else 0):
            if self.held[i] != NULL:
                left.push_back(self.held[i])
                sizes.push_back(self.sizes[i])
        if left.empty():
            return True
        with nogil:
            same = still_current(self.log.state, &left, &sizes)
        return bool(same)

    # ---- reading ----

    cdef int start_reading(self, SegmentState* segment, int64_t offset) noexcept nogil:
        """Starts at the batch that holds `offset`, or a little before. A WalkStatus."""
        cdef int fd = segment_open(segment)
        if fd < 0:
            self.failure = -fd
            return WALK_ERROR
        self.fd = fd
        self.position = offset_index_lookup(segment.offset_index, offset) if offset > segment.base_offset else 0
        self.limit = segment.size
        self.buffer_start = 0
        self.buffer_size = 0
        return WALK_BATCH

    cdef int next_batch(self, BatchHeader* header, const uint8_t** data) except -1 nogil:
        """Returns the next whole batch, its checksum checked; the bytes are valid until the next call. A WalkStatus."""
        cdef int64_t have, wanted, got
        cdef uint8_t* larger
        if self.position >= self.limit:
            return WALK_END
        while True:
            have = self.buffer_start + self.buffer_size - self.position
            if self.position >= self.buffer_start and (have >= BATCH_HEADER_SIZE
                                                       or (have > MAGIC_AT and have == self.limit - self.position)):
                data[0] = self.buffer + (self.position - self.buffer_start)
                batch_header_parse(data[0], have, header)
                if header.size == 0 or not 0 <= header.magic <= 2 or header.size > self.limit - self.position:
                    return WALK_CORRUPT
                if header.size <= have:
                    if header.magic < 2:
                        if not legacy_check_crc(data[0], header.size):
                            return WALK_CORRUPT
                        self.position += header.size
                        return self.upgrade_message(header, data)
                    if batch_check_crc(data[0], header.size) != BATCH_OK:
                        return WALK_CORRUPT
                    self.position += header.size
                    return WALK_BATCH
                wanted = header.size if header.size > READ_PIECE else READ_PIECE
            else:
                wanted = READ_PIECE
            if atomic_load(&self.stopped) or atomic_load(&self.pace.state.stopped):
                return WALK_STOPPED
            if wanted > self.limit - self.position:
                wanted = self.limit - self.position
            if wanted <= MAGIC_AT:
                return WALK_CORRUPT
            if wanted > self.capacity:
                larger = <uint8_t*>realloc(self.buffer, <size_t>(wanted if wanted > READ_PIECE else READ_PIECE))
                if larger == NULL:
                    self.failure = ENOMEM
                    return WALK_ERROR
                self.buffer = larger
                self.capacity = wanted if wanted > READ_PIECE else READ_PIECE
            got = file_read(self.fd, self.buffer, wanted, self.position)
            if got != wanted:
                self.failure = <int>-got if got < 0 else EIO
                return WALK_ERROR
            self.buffer_start = self.position
            self.buffer_size = got
            throttle(self.pace.state, got, &self.stopped)

    cdef int upgrade_message(self, BatchHeader* header, const uint8_t** data) except -1 with gil:
        """Converts a message of format v0 or v1 (whole, its checksum right) to a batch in its place. A WalkStatus."""
        self.upgraded = self.upgrade(PyMemoryView_FromMemory(<char*>data[0], header.size, PyBUF_READ))
        data[0] = <const uint8_t*>PyBytes_AS_STRING(self.upgraded)
        if batch_header_parse(data[0], PyBytes_GET_SIZE(self.upgraded), header) != BATCH_OK:
            return WALK_CORRUPT
        return WALK_BATCH

    cdef int open_payload(self, const uint8_t* data, const BatchHeader* header, const uint8_t** payload,
                          int64_t* size) except -1 with gil:
        """Opens the records of a compressed batch, until close_payload."""
        cdef int codec = header.attributes & CODEC_MASK
        source = PyMemoryView_FromMemory(<char*>(data + BATCH_HEADER_SIZE), header.size - BATCH_HEADER_SIZE, PyBUF_READ)
        self.opened = self.decompress(codec, source)
        PyObject_GetBuffer(self.opened, &self.opened_view, PyBUF_SIMPLE)
        self.has_opened = True
        payload[0] = <const uint8_t*>self.opened_view.buf
        size[0] = self.opened_view.len
        return 0

    cdef int close_payload(self) except -1 with gil:
        if self.has_opened:
            PyBuffer_Release(&self.opened_view)
            self.has_opened = False
            self.opened = None
        return 0

    cdef int pack_scratch(self, int codec) except -1 with gil:
        """Compresses `scratch` onto the end of `out`."""
        cdef bytes packed
        source = PyMemoryView_FromMemory(<char*>self.scratch.data, <Py_ssize_t>self.scratch.size, PyBUF_READ)
        packed = self.compress(codec, source)
        write_raw(&self.out, PyBytes_AS_STRING(packed), <size_t>PyBytes_GET_SIZE(packed))
        return 0

    cdef object fail(self, int status, SegmentState* segment):
        """Raises the error of a WalkStatus."""
        cdef bint has_path = segment != NULL and not segment.path.empty()
        cdef str name = (<bytes>segment.path).decode() if has_path else repr(self.log)
        if status == WALK_STOPPED:
            raise CleaningStopped(f"the cleaning of {self.log.topic}-{self.log.partition} was stopped")
        if status == WALK_ERROR:
            raise OSError(self.failure, strerror(self.failure).decode(), name)
        if status == WALK_OVERFLOW:
            raise CorruptMessageError(f"{name} would be larger than 2 GiB with delete horizons, "
                                      "or as batches of format v2")
        raise CorruptMessageError(f"{name}: the bytes at position {self.position} are no sound record batch")

    # ---- the map ----

    def build_map(self, int64_t start, int64_t end):
        """Reads the segments in [start, end) into the map, until it is full. Returns the offset up to which the log may
        be cleaned.

        `end` is the base offset of the first segment that the cleaning leaves alone.
        """
        cdef SegmentState* s = NULL
        cdef BatchHeader header
        cdef BatchScan scan
        cdef const uint8_t* data
        cdef int64_t records = 0, last, read_from
        cdef size_t i
        cdef int status = WALK_BATCH, result
        transactions_start(&self.transactions, &self.aborted, start)
        with nogil:
            for i in range(self.held.size() - 1 if self.held.size() else 0):
                s = self.held[i]
                if s.base_offset < end and self.held[i + 1].base_offset > start and s.size > 0 and segment_open(s) >= 0:
                    scan_start(&scan, s.fd, 0, s.size)
                    while scan_next(&scan) == SCAN_FOUND:
                        if scan.header.base_offset + scan.header.last_offset_delta >= start:
                            # The number of records in a message of format v0 or v1 is unknown: it is at most the number
                            # of bytes.
                            records += scan.header.record_count if scan.header.magic == 2 else scan.header.size
                    let_close(self.log.state, s)
            if offset_map_reset(self.map.state, records):
                self.failure = ENOMEM
                status = WALK_ERROR
            i = 0
            while i + 1 < self.held.size() and status != WALK_FULL and status != WALK_ERROR:
                s = self.held[i]
                if s.base_offset >= end:
                    break
                i += 1
                if self.held[i].base_offset <= start:
                    continue
                if s.size > 0:
                    status = self.start_reading(s, start)
                    while status == WALK_BATCH:
                        read_from = self.position
                        status = self.next_batch(&header, &data)
                        if status == WALK_BATCH:
                            self.figures.map_bytes_read += self.position - read_from
                            last = header.base_offset + header.last_offset_delta
                            result = self.map_batch(&header, data, start)
                            if result != WALK_BATCH:
                                status = result
                            elif last >= start:
                                self.map.state.latest_offset = last
                    let_close(self.log.state, s)
                    if status != WALK_END:
                        break
                # The map covers the segment to its end, also where compaction has left a hole.
                if self.held[i].base_offset - 1 > self.map.state.latest_offset:
                    self.map.state.latest_offset = self.held[i].base_offset - 1
        if status == WALK_FULL:
            if self.map.state.latest_offset < start:
                raise CorruptMessageError(f"the map of {self.map.state.limit} keys is too small for one batch of "
                                          f"{self.log}: log.cleaner.dedupe.buffer.size has to be larger")
        elif status == WALK_CORRUPT or status == WALK_ERROR or status == WALK_STOPPED:
            self.fail(status, s)
        return self.map.state.latest_offset + 1 if self.map.state.latest_offset >= start else start

    cdef int map_batch(self, const BatchHeader* header, const uint8_t* data, int64_t start) except -1 nogil:
        cdef ControlMarker marker
        cdef const uint8_t* payload = data + BATCH_HEADER_SIZE
        cdef int64_t size = header.size - BATCH_HEADER_SIZE
        cdef Cursor c
        cdef RecordView record
        cdef int32_t i
        cdef int status = WALK_BATCH
        self.figures.map_records_read += header.record_count
        if header.attributes & CONTROL_FLAG:
            if not control_marker_parse(data, header.size, header, &marker):
                return WALK_CORRUPT
            transactions_on_control(&self.transactions, header, &marker)
            return WALK_BATCH
        if transactions_on_batch(&self.transactions, header) or header.record_count == 0:
            return WALK_BATCH
        if header.attributes & CODEC_MASK:
            self.open_payload(data, header, &payload, &size)
        cursor_init(&c, payload, size)
        if header.record_count < 0 or header.record_count > remaining(&c) // MIN_RECORD_SIZE:
            status = WALK_CORRUPT
        i = 0
        while status == WALK_BATCH and i < header.record_count:
            i += 1
            if record_read(&c, &record) != BATCH_OK:
                status = WALK_CORRUPT
            elif record.key_size >= 0 and header.base_offset + record.offset_delta >= start:
                if not offset_map_put(self.map.state, record.key, record.key_size,
                                      header.base_offset + record.offset_delta):
                    status = WALK_FULL
        if header.attributes & CODEC_MASK:
            self.close_payload()
        return status

    # ---- writing ----

    def begin(self, int64_t now_ms, int64_t delete_retention_ms):
        """Starts the writing after build_map; `now_ms` is the time for all that follows."""
        self.rules.now_ms = now_ms
        self.rules.delete_retention_ms = delete_retention_ms
        transactions_start(&self.transactions, &self.aborted, self.held[0].base_offset if self.held.size() else 0)

    cdef bint last_of_producer(self, const BatchHeader* header, bint control) noexcept nogil:
        """Whether this batch holds the last sequence of a producer that may go on."""
        cdef unordered_map[int64_t, LastRecord].iterator found
        if header.producer_id < 0:
            return False
        found = self.producers.find(header.producer_id)
        if found == self.producers.end():
            return False
        if deref(found).second.last_data_offset >= 0:
            return header.base_offset + header.last_offset_delta == deref(found).second.last_data_offset
        return control and header.producer_epoch == deref(found).second.epoch

    cdef int clean_batch(self, const BatchHeader* header, const uint8_t* data, int64_t* max_timestamp) except -1 nogil:
        """Puts the remaining records of the batch onto `out`. A WalkStatus."""
        cdef ControlMarker marker
        cdef FilterVerdict verdict
        cdef const uint8_t* payload = data + BATCH_HEADER_SIZE
        cdef int64_t size = header.size - BATCH_HEADER_SIZE
        cdef bint control = (header.attributes & CONTROL_FLAG) != 0, served = False, discard
        cdef bint compressed = (header.attributes & CODEC_MASK) != 0
        cdef size_t at = self.out.size
        cdef int codec = header.attributes & CODEC_MASK
        cdef int status = WALK_BATCH
        verdict.kept = 0
        verdict.as_is = False
        max_timestamp[0] = header.max_timestamp
        if control:
            if not control_marker_parse(data, header.size, header, &marker):
                return WALK_CORRUPT
            served = transactions_on_control(&self.transactions, header, &marker)
            discard = served and header.attributes & DELETE_HORIZON_FLAG and header.base_timestamp <= self.rules.now_ms
        else:
            discard = transactions_on_batch(&self.transactions, header)
        if not discard and header.record_count != 0:
            if compressed:
                self.open_payload(data, header, &payload, &size)
            if filter_records(payload, size, header, &self.rules, False, served, &self.keep, &verdict) != BATCH_OK:
                status = WALK_CORRUPT
            self.figures.records_without_key += verdict.without_key if status == WALK_BATCH else 0
        if status == WALK_BATCH:
            if verdict.kept == 0:
                if self.last_of_producer(header, control):
                    filter_empty(&self.out, header)
                else:
                    self.figures.batches_dropped += 1
            elif verdict.as_is:
                write_raw(&self.out, data, <size_t>header.size)
            else:
                max_timestamp[0] = verdict.max_timestamp
                extend(&self.out, BATCH_HEADER_SIZE)
                if compressed:
                    self.scratch.size = 0
                    filter_write(&self.scratch, payload, size, header, &self.keep, &verdict)
                    self.pack_scratch(codec)
                else:
                    filter_write(&self.out, payload, size, header, &self.keep, &verdict)
                if not self.out.error and not self.scratch.error:
                    filter_header(self.out.data + at, header, &verdict,
                                  <int64_t>(self.out.size - at) - BATCH_HEADER_SIZE)
        if self.has_opened:
            self.close_payload()
        if self.out.error or self.scratch.error:
            self.failure = ENOMEM
            return WALK_ERROR
        self.figures.records_written += verdict.kept
        return status

    cdef int write_segment(self, size_t first, size_t count, SegmentState* fresh) except -1 nogil:
        cdef BatchHeader header
        cdef const uint8_t* data
        cdef int64_t last, max_timestamp, since = 0, position, read_from
        cdef size_t i, before
        cdef int32_t interval = self.log.state.config.index_interval_bytes
        cdef int status = WALK_BATCH
        self.out.size = 0
        for i in range(first, first + count):
            if self.held[i].size == 0:
                continue
            status = self.start_reading(self.held[i], 0)
            while status == WALK_BATCH:
                read_from = self.position
                status = self.next_batch(&header, &data)
                if status == WALK_BATCH:
                    self.figures.bytes_read += self.position - read_from
                    self.figures.records_read += header.record_count
                    before = self.out.size
                    status = self.clean_batch(&header, data, &max_timestamp)
                    if status != WALK_BATCH or self.out.size == before:
                        continue
                    last = header.base_offset + header.last_offset_delta
                    position = fresh.size + <int64_t>before
                    if fresh.size + <int64_t>self.out.size > INT32_MAX:
                        return WALK_OVERFLOW
                    if max_timestamp > fresh.max_timestamp:
                        fresh.max_timestamp = max_timestamp
                        fresh.offset_of_max_timestamp = last
                    if position == 0:
                        fresh.first_batch_timestamp = max_timestamp
                    if since > interval:
                        offset_index_append(fresh.offset_index, last, position)
                        time_index_append(fresh.time_index, fresh.max_timestamp, fresh.offset_of_max_timestamp, False)
                        since = 0
                    since += <int64_t>(self.out.size - before)
                    if self.out.size >= WRITE_PIECE:
                        status = self.write_out(fresh)
            let_close(self.log.state, self.held[i])
            if status != WALK_END:
                return status
        status = self.write_out(fresh)
        if status == WALK_BATCH:
            self.failure = segment_seal(fresh, True)
            if self.failure == 0:
                self.failure = swap_pin(fresh)
            if self.failure:
                status = WALK_ERROR
        return status

    cdef int write_out(self, SegmentState* fresh) noexcept nogil:
        cdef int64_t size = <int64_t>self.out.size
        if size:
            self.failure = file_append(fresh.fd, self.out.data, size, fresh.size)
            if self.failure:
                return WALK_ERROR
            fresh.size += size
            self.out.size = 0
            self.figures.bytes_written += size
            throttle(self.pace.state, size, &self.stopped)
        return WALK_BATCH

    def clean(self, int64_t first, int64_t count, int fd, str path):
        """Writes the segments [first, first + count) as one into the open file `fd` and syncs it. Takes over `fd`;
        `path` is its name or "".

        Writes its indexes beside it as .index.cleaned and .timeindex.cleaned.
        """
        cdef CleanedSegment cleaned = CleanedSegment()
        cdef string name = path.encode(), stem
        cdef SegmentState* source
        cdef int status
        if first < 0 or count < 1 or first + count >= <int64_t>self.held.size():
            raise ValueError(f"{first} to {first + count} are not closed segments")
        source = self.held[<size_t>first]
        stem = segment_stem(private_of(self.log.state).directory, source.base_offset)
        cleaned.segment = cleaned_segment(source.base_offset, fd, name, stem, self.log.state.config.segment_index_bytes,
                                          self.held[<size_t>(first + count - 1)].created_ms)
        self.transactions.retained.clear()
        with nogil:
            status = self.write_segment(<size_t>first, <size_t>count, cleaned.segment)
        if status != WALK_BATCH and status != WALK_END:
            self.fail(status, source)
        final_name(cleaned.segment, stem)
        cleaned.retained = self.transactions.retained
        return cleaned

    def swap(self, int64_t first, int64_t count, CleanedSegment cleaned not None):
        """Puts the cleaned segment into the log; False when the old segments have left the log. After True, the caller
        must call end_swap."""
        cdef vector[SegmentState*] replaced
        cdef bint done = True
        cdef int failure = 0
        cdef int64_t i
        for i in range(first, first + count):
            replaced.push_back(self.held[<size_t>i])
        with nogil:
            for i in range(<int64_t>replaced.size()):
                if failure == 0:
                    failure = swap_pin(replaced[<size_t>i])
            if failure == 0:
                done = swap_begin(self.log.state, &replaced, cleaned.segment, &cleaned.retained)
        if failure:
            raise OSError(failure, strerror(failure).decode(), (<bytes>self.held[<size_t>first].path).decode())
        if done:
            for i in range(first, first + count):
                segment_unref(self.held[<size_t>i])
                self.held[<size_t>i] = NULL
        return bool(done)

    def end_swap(self):
        """Ends the swap after the renames: rolls, truncation and deletion may go on."""
        with nogil:
            swap_end(self.log.state)
