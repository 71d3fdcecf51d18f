"""System calls that may block a network thread for long.

A network thread runs a Processor. A section brackets a call that may block: `blocking_begin` to `blocking_end`. The
monitor takes the Processor from a thread that stays in one section for too long, and gives it to a spare thread, as Go
takes a P from an M that hangs in a system call. The thread left behind finishes its one request alone, mails the
outcome and becomes a spare.

    RUNNING  --begin-->  section n  --end-->  RUNNING
                             | the monitor, or the thread itself at a place that is known to be slow
                          TAKING  -->  ALONE   separate() has been called and the heir runs: the thread may touch no
                                               word of the Processor any more

Only a thread that has set `may_leave` can be left behind; all other threads, Python's included, pass through sections
without a trace.

A section costs two stores, a load and a compare-and-swap. One monitor thread looks at the network threads every few
milliseconds, and sleeps when no thread has entered a section for a while.
"""

from libc.stdint cimport int64_t
from libcpp.vector cimport vector

from kafkapy._speedups.base.posix cimport atomic_load, pthread_cond_t

cdef enum:
    THREAD_RUNNING = 0              # odd numbers: in a section, each with a new number
    THREAD_TAKING = -2
    THREAD_ALONE = -4

# Separates the hanging thread's work from the Processor, before the heir (its thread_self) runs. The thread stays
# inside its section meanwhile. False: not now.
ctypedef bint (*separate_function)(void* processor, int64_t heir) noexcept nogil
# Runs the Processor until it ends.
ctypedef void (*run_function)(void* processor) noexcept nogil

cdef cppclass NetworkThread:
    int64_t state                   # atomic
    int64_t section                 # atomic; number of the last section
    int64_t seen                    # the monitor's: the section of its last look
    int looks                       # the monitor's: how often it saw that section
    int64_t me                      # thread_self
    bint may_leave                  # the thread can finish its present work alone
    int64_t* slow                   # counts the threads left behind at this place (a log, a segment); NULL: no count
    bint counted                    # `slow` counts this thread
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

# The calling thread's entry; NULL when it runs no Processor.
cdef NetworkThread* network_thread() noexcept nogil
# Begins a section. `slow` is an atomic counter of the place (a log, a segment), which must outlive the section; while
# it is not 0, a network thread gives its Processor away at once.
cdef NetworkThread* blocking_begin(int64_t* slow) noexcept nogil
cdef void blocking_end(NetworkThread* t) noexcept nogil
# Whether the monitor took the Processor from the calling thread.
cdef inline bint is_alone(NetworkThread* t) noexcept nogil:
    return t != NULL and atomic_load(&t.state) == THREAD_ALONE


# Makes the calling thread a spare, after it has handed on its outcome. Does not return: it drops the stack between here
# and the thread's start, so nothing on that stack may own anything.
cdef void become_spare(NetworkThread* t) noexcept nogil
# Gives the Processor to a thread. 0 or an errno. Each thread that takes the Processor over calls `run`.
cdef int start_on_thread(void* processor, separate_function separate, run_function run) noexcept nogil
