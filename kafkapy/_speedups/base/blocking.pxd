"""System calls that may block for long, on threads that others wait for.

A network thread runs a Processor. A call that may block is a section: `blocking_begin` to `blocking_end`. A Processor
whose thread has been in one section for too long is taken from it and given to a spare thread, as Go takes a P from an
M that hangs in a system call. The thread that was left behind finishes its one request alone, hands the outcome on by
mail and becomes a spare.

    RUNNING  --begin-->  section n  --end-->  RUNNING
                             | the monitor, or the thread itself at a place that is known to be slow
                          TAKING  -->  ALONE   separate() has been called and the heir runs: the thread may touch no
                                               word of the Processor any more

Only a thread that has said what it does (`may_leave`) can be left behind; all others, Python's too, pass through
sections without a trace.

A section costs two stores, a load and a compare-and-swap. One monitor thread looks at the network threads every few
milliseconds, and sleeps while no section has been entered for a while.
"""

from libc.stdint cimport int64_t
from libcpp.vector cimport vector

from kafkapy._speedups.base.posix cimport atomic_load, pthread_cond_t

cdef enum:
    THREAD_RUNNING = 0              # odd numbers: in a section, each one of its own
    THREAD_TAKING = -2
    THREAD_ALONE = -4

# Takes what the thread that hangs is doing out of the Processor, before the heir (its thread_self) runs. The thread
# stays inside its section all the while. False: not now.
ctypedef bint (*separate_function)(void* processor, int64_t heir) noexcept nogil
# Runs the Processor until it ends.
ctypedef void (*run_function)(void* processor) noexcept nogil

cdef cppclass NetworkThread:
    int64_t state                   # atomic
    int64_t section                 # atomic; the number of the last one
    int64_t seen                    # the monitor's: the section of its last look
    int looks                       # ... and how often it was seen
    int64_t me                      # thread_self
    bint may_leave                  # what it does now can be left to it
    int64_t* slow                   # counts the threads left behind at the place where it is; NULL: nobody counts
    bint counted                    # it is one of them
    void* processor                 # under the mutex; NULL: a spare, or alone
    separate_function separate
    run_function run
    pthread_cond_t chosen
    void* base                      # jmp_buf

cdef extern from * nogil:
    """
    #include <pthread.h>
    #include <stdint.h>
    static inline int64_t kp_thread_self(void) { return (int64_t)pthread_self(); }
    """
    int64_t thread_self "kp_thread_self"()      # never 0

# The calling thread, when it runs a Processor; else NULL.
cdef NetworkThread* network_thread() noexcept nogil
# `slow`: atomic, of the place (a log, a segment), which must outlive the section; while it is not 0, a network thread
# gives its Processor away at once.
cdef NetworkThread* blocking_begin(int64_t* slow) noexcept nogil
cdef void blocking_end(NetworkThread* t) noexcept nogil
# The Processor was taken from the calling thread.
cdef inline bint is_alone(NetworkThread* t) noexcept nogil:
    return t != NULL and atomic_load(&t.state) == THREAD_ALONE


# What was done alone is handed on: the calling thread becomes a spare. Does not return: the stack between here and the
# thread's start is given up, so nothing in it may own anything.
cdef void become_spare(NetworkThread* t) noexcept nogil
# Gives the Processor to a thread. 0 or an errno. `run` is called there, and again on every thread that takes it over.
cdef int start_on_thread(void* processor, separate_function separate, run_function run) noexcept nogil
