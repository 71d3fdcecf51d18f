"""What other threads tell a Processor: partitions that wake its parked requests, Python's replies, new connections.

A Mailbox never goes away while the process lives: a partition may call `mailbox_wake` a moment after the request was
cancelled, because wakes happen outside its mutex. When a Processor ends, its Mailbox (and its eventfd) goes to a list
of idle ones and is used again by a later Processor. Tokens are unique in the process, so a late wake finds nothing and
does nothing.
"""

from libc.stdint cimport int64_t, uint64_t
from libcpp.vector cimport vector

from kafkapy._speedups.base.posix cimport pthread_mutex_t
from kafkapy._speedups.base.send cimport Send
from kafkapy._speedups.network.connection cimport ConnectionInfo, ConnectionRegistryState

cdef enum MailKind:
    MAIL_WAKE = 0               # token: a parked request is to look again
    MAIL_RESUME = 1             # token: Python answered what the request asked
    MAIL_REPLY = 2              # token, send: Python's reply
    MAIL_NO_REPLY = 3           # token: Python is done with the request and there is nothing to send
    MAIL_CLOSE = 4              # token: Python wants the request's connection closed
    MAIL_CONNECTION = 5         # info, fd: a new connection
    MAIL_CLOSE_CONNECTION = 6   # token: the connection's id
    MAIL_LOOK = 7               # the RequestChannel has room again, the memory pool has memory again, or a stop was
                                # asked for
    MAIL_SENT = 9               # token: the connection's id; another thread has sent what its transport took
                                # (channel.sent_status)
    MAIL_OUTCOME = 8            # token: another thread has worked on the request, and left its outcome in it
                                # (pending_return)

cdef struct Mail:
    int kind
    int fd
    uint64_t token
    Send* send
    ConnectionInfo* info

cdef cppclass Mailbox:
    pthread_mutex_t mutex
    vector[Mail] mails
    vector[uint64_t] own_wakes      # by the Processor's own thread: no lock, no eventfd
    int64_t owner                   # atomic: the Processor's thread
    int event_fd
    bint open                       # under the mutex; what comes later is dropped
    bint signalled                  # under the mutex: the eventfd says that there are mails
    ConnectionRegistryState* registry

# NULL when no eventfd can be had.
cdef Mailbox* mailbox_take(ConnectionRegistryState* registry) noexcept nogil
# No mail is taken any more; what was left is dropped.
cdef void mailbox_give_back(Mailbox* box) noexcept nogil
# That thread (thread_self; 0: none) reads this box from now on.
cdef void mailbox_attach(Mailbox* box, int64_t owner) noexcept nogil
# Takes over what the mail carries, also when the box is closed.
cdef void mailbox_post(Mailbox* box, const Mail* mail) noexcept nogil
cdef void mailbox_post_token(Mailbox* box, int kind, uint64_t token, Send* send) noexcept nogil
# From here on the calling thread's mails wake nobody, until it lets go of them or has posted MAILS_HELD of them: a
# thread that is woken by the first of many takes turns with the one that writes them.
cdef void mailbox_hold() noexcept nogil
cdef void mailbox_let_go() noexcept nogil
# The wake_function of parked requests: owner is their Mailbox.
cdef void mailbox_wake(void* owner, uint64_t token) noexcept nogil
cdef void mailbox_collect(Mailbox* box, vector[Mail]* into) noexcept nogil
cdef uint64_t next_token() noexcept nogil
