"""Instances of declared structs: slotted objects with access to fields by offset.

A struct class has one `__slots__` entry for each field. A slot is a pointer at a fixed offset in the instance, which
the class's member descriptor gives, so compiled code reads or writes a field with one load or store and no attribute
lookup. Python code sees plain attributes.

Everything here runs with the GIL.
"""

from cpython.dict cimport PyDict_GetItem
from cpython.object cimport Py_EQ, PyObject, PyObject_RichCompareBool
from libc.stdlib cimport calloc, free


cdef extern from *:
    """
    #include "structmember.h"
    /* Where `__slots__` put an attribute: the member descriptor says it. */
    static Py_ssize_t kp_slot_offset(PyObject* descriptor) {
        if (!Py_IS_TYPE(descriptor, &PyMemberDescr_Type)) return -1;
        return ((PyMemberDescrObject*)descriptor)->d_member->offset;
    }
    """
    Py_ssize_t kp_slot_offset(PyObject* descriptor)


cdef enum:
    SHOWN_BYTES = 64          # repr does not print longer binary values


cdef Py_ssize_t slot_of(object cls, str name) except -1:
    cdef object descriptor = cls.__dict__[name]
    cdef Py_ssize_t slot = kp_slot_offset(<PyObject*>descriptor)
    if slot <= 0:
        raise TypeError(f"{cls.__qualname__}.{name} is not a slot")
    return slot


cdef int default_kind_of(object default) except -1:
    if isinstance(default, list):
        return NEW_LIST
    if isinstance(default, type):
        return NEW_STRUCT
    return VALUE


cdef class Layout:
    """Names, slots and defaults of one struct class, in declaration order. The class owns it; immutable.

    A default is an immutable object, `[]` (a new list for every instance) or a struct class (a new instance for every
    instance).
    """

    def __cinit__(self, object cls, tuple names, tuple defaults):
        cdef Py_ssize_t i
        if len(names) != len(defaults):
            raise ValueError("as many defaults as names")
        self.cls = cls
        self.names = names
        self.defaults = defaults
        self.count = len(names)
        self.slots = <Py_ssize_t*>calloc(self.count + 1, sizeof(Py_ssize_t))
        self.default_kinds = <int*>calloc(self.count + 1, sizeof(int))
        if self.slots == NULL or self.default_kinds == NULL:
            raise MemoryError
        for i in range(self.count):
            self.slots[i] = slot_of(cls, names[i])
            self.default_kinds[i] = default_kind_of(defaults[i])

    def __dealloc__(self):
        free(self.slots)
        free(self.default_kinds)


cdef class StructBase:
    """Base of every declared struct: keyword construction, equality, repr, copying. Fields are slots of the subclass.

    `_unknown_tags` holds tagged fields that the declaration does not know, as {tag: raw bytes}, or None. Instances
    belong to one thread at a time.
    """

    def __init__(self, **fields):
        cdef Layout layout = <Layout?>type(self)._layout
        cdef Py_ssize_t i
        cdef Py_ssize_t given = 0
        cdef Py_ssize_t wanted = len(fields)
        cdef PyObject* value
        for i in range(layout.count):
            value = PyDict_GetItem(fields, <object>layout.names[i]) if wanted else NULL
            if value != NULL:
                given += 1
                set_slot(self, layout.slots[i], <object>value)
            else:
                set_slot(self, layout.slots[i], fresh_default(layout.default_kinds[i], <PyObject*>layout.defaults[i]))
        if given != wanted:
            unknown = sorted(set(fields) - set(layout.names))
            raise TypeError(f"{type(self).__qualname__} has no field {unknown[0]!r}")

    def __eq__(self, other):
        cdef Layout layout
        cdef Py_ssize_t i
        cdef PyObject* mine
        cdef PyObject* theirs
        if type(self) is not type(other):
            return NotImplemented
        layout = <Layout?>type(self)._layout
        for i in range(layout.count):
            mine = get_slot(self, layout.slots[i])
            theirs = get_slot(other, layout.slots[i])
            if mine == theirs:
                continue
            if mine == NULL or theirs == NULL or not PyObject_RichCompareBool(<object>mine, <object>theirs, Py_EQ):
                return False
        return (self._unknown_tags or None) == ((<StructBase>other)._unknown_tags or None)

    __hash__ = None

    def __repr__(self):
        cdef Layout layout = <Layout?>type(self)._layout
        cdef Py_ssize_t i
        cdef PyObject* value
        shown = []
        for i in range(layout.count):
            value = get_slot(self, layout.slots[i])
            if value != NULL:
                shown.append(f"{layout.names[i]}={shown_value(<object>value)}")
        if self._unknown_tags:
            shown.append(f"_unknown_tags={self._unknown_tags!r}")
        return f"{type(self).__qualname__}({', '.join(shown)})"

    def __reduce__(self):
        cdef Layout layout = <Layout?>type(self)._layout
        return rebuild, (type(self), {name: getattr(self, name) for name in layout.names}, self._unknown_tags)


def rebuild(object cls, dict fields, object unknown_tags):
    """Rebuilds an instance for unpickling and copy.copy."""
    instance = cls(**fields)
    instance._unknown_tags = unknown_tags
    return instance


cdef str shown_value(object value):
    if isinstance(value, memoryview):
        return f"<{value.nbytes} bytes>"
    if isinstance(value, (bytes, bytearray)) and len(value) > SHOWN_BYTES:
        return f"<{len(value)} bytes>"
    return repr(value)
