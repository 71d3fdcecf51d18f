"""Leadership of a partition log (see leadership.pxd). Source: kafka.cluster.Partition.makeLeader, makeFollower,
updateFollowerFetchState, kafka.cluster.Replica.
"""

from cython.operator cimport dereference as deref, preincrement as inc
from libc.stdint cimport int32_t, int64_t
from libcpp.unordered_map cimport unordered_map
from libcpp.vector cimport vector

from kafkapy._speedups.base.event_queue cimport EVENT_FOLLOWER_CAUGHT_UP, EVENT_FOLLOWER_LOG_START, event_post
from kafkapy._speedups.base.posix cimport pthread_mutex_lock, pthread_mutex_unlock
from kafkapy._speedups.base.replication_quota cimport replication_quota_exceeded, replication_quota_record
from kafkapy._speedups.log.layout cimport LogState, Waiter
from kafkapy._speedups.log.private cimport NEVER_MS, Follower, LogPrivate, private_of
from kafkapy._speedups.log.recovery cimport EpochEntry, epochs_assign
from kafkapy._speedups.log.replication cimport ReplicationState, replication_now_ms
from kafkapy._speedups.log.state cimport (
    advance_high_watermark_locked,
    epochs_unwritten_locked,
    fire,
    take_waiters_locked,
)
from kafkapy._speedups.log.turns cimport lock_settled


cdef bint forget_newer_epochs(vector[EpochEntry]* epochs, int32_t leader_epoch) noexcept nogil:
    """Drops newer epochs, so that the records count as of older ones: the log comes from a cluster whose epochs were
    ahead (LeaderEpochFileCache.assign). Otherwise a consumer that asks for the end of its epoch would see new
    records as cut off."""
    if epochs.empty() or epochs.back().epoch <= leader_epoch:
        return False
    while not epochs.empty() and epochs.back().epoch >= leader_epoch:
        epochs.pop_back()
    return True


cdef Follower new_follower() noexcept nogil:
    cdef Follower fresh
    fresh.log_end_offset = -1
    fresh.log_start_offset = -1
    fresh.leader_end_offset = -1
    fresh.fetched_ms = NEVER_MS
    fresh.caught_up_ms = NEVER_MS
    fresh.broker_epoch = -1
    fresh.in_isr = False
    fresh.in_sync = False
    fresh.announced = False
    return fresh


cdef bint lead(LogState* log, int32_t leader_id, int32_t leader_epoch, int32_t partition_epoch, vector[int32_t]* isr,
               vector[int32_t]* replicas) noexcept nogil:
    cdef LogPrivate* own = private_of(log)
    cdef vector[Waiter] woken
    cdef unordered_map[int32_t, Follower] followers
    cdef unordered_map[int32_t, Follower].iterator at
    cdef unordered_map[int32_t, Follower].iterator known
    cdef Follower fresh = new_follower()
    cdef size_t i
    cdef bint dropped, new_epoch, unwritten
    for i in range(replicas.size()):
        followers[replicas[0][i]] = fresh
    if not isr.empty():
        fresh.caught_up_ms = replication_now_ms(own.replication)
    for i in range(isr.size()):
        followers[isr[0][i]] = fresh
    lock_settled(log)
    new_epoch = not log.leader or log.leader_epoch != leader_epoch
    # Positions under an earlier leader are not reliable: the follower may have followed another one since.
    at = followers.begin()
    while not new_epoch and at != followers.end():
        known = own.followers.find(deref(at).first)
        if known != own.followers.end():
            deref(at).second = deref(known).second
        inc(at)
    own.followers.swap(followers)
    put_isr_locked(log, isr, isr)
    log.leader = True
    log.leader_id = leader_id
    log.leader_epoch = leader_epoch
    own.partition_epoch = partition_epoch
    if new_epoch:
        own.epoch_start_offset = log.log_end_offset
    dropped = forget_newer_epochs(&own.history.epochs, leader_epoch)
    if dropped:
        own.epochs_version += 1
    unwritten = epochs_unwritten_locked(log)
    if epochs_assign(&own.history.epochs, leader_epoch, log.log_end_offset):
        own.epochs_version += 1
        if not unwritten:
            own.epochs_empty = own.epochs_version
    advance_high_watermark_locked(log)
    # Waiting requests were checked against the epoch before: all check again.
    take_waiters_locked(log, new_epoch, &woken)
    pthread_mutex_unlock(&log.mutex)
    fire(&woken)
    return dropped


