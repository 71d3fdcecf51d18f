"""Spans of records in batches (see record_spans.pxd). Callers hold the GIL."""

cimport cython
from cpython.ref cimport Py_INCREF, Py_XDECREF


@cython.final
cdef class RecordSpans:
    """The records of one call, in order."""

    def __dealloc__(self):
        cdef size_t i
        for i in range(self.spans.size()):
            Py_XDECREF(self.spans[i].batch)

    cdef int add(self, ProducerBatch batch, int32_t index) except -1:
        cdef Span* last
        cdef Span span
        if not self.spans.empty():
            last = &self.spans.back()
            if last.batch == <PyObject*>batch and last.first + last.count == index:
                last.count += 1
                self.count += 1
                return 0
        span.batch = <PyObject*>batch
        span.first = index
        span.count = 1
        self.spans.push_back(span)
        Py_INCREF(batch)
        self.count += 1
        return 0

    def append(self, ProducerBatch batch not None, int32_t first, int32_t count):
        """Adds `count` records of the batch, from record `first` on."""
        cdef int32_t i
        for i in range(count):
            self.add(batch, first + i)

    def batches(self):
        """Every batch once."""
        cdef size_t i
        cdef PyObject* last = NULL
        cdef dict found = {}
        for i in range(self.spans.size()):
            if self.spans[i].batch != last:
                last = self.spans[i].batch
                found[<object>last] = None
        return list(found)
