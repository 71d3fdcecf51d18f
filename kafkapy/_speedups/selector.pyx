"""The epoll Selector of one Processor (see selector.pxd)."""

from libc.errno cimport errno
from libc.stdint cimport int64_t, uint32_t
from posix.unistd cimport close

from kafkapy._speedups.posix cimport atomic_count, atomic_store, monotonic_ns

cdef enum:
    LONGEST_WAIT_MS = 60_000


cdef int selector_open(SelectorState* s, int wake_fd, int64_t max_idle_ns) noexcept nogil:
    cdef epoll_event event
    s.epoll_fd = epoll_create1(EPOLL_CLOEXEC)
    if s.epoll_fd < 0:
        return errno
    s.max_idle_ns = max_idle_ns
    event.events = EPOLLIN
    event.data.u64 = 0
    event.data.ptr = NULL
    if epoll_ctl(s.epoll_fd, EPOLL_CTL_ADD, wake_fd, &event) < 0:
        return errno
    return 0


cdef void selector_close(SelectorState* s) noexcept nogil:
    if s.epoll_fd >= 0:
        close(s.epoll_fd)
        s.epoll_fd = -1


cdef void unlink_idle(SelectorState* s, KafkaChannel* channel) noexcept nogil:
    if channel.older != NULL:
        channel.older.newer = channel.newer
    else:
        s.oldest = channel.newer
    if channel.newer != NULL:
        channel.newer.older = channel.older
    else:
        s.newest = channel.older


cdef void link_newest(SelectorState* s, KafkaChannel* channel) noexcept nogil:
    channel.newer = NULL
    channel.older = s.newest
    if s.newest != NULL:
        s.newest.newer = channel
    else:
        s.oldest = channel
    s.newest = channel


cdef int selector_add(SelectorState* s, KafkaChannel* channel, int64_t now_ns) noexcept nogil:
    cdef epoll_event event
    channel.interest = EPOLLIN | EPOLLRDHUP
    event.events = channel.interest
    event.data.ptr = channel
    if epoll_ctl(s.epoll_fd, EPOLL_CTL_ADD, channel.transport.fd, &event) < 0:
        return errno
    channel.active_ns = now_ns
    link_newest(s, channel)
    s.count += 1
    return 0


cdef void selector_remove(SelectorState* s, KafkaChannel* channel) noexcept nogil:
    """Before the descriptor is closed, so that no event of another descriptor with its number is taken for this channel's."""
    epoll_ctl(s.epoll_fd, EPOLL_CTL_DEL, channel.transport.fd, NULL)
    unlink_idle(s, channel)
    s.count -= 1


cdef void selector_poll(SelectorState* s, int64_t timeout_ns) noexcept nogil:
    cdef int64_t started
    cdef int timeout_ms = LONGEST_WAIT_MS
    if timeout_ns >= 0 and timeout_ns < <int64_t>LONGEST_WAIT_MS * 1_000_000:
        # Rounded up: a deadline that is half a millisecond away must not be polled for with 0.
        timeout_ms = <int>((timeout_ns + 999_999) // 1_000_000)
    if timeout_ms == 0:
        s.ready = epoll_wait(s.epoll_fd, s.events, SELECTOR_EVENTS, 0)
    else:
        started = monotonic_ns()
        atomic_store(&s.waiting_since_ns, started)
        s.ready = epoll_wait(s.epoll_fd, s.events, SELECTOR_EVENTS, timeout_ms)
        atomic_store(&s.waiting_since_ns, 0)
        atomic_count(&s.idle_ns, monotonic_ns() - started)
    if s.ready < 0:
        s.ready = 0     # EINTR


cdef void selector_want(SelectorState* s, KafkaChannel* channel, uint32_t interest) noexcept nogil:
    cdef epoll_event event
    if channel.interest == interest or channel.closed:
        return
    channel.interest = interest
    event.events = interest
    event.data.ptr = channel
    epoll_ctl(s.epoll_fd, EPOLL_CTL_MOD, channel.transport.fd, &event)


cdef void selector_touch(SelectorState* s, KafkaChannel* channel, int64_t now_ns) noexcept nogil:
    channel.active_ns = now_ns
    if s.newest != channel:
        unlink_idle(s, channel)
        link_newest(s, channel)


cdef KafkaChannel* selector_expired(SelectorState* s, int64_t now_ns) noexcept nogil:
    if s.max_idle_ns < 0 or s.oldest == NULL or now_ns - s.oldest.active_ns < s.max_idle_ns:
        return NULL
    return s.oldest


cdef int64_t selector_next_expiry(SelectorState* s) noexcept nogil:
    if s.max_idle_ns < 0 or s.oldest == NULL:
        return -1
    return s.oldest.active_ns + s.max_idle_ns
