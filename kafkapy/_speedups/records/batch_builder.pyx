"""Building batches of message format v2 from Python: collect records, or put another payload into a batch.

records/record_batch.pxd describes the format. These classes know no codec: kafkapy.records.batches compresses, and
other packages import that. All but checksums holds the GIL; one thread at a time uses a builder.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t
from libc.string cimport memcpy, memset

from kafkapy._speedups.base.wire cimport buffer_free, buffer_init, write_raw, write_varint
from kafkapy._speedups.records.memory_records cimport BatchView, Source
from kafkapy._speedups.records.record_batch cimport (
    BATCH_HEADER_SIZE,
    CODEC_MASK,
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    MAGIC_V2,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_FLAG,
    TRANSACTIONAL_FLAG,
    RecordView,
    batch_header_write,
    batch_refresh_crc,
    record_size,
    record_write,
)

from kafkapy.errors import MessageTooLargeError

cdef enum:
    INT32_MAX = 0x7FFFFFFF


cdef class RecordBatchBuilder:
    """Collects records and builds one v2 batch. Owns its buffer; one thread at a time uses it.

    max_size bounds the bytes of the batch before compression: beyond it `append` refuses all but the first record.
    base_offset is the offset of the batch. offset_of_max_timestamp is the offset of the first record with the largest
    timestamp, or -1. With delete_horizon_ms the batch has that time as its base timestamp, and the flag for it
    (KIP-534).
    """

    def __cinit__(self, int64_t max_size=INT32_MAX, *, int64_t base_offset=0, delete_horizon_ms=None):
        buffer_init(&self.payload)
        buffer_init(&self.scratch)
        self.limit = max_size if max_size < INT32_MAX else INT32_MAX
        memset(&self.header, 0, sizeof(BatchHeader))
        self.header.base_offset = base_offset
        self.header.max_timestamp = NO_TIMESTAMP
        self.last_offset_used = base_offset - 1
        self.offset_of_max_timestamp = -1
        if delete_horizon_ms is not None:
            self.header.base_timestamp = delete_horizon_ms
            self.header.attributes = DELETE_HORIZON_FLAG
            self.base_known = True

    def __dealloc__(self):
        buffer_free(&self.payload)
        buffer_free(&self.scratch)

    def __len__(self):
        return self.header.record_count

    @property
    def size(self):
        """Bytes of the batch now, header included, before compression."""
        return BATCH_HEADER_SIZE + <int64_t>self.payload.size

    @property
    def base_offset(self):
        """The base offset of the batch."""
        return self.header.base_offset

    @property
    def next_offset(self):
        """The offset of the next `append` without an offset."""
        return self.last_offset_used + 1

    @property
    def max_timestamp(self):
        """The largest timestamp appended (ms), or -1."""
        return self.header.max_timestamp

    def append(self, int64_t timestamp, bytes key, bytes value, headers=(), *, offset=None):
        """Adds a record and returns its offset, or None when the batch would grow past max_size.

        timestamp is in ms, -1 for none; headers are pairs of (name, value or None). Without `offset` the record gets
        the next offset. ValueError for an offset not above the last one's; MessageTooLargeError above 2 GiB, the limit
        of a batch.
        """
        cdef RecordView record
        cdef int64_t at = self.last_offset_used + 1 if offset is None else offset
        cdef int64_t size
        if at <= self.last_offset_used or at - self.header.base_offset > INT32_MAX:
            raise ValueError(
                f"offset {at} does not fit a batch that starts at {self.header.base_offset} "
                f"and has come to {self.last_offset_used}"
            )
        if timestamp < NO_TIMESTAMP:
            raise ValueError(f"timestamp {timestamp} is negative; -1 stands for none")
        record.timestamp_delta = timestamp - self.header.base_timestamp if self.base_known else 0
        record.offset_delta = <int32_t>(at - self.header.base_offset)
        record.key_size = -1
        record.value_size = -1
        record.key = record.value = NULL
        if key is not None:
            if PyBytes_GET_SIZE(key) > INT32_MAX:
                raise MessageTooLargeError(f"a key of {len(key)} bytes fits no record")
            record.key = <const uint8_t*>PyBytes_AS_STRING(key)
            record.key_size = <int32_t>PyBytes_GET_SIZE(key)
        if value is not None:
            if PyBytes_GET_SIZE(value) > INT32_MAX:
                raise MessageTooLargeError(f"a value of {len(value)} bytes fits no record")
            record.value = <const uint8_t*>PyBytes_AS_STRING(value)
            record.value_size = <int32_t>PyBytes_GET_SIZE(value)
        self.scratch.size = 0
        record.header_count = self.encode_headers(headers) if headers else 0
        record.headers = self.scratch.data
        record.headers_size = <int64_t>self.scratch.size
        size = record_size(&record)
        if BATCH_HEADER_SIZE + <int64_t>self.payload.size + size > self.limit:
            if self.header.record_count:
                return None
            if BATCH_HEADER_SIZE + size > INT32_MAX:
                raise MessageTooLargeError(f"a record of {size} bytes fits no batch")
        record_write(&self.payload, &record)
        if self.payload.error:
            raise MemoryError
        if not self.base_known:
            self.header.base_timestamp = timestamp
            self.base_known = True
        if timestamp > self.header.max_timestamp:
            self.header.max_timestamp = timestamp
            self.offset_of_max_timestamp = at
        self.header.record_count += 1
        self.last_offset_used = at
        return at

    cdef int32_t encode_headers(self, headers) except -1:
        cdef int32_t count = 0
        cdef bytes raw
        for name, value in headers:
            raw = (<str?>name).encode("utf-8")
            if PyBytes_GET_SIZE(raw) > INT32_MAX or (value is not None and len(value) > INT32_MAX):
                raise MessageTooLargeError("a header fits no record")
            write_varint(&self.scratch, <int32_t>PyBytes_GET_SIZE(raw))
            write_raw(&self.scratch, PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw))
            if value is None:
                write_varint(&self.scratch, -1)
            else:
                raw = <bytes?>value
                write_varint(&self.scratch, <int32_t>PyBytes_GET_SIZE(raw))
                write_raw(&self.scratch, PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw))
            count += 1
        if self.scratch.error:
            raise MemoryError
        if self.scratch.size > INT32_MAX:
            raise MessageTooLargeError("the headers fit no record")
        return count

    def payload_bytes(self):
        """The encoded records, uncompressed: a codec's input."""
        return PyBytes_FromStringAndSize(<const char*>self.payload.data, <Py_ssize_t>self.payload.size)

    def build(self, int codec=0, *, bytes compressed=None, int64_t producer_id=-1, int producer_epoch=-1,
              int64_t base_sequence=-1, bint transactional=False, bint control=False, int leader_epoch=-1,
              log_append_time=None, last_offset=None):
        """The batch as bytes. With a codec, `compressed` is payload_bytes() compressed by it.

        log_append_time (ms) makes the batch LogAppendTime. last_offset is the batch's last offset when compaction has
        removed the records at the end; with it a batch may be empty. The builder does not change and may go on.
        ValueError for values that fit no batch.
        """
        cdef BatchHeader header = self.header
        cdef const uint8_t* records = self.payload.data
        cdef size_t size = self.payload.size
        cdef bytes out
        cdef uint8_t* data
        cdef int64_t delta
        if codec < 0 or codec > 4:
            raise ValueError(f"codec {codec} is none of Kafka's (0 to 4)")
        if (codec != 0) != (compressed is not None):
            raise ValueError("compressed records and a codec go together")
        delta = (self.last_offset_used if last_offset is None else <int64_t>last_offset) - self.header.base_offset
        if delta < self.last_offset_used - self.header.base_offset or delta < 0 or delta > INT32_MAX:
            raise ValueError("a batch needs a record, or a last offset that is not below its records'")
        if compressed is not None:
            records = <const uint8_t*>PyBytes_AS_STRING(compressed)
            size = <size_t>PyBytes_GET_SIZE(compressed)
        if size > <size_t>(INT32_MAX - BATCH_HEADER_SIZE):
            raise MessageTooLargeError(f"{size} bytes of records fit no batch")
        if not -1 <= producer_epoch <= 0x7FFF or not -1 <= base_sequence <= INT32_MAX or producer_id < -1:
            raise ValueError(
                f"producer {producer_id}, epoch {producer_epoch}, sequence {base_sequence} is out of range"
            )
        header.size = <int32_t>(BATCH_HEADER_SIZE + <int64_t>size)
        header.attributes |= codec
        if transactional:
            header.attributes |= TRANSACTIONAL_FLAG
        if control:
            header.attributes |= CONTROL_FLAG
        if log_append_time is not None:
            header.attributes |= TIMESTAMP_TYPE_FLAG
            header.max_timestamp = log_append_time
        if not self.base_known:
            header.base_timestamp = NO_TIMESTAMP
        header.last_offset_delta = <int32_t>delta
        header.leader_epoch = leader_epoch
        header.producer_id = producer_id
        header.producer_epoch = <short>producer_epoch
        header.base_sequence = <int32_t>base_sequence
        out = PyBytes_FromStringAndSize(NULL, header.size)
        data = <uint8_t*>PyBytes_AS_STRING(out)
        batch_header_write(data, &header)
        if size:
            memcpy(data + BATCH_HEADER_SIZE, records, size)
        with nogil:
            batch_refresh_crc(data, header.size)
        return out


