"""Mails of other threads to a Processor: wakes of parked requests, Python's replies, new connections.

A Mailbox is never freed: a partition may call `mailbox_wake` a moment after its request was cancelled, because wakes
happen outside the partition's mutex. When a Processor ends, its Mailbox (and its eventfd) goes to a list of idle ones
for a later Processor. Tokens are unique in the process, so a late wake finds nothing and does nothing.
"""

from libc.stdint cimport int64_t, uint64_t
from libcpp.vector cimport vector

from kafkapy._speedups.base.posix cimport pthread_mutex_t
from kafkapy._speedups.base.send cimport Send
from kafkapy._speedups.network.connection cimport ConnectionInfo, ConnectionRegistryState

cdef enum MailKind:
    MAIL_WAKE = 0               # token: a parked request must check again
    MAIL_RESUME = 1             # token: Python has answered the request's question
    MAIL_REPLY = 2              # token, send: Python's reply
    MAIL_NO_REPLY = 3           # token: Python has finished the request without a reply
    MAIL_CLOSE = 4              # token: Python closes the request's connection
    MAIL_CONNECTION = 5         # info, fd: a new connection
    MAIL_CLOSE_CONNECTION = 6   # token: the connection's id
    MAIL_LOOK = 7               # the RequestChannel has room again, the memory pool has memory again, or a stop has
                                # begun
    MAIL_SENT = 9               # token: the connection's id; another thread has sent a part of its reply
                                # (channel.sent_status)
    MAIL_AUTHENTICATED = 10     # token, send (NULL: no reply): Python has authenticated the connection
                                # (pending.session_end_ns)
    MAIL_REFUSED = 11           # token, send (NULL: no reply): the authentication has failed (pending.delay_ns)
    MAIL_BEGIN = 12             # token: Python has decided the connection's quotas, and the request begins
    MAIL_OUTCOME = 8            # token: another thread has worked on the request and left the outcome in it
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
    vector[uint64_t] own_wakes      # of the Processor's own thread: no lock, no eventfd
    int64_t owner                   # atomic: the Processor's thread
    int event_fd
    bint open                       # under the mutex; a closed box drops its mails
    bint signalled                  # under the mutex: the eventfd is readable
    ConnectionRegistryState* registry

# A Mailbox; NULL when the system has no eventfd left.
cdef Mailbox* mailbox_take(ConnectionRegistryState* registry) noexcept nogil
# Closes a Mailbox and drops its mails.
cdef void mailbox_give_back(Mailbox* box) noexcept nogil
# Sets the reading thread (thread_self; 0: none).
cdef void mailbox_attach(Mailbox* box, int64_t owner) noexcept nogil
# Posts a mail. Takes over its contents, even if the box is closed.
cdef void mailbox_post(Mailbox* box, const Mail* mail) noexcept nogil
cdef void mailbox_post_token(Mailbox* box, int kind, uint64_t token, Send* send) noexcept nogil
# Holds back the wakes of the calling thread's mails, until it releases them or has posted MAILS_HELD mails: a thread
# that the first of many mails wakes would compete with the thread that writes them.
cdef void mailbox_hold() noexcept nogil
cdef void mailbox_let_go() noexcept nogil
# The wake_function of parked requests: owner is their Mailbox.
cdef void mailbox_wake(void* owner, uint64_t token) noexcept nogil
cdef void mailbox_collect(Mailbox* box, vector[Mail]* into) noexcept nogil
cdef uint64_t next_token() noexcept nogil
