"""What ends an acquisition: acknowledgements, the end of a session, time-outs, and writes that end.

An acknowledgement goes over its ranges twice: the first pass only checks, so that a refused request changes nothing.
"""

from libc.stdint cimport int16_t, int32_t, int64_t
from libcpp.vector cimport vector

from kafkapy._speedups.share.layout cimport AcquiredRange, Acknowledgement, StateChange
from kafkapy._speedups.share.window cimport Window

cdef int16_t check_acknowledgements(const Acknowledgement* batches, size_t count, bint renew) noexcept nogil
# An error code. Changes are noted as pending ones.
cdef int16_t window_acknowledge(Window* window, int32_t member, const Acknowledgement* batches, size_t count,
                                int64_t now_ms) noexcept nogil
cdef void window_release_member(Window* window, int32_t member) noexcept nogil
# True: a lock has ended.
cdef bint window_expire(Window* window, int64_t now_ms) noexcept nogil
# Ends the pending transitions among the changes. True: records became available or the start offset moved.
cdef bint window_finish(Window* window, const vector[StateChange]* changes, bint stored, int64_t now_ms) noexcept nogil
# Archives "archiving" records. True: the start offset moved.
cdef bint window_dead_lettered(Window* window, int64_t first, int64_t last) noexcept nogil
cdef void window_archiving(Window* window, vector[AcquiredRange]* out) noexcept nogil
# Puts changes into the order of offsets. Where they overlap, the later one holds.
cdef void order_changes(vector[StateChange]* changes) noexcept nogil
