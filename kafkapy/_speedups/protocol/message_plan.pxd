"""Plans of messages (see message_plan.pyx), for the codec that runs them."""

from cpython.object cimport PyObject


cdef enum:
    INT8_SIZE = 1
    INT16_SIZE = 2
    INT32_SIZE = 4
    INT64_SIZE = 8
    UUID_SIZE = 16

cdef enum Kind:
    BOOLEAN = 0
    INT8 = 1
    INT16 = 2
    UINT16 = 3
    INT32 = 4
    UINT32 = 5
    INT64 = 6
    FLOAT64 = 7
    UUID = 8
    STRING = 9
    BYTES = 10
    RECORDS = 11
    ARRAY = 12
    STRUCT = 13


cdef struct Op:
    # One field of one struct in one version, ready to run.
    int kind
    bint compact
    bint nullable
    bint ignorable
    int tag
    Py_ssize_t slot
    int default_kind
    PyObject* default_value
    PyObject* name
    PyObject* plan
    Op* element
    Py_ssize_t element_size


cdef class Plan:
    cdef readonly object cls
    cdef readonly int version
    cdef readonly bint flexible
    cdef readonly Py_ssize_t min_size
    cdef readonly Py_ssize_t memory
    cdef list kept
    cdef Op* ops
    cdef Py_ssize_t positional
    cdef Py_ssize_t tagged
    cdef Py_ssize_t absent
    cdef int fill(self, Op* op, tuple field, bint in_struct) except -1


cdef Plan plan_of(object cls, int version, object error)
