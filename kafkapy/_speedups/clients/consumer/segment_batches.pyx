"""SegmentBatches: record batches from a partition's segment files, for readers beside the broker that owns the files.

    .log        batches as produced, one behind the other (format in records/record_batch.pxd)
    .txnindex   entries of 34 bytes: int16 version 0 | int64 producer id | int64 first offset | int64 last offset |
                int64 last stable offset

A read takes whole batches up to an offset that is replicated (high watermark) or decided (last stable offset), as the
caller knows, and makes a FetchedPartition of them, as if a broker had sent them. The offsets of aborted transactions
come from .txnindex, so their records are skipped whether or not the marker still exists.

Files are read by pread into memory of this process, never mapped: a truncated file ends early and kills no process.
"""

from libc.errno cimport EINTR, errno
from libc.stdint cimport uint8_t
from libc.stdlib cimport free, malloc
from libcpp.algorithm cimport sort

from kafkapy._speedups.base.spare_memory cimport spare_give, spare_take
from kafkapy._speedups.base.wire cimport Cursor, cursor_init, read_int16, read_int64, remaining
from kafkapy._speedups.clients.consumer.consumer_record cimport RecordMemory, memory_of
from kafkapy._speedups.clients.consumer.fetched_batch cimport FETCHED_CLOSED, FETCHED_READY, FetchedBatch
from kafkapy._speedups.clients.consumer.fetched_batches cimport batches_scan
from kafkapy._speedups.clients.consumer.fetched_partition cimport FetchedPartition, PartitionData, partition_data_new
from kafkapy._speedups.records.file_records cimport SCAN_END, SCAN_FOUND, BatchPosition, ScanStatus, scan_for_offset
from kafkapy._speedups.records.record_batch cimport (
    BATCH_BAD_MAGIC,
    BATCH_HEADER_SIZE,
    BATCH_INCOMPLETE,
    BATCH_OK,
    CONTROL_FLAG,
    MAGIC_V2,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    BatchStatus,
    batch_header_parse,
)

import os

cdef extern from "<unistd.h>" nogil:
    ssize_t pread(int fd, void* data, size_t size, int64_t position)

cdef enum:
    ABORTED_ENTRY_SIZE = 34
    OPENED_BYTES = 8388608      # of compressed batches opened at a time; the others are opened at their turn

MORE = <int>SEGMENT_MORE
DONE = <int>SEGMENT_DONE
END = <int>SEGMENT_END
OLD = <int>SEGMENT_OLD
BAD = <int>SEGMENT_BAD


cdef bint span_before(const AbortedSpan& a, const AbortedSpan& b) noexcept nogil:
    return a.first_offset < b.first_offset if a.producer_id == b.producer_id else a.producer_id < b.producer_id


cdef int64_t read_at(int fd, uint8_t* data, int64_t size, int64_t position) noexcept nogil:
    """Returns the bytes read, fewer only at the end of the file; or minus an errno."""
    cdef int64_t done = 0
    cdef ssize_t n
    while done < size:
        n = pread(fd, data + done, <size_t>(size - done), position + done)
        if n < 0:
            if errno == EINTR:
                continue
            return -errno
        if n == 0:
            break
        done += n
    return done


cdef int64_t whole_batches(const uint8_t* data, int64_t size, int64_t end_offset, SegmentStatus* status,
                           int64_t* wanted) noexcept nogil:
    """Returns the bytes of the whole batches that begin below end_offset. `wanted`: bytes of the incomplete batch
    behind them (or of its header), else 0."""
    cdef BatchHeader header
    cdef BatchStatus found
    cdef int64_t at = 0
    status[0] = SEGMENT_MORE
    wanted[0] = 0
    while at < size:
        found = batch_header_parse(data + at, size - at, &header)
        if found == BATCH_BAD_MAGIC and 0 <= header.magic < MAGIC_V2:
            status[0] = SEGMENT_OLD
            break
        if found == BATCH_INCOMPLETE:
            wanted[0] = max(<int64_t>header.size, <int64_t>BATCH_HEADER_SIZE)
            break
        if found != BATCH_OK:
            status[0] = SEGMENT_BAD
            break
        if header.base_offset >= end_offset:
            status[0] = SEGMENT_DONE
            break
        at += header.size
    return at


