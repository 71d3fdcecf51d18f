"""The accept loop (see acceptor.pxd)."""

cimport cython
from libc.errno cimport EAGAIN, ECONNABORTED, EINTR, EMFILE, ENFILE, errno
from libc.stdint cimport INT64_MAX, int16_t, int64_t, uint64_t
from libc.stdio cimport snprintf
from libc.string cimport strerror
from libcpp.string cimport string
from libcpp.vector cimport vector
from posix.unistd cimport close

from kafkapy._speedups.base.posix cimport (
    EFD_CLOEXEC,
    EFD_NONBLOCK,
    atomic_count,
    atomic_load,
    atomic_store,
    eventfd,
    eventfd_read,
    eventfd_write,
    monotonic_ns,
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)
from kafkapy._speedups.base.threads cimport block_all_signals
from kafkapy._speedups.network.connection cimport (
    LEVEL_ERROR,
    LEVEL_INFO,
    LEVEL_WARNING,
    LOGGER_ACCEPTOR,
    ConnectionInfo,
    ConnectionRegistry,
    connection_open,
    network_log,
)
from kafkapy._speedups.network.connection_quotas cimport (
    ADDRESS_IS_THROTTLED,
    CONNECTION_ADMITTED,
    Admission,
    quota_admit,
    quota_forget,
    quota_wait,
)
from kafkapy._speedups.network.mailbox cimport MAIL_CONNECTION, Mail, Mailbox, mailbox_post
from kafkapy._speedups.network.processor cimport Processor

cdef extern from * nogil:
    """
    #include <arpa/inet.h>
    #include <netinet/in.h>
    #include <netinet/tcp.h>
    #include <poll.h>
    #include <stdint.h>
    #include <sys/socket.h>

    typedef struct sockaddr_storage kp_address;

    static inline int kp_accept(int fd, kp_address* peer) {
        socklen_t n = sizeof(*peer);
        return accept4(fd, (struct sockaddr*)peer, &n, SOCK_NONBLOCK | SOCK_CLOEXEC);
    }

    static inline int kp_own_address(int fd, kp_address* own) {
        socklen_t n = sizeof(*own);
        return getsockname(fd, (struct sockaddr*)own, &n);
    }

    /* The text of an address, and its port; an IPv4 address that came over an IPv6 socket is shown, and counted, as
       IPv4. */
    static inline int kp_address_text(const kp_address* s, char* text, int size) {
        text[0] = 0;
        if (s->ss_family == AF_INET) {
            const struct sockaddr_in* a = (const struct sockaddr_in*)s;
            inet_ntop(AF_INET, &a->sin_addr, text, size);
            return ntohs(a->sin_port);
        }
        if (s->ss_family == AF_INET6) {
            const struct sockaddr_in6* a = (const struct sockaddr_in6*)s;
            if (IN6_IS_ADDR_V4MAPPED(&a->sin6_addr)) inet_ntop(AF_INET, (char*)&a->sin6_addr + 12, text, size);
            else inet_ntop(AF_INET6, &a->sin6_addr, text, size);
            return ntohs(a->sin6_port);
        }
        return 0;
    }

    static inline void kp_socket_options(int fd, int send_buffer, int same_host) {
        /* On the way to the same host nothing can be congested. A congestion control that paces what it sends, BBR,
           arms a timer for every 64 KB there, and large fetches cost up to twice as much. A kernel without Reno keeps
           its default. */
        if (same_host) setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
        if (send_buffer > 0) setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &send_buffer, sizeof(send_buffer));
    }

    /* Bit 0: the listen socket has a connection, bit 1: the eventfd was written. A negative fd is not waited for. */
    static inline int kp_wait(int listen_fd, int event_fd, int timeout_ms) {
        struct pollfd fds[2];
        fds[0].fd = listen_fd; fds[0].events = POLLIN; fds[0].revents = 0;
        fds[1].fd = event_fd; fds[1].events = POLLIN; fds[1].revents = 0;
        if (poll(fds, 2, timeout_ms) <= 0) return 0;
        return (fds[0].revents ? 1 : 0) | (fds[1].revents ? 2 : 0);
    }
    """
    ctypedef struct Address "kp_address":
        pass
    int accept_connection "kp_accept"(int fd, Address* peer)
    int own_address "kp_own_address"(int fd, Address* own)
    int address_text "kp_address_text"(const Address* address, char* text, int size)
    void socket_options "kp_socket_options"(int fd, int send_buffer, bint same_host)
    int wait_for "kp_wait"(int listen_fd, int event_fd, int timeout_ms)

