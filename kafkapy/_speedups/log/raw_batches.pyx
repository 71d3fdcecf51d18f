"""Batches of a log as bytes objects (see raw_batches.pxd). Mutex and file reads come without the GIL."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.errno cimport EIO
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free
from libc.string cimport strerror
from libcpp.vector cimport vector

from kafkapy._speedups.base.error_codes cimport ERROR_UNSUPPORTED_COMPRESSION_TYPE
from kafkapy._speedups.base.posix cimport atomic_load, atomic_store, file_read, pthread_mutex_lock, pthread_mutex_unlock
from kafkapy._speedups.log.append cimport append_batches
from kafkapy._speedups.log.describe cimport hold_segments
from kafkapy._speedups.log.layout cimport (
    LOG_PARK_SEGMENT,
    LOG_PARK_VALIDATE,
    LOG_REFUSED,
    AppendOptions,
    AppendResult,
    AppendStatus,
    FetchIsolation,
    LogState,
    ReadResult,
)
from kafkapy._speedups.log.private cimport private_of
from kafkapy._speedups.log.read cimport read_batches
from kafkapy._speedups.log.segment cimport (
    NEWEST_NOT_KNOWN,
    SegmentState,
    segment_find_timestamp,
    segment_open,
    segment_ref,
    segment_unref,
)
from kafkapy._speedups.records.file_records cimport (
    SCAN_END,
    SCAN_FOUND,
    BatchPosition,
    BatchScan,
    ScanStatus,
    holds_records,
    scan_next,
    scan_start,
)

from kafkapy.errors import error_for

cdef enum:
    LOOKS = 8                       # at a segment that grows meanwhile


cdef object append_bytes(LogState* log, bytes batches, const AppendOptions* options, int origin):
    # The append patches offsets in place, so it works on a copy.
    cdef object copy = PyBytes_FromStringAndSize(PyBytes_AS_STRING(batches), len(batches))
    cdef uint8_t* data
    cdef int64_t size = len(batches)
    cdef AppendResult result
    cdef AppendStatus status
    if size <= 1:
        copy = bytearray(batches)       # the interpreter shares short bytes objects
        data = <uint8_t*>(<char*>copy)
    else:
        data = <uint8_t*>PyBytes_AS_STRING(copy)
    with nogil:
        status = append_batches(log, data, size, options, NULL, origin, &result)
    if status == LOG_PARK_SEGMENT:
        return None
    if status == LOG_PARK_VALIDATE:     # only the data plane's produces get LOG_PARK_VERIFY
        raise error_for(ERROR_UNSUPPORTED_COMPRESSION_TYPE, "the records have to be validated or converted first")
    if status == LOG_REFUSED:
        problems = [(result.record_errors[i].batch_index, result.record_errors[i].problem)
                    for i in range(result.record_error_count)]
        free(result.record_errors)
        error = error_for(result.error, result.message.decode() if result.message != NULL else None)
        error.record_errors = problems
        raise error
    return result.base_offset, result.last_offset, result.log_append_time_ms


cdef tuple read_bytes(LogState* log, int64_t offset, int32_t max_bytes, bint min_one_batch, int isolation,
                      bint leader_only):
    cdef ReadResult result
    cdef int64_t got = 0
    cdef uint8_t* at
    with nogil:
        read_batches(log, offset, max_bytes, min_one_batch, <FetchIsolation>isolation, -1, -1, leader_only, &result)
    if result.error:
        free(result.aborted)
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


cdef int64_t learn_newest_record(LogState* log, SegmentState* s) noexcept nogil:
    """Returns the highest timestamp of the segment's records, -1 without any. Reads the headers once; appends keep the
    value from then on."""
    cdef BatchScan scan
    cdef ScanStatus status
    cdef int64_t newest, size, truncations, walked = 0, known_truncations = -1, found = -1
    cdef int attempt
    for attempt in range(LOOKS):
        pthread_mutex_lock(&log.mutex)
        newest = atomic_load(&s.newest_record)
        size = s.size
        truncations = private_of(log).truncations
        if newest == NEWEST_NOT_KNOWN and size == walked and truncations == known_truncations:
            newest = found
            atomic_store(&s.newest_record, found)
        pthread_mutex_unlock(&log.mutex)
        if newest != NEWEST_NOT_KNOWN:
            return newest
        if truncations != known_truncations:
            walked = 0
            found = -1
            known_truncations = truncations
        if segment_open(s) < 0:
            return s.max_timestamp
        scan_start(&scan, s.fd, walked, size)
        status = scan_next(&scan)
        while status == SCAN_FOUND:
            if holds_records(&scan.header) and scan.header.max_timestamp > found:
                found = scan.header.max_timestamp
            status = scan_next(&scan)
        if status != SCAN_END:
            return s.max_timestamp      # an upper bound is no better than no value
        walked = size
    return found


cdef int64_t newest_record_timestamp(LogState* log) noexcept nogil:
    cdef vector[SegmentState*] held
    cdef BatchPosition at
    cdef int64_t newest = -1, candidate
    cdef size_t i
    hold_segments(log, &held)
    for i in range(held.size(), 0, -1):
        candidate = held[i - 1].max_timestamp       # includes markers
        if candidate > newest:
            if (atomic_load(&held[i - 1].newest_record) != NEWEST_NOT_KNOWN
                    or segment_find_timestamp(held[i - 1], candidate, 0, held[i - 1].size, &at) != SCAN_FOUND):
                candidate = learn_newest_record(log, held[i - 1])
            if candidate > newest:
                newest = candidate
        segment_unref(held[i - 1])
    return newest


cdef object find_timestamp_bytes(LogState* log, int64_t timestamp, int64_t end_offset, int64_t start_offset):
    cdef vector[SegmentState*] held
    cdef SegmentState* found = NULL
    cdef BatchPosition at
    cdef int64_t start, limit, newest, got
    cdef size_t i
    cdef uint8_t* buffer
    with nogil:
        pthread_mutex_lock(&log.mutex)
        start = log.log_start_offset
        limit = log.log_end_offset if end_offset < 0 else end_offset
        pthread_mutex_unlock(&log.mutex)
        if start_offset > start:
            start = start_offset
        hold_segments(log, &held)
        for i in range(held.size()):
            if found == NULL and held[i].max_timestamp >= timestamp and held[i].base_offset < limit:
                if i + 1 < held.size() and held[i + 1].base_offset <= start:
                    continue
                newest = atomic_load(&held[i].newest_record)
                if newest != NEWEST_NOT_KNOWN and newest < timestamp:
                    continue            # only markers are as young
                if segment_find_timestamp(held[i], timestamp, start, held[i].size, &at) != SCAN_FOUND:
                    learn_newest_record(log, held[i])       # the next look-up needs no walk
                elif at.base_offset < limit:
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
