"""A request as Python sees it: to be answered, or to be given the decision that the data plane asks for."""

from libc.stdint cimport int64_t
from libcpp.string cimport string

from kafkapy._speedups.network.pending_request cimport PendingRequest

cdef class NetworkRequest:
    cdef PendingRequest* pending        # referenced
    cdef object channel                 # RequestChannel: keeps everything alive that the request points to
    cdef bint answered
    cdef int asked                      # AskKind, -1: nothing is asked
    cdef int64_t authorizer_epoch       # when it came: a decision is as old as that

    cdef str _get_text(self, string* field)
    cdef int _set_text(self, string* field, str value) except -1
    cdef int _claim(self, int asked) except -1
    cdef int _claim_produce(self) except -1
    cdef int _send(self, payload, bint with_header) except -1
    cdef int _finish(self, int kind) except -1

# `channel` is the RequestChannel; takes over the caller's reference.
cdef NetworkRequest network_request_make(object channel, PendingRequest* pending)
