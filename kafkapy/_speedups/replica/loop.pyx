"""The thread of a fetcher (see loop.pxd).

    mails -> build_request -> send -> frame by frame piece: reader_next -> take_data -> ... -> mails

One connection, one request in flight. The bytes of the response go from the socket into one buffer, and from there into
the logs: a partition is appended as soon as its records are whole, while the rest is still on its way. The buffer grows
with received bytes only, never with an announced length. Without a connection the thread asks the control loop for one
(FETCHER_WANTS_CONNECTION) and sleeps.

Sessions: a full request (epoch 0) may open one, and later requests name changes only. An error of the session, a lost
connection, or an answer that does not fit the request begins again with a full request that closes the old session.
"""

from cython.operator cimport dereference as deref, preincrement as inc
from libc.errno cimport EAGAIN, EBADMSG, ECONNRESET, EINTR, ENOMEM, EPROTO, ETIMEDOUT, errno
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memmove, strerror, strlen
from libcpp.unordered_map cimport unordered_map

from kafkapy._speedups.base.epoll cimport EPOLLIN
from kafkapy._speedups.base.error_codes cimport (
    ERROR_FETCH_SESSION_ID_NOT_FOUND,
    ERROR_FETCH_SESSION_TOPIC_ID_ERROR,
    ERROR_INCONSISTENT_TOPIC_ID,
    ERROR_INVALID_FETCH_SESSION_EPOCH,
)
from kafkapy._speedups.base.event_queue cimport event_post
from kafkapy._speedups.base.low_water cimport set_low_water
from kafkapy._speedups.base.posix cimport (
    atomic_count,
    atomic_store,
    eventfd_read,
    monotonic_ns,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)
from kafkapy._speedups.base.send cimport Send, send_free, send_new, send_take_buffer
from kafkapy._speedups.base.threads cimport block_all_signals, name_thread
from kafkapy._speedups.base.transport cimport transport_read_event, transport_send, transport_write_event
from kafkapy._speedups.base.wire cimport ByteBuffer, buffer_free, load_int32
from kafkapy._speedups.replica.fetch_request cimport build_request
from kafkapy._speedups.replica.fetch_response cimport (
    READ_DONE,
    READ_MALFORMED,
    READ_PARTITION,
    STAGE_HEADER,
    FetchedData,
    FetchResponseReader,
    ReadStatus,
    reader_init,
    reader_next,
)
from kafkapy._speedups.replica.partition_data cimport take_data
from kafkapy._speedups.replica.state cimport (
    FETCHER_WANTS_CONNECTION,
    FetcherState,
    FetchPartition,
    delay,
    fetcher_now_ns,
    find_partition,
    release_delayed,
    reset_session,
    take_mails,
)

cdef extern from "<errno.h>" nogil:
    int ECANCELED

cdef extern from "<poll.h>" nogil:
    struct pollfd:
        int fd
        short events
        short revents
    int POLLIN, POLLOUT
    int poll(pollfd* fds, unsigned long count, int timeout_ms)

cdef enum:
    MS = 1_000_000                  # ns
    SIZE_BYTES = 4
    SMALLEST_FRAME = 4              # the correlation id
    FIRST_CAPACITY = 64 * 1024
    KEPT_CAPACITY = 4 * 1024 * 1024     # a larger buffer is freed after the response
    READ_AT_ONCE = 1024 * 1024      # bytes
    MIN_WAKE_BYTES = 64 * 1024      # the kernel is not told of fewer bytes
    MAX_WAKE_BYTES = 512 * 1024
    THROTTLED_NS = 100 * MS         # interval of the looks at the throttle

cdef cppclass Receiving:            # one response
    int64_t deadline_ns
    int64_t start                   # of unread bytes in the buffer
    int64_t end
    int64_t left                    # bytes of the frame that are not in the buffer
    bint stray                      # partitions that were not asked for


# ---- waiting ---------------------------------------------------------------------------------------------------------


cdef bint is_stopped(FetcherState* f) noexcept nogil:
    cdef bint stop
    pthread_mutex_lock(&f.mutex)
    stop = f.stop
    pthread_mutex_unlock(&f.mutex)
    return stop


