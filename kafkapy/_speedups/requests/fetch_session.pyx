"""The fetch session cache and its rules of eviction (KIP-227; Kafka's FetchSessionCacheShard).

Eviction, when max.incremental.fetch.session.cache.slots are taken and another session wants one:

    1. the session unused for longest, if that is longer than the eviction time (120 s);
    2. else the least valuable evictable session, if it is not more valuable than the new one. Value: followers before
       consumers, then more partitions before fewer. A session older than the eviction time is evictable, and a
       consumer's session of any age by a follower's;
    3. else the new one gets no session and its client goes on with full fetches.

Beyond Kafka, kafkapy.fetch.session.max.partitions bounds the partitions of all sessions together, because slots alone
bound no memory: at the bound, sessions unused for longer than the eviction time make room, else the new session gets no
slot. A session to which a client adds too many partitions is closed. `expire` drops sessions whose connection must have
been closed as idle. Unknown topics, and topics that the client may not read, get into no session
(requests/fetch/reply.pyx).
"""

import os

from cython.operator cimport dereference
from libc.string cimport memcmp, memcpy, memset

from kafkapy._speedups.base.posix cimport (
    atomic_add,
    atomic_load,
    monotonic_ns,
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)

cdef enum:
    TOPIC_ID_SIZE = 16
    MAX_INT32 = 0x7FFFFFFF
    NS_PER_MS = 1000000

cdef int64_t ANY_TIME = -(<int64_t>1 << 62)

ctypedef pair[int64_t, int32_t] SessionKey


# ---- topics ----------------------------------------------------------------------------------------------------------

cdef FetchTopic* fetch_topic_new(const uint8_t* name, size_t size, const uint8_t* topic_id) noexcept nogil:
    """Makes a topic; copies the name (may be empty) and the id (NULL in requests by name)."""
    cdef FetchTopic* topic = new FetchTopic()
    topic.references = 1
    fill_topic(topic, name, size, topic_id)
    return topic


cdef void fill_topic(FetchTopic* topic, const uint8_t* name, size_t size, const uint8_t* topic_id) noexcept nogil:
    topic.by_id = topic_id != NULL
    if size:
        topic.name.assign(<const char*>name, size)
    else:
        topic.name.clear()
    if topic_id != NULL:
        memcpy(topic.topic_id, topic_id, TOPIC_ID_SIZE)
    else:
        memset(topic.topic_id, 0, TOPIC_ID_SIZE)


cdef FetchTopic* fetch_topic_again(FetchTopic** last, const uint8_t* name, size_t size,
                                   const uint8_t* topic_id) noexcept nogil:
    if last[0] != NULL and atomic_load(&last[0].references) == 1:
        fill_topic(last[0], name, size, topic_id)
    else:
        fetch_topic_unref(last[0])
        last[0] = fetch_topic_new(name, size, topic_id)
    return fetch_topic_ref(last[0])


cdef void fetch_topic_free(FetchTopic* topic) noexcept nogil:
    del topic


cdef bint fetch_topic_same(FetchTopic* a, FetchTopic* b) noexcept nogil:
    if a == b:
        return True
    if a.by_id or b.by_id:
        return a.by_id == b.by_id and memcmp(a.topic_id, b.topic_id, TOPIC_ID_SIZE) == 0
    return a.name == b.name


cdef void partition_key(FetchTopic* topic, int32_t partition, string* key) noexcept nogil:
    if topic.by_id:
        key.assign(<const char*>topic.topic_id, TOPIC_ID_SIZE)
    else:
        key[0] = topic.name
    key.append(<const char*>&partition, sizeof(partition))


# ---- one session -----------------------------------------------------------------------------------------------------

cdef int32_t next_session_epoch(int32_t epoch) noexcept nogil:
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == MAX_INT32 else epoch + 1


cdef FetchSession* session_new(bint privileged, bint uses_topic_ids, uint64_t owner, int64_t now_ms) noexcept nogil:
    cdef FetchSession* session = new FetchSession()
    session.references = 1
    pthread_mutex_init(&session.mutex, NULL)
    session.id = INVALID_SESSION_ID
    session.privileged = privileged
    session.owner = owner
    session.uses_topic_ids = uses_topic_ids
    session.created_ms = now_ms
    session.epoch = next_session_epoch(INITIAL_EPOCH)
    session.first = NULL
    session.last = NULL
    session.last_used_ms = now_ms
    session.cached_size = -1
    return session


