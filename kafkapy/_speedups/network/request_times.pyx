"""The times of answered requests (see request_times.pxd)."""

from kafkapy._speedups.base.posix cimport atomic_count
from kafkapy._speedups.base.time_counter cimport count_time_alone, time_of, time_slot


cdef void times_count_total(ApiCounters* counters, int64_t received_ns, int64_t now_ns) noexcept nogil:
    atomic_count(&counters.total_ns, now_ns - received_ns)
    atomic_count(&counters.total_histogram[time_slot(now_ns - received_ns)], 1)


cdef void times_count_parts(ApiTimes* times, const PendingRequest* pending, int64_t now_ns) noexcept nogil:
    count_time_alone(&times.local, pending.local_ns)
    if pending.remote_ns > 0:
        count_time_alone(&times.remote, pending.remote_ns)
    elif pending.local_ns > 0 and pending.taken_ns and pending.api == NULL:
        count_time_alone(&times.queue, pending.taken_ns - pending.parked_ns)
        count_time_alone(&times.response_queue, now_ns - pending.taken_ns - pending.local_ns)


cdef dict times_read(ApiTimes* times):
    return {
        "queue": time_of(&times.queue),
        "local": time_of(&times.local),
        "remote": time_of(&times.remote),
        "response_queue": time_of(&times.response_queue),
        "send": time_of(&times.send),
        "throttle": time_of(&times.throttle),
    }
