"""A partition log's state as Python objects (see log_describe.pxd); PartitionLog's methods of like names say what they hold."""

from cython.operator cimport dereference as deref, preincrement as inc
from libc.stdint cimport int32_t, int64_t
from libcpp.unordered_map cimport unordered_map
from libcpp.vector cimport vector

from kafkapy._speedups.log_recovery cimport EpochEntry
from kafkapy._speedups.partition_log cimport Follower, LogCounters, LogState
from kafkapy._speedups.posix cimport atomic_load, pthread_mutex_lock, pthread_mutex_unlock
from kafkapy._speedups.producer_state cimport CompletedTransaction, ProducerEntry, producer_dict
from kafkapy._speedups.segment cimport SegmentState, segment_ref, segment_unref


cdef void hold_segments(LogState* log, vector[SegmentState*]* out) noexcept nogil:
    cdef size_t i
    pthread_mutex_lock(&log.mutex)
    out[0] = log.segments
    for i in range(out.size()):
        segment_ref(out[0][i])
    pthread_mutex_unlock(&log.mutex)


cdef list describe_segments(LogState* log):
    cdef vector[SegmentState*] held
    cdef size_t i
    with nogil:
        hold_segments(log, &held)
    found = [(held[i].base_offset, held[i].size, held[i].max_timestamp, held[i].created_ms, held[i].sealed)
             for i in range(held.size())]
    for i in range(held.size()):
        segment_unref(held[i])
    return found


cdef dict describe_counters(LogCounters* c):
    return {
        "bytes_in": atomic_load(&c.bytes_in), "bytes_out": atomic_load(&c.bytes_out), "messages_in": atomic_load(&c.messages_in),
        "produce_requests": atomic_load(&c.produce_requests), "fetch_requests": atomic_load(&c.fetch_requests),
        "failed_produce_requests": atomic_load(&c.failed_produce_requests),
        "failed_fetch_requests": atomic_load(&c.failed_fetch_requests), "bytes_rejected": atomic_load(&c.bytes_rejected),
    }


cdef dict describe_followers(LogState* log):
    cdef unordered_map[int32_t, Follower] copy
    cdef unordered_map[int32_t, Follower].iterator at
    with nogil:
        pthread_mutex_lock(&log.mutex)
        copy = log.own.followers
        pthread_mutex_unlock(&log.mutex)
    found = {}
    at = copy.begin()
    while at != copy.end():
        found[deref(at).first] = (deref(at).second.log_end_offset, deref(at).second.caught_up_ms, deref(at).second.in_sync)
        inc(at)
    return found


cdef list describe_epochs(LogState* log):
    cdef vector[EpochEntry] copy
    cdef size_t i
    with nogil:
        pthread_mutex_lock(&log.mutex)
        copy = log.own.history.epochs
        pthread_mutex_unlock(&log.mutex)
    return [(copy[i].epoch, copy[i].start_offset) for i in range(copy.size())]


cdef list describe_aborted(LogState* log, int64_t start, int64_t end):
    cdef vector[CompletedTransaction] copy
    cdef size_t i
    with nogil:
        pthread_mutex_lock(&log.mutex)
        copy = log.own.history.aborted
        pthread_mutex_unlock(&log.mutex)
    return [(copy[i].producer_id, copy[i].first_offset, copy[i].last_offset, copy[i].last_stable_offset)
            for i in range(copy.size()) if start <= copy[i].last_offset < end]


cdef list describe_producers(LogState* log):
    cdef unordered_map[int64_t, ProducerEntry] copy
    cdef unordered_map[int64_t, ProducerEntry].iterator at
    with nogil:
        pthread_mutex_lock(&log.mutex)
        copy = log.own.history.producers.producers
        pthread_mutex_unlock(&log.mutex)
    found = []
    at = copy.begin()
    while at != copy.end():
        found.append(producer_dict(&deref(at).second))
        inc(at)
    return found
