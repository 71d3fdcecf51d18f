"""Threads of C for work on logs that a disk may hold up. They need neither the GIL nor the control loop.

A LogManager has a few LogWorkers for each log directory, one for each purpose, so that a stalled directory delays no
other, and a slow sync delays no new segment. One thread does all the work while it makes progress: waking others for
each piece costs more than most pieces. While work waits behind it, a second thread stands by, and takes over when no
piece has ended for a moment. An idle thread sleeps without a timeout.
"""

from libc.stdint cimport int64_t, uint64_t
from libcpp.deque cimport deque
from libcpp.string cimport string
from libcpp.vector cimport vector

from kafkapy._speedups.base.posix cimport atomic_add, pthread_cond_t, pthread_mutex_t
from kafkapy._speedups.base.threads cimport pthread_t

# One of the threads runs it once per post. It releases the reference that the post took for `subject`.
ctypedef void (*log_work)(void* subject) noexcept nogil

cdef struct LogWork:
    log_work run
    void* subject

cdef cppclass LogWorkersState:
    pthread_mutex_t mutex
    pthread_cond_t wanted
    int64_t references          # atomic; one of LogWorkers, one of each posting log
    deque[LogWork] queue
    vector[pthread_t] threads
    size_t limit                # of threads
    size_t idle
    bint stopped
    string name                 # of the threads, at most 15 characters
    size_t busy                 # threads that work
    bint standby                # a thread sleeps a moment, to take over from stuck ones
    uint64_t ended              # pieces of work

cdef inline void log_workers_ref(LogWorkersState* workers) noexcept nogil:
    atomic_add(&workers.references, 1)


cdef inline void log_workers_unref(LogWorkersState* workers) noexcept nogil:
    if workers != NULL and atomic_add(&workers.references, -1) == 0:
        log_workers_free(workers)


cdef void log_workers_free(LogWorkersState* workers) noexcept nogil
# Posts work. False when the workers have stopped, or no thread can start: `run` is then not called. Any thread, under
# any mutex that no work takes while it posts.
cdef bint log_workers_post(LogWorkersState* workers, log_work run, void* subject) noexcept nogil
# The same for each of `count` subjects, all taken or none; one thread is woken for all of them.
cdef bint log_workers_post_all(LogWorkersState* workers, log_work run, void** subjects, size_t count) noexcept nogil

cdef class LogWorkers:
    cdef LogWorkersState* state
