"""The transaction index of a log's segments: transactions that were aborted."""

from kafkapy._speedups.log.layout cimport LogState

# Puts aborted transactions that appends have left into .txnindex, in their order; called by those appends after the
# mutex is released, and by a flush before the recovery point moves over their markers. 0 or an errno, then the log is
# offline.
cdef int write_aborted_transactions(LogState* log) noexcept nogil
