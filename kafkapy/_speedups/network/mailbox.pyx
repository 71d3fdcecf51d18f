"""Mailboxes of the Processors (see mailbox.pxd)."""

from libc.stdint cimport int64_t, uint64_t
from libcpp.vector cimport vector
from posix.unistd cimport close

from kafkapy._speedups.base.blocking cimport thread_self
from kafkapy._speedups.base.posix cimport (
    EFD_CLOEXEC,
    EFD_NONBLOCK,
    atomic_add,
    atomic_load,
    atomic_store,
    eventfd,
    eventfd_read,
    eventfd_write,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_t,
    pthread_mutex_unlock,
)
from kafkapy._speedups.base.send cimport Send, send_free
from kafkapy._speedups.network.connection cimport (
    CLOSED_AT_STOP,
    ConnectionRegistryState,
    connection_closed,
    connection_unref,
)

cdef extern from * nogil:
    """
    typedef struct { int on; int mails; int boxes; void* box[16]; } kp_held;
    static __thread kp_held kp_own_held;
    static inline kp_held* kp_get_held(void) { return &kp_own_held; }
    """
    ctypedef struct Held "kp_held":
        bint on
        int mails
        int boxes
        void** box
    Held* own_held "kp_get_held"()

cdef enum:
    MAILS_HELD = 16     # also the limit of boxes

cdef pthread_mutex_t idle_mutex
pthread_mutex_init(&idle_mutex, NULL)
cdef vector[Mailbox*] idle
cdef int64_t tokens = 0


cdef uint64_t next_token() noexcept nogil:
    return <uint64_t>atomic_add(&tokens, 1)


cdef Mailbox* mailbox_take(ConnectionRegistryState* registry) noexcept nogil:
    cdef Mailbox* box = NULL
    cdef int fd
    cdef uint64_t value
    pthread_mutex_lock(&idle_mutex)
    if not idle.empty():
        box = idle.back()
        idle.pop_back()
    pthread_mutex_unlock(&idle_mutex)
    if box == NULL:
        fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)
        if fd < 0:
            return NULL
        box = new Mailbox()
        pthread_mutex_init(&box.mutex, NULL)
        box.event_fd = fd
    eventfd_read(box.event_fd, &value)
    pthread_mutex_lock(&box.mutex)
    box.registry = registry
    atomic_store(&box.owner, 0)
    box.own_wakes.clear()
    box.signalled = False
    box.open = True
    pthread_mutex_unlock(&box.mutex)
    return box


cdef void mail_drop(Mailbox* box, const Mail* mail) noexcept nogil:
    send_free(mail.send)
    if mail.info != NULL:
        close(mail.fd)
        connection_closed(box.registry, NULL, mail.info, CLOSED_AT_STOP)
        connection_unref(mail.info)


cdef void mailbox_give_back(Mailbox* box) noexcept nogil:
    cdef vector[Mail] left
    cdef size_t i
    pthread_mutex_lock(&box.mutex)
    box.open = False
    left.swap(box.mails)
    pthread_mutex_unlock(&box.mutex)
    for i in range(left.size()):
        mail_drop(box, &left[i])
    pthread_mutex_lock(&idle_mutex)
    idle.push_back(box)
    pthread_mutex_unlock(&idle_mutex)


cdef void mailbox_attach(Mailbox* box, int64_t owner) noexcept nogil:
    atomic_store(&box.owner, owner)


cdef void mailbox_post(Mailbox* box, const Mail* mail) noexcept nogil:
    cdef Held* held = own_held()
    cdef bint first = False
    cdef bint taken
    pthread_mutex_lock(&box.mutex)
    taken = box.open
    if taken:
        box.mails.push_back(mail[0])
        first = not box.signalled
        if not held.on:
            box.signalled = True
    pthread_mutex_unlock(&box.mutex)
    if not taken:
        mail_drop(box, mail)
    elif first:
        if held.on:
            hold_signal(held, box)
        else:
            eventfd_write(box.event_fd, 1)


cdef void hold_signal(Held* held, Mailbox* box) noexcept nogil:
    cdef int i
    for i in range(held.boxes):
        if held.box[i] == box:
            break
    else:
        held.box[held.boxes] = box
        held.boxes += 1
    held.mails += 1
    if held.mails == MAILS_HELD:
        signal_held(held)


cdef void signal_held(Held* held) noexcept nogil:
    cdef Mailbox* box
    cdef bint first
    cdef int i
    for i in range(held.boxes):
        box = <Mailbox*>held.box[i]
        pthread_mutex_lock(&box.mutex)
        first = not box.signalled and not box.mails.empty()
        if first:
            box.signalled = True
        pthread_mutex_unlock(&box.mutex)
        if first:
            eventfd_write(box.event_fd, 1)
    held.boxes = 0
    held.mails = 0


cdef void mailbox_hold() noexcept nogil:
    own_held().on = True


cdef void mailbox_let_go() noexcept nogil:
    cdef Held* held = own_held()
    held.on = False
    signal_held(held)


cdef void mailbox_post_token(Mailbox* box, int kind, uint64_t token, Send* send) noexcept nogil:
    cdef Mail mail
    mail.kind = kind
    mail.fd = -1
    mail.token = token
    mail.send = send
    mail.info = NULL
    mailbox_post(box, &mail)


cdef void mailbox_wake(void* owner, uint64_t token) noexcept nogil:
    cdef Mailbox* box = <Mailbox*>owner
    if atomic_load(&box.owner) == thread_self():
        box.own_wakes.push_back(token)
    else:
        mailbox_post_token(box, MAIL_WAKE, token, NULL)


cdef void mailbox_collect(Mailbox* box, vector[Mail]* into) noexcept nogil:
    """Collects the mails. Only the Processor calls it, after its eventfd was readable."""
    cdef uint64_t value
    eventfd_read(box.event_fd, &value)
    pthread_mutex_lock(&box.mutex)
    into.swap(box.mails)
    box.signalled = False
    pthread_mutex_unlock(&box.mutex)
