"""The epoll Selector of one Processor (see selector.pxd)."""

from libc.errno cimport errno
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memset
from posix.time cimport CLOCK_MONOTONIC, itimerspec
from posix.unistd cimport close, read

from kafkapy._speedups.base.epoll cimport (
    EPOLLIN,
    EPOLLRDHUP,
    EPOLL_CLOEXEC,
    EPOLL_CTL_ADD,
    EPOLL_CTL_DEL,
    EPOLL_CTL_MOD,
    epoll_create1,
    epoll_ctl,
    epoll_event,
)
from kafkapy._speedups.base.posix cimport atomic_count_alone, atomic_store, epoll_wait, monotonic_ns

cdef extern from "<sys/timerfd.h>" nogil:
    int TFD_CLOEXEC, TFD_NONBLOCK, TFD_TIMER_ABSTIME
    int timerfd_create(int clock, int flags)
    int timerfd_settime(int fd, int flags, const itimerspec* new_value, itimerspec* old_value)

cdef enum:
    NS_PER_SECOND = 1_000_000_000


cdef int selector_open(SelectorState* s, int wake_fd, int64_t max_idle_ns) noexcept nogil:
    cdef epoll_event event
    s.epoll_fd = epoll_create1(EPOLL_CLOEXEC)
    if s.epoll_fd < 0:
        return errno
    s.timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)
    if s.timer_fd < 0:
        return errno
    s.timer_ns = 0
    s.max_idle_ns = max_idle_ns
    event.events = EPOLLIN
    event.data.u64 = 0
    event.data.ptr = NULL
    if epoll_ctl(s.epoll_fd, EPOLL_CTL_ADD, wake_fd, &event) < 0:
        return errno
    event.data.ptr = s
    if epoll_ctl(s.epoll_fd, EPOLL_CTL_ADD, s.timer_fd, &event) < 0:
        return errno
    return 0


cdef void selector_close(SelectorState* s) noexcept nogil:
    if s.epoll_fd >= 0:
        close(s.epoll_fd)
        s.epoll_fd = -1
    if s.timer_fd >= 0:
        close(s.timer_fd)
        s.timer_fd = -1


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
    """Removes a channel before its descriptor closes, so that no event of another descriptor with its number reaches
    this channel."""
    epoll_ctl(s.epoll_fd, EPOLL_CTL_DEL, channel.transport.fd, NULL)
    unlink_idle(s, channel)
    s.count -= 1


cdef void set_timer(SelectorState* s, int64_t at_ns) noexcept nogil:
    cdef itimerspec when
    memset(&when, 0, sizeof(when))
    when.it_value.tv_sec = at_ns // NS_PER_SECOND
    when.it_value.tv_nsec = at_ns % NS_PER_SECOND
    timerfd_settime(s.timer_fd, TFD_TIMER_ABSTIME, &when, NULL)
    s.timer_ns = at_ns


cdef int64_t selector_poll(SelectorState* s, int64_t due_ns, int64_t now_ns) noexcept nogil:
    cdef int64_t started = now_ns
    cdef int64_t now
    if 0 <= due_ns <= started:
        s.ready = epoll_wait(s.epoll_fd, s.events, SELECTOR_EVENTS, 0)
        now = monotonic_ns()
    else:
        if due_ns > 0 and (s.timer_ns == 0 or due_ns < s.timer_ns):
            set_timer(s, due_ns)
        atomic_store(&s.waiting_since_ns, started)
        s.ready = epoll_wait(s.epoll_fd, s.events, SELECTOR_EVENTS, -1)
        now = monotonic_ns()
        atomic_store(&s.waiting_since_ns, 0)
        atomic_count_alone(&s.idle_ns, now - started)
    if s.ready < 0:
        s.ready = 0     # EINTR
    return now


cdef void selector_timer_rang(SelectorState* s) noexcept nogil:
    cdef uint64_t times
    read(s.timer_fd, &times, sizeof(times))
    s.timer_ns = 0


cdef void selector_change(SelectorState* s, KafkaChannel* channel, uint32_t interest) noexcept nogil:
    cdef epoll_event event
    channel.interest = interest
    event.events = interest
    event.data.ptr = channel
    epoll_ctl(s.epoll_fd, EPOLL_CTL_MOD, channel.transport.fd, &event)


cdef void selector_make_newest(SelectorState* s, KafkaChannel* channel) noexcept nogil:
    unlink_idle(s, channel)
    link_newest(s, channel)
