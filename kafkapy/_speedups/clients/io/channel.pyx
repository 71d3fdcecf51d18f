"""Channels and the I/O thread (see channel.pxd). Nothing here takes the GIL."""

from cython.operator cimport dereference
from libc.errno cimport EAGAIN, EBADMSG, EMSGSIZE, ENOMEM, EPROTO, errno
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc, realloc
from libc.stdio cimport snprintf
from libc.string cimport memcmp, memcpy
from libcpp.unordered_map cimport unordered_map

from kafkapy._speedups.base.epoll cimport (
    EPOLLIN,
    EPOLLOUT,
    EPOLL_CTL_ADD,
    EPOLL_CTL_DEL,
    EPOLL_CTL_MOD,
    epoll_ctl,
    epoll_event,
)
from kafkapy._speedups.base.low_water cimport set_low_water
from kafkapy._speedups.base.posix cimport (
    atomic_add,
    atomic_count,
    epoll_wait,
    eventfd_write,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)
from kafkapy._speedups.base.send cimport send_free, send_new
from kafkapy._speedups.base.spare_memory cimport spare_take
from kafkapy._speedups.base.threads cimport block_all_signals, name_thread
from kafkapy._speedups.base.transport cimport transport_read_event, transport_send, transport_write_event
from kafkapy._speedups.base.wire cimport load_int32, store_int32
from kafkapy._speedups.clients.io.frames cimport RequestFrame, ResponseFrame

cdef enum:
    EVENTS_AT_ONCE = 64
    SIZE_BYTES = 4
    SMALLEST_FRAME = 4          # the correlation id
    FIRST_CAPACITY = 1024 * 1024    # first memory for a size from the wire; it grows fourfold when full
    GROWTH = 4
    READ_TURN = 4 * 1024 * 1024     # bytes of one channel before other channels have their turn
    MIN_WAKE_BYTES = 64 * 1024      # the kernel is not told of fewer bytes
    MAX_WAKE_BYTES = 1024 * 1024


# --- what the I/O thread tells the loop ---------------------------------------------------------------------------


cdef void report(ClientIoState* s, int kind, int64_t channel, ClientRequest* request, int error) noexcept nogil:
    """Reports an event to the loop. Takes over the references of the request; NULL for IO_GONE."""
    cdef IoEvent event
    event.kind = kind
    event.error = error
    event.channel = channel
    event.request = request.request if request != NULL else NULL
    event.response = request.response if request != NULL else NULL
    s.turn_events.push_back(event)


cdef void publish(ClientIoState* s) noexcept nogil:
    """Hands the reports to the loop, and wakes the loop when its queue was empty."""
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
    """Drops a request without an event: its references wait for a holder of the GIL."""
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
    """Closes the socket and reports it. The loop frees the channel when it gets the report: this turn must not use the
    channel after `publish`."""
    pthread_mutex_lock(&channel.mutex)
    if channel.transport.fd < 0:
        pthread_mutex_unlock(&channel.mutex)
        return
    epoll_ctl(s.epoll_fd, EPOLL_CTL_DEL, channel.transport.fd, NULL)
    if error == EPROTO and channel.transport.functions.error(&channel.transport) != NULL:
        snprintf(channel.reason, REASON_BYTES, b"%s", channel.transport.functions.error(&channel.transport))
    if channel.transport.session != NULL:
        channel.transport.functions.shut_down(&channel.transport)
    # A forked child may hold the descriptor as well: this informs the peer all the same.
    channel.transport.functions.abort(&channel.transport)
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
    """Encodes and writes the queue, with the mutex held: 1 when all is written, 0 when the socket is full, or minus an
    errno."""
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


cdef uint32_t read_events(ClientChannel* channel) noexcept nogil:
    """The events of a channel with nothing to write."""
    return EPOLLIN | transport_read_event(&channel.transport)


cdef void write_requests(ClientIoState* s, ClientChannel* channel) noexcept nogil:
    cdef int status
    if channel.handshaking:
        return
    pthread_mutex_lock(&channel.mutex)
    status = write_queue(s, channel)
    pthread_mutex_unlock(&channel.mutex)
    if status < 0:
        close_channel(s, channel, -status)
    else:
        want(s, channel, read_events(channel) | (0 if status else transport_write_event(&channel.transport)))


# --- reading ------------------------------------------------------------------------------------------------------


cdef int take_frame(ClientIoState* s, ClientChannel* channel, uint8_t* memory, int64_t size) noexcept nogil:
    """Takes a whole frame and its memory. 0 or an errno that ends the channel."""
    cdef ClientRequest request
    cdef bint expected
    # The thread that wrote the request notes that it is awaited before it releases the mutex.
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