cdef void put_isr_locked(LogState* log, vector[int32_t]* isr, vector[int32_t]* maximal) noexcept nogil:
    cdef LogPrivate* own = private_of(log)
    cdef unordered_map[int32_t, Follower].iterator at = own.followers.begin()
    cdef size_t i
    while at != own.followers.end():
        deref(at).second.in_isr = False
        deref(at).second.in_sync = False
        deref(at).second.announced = False
        inc(at)
    # A member outside the assignment has no position yet, and so holds the high watermark back.
    for i in range(isr.size()):
        member_locked(log, isr[0][i]).in_isr = True
    for i in range(maximal.size()):
        member_locked(log, maximal[0][i]).in_sync = True
    log.in_sync_replicas = <int32_t>isr.size() + 1
    own.maximal_in_sync = <int32_t>maximal.size() + 1


cdef Follower* member_locked(LogState* log, int32_t replica_id) noexcept nogil:
    cdef unordered_map[int32_t, Follower]* followers = &private_of(log).followers
    if followers.count(replica_id) == 0:
        followers[0][replica_id] = new_follower()
    return &followers[0][replica_id]


cdef bint set_isr(LogState* log, int32_t leader_epoch, int32_t partition_epoch, vector[int32_t]* isr,
                  vector[int32_t]* maximal) noexcept nogil:
    cdef vector[Waiter] woken
    cdef bint applies
    pthread_mutex_lock(&log.mutex)
    applies = (log.leader and (leader_epoch < 0 or leader_epoch == log.leader_epoch)
               and partition_epoch >= private_of(log).partition_epoch)
    if applies:
        put_isr_locked(log, isr, maximal)
        private_of(log).partition_epoch = partition_epoch
        advance_high_watermark_locked(log)
        take_waiters_locked(log, False, &woken)
    pthread_mutex_unlock(&log.mutex)
    fire(&woken)
    return applies


cdef void follow(LogState* log, int32_t leader_id, int32_t leader_epoch, int32_t partition_epoch) noexcept nogil:
    cdef vector[Waiter] woken
    lock_settled(log)
    log.leader = False
    log.leader_id = leader_id
    log.leader_epoch = leader_epoch
    log.in_sync_replicas = 0
    private_of(log).partition_epoch = partition_epoch
    private_of(log).maximal_in_sync = 0
    private_of(log).epoch_start_offset = 0
    private_of(log).followers.clear()
    take_waiters_locked(log, True, &woken)
    pthread_mutex_unlock(&log.mutex)
    fire(&woken)


cdef int follower_standing(LogState* log, int32_t replica_id) noexcept nogil:
    cdef LogPrivate* own = private_of(log)
    cdef unordered_map[int32_t, Follower].iterator found
    cdef int standing = 0
    pthread_mutex_lock(&log.mutex)
    found = own.followers.find(replica_id)
    if log.leader and found != own.followers.end():
        standing = FOLLOWER_ASSIGNED
        if not deref(found).second.in_isr:
            standing |= FOLLOWER_OUTSIDE
        if own.leader_throttled:
            standing |= FOLLOWER_THROTTLED
    pthread_mutex_unlock(&log.mutex)
    return standing


