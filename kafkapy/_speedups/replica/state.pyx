"""Mails, and the lists of partitions of a fetcher thread (see state.pxd)."""

from cython.operator cimport dereference as deref, preincrement as inc
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free
from libcpp.string cimport string
from libcpp.unordered_map cimport unordered_map
from libcpp.vector cimport vector
from posix.unistd cimport close

from kafkapy._speedups.base.posix cimport (
    atomic_add,
    eventfd_write,
    monotonic_ns,
    pthread_mutex_destroy,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)
from kafkapy._speedups.log.follow cimport FollowerPosition, follower_position
from kafkapy._speedups.log.state cimport log_unref
from kafkapy._speedups.replica.throttle cimport throttle_unref

cdef enum:
    MS = 1_000_000              # ns


cdef int64_t fetcher_now_ns(const FetcherState* f) noexcept nogil:
    return f.clock_ns if f.clock_ns else monotonic_ns()


cdef void partition_unref(FetchPartition* p) noexcept nogil:
    if atomic_add(&p.references, -1) == 0:
        log_unref(p.log)
        del p


cdef void fetcher_unref(FetcherState* f) noexcept nogil:
    cdef size_t i
    if atomic_add(&f.references, -1) != 0:
        return
    for i in range(f.mails.size()):
        if f.mails[i].kind == MAIL_ADD:
            partition_unref(f.mails[i].partition)
        elif f.mails[i].kind == MAIL_CONNECTION:
            f.mails[i].transport.functions.close(&f.mails[i].transport)
    while not f.partitions.empty():
        remove_partition(f, deref(f.partitions.begin()).second)
    if f.has_next:
        f.next.functions.close(&f.next)
    pthread_mutex_destroy(&f.mutex)
    throttle_unref(f.throttle)
    if f.wake_fd >= 0:
        close(f.wake_fd)
    free(f.buffer)
    del f


cdef void fetcher_mail(FetcherState* f, FetcherMail* mail) noexcept nogil:
    cdef bint first
    pthread_mutex_lock(&f.mutex)
    first = f.mails.empty()
    f.mails.push_back(mail[0])
    pthread_mutex_unlock(&f.mutex)
    if first:
        eventfd_write(f.wake_fd, 1)


# ---- lists of partitions ---------------------------------------------------------------------------------------------


cdef void take_out(vector[FetchPartition*]* list, FetchPartition* p) noexcept nogil:
    cdef size_t i
    for i in range(list.size()):
        if list[0][i] == p:
            list[0][i] = list.back()
            list.pop_back()
            return


cdef void requeue(FetcherState* f, FetchPartition* p) noexcept nogil:
    if not p.queued:
        p.queued = True
        f.changed.push_back(p)


cdef void delay(FetcherState* f, FetchPartition* p, int64_t until_ns) noexcept nogil:
    if p.delayed_until_ns == 0:
        f.delayed.push_back(p)
    p.delayed_until_ns = until_ns
    requeue(f, p)               # the session forgets it


cdef void park(FetcherState* f, FetchPartition* p) noexcept nogil:
    p.state = STATE_PARKED
    requeue(f, p)


cdef int64_t release_delayed(FetcherState* f, int64_t now_ns) noexcept nogil:
    cdef int64_t earliest = 0
    cdef size_t i = 0
    cdef FetchPartition* p
    while i < f.delayed.size():
        p = f.delayed[i]
        if p.delayed_until_ns <= now_ns:
            p.delayed_until_ns = 0
            f.delayed[i] = f.delayed.back()
            f.delayed.pop_back()
            requeue(f, p)
        else:
            if earliest == 0 or p.delayed_until_ns < earliest:
                earliest = p.delayed_until_ns
            i += 1
    return earliest


cdef void reset_session(FetcherState* f, int32_t session_id) noexcept nogil:
    cdef unordered_map[int64_t, FetchPartition*].iterator at = f.partitions.begin()
    while at != f.partitions.end():
        deref(at).second.asked = False
        inc(at)
    f.session_id = session_id
    f.session_epoch = 0
    f.session_size = 0
    f.forgotten.clear()


# ---- mails -----------------------------------------------------------------------------------------------------------


cdef void look_at_log(FetchPartition* p) noexcept nogil:
    """Reads the log's offsets. In another leader epoch the appends are refused, so the partition just waits then."""
    cdef FollowerPosition position
    if follower_position(p.log, p.leader_epoch, &position):
        p.state = STATE_PARKED
    p.fetch_offset = position.log_end_offset
    p.log_start_offset = position.log_start_offset
    p.last_epoch = position.last_epoch
    p.epochs_version = position.epochs_version


