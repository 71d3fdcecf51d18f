"""The loop's side of a client's I/O (see client_io.pxd)."""

cimport cython
from cpython.ref cimport Py_INCREF, Py_XDECREF, PyObject
from cython.operator cimport dereference, preincrement
from libc.errno cimport EINVAL, errno
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset
from libcpp.unordered_map cimport unordered_map
from libcpp.vector cimport vector
from posix.unistd cimport close

from kafkapy._speedups.base.epoll cimport EPOLLIN, EPOLL_CLOEXEC, EPOLL_CTL_ADD, epoll_create1, epoll_ctl, epoll_event
from kafkapy._speedups.base.posix cimport (
    EFD_CLOEXEC,
    EFD_NONBLOCK,
    atomic_add,
    atomic_load,
    eventfd,
    eventfd_read,
    eventfd_write,
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_t,
    pthread_mutex_unlock,
)
from kafkapy._speedups.base.send cimport send_free, send_new
from kafkapy._speedups.base.threads cimport getpid, pthread_create, pthread_join
from kafkapy._speedups.base.tls cimport TlsContext
from kafkapy._speedups.base.tls_transport cimport transport_tls
from kafkapy._speedups.base.transport cimport transport_plaintext
from kafkapy._speedups.clients.io.channel cimport (
    IO_ADD,
    IO_CLOSE,
    IO_FLUSH,
    IO_GIVE,
    IO_GONE,
    IO_SECURED,
    IO_SENT,
    IO_SUBMIT,
    SCRATCH_SIZE,
    ClientChannel,
    ClientIoState,
    ClientRequest,
    IoEvent,
    IoMail,
    close_channel,
    io_thread,
    take_transport,
    write_first,
)
from kafkapy._speedups.clients.io.frames cimport COPIED_FRAME, BytesFrame, RequestFrame, ResponseFrame

from kafkapy.errors import IllegalStateError

cdef extern from "<pthread.h>" nogil:
    int pthread_mutex_trylock(pthread_mutex_t*)

cdef extern from "<sys/epoll.h>" nogil:
    uint32_t EPOLLET

SECURED = "secured"


cdef bytes host_name(str host):
    """The name of a server as it stands in certificates. OSError for one that stands in none."""
    try:
        # The zone of an IPv6 address belongs to this machine.
        return host.partition("%")[0].encode("ascii" if host.isascii() else "idna")
    except UnicodeError:
        raise OSError(EINVAL, f"{host!r} is no host name") from None


