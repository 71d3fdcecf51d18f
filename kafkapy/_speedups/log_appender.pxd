"""Appends of the control plane's records on a log directory's threads, so that a disk that stalls does not stall the control loop.

append -> LogWorkers -> log append (and the sync, when flush.messages makes one due) -> done list, APPENDED event -> LogAppender.take on the loop.
Appends to one log are done in the order of the calls only when each is given after the end of the one before.
"""

from libc.stdint cimport int64_t, uint8_t
from libcpp.vector cimport vector

from kafkapy._speedups.event_queue cimport EventQueueState
from kafkapy._speedups.log_workers cimport LogWorkersState
from kafkapy._speedups.partition_log cimport AppendOptions, AppendResult, LogState
from kafkapy._speedups.posix cimport pthread_mutex_t

cdef cppclass AppenderState:
    pthread_mutex_t mutex
    int64_t references              # atomic; LogAppender has one, each append on its way another
    EventQueueState* events         # NULL when the LogAppender is gone
    vector[WorkerAppend*] ended

cdef cppclass WorkerAppend:         # owned by the worker that runs it, then by the done list
    int64_t ticket
    LogState* log                   # referenced
    LogWorkersState* workers        # referenced
    AppenderState* appender         # referenced
    uint8_t* data                   # malloc'ed
    int64_t size
    AppendOptions options
    AppendResult result

cdef class LogAppender:
    cdef AppenderState* state
    cdef readonly object events     # EventQueue, kept alive
    cdef int64_t next_ticket
    cdef dict waiting
