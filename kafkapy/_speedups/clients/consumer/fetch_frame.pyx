"""FetchResponseFrame: a Fetch response, versions 4 to 18, decoded, checked and decompressed on the client's I/O thread.

    frame               correlation id int32 | v12+: tagged fields (response header v1)
    body                throttle time int32 (ms) | v7+: error code int16, session id int32 | responses: array of topics
      topic             v4-12: name string | v13+: topic id uuid | partitions | v12+: tagged fields
      partition         index int32 | error code int16 | high watermark int64 | last stable offset int64 |
                        v5+: log start offset int64 |
                        aborted transactions: nullable array of (producer id int64, first offset int64,
                             v12+: tagged fields) |
                        v11+: preferred read replica int32 | records nullable bytes |
                        v12+: tagged fields: 0 diverging epoch (epoch int32, end offset int64),
                                             1 current leader (id int32, epoch int32),
                                             2 snapshot id (end offset int64, epoch int32),
                                             each with tagged fields at its end
    v12+: tagged fields 0 node endpoints (v16+): array of (node id int32, host string, port int32,
                             rack nullable string, tagged fields)

Strings, arrays and bytes are compact from v12 on. The I/O thread checks batches and, within a budget for the whole
response, decompresses them (fetched_batches.pyx), so the thread that reads records only walks over bytes.

The frame owns the response's memory until partitions() hands it to the FetchedPartitions, each of which keeps all of it
alive.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy
from libcpp.algorithm cimport sort

from kafkapy._speedups.base.spare_memory cimport spare_take
from kafkapy._speedups.base.wire cimport (
    cursor_init,
    read_array_length,
    read_bytes,
    read_int16,
    read_int32,
    read_int64,
    read_string,
    read_unsigned_varint,
    remaining,
    skip_tagged_fields,
    take,
)
from kafkapy._speedups.clients.consumer.consumer_record cimport RecordMemory, memory_of
from kafkapy._speedups.clients.consumer.fetched_batches cimport batches_scan
from kafkapy._speedups.clients.consumer.fetched_partition cimport (
    AbortedTransaction,
    FetchedPartition,
    partition_data_free,
    partition_data_new,
)
from kafkapy._speedups.protocol.uuid_value cimport uuid_from

from kafkapy.errors import KafkaProtocolError

cdef enum:
    MIN_VERSION = 4
    MAX_VERSION = 18
    LOG_START_VERSION = 5
    SESSION_VERSION = 7
    REPLICA_VERSION = 11
    FLEXIBLE_VERSION = 12
    TOPIC_ID_VERSION = 13
    UUID_SIZE = 16
    TAG_DIVERGING_EPOCH = 0
    TAG_CURRENT_LEADER = 1
    TAG_SNAPSHOT_ID = 2
    TAG_NODE_ENDPOINTS = 0


cdef bint begins_before(const AbortedTransaction& a, const AbortedTransaction& b) noexcept nogil:
    return a.first_offset < b.first_offset


cdef class FetchFrame(ResponseFrame):
    """The response to one Fetch or ShareFetch of this version. check_crcs: whether a wrong CRC is an error
    (check.crcs). max_decompressed: the bytes of compressed batches that the I/O thread may open; later batches are
    opened at their turn, one at a time.

    throttle_ms and error_code are the response's.
    """

    def __cinit__(self, int version, bint check_crcs=True, int64_t max_decompressed=0x7FFFFFFFFFFFFFFF):
        self.version = version
        self.flexible = True
        self.check_crcs = check_crcs
        self.max_decompressed = max_decompressed
        self.memory = NULL
        self.malformed = True
        self.read = new vector[PartitionData*]()
        self.endpoints = new vector[EndpointData]()

    def __dealloc__(self):
        cdef size_t i
        if self.read != NULL:       # else the arguments were none
            for i in range(self.read.size()):
                partition_data_free(self.read[0][i])
        del self.read
        del self.endpoints
        free(self.memory)

    cdef void parse(self, uint8_t* memory, int64_t start, int64_t size) noexcept nogil:
        cdef Cursor c
        free(self.memory)
        self.memory = memory
        cursor_init(&c, memory + start, size)
        read_int32(&c)
        if self.flexible:
            skip_tagged_fields(&c)
        self.parse_body(&c)
        self.malformed = c.error != 0 or remaining(&c) != 0

    cdef void parse_body(self, Cursor* c) noexcept nogil:
        c.error = 1                 # a subclass reads the fields

    cdef void parse_endpoints(self, Cursor* c) noexcept nogil:
        cdef EndpointData endpoint
        cdef int32_t i
        cdef int32_t count = read_array_length(c, True)
        for i in range(count):
            endpoint.node_id = read_int32(c)
            endpoint.host = read_string(c, True, &endpoint.host_size)
            endpoint.port = read_int32(c)
            endpoint.rack = read_string(c, True, &endpoint.rack_size)
            skip_tagged_fields(c)
            if c.error or endpoint.host == NULL:
                c.error = 1
                return
            self.endpoints.push_back(endpoint)

    @property
    def node_endpoints(self):
        """[(node id, host, port, rack or None)] of the partitions' current leaders (KIP-951)."""
        cdef EndpointData endpoint
        cdef size_t i
        if self.made_endpoints is None:
            if self.malformed:
                raise KafkaProtocolError("the response to a Fetch cannot be decoded")
            self.made_endpoints = []
            for i in range(self.endpoints.size()):
                endpoint = self.endpoints[0][i]
                rack = None
                if endpoint.rack_size >= 0:
                    rack = PyUnicode_DecodeUTF8(<const char*>endpoint.rack, endpoint.rack_size, "replace")
                host = PyUnicode_DecodeUTF8(<const char*>endpoint.host, endpoint.host_size, "replace")
                self.made_endpoints.append((endpoint.node_id, host, endpoint.port, rack))
        return self.made_endpoints

    cdef RecordMemory hand_over(self):
        """The response's memory, for the partitions; once. KafkaProtocolError for a malformed response."""
        cdef RecordMemory memory
        if self.malformed:
            raise KafkaProtocolError("the response to a Fetch cannot be decoded")
        if self.memory == NULL:
            raise KafkaProtocolError("the partitions of a response are handed out once")
        self.node_endpoints
        memory = memory_of(self.memory)
        self.memory = NULL
        return memory

    def feed(self, frame):
        """Reads a whole frame without its size, as the I/O thread does with received bytes. A frame takes one
        response."""
        cdef Py_buffer view
        cdef uint8_t* memory
        if self.memory != NULL or self.made_endpoints is not None:      # the latter: it was handed over
            raise KafkaProtocolError("a frame takes one response")
        PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)
        try:
            memory = spare_take(view.len)
            if memory == NULL:
                memory = <uint8_t*>malloc(max(view.len, 1))
            if memory == NULL:
                raise MemoryError()
            memcpy(memory, view.buf, view.len)
        finally:
            PyBuffer_Release(&view)
        with nogil:
            self.parse(memory, 0, view.len)


