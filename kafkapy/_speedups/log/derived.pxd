"""Files of a partition that are derived from its batches: producer snapshots and transaction indexes. `storage` is a
LogStorage; OSError.
"""

from libc.stdint cimport int64_t

from kafkapy._speedups.log.layout cimport LogState

# Writes `<log end>.snapshot`, unless one of that offset was written; its offset, or None.
cdef object write_snapshot(LogState* log, object storage)
# Writes the snapshots that rolls have left.
cdef int write_snapshots_of_rolls(LogState* log, object storage) except -1
# [(offset, bytes), ...] of the snapshots up to `end`; those above are removed.
cdef list usable_snapshots(object storage, int64_t end)
# Makes the .txnindex of segments from `first_base` on say what is known of aborted transactions: after a truncation or
# recovery.
cdef int write_transaction_indexes(LogState* log, object storage, int64_t first_base) except -1
