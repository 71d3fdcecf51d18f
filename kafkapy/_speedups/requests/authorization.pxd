"""Authorization in the data plane: a look-up in the connection's cache, or a question for Python.

Python (the authorizer plugin) decides. Each connection has a cache, which only its Processor touches, so the cache has
no lock.
"""

from libc.stdint cimport int64_t, uint8_t
from libcpp.string cimport string
from libcpp.unordered_set cimport unordered_set
from libcpp.vector cimport vector

from kafkapy._speedups.base.posix cimport atomic_load
from kafkapy._speedups.base.seeded_hash cimport SeededHash
from kafkapy._speedups.requests.data_plane cimport AuthorizationCache, DataPlaneState

cdef enum AuthorizedResource:
    RESOURCE_TOPIC = 0
    RESOURCE_TRANSACTIONAL_ID = 1
    RESOURCE_CLUSTER = 2
    RESOURCE_GROUP = 3

cdef enum:
    EVERYTHING_ALLOWED = -1         # in place of the authorizer's epoch
    MAX_CACHED_DECISIONS = 10000    # per connection, between two requests
    MAX_CACHED_BYTES = 1048576      # of their keys
    MAX_TOPIC_NAME = 249

cdef enum Decision:
    DECISION_DENIED = 0
    DECISION_ALLOWED = 1
    DECISION_UNKNOWN = 2            # the question is in `questions`, once

# After a request: drops a cache that hostile names have made too large. Never between a question and its answer, or a
# request with more questions than the cache may hold would ask for ever.
cdef inline void authorization_trim(AuthorizationCache* cache) noexcept nogil:
    if cache != NULL and (cache.decisions.size() > MAX_CACHED_DECISIONS or cache.key_bytes > MAX_CACHED_BYTES):
        authorization_clear(cache)


cdef void authorization_clear(AuthorizationCache* cache) noexcept nogil
# Stores a decision; drops the decisions of another epoch.
cdef void authorization_remember(AuthorizationCache* cache, int64_t epoch, const string& key,
                                 bint allowed) noexcept nogil


cdef inline Decision authorization_check(DataPlaneState* plane, AuthorizationCache* cache, int operation, int resource,
                                         const void* name, size_t size, unordered_set[string, SeededHash]* asked,
                                         vector[string]* questions) noexcept nogil:
    cdef int64_t epoch = atomic_load(&plane.authorizer_epoch)
    if epoch == EVERYTHING_ALLOWED:
        return DECISION_ALLOWED
    return authorization_look_up(epoch, cache, operation, resource, name, size, asked, questions)


cdef Decision authorization_look_up(int64_t epoch, AuthorizationCache* cache, int operation, int resource,
                                    const void* name, size_t size, unordered_set[string, SeededHash]* asked,
                                    vector[string]* questions) noexcept nogil
