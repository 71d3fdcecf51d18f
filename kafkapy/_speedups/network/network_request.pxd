"""A request for Python: to answer it, or to decide a question of the data plane."""

from libc.stdint cimport int64_t
from libcpp.string cimport string

from kafkapy._speedups.network.pending_request cimport PendingRequest

cdef class NetworkRequest:
    cdef PendingRequest* pending        # referenced
    cdef object channel                 # RequestChannel: keeps the request's memory alive
    cdef bint answered
    cdef int asked                      # AskKind, -1: no question
    cdef int64_t authorizer_epoch       # at the arrival of the request: the age of a decision
    cdef size_t decided                 # questions of ASK_AUTHORIZE that have a decision

    cdef str _get_text(self, string* field)
    cdef int _set_text(self, string* field, str value) except -1
    cdef int _log(self, str text) except -1
    cdef int _claim(self, int asked) except -1
    cdef int _claim_produce(self) except -1
    cdef int _claim_stage(self) except -1
    cdef int _end_stage(self, int kind, reply) except -1
    cdef int _send(self, payload, bint with_header, int kind) except -1
    cdef int _finish(self, int kind) except -1

# `channel` is the RequestChannel; takes over the caller's reference.
cdef NetworkRequest network_request_make(object channel, PendingRequest* pending)
