"""A partition log's state as Python objects (see describe.pxd and PartitionLog's methods of the same names)."""

from cython.operator cimport dereference as deref, preincrement as inc
from libc.stdint cimport int32_t, int64_t
from libcpp.unordered_map cimport unordered_map
from libcpp.vector cimport vector

from kafkapy._speedups.base.posix cimport atomic_load, pthread_mutex_lock, pthread_mutex_unlock
from kafkapy._speedups.base.seeded_hash cimport SeededHash
from kafkapy._speedups.log.layout cimport LogCounters, LogState
from kafkapy._speedups.log.private cimport Follower, private_of
from kafkapy._speedups.log.producer_state cimport CompletedTransaction, ProducerEntry, producer_dict
from kafkapy._speedups.log.recovery cimport EpochEntry
from kafkapy._speedups.log.segment cimport SegmentState, segment_ref

cdef struct SegmentDescription:
    int64_t base_offset
    int64_t size
    int64_t max_timestamp
    int64_t created_ms
    bint sealed


cdef void hold_segments(LogState* log, vector[SegmentState*]* out) noexcept nogil:
    cdef size_t i
    pthread_mutex_lock(&log.mutex)
    out[0] = log.segments
    for i in range(out.size()):
        segment_ref(out[0][i])
    pthread_mutex_unlock(&log.mutex)


cdef list describe_segments(LogState* log):
    cdef vector[SegmentDescription] found
    cdef SegmentDescription each
    cdef size_t i
    with nogil:
        pthread_mutex_lock(&log.mutex)
        for i in range(log.segments.size()):
            each.base_offset = log.segments[i].base_offset
            each.size = log.segments[i].size
            each.max_timestamp = atomic_load(&log.segments[i].max_timestamp)
            each.created_ms = log.segments[i].created_ms
            each.sealed = atomic_load(&log.segments[i].sealed) != 0
            found.push_back(each)
        pthread_mutex_unlock(&log.mutex)
    return [(found[i].base_offset, found[i].size, found[i].max_timestamp, found[i].created_ms, found[i].sealed)
            for i in range(found.size())]


cdef dict describe_counters(LogCounters* c):
    return {
        "bytes_in": atomic_load(&c.bytes_in),
        "bytes_out": atomic_load(&c.bytes_out),
        "messages_in": atomic_load(&c.messages_in),
        "produce_requests": atomic_load(&c.produce_requests),
        "fetch_requests": atomic_load(&c.fetch_requests),
        "failed_produce_requests": atomic_load(&c.failed_produce_requests),
        "failed_fetch_requests": atomic_load(&c.failed_fetch_requests),
        "bytes_rejected": atomic_load(&c.bytes_rejected),
    }


cdef list describe_followers(LogState* log):
    cdef unordered_map[int32_t, Follower] copy
    cdef unordered_map[int32_t, Follower].iterator at
    cdef const Follower* follower
    with nogil:
        pthread_mutex_lock(&log.mutex)
        copy = private_of(log).followers
        pthread_mutex_unlock(&log.mutex)
    found = []
    at = copy.begin()
    while at != copy.end():
        follower = &deref(at).second
        found.append((deref(at).first, follower.log_end_offset, follower.log_start_offset,
                      follower.caught_up_ms, follower.broker_epoch, follower.in_sync))
        inc(at)
    found.sort()
    return found


cdef list describe_epochs(LogState* log):
    cdef vector[EpochEntry] copy
    cdef size_t i
    with nogil:
        pthread_mutex_lock(&log.mutex)
        copy = private_of(log).history.epochs
        pthread_mutex_unlock(&log.mutex)
    return [(copy[i].epoch, copy[i].start_offset) for i in range(copy.size())]


cdef list describe_aborted(LogState* log, int64_t start, int64_t end):
    cdef vector[CompletedTransaction] copy
    cdef size_t i
    with nogil:
        pthread_mutex_lock(&log.mutex)
        copy = private_of(log).history.aborted
        pthread_mutex_unlock(&log.mutex)
    return [(copy[i].producer_id, copy[i].first_offset, copy[i].last_offset, copy[i].last_stable_offset)
            for i in range(copy.size()) if start <= copy[i].last_offset < end]


cdef list describe_producers(LogState* log):
    cdef unordered_map[int64_t, ProducerEntry, SeededHash] copy
    cdef unordered_map[int64_t, ProducerEntry, SeededHash].iterator at
    with nogil:
        pthread_mutex_lock(&log.mutex)
        copy = private_of(log).history.producers.producers
        pthread_mutex_unlock(&log.mutex)
    found = []
    at = copy.begin()
    while at != copy.end():
        found.append(producer_dict(&deref(at).second))
        inc(at)
    return found
