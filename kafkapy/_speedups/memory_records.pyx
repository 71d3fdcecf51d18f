"""Batches of message format v2 for Python: walk a buffer, look at a batch, decode its records, build new ones.

The format stands in record_batch.pxd. Codecs are not known here: kafkapy.records puts compression and the message formats before v2 on
top of these classes, and is what other packages import. Everything holds the GIL except checksums; nothing here is shared between threads.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.string cimport memcpy, memset

from kafkapy._speedups.record_batch cimport (
    BATCH_BAD_MAGIC,
    BATCH_HEADER_SIZE,
    BATCH_INCOMPLETE,
    BATCH_OK,
    CODEC_MASK,
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    MAGIC_V2,
    MIN_RECORD_SIZE,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_FLAG,
    TRANSACTIONAL_FLAG,
    BatchStatus,
    RecordView,
    batch_check_crc,
    batch_header_parse,
    batch_header_write,
    batch_refresh_crc,
    record_read,
    record_size,
    record_write,
)
from kafkapy._speedups.wire cimport (
    Cursor,
    buffer_free,
    buffer_init,
    cursor_init,
    read_varint,
    remaining,
    take,
    write_raw,
    write_varint,
)

from kafkapy.errors import CorruptMessageError, InvalidRecordError, MessageTooLargeError

cdef enum:
    INT32_MAX = 0x7FFFFFFF
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


cdef class Source:
    """Keeps the caller's buffer exported while views of it live; a bytearray cannot be resized meanwhile."""

    def __cinit__(self, data):
        PyObject_GetBuffer(data, &self.view, PyBUF_SIMPLE)

    def __dealloc__(self):
        PyBuffer_Release(&self.view)


@cython.freelist(256)
cdef class Record:
    """One record: offset, timestamp (ms, -1 for none), timestamp_type (0 CreateTime, 1 LogAppendTime), key, value and headers.

    Owns copies of its bytes. Immutable. Headers are decoded when first asked for.
    """

    def __init__(self, int64_t offset, int64_t timestamp, int timestamp_type, bytes key, bytes value, headers=()):
        self.offset = offset
        self.timestamp = timestamp
        self.timestamp_type = timestamp_type
        self.key = key
        self.value = value
        self.decoded_headers = tuple(headers)
        self.header_count = <int32_t>len(self.decoded_headers)

    @property
    def headers(self):
        """A tuple of (name, value or None). Bytes of a name that are not UTF-8 are replaced, as Kafka's clients do."""
        cdef Cursor c
        cdef int32_t i, size
        cdef const uint8_t* at
        if self.decoded_headers is None:
            cursor_init(&c, PyBytes_AS_STRING(self.raw_headers), PyBytes_GET_SIZE(self.raw_headers))
            decoded = []
            for i in range(self.header_count):
                size = read_varint(&c)
                at = take(&c, size)
                if at == NULL:
                    raise InvalidRecordError("a header of the record ends before its name does")
                name = PyUnicode_DecodeUTF8(<const char*>at, size, "replace")
                size = read_varint(&c)
                if size < 0:
                    decoded.append((name, None))
                    continue
                at = take(&c, size)
                if at == NULL:
                    raise InvalidRecordError("a header of the record ends before its value does")
                decoded.append((name, PyBytes_FromStringAndSize(<const char*>at, size)))
            self.decoded_headers = tuple(decoded)
            self.raw_headers = None
        return self.decoded_headers

    def __eq__(self, other):
        if not isinstance(other, Record):
            return NotImplemented
        return (
            self.offset == (<Record>other).offset
            and self.timestamp == (<Record>other).timestamp
            and self.timestamp_type == (<Record>other).timestamp_type
            and self.key == (<Record>other).key
            and self.value == (<Record>other).value
            and self.headers == other.headers
        )

    def __hash__(self):
        return hash((self.offset, self.timestamp, self.key, self.value))

    def __repr__(self):
        return (
            f"Record(offset={self.offset}, timestamp={self.timestamp}, timestamp_type={self.timestamp_type}, "
            f"key={self.key!r}, value={self.value!r}, headers={self.headers!r})"
        )


