"""Appends of the control plane's records on a log directory's threads, so that a disk that stalls does not stall the
control loop.

append -> LogWorkers -> log append (and the sync, when flush.messages makes one due) -> done list, APPENDED event ->
LogAppender.take on the loop. Appends to one log are done in the order of the calls only when each is given after the
end of the one before.

A disk that does not stall takes less time than the event and the turn of the loop that would tell of its end. So
appends are gathered (`hold`), given to the threads together and waited for (`settle`), for PATIENCE_NS without an end
at most. After a wait in vain a directory is slow: nobody waits for its appends, which end with an event, until one has
been quick again.
"""

from libc.stdint cimport int64_t, uint8_t
from libcpp.vector cimport vector

from kafkapy._speedups.base.event_queue cimport EventQueueState
from kafkapy._speedups.base.posix cimport pthread_cond_t, pthread_mutex_t
from kafkapy._speedups.log.layout cimport AppendOptions, AppendResult, LogState
from kafkapy._speedups.log.workers cimport LogWorkersState

cdef cppclass AppenderState:
    pthread_mutex_t mutex
    int64_t references              # atomic; LogAppender has one, each append on its way another
    EventQueueState* events         # NULL when the LogAppender is gone
    vector[WorkerAppend*] ended
    pthread_cond_t all_ended
    bint loop_waits                 # for `awaited`; it takes what ends meanwhile, without an event
    size_t awaited                  # appends that the loop waits for

cdef cppclass WorkerAppend:         # owned by the worker that runs it, then by the done list
    int64_t ticket
    LogState* log                   # referenced
    LogWorkersState* workers        # referenced
    AppenderState* appender         # referenced
    uint8_t* data                   # malloc'ed
    int64_t size
    AppendOptions options
    AppendResult result
    bint awaited
    bint ended
    int64_t given_ns
    int64_t took_ns                 # from then to the end

cdef class LogAppender:
    cdef AppenderState* state
    cdef readonly object events     # EventQueue, kept alive
    cdef int64_t next_ticket
    cdef dict waiting
    cdef bint held
    cdef vector[WorkerAppend*] gathered         # owned
    cdef vector[LogWorkersState*] slow          # directories that nobody waits for; to compare only