cdef int timeout_of(int64_t until_ns) noexcept nogil:
    """Milliseconds until then, rounded up; -1: without end."""
    cdef int64_t left
    if until_ns == 0:
        return -1
    left = (until_ns - monotonic_ns() + MS - 1) // MS
    return <int>min(max(left, <int64_t>0), <int64_t>0x7FFFFFFF)


cdef void wait_for_mail(FetcherState* f, int64_t until_ns) noexcept nogil:
    cdef pollfd wake
    cdef uint64_t value
    wake.fd = f.wake_fd
    wake.events = POLLIN
    wake.revents = 0
    poll(&wake, 1, timeout_of(until_ns))
    eventfd_read(f.wake_fd, &value)


cdef int wait_for_socket(FetcherState* f, int events, int64_t deadline_ns) noexcept nogil:
    """0 when the socket is ready, or an errno: ETIMEDOUT, or ECANCELED when the fetcher must end."""
    cdef pollfd both[2]
    cdef uint64_t value
    cdef int ready
    while True:
        both[0].fd = f.transport.fd
        both[0].events = <short>events
        both[0].revents = 0
        both[1].fd = f.wake_fd
        both[1].events = POLLIN
        both[1].revents = 0
        ready = poll(both, 2, timeout_of(deadline_ns))
        if ready < 0 and errno != EINTR:
            return errno
        if ready > 0 and both[1].revents:
            # Mails wait for the end of the request, except the last one.
            eventfd_read(f.wake_fd, &value)
            if is_stopped(f):
                return ECANCELED
        if ready > 0 and both[0].revents:
            return 0
        if monotonic_ns() >= deadline_ns:
            return ETIMEDOUT


cdef int poll_events(int wanted) noexcept nogil:
    return POLLIN if wanted == EPOLLIN else POLLOUT


# ---- the connection --------------------------------------------------------------------------------------------------


cdef void disconnect(FetcherState* f) noexcept nogil:
    if f.transport.fd >= 0:
        f.transport.functions.abort(&f.transport)
        f.transport.functions.close(&f.transport)
        f.transport.fd = -1
    atomic_store(&f.connected, 0)


cdef void ask_connection(FetcherState* f, int failure, const char* why) noexcept nogil:
    f.asked_connection = True
    event_post(f.events, FETCHER_WANTS_CONNECTION, f.id, failure, why, <Py_ssize_t>strlen(why) if why != NULL else 0)


cdef void lose_connection(FetcherState* f, int failure) noexcept nogil:
    """Ends the connection; all partitions back off."""
    cdef const char* why = NULL
    if failure == EPROTO:
        why = f.transport.functions.error(&f.transport)
    if why == NULL:
        why = strerror(failure)
    disconnect(f)
    reset_session(f, f.session_id)
    if failure != ECANCELED:
        ask_connection(f, failure, why)


cdef void take_next_connection(FetcherState* f) noexcept nogil:
    """Changes over between two requests; a session goes on, because it does not belong to a connection."""
    disconnect(f)
    f.transport = f.next
    f.version = f.next_version
    f.has_next = False
    f.low_water = 1
    atomic_store(&f.connected, 1)


# ---- one request -----------------------------------------------------------------------------------------------------


cdef int send_request(FetcherState* f, ByteBuffer* request, int64_t deadline_ns) noexcept nogil:
    """0 or an errno."""
    cdef Send* send = send_new()
    cdef int64_t written = 0
    cdef int status = 0
    send_take_buffer(send, request)
    while True:
        status = transport_send(&f.transport, send, &written)
        if status != 0:
            break
        status = -wait_for_socket(f, poll_events(transport_write_event(&f.transport)), deadline_ns)
        if status:
            break
    send_free(send)
    return -status if status < 0 else 0


cdef int make_room(FetcherState* f, Receiving* r, int64_t need) noexcept nogil:
    """Makes room behind the unread bytes, of which `need` are wanted at once. The buffer doubles when it is full. 0 or
    ENOMEM."""
    cdef uint8_t* grown
    cdef int64_t capacity
    if r.start > 0 and (r.start == r.end or r.start + need > f.capacity):
        memmove(f.buffer, f.buffer + r.start, r.end - r.start)
        r.end -= r.start
        r.start = 0
    if r.end < f.capacity:
        return 0
    capacity = max(2 * f.capacity, <int64_t>FIRST_CAPACITY)
    grown = <uint8_t*>realloc(f.buffer, capacity)
    if grown == NULL:
        return ENOMEM
    f.buffer = grown
    f.capacity = capacity
    return 0


