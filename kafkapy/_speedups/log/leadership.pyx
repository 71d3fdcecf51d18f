"""Leadership of a partition log (see leadership.pxd). Source: kafka.cluster.Partition.makeLeader, makeFollower,
updateFollowerFetchState.
"""

from cython.operator cimport dereference as deref, preincrement as inc
from libc.stdint cimport int32_t, int64_t
from libcpp.unordered_map cimport unordered_map
from libcpp.vector cimport vector

from kafkapy._speedups.base.posix cimport pthread_mutex_lock, pthread_mutex_unlock, wall_clock_ms
from kafkapy._speedups.log.layout cimport LogState, Waiter
from kafkapy._speedups.log.private cimport Follower, private_of
from kafkapy._speedups.log.recovery cimport EpochEntry, epochs_assign
from kafkapy._speedups.log.state cimport advance_high_watermark_locked, fire, lock_settled, take_waiters_locked


cdef bint forget_newer_epochs(vector[EpochEntry]* epochs, int32_t leader_epoch) noexcept nogil:
    """Drops newer epochs, so that the records count as of older ones: the log comes from a cluster whose epochs were
    ahead (LeaderEpochFileCache.assign). Otherwise a consumer that asks for the end of its epoch would see new
    records as cut off."""
    if epochs.empty() or epochs.back().epoch <= leader_epoch:
        return False
    while not epochs.empty() and epochs.back().epoch >= leader_epoch:
        epochs.pop_back()
    return True


cdef bint lead(LogState* log, int32_t leader_id, int32_t leader_epoch, vector[int32_t]* in_sync,
               vector[int32_t]* replicas) noexcept nogil:
    cdef vector[Waiter] woken
    cdef unordered_map[int32_t, Follower] followers
    cdef unordered_map[int32_t, Follower].iterator at
    cdef unordered_map[int32_t, Follower].iterator known
    cdef Follower fresh
    cdef size_t i
    cdef bint changed, new_epoch
    fresh.log_end_offset = -1
    fresh.caught_up_ms = 0
    fresh.in_sync = False
    for i in range(replicas.size()):
        followers[replicas[0][i]] = fresh
    fresh.caught_up_ms = wall_clock_ms()
    fresh.in_sync = True
    for i in range(in_sync.size()):
        followers[in_sync[0][i]] = fresh
    lock_settled(log)
    new_epoch = not log.leader or log.leader_epoch != leader_epoch
    # Positions of followers under an earlier leader are not reliable.
    at = followers.begin()
    while not new_epoch and at != followers.end():
        known = private_of(log).followers.find(deref(at).first)
        if known != private_of(log).followers.end():
            deref(at).second.log_end_offset = deref(known).second.log_end_offset
            deref(at).second.caught_up_ms = deref(known).second.caught_up_ms
        inc(at)
    private_of(log).followers.swap(followers)
    log.leader = True
    log.leader_id = leader_id
    log.leader_epoch = leader_epoch
    log.in_sync_replicas = <int32_t>in_sync.size() + 1
    changed = forget_newer_epochs(&private_of(log).history.epochs, leader_epoch)
    if epochs_assign(&private_of(log).history.epochs, leader_epoch, log.log_end_offset) or changed:
        changed = True
        private_of(log).epochs_version += 1
    advance_high_watermark_locked(log)
    # Waiting requests were checked against the epoch before: all check again.
    take_waiters_locked(log, new_epoch, &woken)
    pthread_mutex_unlock(&log.mutex)
    fire(&woken)
    return changed


cdef void follow(LogState* log, int32_t leader_id, int32_t leader_epoch) noexcept nogil:
    cdef vector[Waiter] woken
    lock_settled(log)
    log.leader = False
    log.leader_id = leader_id
    log.leader_epoch = leader_epoch
    log.in_sync_replicas = 0
    private_of(log).followers.clear()
    take_waiters_locked(log, True, &woken)
    pthread_mutex_unlock(&log.mutex)
    fire(&woken)


cdef bint is_follower(LogState* log, int32_t replica_id) noexcept nogil:
    pthread_mutex_lock(&log.mutex)
    cdef bint known = log.leader and private_of(log).followers.count(replica_id) > 0
    pthread_mutex_unlock(&log.mutex)
    return known


cdef void follower_fetched(LogState* log, int32_t replica_id, int64_t log_end_offset) noexcept nogil:
    cdef vector[Waiter] woken
    cdef unordered_map[int32_t, Follower].iterator found
    pthread_mutex_lock(&log.mutex)
    found = private_of(log).followers.find(replica_id)
    if found == private_of(log).followers.end():
        pthread_mutex_unlock(&log.mutex)
        return
    deref(found).second.log_end_offset = log_end_offset
    if log_end_offset >= log.log_end_offset:
        deref(found).second.caught_up_ms = wall_clock_ms()
    if deref(found).second.in_sync:
        advance_high_watermark_locked(log)
        if not log.waiters.empty():
            take_waiters_locked(log, False, &woken)
    pthread_mutex_unlock(&log.mutex)
    fire(&woken)
