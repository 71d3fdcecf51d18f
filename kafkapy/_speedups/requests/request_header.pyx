"""Request headers in, response headers out (see request_header.pxd)."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkapy._speedups.base.wire cimport (
    ByteBuffer,
    Cursor,
    cursor_init,
    read_int16,
    read_int32,
    read_string,
    remaining,
    skip_tagged_fields,
    write_int32,
    write_int8,
)
from kafkapy._speedups.requests.apis cimport data_plane_api
from kafkapy._speedups.requests.data_plane cimport API_VERSIONS, Frame


cdef HeaderStatus request_header_decode(const ApiTableState* table, uint8_t* data, int64_t size,
                                        Frame* frame) noexcept nogil:
    cdef Cursor c
    cdef HeaderStatus status = HEADER_OK
    cdef const ApiEntry* api
    cursor_init(&c, data, size)
    frame.api_key = read_int16(&c)
    frame.api_version = read_int16(&c)
    frame.correlation_id = read_int32(&c)
    frame.client_id = NULL
    frame.client_id_size = -1
    frame.body = data + size
    frame.body_size = 0
    if c.error:
        return HEADER_TRUNCATED
    if frame.api_key < 0 or frame.api_key >= API_KEY_LIMIT or not table.apis[frame.api_key].known:
        return HEADER_UNKNOWN_API
    api = &table.apis[frame.api_key]
    if frame.api_version < api.min_version or frame.api_version > api.max_version:
        if frame.api_key != API_VERSIONS:
            return HEADER_UNSUPPORTED_VERSION
        status = HEADER_UNSUPPORTED_API_VERSIONS
    if frame.api_key != API_CONTROLLED_SHUTDOWN or frame.api_version != 0:
        frame.client_id = read_string(&c, False, &frame.client_id_size)
    if frame.api_version >= api.first_flexible:
        skip_tagged_fields(&c)
    if c.error:
        return HEADER_TRUNCATED
    frame.body_size = remaining(&c)
    frame.body = data + (size - frame.body_size)
    return status


cdef void response_header_write(const ApiTableState* table, const Frame* frame, int64_t body_size,
                                ByteBuffer* out) noexcept nogil:
    cdef bint tagged = frame.api_key != API_VERSIONS and frame.api_version >= table.apis[frame.api_key].first_flexible
    write_int32(out, <int32_t>(4 + tagged + body_size))
    write_int32(out, frame.correlation_id)
    if tagged:
        write_int8(out, 0)


cdef class ApiTable:
    """The accepted API keys and versions: a dict of api key to (min version, max version, first flexible version or
    None, served by the data plane). The server builds it once from the registry of handlers; Processors and the
    RequestChannel read it."""

    def __cinit__(self, dict apis not None):
        cdef int key
        cdef ApiEntry* entry
        self.state = new ApiTableState()
        for name, (low, high, first_flexible, served_here) in apis.items():
            key = name
            if not 0 <= key < API_KEY_LIMIT:
                raise ValueError(f"API key {key} is not between 0 and {API_KEY_LIMIT - 1}")
            if not 0 <= low <= high:
                raise ValueError(f"API key {key}: versions {low} to {high} are no range")
            if served_here and data_plane_api(key) == NULL:
                raise ValueError(f"API key {key} is not one that the data plane serves")
            entry = &self.state.apis[key]
            entry.known = True
            entry.min_version = low
            entry.max_version = high
            entry.first_flexible = 0x7FFF if first_flexible is None else first_flexible
            entry.served = data_plane_api(key) if served_here else NULL

    def __dealloc__(self):
        del self.state
