"""ShareFetchResponseFrame: a ShareFetch response, versions 1 and 2, decoded, checked and decompressed on the client's
I/O thread.

    frame               correlation id int32 | tagged fields (response header v1)
    body                throttle time int32 (ms) | error code int16 | error message nullable string |
                        acquisition lock timeout int32 (ms) | responses: array of topics |
                        node endpoints: array of (node id int32, host string, port int32, rack nullable string,
                             tagged fields) |
                        tagged fields
      topic             topic id uuid | partitions: array | tagged fields
      partition         index int32 | error code int16 | error message nullable string |
                        acknowledge error code int16 | acknowledge error message nullable string |
                        current leader (id int32, epoch int32, tagged fields) | records nullable bytes |
                        acquired records: array of (first offset int64, last offset int64, delivery count int16,
                             tagged fields) |
                        tagged fields

Strings, arrays and bytes are compact. The ranges of acquired records must be in order and apart; all of a response
have at most MAX_ACQUIRED offsets, because each of them gets a byte here.
"""

from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t
from libcpp.vector cimport vector

from kafkapy._speedups.base.wire cimport (
    Cursor,
    read_array_length,
    read_bytes,
    read_int16,
    read_int32,
    read_int64,
    read_string,
    skip_tagged_fields,
    take,
)
from kafkapy._speedups.clients.consumer.acquired_partition cimport AcquiredPartition, AcquiredRange
from kafkapy._speedups.clients.consumer.consumer_record cimport RecordMemory
from kafkapy._speedups.clients.consumer.fetch_frame cimport FetchFrame
from kafkapy._speedups.clients.consumer.fetched_batches cimport batches_scan
from kafkapy._speedups.clients.consumer.fetched_partition cimport PartitionData, partition_data_new
from kafkapy._speedups.protocol.uuid_value cimport uuid_from

cdef enum:
    MIN_VERSION = 1
    MAX_VERSION = 2
    UUID_SIZE = 16
    MAX_ACQUIRED = 1 << 24


cdef str text_of(const uint8_t* at, int32_t size):
    return None if size < 0 else PyUnicode_DecodeUTF8(<const char*>at, size, "replace")


cdef bint ranges_read(Cursor* c, vector[AcquiredRange]* ranges, int64_t* budget) noexcept nogil:
    """Reads the acquired records of a partition. False for ranges that overlap, end before they begin, or have more
    offsets than are left in `budget`."""
    cdef AcquiredRange span
    cdef int64_t before = -1
    cdef int32_t i
    cdef int32_t count = read_array_length(c, True)
    span.states_at = 0
    for i in range(count):
        span.first_offset = read_int64(c)
        span.last_offset = read_int64(c)
        span.delivery_count = read_int16(c)
        skip_tagged_fields(c)
        if c.error or span.first_offset <= before or span.last_offset < span.first_offset:
            return False
        if span.last_offset - span.first_offset >= budget[0]:
            return False
        budget[0] -= span.last_offset - span.first_offset + 1
        before = span.last_offset
        ranges.push_back(span)
    return True


cdef class ShareFetchResponseFrame(FetchFrame):
    """The response to one ShareFetch; arguments as FetchFrame's. lock_timeout_ms: how long the acquired records belong
    to this member; error_message belongs to error_code. After partitions().
    """

    def __cinit__(self, int version, bint check_crcs=True, int64_t max_decompressed=0x7FFFFFFFFFFFFFFF):
        self.acquired = new vector[AcquiredData*]()
        self.message_size = -1
        if not MIN_VERSION <= version <= MAX_VERSION:
            raise ValueError(f"ShareFetch version {version} is not between {MIN_VERSION} and {MAX_VERSION}")

    def __dealloc__(self):
        cdef size_t i
        if self.acquired != NULL:       # else the arguments were none
            for i in range(self.acquired.size()):
                del self.acquired[0][i]
        del self.acquired

    cdef void parse_body(self, Cursor* c) noexcept nogil:
        cdef PartitionData* data
        cdef AcquiredData* acquired
        cdef const uint8_t* topic_id
        cdef const uint8_t* records
        cdef int32_t record_size, i, k, topics, partitions
        cdef int64_t budget = self.max_decompressed
        cdef int64_t offsets = MAX_ACQUIRED
        self.throttle_ms = read_int32(c)
        self.error_code = read_int16(c)
        self.message = read_string(c, True, &self.message_size)
        self.lock_timeout_ms = read_int32(c)
        topics = read_array_length(c, True)
        for i in range(topics):
            topic_id = take(c, UUID_SIZE)
            partitions = read_array_length(c, True)
            for k in range(partitions):
                if c.error:
                    return
                data = partition_data_new()
                self.read.push_back(data)
                acquired = new AcquiredData()
                self.acquired.push_back(acquired)
                data.topic_id = topic_id
                data.partition = read_int32(c)
                data.error_code = read_int16(c)
                acquired.error_message = read_string(c, True, &acquired.error_message_size)
                acquired.acknowledge_error_code = read_int16(c)
                acquired.acknowledge_error_message = read_string(c, True, &acquired.acknowledge_error_message_size)
                data.leader_id = read_int32(c)
                data.leader_epoch = read_int32(c)
                skip_tagged_fields(c)
                records = read_bytes(c, True, &record_size)
                if not ranges_read(c, &acquired.ranges, &offsets):
                    c.error = 1
                skip_tagged_fields(c)
                if c.error:
                    return
                if record_size > 0:
                    data.record_bytes = record_size
                    data.opened_bytes = batches_scan(records, record_size, self.check_crcs, &budget, &data.batches,
                                                     &data.slabs)
            skip_tagged_fields(c)
            if c.error:
                return
        self.parse_endpoints(c)
        skip_tagged_fields(c)

    def partitions(self):
        """The AcquiredPartitions, in the response's order; once. KafkaProtocolError for a malformed response."""
        cdef list out = []
        cdef AcquiredPartition partition
        cdef AcquiredData* acquired
        cdef PartitionData* data
        cdef RecordMemory memory = self.hand_over()
        cdef const uint8_t* identified = NULL
        cdef object topic_id = None
        cdef size_t i
        self.error_message = text_of(self.message, self.message_size)
        for i in range(self.read.size()):
            data = self.read[0][i]
            acquired = self.acquired[0][i]
            if data.topic_id != identified:
                identified = data.topic_id
                topic_id = uuid_from(identified)
            partition = AcquiredPartition.__new__(AcquiredPartition)
            partition.adopt(data, memory)
            self.read[0][i] = NULL
            partition.topic_id = topic_id
            partition.error_message = text_of(acquired.error_message, acquired.error_message_size)
            partition.acknowledge_error_code = acquired.acknowledge_error_code
            partition.acknowledge_error_message = text_of(acquired.acknowledge_error_message,
                                                          acquired.acknowledge_error_message_size)
            partition.acquire(&acquired.ranges)
            out.append(partition)
        return out
