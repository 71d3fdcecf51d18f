"""The turns of appends: one writes at a time, and on a slow disk each append keeps its place in the queue.

Callers hold the log's mutex. An append that meets the write of another one waits for PATIENCE_NS and then parks: its
Waiter joins `log.waiters`, and its number (`threshold`) is its place there for good. After writes that took longer
than that, turns are handed over for FAIR_TURNS turns: one parked append at a time is called (`next_turn`), the oldest,
and later ones park behind it. A called append that never comes holds the turn for CALL_NS; whoever removes its waiters
gives the turn back earlier. While writes are quick, all parked appends are woken at once and the first one there
writes: on a quick disk a queue would only cost wake-ups.
"""

from libc.stdint cimport int64_t, uint64_t

from kafkapy._speedups.log.layout cimport LogState, Waiter

cdef enum Turn:
    TURN_FREE = 0           # no append writes, and no other append was called
    TURN_LOOK_AGAIN = 1     # the mutex was released
    TURN_SLOW = 2           # an append has been writing for long, or others come first: park

# Makes a waiter for an append that cannot park: its thread waits for the turn without a limit of time.
cdef void patient_waiter(Waiter* waiter) noexcept nogil
# Takes the mutex when no roll renames a file and no append writes. Changes of segments, epochs or leadership wait here.
cdef void lock_settled(LogState* log) noexcept nogil
# Waits for the turn of an append.
cdef Turn await_turn_locked(LogState* log, Waiter* waiter) noexcept nogil
cdef void begin_turn_locked(LogState* log) noexcept nogil
# Ends the turn. Call take_waiters_locked afterwards.
cdef void end_turn_locked(LogState* log) noexcept nogil
# Whether turns are handed over to one append at a time.
cdef bint is_fair_locked(LogState* log) noexcept nogil
# Whether the last turn was slow, so that the next one is likely to be.
cdef bint was_slow_locked(LogState* log) noexcept nogil
# Whether the next turn is this append's.
cdef bint is_called_locked(LogState* log, const void* owner, uint64_t token) noexcept nogil
# Whether an append may be called now: nothing writes or rolls, and no other called append is expected.
cdef bint may_call_locked(LogState* log) noexcept nogil
# Keeps the next turn for an append, whose waiter is no longer in the queue.
cdef void call_locked(LogState* log, const Waiter* waiter) noexcept nogil
# Queues an append: behind all others when it parks for the first time, else at its old place.
cdef void park_locked(LogState* log, int kind, Waiter* waiter) noexcept nogil
cdef void remove_waiters_locked(LogState* log, const void* owner, uint64_t token) noexcept nogil
