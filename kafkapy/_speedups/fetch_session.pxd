"""Incremental fetch sessions (KIP-227): the cache and one session. Shared by all Processors; each session has one user at a time."""

cdef cppclass FetchSessionCacheState    # defined with the cache's fields by its owner

cdef class FetchSessionCache:
    cdef FetchSessionCacheState* state
