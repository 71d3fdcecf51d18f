"""Types of the protocol codec (see codec.pyx) for kernels that build or read messages themselves."""

from cpython.object cimport PyObject

from kafkapy._speedups.wire cimport ByteBuffer, Cursor


cdef struct Op:
    # One field of one struct in one version, ready to be run.
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


cdef struct Reader:
    Cursor cursor
    const unsigned char* start
    PyObject* source


cdef class Layout:
    cdef readonly object cls
    cdef readonly tuple names
    cdef tuple defaults
    cdef Py_ssize_t count
    cdef Py_ssize_t* slots
    cdef int* default_kinds


cdef class Plan:
    cdef readonly object cls
    cdef readonly int version
    cdef readonly bint flexible
    cdef readonly Py_ssize_t min_size
    cdef list kept
    cdef Op* ops
    cdef Py_ssize_t positional
    cdef Py_ssize_t tagged
    cdef Py_ssize_t absent
    cdef int fill(self, Op* op, tuple field, bint in_struct) except -1


cdef class StructBase:
    cdef public object _unknown_tags


cdef object decode_struct(Plan plan, Reader* r)
cdef int encode_struct(Plan plan, object instance, ByteBuffer* out) except -1
