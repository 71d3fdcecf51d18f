"""Threads of C for work on logs (see workers.pxd)."""

from libc.stdint cimport uint64_t
from libcpp.vector cimport vector

from kafkapy._speedups.base.posix cimport (
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
from kafkapy._speedups.base.threads cimport block_all_signals, name_thread, pthread_create, pthread_join


cdef void log_workers_free(LogWorkersState* workers) noexcept nogil:
    pthread_cond_destroy(&workers.wanted)
    pthread_mutex_destroy(&workers.mutex)
    del workers


cdef extern from "<unistd.h>" nogil:
    int usleep(unsigned int microseconds)

cdef enum:
    PATIENCE_US = 1000          # with busy threads, before the stand-by thread takes over


cdef void wake_one_locked(LogWorkersState* workers) noexcept nogil:
    cdef pthread_t thread
    if workers.idle > 0:
        pthread_cond_signal(&workers.wanted)
    elif workers.threads.size() < workers.limit and not workers.stopped:
        if pthread_create(&thread, NULL, work, workers) == 0:
            workers.threads.push_back(thread)


cdef void* work(void* argument) noexcept nogil:
    """The body of a thread: works in order until the workers stop and the queue is empty."""
    cdef LogWorkersState* workers = <LogWorkersState*>argument
    cdef LogWork next
    cdef uint64_t ended
    cdef bint awake = False     # it has just finished, and goes on with the next work
    block_all_signals()
    name_thread(workers.name.c_str())
    pthread_mutex_lock(&workers.mutex)
    while True:
        while workers.queue.empty() and not workers.stopped:
            awake = False
            workers.idle += 1
            pthread_cond_wait(&workers.wanted, &workers.mutex)
            workers.idle -= 1
        if workers.queue.empty():
            break
        if not awake and workers.busy > 0 and not workers.standby:
            workers.standby = True
            ended = workers.ended
            pthread_mutex_unlock(&workers.mutex)
            usleep(PATIENCE_US)
            pthread_mutex_lock(&workers.mutex)
            workers.standby = False
            if workers.ended != ended or workers.queue.empty():
                continue
        next = workers.queue.front()
        workers.queue.pop_front()
        workers.busy += 1
        if not workers.queue.empty() and not workers.standby:
            wake_one_locked(workers)
        pthread_mutex_unlock(&workers.mutex)
        next.run(next.subject)
        pthread_mutex_lock(&workers.mutex)
        workers.busy -= 1
        workers.ended += 1
        awake = True
    pthread_mutex_unlock(&workers.mutex)
    return NULL


cdef bint log_workers_post(LogWorkersState* workers, log_work run, void* subject) noexcept nogil:
    return log_workers_post_all(workers, run, &subject, 1)


cdef bint log_workers_post_all(LogWorkersState* workers, log_work run, void** subjects, size_t count) noexcept nogil:
    cdef LogWork next
    cdef bint taken = False, behind, wake = False
    cdef size_t i
    next.run = run
    pthread_mutex_lock(&workers.mutex)
    if not workers.stopped:
        behind = not workers.queue.empty()
        for i in range(count):
            next.subject = subjects[i]
            workers.queue.push_back(next)
        # Work that stands behind other work has woken a thread already.
        if not behind and (workers.busy == 0 or not workers.standby):
            wake = workers.idle > 0
            if not wake:
                wake_one_locked(workers)
        taken = not workers.threads.empty()
        if not taken:
            for i in range(count):
                workers.queue.pop_back()
    if wake:
        log_workers_ref(workers)
    pthread_mutex_unlock(&workers.mutex)
    if wake:
        # Outside the mutex, which the thread takes first. Another thread may have done the work by now, and released
        # the workers.
        pthread_cond_signal(&workers.wanted)
        log_workers_unref(workers)
    return taken


cdef void stop_workers(LogWorkersState* workers) noexcept nogil:
    cdef vector[pthread_t] threads
    cdef size_t i
    pthread_mutex_lock(&workers.mutex)
    workers.stopped = True
    threads.swap(workers.threads)
    pthread_cond_broadcast(&workers.wanted)
    pthread_mutex_unlock(&workers.mutex)
    for i in range(threads.size()):
        pthread_join(threads[i], NULL)


cdef class LogWorkers:
    """Up to `limit` threads for one kind of work in one log directory, shown as `name` (at most 15 characters).

    The LogManager makes and stops them. `stop` finishes the queued work; after it the threads take no work.
    """

    def __cinit__(self, str name, int limit):
        if limit < 1:
            raise ValueError(f"at least one thread is needed, not {limit}")
        self.state = new LogWorkersState()
        pthread_mutex_init(&self.state.mutex, NULL)
        pthread_cond_init(&self.state.wanted, NULL)
        self.state.references = 1
        self.state.limit = <size_t>limit
        self.state.idle = 0
        self.state.stopped = False
        self.state.busy = 0
        self.state.standby = False
        self.state.ended = 0
        self.state.name = name.encode()[:15]

    def __dealloc__(self):
        if self.state != NULL:
            with nogil:
                stop_workers(self.state)
                log_workers_unref(self.state)

    @property
    def threads(self):
        """The number of running threads, idle ones included."""
        cdef size_t count
        with nogil:
            pthread_mutex_lock(&self.state.mutex)
            count = self.state.threads.size()
            pthread_mutex_unlock(&self.state.mutex)
        return count

    def stop(self):
        """Finishes the queued work and ends the threads. Blocking. Later calls do nothing."""
        with nogil:
            stop_workers(self.state)
