"""The queue of requests to Python (see request_channel.pxd)."""

cimport cython
from libc.stdint cimport int64_t, uint64_t
from libcpp.deque cimport deque
from libcpp.vector cimport vector
from posix.unistd cimport close

from kafkapy._speedups.base.posix cimport (
    EFD_CLOEXEC,
    EFD_NONBLOCK,
    atomic_count,
    atomic_load,
    eventfd,
    eventfd_read,
    eventfd_write,
    monotonic_ns,
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)
from kafkapy._speedups.network.connection cimport ConnectionRegistry
from kafkapy._speedups.network.mailbox cimport MAIL_LOOK, Mailbox, mailbox_hold, mailbox_let_go, mailbox_post_token
from kafkapy._speedups.network.memory_pool cimport MemoryPool
from kafkapy._speedups.network.network_request cimport network_request_make
from kafkapy._speedups.network.pending_request cimport PendingRequest, pending_unref
from kafkapy._speedups.requests.data_plane cimport DataPlane
from kafkapy._speedups.requests.request_header cimport ApiTable


cdef bint channel_push(RequestChannelState* channel, PendingRequest* request, Mailbox* mailbox) noexcept nogil:
    cdef size_t i
    request.parked_ns = monotonic_ns()
    pthread_mutex_lock(&channel.mutex)
    if channel.requests.size() >= channel.limit:
        # Each mailbox is listed once: a Processor tries again with every mail.
        for i in range(channel.waiting.size()):
            if channel.waiting[i] == mailbox:
                break
        else:
            channel.waiting.push_back(mailbox)
        pthread_mutex_unlock(&channel.mutex)
        atomic_count(&channel.full, 1)
        return False
    channel.requests.push_back(request)
    pthread_mutex_unlock(&channel.mutex)
    atomic_count(&channel.pushed, 1)
    return True


cdef void channel_signal(RequestChannelState* channel) noexcept nogil:
    cdef bint first
    pthread_mutex_lock(&channel.mutex)
    first = not channel.signalled and not channel.requests.empty()
    if first:
        channel.signalled = True
    pthread_mutex_unlock(&channel.mutex)
    if first:
        eventfd_write(channel.event_fd, 1)


@cython.no_gc_clear
cdef class RequestChannel:
    """Owns the queue to Python. The SocketServer makes it; the control loop watches `fileno()` and calls `drain()`.

    `listeners` is a list of (listener name, security protocol) by listener index. `connection_data` maps connection ids
    to Python's data about a connection (a SASL exchange): set it through `NetworkRequest.connection_data`, and call
    `connection_closed` for every CONNECTION_CLOSED event.
    """

    def __cinit__(self, DataPlane plane not None, ConnectionRegistry registry not None, MemoryPool pool not None,
                  ApiTable apis not None, list listeners not None, size_t queued_max_requests=500):
        cdef int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)
        if fd < 0:
            raise OSError("no eventfd can be had for the request channel")
        self.state = new RequestChannelState()
        self.state.event_fd = fd
        self.state.limit = queued_max_requests if queued_max_requests else 1
        pthread_mutex_init(&self.state.mutex, NULL)
        self.plane = plane
        self.registry = registry
        self.pool = pool
        self.apis = apis
        self.listeners = listeners
        self.connection_data = {}

    def __dealloc__(self):
        cdef size_t i
        if self.state != NULL:
            with nogil:
                for i in range(self.state.requests.size()):
                    pending_unref(self.state.requests[i])
            close(self.state.event_fd)
            pthread_mutex_destroy(&self.state.mutex)
            del self.state

    def fileno(self):
        """The eventfd, readable when the queue has requests."""
        return self.state.event_fd

    def __len__(self):
        """The number of requests in the queue."""
        cdef size_t count
        pthread_mutex_lock(&self.state.mutex)
        count = self.state.requests.size()
        pthread_mutex_unlock(&self.state.mutex)
        return count

    def drain(self):
        """Takes every request out of the queue, a NetworkRequest each, in order of arrival. Only the control loop calls
        it."""
        cdef deque[PendingRequest*] taken
        cdef vector[Mailbox*] waiting
        cdef uint64_t value
        cdef size_t i
        cdef int64_t now = monotonic_ns()
        cdef list requests = []
        cdef PendingRequest* p
        with nogil:
            eventfd_read(self.state.event_fd, &value)
            pthread_mutex_lock(&self.state.mutex)
            taken.swap(self.state.requests)
            waiting.swap(self.state.waiting)
            self.state.signalled = False
            pthread_mutex_unlock(&self.state.mutex)
            for i in range(waiting.size()):
                mailbox_post_token(waiting[i], MAIL_LOOK, 0, NULL)
        while not taken.empty():
            p = taken.front()
            taken.pop_front()
            p.taken_ns = now
            if p.ask == NULL:
                atomic_count(&self.plane.state.apis[p.frame.api_key].queue_ns, now - p.parked_ns)
            requests.append(network_request_make(self, p))
        return requests

    def hold_replies(self):
        """Gathers this thread's replies from here on, at most sixteen, until `let_go_of_replies`."""
        mailbox_hold()

    def let_go_of_replies(self):
        """Sends the gathered replies; see hold_replies."""
        with nogil:
            mailbox_let_go()

    def connection_closed(self, int64_t connection_id):
        """Forgets the data of a connection; returns it, or None."""
        return self.connection_data.pop(connection_id, None)

    def counters(self):
        """queue_size (requests waiting now), queue_capacity, requests (handed over since the start), full (times it was
        full)."""
        return {
            "queue_size": len(self),
            "queue_capacity": self.state.limit,
            "requests": atomic_load(&self.state.pushed),
            "full": atomic_load(&self.state.full),
        }
