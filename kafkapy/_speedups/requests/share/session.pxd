"""Share sessions (KIP-932): the partitions that a member fetches here, and the epoch of its next request.

A session belongs to a group's member and to the connection that opened it. It ends with the epoch -1, with another
session of the same member, or with its connection. A thread takes the cache's mutex (maps, sizes) and a session's mutex
(FetchSession.mutex: epoch, partitions) one after the other, never both.
"""

from libc.stdint cimport int32_t, int64_t, uint64_t
from libcpp.string cimport string
from libcpp.unordered_map cimport unordered_map
from libcpp.vector cimport vector

from kafkapy._speedups.base.posix cimport pthread_mutex_t
from kafkapy._speedups.base.seeded_hash cimport SeededHash
from kafkapy._speedups.requests.data_plane cimport ConnectionEnd
from kafkapy._speedups.requests.fetch_session cimport FetchSession

cdef cppclass ShareSession:
    int64_t references              # atomic
    string group
    string member
    uint64_t owner                  # of the connection that made it (AuthorizationCache)
    FetchSession* partitions        # its epoch and its partitions
    # under the cache's mutex
    ConnectionEnd* connection       # compared only
    int64_t counted                 # partitions; -1: not in the cache
    int64_t last_used_ms

ctypedef ShareSession* ShareSessionPointer

cdef cppclass ShareSessionCache:
    pthread_mutex_t mutex
    int64_t max_sessions            # group.share.max.share.sessions
    int64_t max_partitions          # over all sessions
    unordered_map[string, ShareSessionPointer, SeededHash] sessions     # with a reference
    unordered_map[string, int64_t, SeededHash] members                  # group to its sessions
    int64_t partitions
    int64_t evictions

# Under the cache's mutex: whether the member has a session.
cdef bint share_session_lives(ShareSessionCache* cache, const string& group, const string& member) noexcept nogil
cdef void session_cache_init(ShareSessionCache* cache, int64_t max_sessions, int64_t max_partitions) noexcept nogil
cdef void share_session_unref(ShareSession* session) noexcept nogil
# The member's session with a reference for the caller, or NULL. Only its owner finds it.
cdef ShareSession* share_session_find(ShareSessionCache* cache, const string& group, const string& member,
                                      uint64_t owner) noexcept nogil
# A new session in place of an older one of the member. NULL: no session is free, or its connection is gone.
cdef ShareSession* share_session_open(ShareSessionCache* cache, const string& group, const string& member,
                                      uint64_t owner, ConnectionEnd* connection, int64_t now_ms) noexcept nogil
# Takes a session out of the cache. True: it was there. `emptied`: it was the last one of its group.
cdef bint share_session_remove(ShareSessionCache* cache, ShareSession* session, bint* emptied) noexcept nogil
# Notes a use and the present number of partitions. False: no room for so many; the caller removes the session.
cdef bint share_session_touch(ShareSessionCache* cache, ShareSession* session, int64_t size,
                              int64_t now_ms) noexcept nogil
# Takes out the sessions of a connection (NULL: those unused for longer than `unused_ms`), with references for the
# caller, and the groups that have none left.
cdef void share_sessions_take(ShareSessionCache* cache, ConnectionEnd* connection, int64_t unused_ms, int64_t now_ms,
                              vector[ShareSessionPointer]* taken, vector[string]* emptied) noexcept nogil
# Ends a connection's use of the cache.
cdef void share_connection_forget(ConnectionEnd* connection) noexcept nogil
