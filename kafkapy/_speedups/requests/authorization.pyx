"""Look-ups of authorization decisions (see authorization.pxd). Keys of an AuthorizationCache:

    topic               operation (1 byte) | name
    transactional id    operation (1 byte) | 0x01 | id
    cluster             operation (1 byte) | 0x00 "cluster"
    group               operation (1 byte) | 0x02 | id

A topic name that Kafka does not allow is denied without a question, so the cache holds only possible names.
"""

from cython.operator cimport dereference
from libc.string cimport memcmp
from libcpp.unordered_map cimport unordered_map


cdef void authorization_clear(AuthorizationCache* cache) noexcept nogil:
    cdef unordered_map[string, bint, SeededHash] nothing
    cache.decisions.swap(nothing)           # clear() would keep the buckets
    cache.key_bytes = 0
    cache.last.clear()


cdef void authorization_remember(AuthorizationCache* cache, int64_t epoch, const string& key,
                                 bint allowed) noexcept nogil:
    if cache.epoch != epoch:
        authorization_clear(cache)
        cache.epoch = epoch
    if not cache.decisions.count(key):
        cache.key_bytes += key.size()
    cache.decisions[key] = allowed
    cache.last.clear()


cdef bint is_topic_name(const uint8_t* name, size_t size) noexcept nogil:
    """Whether a topic name is valid, as Kafka's Topic.isValid: 1 to 249 ASCII letters, digits, '.', '_' and '-', but
    neither "." nor ".."."""
    cdef size_t i
    cdef uint8_t c
    if size == 0 or size > MAX_TOPIC_NAME or (size <= 2 and name[0] == c'.' and name[size - 1] == c'.'):
        return False
    for i in range(size):
        c = name[i]
        if not (c'a' <= c <= c'z' or c'A' <= c <= c'Z' or c'0' <= c <= c'9' or c == c'.' or c == c'_' or c == c'-'):
            return False
    return True


cdef Decision authorization_look_up(int64_t epoch, AuthorizationCache* cache, int operation, int resource,
                                    const void* name, size_t size, unordered_set[string, SeededHash]* asked,
                                    vector[string]* questions) noexcept nogil:
    cdef string key
    cdef unordered_map[string, bint, SeededHash].iterator found
    if cache == NULL:
        return DECISION_DENIED
    if cache.epoch != epoch:
        authorization_clear(cache)
        cache.epoch = epoch
    if resource == RESOURCE_TOPIC and cache.last.size() == size + 1 and <uint8_t>cache.last[0] == operation and (
            memcmp(cache.last.data() + 1, name, size) == 0):
        # Most producers write to one topic: neither a copy of its name nor a hash. An empty name is never the last one.
        return DECISION_ALLOWED if cache.last_allowed else DECISION_DENIED
    if resource == RESOURCE_TOPIC and not is_topic_name(<const uint8_t*>name, size):
        return DECISION_DENIED
    key.push_back(<char>operation)
    if resource == RESOURCE_CLUSTER:
        key.push_back(<char>0)
        key.append(b"cluster", 7)
    else:
        if resource == RESOURCE_TRANSACTIONAL_ID:
            key.push_back(<char>1)
        elif resource == RESOURCE_GROUP:
            key.push_back(<char>2)
        if size:
            key.append(<const char*>name, size)
    found = cache.decisions.find(key)
    if found != cache.decisions.end():
        if resource == RESOURCE_TOPIC:
            cache.last.swap(key)
            cache.last_allowed = dereference(found).second
        return DECISION_ALLOWED if dereference(found).second else DECISION_DENIED
    if asked.insert(key).second:
        questions.push_back(key)
    return DECISION_UNKNOWN
