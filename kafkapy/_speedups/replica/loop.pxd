"""The thread of a fetcher: it sends one Fetch after the other and appends what comes (see loop.pyx)."""

# The thread's body; the argument is its FetcherState.
cdef void* fetcher_thread(void* argument) noexcept nogil