cdef enum:
    PAUSE_MS = 200              # when the process is out of descriptors
    ACCEPTED_PER_TURN = 64
    SAY_EVERY_S = 60


cdef void pause(AcceptorState* a, int timeout_ms) noexcept nogil:
    """Waits for the eventfd only (a stop, a free slot) or the timeout."""
    cdef uint64_t value
    if wait_for(-1, a.event_fd, timeout_ms):
        eventfd_read(a.event_fd, &value)


cdef bint is_due(int64_t* said_ns) noexcept nogil:
    """Whether a line may be logged again; if so, it counts as logged."""
    cdef int64_t now_ns = monotonic_ns()
    if said_ns[0] and now_ns - said_ns[0] < <int64_t>SAY_EVERY_S * 1_000_000_000:
        return False
    said_ns[0] = now_ns
    return True


cdef bint wait_for_slot(AcceptorState* a) noexcept nogil:
    """True when the acceptor may accept a connection, False when it must stop."""
    cdef char line[256]
    cdef int64_t wait
    while not atomic_load(&a.stop):
        close_throttled(a, monotonic_ns())
        wait = quota_wait(a.registry.quotas, a.listener_index, a.event_fd, monotonic_ns())
        if wait == 0:
            return True
        if wait < 0 and is_due(&a.full_said_ns):
            snprintf(line, sizeof(line),
                     b"New connections wait: the listener or the broker has reached max.connections")
            network_log(a.registry, LEVEL_WARNING, LOGGER_ACCEPTOR, line)
        wait = min(until_close(a), 1_000_000_000 if wait < 0 else wait)
        pause(a, <int>min((wait + 999_999) // 1_000_000, <int64_t>1000))
    return False


cdef int64_t until_close(AcceptorState* a) noexcept nogil:
    """Ns until a throttled connection is to be closed; without any, a long time."""
    if a.throttled.empty():
        return <int64_t>3600 * 1_000_000_000
    return max(a.throttled.front().close_at_ns - monotonic_ns(), <int64_t>0)


cdef void close_throttled(AcceptorState* a, int64_t now_ns) noexcept nogil:
    while not a.throttled.empty() and (a.throttled.front().close_at_ns <= now_ns
                                       or a.throttled.size() > MAX_THROTTLED):
        close(a.throttled.front().fd)
        a.throttled.pop_front()


cdef void admit(AcceptorState* a, int fd, const Address* peer) noexcept nogil:
    cdef char text[64]
    cdef char line[256]
    cdef string host
    cdef string local_host
    cdef Address own
    cdef int port = address_text(peer, text, sizeof(text))
    cdef int local_port = -1
    cdef bint same_host
    cdef int64_t detail
    cdef int64_t now_ns = monotonic_ns()
    cdef Admission admission
    cdef ThrottledSocket throttled
    cdef ConnectionInfo* info
    cdef Mail mail
    host.assign(<const char*>text)
    if own_address(fd, &own) == 0:
        local_port = address_text(&own, text, sizeof(text))
        local_host.assign(<const char*>text)
    admission = quota_admit(a.registry.quotas, a.listener_index, host, now_ns, &detail)
    if admission == ADDRESS_IS_THROTTLED:
        throttled.fd = fd
        throttled.close_at_ns = now_ns + detail * 1_000_000
        a.throttled.push_back(throttled)
        return
    if admission != CONNECTION_ADMITTED:
        close(fd)
        atomic_count(&a.registry.refused_per_ip, 1)
        snprintf(line, sizeof(line),
                 b"Address %s has its maximum of %lld connections (max.connections.per.ip); "
                 b"the broker rejects another one",
                 host.c_str(), <long long>detail)
        network_log(a.registry, LEVEL_INFO, LOGGER_ACCEPTOR, line)
        return
    same_host = local_port >= 0 and host == local_host
    socket_options(fd, a.same_host_send_buffer if same_host else a.send_buffer, same_host)
    info = connection_open(a.registry, host, port, local_host, local_port, a.listener_index, a.privileged)
    mail.kind = MAIL_CONNECTION
    mail.fd = fd
    mail.token = 0
    mail.send = NULL
    mail.info = info
    # A Processor that is taken away has got its last connection when set_processors returns.
    pthread_mutex_lock(&a.mutex)
    a.next = (a.next + 1) % a.mailboxes.size()
    mailbox_post(a.mailboxes[a.next], &mail)
    pthread_mutex_unlock(&a.mutex)


cdef bint accept_one(AcceptorState* a) noexcept nogil:
    """Accepts one connection. False when no further connection is to be accepted for now."""
    cdef char line[256]
    cdef const char* advice = b""
    cdef int error
    cdef Address peer
    cdef int fd = accept_connection(a.listen_fd, &peer)
    if fd >= 0:
        admit(a, fd, &peer)
        return True
    error = errno
    if error == EINTR or error == ECONNABORTED:
        return True
    if error == EAGAIN:
        return False
    if is_due(&a.failure_said_ns):
        if error == EMFILE or error == ENFILE:
            advice = b" (raise the limit of open files)"
        snprintf(line, sizeof(line), b"The listener cannot accept connections: %s%s", strerror(error), advice)
        network_log(a.registry, LEVEL_ERROR, LOGGER_ACCEPTOR, line)
    pause(a, PAUSE_MS)
    return False


cdef void accept_loop(AcceptorState* a) noexcept nogil:
    cdef uint64_t value
    cdef int ready
    cdef int wait
    cdef int i
    block_all_signals()
    while not atomic_load(&a.stop):
        close_throttled(a, monotonic_ns())
        wait = -1
        if not a.throttled.empty():
            wait = <int>min((until_close(a) + 999_999) // 1_000_000, <int64_t>1000)
        ready = wait_for(a.listen_fd, a.event_fd, wait)
        if ready & 2:
            eventfd_read(a.event_fd, &value)
        if not ready & 1:
            continue
        for i in range(ACCEPTED_PER_TURN):
            if not wait_for_slot(a) or not accept_one(a):
                break
    close_throttled(a, INT64_MAX)


@cython.no_gc_clear
cdef class Acceptor:
    """Owns a listen socket (bound and listening, from Python) and its accept loop. The SocketServer makes it, and
    starts a thread on `run`."""

    def __cinit__(self, ConnectionRegistry registry not None, listen_socket, list processors not None,
                  int16_t listener_index, bint privileged=False, int send_buffer_bytes=-1,
                  int same_host_send_buffer_bytes=-1):
        """send_buffer_bytes: SO_SNDBUF of connections from other hosts and from this one, -1 for the system's
        default."""
        self.registry = registry
        self.listen_socket = listen_socket
        self.state = new AcceptorState()
        pthread_mutex_init(&self.state.mutex, NULL)
        self.state.event_fd = -1
        self.set_processors(processors)
        self.state.event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)
        if self.state.event_fd < 0:
            raise OSError("no eventfd can be had for an acceptor")
        self.state.registry = registry.state
        self.state.listen_fd = listen_socket.fileno()
        self.state.listener_index = listener_index
        self.state.privileged = privileged
        self.state.send_buffer = send_buffer_bytes
        self.state.same_host_send_buffer = same_host_send_buffer_bytes

    def __dealloc__(self):
        if self.state != NULL:
            if self.state.event_fd >= 0:
                if self.state.registry != NULL:
                    quota_forget(self.state.registry.quotas, self.state.event_fd)
                close(self.state.event_fd)
            pthread_mutex_destroy(&self.state.mutex)
            del self.state

    def run(self):
        """The thread's body: returns after `stop`. Releases the GIL at once and for good."""
        with nogil:
            accept_loop(self.state)

    def set_processors(self, list processors not None):
        """Gives connections to these Processors from now on. ValueError for none."""
        cdef vector[Mailbox*] mailboxes
        cdef Processor processor
        if not processors:
            raise ValueError("an acceptor needs a processor")
        for processor in processors:
            mailboxes.push_back(processor.state.mailbox)
        with nogil:
            pthread_mutex_lock(&self.state.mutex)
            self.state.mailboxes.swap(mailboxes)
            pthread_mutex_unlock(&self.state.mutex)
        self.processors = processors

    def stop(self):
        """Ends `run`. The caller closes the listen socket after that."""
        atomic_store(&self.state.stop, 1)
        eventfd_write(self.state.event_fd, 1)
