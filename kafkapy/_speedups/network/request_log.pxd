"""The records of kafka.request.logger for requests that the data plane serves itself.

The Processor makes a record at the final outcome of a request, because the frame is freed soon after, and posts it
after the last byte of the reply. It does nothing while the log is off. The event's text (native byte order, no
padding):

    api key int16 | version int16 | correlation id int32 | listener index int16 | request bytes int64 |
    response bytes int64 | local ns int64 | remote ns int64 | total ns int64 | body bytes int64 |
    client id size int32 (-1: null) | peer host size int32 | principal size int32 |
    copied body size int32 (-1: not copied) | client id | peer host | principal | body
"""

from libc.stdint cimport int64_t
from libcpp.string cimport string

from kafkapy._speedups.base.event_queue cimport EventQueueState
from kafkapy._speedups.base.posix cimport atomic_load
from kafkapy._speedups.network.connection cimport ConnectionRegistryState
from kafkapy._speedups.network.pending_request cimport PendingRequest
from kafkapy._speedups.requests.data_plane cimport DataPlaneState

cdef enum RequestLogLevel:
    REQUEST_LOG_OFF = 0
    REQUEST_LOG_REQUESTS = 1        # DEBUG: one event per request
    REQUEST_LOG_BODIES = 2          # TRACE: with a copy of a body that is not large

cdef cppclass RequestRecord:
    int64_t connection
    string text

# The record of a request, whose frame must still exist. NULL: the log is off, or Python has served the request.
cdef inline RequestRecord* request_record_of(DataPlaneState* plane, ConnectionRegistryState* registry,
                                             PendingRequest* pending) noexcept nogil:
    cdef int64_t level = atomic_load(&plane.request_log)
    if level == REQUEST_LOG_OFF or pending.api == NULL:
        return NULL
    return request_record_new(level, registry, pending)


cdef RequestRecord* request_record_new(int64_t level, ConnectionRegistryState* registry,
                                       PendingRequest* pending) noexcept nogil
# Posts a record and takes it over.
cdef void request_record_post(EventQueueState* events, RequestRecord* record, int64_t response_bytes,
                              int64_t total_ns) noexcept nogil
cdef void request_record_free(RequestRecord* record) noexcept nogil