cdef void session_unref(FetchSession* session) noexcept nogil:
    cdef CachedPartition* partition
    cdef CachedPartition* following
    if session == NULL or atomic_add(&session.references, -1) != 0:
        return
    partition = session.first
    while partition != NULL:
        following = partition.next
        fetch_topic_unref(partition.topic)
        del partition
        partition = following
    pthread_mutex_destroy(&session.mutex)
    del session


cdef void list_append(FetchSession* session, CachedPartition* partition) noexcept nogil:
    partition.next = NULL
    partition.previous = session.last
    if session.last != NULL:
        session.last.next = partition
    else:
        session.first = partition
    session.last = partition


cdef void list_remove(FetchSession* session, CachedPartition* partition) noexcept nogil:
    if partition.previous != NULL:
        partition.previous.next = partition.next
    else:
        session.first = partition.next
    if partition.next != NULL:
        partition.next.previous = partition.previous
    else:
        session.last = partition.previous


cdef CachedPartition* session_put(FetchSession* session, FetchTopic* topic,
                                  const FetchPartitionRequest* request) noexcept nogil:
    cdef string key
    partition_key(topic, request.partition, &key)
    cdef unordered_map[string, CachedPointer, SeededHash].iterator found = session.by_key.find(key)
    cdef CachedPartition* partition
    if found != session.by_key.end():
        partition = dereference(found).second
        partition.request = request[0]
        return partition
    partition = new CachedPartition()
    partition.topic = fetch_topic_ref(topic)
    partition.request = request[0]
    partition.high_watermark = -1
    partition.local_log_start_offset = -1
    list_append(session, partition)
    session.by_key[key] = partition
    return partition


cdef void session_forget(FetchSession* session, FetchTopic* topic, int32_t partition_index) noexcept nogil:
    cdef string key
    partition_key(topic, partition_index, &key)
    cdef unordered_map[string, CachedPointer, SeededHash].iterator found = session.by_key.find(key)
    cdef CachedPartition* partition
    if found == session.by_key.end():
        return
    partition = dereference(found).second
    session.by_key.erase(found)
    list_remove(session, partition)
    fetch_topic_unref(partition.topic)
    del partition


cdef void session_move_to_end(FetchSession* session, CachedPartition* partition) noexcept nogil:
    if partition.next != NULL:
        list_remove(session, partition)
        list_append(session, partition)


# ---- the cache -------------------------------------------------------------------------------------------------------

cdef SessionKey used_key(FetchSession* session) noexcept nogil:
    return SessionKey(session.last_used_ms, session.id)


cdef SessionKey evictable_key(FetchSession* session) noexcept nogil:
    return SessionKey((<int64_t>1 << 32 if session.privileged else 0) + session.cached_size, session.id)


cdef void take_out(FetchSessionCacheState* cache, FetchSession* session) noexcept nogil:
    """Takes a session out of the cache, under the cache's mutex. The caller gets the cache's reference and drops it
    without the mutex: a session may hold 200,000 partitions, and every Processor needs the mutex."""
    cdef SessionKey key = evictable_key(session)
    cache.last_used.erase(used_key(session))
    cache.evictable_by_all.erase(key)
    cache.evictable_by_privileged.erase(key)
    cache.sessions.erase(session.id)
    cache.partitions -= session.cached_size
    session.cached_size = -1


cdef void use(FetchSessionCacheState* cache, FetchSession* session, int64_t size, int64_t now_ms) noexcept nogil:
    """Updates last use and size of a session of the cache (or of one about to enter it). Under the cache's mutex."""
    cdef bint old_enough = now_ms - session.created_ms > cache.eviction_ms
    cdef SessionKey key
    if session.cached_size != -1:
        key = evictable_key(session)
        cache.evictable_by_privileged.erase(key)
        cache.evictable_by_all.erase(key)
        cache.last_used.erase(used_key(session))
        cache.partitions -= session.cached_size
    session.last_used_ms = now_ms
    session.cached_size = size
    cache.last_used[used_key(session)] = session
    key = evictable_key(session)
    if old_enough or not session.privileged:
        cache.evictable_by_privileged[key] = session
    if old_enough:
        cache.evictable_by_all[key] = session
    cache.partitions += size