cdef inline object copied(const uint8_t* at, int32_t size):
    return PyBytes_FromStringAndSize(<const char*>at, size) if size >= 0 else None


@cython.freelist(32)
cdef class BatchView:
    """A look at one batch inside a buffer, which it keeps alive. Made by `iter_batches`.

    A message of format v0 or v1 gives a view too, of which only `magic`, `base_offset`, `size`, `position`, `to_bytes` have a meaning.
    """

    def __init__(self):
        raise TypeError("a BatchView comes from iter_batches()")

    @property
    def magic(self):
        """Message format: 0, 1 or 2."""
        return self.header.magic

    @property
    def size(self):
        """Bytes of the whole batch."""
        return self.header.size

    @property
    def base_offset(self):
        """Offset of the first record. In v0 and v1 the message's own offset, which for a compressed set is the last one's."""
        return self.header.base_offset

    @property
    def last_offset(self):
        """Offset of the last record, also when compaction has taken that record out."""
        return self.header.base_offset + self.header.last_offset_delta

    @property
    def next_offset(self):
        """Where to read on after this batch."""
        return self.header.base_offset + self.header.last_offset_delta + 1

    @property
    def last_offset_delta(self):
        """last_offset - base_offset, as in the header."""
        return self.header.last_offset_delta

    @property
    def leader_epoch(self):
        """The partition leader epoch in which the batch was appended; -1 when not known."""
        return self.header.leader_epoch

    @property
    def crc(self):
        """The CRC-32C that the header claims."""
        return self.header.crc

    @property
    def attributes(self):
        """The attribute bits as they stand."""
        return self.header.attributes

    @property
    def codec(self):
        """The codec's number (types.CompressionType); 5 to 7 do not exist."""
        return self.header.attributes & CODEC_MASK

    @property
    def timestamp_type(self):
        """0 CreateTime, 1 LogAppendTime."""
        return LOG_APPEND_TIME if self.header.attributes & TIMESTAMP_TYPE_FLAG else CREATE_TIME

    @property
    def is_transactional(self):
        """Whether the batch is part of a transaction."""
        return (self.header.attributes & TRANSACTIONAL_FLAG) != 0

    @property
    def is_control(self):
        """Whether its records are control records (transaction markers)."""
        return (self.header.attributes & CONTROL_FLAG) != 0

    @property
    def delete_horizon_ms(self):
        """When tombstones and markers in it may go (KIP-534), or None."""
        return self.header.base_timestamp if self.header.attributes & DELETE_HORIZON_FLAG else None

    @property
    def base_timestamp(self):
        """What the records' timestamp deltas count from, in ms."""
        return self.header.base_timestamp

    @property
    def max_timestamp(self):
        """The largest timestamp (ms), or the append time."""
        return self.header.max_timestamp

    @property
    def producer_id(self):
        """The idempotent producer's id, or -1."""
        return self.header.producer_id

    @property
    def producer_epoch(self):
        """The producer's epoch, or -1."""
        return self.header.producer_epoch

    @property
    def base_sequence(self):
        """The first record's sequence number, or -1."""
        return self.header.base_sequence

    @property
    def last_sequence(self):
        """The last record's sequence number (wraps from 2**31-1 to 0), or -1."""
        cdef int64_t last
        if self.header.base_sequence < 0:
            return -1
        last = <int64_t>self.header.base_sequence + self.header.last_offset_delta
        return last if last <= INT32_MAX else last - INT32_MAX - 1

    @property
    def record_count(self):
        """Records in it, as the header says."""
        return self.header.record_count

    def is_valid(self):
        """Whether the CRC is right. Meaningful for v2 only."""
        cdef BatchStatus status
        with nogil:
            status = batch_check_crc(self.data, self.header.size)
        return status == BATCH_OK

    def ensure_valid(self):
        """CorruptMessageError when the CRC is wrong."""
        if not self.is_valid():
            raise CorruptMessageError(
                f"the record batch at offset {self.header.base_offset} says CRC-32C {self.header.crc:#010x}, but its bytes give another"
            )

    def to_bytes(self):
        """A copy of the whole batch."""
        return PyBytes_FromStringAndSize(<const char*>self.data, self.header.size)

    def payload(self):
        """A memoryview of the records as they stand in the batch, compressed or not. Empty for v0 and v1."""
        if self.header.magic != MAGIC_V2:
            return memoryview(b"")
        return memoryview(self.source.view.obj).cast("B")[self.position + BATCH_HEADER_SIZE:self.position + self.header.size]

    def decode(self, payload=None):
        """The records as a list of Record; `payload` is the decompressed payload, needed when `codec` is not 0.

        InvalidRecordError when the records do not add up: bad counts, lengths or varints, bytes left over.
        """
        cdef Source inner
        if self.header.magic != MAGIC_V2:
            raise ValueError(f"messages of format v{self.header.magic} are decoded by kafkapy.records.legacy")
        if payload is not None:
            inner = Source(payload)
            return self.decode_from(<const uint8_t*>inner.view.buf, inner.view.len)
        if self.header.attributes & CODEC_MASK:
            raise ValueError("the batch is compressed: decode() needs its decompressed payload")
        return self.decode_from(self.data + BATCH_HEADER_SIZE, self.header.size - BATCH_HEADER_SIZE)

    cdef list decode_from(self, const uint8_t* payload, Py_ssize_t size):
        cdef Cursor c
        cdef RecordView view
        cdef Record record
        cdef int32_t i
        cdef int32_t count = self.header.record_count
        cdef int timestamp_type = LOG_APPEND_TIME if self.header.attributes & TIMESTAMP_TYPE_FLAG else CREATE_TIME
        cdef list records = []
        cursor_init(&c, payload, size)
        if count < 0 or count > remaining(&c) // MIN_RECORD_SIZE:
            raise InvalidRecordError(f"a record batch with {size} bytes of records cannot hold the {count} it claims")
        for i in range(count):
            if record_read(&c, &view) != BATCH_OK:
                raise InvalidRecordError(f"record {i} of {count} in the batch at offset {self.header.base_offset} is malformed")
            record = Record.__new__(Record)
            record.offset = self.header.base_offset + view.offset_delta
            if timestamp_type == LOG_APPEND_TIME:
                record.timestamp = self.header.max_timestamp
            else:
                record.timestamp = self.header.base_timestamp + view.timestamp_delta
            record.timestamp_type = timestamp_type
            record.key = copied(view.key, view.key_size)
            record.value = copied(view.value, view.value_size)
            record.header_count = view.header_count
            if view.header_count:
                record.raw_headers = PyBytes_FromStringAndSize(<const char*>view.headers, view.headers_size)
            else:
                record.decoded_headers = ()
            records.append(record)
        if remaining(&c):
            raise InvalidRecordError(f"{remaining(&c)} bytes are left over after the {count} records of a batch")
        return records

    def __repr__(self):
        return (
            f"BatchView(magic={self.magic}, base_offset={self.base_offset}, last_offset={self.last_offset}, size={self.size}, "
            f"codec={self.codec}, record_count={self.record_count})"
        )


