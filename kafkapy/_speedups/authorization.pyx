"""Authorization decisions as the data plane reads them (see authorization.pxd; the key's format is with AuthorizationCache).

    topic               operation (1 byte) | name
    transactional id    operation (1 byte) | 0x01 | id
    cluster             operation (1 byte) | 0x00 "cluster"
"""

from cython.operator cimport dereference
from libcpp.unordered_map cimport unordered_map


cdef Decision authorization_look_up(int64_t epoch, AuthorizationCache* cache, int operation, int resource, const void* name, size_t size,
                                    unordered_set[string]* asked, vector[string]* questions) noexcept nogil:
    cdef string key
    cdef unordered_map[string, bint].iterator found
    if cache == NULL:
        return DECISION_DENIED
    if cache.epoch != epoch:
        cache.decisions.clear()
        cache.epoch = epoch
    key.push_back(<char>operation)
    if resource == RESOURCE_CLUSTER:
        key.push_back(<char>0)
        key.append(b"cluster", 7)
    else:
        if resource == RESOURCE_TRANSACTIONAL_ID:
            key.push_back(<char>1)
        if size:
            key.append(<const char*>name, size)
    found = cache.decisions.find(key)
    if found != cache.decisions.end():
        return DECISION_ALLOWED if dereference(found).second else DECISION_DENIED
    if asked.insert(key).second:
        questions.push_back(key)
    return DECISION_UNKNOWN