cdef class FetchResponseFrame(FetchFrame):
    """The response to one Fetch; arguments as FetchFrame's. session_id is the response's; before version 7 the
    session's fields are 0.
    """

    def __cinit__(self, int version, bint check_crcs=True, int64_t max_decompressed=0x7FFFFFFFFFFFFFFF):
        self.flexible = version >= FLEXIBLE_VERSION
        if not MIN_VERSION <= version <= MAX_VERSION:
            raise ValueError(f"Fetch version {version} is not between {MIN_VERSION} and {MAX_VERSION}")

    cdef void parse_body(self, Cursor* c) noexcept nogil:
        cdef bint flexible = self.version >= FLEXIBLE_VERSION
        cdef PartitionData* data
        cdef const uint8_t* topic = NULL
        cdef const uint8_t* topic_id = NULL
        cdef const uint8_t* records
        cdef int32_t topic_size = 0
        cdef int32_t record_size, i, k, topics, partitions
        cdef uint32_t tags, tag
        cdef Cursor field
        cdef int32_t field_size
        cdef int64_t budget = self.max_decompressed
        self.throttle_ms = read_int32(c)
        if self.version >= SESSION_VERSION:
            self.error_code = read_int16(c)
            self.session_id = read_int32(c)
        topics = read_array_length(c, flexible)
        for i in range(topics):
            if self.version >= TOPIC_ID_VERSION:
                topic_id = take(c, UUID_SIZE)
            else:
                topic = read_string(c, flexible, &topic_size)
                if topic == NULL:
                    c.error = 1
            partitions = read_array_length(c, flexible)
            for k in range(partitions):
                if c.error:
                    return
                data = partition_data_new()
                self.read.push_back(data)
                data.topic = topic
                data.topic_size = topic_size
                data.topic_id = topic_id
                self.parse_partition(c, data)
                records = read_bytes(c, flexible, &record_size)
                if flexible:
                    tags = read_unsigned_varint(c)
                    while tags > 0 and not c.error:
                        tag = read_unsigned_varint(c)
                        field_size = <int32_t>read_unsigned_varint(c)
                        cursor_init(&field, take(c, field_size), field_size)
                        parse_partition_tag(&field, tag, data, c)
                        tags -= 1
                if c.error:
                    return
                if record_size > 0:
                    data.record_bytes = record_size
                    data.opened_bytes = batches_scan(records, record_size, self.check_crcs, &budget, &data.batches,
                                                     &data.slabs)
            if flexible:
                skip_tagged_fields(c)
        if flexible:
            tags = read_unsigned_varint(c)
            while tags > 0 and not c.error:
                tag = read_unsigned_varint(c)
                field_size = <int32_t>read_unsigned_varint(c)
                cursor_init(&field, take(c, field_size), field_size)
                if tag == TAG_NODE_ENDPOINTS and not c.error:
                    self.parse_endpoints(&field)
                    c.error = field.error
                tags -= 1

    cdef void parse_partition(self, Cursor* c, PartitionData* data) noexcept nogil:
        """Parses the fields before the records."""
        cdef bint flexible = self.version >= FLEXIBLE_VERSION
        cdef AbortedTransaction transaction
        cdef int32_t i, count
        data.partition = read_int32(c)
        data.error_code = read_int16(c)
        data.high_watermark = read_int64(c)
        data.last_stable_offset = read_int64(c)
        if self.version >= LOG_START_VERSION:
            data.log_start_offset = read_int64(c)
        count = read_array_length(c, flexible)
        for i in range(count):
            transaction.producer_id = read_int64(c)
            transaction.first_offset = read_int64(c)
            if flexible:
                skip_tagged_fields(c)
            if c.error:
                return
            data.aborted.push_back(transaction)
        sort(data.aborted.begin(), data.aborted.end(), begins_before)
        if self.version >= REPLICA_VERSION:
            data.preferred_read_replica = read_int32(c)

    def partitions(self):
        """The FetchedPartitions, in the response's order; once. KafkaProtocolError for a malformed response."""
        cdef list out = []
        cdef FetchedPartition partition
        cdef PartitionData* data
        cdef RecordMemory memory = self.hand_over()
        cdef const uint8_t* named = NULL
        cdef const uint8_t* identified = NULL
        cdef str topic = None
        cdef object topic_id = None
        cdef size_t i
        for i in range(self.read.size()):
            data = self.read[0][i]
            # Neighbours of one topic share its name.
            if data.topic != NULL and data.topic != named:
                named = data.topic
                topic = PyUnicode_DecodeUTF8(<const char*>named, data.topic_size, "replace")
            if data.topic_id != NULL and data.topic_id != identified:
                identified = data.topic_id
                topic_id = uuid_from(identified)
            partition = FetchedPartition.__new__(FetchedPartition)
            partition.adopt(data, memory)
            self.read[0][i] = NULL
            partition.topic = topic
            partition.topic_id = topic_id
            out.append(partition)
        return out


cdef void parse_partition_tag(Cursor* c, uint32_t tag, PartitionData* data, Cursor* whole) noexcept nogil:
    """Parses one tagged field of a partition; whole.error when it is cut."""
    if whole.error:
        return
    if tag == TAG_DIVERGING_EPOCH:
        data.diverging_epoch.epoch = read_int32(c)
        data.diverging_epoch.offset = read_int64(c)
    elif tag == TAG_CURRENT_LEADER:
        data.leader_id = read_int32(c)
        data.leader_epoch = read_int32(c)
    elif tag == TAG_SNAPSHOT_ID:
        data.snapshot_id.offset = read_int64(c)
        data.snapshot_id.epoch = read_int32(c)
    whole.error = c.error
