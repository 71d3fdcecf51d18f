"""The Processor: one network thread with its connections, which never takes the GIL.

A turn of its loop: wait for events; read and write the ready connections; carry out the mail of other threads; resume
requests that this thread's own appends woke; expire deadlines and idle connections; free closed connections.

processor.pyx holds the loop, the mail, the time and the stop; channel_stages.pyx, channel_events.pyx and
channel_handler.pyx hold the work on one connection.
"""

from kafkapy._speedups.network.processor_state cimport ProcessorState
from kafkapy._speedups.network.request_channel cimport RequestChannel
from kafkapy._speedups.network.worker_pool cimport WorkerPool

cdef class Processor:
    cdef ProcessorState* state
    cdef readonly RequestChannel channel
    cdef readonly WorkerPool workers
    cdef bint started
