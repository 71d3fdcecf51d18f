"""Produce requests and responses of the producer, as frames of its I/O thread (see produce_frame.pxd)."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.errno cimport EMSGSIZE, ENOMEM
from libc.stdint cimport uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, memset

from kafkapy._speedups.base.crc32c cimport crc32c_of
from kafkapy._speedups.base.send cimport send_free, send_lend, send_new, send_take_buffer
from kafkapy._speedups.base.wire cimport (
    ByteBuffer,
    Cursor,
    buffer_free,
    buffer_init,
    cursor_init,
    extend,
    read_array_length,
    read_int16,
    read_int32,
    read_int64,
    read_string,
    remaining,
    skip_tagged_fields,
    store_int32,
    take,
    write_array_length,
    write_int16,
    write_int32,
    write_raw,
    write_string,
    write_unsigned_varint,
)
from kafkapy._speedups.clients.producer.producer_batch cimport ProducerBatch
from kafkapy._speedups.clients.producer.record_accumulator cimport RecordAccumulator
from kafkapy._speedups.records.compression cimport COMPRESSION_OK, compress_into
from kafkapy._speedups.records.record_batch cimport (
    ATTRIBUTES_AT,
    BATCH_HEADER_SIZE,
    CODEC_MASK,
    CODEC_NONE,
    CRC_AT,
    MAGIC_V2,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    batch_header_write,
)

from kafkapy.errors import IllegalStateError

cdef enum:
    LOG_APPEND_TIME_VERSION = 2
    LOG_START_OFFSET_VERSION = 5
    RECORD_ERRORS_VERSION = 8
    FLEXIBLE_VERSION = 9
    TOPIC_ID_VERSION = 13
    TOPIC_ID_SIZE = 16
    CORRELATION_ID_AT = 4           # in a request header
    FRAME_SIZE_SIZE = 4
    INT32_MAX = 0x7FFFFFFF
    NO_TIMESTAMP = -1


@cython.final
cdef class ProduceRequestFrame(RequestFrame):
    """One request for one node. Made on the loop's thread from drained batches.

    header: from request_header() for this API and version; topic_ids: name -> uuid.UUID, needed from version 13 on.
    codec and level are compression.type's. The request groups batches by topic; `batches` has the order of the request.
    ValueError; IllegalStateError for a batch that has a result already.
    """

    def __init__(self, int version, bytes header not None, list batches not None, int acks, int timeout_ms,
                 transactional_id=None, topic_ids=None, int codec=0, int level=0):
        cdef ProducerBatch batch
        cdef FrameBatch part
        cdef FrameTopic topic
        cdef bytes name
        if not 3 <= version <= TOPIC_ID_VERSION:
            raise ValueError(f"a Produce request of version {version} is not known here")
        if len(header) < CORRELATION_ID_AT + 4 or len(header) > 0x10000:
            raise ValueError(f"a request header of {len(header)} bytes")
        if not 0 <= codec <= 4:
            raise ValueError(f"codec {codec} is none of Kafka's (0 to 4)")
        self.version = version
        self.header = header
        self.header_data = <const uint8_t*>PyBytes_AS_STRING(header)
        self.header_size = <int32_t>PyBytes_GET_SIZE(header)
        self.transactional_size = -1
        if transactional_id is not None:
            self.transactional_id = transactional_id.encode("utf-8")
            self.transactional_data = <const uint8_t*>PyBytes_AS_STRING(self.transactional_id)
            self.transactional_size = <int32_t>PyBytes_GET_SIZE(self.transactional_id)
        self.acks = <int16_t>acks
        self.timeout_ms = timeout_ms
        self.codec = codec
        self.level = level
        self.batches = []
        self.names = []
        by_topic = {}
        for batch in batches:
            if batch.payload.data == NULL:
                raise IllegalStateError(f"{batch!r} is complete")
            by_topic.setdefault(batch.topic, []).append(batch)
        for text, of_topic in by_topic.items():
            name = topic_ids[text].bytes if version >= TOPIC_ID_VERSION else text.encode("utf-8")
            self.names.append(name)
            topic.name = <const uint8_t*>PyBytes_AS_STRING(name)
            topic.name_size = <int32_t>PyBytes_GET_SIZE(name)
            topic.batch_count = <int32_t>len(of_topic)
            self.topics.push_back(topic)
            for batch in of_topic:
                part.topic = <int32_t>(self.topics.size() - 1)
                part.partition = batch.partition
                part.records = batch.payload.data
                part.size = <int64_t>batch.payload.size
                part.record_count = batch.record_count
                part.base_timestamp = batch.base_timestamp
                part.max_timestamp = batch.max_timestamp
                part.producer_id = batch.producer_id
                part.producer_epoch = batch.producer_epoch
                part.base_sequence = batch.base_sequence
                part.transactional = batch.transactional
                self.parts.push_back(part)
                self.bytes_before += part.size + BATCH_HEADER_SIZE
                self.batches.append(batch)
                batch.lend()

    def __dealloc__(self):
        self.release()

    def release(self):
        """Returns the memory of the batches. Only after the I/O thread is done with the request; otherwise the memory
        goes with the request."""
        cdef ProducerBatch batch
        if self.released or self.batches is None:
            return
        self.released = True
        for batch in self.batches:
            batch.give_back()

    cdef int64_t encode(self, Send* into) noexcept nogil:
        cdef ByteBuffer head
        cdef ByteBuffer body
        cdef uint8_t header[BATCH_HEADER_SIZE]
        cdef size_t i
        cdef size_t at = 0
        cdef size_t first_piece = into.pieces.size()
        cdef int64_t before = into.size
        cdef int64_t size
        cdef int32_t j
        cdef bint flexible = self.version >= FLEXIBLE_VERSION
        cdef FrameBatch* part
        cdef const uint8_t* records
        buffer_init(&head)
        extend(&head, FRAME_SIZE_SIZE)
        write_raw(&head, self.header_data, self.header_size)
        if head.error:
            buffer_free(&head)
            return -ENOMEM
        store_int32(head.data + FRAME_SIZE_SIZE + CORRELATION_ID_AT, self.correlation_id)
        write_string(&head, self.transactional_data, self.transactional_size, flexible)
        write_int16(&head, self.acks)
        write_int32(&head, self.timeout_ms)
        write_array_length(&head, <int32_t>self.topics.size(), flexible)
        for i in range(self.topics.size()):
            if self.version >= TOPIC_ID_VERSION:
                write_raw(&head, self.topics[i].name, TOPIC_ID_SIZE)
            else:
                write_string(&head, self.topics[i].name, self.topics[i].name_size, flexible)
            write_array_length(&head, self.topics[i].batch_count, flexible)
            for j in range(self.topics[i].batch_count):
                part = &self.parts[at]
                at += 1
                buffer_init(&body)
                size = part.size
                records = part.records
                if self.codec != CODEC_NONE:
                    if compress_into(self.codec, self.level, part.records, part.size, &body) != COMPRESSION_OK:
                        buffer_free(&body)
                        buffer_free(&head)
                        return -ENOMEM
                    size = <int64_t>body.size
                    records = body.data
                if size > INT32_MAX - BATCH_HEADER_SIZE - 1:
                    buffer_free(&body)
                    buffer_free(&head)
                    return -EMSGSIZE
                write_int32(&head, part.partition)
                if flexible:
                    write_unsigned_varint(&head, <uint32_t>(BATCH_HEADER_SIZE + size + 1))
                else:
                    write_int32(&head, <int32_t>(BATCH_HEADER_SIZE + size))
                make_header(part, size, self.codec, records, header)
                write_raw(&head, header, BATCH_HEADER_SIZE)
                if head.error:
                    buffer_free(&body)
                    buffer_free(&head)
                    return -ENOMEM
                send_take_buffer(into, &head)
                if self.codec != CODEC_NONE:
                    send_take_buffer(into, &body)
                else:
                    send_lend(into, part.records, part.size)
                if flexible:
                    write_unsigned_varint(&head, 0)
            if flexible:
                write_unsigned_varint(&head, 0)
        if flexible:
            write_unsigned_varint(&head, 0)
        if head.error:
            buffer_free(&head)
            return -ENOMEM
        send_take_buffer(into, &head)
        size = into.size - before
        if size - FRAME_SIZE_SIZE > INT32_MAX:
            return -EMSGSIZE
        store_int32(into.pieces[first_piece].data, <int32_t>(size - FRAME_SIZE_SIZE))
        self.bytes_encoded = size
        return 0

    def to_bytes(self):
        """The frame's bytes on the wire, size first, encoded at once; for tests and tools. MemoryError."""
        cdef Send* send = send_new()
        cdef bytes out
        cdef char* at
        cdef size_t i
        cdef int64_t status
        try:
            with nogil:
                status = self.encode(send)
            if status:
                raise MemoryError
            out = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>send.size)
            at = PyBytes_AS_STRING(out)
            for i in range(send.pieces.size()):
                memcpy(at, send.pieces[i].data + send.pieces[i].position, <size_t>send.pieces[i].remaining)
                at += send.pieces[i].remaining
            return out
        finally:
            send_free(send)


