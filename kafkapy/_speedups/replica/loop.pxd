"""The thread of a fetcher: it sends one Fetch after the other and appends what comes (see loop.pyx)."""

from libc.stdint cimport int64_t

from kafkapy._speedups.base.wire cimport ByteBuffer
from kafkapy._speedups.replica.state cimport FetcherState

cdef enum FetcherStep:
    STEP_END = 0                # the fetcher must end
    STEP_WAIT = 1               # for a mail, or until then
    STEP_SEND = 2               # the request, and take its response

# The thread's body; the argument is its FetcherState.
cdef void* fetcher_thread(void* argument) noexcept nogil
# Carries out mails, and says what is next. `until_ns`: 0 without a time.
cdef FetcherStep next_step(FetcherState* f, ByteBuffer* request, int64_t* until_ns) noexcept nogil
# Reads the response from the transport and takes its partitions over. 0 or an errno.
cdef int receive(FetcherState* f, int64_t deadline_ns) noexcept nogil
# Ends the connection and asks for another one.
cdef void lose_connection(FetcherState* f, int failure) noexcept nogil
