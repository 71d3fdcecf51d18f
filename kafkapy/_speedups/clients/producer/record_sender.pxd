"""The way of a record from a user's send() into the accumulator: serialize, choose a partition, append.

The base class of KafkaProducer. With a known topic and room in the buffer, a send runs no Python code but serializers,
and keeps the GIL.
"""

from libc.stdint cimport int32_t, int64_t

from kafkapy._speedups.clients.producer.record_accumulator cimport RecordAccumulator
from kafkapy._speedups.clients.producer.record_future cimport FutureRecordMetadata


cdef class RecordSender:
    cdef public RecordAccumulator accumulator
    cdef public object key_serializer       # callable of topic, headers and data, or None
    cdef public object value_serializer
    # Callable of topic, key, serialized key, value and serialized value, or None: the accumulator's own.
    cdef public object partitioner
    cdef public object interceptors         # ProducerInterceptors or None

    cdef FutureRecordMetadata send_one(self, object topic, object value, object key, object headers, object partition,
                                       int64_t timestamp)
