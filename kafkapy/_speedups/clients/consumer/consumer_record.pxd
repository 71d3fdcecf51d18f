"""A consumer's record, and the objects that records share (see consumer_record.pyx)."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kafkapy._speedups.records.record_batch cimport RecordView


cdef class RecordMemory:
    """Memory of keys, values and headers: a response, or a slab of decompressed bytes."""
    cdef uint8_t* data          # malloc'ed; goes to spare_memory with the object

cdef class RecordOrigin:
    """The common fields of the records of one batch."""
    cdef object topic
    cdef object key_deserializer
    cdef object value_deserializer
    cdef int32_t partition
    cdef int32_t leader_epoch
    cdef int timestamp_type
    cdef bint tuple_headers     # aiokafka's headers are a tuple, kafka-python's a list

cdef class ConsumerRecord:
    cdef RecordOrigin origin
    cdef RecordMemory memory    # None once key, value and headers are made
    cdef object made_key
    cdef object made_value
    cdef object made_headers
    cdef readonly int64_t offset
    cdef readonly int64_t timestamp
    cdef const uint8_t* key_at
    cdef const uint8_t* value_at
    cdef const uint8_t* headers_at
    cdef int64_t headers_size   # encoded; once the headers are made, serialized_header_size
    cdef int32_t key_size
    cdef int32_t value_size
    cdef int32_t header_count
    cdef int16_t deliveries     # number of deliveries in a share group; 0 for other consumers
    cdef uint8_t made           # made parts of the three
    cdef object make_key(self)
    cdef object make_value(self)
    cdef object make_headers(self)
    cdef tuple fields(self)

# Takes over `data`.
cdef RecordMemory memory_of(uint8_t* data)
cdef RecordOrigin origin_of(object topic, int32_t partition, int32_t leader_epoch, int timestamp_type,
                            object key_deserializer, object value_deserializer, bint tuple_headers)


cdef inline ConsumerRecord record_of(RecordOrigin origin, RecordMemory memory, int64_t offset, int64_t timestamp,
                                     const RecordView* view):
    cdef ConsumerRecord record = ConsumerRecord.__new__(ConsumerRecord)
    record.origin = origin
    record.memory = memory
    record.offset = offset
    record.timestamp = timestamp
    record.key_at = view.key
    record.key_size = view.key_size
    record.value_at = view.value
    record.value_size = view.value_size
    record.headers_at = view.headers
    record.headers_size = view.headers_size
    record.header_count = view.header_count
    return record
