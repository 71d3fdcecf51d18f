"""Batches of a partition log as bytes objects (see log_bytes.pxd). The GIL is given up before the mutex is taken or a file is read."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.errno cimport EIO
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free
from libc.string cimport strerror
from libcpp.vector cimport vector

from kafkapy._speedups.file_records cimport SCAN_FOUND, BatchPosition, file_read
from kafkapy._speedups.log_append cimport append_batches
from kafkapy._speedups.log_describe cimport hold_segments
from kafkapy._speedups.log_read cimport read_batches
from kafkapy._speedups.log_state cimport ERROR_UNSUPPORTED_COMPRESSION_TYPE
from kafkapy._speedups.partition_log cimport (
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
from kafkapy._speedups.posix cimport pthread_mutex_lock, pthread_mutex_unlock
from kafkapy._speedups.segment cimport SegmentState, segment_find_timestamp, segment_ref, segment_unref

from kafkapy.errors import error_for


cdef object append_bytes(LogState* log, bytes batches, const AppendOptions* options, int origin):
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
    with nogil:
        status = append_batches(log, data, size, options, NULL, origin, &result)
    if status == LOG_PARK_SEGMENT:
        return None
    if status == LOG_PARK_VALIDATE:     # LOG_PARK_VERIFY is for the data plane's produces only
        raise error_for(ERROR_UNSUPPORTED_COMPRESSION_TYPE, "the records have to be validated or converted first")
    if status == LOG_REFUSED:
        problems = [(result.record_errors[i].batch_index, result.record_errors[i].problem) for i in range(result.record_error_count)]
        free(result.record_errors)
        error = error_for(result.error, result.message.decode() if result.message != NULL else None)
        error.record_errors = problems
        raise error
    return result.base_offset, result.last_offset, result.log_append_time_ms


cdef tuple read_bytes(LogState* log, int64_t offset, int32_t max_bytes, bint min_one_batch, int isolation, bint leader_only):
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


cdef object find_timestamp_bytes(LogState* log, int64_t timestamp, int64_t end_offset):
    cdef vector[SegmentState*] held
    cdef SegmentState* found = NULL
    cdef BatchPosition at
    cdef int64_t start, limit, got
    cdef size_t i
    cdef uint8_t* buffer
    with nogil:
        pthread_mutex_lock(&log.mutex)
        start = log.log_start_offset
        limit = log.log_end_offset if end_offset < 0 else end_offset
        pthread_mutex_unlock(&log.mutex)
        hold_segments(log, &held)
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
