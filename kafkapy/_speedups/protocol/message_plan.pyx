"""The plan of a message declaration in one version: a flat array of operations that the codec walks.

First come the fields on the wire, in order, then the tagged fields by tag, then the fields that the version lacks
(decoding sets them to their defaults, and encoding checks that they have their defaults). A field that holds a struct,
or an array of structs, points to the plan of that struct in the same version.
"""

from cpython.object cimport PyObject
from libc.stdlib cimport calloc, free

from kafkapy._speedups.protocol.struct_base cimport VALUE, StructBase, default_kind_of, slot_of


cdef enum:
    INSTANCE_MEMORY = 64      # with the collector's header, the class and the unknown tags
    SLOT_MEMORY = 24          # a pointer, and in about every second slot a number
    DEFAULT_MEMORY = 72       # an empty list


KINDS = {
    "boolean": BOOLEAN, "int8": INT8, "int16": INT16, "uint16": UINT16, "int32": INT32, "uint32": UINT32,
    "int64": INT64, "float64": FLOAT64, "uuid": UUID, "string": STRING, "bytes": BYTES, "records": RECORDS,
    "array": ARRAY, "struct": STRUCT,
}
"""Numbers of the field kinds, for building plans."""


cdef class Plan:
    """One struct in one message version, as an array of ops. `kafkapy.protocol.schema` builds it once; immutable after
    that.

    Each field is a tuple (kind, name, default, compact, nullable, ignorable, tag, inner): `inner` is the Plan of a
    struct, or for an array the same kind of tuple for its element; `tag` is -1 for a positional field. `min_size` is
    the size of the smallest encoding, `memory` the approximate memory of an instance with its slots and the lists that
    are its defaults. `tagged` comes in ascending order of tag.
    """

    def __cinit__(self, object cls, int version, bint flexible, list positional, list tagged, list absent,
                  Py_ssize_t min_size):
        cdef Py_ssize_t i = 0
        if not issubclass(cls, StructBase):
            raise TypeError("a plan is for a struct class")
        self.cls = cls
        self.version = version
        self.flexible = flexible
        self.min_size = min_size
        self.memory = INSTANCE_MEMORY
        self.kept = []
        self.positional = len(positional)
        self.tagged = len(tagged)
        self.absent = len(absent)
        self.ops = <Op*>calloc(self.positional + self.tagged + self.absent + 1, sizeof(Op))
        if self.ops == NULL:
            raise MemoryError
        for field in positional + tagged + absent:
            self.fill(&self.ops[i], field, True)
            self.memory += SLOT_MEMORY
            if i >= self.positional and self.ops[i].default_kind != VALUE:
                self.memory += DEFAULT_MEMORY
            i += 1

    cdef int fill(self, Op* op, tuple field, bint in_struct) except -1:
        kind, name, default, compact, nullable, ignorable, tag, inner = field
        self.kept.append(field)
        op.kind = kind
        op.compact = compact
        op.nullable = nullable
        op.ignorable = ignorable
        op.tag = tag
        op.name = <PyObject*>name
        if in_struct:
            op.slot = slot_of(self.cls, name)
        op.default_value = <PyObject*>default
        op.default_kind = default_kind_of(default)
        if kind == STRUCT and inner is not None:
            op.plan = <PyObject*><Plan?>inner
        elif kind == ARRAY and inner is not None:
            op.element = <Op*>calloc(1, sizeof(Op))
            if op.element == NULL:
                raise MemoryError
            self.fill(op.element, inner, False)
            op.element_size = smallest(op.element)
        return 0

    def __dealloc__(self):
        cdef Py_ssize_t i
        if self.ops != NULL:
            for i in range(self.positional + self.tagged + self.absent):
                free(self.ops[i].element)
            free(self.ops)


cdef Py_ssize_t smallest(Op* op) except -1:
    """Bytes of the smallest encoding of a value; at least 1, so that the bytes left always bound a count of
    elements."""
    cdef Py_ssize_t size
    if op.kind == STRUCT:
        size = (<Plan>op.plan).min_size
        return size if size > 0 else 1
    return min_size_of(op.kind, op.compact)


cpdef Py_ssize_t min_size_of(int kind, bint compact) except -1:
    """Bytes of the smallest encoding of a value other than a struct."""
    if kind in (BOOLEAN, INT8):
        return INT8_SIZE
    if kind in (INT16, UINT16):
        return INT16_SIZE
    if kind in (INT32, UINT32):
        return INT32_SIZE
    if kind in (INT64, FLOAT64):
        return INT64_SIZE
    if kind == UUID:
        return UUID_SIZE
    if compact:
        return 1
    return INT16_SIZE if kind == STRING else INT32_SIZE


cdef Plan plan_of(object cls, int version, object error):
    """Returns the plan of a message class; compiles it on first use."""
    cdef list plans = cls._plans
    if 0 <= version < len(plans):
        plan = plans[version]
        if plan is not None:
            return <Plan>plan
    return <Plan?>cls._compile_plan(version, error)
