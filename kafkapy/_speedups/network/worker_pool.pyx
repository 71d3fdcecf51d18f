"""Worker threads of the data plane (see worker_pool.pxd)."""

cimport cython
from libc.stdint cimport int64_t
from libcpp.vector cimport vector

from kafkapy._speedups.base.posix cimport (
    atomic_count,
    atomic_load,
    monotonic_ns,
    pthread_cond_broadcast,
    pthread_cond_destroy,
    pthread_cond_init,
    pthread_cond_signal,
    pthread_cond_wait,
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)
from kafkapy._speedups.base.threads cimport block_all_signals, name_thread, pthread_create, pthread_join, pthread_t
from kafkapy._speedups.network.pending_request cimport PendingRequest, pending_return, pending_unref, pending_work
from kafkapy._speedups.requests.apis cimport data_plane_thread_begin

cdef extern from "<pthread.h>" nogil:
    pthread_t pthread_self()

cdef cppclass Threads(WorkerPoolState):
    size_t size                     # under the mutex; threads that the pool is to have
    vector[pthread_t] retired       # under the mutex; ended, or about to: to be joined
    bint started


cdef void worker_pool_submit(WorkerPoolState* pool, PendingRequest* request) noexcept nogil:
    cdef bint wake
    request.next_work = NULL
    pthread_mutex_lock(&pool.mutex)
    if pool.last == NULL:
        pool.first = request
    else:
        pool.last.next_work = request
    pool.last = request
    pool.queued += 1
    wake = pool.sleeping > 0
    pthread_mutex_unlock(&pool.mutex)
    if wake:
        pthread_cond_signal(&pool.wanted)


cdef void retire(Threads* pool) noexcept nogil:
    """Takes this thread out of the pool, with the mutex held; another thread joins it."""
    cdef pthread_t own = pthread_self()
    cdef size_t i
    for i in range(pool.threads.size()):
        if pool.threads[i] == own:
            pool.threads[i] = pool.threads.back()
            pool.threads.pop_back()
            pool.retired.push_back(own)
            return


cdef void join_retired(Threads* pool) noexcept nogil:
    cdef vector[pthread_t] ended
    cdef size_t i
    pthread_mutex_lock(&pool.mutex)
    ended.swap(pool.retired)
    pthread_mutex_unlock(&pool.mutex)
    for i in range(ended.size()):
        pthread_join(ended[i], NULL)


cdef PendingRequest* take(Threads* pool) noexcept nogil:
    """Takes the next request; waits for one. NULL: this thread ends, because the pool stops or has too many."""
    cdef PendingRequest* request = NULL
    pthread_mutex_lock(&pool.mutex)
    while pool.first == NULL and not pool.stopping and pool.threads.size() <= pool.size:
        pool.sleeping += 1
        pthread_cond_wait(&pool.wanted, &pool.mutex)
        pool.sleeping -= 1
    if not pool.stopping and pool.threads.size() > pool.size:
        retire(pool)
    elif not pool.stopping:
        request = pool.first
        pool.first = request.next_work
        if pool.first == NULL:
            pool.last = NULL
        pool.queued -= 1
    pthread_mutex_unlock(&pool.mutex)
    return request


cdef void* worker(void* argument) noexcept nogil:
    cdef Threads* pool = <Threads*>argument
    cdef PendingRequest* request
    cdef int64_t started
    block_all_signals()
    name_thread(b"kafka-worker")
    data_plane_thread_begin()
    while True:
        request = take(pool)
        if request == NULL:
            return NULL
        started = monotonic_ns()
        # When the connection is gone already, this is the last reference and the result is not needed.
        if atomic_load(&request.references) > 1:
            pending_work(request)
        atomic_count(&pool.busy_ns, monotonic_ns() - started)
        atomic_count(&pool.done, 1)
        pending_return(request)
        pending_unref(request)


cdef int start_threads(Threads* pool) noexcept nogil:
    """Starts missing threads; 0, or the error of the system."""
    cdef pthread_t thread
    cdef int status = 0
    # A new thread begins when the mutex is free: it finds itself in the list then.
    pthread_mutex_lock(&pool.mutex)
    while not status and pool.threads.size() < pool.size:
        status = pthread_create(&thread, NULL, worker, pool)
        if not status:
            pool.threads.push_back(thread)
    pthread_mutex_unlock(&pool.mutex)
    return status


cdef void stop_threads(Threads* pool) noexcept nogil:
    cdef PendingRequest* request
    cdef vector[pthread_t] threads
    cdef size_t i
    pthread_mutex_lock(&pool.mutex)
    pool.stopping = True
    threads.swap(pool.threads)
    pthread_mutex_unlock(&pool.mutex)
    pthread_cond_broadcast(&pool.wanted)
    for i in range(threads.size()):
        pthread_join(threads[i], NULL)
    join_retired(pool)
    while pool.first != NULL:
        request = pool.first
        pool.first = request.next_work
        pending_unref(request)
    pool.last = NULL
    pool.queued = 0


@cython.no_gc_clear
cdef class WorkerPool:
    """Owns the threads. The SocketServer makes it, starts it before its Processors and stops it after them; any thread
    reads the counters."""

    def __cinit__(self, int size):
        if size < 1:
            raise ValueError(f"a pool has at least one thread, not {size}")
        cdef Threads* threads = new Threads()
        threads.size = size
        threads.started = False
        self.size = size
        self.state = threads
        self.state.first = self.state.last = NULL
        self.state.queued = self.state.sleeping = 0
        self.state.stopping = False
        self.state.busy_ns = self.state.done = 0
        pthread_mutex_init(&self.state.mutex, NULL)
        pthread_cond_init(&self.state.wanted, NULL)

    def __dealloc__(self):
        cdef Threads* pool = <Threads*>self.state
        if pool != NULL:
            with nogil:
                stop_threads(pool)
            pthread_cond_destroy(&pool.wanted)
            pthread_mutex_destroy(&pool.mutex)
            del pool

    def start(self):
        """Starts the threads. OSError when the system allows none."""
        cdef Threads* pool = <Threads*>self.state
        cdef int status = start_threads(pool)
        pool.started = True
        if status:
            self.stop()
            raise OSError(status, "no thread can be had for the worker pool")

    def resize(self, int size):
        """Has this many threads from now on. A thread too many ends after its work. OSError when the system allows no
        further thread; the pool then goes on with those it has."""
        cdef Threads* pool = <Threads*>self.state
        cdef int status = 0
        if size < 1:
            raise ValueError(f"a pool has at least one thread, not {size}")
        self.size = size
        with nogil:
            join_retired(pool)
            pthread_mutex_lock(&pool.mutex)
            pool.size = size
            pthread_mutex_unlock(&pool.mutex)
            pthread_cond_broadcast(&pool.wanted)
            if pool.started:
                status = start_threads(pool)
        if status:
            raise OSError(status, "no further thread can be had for the worker pool")

    def stop(self):
        """Finishes the work under way, drops queued work, and ends the threads. No call may submit work after it."""
        with nogil:
            stop_threads(<Threads*>self.state)

    def counters(self):
        """threads, queued (requests that wait now), done (requests since the start), busy_ns (time of all threads)."""
        cdef int64_t queued
        cdef size_t threads
        pthread_mutex_lock(&self.state.mutex)
        queued = self.state.queued
        threads = self.state.threads.size()
        pthread_mutex_unlock(&self.state.mutex)
        return {
            "threads": threads,
            "queued": queued,
            "done": atomic_load(&self.state.done),
            "busy_ns": atomic_load(&self.state.busy_ns),
        }