cdef void make_header(const FrameBatch* part, int64_t size, int codec, const uint8_t* records,
                      uint8_t* out) noexcept nogil:
    """Writes the 61 bytes of a batch's header; `records` are the `size` bytes on the wire, which the CRC covers too."""
    cdef BatchHeader header
    memset(&header, 0, sizeof(header))
    header.size = <int32_t>(BATCH_HEADER_SIZE + size)
    header.leader_epoch = -1
    header.magic = MAGIC_V2
    header.attributes = <int16_t>((codec & CODEC_MASK) | (TRANSACTIONAL_FLAG if part.transactional else 0))
    header.last_offset_delta = part.record_count - 1
    header.base_timestamp = part.base_timestamp
    header.max_timestamp = part.max_timestamp
    header.producer_id = part.producer_id
    header.producer_epoch = part.producer_epoch
    header.base_sequence = part.base_sequence
    header.record_count = part.record_count
    batch_header_write(out, &header)
    store_int32(
        out + CRC_AT,
        <int32_t>crc32c_of(crc32c_of(0, out + ATTRIBUTES_AT, BATCH_HEADER_SIZE - ATTRIBUTES_AT), records, <size_t>size),
    )


@cython.final
cdef class ProduceResponseFrame(ResponseFrame):
    """The response to a ProduceRequestFrame of the same version.

    When it is `plain`, succeed_all() completes the request's batches; otherwise body() gives the bytes for the
    message's own decoder, which knows every field.
    """

    def __init__(self, int version):
        self.version = version

    def __dealloc__(self):
        free(self.memory)

    cdef void parse(self, uint8_t* memory, int64_t start, int64_t size) noexcept nogil:
        cdef Cursor c
        cdef bint flexible = self.version >= FLEXIBLE_VERSION
        cdef bint plain = True
        cdef int32_t topics, partitions, i, j, length
        cdef PartitionResult result
        self.memory = memory
        self.end = start + size
        cursor_init(&c, memory + start, <Py_ssize_t>size)
        take(&c, 4)
        if flexible:
            skip_tagged_fields(&c)
        self.body_at = c.p - memory
        topics = read_array_length(&c, flexible)
        for i in range(topics):
            if self.version >= TOPIC_ID_VERSION:
                result.topic = take(&c, TOPIC_ID_SIZE)
                result.topic_size = TOPIC_ID_SIZE
            else:
                result.topic = read_string(&c, flexible, &result.topic_size)
            partitions = read_array_length(&c, flexible)
            if c.error or result.topic == NULL or partitions < 0:
                plain = False
                break
            for j in range(partitions):
                result.partition = read_int32(&c)
                plain = read_int16(&c) == 0 and plain
                result.base_offset = read_int64(&c)
                result.log_append_time = read_int64(&c) if self.version >= LOG_APPEND_TIME_VERSION else NO_TIMESTAMP
                if self.version >= LOG_START_OFFSET_VERSION:
                    read_int64(&c)
                if self.version >= RECORD_ERRORS_VERSION:
                    # Neither record errors nor a message; a null list of errors is not an empty one.
                    plain = read_array_length(&c, flexible) == 0 and plain
                    plain = read_string(&c, flexible, &length) == NULL and plain
                plain = plain and length_is_zero(&c, flexible)
                if c.error or not plain:
                    break
                self.results.push_back(result)
            if c.error or not plain:
                break
            plain = length_is_zero(&c, flexible)
        if plain and not c.error:
            self.throttle_time_ms = read_int32(&c)
            plain = length_is_zero(&c, flexible)
        # Bytes after the last known field belong to a newer broker, which would not send them in this version.
        self.plain = plain and not c.error and not remaining(&c) and topics >= 0

    def succeed_all(self, ProduceRequestFrame request not None, RecordAccumulator accumulator not None):
        """Completes the batches of the request in their order. False, without an effect, when the response is not plain
        or does not belong to this request."""
        cdef size_t i
        cdef FrameTopic* topic
        cdef list batches = request.batches
        if not self.plain or self.results.size() != request.parts.size():
            return False
        for i in range(self.results.size()):
            topic = &request.topics[request.parts[i].topic]
            if (
                self.results[i].partition != request.parts[i].partition
                or self.results[i].topic_size != topic.name_size
                or memcmp(self.results[i].topic, topic.name, <size_t>topic.name_size) != 0
            ):
                return False
        for i in range(self.results.size()):
            accumulator.succeed(batches[i], self.results[i].base_offset, self.results[i].log_append_time)
        return True

    def body(self):
        """The response without its header, as bytes."""
        if self.memory == NULL:
            return b""
        return PyBytes_FromStringAndSize(<const char*>self.memory + self.body_at, <Py_ssize_t>(self.end - self.body_at))

    def feed(self, bytes frame not None):
        """Parses a frame (without its size) that did not come through the I/O thread. MemoryError."""
        cdef uint8_t* memory = <uint8_t*>malloc(<size_t>max(PyBytes_GET_SIZE(frame), 1))
        if memory == NULL:
            raise MemoryError
        free(self.memory)
        self.results.clear()
        memcpy(memory, PyBytes_AS_STRING(frame), <size_t>PyBytes_GET_SIZE(frame))
        self.parse(memory, 0, PyBytes_GET_SIZE(frame))


cdef inline bint length_is_zero(Cursor* c, bint flexible) noexcept nogil:
    """Whether a section of tagged fields is empty; skips a section that is not."""
    cdef const uint8_t* at
    if not flexible:
        return True
    at = c.p
    skip_tagged_fields(c)
    return not c.error and c.p - at == 1
