"""Frees large structures bit by bit (see discard.pxd)."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t
from posix.unistd cimport usleep

from kafkapy._speedups.base.posix cimport monotonic_ns
from kafkapy._speedups.protocol.struct_base cimport Layout, StructBase, get_slot, set_slot


cdef extern from "Python.h":
    Py_ssize_t Py_REFCNT(object thing)


cdef enum:
    STEP = 64                 # elements between two looks at the clock
    TURN_NS = 1000000         # the time that the call keeps the GIL
    PAUSE_US = 20             # long enough for a thread that waits for the GIL to get it


def discard(list things not None):
    """Empties the list, and frees every content without another reference: messages, lists, tuples, dicts and sets,
    however large. For worker threads: the call releases the GIL now and then. Only the list itself may keep the
    contents alive."""
    cdef int64_t until = monotonic_ns() + TURN_NS
    cdef Py_ssize_t i
    cdef Py_ssize_t steps = 0
    cdef Py_ssize_t count
    cdef Layout layout
    cdef PyObject* value
    while things:
        steps += 1
        if steps % STEP == 0 and monotonic_ns() > until:
            with nogil:
                usleep(PAUSE_US)
            until = monotonic_ns() + TURN_NS
        thing = things.pop()
        if Py_REFCNT(thing) > 1:
            pass
        elif isinstance(thing, StructBase):
            layout = <Layout?>type(thing)._layout
            for i in range(layout.count):
                value = get_slot(thing, layout.slots[i])
                if value != NULL and isinstance(<object>value, (list, StructBase)):
                    things.append(<object>value)
                    set_slot(thing, layout.slots[i], None)
        elif type(thing) is list:
            count = min(<Py_ssize_t>len(thing), STEP)
            for i in range(count):
                things.append((<list>thing).pop())
            if thing:
                # The end goes first: the top of the stack is freed next.
                things.insert(len(things) - count, thing)
        elif type(thing) is tuple:
            if len(<tuple>thing) <= STEP:
                things.extend(<tuple>thing)
        elif isinstance(thing, dict):
            count = min(<Py_ssize_t>len(thing), STEP)
            taken = [thing.popitem() for i in range(count)]
            if thing:
                things.append(thing)
            for key, held in taken:
                things.append(held)
            del taken
        elif type(thing) is set:
            count = min(<Py_ssize_t>len(thing), STEP)
            for i in range(count):
                thing.pop()
            if thing:
                things.append(thing)
        thing = None
