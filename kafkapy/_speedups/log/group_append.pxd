"""One write for the appends of several clients to one log.

A network thread that finds requests of many connections at once gives those for the same partition here together.
Each batch gets its own offsets, checks, sequence and answer, in the order given, as if they had come one after the
other; only the write is one. A member that needs more than that (a roll, a turn that is taken, a duplicate, a refusal,
a worker) is left undecided, and its request appends it by `log_append`. A failed write refuses every member of it.
"""

from libc.stdint cimport int64_t, uint8_t

from kafkapy._speedups.log.append_checks cimport CheckedBatch
from kafkapy._speedups.log.layout cimport AppendOptions, AppendResult, LogState

cdef struct GroupMember:
    uint8_t* data               # one batch of a client; it is copied, and only its max timestamp may be patched
    int64_t size
    AppendOptions options
    AppendResult result         # of a decided one; without record errors
    bint decided                # appended, or refused with result.error
    bint checked                # of another one: CRC and records are right
    CheckedBatch batch          # of the group

cdef void log_append_group(LogState* log, GroupMember* members, size_t count) noexcept nogil
