"""Share sessions (see session.pxd).

group.share.max.share.sessions bounds the sessions, and kafkapy.fetch.session.max.partitions the partitions of all of
them together. A full cache evicts nobody: a member without a session gets SHARE_SESSION_LIMIT_REACHED, as in Kafka.
"""

from cython.operator cimport dereference, preincrement
from libc.stdint cimport int32_t, int64_t, uint64_t
from libcpp.string cimport string
from libcpp.unordered_map cimport unordered_map
from libcpp.unordered_set cimport unordered_set
from libcpp.vector cimport vector

from kafkapy._speedups.base.posix cimport atomic_add, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_unlock
from kafkapy._speedups.base.seeded_hash cimport SeededHash
from kafkapy._speedups.requests.fetch_session cimport session_new, session_unref


cdef cppclass SessionKeys:
    # The sessions that a connection has opened; ConnectionEnd.kept.
    unordered_set[string, SeededHash] keys


cdef void session_key(const string& group, const string& member, string* key) noexcept nogil:
    cdef int32_t size = <int32_t>group.size()
    key.assign(<const char*>&size, sizeof(size))
    key.append(group)
    key.append(member)


cdef bint share_session_lives(ShareSessionCache* cache, const string& group, const string& member) noexcept nogil:
    cdef string key
    session_key(group, member, &key)
    return cache.sessions.count(key) > 0


cdef void session_cache_init(ShareSessionCache* cache, int64_t max_sessions, int64_t max_partitions) noexcept nogil:
    pthread_mutex_init(&cache.mutex, NULL)
    cache.max_sessions = max_sessions
    cache.max_partitions = max_partitions
    cache.partitions = 0
    cache.evictions = 0


cdef void share_session_unref(ShareSession* session) noexcept nogil:
    if session == NULL or atomic_add(&session.references, -1) != 0:
        return
    session_unref(session.partitions)
    del session


cdef ShareSession* share_session_find(ShareSessionCache* cache, const string& group, const string& member,
                                      uint64_t owner) noexcept nogil:
    cdef ShareSession* session = NULL
    cdef string key
    cdef unordered_map[string, ShareSessionPointer, SeededHash].iterator found
    session_key(group, member, &key)
    pthread_mutex_lock(&cache.mutex)
    found = cache.sessions.find(key)
    if found != cache.sessions.end() and dereference(found).second.owner == owner:
        session = dereference(found).second
        atomic_add(&session.references, 1)
    pthread_mutex_unlock(&cache.mutex)
    return session


cdef bint take_out(ShareSessionCache* cache, ShareSession* session, const string& key) noexcept nogil:
    """Takes a session out, under the cache's mutex; the caller gets the cache's reference. True: its group has no
    other."""
    cdef unordered_map[string, int64_t, SeededHash].iterator members = cache.members.find(session.group)
    cache.sessions.erase(key)
    cache.partitions -= session.counted
    session.counted = -1
    if members == cache.members.end():
        return True
    if dereference(members).second > 1:
        cache.members[session.group] = dereference(members).second - 1
        return False
    cache.members.erase(members)
    return True


cdef ShareSession* share_session_open(ShareSessionCache* cache, const string& group, const string& member,
                                      uint64_t owner, ConnectionEnd* connection, int64_t now_ms) noexcept nogil:
    cdef ShareSession* earlier = NULL
    cdef ShareSession* session = NULL
    cdef SessionKeys* kept
    cdef string key
    cdef unordered_map[string, ShareSessionPointer, SeededHash].iterator found
    cdef bint taken = False
    session_key(group, member, &key)
    pthread_mutex_lock(&cache.mutex)
    found = cache.sessions.find(key)
    if found != cache.sessions.end():
        earlier = dereference(found).second
        if earlier.owner != owner:
            earlier = NULL
            taken = True
        else:
            take_out(cache, earlier, key)
    if not taken and <int64_t>cache.sessions.size() < cache.max_sessions and not (connection != NULL
                                                                                 and connection.over):
        session = new ShareSession()
        session.references = 2
        session.group = group
        session.member = member
        session.owner = owner
        session.partitions = session_new(False, True, owner, now_ms)
        session.connection = connection
        session.counted = 0
        session.last_used_ms = now_ms
        cache.sessions[key] = session
        cache.members[group] = cache.members[group] + 1
        if connection != NULL:
            if connection.kept == NULL:
                connection.kept = new SessionKeys()
            kept = <SessionKeys*>connection.kept
            kept.keys.insert(key)
    pthread_mutex_unlock(&cache.mutex)
    share_session_unref(earlier)
    return session


cdef bint share_session_remove(ShareSessionCache* cache, ShareSession* session, bint* emptied) noexcept nogil:
    cdef bint removed
    cdef string key
    session_key(session.group, session.member, &key)
    emptied[0] = False
    pthread_mutex_lock(&cache.mutex)
    removed = session.counted >= 0
    if removed:
        emptied[0] = take_out(cache, session, key)
        if session.connection != NULL and session.connection.kept != NULL:
            (<SessionKeys*>session.connection.kept).keys.erase(key)
    pthread_mutex_unlock(&cache.mutex)
    if removed:
        share_session_unref(session)
    return removed


cdef bint share_session_touch(ShareSessionCache* cache, ShareSession* session, int64_t size,
                              int64_t now_ms) noexcept nogil:
    cdef bint fits = True
    pthread_mutex_lock(&cache.mutex)
    if session.counted >= 0:
        fits = size <= session.counted or cache.partitions - session.counted + size <= cache.max_partitions
        if fits:
            cache.partitions += size - session.counted
            session.counted = size
            session.last_used_ms = now_ms
    pthread_mutex_unlock(&cache.mutex)
    return fits


cdef void share_sessions_take(ShareSessionCache* cache, ConnectionEnd* connection, int64_t unused_ms, int64_t now_ms,
                              vector[ShareSessionPointer]* taken, vector[string]* emptied) noexcept nogil:
    cdef unordered_map[string, ShareSessionPointer, SeededHash].iterator found
    cdef unordered_set[string, SeededHash].iterator named
    cdef vector[string] keys
    cdef SessionKeys* kept
    cdef ShareSession* session
    cdef size_t i
    pthread_mutex_lock(&cache.mutex)
    if connection != NULL:
        kept = <SessionKeys*>connection.kept
        if kept != NULL:
            named = kept.keys.begin()
            while named != kept.keys.end():
                keys.push_back(dereference(named))
                preincrement(named)
    else:
        found = cache.sessions.begin()
        while found != cache.sessions.end():
            if now_ms - dereference(found).second.last_used_ms > unused_ms:
                keys.push_back(dereference(found).first)
            preincrement(found)
    for i in range(keys.size()):
        found = cache.sessions.find(keys[i])
        if found == cache.sessions.end():
            continue
        session = dereference(found).second
        if connection != NULL and session.connection != connection:
            continue                # the member has gone on with another connection
        if take_out(cache, session, keys[i]):
            emptied.push_back(session.group)
        if connection == NULL and session.connection != NULL and session.connection.kept != NULL:
            (<SessionKeys*>session.connection.kept).keys.erase(keys[i])
        cache.evictions += 1
        taken.push_back(session)
    pthread_mutex_unlock(&cache.mutex)


cdef void share_connection_forget(ConnectionEnd* connection) noexcept nogil:
    cdef SessionKeys* kept = <SessionKeys*>connection.kept
    connection.kept = NULL
    del kept
