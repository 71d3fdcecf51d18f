"""The transaction index of a log's segments: the aborted transactions."""

from kafkapy._speedups.log.layout cimport LogState

# Writes the aborted transactions of past appends into .txnindex, in order. Those appends call it after they release the
# mutex, and a flush before the recovery point passes their markers. 0 or an errno, then the log is offline.
cdef int write_aborted_transactions(LogState* log) noexcept nogil
