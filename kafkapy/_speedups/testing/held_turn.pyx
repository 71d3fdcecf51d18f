"""The turn of an append, held by a test (see held_turn.pxd)."""

from libc.stdint cimport int64_t
from libcpp.vector cimport vector

from kafkapy._speedups.base.posix cimport pthread_mutex_lock, pthread_mutex_unlock
from kafkapy._speedups.log.layout cimport WAIT_TURN, Waiter
from kafkapy._speedups.log.partition_log cimport PartitionLog
from kafkapy._speedups.log.state cimport fire, take_waiters_locked
from kafkapy._speedups.log.turns cimport begin_turn_locked, end_turn_locked, lock_settled


cdef class HeldTurn:
    """Has the turn from here to `end`, like an append to a slow disk."""

    def __cinit__(self, PartitionLog log not None):
        self.log = log
        with nogil:
            lock_settled(log.state)
            begin_turn_locked(log.state)
            pthread_mutex_unlock(&log.state.mutex)
        self.held = True

    @property
    def queue(self):
        """How many appends wait in the log's queue for their turns."""
        cdef int64_t queue = 0
        cdef size_t i
        with nogil:
            pthread_mutex_lock(&self.log.state.mutex)
            for i in range(self.log.state.waiters.size()):
                queue += self.log.state.waiters[i].kind == WAIT_TURN
            pthread_mutex_unlock(&self.log.state.mutex)
        return queue

    def end(self):
        """Ends the turn, once."""
        cdef vector[Waiter] woken
        if not self.held:
            raise RuntimeError("the turn has ended")
        self.held = False
        with nogil:
            pthread_mutex_lock(&self.log.state.mutex)
            end_turn_locked(self.log.state)
            take_waiters_locked(self.log.state, False, &woken)
            pthread_mutex_unlock(&self.log.state.mutex)
            fire(&woken)