cdef class BatchIterator:
    """Walks the batches of a buffer; made by `iter_batches`. `position` is where the next batch starts."""

    def __init__(self):
        raise TypeError("a BatchIterator comes from iter_batches()")

    def __iter__(self):
        return self

    def __next__(self):
        cdef BatchView batch
        cdef BatchStatus status
        cdef int64_t available = self.source.view.len - self.position
        if available <= 0:
            raise StopIteration
        batch = BatchView.__new__(BatchView)
        batch.source = self.source
        batch.position = self.position
        batch.data = <const uint8_t*>self.source.view.buf + self.position
        status = batch_header_parse(batch.data, available, &batch.header)
        if status == BATCH_BAD_MAGIC and 0 <= batch.header.magic < MAGIC_V2:
            status = BATCH_OK if batch.header.size <= available else BATCH_INCOMPLETE
        if status == BATCH_INCOMPLETE:
            raise StopIteration
        if status == BATCH_BAD_MAGIC:
            raise CorruptMessageError(f"magic {batch.header.magic} at byte {self.position} is no message format of Kafka's (0, 1, 2)")
        if status != BATCH_OK:
            raise CorruptMessageError(f"no record batch can have the length that stands at byte {self.position + 8}")
        if self.check_crc and batch.header.magic == MAGIC_V2:
            batch.ensure_valid()
        self.position += batch.header.size
        return batch


