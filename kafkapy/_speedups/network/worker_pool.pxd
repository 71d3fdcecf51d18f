"""Threads for the work of the data plane that would hold a network thread for too long: today the validation of large
compressed batches.

A Processor submits a request (OUTCOME_WORKER, requests/data_plane.pxd) and leaves it alone until its MAIL_OUTCOME
comes; a thread of the pool works on it (`pending_work`) and posts that mail. The work is CPU alone: no lock of a
partition, no disk, no Python, so no client can hold a worker for longer than its bytes explain. More threads than cores
would gain nothing.

The queue is linked through the requests and takes no memory. Its bound: one request of each connection, whose bytes
count in the memory pool.
"""

from libc.stdint cimport int64_t
from libcpp.vector cimport vector

from kafkapy._speedups.base.posix cimport pthread_cond_t, pthread_mutex_t
from kafkapy._speedups.base.threads cimport pthread_t
from kafkapy._speedups.network.pending_request cimport PendingRequest

cdef cppclass WorkerPoolState:
    pthread_mutex_t mutex
    pthread_cond_t wanted
    PendingRequest* first           # under the mutex from here; each with a reference
    PendingRequest* last
    int64_t queued
    int64_t sleeping
    bint stopping
    vector[pthread_t] threads       # of who starts and stops it
    int64_t busy_ns                 # atomics from here
    int64_t done

# Takes over a reference of the caller's. The pool runs or is stopping; what it has not begun when it stops is dropped.
cdef void worker_pool_submit(WorkerPoolState* pool, PendingRequest* request) noexcept nogil

cdef class WorkerPool:
    cdef WorkerPoolState* state
    cdef readonly int size