cdef FetchSession* evict_unused(FetchSessionCacheState* cache, int64_t unused_ms, int64_t now_ms) noexcept nogil:
    """Takes out the session unused for longest, if that is longer than `unused_ms`; else NULL."""
    cdef FetchSession* oldest
    if cache.last_used.empty():
        return NULL
    oldest = dereference(cache.last_used.begin()).second
    if now_ms - oldest.last_used_ms <= unused_ms:
        return NULL
    take_out(cache, oldest)
    return oldest


cdef FetchSession* evict_less_valuable(FetchSessionCacheState* cache, bint privileged, int64_t size) noexcept nogil:
    cdef FetchSession* least
    cdef map[SessionKey, FetchSession*]* evictable
    cdef SessionKey wanted
    evictable = &cache.evictable_by_privileged if privileged else &cache.evictable_by_all
    if evictable.empty():
        return NULL
    wanted = SessionKey((<int64_t>1 << 32 if privileged else 0) + size, 0)
    if wanted < dereference(evictable.begin()).first:
        return NULL
    least = dereference(evictable.begin()).second
    take_out(cache, least)
    return least


cdef void release(vector[FetchSession*]* sessions) noexcept nogil:
    """Drops the references, without the cache's mutex."""
    cdef size_t i
    for i in range(sessions.size()):
        session_unref(sessions[0][i])


cdef bint make_room(FetchSessionCacheState* cache, bint privileged, int64_t size, int64_t now_ms,
                    vector[FetchSession*]* evicted) noexcept nogil:
    """Whether a session of that size finds a slot and room for its partitions. Under the cache's mutex."""
    cdef FetchSession* session
    if cache.slots == 0 or size > cache.max_partitions:
        return False
    while cache.partitions + size > cache.max_partitions:
        session = evict_unused(cache, cache.eviction_ms, now_ms)
        if session == NULL:
            return False
        evicted.push_back(session)
    if cache.sessions.size() < cache.slots:
        return True
    session = evict_unused(cache, cache.eviction_ms, now_ms)
    if session == NULL:
        session = evict_less_valuable(cache, privileged, size)
    if session == NULL:
        return False
    evicted.push_back(session)
    return True


cdef FetchSession* session_find(FetchSessionCacheState* cache, int32_t session_id, uint64_t owner) noexcept nogil:
    cdef FetchSession* session = NULL
    pthread_mutex_lock(&cache.mutex)
    cdef unordered_map[int32_t, FetchSession*].iterator found = cache.sessions.find(session_id)
    if found != cache.sessions.end() and dereference(found).second.owner == owner:
        session = dereference(found).second
        atomic_add(&session.references, 1)
    pthread_mutex_unlock(&cache.mutex)
    return session


cdef void session_remove(FetchSessionCacheState* cache, int32_t session_id, uint64_t owner) noexcept nogil:
    cdef FetchSession* session = NULL
    pthread_mutex_lock(&cache.mutex)
    cdef unordered_map[int32_t, FetchSession*].iterator found = cache.sessions.find(session_id)
    if found != cache.sessions.end() and dereference(found).second.owner == owner:
        session = dereference(found).second
        take_out(cache, session)
    pthread_mutex_unlock(&cache.mutex)
    session_unref(session)


cdef int32_t new_session_id(FetchSessionCacheState* cache) noexcept nogil:
    """Returns a new id, under the cache's mutex. By xorshift64*: an id must only be unlikely to equal one lost in a
    restart."""
    cdef int32_t session_id
    while True:
        cache.random ^= cache.random >> 12
        cache.random ^= cache.random << 25
        cache.random ^= cache.random >> 27
        session_id = <int32_t>((cache.random * <uint64_t>0x2545F4914F6CDD1D) >> 33)
        if session_id != INVALID_SESSION_ID and not cache.sessions.count(session_id):
            return session_id


