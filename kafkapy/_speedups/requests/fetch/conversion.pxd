"""Message sets for Fetch versions 0 to 3 (see conversion.pyx)."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kafkapy._speedups.requests.data_plane cimport Outcome, PartitionName
from kafkapy._speedups.requests.fetch.state cimport FetchState

cdef enum:
    CONVERTED_BELOW = 4             # versions below get message sets of v0 or v1
    MAX_WAIT_MS = 600000            # of a parked request: the default of connections.max.idle.ms

# Asks a worker to convert the read batches; False without any. The request must have no registered waiter.
cdef bint fetch_ask_for_conversion(FetchState* state, Outcome* outcome) noexcept nogil
# After the answer. True when the worker dropped all batches: the request must read again behind them.
cdef bint fetch_read_on(FetchState* state) noexcept nogil
# A worker's answer to ASK_CONVERT for partition entry `index` of a parked fetch: its log (borrowed; False: no such
# entry) with position and size of the bytes, the bytes themselves (False: unreadable), then either the message set
# (copied; end_offset is behind the last batch seen, dropped ones too; False: no memory for it) or an error.
cdef bint fetch_records_to_convert(void* parked, int32_t index, PartitionName* name, int64_t* fetch_offset,
                                   int64_t* size) noexcept nogil
cdef bint fetch_read_records(void* parked, int32_t index, uint8_t* into) noexcept nogil
cdef bint fetch_give_records(void* parked, int32_t index, const uint8_t* data, int64_t size,
                             int64_t end_offset) noexcept nogil
cdef void fetch_refuse_records(void* parked, int32_t index, int16_t error) noexcept nogil
