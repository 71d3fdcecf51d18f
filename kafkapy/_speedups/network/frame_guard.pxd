"""The frames that a connection may send before it is authenticated, and after its session has ended."""

from libc.stdint cimport int64_t, uint8_t

from kafkapy._speedups.network.pending_request cimport PendingRequest
from kafkapy._speedups.network.selector cimport KafkaChannel
from kafkapy._speedups.requests.data_plane cimport Frame
from kafkapy._speedups.requests.request_header cimport ApiTableState, HeaderStatus

cdef enum GuardResult:
    GUARD_PASS = 0
    GUARD_TOO_EARLY = 1         # before the authentication
    GUARD_EXPIRED = 2           # after the end of the session

# Like request_header_decode, for a channel that is guarded: the frame may be a SASL token without a header.
cdef HeaderStatus guarded_decode(const ApiTableState* apis, KafkaChannel* channel, uint8_t* data, int64_t size,
                                 PendingRequest* pending) noexcept nogil
# Whether a channel that is guarded may send that request now.
cdef GuardResult guarded_pass(const KafkaChannel* channel, const PendingRequest* pending, int64_t now_ns) noexcept nogil
# Says why a frame of that size is refused.
cdef void explain_size(KafkaChannel* channel, int64_t size, char* why, size_t room) noexcept nogil
# Says why such a request header is refused.
cdef void explain_header(HeaderStatus status, const Frame* frame, char* why, size_t room) noexcept nogil
# Says why such a request is refused.
cdef void explain_guard(const KafkaChannel* channel, const PendingRequest* pending, GuardResult result, char* why,
                        size_t room) noexcept nogil
# The channel is authenticated: its requests are served until the end of its session (monotonic ns; 0: never).
cdef void guard_lift(KafkaChannel* channel, int64_t max_frame, int64_t session_end_ns) noexcept nogil