cdef void set_wake_bytes(FetcherState* f, int64_t missing) noexcept nogil:
    """Lets the thread sleep until many bytes are there: a read while the leader sends costs twice as much."""
    cdef int count = <int>min(missing, <int64_t>MAX_WAKE_BYTES)
    if missing < MIN_WAKE_BYTES or f.transport.session != NULL:
        count = 1
    if count != f.low_water:
        set_low_water(f.transport.fd, count)
        f.low_water = count


cdef int read_some(FetcherState* f, Receiving* r, int64_t most, int64_t missing) noexcept nogil:
    """Reads up to `most` bytes behind the unread ones, at least one. 0 or an errno."""
    cdef int64_t room = min(f.capacity - r.end, min(most, <int64_t>READ_AT_ONCE)), n
    cdef int failure
    while True:
        n = f.transport.functions.read(&f.transport, f.buffer + r.end, <size_t>room)
        if n > 0:
            r.end += n
            return 0
        if n == 0:
            return ECONNRESET
        if n != -EAGAIN:
            return <int>-n
        set_wake_bytes(f, missing)
        failure = wait_for_socket(f, poll_events(transport_read_event(&f.transport)), r.deadline_ns)
        if failure:
            return failure


cdef int read_size(FetcherState* f, Receiving* r) noexcept nogil:
    """Reads the size of the frame. 0 or an errno."""
    cdef int failure
    cdef int64_t size
    while r.end - r.start < SIZE_BYTES:
        failure = make_room(f, r, SIZE_BYTES)
        if failure == 0:
            failure = read_some(f, r, READ_AT_ONCE, 1)
        if failure:
            return failure
    size = load_int32(f.buffer + r.start)
    r.start += SIZE_BYTES
    r.left = size - (r.end - r.start)
    # Behind the answer to the one request there is nothing.
    return EBADMSG if size < SMALLEST_FRAME or r.left < 0 else 0


cdef int read_until(FetcherState* f, Receiving* r, int64_t need) noexcept nogil:
    """Reads until `need` unread bytes are there, or the frame ends. 0 or an errno."""
    cdef int64_t before
    cdef int failure
    while r.end - r.start < need and r.left > 0:
        failure = make_room(f, r, need)
        before = r.end
        if failure == 0:
            failure = read_some(f, r, r.left, min(need - (r.end - r.start), r.left))
        if failure:
            return failure
        r.left -= r.end - before
    return 0


cdef bint take_partition(FetcherState* f, FetchResponseReader* reader, FetchedData* data,
                         int64_t now_ns) noexcept nogil:
    """False: the request did not ask for it."""
    cdef FetchPartition* p
    if not reader.topic_id.empty():
        p = find_partition(&f.by_id, reader.topic_id, data.partition)
    else:
        p = find_partition(&f.by_name, reader.topic, data.partition)
    if p == NULL or not p.asked or p.answered == f.request:
        return False
    p.answered = f.request
    take_data(f, p, data, now_ns)
    return True


cdef int take_header(FetcherState* f, FetchResponseReader* reader) noexcept nogil:
    """Takes over what the response says of the session. 0 or an errno; -1: it holds no partitions."""
    cdef int error = reader.error_code
    if reader.correlation_id != f.correlation_id:
        return EBADMSG
    if error:
        reset_session(f, 0 if error == ERROR_FETCH_SESSION_ID_NOT_FOUND else f.session_id)
        if (error != ERROR_FETCH_SESSION_ID_NOT_FOUND and error != ERROR_INVALID_FETCH_SESSION_EPOCH
                and error != ERROR_FETCH_SESSION_TOPIC_ID_ERROR and error != ERROR_INCONSISTENT_TOPIC_ID):
            back_off_all(f)
        return -1
    if f.session_epoch == 0:
        f.session_id = reader.session_id
        f.session_epoch = 1 if reader.session_id else 0
    elif reader.session_id != f.session_id:
        reset_session(f, 0)     # the leader has closed the session
        return -1
    else:
        f.session_epoch = f.session_epoch + 1 if f.session_epoch < 0x7FFFFFFF else 1
    return 0


