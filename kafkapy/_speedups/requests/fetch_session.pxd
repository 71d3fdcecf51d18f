"""Incremental fetch sessions (KIP-227): the cache and one session. All Processors share them; one user at a time has a
session.

A thread never holds two of the locks: it takes the cache's mutex (maps, last use, sizes) and a session's mutex (epoch,
partitions) one after the other. A session lives as long as the cache or a request refers to it.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libcpp.map cimport map
from libcpp.pair cimport pair
from libcpp.string cimport string
from libcpp.unordered_map cimport unordered_map
from libcpp.vector cimport vector

from kafkapy._speedups.base.posix cimport atomic_add, pthread_mutex_t
from kafkapy._speedups.base.seeded_hash cimport SeededHash

cdef enum:
    INVALID_SESSION_ID = 0
    INITIAL_EPOCH = 0               # create a session
    FINAL_EPOCH = -1                # no session, close the one named

cdef cppclass FetchTopic:
    """A topic as a request named it. Shared, immutable."""
    int64_t references              # atomic
    string name                     # empty for a topic id that this broker does not know
    uint8_t topic_id[16]            # zero in requests by name
    bint by_id

cdef struct FetchPartitionRequest:
    int32_t partition
    int32_t current_leader_epoch    # -1: not checked
    int64_t fetch_offset
    int32_t last_fetched_epoch      # -1: not checked
    int64_t log_start_offset        # the follower's own; -1 from consumers
    int32_t max_bytes

cdef cppclass CachedPartition:
    """One partition of a session: its last request and its last answer. Member of a doubly linked list in the order of
    service."""
    FetchTopic* topic
    FetchPartitionRequest request
    int64_t high_watermark          # of the last answer; -1: none, or after an error
    int64_t local_log_start_offset
    CachedPartition* previous
    CachedPartition* next

ctypedef CachedPartition* CachedPointer

cdef cppclass FetchSession:
    int64_t references              # atomic
    pthread_mutex_t mutex
    int32_t id
    bint privileged                 # a follower's
    uint64_t owner                  # of the connection that made it (AuthorizationCache)
    bint uses_topic_ids
    int64_t created_ms
    # under the session's mutex
    int32_t epoch                   # the next request's
    CachedPartition* first
    CachedPartition* last
    unordered_map[string, CachedPointer, SeededHash] by_key
    # under the cache's mutex
    int64_t last_used_ms
    int64_t cached_size             # -1: not in the cache

cdef cppclass FetchSessionCacheState:
    pthread_mutex_t mutex
    size_t slots
    int64_t max_partitions          # over all sessions
    int64_t eviction_ms             # any other session may evict one that is unused, or alive, for longer
    unordered_map[int32_t, FetchSession*] sessions
    map[pair[int64_t, int32_t], FetchSession*] last_used            # (last used, id)
    map[pair[int64_t, int32_t], FetchSession*] evictable_by_all     # (privileged << 32 | size, id)
    map[pair[int64_t, int32_t], FetchSession*] evictable_by_privileged
    int64_t partitions
    int64_t evictions
    uint64_t random

cdef FetchTopic* fetch_topic_new(const uint8_t* name, size_t size, const uint8_t* topic_id) noexcept nogil
# The same, in the memory of `last` when it has the only reference to that topic; `last` keeps a reference.
cdef FetchTopic* fetch_topic_again(FetchTopic** last, const uint8_t* name, size_t size,
                                   const uint8_t* topic_id) noexcept nogil

cdef inline FetchTopic* fetch_topic_ref(FetchTopic* topic) noexcept nogil:
    atomic_add(&topic.references, 1)
    return topic


cdef inline void fetch_topic_unref(FetchTopic* topic) noexcept nogil:
    if topic != NULL and atomic_add(&topic.references, -1) == 0:
        fetch_topic_free(topic)


# Frees a topic after its last reference.
cdef void fetch_topic_free(FetchTopic* topic) noexcept nogil
cdef bint fetch_topic_same(FetchTopic* a, FetchTopic* b) noexcept nogil

cdef int32_t next_session_epoch(int32_t epoch) noexcept nogil
# The session, referenced for the caller, or NULL. Only its owner finds or removes it: ids can be guessed.
cdef FetchSession* session_find(FetchSessionCacheState* cache, int32_t session_id, uint64_t owner) noexcept nogil
cdef void session_unref(FetchSession* session) noexcept nogil
# Removes a session from the cache, if it is there.
cdef void session_remove(FetchSessionCacheState* cache, int32_t session_id, uint64_t owner) noexcept nogil
# A new session outside the cache, for session_put and then session_admit.
cdef FetchSession* session_new(bint privileged, bint uses_topic_ids, uint64_t owner, int64_t now_ms) noexcept nogil
# Puts it into the cache, evicting others where the rules allow; its id, or INVALID_SESSION_ID. Releases the caller's
# reference.
cdef int32_t session_admit(FetchSessionCacheState* cache, FetchSession* session, int64_t now_ms) noexcept nogil
# Notes a use of the session and its present number of partitions. False when the cache has no room for the added
# partitions: the session is then removed.
cdef bint session_touch(FetchSessionCacheState* cache, FetchSession* session, int64_t size,
                        int64_t now_ms) noexcept nogil
# Under the session's mutex (or before it is admitted): adds a partition at the end or updates its request; references
# the topic.
cdef CachedPartition* session_put(FetchSession* session, FetchTopic* topic,
                                  const FetchPartitionRequest* request) noexcept nogil
cdef void session_forget(FetchSession* session, FetchTopic* topic, int32_t partition) noexcept nogil
cdef void session_move_to_end(FetchSession* session, CachedPartition* partition) noexcept nogil

cdef class FetchSessionCache:
    cdef FetchSessionCacheState* state
