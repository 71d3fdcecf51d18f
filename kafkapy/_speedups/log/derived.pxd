"""Files of a partition that derive from its batches: producer snapshots and transaction indexes.

`storage` is a LogStorage. Functions raise OSError.
"""

from libc.stdint cimport int64_t

from kafkapy._speedups.log.layout cimport LogState

# Writes `<log end>.snapshot`, unless that snapshot exists; returns its offset, or None.
cdef object write_snapshot(LogState* log, object storage)
# Writes the snapshots of past rolls.
cdef int write_snapshots_of_rolls(LogState* log, object storage) except -1
# [(offset, bytes), ...] of the snapshots up to `end`; removes the snapshots above.
cdef list usable_snapshots(object storage, int64_t end)
# Writes the known aborted transactions into the .txnindex of segments from `first_base` on, after a truncation or
# recovery.
cdef int write_transaction_indexes(LogState* log, object storage, int64_t first_base) except -1
