"""The event queue between the data plane's threads and the control loop (see event_queue.pxd)."""

from libcpp.utility cimport move

from posix.unistd cimport close

from kafkapy._speedups.base.posix cimport (
    EFD_CLOEXEC,
    EFD_NONBLOCK,
    eventfd,
    eventfd_read,
    eventfd_write,
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)

LOG_LINE = EVENT_LOG_LINE
SEGMENT_WANTED = EVENT_SEGMENT_WANTED
SEGMENT_ROLLED = EVENT_SEGMENT_ROLLED
FLUSH_WANTED = EVENT_FLUSH_WANTED
APPENDED = EVENT_APPENDED
FOLLOWER_CAUGHT_UP = EVENT_FOLLOWER_CAUGHT_UP
FOLLOWER_LOG_START = EVENT_FOLLOWER_LOG_START
LOG_OFFLINE = EVENT_LOG_OFFLINE
HIGH_WATERMARK = EVENT_HIGH_WATERMARK
CONNECTION_CLOSED = EVENT_CONNECTION_CLOSED
REQUEST = EVENT_REQUEST

cdef enum:
    SHARE_OF_REQUESTS = 8       # the request log gets this share (1/n) of the queue: its events may be large


cdef EventQueueState* event_queue_new(size_t limit) noexcept nogil:
    """A new queue; NULL when the system has no eventfd left."""
    cdef int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)
    if fd < 0:
        return NULL
    cdef EventQueueState* q = new EventQueueState()
    pthread_mutex_init(&q.mutex, NULL)
    q.event_fd = fd
    q.limit = limit
    q.dropped = 0
    return q


cdef void event_queue_free(EventQueueState* q) noexcept nogil:
    if q != NULL:
        close(q.event_fd)
        pthread_mutex_destroy(&q.mutex)
        del q


cdef void event_post(EventQueueState* q, int kind, int64_t handle, int64_t argument, const char* text,
                     Py_ssize_t text_size) noexcept nogil:
    """Appends an event. A full queue drops and counts log lines and logged requests, so hostile peers cannot bloat it;
    the number of logs and connections bounds the other kinds, which are always kept."""
    cdef Event event
    cdef bint first
    cdef size_t limit = q.limit // SHARE_OF_REQUESTS if kind == EVENT_REQUEST else q.limit
    event.kind = kind
    event.handle = handle
    event.argument = argument
    if text != NULL and text_size > 0:
        event.text.assign(text, text_size)
    pthread_mutex_lock(&q.mutex)
    if (kind == EVENT_LOG_LINE or kind == EVENT_REQUEST) and q.events.size() >= limit:
        q.dropped += 1
        pthread_mutex_unlock(&q.mutex)
        return
    first = q.events.empty()
    q.events.push_back(move(event))
    pthread_mutex_unlock(&q.mutex)
    if first:
        eventfd_write(q.event_fd, 1)


cdef class EventQueue:
    """Owns the queue. The server creates one, the control loop drains it, any thread posts."""

    def __cinit__(self, size_t limit=10_000):
        self.state = event_queue_new(limit)
        if self.state == NULL:
            raise OSError("no eventfd can be had for the event queue")

    def __dealloc__(self):
        event_queue_free(self.state)

    def fileno(self):
        """The eventfd, readable while events wait."""
        return self.state.event_fd

    @property
    def dropped(self):
        """Log lines and logged requests dropped since the start because the queue was full."""
        return self.state.dropped

    def post(self, int kind, int64_t handle, int64_t argument, bytes text=b""):
        """Posts from Python (used by tests and by Python threads)."""
        event_post(self.state, kind, handle, argument, <const char*>text, len(text))

    def drain(self):
        """Takes everything queued: a list of (kind, handle, argument, text bytes)."""
        cdef deque[Event] taken
        cdef uint64_t value
        eventfd_read(self.state.event_fd, &value)
        pthread_mutex_lock(&self.state.mutex)
        taken.swap(self.state.events)
        pthread_mutex_unlock(&self.state.mutex)
        out = []
        while not taken.empty():
            out.append((taken.front().kind, taken.front().handle, taken.front().argument, <bytes>taken.front().text))
            taken.pop_front()
        return out