cdef FetchTopic* enter(unordered_map[string, FetchTopic*]* topics, const string& name,
                       FetchPartition* p) noexcept nogil:
    cdef unordered_map[string, FetchTopic*].iterator found = topics.find(name)
    cdef FetchTopic* topic
    if found != topics.end():
        topic = deref(found).second
    else:
        topic = new FetchTopic()
        topics[0][name] = topic
    topic.partitions[p.partition] = p
    return topic


cdef void leave(unordered_map[string, FetchTopic*]* topics, const string& name, FetchPartition* p) noexcept nogil:
    cdef unordered_map[string, FetchTopic*].iterator found = topics.find(name)
    cdef unordered_map[int32_t, FetchPartition*].iterator place
    if found == topics.end():
        return
    place = deref(found).second.partitions.find(p.partition)
    # Another one of the name may have taken its place.
    if place != deref(found).second.partitions.end() and deref(place).second == p:
        deref(found).second.partitions.erase(place)
    if deref(found).second.partitions.empty():
        del deref(found).second
        topics.erase(found)


cdef FetchPartition* find_partition(unordered_map[string, FetchTopic*]* topics, const string& topic,
                                    int32_t partition) noexcept nogil:
    cdef unordered_map[string, FetchTopic*].iterator found = topics.find(topic)
    cdef unordered_map[int32_t, FetchPartition*].iterator place
    if found == topics.end():
        return NULL
    place = deref(found).second.partitions.find(partition)
    return deref(place).second if place != deref(found).second.partitions.end() else NULL


cdef void add_partition(FetcherState* f, FetchPartition* p) noexcept nogil:
    p.topic = enter(&f.by_name, p.topic_name, p)
    if p.topic_id.empty():
        f.without_id += 1
    else:
        enter(&f.by_id, p.topic_id, p)
    f.partitions[p.handle] = p
    p.state = STATE_FETCHING
    look_at_log(p)
    requeue(f, p)


cdef void remove_partition(FetcherState* f, FetchPartition* p) noexcept nogil:
    cdef ForgottenPartition forgotten
    if p.asked and f.session_epoch > 0:
        forgotten.topic_name = p.topic_name
        forgotten.topic_id = p.topic_id
        forgotten.partition = p.partition
        f.forgotten.push_back(forgotten)
        f.session_size -= 1
    if p.queued:
        take_out(&f.changed, p)
    if p.delayed_until_ns:
        take_out(&f.delayed, p)
    if p.held:
        take_out(&f.held, p)
    leave(&f.by_name, p.topic_name, p)
    if p.topic_id.empty():
        f.without_id -= 1
    else:
        leave(&f.by_id, p.topic_id, p)
    f.partitions.erase(p.handle)
    partition_unref(p)


cdef void take_connection(FetcherState* f, FetcherMail* mail) noexcept nogil:
    if f.has_next:
        f.next.functions.close(&f.next)
    f.next = mail.transport
    f.next_version = <int>mail.argument
    f.has_next = True
    f.asked_connection = False


cdef void carry_out(FetcherState* f, FetcherMail* mail) noexcept nogil:
    cdef unordered_map[int64_t, FetchPartition*].iterator found
    cdef FetchPartition* p
    if mail.kind == MAIL_ADD:
        add_partition(f, mail.partition)
        return
    if mail.kind == MAIL_CONNECTION:
        take_connection(f, mail)
        return
    if mail.kind == MAIL_NO_CONNECTION:
        f.asked_connection = False
        return
    found = f.partitions.find(mail.handle)
    if found == f.partitions.end():
        return
    p = deref(found).second
    if mail.kind == MAIL_REMOVE:
        remove_partition(f, p)
    elif mail.kind == MAIL_THROTTLE:
        p.throttled = mail.argument != 0
        requeue(f, p)
    else:
        p.state = STATE_FETCHING
        look_at_log(p)
        if mail.argument > 0:
            delay(f, p, fetcher_now_ns(f) + mail.argument * MS)
        requeue(f, p)


cdef bint take_mails(FetcherState* f) noexcept nogil:
    cdef vector[FetcherMail] mails
    cdef bint stop
    cdef size_t i
    pthread_mutex_lock(&f.mutex)
    mails.swap(f.mails)
    f.now = f.settings
    stop = f.stop
    pthread_mutex_unlock(&f.mutex)
    for i in range(mails.size()):
        carry_out(f, &mails[i])
    return not stop
