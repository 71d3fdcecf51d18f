"""Batches of message format v2 for Python: walk a buffer, look at a batch, decode its records.

record_batch.pxd describes the format. These classes know no codec: kafkapy.records adds compression and the message
formats before v2, and other packages import that. All but checksums holds the GIL; threads share nothing here.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8

from kafkapy._speedups.base.wire cimport Cursor, cursor_init, read_varint, remaining, take
from kafkapy._speedups.records.record_batch cimport (
    BATCH_BAD_MAGIC,
    BATCH_HEADER_SIZE,
    BATCH_INCOMPLETE,
    BATCH_OK,
    CODEC_MASK,
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    MAGIC_V2,
    MIN_RECORD_SIZE,
    TIMESTAMP_TYPE_FLAG,
    TRANSACTIONAL_FLAG,
    BatchStatus,
    RecordView,
    batch_check_crc,
    batch_header_parse,
    record_read,
)

from kafkapy.errors import CorruptMessageError, InvalidRecordError

cdef enum:
    INT32_MAX = 0x7FFFFFFF
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


cdef class Source:
    """Keeps the caller's buffer exported while views of it live, so a bytearray cannot be resized meanwhile."""

    def __cinit__(self, data):
        PyObject_GetBuffer(data, &self.view, PyBUF_SIMPLE)

    def __dealloc__(self):
        PyBuffer_Release(&self.view)


@cython.freelist(256)
cdef class Record:
    """One record: offset, timestamp (ms, -1 for none), timestamp_type (0 CreateTime, 1 LogAppendTime), key, value and
    headers.

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
    """A view of one batch inside a buffer, which it keeps alive. `iter_batches` makes it.

    For a message of format v0 or v1 only `magic`, `base_offset`, `size`, `position` and `to_bytes` have a meaning.
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
        """Offset of the first record. In v0 and v1 the message's offset: for a compressed set that of its last
        record."""
        return self.header.base_offset

    @property
    def last_offset(self):
        """Offset of the last record, even if compaction has removed that record."""
        return self.header.base_offset + self.header.last_offset_delta

    @property
    def next_offset(self):
        """The offset after this batch: last_offset + 1."""
        return self.header.base_offset + self.header.last_offset_delta + 1

    @property
    def last_offset_delta(self):
        """last_offset - base_offset, as in the header."""
        return self.header.last_offset_delta

    @property
    def leader_epoch(self):
        """The partition leader epoch of the append; -1 when not known."""
        return self.header.leader_epoch

    @property
    def crc(self):
        """The CRC-32C that the header claims."""
        return self.header.crc

    @property
    def attributes(self):
        """The attribute bits."""
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
        """When compaction may remove the batch's tombstones and markers (ms, KIP-534), or None."""
        return self.header.base_timestamp if self.header.attributes & DELETE_HORIZON_FLAG else None

    @property
    def base_timestamp(self):
        """The base of the records' timestamp deltas, in ms."""
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
        """The header's number of records."""
        return self.header.record_count

    def is_valid(self):
        """Whether the CRC is right. Meaningful for v2 only."""
        cdef BatchStatus status
        with nogil:
            status = batch_check_crc(self.data, self.header.size)
        return status == BATCH_OK

    def ensure_valid(self):
        """Raises CorruptMessageError when the CRC is wrong."""
        if not self.is_valid():
            raise CorruptMessageError(
                f"the record batch at offset {self.header.base_offset} says CRC-32C {self.header.crc:#010x}, "
                "but its bytes give another"
            )

    def to_bytes(self):
        """A copy of the whole batch."""
        return PyBytes_FromStringAndSize(<const char*>self.data, self.header.size)

    def payload(self):
        """A memoryview of the batch's records, compressed or not. Empty for v0 and v1."""
        if self.header.magic != MAGIC_V2:
            return memoryview(b"")
        whole = memoryview(self.source.view.obj).cast("B")
        return whole[self.position + BATCH_HEADER_SIZE:self.position + self.header.size]

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
                raise InvalidRecordError(
                    f"record {i} of {count} in the batch at offset {self.header.base_offset} is malformed"
                )
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
            f"BatchView(magic={self.magic}, base_offset={self.base_offset}, last_offset={self.last_offset}, "
            f"size={self.size}, codec={self.codec}, record_count={self.record_count})"
        )


cdef class BatchIterator:
    """Walks the batches of a buffer; `iter_batches` makes it. `position`: the start of the next batch."""

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
            raise CorruptMessageError(
                f"magic {batch.header.magic} at byte {self.position} is no message format of Kafka's (0, 1, 2)"
            )
        if status != BATCH_OK:
            raise CorruptMessageError(f"no record batch can have the length that stands at byte {self.position + 8}")
        if self.check_crc and batch.header.magic == MAGIC_V2:
            batch.ensure_valid()
        self.position += batch.header.size
        return batch


def iter_batches(data, *, bint check_crc=False):
    """Walks the batches in a bytes-like object and yields a BatchView of each; keeps `data` exported while views live.

    The walk stops without an error at an incomplete batch, since a fetch may be cut there. CorruptMessageError for an
    invalid length or magic, and with check_crc for a wrong CRC of a v2 batch.
    """
    cdef BatchIterator batches = BatchIterator.__new__(BatchIterator)
    batches.source = Source(data)
    batches.position = 0
    batches.check_crc = check_crc
    return batches
