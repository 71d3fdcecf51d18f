"""Memory of past responses, which the next response is read into.

The C library returns large pieces to the system, and new ones fault in page by page; for a consumer at full speed that
is a third of all its work. This module keeps pieces from 256 KiB on, up to 64 MiB in the process, and a response takes
the smallest piece that fits without much waste. Everything is malloc'ed, so an owner may free a piece or keep it.

A mutex protects the list, and no thread waits for it: a thread that does not get it at once allocates its own memory.
The same holds in a child that was forked while another thread held the mutex.
"""

from libc.stdlib cimport free

from kafkapy._speedups.base.posix cimport pthread_mutex_init, pthread_mutex_t, pthread_mutex_unlock

cdef extern from "<malloc.h>" nogil:
    size_t malloc_usable_size(void* data)

cdef extern from "<pthread.h>" nogil:
    int pthread_mutex_trylock(pthread_mutex_t*)

cdef enum:
    MIN_PIECE = 1 << 18
    MAX_TOTAL = 1 << 26
    MAX_PIECES = 64
    MAX_WASTE = 4           # times the size asked for

cdef struct Piece:
    uint8_t* data
    size_t size

cdef pthread_mutex_t mutex
cdef Piece[MAX_PIECES] pieces
cdef int count = 0
cdef size_t total = 0

pthread_mutex_init(&mutex, NULL)


cdef uint8_t* spare_take(size_t size) noexcept nogil:
    global count, total
    cdef uint8_t* data = NULL
    cdef int best = -1
    cdef int i
    if size < MIN_PIECE // MAX_WASTE or pthread_mutex_trylock(&mutex) != 0:
        return NULL
    for i in range(count):
        if size <= pieces[i].size <= MAX_WASTE * size and (best < 0 or pieces[i].size < pieces[best].size):
            best = i
    if best >= 0:
        data = pieces[best].data
        total -= pieces[best].size
        count -= 1
        pieces[best] = pieces[count]
    pthread_mutex_unlock(&mutex)
    return data


cdef void spare_give(uint8_t* data) noexcept nogil:
    global count, total
    cdef size_t size
    cdef bint kept = False
    if data == NULL:
        return
    size = malloc_usable_size(data)
    if MIN_PIECE <= size <= MAX_TOTAL and pthread_mutex_trylock(&mutex) == 0:
        if count < MAX_PIECES and total + size <= MAX_TOTAL:
            pieces[count].data = data
            pieces[count].size = size
            count += 1
            total += size
            kept = True
        pthread_mutex_unlock(&mutex)
    if not kept:
        free(data)


def held():
    """(pieces, bytes) kept now; None while another thread holds the list."""
    if pthread_mutex_trylock(&mutex) != 0:
        return None
    now = count, total
    pthread_mutex_unlock(&mutex)
    return now


def release():
    """Frees all kept pieces; returns their bytes."""
    global count, total
    cdef size_t freed = 0
    cdef int i
    if pthread_mutex_trylock(&mutex) != 0:
        return 0
    for i in range(count):
        free(pieces[i].data)
    freed = total
    count = 0
    total = 0
    pthread_mutex_unlock(&mutex)
    return freed
