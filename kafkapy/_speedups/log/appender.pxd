"""Appends of the control plane on a log directory's threads, so that a stalled disk does not stall the control loop.

append -> LogWorkers -> log append (and the sync, when flush.messages makes one due) -> done list, APPENDED event ->
LogAppender.take on the loop. Two appends to one log keep their order only when the second starts after the end of the
first.

On a healthy disk an append takes less time than the event and the loop's turn for it. So the loop gathers appends
(`hold`), gives them to the threads together and waits for them (`settle`), for PATIENCE_NS without a finished append at
most. After a wait in vain the directory counts as slow: the loop does not wait for its appends, which end with an
event, until an append there is quick again.
"""

from libc.stdint cimport int64_t, uint8_t
from libcpp.vector cimport vector

from kafkapy._speedups.base.event_queue cimport EventQueueState
from kafkapy._speedups.base.posix cimport pthread_cond_t, pthread_mutex_t
from kafkapy._speedups.log.layout cimport AppendOptions, AppendResult, LogState, Waiter
from kafkapy._speedups.log.workers cimport LogWorkersState

cdef cppclass AppenderState:
    pthread_mutex_t mutex
    int64_t references              # atomic; one of LogAppender, one of each running append
    EventQueueState* events         # NULL when the LogAppender is gone
    vector[WorkerAppend*] ended
    pthread_cond_t all_ended
    bint loop_waits                 # for `awaited`; it takes finished appends meanwhile, without an event
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
    Waiter waiter                   # keeps its place in the log's queue
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
    cdef vector[LogWorkersState*] slow          # slow directories; to compare only
