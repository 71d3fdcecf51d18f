"""Records for the request log (see request_log.pxd)."""

from libc.stdint cimport int16_t, int32_t, int64_t
from libc.string cimport memcpy

from kafkapy._speedups.base.event_queue cimport EVENT_REQUEST, event_post
from kafkapy._speedups.base.posix cimport pthread_mutex_lock, pthread_mutex_unlock

import struct

cdef enum:
    RESPONSE_BYTES_AT = 2 + 2 + 4 + 2 + 8
    TOTAL_NS_AT = RESPONSE_BYTES_AT + 8 + 8 + 8
    LARGEST_COPY = 16 * 1024        # bytes of a body; the event queue keeps some thousand bodies at most

LAYOUT = struct.Struct("=hhihqqqqqqiiii")
"""The fixed fields before the client id."""


cdef inline void put16(string* text, int16_t value) noexcept nogil:
    text.append(<const char*>&value, sizeof(value))


cdef inline void put32(string* text, int32_t value) noexcept nogil:
    text.append(<const char*>&value, sizeof(value))


cdef inline void put64(string* text, int64_t value) noexcept nogil:
    text.append(<const char*>&value, sizeof(value))


cdef RequestRecord* request_record_new(int64_t level, ConnectionRegistryState* registry,
                                       PendingRequest* pending) noexcept nogil:
    cdef RequestRecord* record = new RequestRecord()
    cdef string* text = &record.text
    cdef string principal
    cdef int64_t copied = -1
    if level >= REQUEST_LOG_BODIES and pending.frame.body_size <= LARGEST_COPY:
        copied = pending.frame.body_size
    pthread_mutex_lock(&registry.mutex)
    principal = pending.connection.principal
    pthread_mutex_unlock(&registry.mutex)
    record.connection = pending.connection.id
    put16(text, pending.frame.api_key)
    put16(text, pending.frame.api_version)
    put32(text, pending.frame.correlation_id)
    put16(text, pending.frame.listener_index)
    put64(text, pending.frame_size + 4)
    put64(text, 0)
    put64(text, pending.local_ns)
    put64(text, pending.remote_ns)
    put64(text, 0)
    put64(text, pending.frame.body_size)
    put32(text, pending.frame.client_id_size)
    put32(text, <int32_t>pending.connection.peer_host.size())
    put32(text, <int32_t>principal.size())
    put32(text, <int32_t>copied)
    if pending.frame.client_id_size > 0:
        text.append(<const char*>pending.frame.client_id, pending.frame.client_id_size)
    text.append(pending.connection.peer_host)
    text.append(principal)
    if copied > 0:
        text.append(<const char*>pending.frame.body, copied)
    return record


cdef void request_record_post(EventQueueState* events, RequestRecord* record, int64_t response_bytes,
                              int64_t total_ns) noexcept nogil:
    memcpy(&record.text[0] + <int>RESPONSE_BYTES_AT, &response_bytes, sizeof(response_bytes))
    memcpy(&record.text[0] + <int>TOTAL_NS_AT, &total_ns, sizeof(total_ns))
    event_post(events, EVENT_REQUEST, record.connection, 0, record.text.data(), record.text.size())
    del record


cdef void request_record_free(RequestRecord* record) noexcept nogil:
    if record != NULL:
        del record