cdef int32_t session_admit(FetchSessionCacheState* cache, FetchSession* session, int64_t now_ms) noexcept nogil:
    cdef int64_t size = <int64_t>session.by_key.size()
    cdef int32_t session_id = INVALID_SESSION_ID
    cdef vector[FetchSession*] evicted
    pthread_mutex_lock(&cache.mutex)
    if make_room(cache, session.privileged, size, now_ms, &evicted):
        session_id = new_session_id(cache)
        session.id = session_id
        cache.sessions[session_id] = session
        atomic_add(&session.references, 1)
        use(cache, session, size, now_ms)
    cache.evictions += <int64_t>evicted.size()
    pthread_mutex_unlock(&cache.mutex)
    session_unref(session)
    release(&evicted)
    return session_id


cdef bint session_touch(FetchSessionCacheState* cache, FetchSession* session, int64_t size,
                        int64_t now_ms) noexcept nogil:
    """Updates the cache after a request. An evicted session serves the request that has it, and no other."""
    cdef bint fits = True
    pthread_mutex_lock(&cache.mutex)
    if session.cached_size != -1:
        fits = size <= session.cached_size or cache.partitions - session.cached_size + size <= cache.max_partitions
        if fits:
            use(cache, session, size, now_ms)
        else:
            take_out(cache, session)
    pthread_mutex_unlock(&cache.mutex)
    if not fits:
        session_unref(session)
    return fits


cdef void drop_sessions(FetchSessionCacheState* cache, int64_t unused_ms, int64_t now_ms) noexcept nogil:
    """Drops all sessions unused for longer than `unused_ms`, a few at a time, so that Processors get the mutex in
    between."""
    cdef FetchSession* session
    while True:
        pthread_mutex_lock(&cache.mutex)
        session = evict_unused(cache, unused_ms, now_ms)
        if session != NULL and unused_ms != ANY_TIME:
            cache.evictions += 1
        pthread_mutex_unlock(&cache.mutex)
        if session == NULL:
            return
        session_unref(session)


cdef class FetchSessionCache:
    """Owns the cache. The server creates it once; every Processor uses it."""

    def __cinit__(self, size_t slots=1000, int64_t eviction_ms=120_000, int64_t max_partitions=500_000):
        """slots: max.incremental.fetch.session.cache.slots, 0 for no sessions at all; eviction_ms: Kafka's fixed 120 s,
        in ms; max_partitions: kafkapy.fetch.session.max.partitions, over all sessions."""
        self.state = new FetchSessionCacheState()
        pthread_mutex_init(&self.state.mutex, NULL)
        self.state.slots = slots
        self.state.max_partitions = max_partitions
        self.state.eviction_ms = eviction_ms
        self.state.partitions = 0
        self.state.evictions = 0
        self.state.random = <uint64_t>int.from_bytes(os.urandom(8), "little") | 1

    def __dealloc__(self):
        if self.state == NULL:
            return
        drop_sessions(self.state, ANY_TIME, 0)
        pthread_mutex_destroy(&self.state.mutex)
        del self.state

    def __len__(self):
        """The number of sessions in the cache."""
        cdef size_t count
        with nogil:
            pthread_mutex_lock(&self.state.mutex)
            count = self.state.sessions.size()
            pthread_mutex_unlock(&self.state.mutex)
        return count

    def clear(self):
        """Closes all sessions; their clients start again with FETCH_SESSION_ID_NOT_FOUND."""
        with nogil:
            drop_sessions(self.state, ANY_TIME, 0)

    def expire(self, int64_t unused_ms):
        """Closes the sessions that no request has used for longer than `unused_ms`. Any thread; blocks no other thread
        for long."""
        with nogil:
            drop_sessions(self.state, unused_ms, monotonic_ns() // NS_PER_MS)

    def counters(self):
        """{"sessions", "partitions", "evictions"}: NumIncrementalFetchSessions, NumIncrementalFetchPartitionsCached,
        and evictions so far."""
        cdef size_t sessions
        cdef int64_t partitions
        cdef int64_t evictions
        # No Python object is made under the mutex: that could run the garbage collector, and a Processor would wait for
        # it.
        with nogil:
            pthread_mutex_lock(&self.state.mutex)
            sessions = self.state.sessions.size()
            partitions = self.state.partitions
            evictions = self.state.evictions
            pthread_mutex_unlock(&self.state.mutex)
        return {"sessions": sessions, "partitions": partitions, "evictions": evictions}
