"""Waiting on a partition log from Python (see log_waiter.pxd)."""

from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc

from kafkapy._speedups.base.posix cimport atomic_add, atomic_load
from kafkapy._speedups.log.layout cimport (
    WAIT_HIGH_WATERMARK,
    WAIT_LAST_STABLE_OFFSET,
    WAIT_LOG_END,
    WAIT_SEGMENT,
    Waiter,
)
from kafkapy._speedups.log.partition_log cimport PartitionLog
from kafkapy._speedups.log.state cimport log_remove_waiters, log_wait

HIGH_WATERMARK = WAIT_HIGH_WATERMARK
LAST_STABLE_OFFSET = WAIT_LAST_STABLE_OFFSET
LOG_END = WAIT_LOG_END
SEGMENT = WAIT_SEGMENT


cdef void count_wake(void* owner, uint64_t token) noexcept nogil:
    atomic_add(<int64_t*>owner, 1)


cdef class LogWaiter:
    """Registers with a log and counts how often it was woken; for tests. Any thread."""

    def __cinit__(self, PartitionLog log not None):
        self.log = log
        self.token = 1
        # Eight bytes are given up for good: see log_waiter.pxd.
        self.fired = <int64_t*>calloc(1, sizeof(int64_t))
        if self.fired == NULL:
            raise MemoryError

    def wait(self, int kind, int64_t threshold):
        """True when the condition holds already; else it is registered, and `wakes` will count it once."""
        cdef Waiter waiter
        cdef int holds
        waiter.kind = kind
        waiter.threshold = threshold
        waiter.wake = count_wake
        waiter.owner = self.fired
        waiter.token = self.token
        with nogil:
            holds = log_wait(self.log.state, &waiter)
        return bool(holds)

    @property
    def wakes(self):
        """How often it was woken."""
        return atomic_load(self.fired)

    def remove(self):
        """Takes back what is still registered."""
        with nogil:
            log_remove_waiters(self.log.state, self.fired, self.token, False)
