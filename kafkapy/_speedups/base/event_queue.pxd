"""The events of the data plane for the control plane: a bounded queue and an eventfd.

Any thread may post, with or without the GIL. One reader, the control loop, drains the queue.
"""

from libc.stdint cimport int32_t, int64_t, uint64_t
from libcpp.deque cimport deque
from libcpp.string cimport string

from kafkapy._speedups.base.posix cimport pthread_mutex_t

cdef enum EventKind:
    EVENT_LOG_LINE = 0              # text: a log line; argument: level * 100 + logger number
    EVENT_SEGMENT_WANTED = 1        # handle: LogState id; the log needs a prepared segment, ahead of need or because
                                    # produces wait for one
    EVENT_SEGMENT_ROLLED = 2        # handle: LogState id; argument: base offset of the new active segment
    EVENT_LOG_OFFLINE = 3           # handle: LogState id; argument: errno; text: what failed
    EVENT_HIGH_WATERMARK = 4        # handle: LogState id; argument: new high watermark; only for logs with that event
                                    # enabled
    EVENT_CONNECTION_CLOSED = 5     # handle: connection id (only for connections that Python watches)
    EVENT_REQUEST = 6               # handle: connection id; text: network/request_log.pxd; only while the request log
                                    # is on
    EVENT_FLUSH_WANTED = 7          # handle: LogState id; appends wait for a flush that flush.messages made due
    EVENT_APPENDED = 8              # worker threads have finished appends of the control plane: LogAppender.take
    EVENT_FOLLOWER_CAUGHT_UP = 9    # handle: LogState id; argument: id of a replica outside the ISR that has reached
                                    # the high watermark; once until the ISR is set
    EVENT_FOLLOWER_LOG_START = 10   # handle: LogState id; argument: id of a replica whose log start has moved; only for
                                    # logs with that event enabled

cdef struct EventCounters:
    uint64_t dropped

cdef cppclass Event:
    int32_t kind
    int64_t handle
    int64_t argument
    string text

cdef cppclass EventQueueState:
    pthread_mutex_t mutex
    deque[Event] events
    int event_fd
    size_t limit
    uint64_t dropped

cdef EventQueueState* event_queue_new(size_t limit) noexcept nogil
cdef void event_queue_free(EventQueueState* q) noexcept nogil
cdef void event_post(EventQueueState* q, int kind, int64_t handle, int64_t argument, const char* text,
                     Py_ssize_t text_size) noexcept nogil

cdef class EventQueue:
    cdef EventQueueState* state