cdef int begin_frame(ClientIoState* s, ClientChannel* channel, int64_t size, const uint8_t* data,
                     int64_t have) noexcept nogil:
    """Makes memory for a frame of which `have` bytes are here. 0 or an errno."""
    # The bytes at hand may be as large as the size claims.
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


cdef int explain_size(ClientChannel* channel, const uint8_t* size) noexcept nogil:
    """The errno for a size that is too large, and the reason when it is the beginning of another protocol."""
    if size[0] == 21 and size[1] == 3:
        # A TLS listener answers a request without TLS with an alert: type 21, version 3.x.
        snprintf(channel.reason, REASON_BYTES,
                 b"the listener answers with TLS; set security.protocol to SSL or SASL_SSL")
        return EPROTO
    if memcmp(size, b"HTTP", SIZE_BYTES) == 0:
        snprintf(channel.reason, REASON_BYTES, b"HTTP came instead of a response; this is no Kafka listener")
        return EPROTO
    return EMSGSIZE


cdef int take_bytes(ClientIoState* s, ClientChannel* channel, const uint8_t* data, int64_t count) noexcept nogil:
    """Takes frames out of one read's bytes, and keeps the rest. 0 or an errno that ends the channel."""
    cdef int64_t size
    cdef int64_t have
    cdef int status
    while count >= SIZE_BYTES:
        size = load_int32(data)
        if size < SMALLEST_FRAME:
            return EBADMSG
        if size > s.max_response:
            return explain_size(channel, data)
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
    """Reads into the current frame: bytes read, 0 at the end of the stream, or minus an errno; `room` is the number of
    bytes that fit."""
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


cdef void set_wake_bytes(ClientChannel* channel, int count) noexcept nogil:
    set_low_water(channel.transport.fd, count)
    channel.wake_bytes = count


cdef void sleep_through(ClientChannel* channel) noexcept nogil:
    """Raises the wake-up size before the thread waits within a frame, so that it sees many bytes at once. A read while
    the sender writes costs twice as much."""
    cdef int64_t missing = channel.frame_size - channel.frame_have if channel.frame != NULL else 0
    cdef int64_t count = min(missing, <int64_t>MAX_WAKE_BYTES)
    if count < MIN_WAKE_BYTES or channel.transport.session != NULL:
        count = 1
    if count != channel.wake_bytes:
        set_wake_bytes(channel, <int>count)


cdef int ended_early(ClientChannel* channel) noexcept nogil:
    """The errno at the end of the stream. A TLS alert is too short for a response of the size that it seems to have."""
    cdef uint8_t size[4]
    if channel.frame != NULL and channel.transport.session == NULL:
        store_int32(size, <int32_t>channel.frame_size)
        if channel.frame_have < SIZE_BYTES and explain_size(channel, size) == EPROTO:
            return EPROTO
    return 0


cdef void read_responses(ClientIoState* s, ClientChannel* channel) noexcept nogil:
    """Reads the bytes at hand, up to READ_TURN; epoll reports the rest again."""
    cdef int64_t turn = READ_TURN
    cdef int64_t room
    cdef int64_t n
    cdef int status
    while turn > 0:
        if channel.frame != NULL:
            n = fill_frame(s, channel, &room)
            status = finish_frame(s, channel) if n > 0 and channel.frame_have == channel.frame_size else 0
        else:
            # The bytes of a size that came in pieces go before the new bytes.
            memcpy(s.scratch, channel.head, channel.head_size)
            room = SCRATCH_SIZE - channel.head_size
            n = channel.transport.functions.read(&channel.transport, s.scratch + channel.head_size, room)
            status = take_bytes(s, channel, s.scratch, channel.head_size + n) if n > 0 else 0
        if n > 0:
            atomic_count(&channel.bytes_in, n)
            turn -= n
        elif n == 0:
            close_channel(s, channel, ended_early(channel))
            return
        elif n == -EAGAIN:
            break
        else:
            status = <int>-n
        if status:
            close_channel(s, channel, status)
            return
        if n < room and channel.transport.functions.pending(&channel.transport) == 0:
            break
    if channel.transport.session != NULL:
        if turn <= 0 and channel.transport.functions.pending(&channel.transport):
            s.unread.push_back(channel.id)
        want(s, channel, read_events(channel) | (0 if channel.outgoing.empty() else EPOLLOUT))
    sleep_through(channel)


# --- TLS ----------------------------------------------------------------------------------------------------------


