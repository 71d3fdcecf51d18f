"""Worker threads of the data plane (see worker_pool.pxd)."""

cimport cython
from libc.stdint cimport int64_t

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


cdef PendingRequest* take(WorkerPoolState* pool) noexcept nogil:
    """Takes the next request; waits for one. NULL: the pool stops."""
    cdef PendingRequest* request = NULL
    pthread_mutex_lock(&pool.mutex)
    while pool.first == NULL and not pool.stopping:
        pool.sleeping += 1
        pthread_cond_wait(&pool.wanted, &pool.mutex)
        pool.sleeping -= 1
    if not pool.stopping:
        request = pool.first
        pool.first = request.next_work
        if pool.first == NULL:
            pool.last = NULL
        pool.queued -= 1
    pthread_mutex_unlock(&pool.mutex)
    return request


cdef void* worker(void* argument) noexcept nogil:
    cdef WorkerPoolState* pool = <WorkerPoolState*>argument
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


cdef void stop_threads(WorkerPoolState* pool) noexcept nogil:
    cdef PendingRequest* request
    cdef size_t i
    pthread_mutex_lock(&pool.mutex)
    pool.stopping = True
    pthread_mutex_unlock(&pool.mutex)
    pthread_cond_broadcast(&pool.wanted)
    for i in range(pool.threads.size()):
        pthread_join(pool.threads[i], NULL)
    pool.threads.clear()
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
        self.size = size
        self.state = new WorkerPoolState()
        self.state.first = self.state.last = NULL
        self.state.queued = self.state.sleeping = 0
        self.state.stopping = False
        self.state.busy_ns = self.state.done = 0
        pthread_mutex_init(&self.state.mutex, NULL)
        pthread_cond_init(&self.state.wanted, NULL)

    def __dealloc__(self):
        if self.state != NULL:
            with nogil:
                stop_threads(self.state)
            pthread_cond_destroy(&self.state.wanted)
            pthread_mutex_destroy(&self.state.mutex)
            del self.state

    def start(self):
        """Starts the threads. OSError when the system allows none."""
        cdef pthread_t thread
        cdef int status
        while self.state.threads.size() < <size_t>self.size:
            status = pthread_create(&thread, NULL, worker, self.state)
            if status:
                self.stop()
                raise OSError(status, "no thread can be had for the worker pool")
            self.state.threads.push_back(thread)

    def stop(self):
        """Finishes the work under way, drops queued work, and ends the threads. No call may submit work after it."""
        with nogil:
            stop_threads(self.state)

    def counters(self):
        """threads, queued (requests that wait now), done (requests since the start), busy_ns (time of all threads)."""
        cdef int64_t queued
        pthread_mutex_lock(&self.state.mutex)
        queued = self.state.queued
        pthread_mutex_unlock(&self.state.mutex)
        return {
            "threads": self.size,
            "queued": queued,
            "done": atomic_load(&self.state.done),
            "busy_ns": atomic_load(&self.state.busy_ns),
        }
