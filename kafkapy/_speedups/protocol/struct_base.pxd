"""The memory layout of declared structs (see struct_base.pyx), for kernels that access their fields."""

from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF


cdef enum DefaultKind:
    VALUE = 0                 # an immutable object, shared
    NEW_LIST = 1
    NEW_STRUCT = 2


cdef class Layout:
    cdef readonly object cls
    cdef readonly tuple names
    cdef tuple defaults
    cdef Py_ssize_t count
    cdef Py_ssize_t* slots
    cdef int* default_kinds


cdef class StructBase:
    cdef public object _unknown_tags


cdef Py_ssize_t slot_of(object cls, str name) except -1
cdef int default_kind_of(object default) except -1


cdef inline void set_slot(object instance, Py_ssize_t slot, object value) noexcept:
    cdef PyObject** at = <PyObject**>(<char*><void*>instance + slot)
    cdef PyObject* old = at[0]
    Py_INCREF(value)
    at[0] = <PyObject*>value
    Py_XDECREF(old)


cdef inline PyObject* get_slot(object instance, Py_ssize_t slot) noexcept:
    """Returns a borrowed reference; NULL when the attribute was deleted."""
    return (<PyObject**>(<char*><void*>instance + slot))[0]


cdef inline object fresh_default(int kind, PyObject* default):
    """Returns the default of a field of a new instance."""
    if kind == VALUE:
        return <object>default
    if kind == NEW_LIST:
        return []
    return (<object>default)()
