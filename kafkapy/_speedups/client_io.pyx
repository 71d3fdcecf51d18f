"""The I/O thread of one client (see client_io.pxd)."""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.ref cimport Py_INCREF, Py_XDECREF, PyObject
from cython.operator cimport dereference, preincrement
from libc.errno cimport EAGAIN, EBADMSG, EINVAL, EMSGSIZE, ENOMEM, ENOSYS, errno
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memset
from libcpp.unordered_map cimport unordered_map
from libcpp.vector cimport vector
from posix.unistd cimport close

from kafkapy._speedups.posix cimport (
    EFD_CLOEXEC,
    EFD_NONBLOCK,
    atomic_add,
    atomic_count,
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
from kafkapy._speedups.selector cimport (
    EPOLL_CLOEXEC,
    EPOLL_CTL_ADD,
    EPOLL_CTL_DEL,
    EPOLL_CTL_MOD,
    EPOLLIN,
    EPOLLOUT,
    epoll_create1,
    epoll_ctl,
    epoll_event,
    epoll_wait,
)
from kafkapy._speedups.send cimport Send, send_free, send_lend, send_new, send_take_buffer
from kafkapy._speedups.spare_memory cimport spare_take
from kafkapy._speedups.threads cimport block_all_signals, getpid, name_thread, pthread_create, pthread_join
from kafkapy._speedups.transport cimport transport_plaintext, transport_send
from kafkapy._speedups.wire cimport ByteBuffer, buffer_init, load_int32, store_int32, write_int32, write_raw

from kafkapy.errors import IllegalStateError

cdef extern from "<pthread.h>" nogil:
    int pthread_mutex_trylock(pthread_mutex_t*)

cdef extern from "<sys/epoll.h>" nogil:
    uint32_t EPOLLET

cdef extern from "<sys/socket.h>" nogil:
    int SHUT_RDWR
    int shutdown(int fd, int how)

cdef enum:
    EVENTS_AT_ONCE = 64
    SCRATCH_SIZE = 64 * 1024
    SIZE_BYTES = 4
    SMALLEST_FRAME = 4          # the correlation id
    FIRST_CAPACITY = 1024 * 1024    # what a size from the wire gets at first; four times as much whenever that has come
    GROWTH = 4
    READ_TURN = 4 * 1024 * 1024     # bytes of one channel before others have their turn
    COPIED_FRAME = 16 * 1024    # a request up to here is copied behind its size, a larger one is lent
    CORRELATION_END = 8         # int16 api key, int16 version, int32 correlation id
    CORRELATION_START = 4


# --- frames -------------------------------------------------------------------------------------------------------


cdef class RequestFrame:
    cdef int64_t encode(self, Send* into) noexcept nogil:
        return -ENOSYS


cdef class ResponseFrame:
    cdef void parse(self, uint8_t* memory, int64_t start, int64_t size) noexcept nogil:
        free(memory)


cdef class BytesFrame(RequestFrame):
    def __init__(self, bytes frame not None):
        """frame: request header and body without the 4-byte size. ValueError when it is too short for a header."""
        if len(frame) < CORRELATION_END:
            raise ValueError(f"a request of {len(frame)} bytes has no header")
        self.frame = frame
        self.data = <const uint8_t*><char*>frame
        self.size = len(frame)

    cdef int64_t encode(self, Send* into) noexcept nogil:
        cdef int64_t copied = self.size if self.size <= COPIED_FRAME else CORRELATION_END
        cdef ByteBuffer head
        buffer_init(&head)
        write_int32(&head, <int32_t>self.size)
        write_raw(&head, self.data, copied)
        if head.error:
            free(head.data)
            return -ENOMEM
        store_int32(head.data + SIZE_BYTES + CORRELATION_START, self.correlation_id)
        send_take_buffer(into, &head)
        send_lend(into, self.data + copied, self.size - copied)
        return 0


cdef class BytesResponse(ResponseFrame):
    def __dealloc__(self):
        free(self.memory)

    cdef void parse(self, uint8_t* memory, int64_t start, int64_t size) noexcept nogil:
        self.memory = memory
        self.start = start
        self.size = size

    def __getbuffer__(self, Py_buffer* view, int flags):
        if self.memory == NULL:
            raise BufferError("there is no response yet")
        PyBuffer_FillInfo(view, self, self.memory + self.start, self.size, 1, flags)

    @property
    def frame(self):
        """The frame without its size, as a memoryview that keeps this object: the int32 correlation id comes first."""
        return memoryview(self)


# --- what the I/O thread tells the loop ---------------------------------------------------------------------------


cdef void report(ClientIoState* s, int kind, int64_t channel, ClientRequest* request, int error) noexcept nogil:
    """Takes over the references of the request; NULL for IO_GONE."""
    cdef IoEvent event
    event.kind = kind
    event.error = error
    event.channel = channel
    event.request = request.request if request != NULL else NULL
    event.response = request.response if request != NULL else NULL
    s.turn_events.push_back(event)


cdef void publish(ClientIoState* s) noexcept nogil:
    """What was reported is handed to the loop, which is woken when it has nothing yet."""
    cdef bint first
    cdef size_t i
    if s.turn_events.empty():
        return
    pthread_mutex_lock(&s.mutex)
    first = s.events.empty()
    for i in range(s.turn_events.size()):
        s.events.push_back(s.turn_events[i])
    pthread_mutex_unlock(&s.mutex)
    s.turn_events.clear()
    if first:
        eventfd_write(s.event_fd, 1)


cdef void drop(ClientIoState* s, ClientRequest* request) noexcept nogil:
    """A request that nobody is told of: its references wait for the GIL's holder."""
    send_free(request.send)
    request.send = NULL
    pthread_mutex_lock(&s.mutex)
    s.dropped.push_back(request.request)
    if request.response != NULL:
        s.dropped.push_back(request.response)
    pthread_mutex_unlock(&s.mutex)


cdef void want(ClientIoState* s, ClientChannel* channel, uint32_t interest) noexcept nogil:
    cdef epoll_event event
    if channel.interest != interest:
        channel.interest = interest
        event.events = interest
        event.data.ptr = channel
        epoll_ctl(s.epoll_fd, EPOLL_CTL_MOD, channel.transport.fd, &event)


cdef void close_channel(ClientIoState* s, ClientChannel* channel, int error) noexcept nogil:
    """Closes the socket and reports it. The loop frees the channel when it learns that: nothing of this turn may point to it after `publish`."""
    pthread_mutex_lock(&channel.mutex)
    if channel.transport.fd < 0:
        pthread_mutex_unlock(&channel.mutex)
        return
    epoll_ctl(s.epoll_fd, EPOLL_CTL_DEL, channel.transport.fd, NULL)
    # A forked child may hold the descriptor as well: the peer is told all the same.
    shutdown(channel.transport.fd, SHUT_RDWR)
    channel.transport.functions.close(&channel.transport)
    while not channel.outgoing.empty():
        drop(s, &channel.outgoing.front())
        channel.outgoing.pop_front()
    while not channel.awaiting.empty():
        drop(s, &channel.awaiting.front())
        channel.awaiting.pop_front()
    pthread_mutex_unlock(&channel.mutex)
    free(channel.frame)
    channel.frame = NULL
    s.channels.erase(channel.id)
    report(s, IO_GONE, channel.id, NULL, error)


# --- writing ------------------------------------------------------------------------------------------------------


cdef int write_first(ClientIoState* s, ClientChannel* channel) noexcept nogil:
    """Writes the first of the queue, with the mutex held: 1 when it is done, 0 when the socket is full, or minus an errno."""
    cdef ClientRequest* request = &channel.outgoing.front()
    cdef int64_t written = 0
    cdef int status = transport_send(&channel.transport, request.send, &written)
    if written:
        atomic_count(&channel.bytes_out, written)
    if status == 1:
        send_free(request.send)
        request.send = NULL
        if request.response != NULL:
            channel.awaiting.push_back(request[0])
        else:
            report(s, IO_SENT, channel.id, request, 0)
        channel.outgoing.pop_front()
    return status


cdef int write_queue(ClientIoState* s, ClientChannel* channel) noexcept nogil:
    """Encodes and writes what is queued, with the mutex held: 1 when all is written, 0 when the socket is full, or minus an errno."""
    cdef ClientRequest* request
    cdef int64_t status = 1
    while not channel.outgoing.empty() and status == 1:
        request = &channel.outgoing.front()
        if request.send == NULL:
            request.send = send_new()
            status = (<RequestFrame>request.request).encode(request.send)
            if status < 0:
                send_free(request.send)
                request.send = NULL
                report(s, IO_RESPONSE if request.response != NULL else IO_SENT, channel.id, request, <int>-status)
                channel.outgoing.pop_front()
                status = 1
                continue
        status = write_first(s, channel)
    return <int>status


cdef void write_requests(ClientIoState* s, ClientChannel* channel) noexcept nogil:
    cdef int status
    pthread_mutex_lock(&channel.mutex)
    status = write_queue(s, channel)
    pthread_mutex_unlock(&channel.mutex)
    if status < 0:
        close_channel(s, channel, -status)
    else:
        want(s, channel, EPOLLIN if status else EPOLLIN | EPOLLOUT)


# --- reading ------------------------------------------------------------------------------------------------------


cdef int take_frame(ClientIoState* s, ClientChannel* channel, uint8_t* memory, int64_t size) noexcept nogil:
    """A whole frame, whose memory is taken over. 0 or an errno that ends the channel."""
    cdef ClientRequest request
    cdef bint expected
    # Whoever has written the request notes that it is awaited before it gives up the mutex.
    pthread_mutex_lock(&channel.mutex)
    expected = not channel.awaiting.empty() and channel.awaiting.front().correlation_id == load_int32(memory)
    if expected:
        request = channel.awaiting.front()
        channel.awaiting.pop_front()
    pthread_mutex_unlock(&channel.mutex)
    if not expected:
        free(memory)
        return EBADMSG
    (<ResponseFrame>request.response).parse(memory, 0, size)
    report(s, IO_RESPONSE, channel.id, &request, 0)
    return 0


cdef int begin_frame(ClientIoState* s, ClientChannel* channel, int64_t size, const uint8_t* data, int64_t have) noexcept nogil:
    """Memory for a frame of which `have` bytes are here. 0 or an errno."""
    # What is there already may be as large as the size claims.
    channel.frame_capacity = size
    channel.frame = spare_take(<size_t>size)
    if channel.frame == NULL:
        channel.frame_capacity = min(size, <int64_t>FIRST_CAPACITY)
        channel.frame = <uint8_t*>malloc(channel.frame_capacity)
    if channel.frame == NULL:
        return ENOMEM
    memcpy(channel.frame, data, have)
    channel.frame_have = have
    channel.frame_size = size
    return 0


cdef int take_bytes(ClientIoState* s, ClientChannel* channel, const uint8_t* data, int64_t count) noexcept nogil:
    """Frames out of bytes that were read at once; the rest is kept. 0 or an errno that ends the channel."""
    cdef int64_t size
    cdef int64_t have
    cdef int status
    while count >= SIZE_BYTES:
        size = load_int32(data)
        if size < SMALLEST_FRAME:
            return EBADMSG
        if size > s.max_response:
            return EMSGSIZE
        data += SIZE_BYTES
        count -= SIZE_BYTES
        have = min(size, count)
        status = begin_frame(s, channel, size, data, have)
        if status:
            return status
        data += have
        count -= have
        if have < size:
            break
        status = finish_frame(s, channel)
        if status:
            return status
    memcpy(channel.head, data, count)
    channel.head_size = <int>count
    return 0


cdef int finish_frame(ClientIoState* s, ClientChannel* channel) noexcept nogil:
    cdef uint8_t* memory = channel.frame
    channel.frame = NULL
    return take_frame(s, channel, memory, channel.frame_size)


cdef int64_t fill_frame(ClientIoState* s, ClientChannel* channel, int64_t* room) noexcept nogil:
    """Reads into the frame that is under way: bytes read, 0 at the end of the stream, or minus an errno; `room` is what would have fitted."""
    cdef uint8_t* grown
    cdef int64_t capacity
    cdef int64_t n
    if channel.frame_have == channel.frame_capacity:
        capacity = min(channel.frame_size, channel.frame_capacity * GROWTH)
        grown = <uint8_t*>realloc(channel.frame, capacity)
        if grown == NULL:
            return -ENOMEM
        channel.frame = grown
        channel.frame_capacity = capacity
    room[0] = channel.frame_capacity - channel.frame_have
    n = channel.transport.functions.read(&channel.transport, channel.frame + channel.frame_have, room[0])
    if n > 0:
        channel.frame_have += n
    return n


cdef void read_responses(ClientIoState* s, ClientChannel* channel) noexcept nogil:
    """Reads what is there, up to READ_TURN bytes; epoll reports what is left again."""
    cdef int64_t turn = READ_TURN
    cdef int64_t room
    cdef int64_t n
    cdef int status
    while turn > 0:
        if channel.frame != NULL:
            n = fill_frame(s, channel, &room)
            status = finish_frame(s, channel) if n > 0 and channel.frame_have == channel.frame_size else 0
        else:
            # The bytes of a size that came in pieces are put before what comes now.
            memcpy(s.scratch, channel.head, channel.head_size)
            room = SCRATCH_SIZE - channel.head_size
            n = channel.transport.functions.read(&channel.transport, s.scratch + channel.head_size, room)
            status = take_bytes(s, channel, s.scratch, channel.head_size + n) if n > 0 else 0
        if n > 0:
            atomic_count(&channel.bytes_in, n)
            turn -= n
        elif n == 0:
            close_channel(s, channel, 0)
            return
        elif n == -EAGAIN:
            return
        else:
            status = <int>-n
        if status:
            close_channel(s, channel, status)
            return
        if n < room and channel.transport.functions.pending(&channel.transport) == 0:
            return


# --- the thread ---------------------------------------------------------------------------------------------------


cdef void add_channel(ClientIoState* s, ClientChannel* channel) noexcept nogil:
    cdef epoll_event event
    s.channels[channel.id] = channel
    channel.interest = EPOLLIN
    event.events = EPOLLIN
    event.data.ptr = channel
    if epoll_ctl(s.epoll_fd, EPOLL_CTL_ADD, channel.transport.fd, &event) < 0:
        close_channel(s, channel, errno)


cdef void carry_out(ClientIoState* s, IoMail* mail) noexcept nogil:
    cdef ClientChannel* channel
    cdef unordered_map[int64_t, ClientChannel*].iterator found
    if mail.kind == IO_ADD:
        add_channel(s, mail.added)
        return
    found = s.channels.find(mail.channel)
    if found == s.channels.end():
        # It has gone in the meantime; the loop is told, or was.
        if mail.kind == IO_SUBMIT:
            drop(s, &mail.request)
        return
    channel = dereference(found).second
    if mail.kind == IO_CLOSE:
        close_channel(s, channel, 0)
        return
    if mail.kind == IO_SUBMIT:
        pthread_mutex_lock(&channel.mutex)
        channel.outgoing.push_back(mail.request)
        atomic_add(&channel.mailed, -1)
        pthread_mutex_unlock(&channel.mutex)
    # Where the socket is full, epoll tells when it no longer is.
    if not channel.interest & EPOLLOUT:
        write_requests(s, channel)


cdef bint carry_out_mail(ClientIoState* s) noexcept nogil:
    """False when the thread is to end."""
    cdef bint stop
    cdef size_t i
    pthread_mutex_lock(&s.mutex)
    stop = s.stop
    s.turn_mails.swap(s.mails)
    pthread_mutex_unlock(&s.mutex)
    for i in range(s.turn_mails.size()):
        carry_out(s, &s.turn_mails[i])
    s.turn_mails.clear()
    return not stop


cdef void* io_thread(void* argument) noexcept nogil:
    cdef ClientIoState* s = <ClientIoState*>argument
    cdef epoll_event events[EVENTS_AT_ONCE]
    cdef ClientChannel* channel
    cdef bint going = True
    cdef bint mail
    cdef int count
    cdef int i
    block_all_signals()
    name_thread(b"kafkapy-io")
    while going:
        count = epoll_wait(s.epoll_fd, events, EVENTS_AT_ONCE, -1)
        mail = False
        for i in range(count):
            channel = <ClientChannel*>events[i].data.ptr
            if channel == NULL:
                mail = True
                continue
            if events[i].events & ~<uint32_t>EPOLLOUT and channel.transport.fd >= 0:
                read_responses(s, channel)
            if events[i].events & EPOLLOUT and channel.transport.fd >= 0:
                write_requests(s, channel)
            publish(s)
        if mail:
            going = carry_out_mail(s)
            publish(s)
    return NULL


@cython.no_gc
cdef class ClientIo:
    """The loop's side. Owned by one NetworkClient; every method is called on its loop's thread. The thread starts with the first `add()`.

    After a fork the child has no such thread: there every method but `close()` raises IllegalStateError.
    """

    def __cinit__(self, int64_t max_response=100_000_000):
        """max_response: bytes of the largest response; a channel that announces a larger one ends with EMSGSIZE."""
        cdef ClientIoState* s = new ClientIoState()
        cdef epoll_event event
        self.state = s
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
        if s.epoll_fd < 0 or s.wake_fd < 0 or s.event_fd < 0 or epoll_ctl(s.epoll_fd, EPOLL_CTL_ADD, s.wake_fd, &event) < 0:
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

    def add(self, int fd):
        """Takes over a connected socket (made non-blocking by nobody: reads and writes are told not to block) and answers the channel's id. OSError:
        the socket is still the caller's."""
        cdef IoMail mail
        cdef ClientChannel* channel
        self.check()
        if fd < 0:
            raise OSError(EINVAL, "not a descriptor")
        if not self.state.running:
            self.start_thread()
        self.next_id += 1
        channel = new ClientChannel()
        channel.id = self.next_id
        pthread_mutex_init(&channel.mutex, NULL)
        transport_plaintext(&channel.transport, fd)
        self.open[channel.id] = channel
        memset(&mail, 0, sizeof(mail))
        mail.kind = IO_ADD
        mail.channel = channel.id
        mail.added = channel
        self.mail(&mail)
        return channel.id

    def submit(self, int64_t channel, RequestFrame request not None, ResponseFrame response):
        """Sends a request; response None: no reply comes (acks=0). A channel that is gone drops it: its end was reported, or will be."""
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
            if response is not None and isinstance(request, BytesFrame) and self.written_at_once(dereference(found).second, &mail.request):
                return
            atomic_add(&dereference(found).second.mailed, 1)
        self.mail(&mail)

    cdef bint written_at_once(self, ClientChannel* channel, ClientRequest* request) except -1:
        """Writes a request here and now, if it is small and nothing is before it. False: it goes by mail, like any other."""
        cdef ClientIoState* s = self.state
        cdef IoMail mail
        cdef bint taken = False
        cdef int status = 1
        # A session (of TLS) is the I/O thread's, which may be reading.
        if (<BytesFrame>request.request).size > COPIED_FRAME or atomic_load(&channel.mailed) or channel.transport.session != NULL:
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
            # The rest, or the error that ends the channel, is the I/O thread's business.
            memset(&mail, 0, sizeof(mail))
            mail.kind = IO_FLUSH
            mail.channel = channel.id
            self.mail(&mail)
        return taken

    def close_channel(self, int64_t channel):
        """Closes a channel, what is in flight with it; `events()` tells when that has happened."""
        cdef IoMail mail
        self.check()
        memset(&mail, 0, sizeof(mail))
        mail.kind = IO_CLOSE
        mail.channel = channel
        self.mail(&mail)

    def events(self):
        """What has happened, in order: a list of (channel, what, errno or 0), where `what` is

        - a ResponseFrame that was parsed; with an errno: its request could not be encoded and was not sent;
        - a RequestFrame without response that was written (or not, with an errno);
        - None: the channel is closed, and what was in flight with it is dropped. errno 0: by `close_channel()`, or by the peer between two frames or not;
          EBADMSG: the peer sent what is no answer; EMSGSIZE: it announced more than max_response.
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
        cdef unordered_map[int64_t, ClientChannel*].iterator found = self.open.find(channel)
        if found != self.open.end():
            self.past_bytes_in += dereference(found).second.bytes_in
            self.past_bytes_out += dereference(found).second.bytes_out
            pthread_mutex_destroy(&dereference(found).second.mutex)
            del dereference(found).second
            self.open.erase(found)

    def bytes_in(self, int64_t channel=0):
        """Bytes read from a channel, 0 when it is gone; without a channel: from all, gone ones too."""
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
        """Ends the thread and closes every channel; no event comes afterwards, and what was in flight is dropped. May be called again. In a forked child
        only the descriptors are closed: the connections go on in the parent."""
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
        """After the thread has ended: everything that it held."""
        cdef ClientIoState* s = self.state
        cdef vector[PyObject*] dropped
        cdef size_t i
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