cdef class SegmentBatches:
    """Reads a partition's batches below end_offset. One thread at a time uses it.

    aborted: the contents of its .txnindex files, for a reader of committed records only. ValueError for malformed
    contents. check_crcs: whether a wrong CRC is an error, which the FetchedPartition raises at the batch.
    """

    def __cinit__(self, str topic not None, int32_t partition, int64_t end_offset, bytes aborted=b"",
                  bint check_crcs=True):
        cdef Cursor c
        cdef AbortedSpan span
        self.aborted = new vector[AbortedSpan]()
        self.topic = topic
        self.partition = partition
        self.end_offset = end_offset
        self.check_crcs = check_crcs
        cursor_init(&c, <const uint8_t*>aborted, len(aborted))
        while remaining(&c) >= ABORTED_ENTRY_SIZE:
            if read_int16(&c) != 0:
                raise ValueError("a transaction index is of a version that is not known")
            span.producer_id = read_int64(&c)
            span.first_offset = read_int64(&c)
            span.last_offset = read_int64(&c)
            read_int64(&c)
            if not 0 <= span.first_offset <= span.last_offset:
                raise ValueError("a transaction index has a transaction that ends before it begins")
            self.aborted.push_back(span)
        if remaining(&c):
            raise ValueError("a transaction index ends within an entry")
        sort(self.aborted.begin(), self.aborted.end(), span_before)

    def __dealloc__(self):
        del self.aborted

    cdef bint is_aborted(self, int64_t producer_id, int64_t offset) noexcept nogil:
        """Whether the batch is aborted, by the last transaction of the producer that begins at or below the offset."""
        cdef size_t low = 0, high = self.aborted.size(), middle
        cdef AbortedSpan* span
        while low < high:
            middle = (low + high) // 2
            span = &self.aborted[0][middle]
            if span.producer_id < producer_id or span.producer_id == producer_id and span.first_offset <= offset:
                low = middle + 1
            else:
                high = middle
        if low == 0:
            return False
        span = &self.aborted[0][low - 1]
        return span.producer_id == producer_id and offset <= span.last_offset

    def find(self, int fd, int64_t position, int64_t offset):
        """Walks over headers from a batch's position to the first batch that has the offset or a later one; returns its
        position. The file's end without such a batch; `position` where the walk meets bytes that are no batch of
        format v2. OSError."""
        cdef BatchPosition found
        cdef ScanStatus status
        cdef int64_t limit = os.fstat(fd).st_size
        if position < 0:
            raise ValueError(f"there is no position {position}")
        with nogil:
            status = scan_for_offset(fd, position, limit, offset, &found)
        if status == SCAN_FOUND:
            return found.position
        return limit if status == SCAN_END else position

    def read(self, int fd, int64_t position, int64_t max_bytes, int64_t start_offset):
        """Reads batches from a position on: (FetchedPartition started at start_offset; end of the batches; MORE, DONE,
        END, OLD or BAD). None for the partition without a whole batch. Reads about max_bytes at most, but a larger
        batch as a whole. OSError, MemoryError.

        BAD and OLD describe the bytes behind these batches. END: the file ends there, or within the next batch.
        """
        cdef PartitionData* data
        cdef FetchedPartition partition
        cdef RecordMemory memory
        cdef FetchedBatch* batch
        cdef uint8_t* raw
        cdef SegmentStatus status = SEGMENT_MORE
        cdef int64_t size, used, wanted = 0
        cdef int64_t budget = OPENED_BYTES
        cdef size_t i
        if position < 0 or max_bytes < BATCH_HEADER_SIZE:
            raise ValueError(f"nothing can be read at {position} by {max_bytes} bytes")
        while True:
            raw = spare_take(max_bytes)
            if raw == NULL:
                raw = <uint8_t*>malloc(max_bytes)
            if raw == NULL:
                raise MemoryError(f"there is no memory for {max_bytes} bytes of a segment")
            with nogil:
                size = read_at(fd, raw, max_bytes, position)
                used = whole_batches(raw, size, self.end_offset, &status, &wanted) if size > 0 else 0
            if size < 0:
                free(raw)
                raise OSError(<int>-size, "a segment cannot be read")
            if size < max_bytes and status == SEGMENT_MORE:
                status = SEGMENT_END
            if used > 0 or status != SEGMENT_MORE:
                break
            # The batch is larger than the read, or its bytes claim that.
            spare_give(raw)
            if position + wanted > os.fstat(fd).st_size:
                return None, position, <int>SEGMENT_END
            max_bytes = wanted
        if used == 0:
            spare_give(raw)
            return None, position, <int>status
        memory = memory_of(raw)
        data = partition_data_new()
        data.partition = self.partition
        data.record_bytes = used
        with nogil:
            data.opened_bytes = batches_scan(raw, used, self.check_crcs, &budget, &data.batches, &data.slabs)
            for i in range(data.batches.size() if self.aborted.size() else 0):
                batch = &data.batches[i]
                if (
                    (batch.state == FETCHED_READY or batch.state == FETCHED_CLOSED)
                    and batch.attributes & TRANSACTIONAL_FLAG
                    and not batch.attributes & CONTROL_FLAG
                    and self.is_aborted(batch.producer_id, batch.base_offset)
                ):
                    # Like a batch that compaction has emptied.
                    batch.record_count = 0
                    batch.size = 0
                    batch.state = FETCHED_READY
        partition = FetchedPartition.__new__(FetchedPartition)
        partition.adopt(data, memory)
        partition.start(self.topic, start_offset, False, None, None)
        return partition, position + used, <int>status
