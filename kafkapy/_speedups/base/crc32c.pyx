"""CRC-32C without the GIL, by the C routine inside the `crc32c` package (see crc32c.pxd).

The package's extension module exports its routines (hardware: three interleaved SSE 4.2 streams; software: slicing by
8), but no header promises them. This module looks them up by name at import, and uses a routine only after it has
agreed with the table-driven checksum below over many lengths and alignments. Without such a routine every call goes
through the package's Python function and takes the GIL: slower, and `IMPLEMENTATION` is "package".
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stddef cimport size_t

from importlib.machinery import PathFinder
from importlib.util import module_from_spec

cdef extern from "Python.h":
    int PyBUF_READ

cdef extern from "<dlfcn.h>" nogil:
    int RTLD_NOW
    int RTLD_LOCAL
    void* dlopen(const char*, int)
    void* dlsym(void*, const char*)

ctypedef uint32_t (*crc_routine)(uint32_t crc, const unsigned char* data, unsigned long size) noexcept nogil
ctypedef unsigned int (*probe_routine)() noexcept nogil

cdef enum:
    REFLECTED_POLYNOMIAL = 0x82F63B78
    ALL_ONES = 0xFFFFFFFF
    SELF_TEST_SIZE = 3 * 8192 + 3 * 256 + 40     # past the block sizes of the interleaved routine


cdef object load_extension():
    """The extension module of the `crc32c` package; the package itself when it has another layout. ImportError.

    Importing the package brings argparse and importlib.metadata with it, some twenty milliseconds of every start.
    """
    name = "crc32c._crc32c"
    package = PathFinder.find_spec("crc32c")
    spec = PathFinder.find_spec(name, package.submodule_search_locations) if package is not None else None
    if spec is not None:
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        if hasattr(module, "crc32c"):
            return module
    import crc32c

    return crc32c


_package = load_extension()

cdef uint32_t table[256]
cdef crc_routine routine = NULL
cdef uint32_t conditioning = 0      # xor-ed before and after, for a routine that works on the raw register


cdef void make_table() noexcept nogil:
    cdef uint32_t i, value
    cdef int bit
    for i in range(256):
        value = i
        for bit in range(8):
            value = (value >> 1) ^ (<uint32_t>REFLECTED_POLYNOMIAL if value & 1 else 0)
        table[i] = value


cdef uint32_t crc_by_table(uint32_t seed, const uint8_t* data, size_t size) noexcept nogil:
    cdef uint32_t crc = seed ^ <uint32_t>ALL_ONES
    cdef size_t i
    for i in range(size):
        crc = table[(crc ^ data[i]) & 0xFF] ^ (crc >> 8)
    return crc ^ <uint32_t>ALL_ONES


cdef uint32_t crc_by_package(uint32_t seed, const uint8_t* data, size_t size) noexcept with gil:
    try:
        return _package.crc32c(PyMemoryView_FromMemory(<char*>data, <Py_ssize_t>size, PyBUF_READ), seed)
    except Exception:
        # Out of memory for the view: a data-plane thread cannot raise, and still needs the sum.
        return crc_by_table(seed, data, size)


cdef uint32_t crc32c_of(uint32_t seed, const uint8_t* data, size_t size) noexcept nogil:
    if size == 0:
        return seed
    if routine != NULL:
        return routine(seed ^ conditioning, data, size) ^ conditioning
    return crc_by_package(seed, data, size)


cdef bint agrees(crc_routine candidate, uint32_t condition) noexcept nogil:
    """Whether a routine computes CRC-32C: the published vector, then lengths and alignments around every block size, in
    one go and chained."""
    cdef uint8_t data[SELF_TEST_SIZE]
    cdef uint32_t noise = 1, whole, first
    cdef size_t i, size, offset, cut
    if candidate(condition, <const unsigned char*>"123456789", 9) ^ condition != <uint32_t>0xE3069283:
        return False
    for i in range(SELF_TEST_SIZE):
        noise = noise * <uint32_t>1664525 + <uint32_t>1013904223
        data[i] = <uint8_t>(noise >> 24)
    size = 1
    while size <= SELF_TEST_SIZE:
        offset = size % 9
        if offset < size:
            cut = (size - offset) // 3
            whole = crc_by_table(0, data + offset, size - offset)
            if candidate(condition, data + offset, size - offset) ^ condition != whole:
                return False
            first = candidate(condition, data + offset, cut) ^ condition
            if candidate(first ^ condition, data + offset + cut, size - offset - cut) ^ condition != whole:
                return False
        size += 1 + size // 7
    return True


cdef str choose():
    """Sets `routine` and `conditioning`; returns the name of the implementation."""
    global routine, conditioning
    cdef void* library
    cdef void* probe
    cdef void* symbol
    cdef bytes path
    make_table()
    try:
        extension = _package if _package.__name__ == "crc32c._crc32c" else _package._crc32c
        path = extension.__file__.encode("utf-8", "surrogateescape")
    except AttributeError:
        return "package"
    library = dlopen(<const char*>path, RTLD_NOW | RTLD_LOCAL)
    if library == NULL:
        return "package"
    candidates = []
    probe = dlsym(library, b"_crc32c_intel_probe")
    if probe != NULL and (<probe_routine>probe)():
        candidates.append((b"_crc32c_hw_adler", "hardware"))
    candidates.append((b"_crc32c_sw_slicing_by_8", "software"))
    for name, kind in candidates:
        symbol = dlsym(library, <const char*>(<bytes>name))
        if symbol == NULL:
            continue
        for condition in (<uint32_t>ALL_ONES, <uint32_t>0):
            if agrees(<crc_routine>symbol, condition):
                routine = <crc_routine>symbol
                conditioning = condition
                return kind
    return "package"


IMPLEMENTATION = choose()
"""Which routine serves: "hardware" or "software" (without the GIL), or "package" (through Python, with the GIL)."""


def crc32c(data, uint32_t seed=0):
    """CRC-32C of any contiguous bytes-like object. `seed`: the checksum of the bytes before it, or 0."""
    cdef Py_buffer view
    cdef uint32_t crc
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        with nogil:
            crc = crc32c_of(seed, <const uint8_t*>view.buf, <size_t>view.len)
    finally:
        PyBuffer_Release(&view)
    return crc


def crc32c_by_table(data, uint32_t seed=0):
    """The same checksum by the table-driven routine, which checks the fast one at import. For tests."""
    cdef Py_buffer view
    cdef uint32_t crc
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        crc = crc_by_table(seed, <const uint8_t*>view.buf, <size_t>view.len)
    finally:
        PyBuffer_Release(&view)
    return crc


def crc32c_by_package(data, uint32_t seed=0):
    """The same checksum by the package's Python function, which takes the GIL. For tests."""
    cdef Py_buffer view
    cdef uint32_t crc
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        crc = crc_by_package(seed, <const uint8_t*>view.buf, <size_t>view.len)
    finally:
        PyBuffer_Release(&view)
    return crc
