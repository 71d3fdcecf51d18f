"""Frames of connections that are not authenticated (see frame_guard.pxd)."""

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdio cimport snprintf

from kafkapy._speedups.base.posix cimport atomic_count, atomic_load
from kafkapy._speedups.network.selector cimport STAGE_READY, STAGE_SASL
from kafkapy._speedups.requests.client_quotas cimport QUOTAS_OFF
from kafkapy._speedups.requests.data_plane cimport API_SASL_AUTHENTICATE, API_SASL_HANDSHAKE, API_VERSIONS
from kafkapy._speedups.requests.request_header cimport (
    HEADER_OK,
    HEADER_TRUNCATED,
    HEADER_UNKNOWN_API,
    HEADER_UNSUPPORTED_API_VERSIONS,
    request_header_decode,
)


cdef HeaderStatus guarded_decode(const ApiTableState* apis, KafkaChannel* channel, uint8_t* data, int64_t size,
                                 PendingRequest* pending) noexcept nogil:
    cdef HeaderStatus status = HEADER_OK
    pending.stage = channel.stage
    pending.is_token = channel.tokens_follow
    if not pending.is_token:
        status = request_header_decode(apis, data, size, &pending.frame)
        pending.is_token = (status != HEADER_OK and status != HEADER_UNSUPPORTED_API_VERSIONS
                            and channel.stage == STAGE_SASL and channel.security.raw_tokens
                            and atomic_load(&channel.info.requests) == 0)
    if pending.is_token:
        pending.tokens_follow = True
        pending.frame.api_key = API_SASL_AUTHENTICATE
        pending.frame.api_version = -1
        pending.frame.correlation_id = 0
        pending.frame.client_id = NULL
        pending.frame.client_id_size = -1
        pending.frame.body = data
        pending.frame.body_size = size
        return HEADER_OK
    return status


cdef GuardResult guarded_pass(const KafkaChannel* channel, const PendingRequest* pending,
                              int64_t now_ns) noexcept nogil:
    cdef int api = pending.frame.api_key
    if api == API_SASL_HANDSHAKE or api == API_SASL_AUTHENTICATE:
        return GUARD_PASS
    if channel.stage == STAGE_SASL:
        return GUARD_PASS if api == API_VERSIONS else GUARD_TOO_EARLY
    return GUARD_EXPIRED if channel.session_end_ns and now_ns > channel.session_end_ns else GUARD_PASS


cdef const char* other_protocol(int64_t size) noexcept nogil:
    """Names the protocol whose first bytes look like a frame of that size; NULL: unknown."""
    cdef uint32_t first = <uint32_t>size
    if first >> 16 == 0x1603 or first >> 16 == 0x1503:
        return b"TLS"
    # The first four letters of GET, POST, HEAD, PUT, OPTIONS, DELETE, CONNECT and PATCH.
    if (first == 0x47455420 or first == 0x504F5354 or first == 0x48454144 or first == 0x50555420
            or first == 0x4F505449 or first == 0x44454C45 or first == 0x434F4E4E or first == 0x50415443):
        return b"HTTP"
    return NULL


cdef void explain_size(KafkaChannel* channel, int64_t size, char* why, size_t room) noexcept nogil:
    cdef const char* other = other_protocol(size) if atomic_load(&channel.info.requests) == 0 else NULL
    cdef const char* key = b"socket.request.max.bytes"
    if other != NULL:
        snprintf(why, room, b"%s came instead of Kafka's protocol", other)
        return
    if channel.stage == STAGE_SASL:
        key = b"sasl.server.max.receive.size"
    snprintf(why, room, b"a request of %lld bytes is not between 0 and %lld (%s)", <long long>size,
             <long long>channel.max_frame, key)


cdef void explain_header(HeaderStatus status, const Frame* frame, char* why, size_t room) noexcept nogil:
    if status == HEADER_TRUNCATED:
        snprintf(why, room, b"the request header is truncated")
    elif status == HEADER_UNKNOWN_API:
        snprintf(why, room, b"API key %d is not known", <int>frame.api_key)
    else:
        snprintf(why, room, b"version %d of API key %d is not served", <int>frame.api_version, <int>frame.api_key)


cdef void explain_guard(const KafkaChannel* channel, const PendingRequest* pending, GuardResult result, char* why,
                        size_t room) noexcept nogil:
    if result == GUARD_EXPIRED:
        atomic_count(&channel.security.expired, 1)
        snprintf(why, room, b"its session has expired, and it did not authenticate again")
    else:
        snprintf(why, room, b"a request with API key %d came before the SASL authentication",
                 <int>pending.frame.api_key)


cdef void guard_lift(KafkaChannel* channel, int64_t max_frame, int64_t session_end_ns) noexcept nogil:
    channel.stage = STAGE_READY
    channel.info.buckets.epoch = QUOTAS_OFF     # of another principal
    channel.session_end_ns = session_end_ns
    channel.guarded = session_end_ns != 0
    channel.tokens_follow = False
    channel.max_frame = max_frame
