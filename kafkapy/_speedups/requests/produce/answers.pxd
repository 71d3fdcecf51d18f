"""Python's answers to a parked Produce.

While Python has the question no other thread touches the request, so nothing is locked.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kafkapy._speedups.requests.data_plane cimport PartitionName

# A worker's answer to ASK_VALIDATE for partition entry `index` of a parked produce: its log and records (borrowed),
# then either replaced bytes (copied; NULL: unchanged) or an error.
cdef bint produce_records_to_validate(void* parked, int32_t index, PartitionName* name, const uint8_t** data,
                                      int64_t* size) noexcept nogil
# The transaction coordinator's consent to ASK_VERIFY for that entry; produce_refuse_records refuses.
cdef void produce_confirm_transaction(void* parked, int32_t index) noexcept nogil
# The subject of an ASK_VERIFY: log and producer of the batch. False without one.
cdef bint produce_batch_to_verify(void* parked, int32_t index, PartitionName* name, int64_t* producer_id,
                                  int16_t* producer_epoch) noexcept nogil
# The transactional id, borrowed; NULL: null.
cdef const uint8_t* produce_transactional_id(void* parked, int32_t* size) noexcept nogil
cdef void produce_replace_records(void* parked, int32_t index, const uint8_t* data, int64_t size) noexcept nogil
cdef void produce_refuse_records(void* parked, int32_t index, int16_t error, const char* message,
                                 Py_ssize_t message_size, const int32_t* batch_indexes,
                                 int32_t batch_index_count) noexcept nogil
