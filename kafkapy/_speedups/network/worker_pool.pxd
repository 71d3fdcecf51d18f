"""Threads for data-plane work that would hold a network thread for too long: validating large compressed batches.

A Processor submits a request (OUTCOME_WORKER, requests/data_plane.pxd) and leaves it alone until its MAIL_OUTCOME; a
thread of the pool works on it (`pending_work`) and posts that mail. The work is CPU only: no lock of a partition, no
disk, no Python, so a client's bytes bound the time of a worker. More threads than cores would gain nothing.

The queue links the requests and takes no memory. It holds at most one request of each connection, whose bytes count in
the memory pool.
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
    vector[pthread_t] threads       # for the thread that starts and stops the pool
    int64_t busy_ns                 # atomics from here
    int64_t done

# Queues a request and takes over a reference. The pool runs or is stopping; a stop drops the waiting requests.
cdef void worker_pool_submit(WorkerPoolState* pool, PendingRequest* request) noexcept nogil

cdef class WorkerPool:
    cdef WorkerPoolState* state
    cdef readonly int size
