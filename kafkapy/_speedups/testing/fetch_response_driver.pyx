"""A driver of the follower's response reader: bytes that arrive in pieces, each piece in memory of exactly its size."""

from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from kafkapy._speedups.replica.fetch_response cimport (
    READ_DONE,
    READ_MALFORMED,
    READ_PARTITION,
    FetchedData,
    FetchResponseReader,
    ReadStatus,
    reader_init,
    reader_next,
)


def read_fetch_response(int version, bytes frame not None, int64_t piece=0x7FFFFFFF, int64_t max_records=1 << 30):
    """(correlation id, error code, session id, partitions) of a frame without its size; None when it is malformed.

    A partition is (topic name or id, index, error code, high watermark, log start, (epoch, end offset) or None,
    records). The reader gets `piece` more bytes at a time, and never a byte that it may not touch.
    """
    cdef FetchResponseReader* reader = new FetchResponseReader()
    cdef FetchedData data
    cdef ReadStatus status
    cdef const uint8_t* whole = <const uint8_t*><char*>frame
    cdef uint8_t* memory
    cdef int64_t start = 0, end = 0, size = len(frame), used = 0
    found = []
    reader_init(reader, version, max_records)
    try:
        while True:
            while end < size and end - start < reader.need:
                end = min(size, end + piece)
            memory = <uint8_t*>malloc(<size_t>(end - start) + (1 if end == start else 0))
            if memory == NULL:
                raise MemoryError
            memcpy(memory, whole + start, <size_t>(end - start))
            with nogil:
                status = reader_next(reader, memory, end - start, size - end, &used, &data)
            if status == READ_PARTITION:
                found.append((
                    <bytes>(reader.topic_id if version >= 13 else reader.topic), data.partition, data.error_code,
                    data.high_watermark, data.log_start_offset,
                    (data.diverging_epoch, data.diverging_end_offset) if data.diverges else None,
                    <bytes>(<char*>data.records)[:data.size] if data.size else b"",
                ))
            free(memory)
            start += used
            if status == READ_MALFORMED:
                return None
            if status == READ_DONE:
                return reader.correlation_id, reader.error_code, reader.session_id, found
    finally:
        del reader