cdef int take_response(FetcherState* f, Receiving* r) noexcept nogil:
    """Reads the response and takes its partitions over. 0 or an errno."""
    cdef FetchResponseReader reader
    cdef FetchedData data
    cdef ReadStatus status
    cdef int64_t used = 0
    cdef bint headed = False, refused = False
    cdef int failure
    failure = read_size(f, r)
    if failure:
        return failure
    # Before the first partition: a removed one gets nothing any more.
    if not take_mails(f):
        return ECANCELED
    reader_init(&reader, f.session_version, f.now.max_batch_bytes)
    while True:
        failure = read_until(f, r, reader.need)
        if failure:
            return failure
        status = reader_next(&reader, f.buffer + r.start, r.end - r.start, r.left, &used, &data)
        if status == READ_MALFORMED:
            return EBADMSG
        if not headed and reader.stage > STAGE_HEADER:
            headed = True
            failure = take_header(f, &reader)
            if failure > 0:
                return failure
            # After an error of the whole response no partition counts.
            refused = failure < 0
        if status == READ_PARTITION and not refused and not take_partition(f, &reader, &data, fetcher_now_ns(f)):
            r.stray = True
        r.start += used
        if status == READ_DONE:
            if r.stray:
                reset_session(f, f.session_id)
            return 0


cdef int receive(FetcherState* f, int64_t deadline_ns) noexcept nogil:
    cdef Receiving r
    cdef int failure
    r.deadline_ns = deadline_ns
    r.start = r.end = r.left = 0
    r.stray = False
    failure = take_response(f, &r)
    if failure == 0:
        atomic_count(&f.requests, 1)
    if f.capacity > KEPT_CAPACITY:
        free(f.buffer)
        f.buffer = NULL
        f.capacity = 0
    return failure


cdef int exchange(FetcherState* f, ByteBuffer* request) noexcept nogil:
    """One request and its response. 0 or an errno, then the connection is of no more use."""
    cdef int64_t deadline_ns = monotonic_ns() + f.now.timeout_ms * MS
    cdef int failure = send_request(f, request, deadline_ns)
    return failure if failure else receive(f, deadline_ns)


# ---- the thread ------------------------------------------------------------------------------------------------------


cdef void back_off_all(FetcherState* f) noexcept nogil:
    cdef unordered_map[int64_t, FetchPartition*].iterator at = f.partitions.begin()
    cdef int64_t until = fetcher_now_ns(f) + f.now.backoff_ms * MS
    while at != f.partitions.end():
        if deref(at).second.delayed_until_ns == 0:
            delay(f, deref(at).second, until)
        inc(at)


cdef FetcherStep next_step(FetcherState* f, ByteBuffer* request, int64_t* until_ns) noexcept nogil:
    cdef int64_t now_ns
    until_ns[0] = 0
    if not take_mails(f):
        return STEP_END
    if f.has_next:
        take_next_connection(f)
    if f.transport.fd < 0:
        if not f.asked_connection and not f.partitions.empty():
            ask_connection(f, 0, NULL)
        return STEP_WAIT
    now_ns = fetcher_now_ns(f)
    until_ns[0] = release_delayed(f, now_ns)
    if build_request(f, now_ns, request):
        return STEP_SEND
    if not f.held.empty() and (until_ns[0] == 0 or until_ns[0] > now_ns + THROTTLED_NS):
        until_ns[0] = now_ns + THROTTLED_NS
    return STEP_WAIT


cdef void* fetcher_thread(void* argument) noexcept nogil:
    cdef FetcherState* f = <FetcherState*>argument
    cdef ByteBuffer request
    cdef FetcherStep step
    cdef int64_t until
    cdef int failure
    block_all_signals()
    name_thread(f.name)
    while True:
        step = next_step(f, &request, &until)
        if step == STEP_END:
            break
        if step == STEP_WAIT:
            wait_for_mail(f, until)
            continue
        if request.error:
            buffer_free(&request)
            failure = ENOMEM
        else:
            failure = exchange(f, &request)
        if failure:
            lose_connection(f, failure)
            if failure == ECANCELED:
                break
    disconnect(f)
    return NULL
