"""ConsumerRecord: one fetched record, which makes its key, value and headers at their first use.

A record borrows the memory of its response (or of its decompressed batch) until all three are made, and shares topic,
partition and deserializers with the other records of its batch. It looks like kafka-python's ConsumerRecord, a named
tuple: the same fields in the same order, unpacking, indexing, comparison, `_fields`, `_asdict()` and `_replace()`.

A deserializer is an object with `deserialize(topic, headers, data)` or `deserialize(topic, data)`, or a callable of the
data. It gets None for a missing key or value, as in kafka-python.

Everything here runs with the GIL.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.object cimport PyObject_RichCompare
from cpython.unicode cimport PyUnicode_DecodeUTF8
from kafkapy._speedups.base.spare_memory cimport spare_give
from kafkapy._speedups.base.wire cimport Cursor, cursor_init, read_varint, take

import inspect

from kafkapy.errors import RecordDeserializationError

cdef enum:
    KEY_MADE = 1
    VALUE_MADE = 2
    HEADERS_MADE = 4
    ALL_MADE = KEY_MADE | VALUE_MADE | HEADERS_MADE

cdef tuple FIELDS = (
    "topic",
    "partition",
    "leader_epoch",
    "offset",
    "timestamp",
    "timestamp_type",
    "key",
    "value",
    "headers",
    "checksum",
    "serialized_key_size",
    "serialized_value_size",
    "serialized_header_size",
)
# By the type of a deserializer: whether its deserialize() takes the headers.
cdef dict TAKES_HEADERS = {}


@cython.final
@cython.no_gc
@cython.freelist(64)
cdef class RecordMemory:
    def __dealloc__(self):
        spare_give(self.data)


@cython.final
@cython.freelist(64)
cdef class RecordOrigin:
    pass


cdef RecordMemory memory_of(uint8_t* data):
    cdef RecordMemory memory = RecordMemory.__new__(RecordMemory)
    memory.data = data
    return memory


cdef RecordOrigin origin_of(object topic, int32_t partition, int32_t leader_epoch, int timestamp_type,
                            object key_deserializer, object value_deserializer, bint tuple_headers):
    cdef RecordOrigin origin = RecordOrigin.__new__(RecordOrigin)
    origin.topic = topic
    origin.partition = partition
    origin.leader_epoch = leader_epoch
    origin.timestamp_type = timestamp_type
    origin.key_deserializer = key_deserializer
    origin.value_deserializer = value_deserializer
    origin.tuple_headers = tuple_headers
    return origin


cdef object deserialized(ConsumerRecord record, object deserializer, object data, str what):
    """Deserializes; wraps every exception of the deserializer in a RecordDeserializationError that names the record."""
    try:
        deserialize = getattr(deserializer, "deserialize", None)
        if deserialize is None:
            return deserializer(data)
        takes_headers = TAKES_HEADERS.get(type(deserializer))
        if takes_headers is None:
            takes_headers = TAKES_HEADERS[type(deserializer)] = wants_headers(deserialize)
        if takes_headers:
            return deserialize(record.origin.topic, record.make_headers(), data)
        return deserialize(record.origin.topic, data)
    except Exception as error:
        raise RecordDeserializationError(
            f"the {what} of the record at offset {record.offset} of {record.origin.topic}-{record.origin.partition} "
            f"cannot be deserialized: {error}",
            record.origin.topic,
            record.origin.partition,
            record.offset,
        ) from error


def wants_headers(deserialize):
    """Whether a bound deserialize() takes topic, headers and data, rather than topic and data alone."""
    try:
        inspect.signature(deserialize).bind("", [], b"")
    except TypeError:
        return False
    except ValueError:          # it does not declare its parameters
        return True
    return True


# Without the garbage collector: no reference leads from a record back to it, unless a caller puts one into a
# deserialized value.
@cython.final
@cython.no_gc
@cython.freelist(1024)
cdef class ConsumerRecord:
    """A record of a topic: topic, partition, leader_epoch, offset, timestamp (ms), timestamp_type (0 CreateTime, 1
    LogAppendTime, -1 none), key, value, headers ((name, value) pairs: a list, or a tuple from the asyncio consumer),
    checksum (None), serialized_key_size, serialized_value_size (bytes, -1 for None) and serialized_header_size
    (bytes, -1 without headers). Beside these fields, delivery_count is the number of deliveries in a share group.

    key, value and headers are made on first use; a failing deserializer then raises RecordDeserializationError. Threads
    must not share the record before that.
    """

    _fields = FIELDS

    def __init__(self, object topic, int32_t partition, int32_t leader_epoch, int64_t offset, int64_t timestamp,
                 int timestamp_type, key, value, headers=None, checksum=None, int32_t serialized_key_size=-1,
                 int32_t serialized_value_size=-1, int64_t serialized_header_size=-1, delivery_count=None):
        if checksum is not None:
            raise ValueError("records have no checksum of their own")
        self.origin = origin_of(topic, partition, leader_epoch, timestamp_type, None, None, isinstance(headers, tuple))
        self.memory = None
        self.offset = offset
        self.timestamp = timestamp
        self.made_key = key
        self.made_value = value
        self.made_headers = headers if self.origin.tuple_headers else list(headers or ())
        self.key_size = serialized_key_size
        self.value_size = serialized_value_size
        self.headers_size = serialized_header_size
        self.deliveries = 0 if delivery_count is None else delivery_count
        self.made = ALL_MADE

    cdef object make_key(self):
        if not self.made & KEY_MADE:
            key = PyBytes_FromStringAndSize(<const char*>self.key_at, self.key_size) if self.key_size >= 0 else None
            if self.origin.key_deserializer is not None:
                key = deserialized(self, self.origin.key_deserializer, key, "key")
            self.made_key = key
            self.made |= KEY_MADE
            if self.made == ALL_MADE:
                self.memory = None
        return self.made_key

    cdef object make_value(self):
        if not self.made & VALUE_MADE:
            value = None
            if self.value_size >= 0:
                value = PyBytes_FromStringAndSize(<const char*>self.value_at, self.value_size)
            if self.origin.value_deserializer is not None:
                value = deserialized(self, self.origin.value_deserializer, value, "value")
            self.made_value = value
            self.made |= VALUE_MADE
            if self.made == ALL_MADE:
                self.memory = None
        return self.made_value

    cdef object make_headers(self):
        cdef Cursor c
        cdef int32_t i, size
        cdef int64_t total = 0
        cdef const uint8_t* at
        cdef list headers
        cdef RecordMemory memory
        if not self.made & HEADERS_MADE:
            # A new list or tuple may run the garbage collector, and thus code that makes the rest of this very record:
            # the memory must stay.
            memory = self.memory
            # record_read has walked over them: every length is right.
            cursor_init(&c, self.headers_at, self.headers_size)
            headers = []
            for i in range(self.header_count):
                size = read_varint(&c)
                at = take(&c, size)
                total += size
                name = PyUnicode_DecodeUTF8(<const char*>at, size, "replace")
                size = read_varint(&c)
                if size < 0:
                    headers.append((name, None))
                    continue
                at = take(&c, size)
                total += size
                headers.append((name, PyBytes_FromStringAndSize(<const char*>at, size)))
            self.made_headers = tuple(headers) if self.origin.tuple_headers else headers
            self.headers_size = total if self.header_count else -1
            self.made |= HEADERS_MADE
            if self.made == ALL_MADE:
                self.memory = None
        return self.made_headers

    cdef tuple fields(self):
        headers = self.make_headers()
        return (
            self.origin.topic, self.origin.partition, self.origin.leader_epoch, self.offset, self.timestamp,
            self.origin.timestamp_type, self.make_key(), self.make_value(), headers, None, self.key_size,
            self.value_size, self.headers_size,
        )

    @property
    def topic(self):
        """The topic's name."""
        return self.origin.topic

    @property
    def partition(self):
        """The partition's number."""
        return self.origin.partition

    @property
    def leader_epoch(self):
        """The leader epoch of the record's append; -1 when it is unknown."""
        return self.origin.leader_epoch

    @property
    def timestamp_type(self):
        """0 CreateTime, 1 LogAppendTime, -1 for message format v0, which has none."""
        return self.origin.timestamp_type

    @property
    def key(self):
        """The deserialized key; None when the record has none."""
        return self.make_key()

    @property
    def value(self):
        """The deserialized value; None for a tombstone."""
        return self.make_value()

    @property
    def headers(self):
        """(name, value or None) pairs: a list, or a tuple from the asyncio consumer."""
        return self.make_headers()

    @property
    def checksum(self):
        """None: records have no checksum since message format v2."""
        return None

    @property
    def serialized_key_size(self):
        """Bytes of the key, -1 without a key."""
        return self.key_size

    @property
    def serialized_value_size(self):
        """Bytes of the value, -1 without a value."""
        return self.value_size

    @property
    def serialized_header_size(self):
        """Bytes of the headers' names and values, -1 without headers."""
        self.make_headers()
        return self.headers_size

    @property
    def delivery_count(self):
        """The number of this delivery of the record in its share group, from 1 on; None from other consumers."""
        return self.deliveries or None

    def _asdict(self):
        """The fields by name."""
        return dict(zip(FIELDS, self.fields()))

    def _replace(self, **changes):
        """A record with these fields changed. ValueError for an unknown name."""
        values = self._asdict()
        unknown = set(changes) - set(FIELDS)
        if unknown:
            raise ValueError(f"a record has no field {', '.join(sorted(unknown))}")
        values.update(changes)
        return ConsumerRecord(**values, delivery_count=self.delivery_count)

    def __iter__(self):
        return iter(self.fields())

    def __len__(self):
        return len(FIELDS)

    def __getitem__(self, index):
        return self.fields()[index]

    def __contains__(self, value):
        return value in self.fields()

    def __richcmp__(self, other, int operation):
        if isinstance(other, ConsumerRecord):
            other = (<ConsumerRecord>other).fields()
        elif not isinstance(other, tuple):
            return NotImplemented
        return PyObject_RichCompare(self.fields(), other, operation)

    def __hash__(self):
        return hash((self.origin.topic, self.origin.partition, self.offset))

    def __reduce__(self):
        fields = self.fields()
        return ConsumerRecord, fields + (self.deliveries,) if self.deliveries else fields

    def __repr__(self):
        return f"ConsumerRecord({', '.join([f'{name}={value!r}' for name, value in zip(FIELDS, self.fields())])})"
