"""The data plane's side of authorization: look a decision up in the connection's cache, or note the question for Python.

The decisions are Python's (the authorizer plugin); the cache is the connection's own and is touched by its Processor only, so it has no lock.
"""

from libc.stdint cimport int64_t, uint8_t
from libcpp.string cimport string
from libcpp.unordered_set cimport unordered_set
from libcpp.vector cimport vector

from kafkapy._speedups.data_plane cimport AuthorizationCache, DataPlaneState

cdef enum AuthorizedResource:
    RESOURCE_TOPIC = 0
    RESOURCE_TRANSACTIONAL_ID = 1
    RESOURCE_CLUSTER = 2

cdef enum Decision:
    DECISION_DENIED = 0
    DECISION_ALLOWED = 1
    DECISION_UNKNOWN = 2            # the question was added to `questions`, once

# At the start of each request: drops what another epoch decided, and a cache that hostile names have made too large. Never between a question
# and its answer, or a request with more questions than the cache may hold would ask for ever.
cdef void authorization_begin(DataPlaneState* plane, AuthorizationCache* cache) noexcept nogil
cdef Decision authorization_check(DataPlaneState* plane, AuthorizationCache* cache, int operation, int resource, const void* name, size_t size,
                                  unordered_set[string]* asked, vector[string]* questions) noexcept nogil