cdef void continue_handshake(ClientIoState* s, ClientChannel* channel) noexcept nogil:
    cdef int status = channel.transport.functions.handshake(&channel.transport)
    if status == -EAGAIN:
        want(s, channel, transport_read_event(&channel.transport))
    elif status < 0:
        close_channel(s, channel, -status)
    else:
        channel.handshaking = False
        report(s, IO_SECURED, channel.id, NULL, 0)
        if channel.transport.functions.pending(&channel.transport):
            s.unread.push_back(channel.id)
        write_requests(s, channel)


cdef void read_unread(ClientIoState* s) noexcept nogil:
    """Reads channels whose decrypted bytes had to wait for other channels."""
    cdef vector[int64_t] unread
    cdef unordered_map[int64_t, ClientChannel*].iterator found
    cdef size_t i
    unread.swap(s.unread)
    for i in range(unread.size()):
        found = s.channels.find(unread[i])
        if found != s.channels.end():
            read_responses(s, dereference(found).second)
    publish(s)


# --- the thread ---------------------------------------------------------------------------------------------------


cdef void add_channel(ClientIoState* s, ClientChannel* channel) noexcept nogil:
    cdef epoll_event event
    s.channels[channel.id] = channel
    channel.interest = EPOLLIN
    event.events = EPOLLIN
    event.data.ptr = channel
    if epoll_ctl(s.epoll_fd, EPOLL_CTL_ADD, channel.transport.fd, &event) < 0:
        close_channel(s, channel, errno)
    elif channel.handshaking:
        continue_handshake(s, channel)


cdef void serve(ClientIoState* s, ClientChannel* channel, uint32_t events) noexcept nogil:
    """Reads and writes a channel after an event of epoll."""
    if channel.transport.fd < 0:
        return
    if channel.handshaking:
        continue_handshake(s, channel)
        return
    if events & ~<uint32_t>EPOLLOUT or channel.transport.read_wants_write:
        read_responses(s, channel)
    if (events & EPOLLOUT or channel.transport.write_wants_read) and channel.transport.fd >= 0:
        write_requests(s, channel)


cdef void give_channel(ClientIoState* s, ClientChannel* channel, IoMail* mail) noexcept nogil:
    """Gives the socket away, in the state of a new one, and reports the channel's end."""
    cdef Transport given
    cdef bint idle
    pthread_mutex_lock(&channel.mutex)
    idle = (not channel.handshaking and channel.outgoing.empty() and channel.awaiting.empty()
            and channel.frame == NULL and channel.head_size == 0)
    given = channel.transport
    if idle:
        epoll_ctl(s.epoll_fd, EPOLL_CTL_DEL, given.fd, NULL)
        if channel.wake_bytes != 1:
            set_wake_bytes(channel, 1)
        channel.transport.fd = -1
        channel.transport.session = NULL
    pthread_mutex_unlock(&channel.mutex)
    if idle:
        s.channels.erase(channel.id)
        report(s, IO_GONE, channel.id, NULL, 0)
        mail.take(mail.owner, &given)
    else:
        close_channel(s, channel, 0)
        mail.take(mail.owner, NULL)


cdef void carry_out(ClientIoState* s, IoMail* mail) noexcept nogil:
    cdef ClientChannel* channel
    cdef unordered_map[int64_t, ClientChannel*].iterator found
    if mail.kind == IO_ADD:
        add_channel(s, mail.added)
        return
    found = s.channels.find(mail.channel)
    if found == s.channels.end():
        # The channel has gone in the meantime; the loop gets the report, or had it.
        if mail.kind == IO_SUBMIT:
            drop(s, &mail.request)
        elif mail.kind == IO_GIVE:
            mail.take(mail.owner, NULL)
        return
    channel = dereference(found).second
    if mail.kind == IO_GIVE:
        give_channel(s, channel, mail)
        return
    if mail.kind == IO_CLOSE:
        close_channel(s, channel, 0)
        return
    if mail.kind == IO_SUBMIT:
        pthread_mutex_lock(&channel.mutex)
        channel.outgoing.push_back(mail.request)
        atomic_add(&channel.mailed, -1)
        pthread_mutex_unlock(&channel.mutex)
    # Where the socket is full, epoll reports when it has room.
    if not channel.interest & EPOLLOUT:
        write_requests(s, channel)


cdef bint carry_out_mail(ClientIoState* s) noexcept nogil:
    """Carries out the mail. False when the thread must end."""
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
        count = epoll_wait(s.epoll_fd, events, EVENTS_AT_ONCE, -1 if s.unread.empty() else 0)
        mail = False
        if not s.unread.empty():
            read_unread(s)
        for i in range(count):
            channel = <ClientChannel*>events[i].data.ptr
            if channel == NULL:
                mail = True
                continue
            serve(s, channel, events[i].events)
            publish(s)
        if mail:
            going = carry_out_mail(s)
            publish(s)
    return NULL