@cython.no_gc
cdef class ClientIo:
    """The loop's side of the I/O thread. One NetworkClient owns it; every method runs on its loop's thread. The first
    `add()` starts the I/O thread.

    After a fork the child has no such thread: there every method except `close()` raises IllegalStateError.
    """

    def __cinit__(self, int64_t max_response=100_000_000):
        """max_response: bytes of the largest response; a channel that announces a larger one ends with EMSGSIZE."""
        cdef ClientIoState* s = new ClientIoState()
        cdef epoll_event event
        self.state = s
        self.reasons = {}
        s.epoll_fd = s.wake_fd = s.event_fd = -1
        pthread_mutex_init(&s.mutex, NULL)
        s.max_response = max_response
        s.pid = getpid()
        s.scratch = <uint8_t*>malloc(SCRATCH_SIZE)
        if s.scratch == NULL:
            raise MemoryError()
        s.epoll_fd = epoll_create1(EPOLL_CLOEXEC)
        s.wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)
        s.event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)
        event.events = EPOLLIN | EPOLLET
        event.data.u64 = 0
        event.data.ptr = NULL
        if (s.epoll_fd < 0 or s.wake_fd < 0 or s.event_fd < 0
                or epoll_ctl(s.epoll_fd, EPOLL_CTL_ADD, s.wake_fd, &event) < 0):
            raise OSError(errno, "no descriptors can be had for a client's I/O thread")

    def __dealloc__(self):
        cdef ClientIoState* s = self.state
        if s == NULL:
            return
        self.close()
        if s.pid == getpid():
            pthread_mutex_destroy(&s.mutex)
            free(s.scratch)
            del s

    cdef int check(self) except -1:
        if self.closed:
            raise IllegalStateError("the client is closed")
        if self.state.pid != getpid():
            raise IllegalStateError("the client belongs to the process that this one was forked from")
        return 0

    cdef int start_thread(self) except -1:
        cdef int status = pthread_create(&self.state.thread, NULL, io_thread, self.state)
        if status:
            raise OSError(status, "no thread can be had for a client's I/O")
        self.state.running = True
        return 0

    cdef int mail(self, IoMail* mail) except -1:
        cdef ClientIoState* s = self.state
        cdef bint first
        pthread_mutex_lock(&s.mutex)
        first = s.mails.empty()
        s.mails.push_back(mail[0])
        pthread_mutex_unlock(&s.mutex)
        if first:
            eventfd_write(s.wake_fd, 1)
        return 0

    def fileno(self):
        """The eventfd: readable when `events()` has something."""
        return self.state.event_fd

    def add(self, int fd, TlsContext tls=None, str host=None, int port=0):
        """Takes over a connected socket (in blocking mode: reads and writes carry non-blocking flags) and returns the
        channel's id. OSError: the caller keeps the socket.

        With a client's TLS context, the I/O thread begins with a handshake with the server of this name, and `events()`
        reports its end as SECURED; requests submitted before wait for it."""
        cdef IoMail mail
        cdef ClientChannel* channel
        cdef bytes name
        cdef const char* text = NULL
        cdef int status
        self.check()
        if fd < 0:
            raise OSError(EINVAL, "not a descriptor")
        if not self.state.running:
            self.start_thread()
        self.next_id += 1
        channel = new ClientChannel()
        channel.id = self.next_id
        pthread_mutex_init(&channel.mutex, NULL)
        channel.reason[0] = 0
        channel.handshaking = tls is not None
        if tls is None:
            transport_plaintext(&channel.transport, fd)
        else:
            name = host_name(host or "")
            # Without a name, the client checks none.
            if name:
                text = <const char*>name
            status = transport_tls(&channel.transport, fd, tls.state, text, port)
            if status:
                pthread_mutex_destroy(&channel.mutex)
                del channel
                raise OSError(status, "no TLS session can be had")
        self.open[channel.id] = channel
        memset(&mail, 0, sizeof(mail))
        mail.kind = IO_ADD
        mail.channel = channel.id
        mail.added = channel
        self.mail(&mail)
        return channel.id

    def submit(self, int64_t channel, RequestFrame request not None, ResponseFrame response):
        """Sends a request; response None: the broker sends no reply (acks=0). A closed channel drops the request:
        `events()` has reported its end, or will."""
        cdef IoMail mail
        cdef unordered_map[int64_t, ClientChannel*].iterator found
        self.check()
        memset(&mail, 0, sizeof(mail))
        mail.kind = IO_SUBMIT
        mail.channel = channel
        mail.request.correlation_id = request.correlation_id
        mail.request.request = <PyObject*>request
        Py_INCREF(request)
        if response is not None:
            mail.request.response = <PyObject*>response
            Py_INCREF(response)
        found = self.open.find(channel)
        if found != self.open.end():
            if (response is not None and isinstance(request, BytesFrame)
                    and self.written_at_once(dereference(found).second, &mail.request)):
                return
            atomic_add(&dereference(found).second.mailed, 1)
        self.mail(&mail)

    cdef bint written_at_once(self, ClientChannel* channel, ClientRequest* request) except -1:
        """Writes a request at once, if it is small and the queue before it is empty. False: it goes by mail, like any
        other."""
        cdef ClientIoState* s = self.state
        cdef IoMail mail
        cdef bint taken = False
        cdef int status = 1
        # The I/O thread owns a (TLS) session, and may be reading.
        if ((<BytesFrame>request.request).size > COPIED_FRAME or atomic_load(&channel.mailed)
                or channel.transport.session != NULL):
            return False
        if pthread_mutex_trylock(&channel.mutex):
            return False
        if channel.transport.fd >= 0 and channel.outgoing.empty():
            request.send = send_new()
            if (<BytesFrame>request.request).encode(request.send) < 0:
                send_free(request.send)
                request.send = NULL
            else:
                channel.outgoing.push_back(request[0])
                taken = True
                status = write_first(s, channel)
        pthread_mutex_unlock(&channel.mutex)
        if taken and status != 1:
            # The I/O thread handles the rest, or the error that ends the channel.
            memset(&mail, 0, sizeof(mail))
            mail.kind = IO_FLUSH
            mail.channel = channel.id
            self.mail(&mail)
        return taken

    def close_channel(self, int64_t channel):
        """Closes a channel and drops its requests in flight; `events()` reports the end."""
        cdef IoMail mail
        self.check()
        memset(&mail, 0, sizeof(mail))
        mail.kind = IO_CLOSE
        mail.channel = channel
        self.mail(&mail)

    cdef int give_channel(self, int64_t channel, take_transport take, void* owner) except -1:
        cdef IoMail mail
        self.check()
        memset(&mail, 0, sizeof(mail))
        mail.kind = IO_GIVE
        mail.channel = channel
        mail.take = take
        mail.owner = owner
        self.mail(&mail)
        return 0

    def events(self):
        """The events so far, in order: a list of (channel, what, errno or 0), where `what` is

        - a ResponseFrame that was parsed; with an errno: its request could not be encoded and was not sent;
        - a RequestFrame without response that was written (or not, with an errno);
        - SECURED: the TLS handshake is done;
        - None: the channel is closed, and its requests in flight are dropped. errno 0: closed by `close_channel()`, or
        by the peer, between two frames or within one; EBADMSG: the peer sent bytes that are no answer; EMSGSIZE: it
        announced more than max_response; EPROTO: TLS failed, or another protocol came, see `reason()`.
        """
        cdef vector[IoEvent] taken
        cdef vector[PyObject*] dropped
        cdef uint64_t value
        cdef size_t i
        cdef IoEvent* event
        cdef list out = []
        if self.closed:
            return out
        self.check()
        eventfd_read(self.state.event_fd, &value)
        pthread_mutex_lock(&self.state.mutex)
        taken.swap(self.state.events)
        dropped.swap(self.state.dropped)
        pthread_mutex_unlock(&self.state.mutex)
        for i in range(taken.size()):
            event = &taken[i]
            if event.kind == IO_GONE:
                out.append((event.channel, None, event.error))
                self.forget(event.channel)
            elif event.kind == IO_SECURED:
                out.append((event.channel, SECURED, 0))
            elif event.kind == IO_SENT:
                out.append((event.channel, <object>event.request, event.error))
            else:
                out.append((event.channel, <object>event.response, event.error))
            Py_XDECREF(event.request)
            Py_XDECREF(event.response)
        for i in range(dropped.size()):
            Py_XDECREF(dropped[i])
        return out

    cdef void forget(self, int64_t channel) noexcept:
        cdef bytes reason
        cdef unordered_map[int64_t, ClientChannel*].iterator found = self.open.find(channel)
        if found != self.open.end():
            if dereference(found).second.reason[0]:
                reason = <bytes>(<const char*>dereference(found).second.reason)
                self.reasons[channel] = reason.decode("utf-8", "replace")
            self.past_bytes_in += dereference(found).second.bytes_in
            self.past_bytes_out += dereference(found).second.bytes_out
            pthread_mutex_destroy(&dereference(found).second.mutex)
            del dereference(found).second
            self.open.erase(found)

    def reason(self, int64_t channel):
        """Why a channel has ended with EPROTO, as a part of a sentence; "" when it is not known. Forgets it."""
        return self.reasons.pop(channel, "")

    def bytes_in(self, int64_t channel=0):
        """Bytes read from a channel, 0 when it is gone; without a channel: from all channels, closed ones too."""
        cdef unordered_map[int64_t, ClientChannel*].iterator it
        cdef int64_t total = 0 if channel else self.past_bytes_in
        it = self.open.begin()
        while it != self.open.end():
            if not channel or dereference(it).first == channel:
                total += atomic_load(&dereference(it).second.bytes_in)
            preincrement(it)
        return total

    def bytes_out(self, int64_t channel=0):
        """Bytes written to a channel, as `bytes_in`."""
        cdef unordered_map[int64_t, ClientChannel*].iterator it
        cdef int64_t total = 0 if channel else self.past_bytes_out
        it = self.open.begin()
        while it != self.open.end():
            if not channel or dereference(it).first == channel:
                total += atomic_load(&dereference(it).second.bytes_out)
            preincrement(it)
        return total

    def close(self):
        """Ends the thread and closes every channel; no event follows, and requests in flight are dropped. May be called
        again. In a forked child it closes only the descriptors: the connections go on in the parent."""
        cdef ClientIoState* s = self.state
        cdef ClientChannel* channel
        cdef unordered_map[int64_t, ClientChannel*].iterator it
        cdef bint own = s.pid == getpid()
        if self.closed:
            return
        self.closed = True
        if own and s.running:
            pthread_mutex_lock(&s.mutex)
            s.stop = True
            pthread_mutex_unlock(&s.mutex)
            eventfd_write(s.wake_fd, 1)
            with nogil:
                pthread_join(s.thread, NULL)
            s.running = False
        it = self.open.begin()
        while it != self.open.end():
            channel = dereference(it).second
            if own:
                close_channel(s, channel, 0)
            elif channel.transport.fd >= 0:
                close(channel.transport.fd)
            preincrement(it)
        if own:
            self.drop_references()
        for fd in (s.epoll_fd, s.wake_fd, s.event_fd):
            if fd >= 0:
                close(fd)
        s.epoll_fd = s.wake_fd = s.event_fd = -1

    cdef void drop_references(self) noexcept:
        """Drops every reference that the ended thread held."""
        cdef ClientIoState* s = self.state
        cdef vector[PyObject*] dropped
        cdef size_t i
        for i in range(s.mails.size()):
            if s.mails[i].kind == IO_GIVE:
                s.mails[i].take(s.mails[i].owner, NULL)
        s.mails.clear()
        s.turn_events.clear()
        for i in range(s.events.size()):
            s.dropped.push_back(s.events[i].request)
            s.dropped.push_back(s.events[i].response)
        s.events.clear()
        while not self.open.empty():
            self.forget(dereference(self.open.begin()).first)
        dropped.swap(s.dropped)
        for i in range(dropped.size()):
            Py_XDECREF(dropped[i])
