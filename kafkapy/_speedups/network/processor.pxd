"""The Processor: one network thread with its connections. Everything here runs on that thread and never takes the GIL.

A turn of its loop: wait for events; read and write the ready connections; carry out the mail of other threads; resume
what was woken by this thread's own appends; expire deadlines and idle connections; free what was closed.

What is done with one connection is in channel_handler.pyx; here are the loop, the mail, time and the stop.
"""

from kafkapy._speedups.network.channel_handler cimport ProcessorState
from kafkapy._speedups.network.request_channel cimport RequestChannel
from kafkapy._speedups.network.worker_pool cimport WorkerPool

cdef class Processor:
    cdef ProcessorState* state
    cdef readonly RequestChannel channel
    cdef readonly WorkerPool workers
    cdef bint started
