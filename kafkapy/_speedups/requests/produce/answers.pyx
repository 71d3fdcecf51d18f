"""Python's answers to a parked Produce: validated records, verified transactions (see answers.pxd)."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from kafkapy._speedups.base.error_codes cimport ERROR_NONE, ERROR_UNKNOWN_SERVER_ERROR
from kafkapy._speedups.base.wire cimport load_int16, load_int64
from kafkapy._speedups.records.record_batch cimport PRODUCER_EPOCH_AT, PRODUCER_ID_AT, RecordError
from kafkapy._speedups.requests.data_plane cimport name_partition
from kafkapy._speedups.requests.produce.state cimport PARTITION_PENDING, ProducePartition, ProduceState, fail_partition

cdef enum:
    MAX_MESSAGE_SIZE = 1000


cdef ProducePartition* pending_partition(void* parked, int32_t index) noexcept nogil:
    cdef ProduceState* state = <ProduceState*>parked
    if index < 0 or <size_t>index >= state.partitions.size() or state.partitions[index].stage != PARTITION_PENDING:
        return NULL
    return &state.partitions[index]


cdef bint produce_records_to_validate(void* parked, int32_t index, PartitionName* name, const uint8_t** data,
                                      int64_t* size) noexcept nogil:
    cdef ProducePartition* partition = pending_partition(parked, index)
    if partition == NULL:
        data[0] = NULL
        size[0] = 0
        return False
    data[0] = partition.records
    size[0] = partition.records_size
    return name_partition(partition.log, name)


cdef bint produce_batch_to_verify(void* parked, int32_t index, PartitionName* name, int64_t* producer_id,
                                  int16_t* producer_epoch) noexcept nogil:
    cdef ProducePartition* partition = pending_partition(parked, index)
    if partition == NULL or partition.asked_guard == 0:
        return False
    producer_id[0] = load_int64(partition.records + PRODUCER_ID_AT)
    producer_epoch[0] = load_int16(partition.records + PRODUCER_EPOCH_AT)
    return name_partition(partition.log, name)


cdef const uint8_t* produce_transactional_id(void* parked, int32_t* size) noexcept nogil:
    cdef ProduceState* state = <ProduceState*>parked
    size[0] = state.transactional_id_size
    return state.transactional_id if state.transactional_id_size >= 0 else NULL


cdef void produce_confirm_transaction(void* parked, int32_t index) noexcept nogil:
    cdef ProducePartition* partition = pending_partition(parked, index)
    if partition != NULL:
        partition.guard = partition.asked_guard


cdef void produce_replace_records(void* parked, int32_t index, const uint8_t* data, int64_t size) noexcept nogil:
    cdef ProducePartition* partition = pending_partition(parked, index)
    cdef uint8_t* copy
    if partition == NULL:
        return
    if data == NULL:
        partition.validated = True
        return
    copy = <uint8_t*>malloc(size if size > 0 else 1)
    if copy == NULL:
        fail_partition(partition, ERROR_UNKNOWN_SERVER_ERROR)
        return
    memcpy(copy, data, size)
    free(partition.replaced)
    partition.replaced = copy
    partition.records = copy
    partition.records_size = size
    partition.validated = True


cdef void produce_refuse_records(void* parked, int32_t index, int16_t error, const char* message,
                                 Py_ssize_t message_size, const int32_t* batch_indexes,
                                 int32_t batch_index_count) noexcept nogil:
    cdef ProducePartition* partition = pending_partition(parked, index)
    cdef int32_t i
    if partition == NULL:
        return
    fail_partition(partition, error if error != ERROR_NONE else <int16_t>ERROR_UNKNOWN_SERVER_ERROR)
    if message != NULL and message_size > 0:
        partition.message.assign(message, min(message_size, <Py_ssize_t>MAX_MESSAGE_SIZE))
    if batch_index_count > 0:
        partition.result.record_errors = <RecordError*>malloc(batch_index_count * sizeof(RecordError))
        if partition.result.record_errors != NULL:
            partition.result.record_error_count = batch_index_count
            for i in range(batch_index_count):
                partition.result.record_errors[i].batch_index = batch_indexes[i]
                partition.result.record_errors[i].problem = 0
