"""Message sets for Fetch versions 0 to 3 (Kafka's LazyDownConversionRecords): questions and answers of a worker.

Before the reply, a worker gets the batches of the request's snapshots, and the request goes on with the worker's
message sets. The worker drops control batches, which alone make no answer: the request then reads on behind them, and
waits again if there is nothing.

While a worker has the request no other thread touches it, so nothing here is locked.
"""

from libc.stdint cimport INT32_MAX, int16_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy
from libcpp.string cimport string

from kafkapy._speedups.base.error_codes cimport ERROR_NONE
from kafkapy._speedups.base.posix cimport file_read, monotonic_ns
from kafkapy._speedups.requests.data_plane cimport ASK_CONVERT, OUTCOME_ASK, name_partition
from kafkapy._speedups.requests.fetch.decode cimport fetch_read_release
from kafkapy._speedups.requests.fetch.state cimport FETCH_CONVERT, FetchPartition

cdef extern from "<string>" namespace "std" nogil:
    string to_string(size_t value)

cdef enum:
    NS_PER_MS = 1000000


cdef bint fetch_ask_for_conversion(FetchState* state, Outcome* outcome) noexcept nogil:
    """Asks Python for a conversion. False when no partition needs one. No waiter is registered now; its log may be gone
    when the answer comes."""
    cdef size_t i
    if state.frame.api_version >= CONVERTED_BELOW:
        return False
    state.waiting.clear()
    state.waits_for.clear()
    state.ask.questions.clear()
    state.ask.kind = ASK_CONVERT
    for i in range(state.partitions.size()):
        if not state.partitions[i].refused and state.partitions[i].read.length > 0:
            state.ask.questions.push_back(to_string(i))
    if state.ask.questions.empty():
        return False
    if state.deadline_ns == 0:
        state.deadline_ns = monotonic_ns() + <int64_t>min(max(state.max_wait_ms, 0), <int>MAX_WAIT_MS) * NS_PER_MS
    state.stage = FETCH_CONVERT
    outcome.kind = OUTCOME_ASK
    outcome.ask = &state.ask
    outcome.parked = state
    return True


cdef bint fetch_read_on(FetchState* state) noexcept nogil:
    """Moves the fetch offsets behind batches that the conversion dropped. True when it dropped all batches: the request
    goes on. Else the reply has something to say."""
    cdef FetchPartition* partition
    cdef bint moved = False
    cdef size_t i
    for i in range(state.partitions.size()):
        partition = &state.partitions[i]
        if partition.refused or partition.read.error != ERROR_NONE or partition.converted_size > 0:
            return False
        if partition.converted_end > partition.request.fetch_offset:
            moved = True
        elif partition.read.length > 0:
            return False
    if moved:
        for i in range(state.partitions.size()):
            partition = &state.partitions[i]
            partition.request.fetch_offset = max(partition.request.fetch_offset, partition.converted_end)
    return moved


cdef FetchPartition* converting_partition(void* parked, int32_t index) noexcept nogil:
    cdef FetchState* state = <FetchState*>parked
    if (state.stage != FETCH_CONVERT or index < 0 or <size_t>index >= state.partitions.size()
        or state.partitions[index].refused
            or state.partitions[index].read.length <= 0 or state.partitions[index].read.segment == NULL):
        return NULL
    return &state.partitions[index]


cdef bint fetch_records_to_convert(void* parked, int32_t index, PartitionName* name, int64_t* fetch_offset,
                                   int64_t* size) noexcept nogil:
    cdef FetchPartition* partition = converting_partition(parked, index)
    if partition == NULL:
        return False
    fetch_offset[0] = partition.request.fetch_offset
    size[0] = partition.read.length
    return name_partition(partition.log, name)


cdef bint fetch_read_records(void* parked, int32_t index, uint8_t* into) noexcept nogil:
    cdef FetchPartition* partition = converting_partition(parked, index)
    cdef int64_t got
    if partition == NULL:
        return False
    got = file_read(<int>partition.read.segment.fd, into, partition.read.length, partition.read.position)
    return got == partition.read.length


cdef bint fetch_give_records(void* parked, int32_t index, const uint8_t* data, int64_t size,
                             int64_t end_offset) noexcept nogil:
    cdef FetchPartition* partition = converting_partition(parked, index)
    cdef uint8_t* copy = NULL
    if partition == NULL or size > INT32_MAX:
        return False
    if size > 0:
        copy = <uint8_t*>malloc(size)
        if copy == NULL:
            return False
        memcpy(copy, data, size)
    free(partition.converted)
    partition.converted = copy
    partition.converted_size = size
    partition.converted_end = end_offset
    return True


cdef void fetch_refuse_records(void* parked, int32_t index, int16_t error) noexcept nogil:
    cdef FetchPartition* partition = converting_partition(parked, index)
    if partition != NULL:
        fetch_read_release(partition)
        partition.read.error = error
        partition.read.length = 0
        partition.read.high_watermark = -1
