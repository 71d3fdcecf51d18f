"""A Produce request of a producer, and its response, for the client's I/O thread. Without the GIL.

Versions 3 to 13. requests/produce/decode.pyx (request) and protocol/messages/produce.py (both) describe the wire
formats. The request compresses its batches, writes their headers with the CRC, and lends uncompressed records; it holds
the memory of its batches until it is freed.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libcpp.vector cimport vector

from kafkapy._speedups.base.send cimport Send
from kafkapy._speedups.clients.io.frames cimport RequestFrame, ResponseFrame

cdef struct FrameBatch:
    int32_t topic                   # index into `topics`
    int32_t partition
    const uint8_t* records          # lent by a ProducerBatch in `batches`
    int64_t size
    int32_t record_count
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t producer_id
    int16_t producer_epoch
    int32_t base_sequence
    bint transactional

cdef struct FrameTopic:
    const uint8_t* name             # or 16 bytes of topic id, from version 13 on; of an object in `names`
    int32_t name_size
    int32_t batch_count             # of batches, which follow each other


cdef class ProduceRequestFrame(RequestFrame):
    cdef readonly list batches      # ProducerBatch, in the order of the request
    cdef readonly int version
    cdef readonly int64_t bytes_before      # of its batches before compression
    cdef readonly int64_t bytes_encoded     # of the whole frame; 0 before `encode`
    cdef vector[FrameBatch] parts
    cdef vector[FrameTopic] topics
    cdef list names
    cdef bytes header
    cdef const uint8_t* header_data
    cdef int32_t header_size
    cdef bytes transactional_id
    cdef const uint8_t* transactional_data
    cdef int32_t transactional_size
    cdef int16_t acks
    cdef int32_t timeout_ms
    cdef int codec
    cdef int level
    cdef bint released

cdef struct PartitionResult:
    const uint8_t* topic
    int32_t topic_size
    int32_t partition
    int64_t base_offset
    int64_t log_append_time


cdef class ProduceResponseFrame(ResponseFrame):
    cdef readonly int version
    cdef readonly int32_t throttle_time_ms
    cdef readonly bint plain        # every partition has succeeded, and the response says no more
    cdef vector[PartitionResult] results
    cdef uint8_t* memory
    cdef int64_t body_at
    cdef int64_t end