def replace_payload(batch, payload, *, int codec, log_append_time=None, max_timestamp=None):
    """A batch (a BatchView of v2) with another payload of the same records, such as another codec's, as new bytes.

    The batch keeps its offsets, sequence, producer and flags. log_append_time (ms) makes the batch LogAppendTime;
    max_timestamp (ms) corrects the header's. ValueError for a codec that does not exist; MessageTooLargeError past 2
    GiB.
    """
    cdef BatchView view = batch
    cdef BatchHeader header = view.header
    cdef Source inner = Source(payload)
    cdef bytes out
    cdef uint8_t* data
    if codec < 0 or codec > 4:
        raise ValueError(f"codec {codec} is none of Kafka's (0 to 4)")
    if header.magic != MAGIC_V2:
        raise ValueError("only a batch of format v2 can get another payload")
    if inner.view.len > INT32_MAX - BATCH_HEADER_SIZE:
        raise MessageTooLargeError(f"{inner.view.len} bytes of records fit no batch")
    header.size = <int32_t>(BATCH_HEADER_SIZE + inner.view.len)
    header.attributes = <short>((header.attributes & ~CODEC_MASK) | codec)
    if max_timestamp is not None:
        header.max_timestamp = max_timestamp
    if log_append_time is not None:
        header.attributes |= TIMESTAMP_TYPE_FLAG
        header.max_timestamp = log_append_time
    out = PyBytes_FromStringAndSize(NULL, header.size)
    data = <uint8_t*>PyBytes_AS_STRING(out)
    batch_header_write(data, &header)
    if inner.view.len:
        memcpy(data + BATCH_HEADER_SIZE, inner.view.buf, inner.view.len)
    with nogil:
        batch_refresh_crc(data, header.size)
    return out