cdef void readable_followers(LogState* log, int64_t offset, vector[FollowerView]* out) noexcept nogil:
    cdef unordered_map[int32_t, Follower].iterator at
    cdef const Follower* follower
    cdef FollowerView view
    pthread_mutex_lock(&log.mutex)
    if log.leader:
        at = private_of(log).followers.begin()
        while at != private_of(log).followers.end():
            follower = &deref(at).second
            # A member of the ISR that has not fetched yet has an unknown log.
            if follower.in_isr and follower.log_end_offset >= offset and follower.log_start_offset <= offset:
                view.replica_id = deref(at).first
                view.log_end_offset = follower.log_end_offset
                view.caught_up_ms = follower.caught_up_ms
                out.push_back(view)
            inc(at)
    pthread_mutex_unlock(&log.mutex)


cdef int64_t replica_clock_ms(LogState* log) noexcept nogil:
    return replication_now_ms(private_of(log).replication)


cdef bint leader_quota_exceeded(LogState* log) noexcept nogil:
    # A log gets its shared state before it leads, and keeps it.
    cdef ReplicationState* replication = private_of(log).replication
    return replication != NULL and replication_quota_exceeded(replication.leader_quota,
                                                              replication_now_ms(replication))


cdef void leader_quota_record(LogState* log, int64_t bytes) noexcept nogil:
    cdef ReplicationState* replication = private_of(log).replication
    if replication != NULL:
        replication_quota_record(replication.leader_quota, bytes, replication_now_ms(replication))


cdef void note_fetch_locked(LogState* log, Follower* follower, const FollowerFetch* fetch) noexcept nogil:
    """Notes a fetch as Replica.updateFetchStateOrThrow: a follower that fetches from where the log ended at its last
    fetch was caught up then, so that its lag is time, not records."""
    cdef int64_t now_ms = replication_now_ms(private_of(log).replication)
    if fetch.log_end_offset >= fetch.leader_end_offset:
        follower.caught_up_ms = max(follower.caught_up_ms, now_ms)
    elif fetch.log_end_offset >= follower.leader_end_offset:
        follower.caught_up_ms = max(follower.caught_up_ms, follower.fetched_ms)
    follower.log_end_offset = fetch.log_end_offset
    follower.log_start_offset = fetch.log_start_offset
    follower.leader_end_offset = max(follower.leader_end_offset, fetch.leader_end_offset)
    follower.fetched_ms = now_ms
    follower.broker_epoch = fetch.broker_epoch


cdef void follower_fetched(LogState* log, const FollowerFetch* fetch) noexcept nogil:
    cdef LogPrivate* own = private_of(log)
    cdef vector[Waiter] woken
    cdef unordered_map[int32_t, Follower].iterator found
    cdef Follower* follower
    cdef int64_t high_watermark, start
    pthread_mutex_lock(&log.mutex)
    found = own.followers.find(fetch.replica_id)
    if not log.leader or found == own.followers.end():
        pthread_mutex_unlock(&log.mutex)
        return
    follower = &deref(found).second
    start = follower.log_start_offset
    note_fetch_locked(log, follower, fetch)
    if own.announce_log_starts and log.events != NULL and follower.log_start_offset != start:
        event_post(log.events, EVENT_FOLLOWER_LOG_START, log.id, fetch.replica_id, NULL, 0)
    # A follower joins the ISR only with all records of earlier epochs: some of them may be committed, although the high
    # watermark of this leader is behind (KAFKA-7128).
    if (not follower.in_sync and not follower.announced and log.events != NULL
            and follower.log_end_offset >= log.high_watermark and follower.log_end_offset >= own.epoch_start_offset):
        follower.announced = True
        event_post(log.events, EVENT_FOLLOWER_CAUGHT_UP, log.id, fetch.replica_id, NULL, 0)
    # Kafka looks only when the position has moved. Here a fetch also ends the wait for another follower that has fallen
    # behind or died since.
    high_watermark = log.high_watermark
    advance_high_watermark_locked(log)
    if log.high_watermark != high_watermark and not log.waiters.empty():
        take_waiters_locked(log, False, &woken)
    pthread_mutex_unlock(&log.mutex)
    fire(&woken)


cdef bint enough_in_sync_locked(LogState* log) noexcept nogil:
    return private_of(log).maximal_in_sync >= log.config.min_in_sync_replicas