def iter_batches(data, *, bint check_crc=False):
    """Walks the batches in a bytes-like object and yields a BatchView of each; keeps `data` exported while views live.

    An incomplete batch at the end is where it stops without an error, since a fetch may be cut there. CorruptMessageError for a length or
    magic that no batch has, and with check_crc for a wrong CRC of a v2 batch.
    """
    cdef BatchIterator batches = BatchIterator.__new__(BatchIterator)
    batches.source = Source(data)
    batches.position = 0
    batches.check_crc = check_crc
    return batches


cdef class RecordBatchBuilder:
    """Collects records and builds one v2 batch. Owns its buffer; used by one thread at a time.

    max_size (bytes of the batch before compression) is where `append` says no; the first record is always taken. base_offset is what
    offsets count from. offset_of_max_timestamp is that of the first record with the largest timestamp, or -1. With delete_horizon_ms the batch carries that time as its base timestamp and the flag for it (KIP-534).
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
        """Bytes of the batch so far, header included, before compression."""
        return BATCH_HEADER_SIZE + <int64_t>self.payload.size

    @property
    def base_offset(self):
        """What offsets count from."""
        return self.header.base_offset

    @property
    def next_offset(self):
        """The offset that an `append` without one will give."""
        return self.last_offset_used + 1

    @property
    def max_timestamp(self):
        """The largest timestamp appended (ms), or -1."""
        return self.header.max_timestamp

    def append(self, int64_t timestamp, bytes key, bytes value, headers=(), *, offset=None):
        """Adds a record and returns its offset, or None when the batch would grow past max_size.

        timestamp is in ms, -1 for none; headers are pairs of (name, value or None). Without `offset` the record gets the next one.
        ValueError for an offset not above the last one's; MessageTooLargeError for what no batch can hold (2 GiB).
        """
        cdef RecordView record
        cdef int64_t at = self.last_offset_used + 1 if offset is None else offset
        cdef int64_t size
        if at <= self.last_offset_used or at - self.header.base_offset > INT32_MAX:
            raise ValueError(
                f"offset {at} does not fit a batch that starts at {self.header.base_offset} and has come to {self.last_offset_used}"
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
        """The encoded records so far, uncompressed: what a codec takes."""
        return PyBytes_FromStringAndSize(<const char*>self.payload.data, <Py_ssize_t>self.payload.size)

    def build(self, int codec=0, *, bytes compressed=None, int64_t producer_id=-1, int producer_epoch=-1, int64_t base_sequence=-1,
              bint transactional=False, bint control=False, int leader_epoch=-1, log_append_time=None, last_offset=None):
        """The batch as bytes. With a codec, `compressed` is payload_bytes() compressed by it.

        log_append_time (ms) makes the batch LogAppendTime. last_offset, when compaction took out the records at the end, is kept as the
        batch's last; with it a batch may be empty. The builder stays as it is and may go on. ValueError for what makes no batch.
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
            raise ValueError(f"producer {producer_id}, epoch {producer_epoch}, sequence {base_sequence} is out of range")
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
    """The same batch (a BatchView of v2) around other bytes of the same records, such as those of another codec, as new bytes.

    Offsets, sequence, producer and flags are kept. log_append_time (ms) makes the batch LogAppendTime; max_timestamp (ms) corrects
    the header's. ValueError for a codec that does not exist; MessageTooLargeError past 2 GiB.
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
