"""The times of answered requests, by API. The Processor's thread counts, the collector of the metrics reads."""

from libc.stdint cimport int64_t

from kafkapy._speedups.base.time_counter cimport TimeCounter
from kafkapy._speedups.network.pending_request cimport PendingRequest
from kafkapy._speedups.requests.data_plane cimport ApiCounters

# Times of the answered requests of one API. A time that most requests do not have is counted only where there is one:
# the others cost nothing, and the reader adds them to the lowest bucket.
cdef struct ApiTimes:
    TimeCounter queue               # in the RequestChannel, waiting for Python
    TimeCounter local               # in the handler
    TimeCounter remote              # parked
    TimeCounter response_queue      # from Python's answer to this thread
    TimeCounter send                # from the first write of the reply to its last byte
    TimeCounter throttle            # muted after the reply, for a quota

# Counts the whole time of a request that came at received_ns and ends at now_ns.
cdef void times_count_total(ApiCounters* counters, int64_t received_ns, int64_t now_ns) noexcept nogil
# Counts the parts of the time of a request that gets its answer at now_ns.
cdef void times_count_parts(ApiTimes* times, const PendingRequest* pending, int64_t now_ns) noexcept nogil
# {name of a time: (total in ns, counts by bucket)}.
cdef dict times_read(ApiTimes* times)
